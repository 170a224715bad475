/* Lines of JSON and CSV. JSON has no number that is not finite, and text that is not UTF-8 becomes
 * U+FFFD there; CSV quotes names as RFC 4180 does.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/reals.h"
#include "runtime/metrics/metrics_impl.h"

static bool reads_back(const char *text, double value)
{
    double again = NAN;
    return tt_parse_real(text, &again) && again == value;
}

/* Most numbers want 16 or 17 digits; where 16 do, 15 may. */
void tt_metric_number(double value, tt_metric_number_t *out)
{
    char *text = out->text, shorter[TT_NUMBER_TEXT];
    out->value = value;
    if (!isfinite(value)) {
        tt_format(text, TT_NUMBER_TEXT, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    tt_format(text, TT_NUMBER_TEXT, "%.16g", value);
    if (!reads_back(text, value)) {
        tt_format(text, TT_NUMBER_TEXT, "%.17g", value);
        return;
    }
    tt_format(shorter, sizeof shorter, "%.15g", value);
    if (reads_back(shorter, value)) {
        memcpy(text, shorter, sizeof shorter);
    }
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
    tt_row_string(row, "\"");
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
    tt_row_string(row, "\"");
}

void tt_metric_begin(tt_metric_t *metric, const char *name, int64_t step, double time)
{
    const int64_t ms = (int64_t)(time * 1000);
    *metric = (tt_metric_t){.time = time, .step = step, .name = name};
    tt_format(metric->step_text, sizeof metric->step_text, "%" PRId64, step);
    tt_format(metric->time_text, sizeof metric->time_text, "%" PRId64 ".%03d", ms / 1000,
              (int)(ms % 1000));
}

static void begin_json(tt_byte_row_t *row, const tt_metric_t *metric)
{
    tt_row_string(row, "{\"step\":");
    tt_row_string(row, metric->step_text);
    tt_row_string(row, ",\"time\":");
    tt_row_string(row, metric->time_text);
    tt_row_string(row, ",\"name\":");
    add_json_text(row, metric->name);
}

static void add_json_number(tt_byte_row_t *row, const char *key, const tt_metric_number_t *number)
{
    tt_row_string(row, ",\"");
    tt_row_string(row, key);
    tt_row_string(row, "\":");
    tt_row_string(row, isfinite(number->value) ? number->text : "null");
}

void tt_json_scalar(tt_byte_row_t *lines, const tt_metric_t *metric,
                    const tt_metric_number_t *number)
{
    begin_json(lines, metric);
    add_json_number(lines, "value", number);
    if (!isfinite(number->value)) {
        tt_row_print(lines, ",\"not_finite\":\"%s\"", number->text);
    }
    tt_row_string(lines, "}\n");
}

static void add_json_value(tt_byte_row_t *row, const char *key, double value)
{
    tt_metric_number_t number;
    tt_metric_number(value, &number);
    add_json_number(row, key, &number);
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
        add_json_value(lines, "min", spread->smallest);
        add_json_value(lines, "max", spread->largest);
        add_json_value(lines, "mean", mean);
        add_json_value(lines, "std", sqrt(spread->deviations / count));
    }
    tt_row_string(lines, "}\n");
}

void tt_json_text(tt_byte_row_t *lines, const tt_metric_t *metric, const char *text)
{
    begin_json(lines, metric);
    tt_row_string(lines, ",\"text\":");
    add_json_text(lines, text);
    tt_row_string(lines, "}\n");
}

void tt_json_picture(tt_byte_row_t *lines, const tt_metric_t *metric, const tt_picture_t *picture)
{
    begin_json(lines, metric);
    tt_row_print(lines, ",\"width\":%" PRId64 ",\"height\":%" PRId64 "}\n", picture->width,
                 picture->height);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

void tt_csv_scalar(tt_byte_row_t *lines, const tt_metric_t *metric,
                   const tt_metric_number_t *number)
{
    tt_row_string(lines, metric->step_text);
    tt_row_string(lines, ",");
    tt_row_string(lines, metric->time_text);
    tt_row_string(lines, ",");
    if (strpbrk(metric->name, ",\"") == NULL) {
        tt_row_string(lines, metric->name);
    } else {
        tt_row_string(lines, "\"");
        for (const char *at = metric->name; *at != 0; at++) {
            tt_row_add(lines, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
        }
        tt_row_string(lines, "\"");
    }
    tt_row_string(lines, ",");
    tt_row_string(lines, number->text);
    tt_row_string(lines, "\n");
}
