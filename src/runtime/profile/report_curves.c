/* Numbers that a training told (metrics.jsonl), and their curves. A picture has 600 columns: of
 * each the smallest and the largest value are drawn, so that no spike is lost. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "core/base/file.h"
#include "runtime/profile/report_parts.h"

enum { WIDTH = 600, HEIGHT = 180, LEFT = 70, TOP = 10 };

static const char what[] = "report";

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t curve_of(tt_told_numbers_t *all, const char *name, tt_curve_t **out)
{
    for (size_t i = 0; i < all->curve_count; i++) {
        if (strcmp(all->curves[i].name, name) == 0) {
            *out = &all->curves[i];
            return TUTTI_OK;
        }
    }
    tt_curve_t *curves = tt_realloc(all->curves, (all->curve_count + 1) * sizeof *curves, what);
    TT_TRY_ALLOC(curves);
    all->curves = curves;
    char *copy = tt_strdup(name, what);
    TT_TRY_ALLOC(copy);
    *out = &all->curves[all->curve_count++];
    **out = (tt_curve_t){.name = copy};
    return TUTTI_OK;
}

static tutti_status_t add_point(tt_curve_t *curve, int64_t step, double value)
{
    if (curve->count == curve->capacity) {
        const size_t capacity = curve->capacity == 0 ? 64 : 2 * curve->capacity;
        int64_t *steps = tt_realloc(curve->steps, capacity * sizeof *steps, what);
        curve->steps = steps == NULL ? curve->steps : steps;
        double *values = tt_realloc(curve->values, capacity * sizeof *values, what);
        curve->values = values == NULL ? curve->values : values;
        if (steps == NULL || values == NULL) {
            return TUTTI_ERR_NOMEM;
        }
        curve->capacity = capacity;
    }
    curve->steps[curve->count] = step;
    curve->values[curve->count++] = value;
    return TUTTI_OK;
}

static tutti_status_t set_note(tt_told_numbers_t *all, const char *name, const char *text)
{
    size_t at = 0;
    while (at < all->note_count && strcmp(all->notes[at].name, name) != 0) {
        at++;
    }
    if (at == all->note_count) {
        tt_note_t *notes = tt_realloc(all->notes, (at + 1) * sizeof *notes, what);
        TT_TRY_ALLOC(notes);
        all->notes = notes;
        notes[at] = (tt_note_t){.name = tt_strdup(name, what)};
        TT_TRY_ALLOC(notes[at].name);
        all->note_count++;
    }
    char *copy = tt_strdup(text, what);
    TT_TRY_ALLOC(copy);
    tt_free(all->notes[at].text);
    all->notes[at].text = copy;
    return TUTTI_OK;
}

/* {"step":0,"time":…,"name":"train/loss","value":1}, or with a text. */
static tutti_status_t take_line(const char *line, tt_told_numbers_t *all, size_t *odd_lines)
{
    json_t *object = json_loads(line, 0, NULL);
    const char *name = json_string_value(json_object_get(object, "name"));
    const json_t *step = json_object_get(object, "step"), *value = json_object_get(object, "value");
    const char *text = json_string_value(json_object_get(object, "text"));
    tt_curve_t *curve;
    tutti_status_t status = TUTTI_OK;
    if (name != NULL && text != NULL) {
        status = set_note(all, name, text);
    } else if (name != NULL && json_is_integer(step) &&
               (json_is_number(value) || json_is_null(value))) {
        status = curve_of(all, name, &curve);
        status = status < 0 ? status
                            : add_point(curve, (int64_t)json_integer_value(step),
                                        json_is_null(value) ? NAN : json_number_value(value));
    } else {
        *odd_lines += name == NULL;
    }
    json_decref(object);
    return status;
}

tutti_status_t tt_numbers_read(const char *path, tt_told_numbers_t *out, size_t *odd_lines)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    char *text = tt_alloc_raw((size_t)file.bytes + 1, what);
    tutti_status_t status =
        text == NULL ? TUTTI_ERR_NOMEM : tt_file_read_at(&file, 0, text, (size_t)file.bytes);
    if (status >= 0) {
        text[file.bytes] = 0;
    }
    /* The last line may be without its end, if the training was killed. */
    for (char *line = text, *end; status >= 0 && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        *end = 0;
        status = take_line(line, out, odd_lines);
    }
    tt_free(text);
    tt_file_close(&file);
    return status;
}

