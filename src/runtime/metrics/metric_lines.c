/* Lines of JSON and CSV. JSON has no number that is not finite, and text that is not UTF-8 becomes
 * U+FFFD there; CSV quotes names as RFC 4180 does.
 */
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/metrics/metrics_impl.h"

/* The shortest of 15 to 17 digits that reads back as the same number; a decimal point of the
 * thread's locale, which may be several bytes, becomes a point. */
static void add_number(tt_byte_row_t *row, double value)
{
    char text[64];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double again = NAN;
        if (sscanf(text, "%lg", &again) == 1 && again == value) {
            break;
        }
    }
    const char *point = localeconv()->decimal_point;
    char *found = strcmp(point, ".") == 0 ? NULL : strstr(text, point);
    if (found != NULL) {
        *found = '.';
        memmove(found + 1, found + strlen(point), strlen(found + strlen(point)) + 1);
    }
    tt_row_add(row, text, strlen(text));
}

static const char *name_of(double value)
{
    return isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/* Bytes of the character that begins at text: 0 if it is not UTF-8. */
static size_t utf8_bytes(const unsigned char *text)
{
    static const struct {
        unsigned char least, most;
        size_t bytes;
        uint32_t smallest;
    } heads[] = {{0x00, 0x7f, 1, 0},
                 {0xc2, 0xdf, 2, 0x80},
                 {0xe0, 0xef, 3, 0x800},
                 {0xf0, 0xf4, 4, 0x10000}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        if (*text < heads[h].least || *text > heads[h].most) {
            continue;
        }
        const size_t bytes = heads[h].bytes;
        uint32_t code = *text & (bytes == 1 ? 0x7fU : 0xffU >> (bytes + 1));
        for (size_t i = 1; i < bytes; i++) {
            if ((text[i] & 0xc0) != 0x80) {
                return 0;
            }
            code = code << 6 | (text[i] & 0x3f);
        }
        const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
        return code < heads[h].smallest || code > 0x10ffff || is_surrogate ? 0 : bytes;
    }
    return 0;
}

size_t tt_utf8_text_bytes(const char *text)
{
    size_t whole = 0, bytes = 1;
    while (text[whole] != 0 && bytes > 0) {
        bytes = utf8_bytes((const unsigned char *)text + whole);
        whole += bytes;
    }
    return whole;
}

/* U+FFFD for each byte that is none of a character. */
static const char replacement[] = "\xef\xbf\xbd";

void tt_utf8_repair(tt_byte_row_t *row, const char *text)
{
    for (const char *at = text; *at != 0;) {
        const size_t bytes = utf8_bytes((const unsigned char *)at);
        tt_row_add(row, bytes == 0 ? replacement : at, bytes == 0 ? sizeof replacement - 1 : bytes);
        at += bytes == 0 ? 1 : bytes;
    }
}

static void add_json_text(tt_byte_row_t *row, const char *text)
{
    tt_row_add(row, "\"", 1);
    for (const unsigned char *at = (const unsigned char *)text; *at != 0;) {
        const size_t bytes = utf8_bytes(at);
        if (bytes == 0) {
            tt_row_add(row, replacement, sizeof replacement - 1);
        } else if (*at == '"' || *at == '\\') {
            tt_row_print(row, "\\%c", *at);
        } else if (*at < ' ') {
            tt_row_print(row, "\\u%04x", *at);
        } else {
            tt_row_add(row, at, bytes);
        }
        at += bytes == 0 ? 1 : bytes;
    }
    tt_row_add(row, "\"", 1);
}

/* Milliseconds, without going through a locale. */
static void add_time(tt_byte_row_t *row, double time)
{
    const int64_t ms = (int64_t)(time * 1000);
    tt_row_print(row, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

static void begin_json(tt_byte_row_t *row, const tt_metric_t *metric)
{
    tt_row_print(row, "{\"step\":%" PRId64 ",\"time\":", metric->step);
    add_time(row, metric->time);
    tt_row_print(row, ",\"name\":");
    add_json_text(row, metric->name);
}

static void add_json_number(tt_byte_row_t *row, const char *key, double value)
{
    tt_row_print(row, ",\"%s\":", key);
    if (isfinite(value)) {
        add_number(row, value);
    } else {
        tt_row_print(row, "null");
    }
}

void tt_json_scalar(tt_byte_row_t *lines, const tt_metric_t *metric, double value)
{
    begin_json(lines, metric);
    add_json_number(lines, "value", value);
    if (!isfinite(value)) {
        tt_row_print(lines, ",\"not_finite\":\"%s\"", name_of(value));
    }
    tt_row_print(lines, "}\n");
}

void tt_json_spread(tt_byte_row_t *lines, const tt_metric_t *metric,
                    const tt_metric_spread_t *spread)
{
    const double count = (double)spread->count;
    begin_json(lines, metric);
    tt_row_print(lines, ",\"count\":%" PRId64 ",\"not_finite\":%" PRId64, spread->count,
                 spread->not_finite);
    if (spread->count > 0) {
        const double mean = spread->sum / count;
        add_json_number(lines, "min", spread->smallest);
        add_json_number(lines, "max", spread->largest);
        add_json_number(lines, "mean", mean);
        add_json_number(lines, "std", sqrt(spread->deviations / count));
    }
    tt_row_print(lines, "}\n");
}

void tt_json_text(tt_byte_row_t *lines, const tt_metric_t *metric, const char *text)
{
    begin_json(lines, metric);
    tt_row_print(lines, ",\"text\":");
    add_json_text(lines, text);
    tt_row_print(lines, "}\n");
}

void tt_json_picture(tt_byte_row_t *lines, const tt_metric_t *metric, const tt_picture_t *picture)
{
    begin_json(lines, metric);
    tt_row_print(lines, ",\"width\":%" PRId64 ",\"height\":%" PRId64 "}\n", picture->width,
                 picture->height);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

void tt_csv_scalar(tt_byte_row_t *lines, const tt_metric_t *metric, double value)
{
    tt_row_print(lines, "%" PRId64 ",", metric->step);
    add_time(lines, metric->time);
    tt_row_add(lines, ",", 1);
    if (strpbrk(metric->name, ",\"") == NULL) {
        tt_row_add(lines, metric->name, strlen(metric->name));
    } else {
        tt_row_add(lines, "\"", 1);
        for (const char *at = metric->name; *at != 0; at++) {
            tt_row_add(lines, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
        }
        tt_row_add(lines, "\"", 1);
    }
    tt_row_add(lines, ",", 1);
    if (isfinite(value)) {
        add_number(lines, value);
    } else {
        tt_row_print(lines, "%s", name_of(value));
    }
    tt_row_add(lines, "\n", 1);
}
