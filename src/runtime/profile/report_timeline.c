/* Timelines of a report. Time is cut into 1000 columns; a lane's bar has in each column the colour
 * of what took most of it, by own time: what is inside of an event is not the event's.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/units.h"
#include "runtime/profile/report_parts.h"

enum { COLUMNS = 1000, LEFT = 150, LANE_HEIGHT = 16, LANE_PITCH = 22, MEMORY_HEIGHT = 120 };

typedef enum { NOTHING, FORWARD, BACKWARD, STEP, WAIT, OTHER, COLOURS } colour_t;

static const char *const names[COLOURS] = {
    [FORWARD] = "forward", [BACKWARD] = "backward", [STEP] = "optimizer step",
    [WAIT] = "waiting",    [OTHER] = "other",
};

static colour_t colour_of(const tt_told_row_t *row)
{
    switch (row->kind) {
    case TT_PROFILE_FORWARD:
    case TT_PROFILE_MODULE:
        return FORWARD;
    case TT_PROFILE_BACKWARD:
        return BACKWARD;
    case TT_PROFILE_WAIT:
        return WAIT;
    case TT_PROFILE_REGION:
        return strcmp(row->name, "optimizer step") == 0 ? STEP
               : strcmp(row->name, "backward") == 0     ? BACKWARD
                                                        : OTHER;
    default:
        return OTHER;
    }
}

typedef struct {
    int64_t zero_ns, length_ns; /* of all ranks */
    int64_t (*spent)[COLOURS];  /* [COLUMNS] ns of a lane in each colour */
} axis_t;