void tt_numbers_free(tt_told_numbers_t *numbers)
{
    for (size_t i = 0; i < numbers->curve_count; i++) {
        tt_free(numbers->curves[i].name);
        tt_free(numbers->curves[i].steps);
        tt_free(numbers->curves[i].values);
    }
    for (size_t i = 0; i < numbers->note_count; i++) {
        tt_free(numbers->notes[i].name);
        tt_free(numbers->notes[i].text);
    }
    tt_free(numbers->curves);
    tt_free(numbers->notes);
    *numbers = (tt_told_numbers_t){0};
}

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct {
    int64_t first, last; /* steps */
    double low, high;    /* values */
} frame_t;

static frame_t frame_of(const tt_curve_t *curve)
{
    frame_t frame = {INT64_MAX, INT64_MIN, INFINITY, -INFINITY};
    for (size_t i = 0; i < curve->count; i++) {
        frame.first = curve->steps[i] < frame.first ? curve->steps[i] : frame.first;
        frame.last = curve->steps[i] > frame.last ? curve->steps[i] : frame.last;
        if (isfinite(curve->values[i])) {
            frame.low = fmin(frame.low, curve->values[i]);
            frame.high = fmax(frame.high, curve->values[i]);
        }
    }
    if (frame.low == frame.high) { /* a flat one lies in the middle */
        const double room = fmax(fabs(frame.low) / 2, DBL_MIN);
        frame.low = fmax(frame.low - (frame.low != 0 ? room : 1), -DBL_MAX);
        frame.high = fmin(frame.high + (frame.high != 0 ? room : 1), DBL_MAX);
    }
    return frame;
}

static int column_of(const frame_t *frame, int64_t step)
{
    const double length = (double)frame->last - (double)frame->first;
    return length > 0 ? (int)((double)(WIDTH - 1) * ((double)step - (double)frame->first) / length)
                      : WIDTH / 2;
}

/* In tenths of a pixel, from the top. Halves: the difference of two numbers may be none. */
static int row_of(const frame_t *frame, double value)
{
    const double height = frame->high / 2 - frame->low / 2;
    const double share = height > 0 ? (value / 2 - frame->low / 2) / height : 0;
    return (int)(10 * (HEIGHT * (1 - share) + TOP) + 0.5);
}

typedef struct {
    double low, high;
} range_t;

static void print_ends(tt_byte_row_t *page, const frame_t *frame)
{
    tt_row_print(page,
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>"
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>",
                 LEFT - 6, TOP + 8, frame->high, LEFT - 6, TOP + HEIGHT, frame->low);
    tt_row_print(page,
                 "<text x=\"%d\" y=\"%d\">%" PRId64 "</text>"
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%" PRId64 "</text>",
                 LEFT, TOP + HEIGHT + 16, frame->first, LEFT + WIDTH, TOP + HEIGHT + 16,
                 frame->last);
}

static void print_line(tt_byte_row_t *page, const frame_t *frame, const range_t *ranges)
{
    tt_row_print(page, "<polyline class=\"curve\" points=\"");
    for (int x = 0; x < WIDTH; x++) {
        if (ranges[x].low > ranges[x].high) {
            continue;
        }
        const int high = row_of(frame, ranges[x].high), low = row_of(frame, ranges[x].low);
        tt_row_print(page, "%d,%d.%d ", LEFT + x, high / 10, high % 10);
        if (low != high) {
            tt_row_print(page, "%d,%d.%d ", LEFT + x, low / 10, low % 10);
        }
    }
    tt_row_print(page, "\"/>");
}

void tt_page_curve(tt_byte_row_t *page, const tt_curve_t *curve)
{
    range_t ranges[WIDTH];
    const frame_t frame = frame_of(curve);
    size_t odd = 0;
    for (int x = 0; x < WIDTH; x++) {
        ranges[x] = (range_t){INFINITY, -INFINITY};
    }
    for (size_t i = 0; i < curve->count; i++) {
        range_t *range = &ranges[column_of(&frame, curve->steps[i])];
        odd += !isfinite(curve->values[i]);
        if (isfinite(curve->values[i])) {
            range->low = fmin(range->low, curve->values[i]);
            range->high = fmax(range->high, curve->values[i]);
        }
    }
    tt_row_print(page, "<figure><figcaption>");
    tt_row_html(page, curve->name);
    if (odd > 0) {
        tt_row_print(page, " <b>(%zu values are no numbers)</b>", odd);
    }
    tt_row_print(page, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">", LEFT + WIDTH + 10,
                 TOP + HEIGHT + 24);
    tt_row_print(page, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", LEFT,
                 TOP, WIDTH, HEIGHT);
    if (odd < curve->count) {
        print_ends(page, &frame);
        print_line(page, &frame, ranges);
    }
    tt_row_print(page, "</svg></figure>\n");
}
