/* Options in words: the lines of `--help`, and what a bad value should have been.
 *
 *       -n, --nproc-per-node N|auto  ranks to start (default: 1)
 *           --dtype f32|bf16         of the parameters (default: f32)
 *           --quiet                  print the result only
 *
 * A line has two columns; the second starts behind the longest first, at most at HEAD_BYTES_MAX.
 */
#include "core/base/options_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "core/base/reals.h"

enum { HEAD_BYTES = 256, HEAD_BYTES_MAX = 34 };

/* A text under construction that keeps counting when it is full, as snprintf does. */
typedef struct {
    char *text;
    size_t bytes, used;
} writer_t;

__attribute__((format(printf, 2, 3))) static void put(writer_t *to, const char *format, ...)
{
    const size_t left = to->used < to->bytes ? to->bytes - to->used : 0;
    va_list args;
    va_start(args, format);
    const int n = tt_format_list(left > 0 ? to->text + to->used : NULL, left, format, args);
    va_end(args);
    to->used += n > 0 ? (size_t)n : 0;
}

static void put_choices(writer_t *to, const char *const *choices, const char *between,
                        const char *before_last)
{
    for (int i = 0; choices[i] != NULL; i++) {
        const bool is_last = choices[i + 1] == NULL;
        put(to, "%s%s", i == 0 ? "" : is_last ? before_last : between, choices[i]);
    }
}

static void put_limits(writer_t *to, const tutti_option_t *option)
{
    if (option->min == option->max) {
        return;
    }
    if (isinf(option->max)) {
        put(to, " of at least %.15g", option->min);
    } else if (isinf(option->min)) {
        put(to, " of at most %.15g", option->max);
    } else {
        put(to, " from %.15g to %.15g", option->min, option->max);
    }
}

void tt_option_wanted(const tutti_option_t *option, char *text, size_t text_bytes)
{
    writer_t to = {text, text_bytes, 0};
    switch (option->kind) {
    case TUTTI_OPTION_INT:
        put(&to, "an integer");
        put_limits(&to, option);
        break;
    case TUTTI_OPTION_REAL:
        put(&to, "a number");
        put_limits(&to, option);
        break;
    case TUTTI_OPTION_CHOICE:
        put_choices(&to, option->choices, ", ", " or ");
        break;
    case TUTTI_OPTION_TEXT:
    case TUTTI_OPTION_TEXTS:
        put(&to, "%s", option->argument != NULL ? option->argument : "a text");
        break;
    case TUTTI_OPTION_FLAG:
        put(&to, "nothing");
        break;
    }
}

/* How wide a text of UTF-8 is on a terminal: its characters, of which all but the first byte are
 * 10xxxxxx. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return width;
}

/* Returns how wide it is. */
static size_t write_head(const tutti_option_t *option, char *text, size_t text_bytes)
{
    writer_t to = {text, text_bytes, 0};
    if (option->alias != 0) {
        put(&to, "  -%c, --%s", option->alias, option->name);
    } else {
        put(&to, "      --%s", option->name);
    }
    if (option->kind == TUTTI_OPTION_CHOICE && option->argument == NULL) {
        put(&to, " ");
        put_choices(&to, option->choices, "|", "|");
    } else if (option->kind != TUTTI_OPTION_FLAG) {
        put(&to, " %s", option->argument != NULL ? option->argument : "VALUE");
    }
    return width_of(text);
}

static void put_default(writer_t *to, const tutti_option_t *option, const void *defaults)
{
    const void *field = (const char *)defaults + option->offset;
    const char *text = NULL;
    switch (option->kind) {
    case TUTTI_OPTION_INT:
        put(to, " (default: %" PRId64 ")", *(const int64_t *)field);
        return;
    case TUTTI_OPTION_REAL:
        put(to, " (default: %.6g)", *(const double *)field);
        return;
    case TUTTI_OPTION_TEXT:
        text = *(const char *const *)field;
        break;
    case TUTTI_OPTION_TEXTS:
        return;
    case TUTTI_OPTION_CHOICE:
        text = option->choices[*(const int *)field];
        break;
    case TUTTI_OPTION_FLAG:
        text = *(const bool *)field ? "on" : NULL;
        break;
    }
    if (text != NULL) {
        put(to, " (default: %s)", text);
    }
}

static size_t second_column(const tutti_option_t *table)
{
    char head[HEAD_BYTES];
    size_t widest = sizeof "  -h, --help" - 1;
    for (; table->name != NULL; table++) {
        const size_t width = write_head(table, head, sizeof head);
        widest = width > widest && width <= HEAD_BYTES_MAX ? width : widest;
    }
    return widest + 2;
}

size_t tutti_options_help(const tutti_option_t *table, const void *defaults, char *text,
                          size_t text_bytes)
{
    writer_t to = {text, text_bytes, 0};
    const size_t column = second_column(table);
    char head[HEAD_BYTES];
    for (const tutti_option_t *option = table; option->name != NULL; option++) {
        const size_t width = write_head(option, head, sizeof head);
        const size_t gap = width + 2 <= column ? column - width : 2;
        put(&to, "%s%*s%s", head, (int)gap, "", option->about != NULL ? option->about : "");
        if (defaults != NULL) {
            put_default(&to, option, defaults);
        }
        put(&to, "\n");
    }
    put(&to, "%-*s%s\n", (int)column, "  -h, --help", "show this text");
    return to.used;
}