static axis_t axis_of(const tutti_profile_t *profile)
{
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (int p = 0; p < profile->count; p++) {
        const tt_told_process_t *process = &profile->processes[p];
        const int64_t from = process->begin_ns + process->offset_ns;
        const int64_t to = process->end_ns + process->offset_ns;
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    return (axis_t){begin, end > begin ? end - begin : 1, NULL};
}

static int64_t column_begin(const axis_t *axis, int column)
{
    return (int64_t)((double)axis->length_ns * column / COLUMNS);
}

static int column_of(const axis_t *axis, int64_t ns)
{
    const double column = (double)ns * COLUMNS / (double)axis->length_ns;
    return column < 0 ? 0 : column >= COLUMNS ? COLUMNS - 1 : (int)column;
}

/* Adds an interval to the columns that it covers; `sign` -1 takes it away again. */
static void spend(const axis_t *axis, colour_t colour, int64_t begin, int64_t end, int sign)
{
    for (int column = column_of(axis, begin), last = column_of(axis, end); column <= last;
         column++) {
        const int64_t from = column_begin(axis, column), to = column_begin(axis, column + 1);
        const int64_t low = begin > from ? begin : from, high = end < to ? end : to;
        axis->spent[column][colour] += high > low ? sign * (high - low) : 0;
    }
}

/* Events are in the order of their ends, so that those inside come before the one around them:
 * each takes its time away from what is around it. */
static void spend_lane(const axis_t *axis, const tt_told_process_t *process,
                       const tt_told_lane_t *lane)
{
    const int64_t shift = process->begin_ns + process->offset_ns - axis->zero_ns;
    for (size_t i = 0; i < lane->event_count; i++) {
        const tt_told_event_t *event = &lane->events[i];
        const colour_t colour = colour_of(&lane->rows[event->row]);
        int64_t inside_from = event->end_ns;
        spend(axis, colour, shift + event->begin_ns, shift + event->end_ns, 1);
        for (size_t k = i; k-- > 0 && lane->events[k].end_ns > event->begin_ns;) {
            const tt_told_event_t *inner = &lane->events[k];
            if (inner->end_ns <= inside_from && inner->begin_ns >= event->begin_ns) {
                spend(axis, colour, shift + inner->begin_ns, shift + inner->end_ns, -1);
                inside_from = inner->begin_ns;
            }
        }
    }
}

static colour_t most_of(const axis_t *axis, int column)
{
    const int64_t width = column_begin(axis, column + 1) - column_begin(axis, column);
    colour_t most = NOTHING;
    int64_t ns = width / 20; /* less is nothing */
    for (int colour = FORWARD; colour < COLOURS; colour++) {
        if (axis->spent[column][colour] > ns) {
            ns = axis->spent[column][colour];
            most = (colour_t)colour;
        }
    }
    return most;
}

static void print_lane(tt_byte_row_t *page, const axis_t *axis, int y)
{
    for (int column = 0, end; column < COLUMNS; column = end) {
        const colour_t colour = most_of(axis, column);
        for (end = column + 1; end < COLUMNS && most_of(axis, end) == colour; end++) {
        }
        if (colour != NOTHING) {
            tt_row_print(page, "<rect class=\"c%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>",
                         (int)colour, LEFT + column, y, end - column, LANE_HEIGHT);
        }
    }
}

static size_t count_lanes(const tutti_profile_t *profile)
{
    size_t count = 0;
    for (int p = 0; p < profile->count; p++) {
        for (size_t i = 0; i < profile->processes[p].lane_count; i++) {
            count += profile->processes[p].lanes[i].event_count > 0;
        }
    }
    return count;
}

static void print_name(tt_byte_row_t *page, const tt_told_lane_t *lane, int y)
{
    tt_row_print(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d ", LEFT - 6,
                 y + LANE_HEIGHT - 4, lane->rank);
    tt_row_html(page, lane->name);
    tt_row_print(page, "</text>");
}

static void print_axis(tt_byte_row_t *page, const axis_t *axis, int y)
{
    char text[TT_UNITS_TEXT_BYTES];
    tt_row_print(page,
                 "<text x=\"%d\" y=\"%d\">0</text>"
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>",
                 LEFT, y, LEFT + COLUMNS, y,
                 tt_units_seconds((double)axis->length_ns * 1e-9, text));
}

static void print_legend(tt_byte_row_t *page)
{
    tt_row_print(page, "<p>");
    for (int colour = FORWARD; colour < COLOURS; colour++) {
        tt_row_print(page,
                     "<svg class=\"key\" viewBox=\"0 0 10 10\"><rect class=\"c%d\" width=\"10\" "
                     "height=\"10\"/></svg> %s &#160; ",
                     colour, names[colour]);
    }
    tt_row_print(page, "</p>\n");
}

tutti_status_t tt_page_timeline(tt_byte_row_t *page, const tutti_profile_t *profile)
{
    axis_t axis = axis_of(profile);
    const int lanes = (int)count_lanes(profile);
    int y = 0;
    axis.spent = tt_alloc_array(COLUMNS, sizeof *axis.spent, "report");
    TT_TRY_ALLOC(axis.spent);
    tt_row_print(page, "<h2>Timeline</h2>\n");
    print_legend(page);
    tt_row_print(page, "<svg viewBox=\"0 0 %d %d\" role=\"img\">", LEFT + COLUMNS + 10,
                 lanes * LANE_PITCH + 20);
    for (int p = 0; p < profile->count; p++) {
        const tt_told_process_t *process = &profile->processes[p];
        for (size_t i = 0; i < process->lane_count; i++) {
            if (process->lanes[i].event_count > 0) {
                memset(axis.spent, 0, COLUMNS * sizeof *axis.spent);
                spend_lane(&axis, process, &process->lanes[i]);
                print_name(page, &process->lanes[i], y);
                print_lane(page, &axis, y);
                y += LANE_PITCH;
            }
        }
    }
    print_axis(page, &axis, y + 14);
    tt_row_print(page, "</svg>\n");
    tt_free(axis.spent);
    return TUTTI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void print_rank_memory(tt_byte_row_t *page, const axis_t *axis,
                              const tt_told_process_t *process, uint64_t most, int number)
{
    uint64_t high[COLUMNS] = {0};
    const int64_t shift = process->begin_ns + process->offset_ns - axis->zero_ns;
    for (size_t i = 0; i < process->lane_count; i++) {
        for (size_t k = 0; k < process->lanes[i].event_count; k++) {
            const tt_told_event_t *event = &process->lanes[i].events[k];
            uint64_t *at = &high[column_of(axis, shift + event->end_ns)];
            *at = event->live_bytes > *at ? event->live_bytes : *at;
        }
    }
    tt_row_print(page, "<polyline class=\"memory m%d\" points=\"", number % 4);
    for (int column = 0; column < COLUMNS; column++) {
        if (high[column] > 0) {
            tt_row_print(page, "%d,%d ", LEFT + column,
                         5 + MEMORY_HEIGHT -
                             (int)(fmin((double)high[column] / (double)most, 1) * MEMORY_HEIGHT));
        }
    }
    tt_row_print(page, "\"/>");
}

void tt_page_memory(tt_byte_row_t *page, const tutti_profile_t *profile)
{
    char text[TT_UNITS_TEXT_BYTES];
    const axis_t axis = axis_of(profile);
    uint64_t most = 1;
    for (int p = 0; p < profile->count; p++) {
        most = profile->processes[p].peak_bytes > most ? profile->processes[p].peak_bytes : most;
    }
    tt_row_print(page, "<h2>Memory over time</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\">",
                 LEFT + COLUMNS + 10, MEMORY_HEIGHT + 30);
    tt_row_print(page, "<rect class=\"frame\" x=\"%d\" y=\"5\" width=\"%d\" height=\"%d\"/>", LEFT,
                 COLUMNS, MEMORY_HEIGHT);
    tt_row_print(page, "<text x=\"%d\" y=\"14\" text-anchor=\"end\">%s</text>", LEFT - 6,
                 tt_units_bytes(most, text));
    for (int p = 0; p < profile->count; p++) {
        print_rank_memory(page, &axis, &profile->processes[p], most, p);
    }
    print_axis(page, &axis, MEMORY_HEIGHT + 22);
    tt_row_print(page, "</svg>\n");
}
