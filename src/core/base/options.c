/* Command lines, read in two passes over the same code: the first only checks, so that a bad
 * command line changes nothing in the caller's struct; the second stores.
 *
 * An argument is cut into (option, attached value): `--name=value`, `-nvalue`. A value that is not
 * attached is the next argument, unless that looks like an option itself.
 */
#include <tutti/options.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/config.h"
#include "core/base/fail.h"
#include "core/base/nearest.h"
#include "core/base/options_text.h"
#include "core/base/reals.h"

typedef struct {
    const tutti_option_t *option;
    const char *value; /* NULL where nothing is attached */
    bool is_help;
} argument_t;

static tutti_status_t fail_unknown(const tutti_option_t *table, const char *name, size_t length)
{
    char typed[TT_NAME_BYTES_MAX];
    snprintf(typed, sizeof typed, "%.*s", (int)(length < sizeof typed ? length : sizeof typed - 1),
             name);
    const char *nearest = "help";
    size_t least = tt_name_distance(typed, nearest);
    for (; table->name != NULL; table++) {
        const size_t distance = tt_name_distance(typed, table->name);
        if (distance < least) {
            least = distance;
            nearest = table->name;
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "unknown option --%s: the nearest is --%s (--help lists all)",
                   typed, nearest);
}

static tutti_status_t find_long(const tutti_option_t *table, const char *name, argument_t *out)
{
    const size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    for (const tutti_option_t *option = table; option->name != NULL; option++) {
        if (tt_name_is(name, length, option->name)) {
            *out = (argument_t){.option = option, .value = value};
            return TUTTI_OK;
        }
    }
    if (tt_name_is(name, length, "help")) {
        *out = (argument_t){.is_help = true};
        return TUTTI_OK;
    }
    return fail_unknown(table, name, length);
}

static tutti_status_t find_short(const tutti_option_t *table, const char *letters, argument_t *out)
{
    for (const tutti_option_t *option = table; option->name != NULL; option++) {
        if (option->alias == letters[0]) {
            *out = (argument_t){.option = option, .value = letters[1] != 0 ? letters + 1 : NULL};
            return TUTTI_OK;
        }
    }
    if (strcmp(letters, "h") == 0) {
        *out = (argument_t){.is_help = true};
        return TUTTI_OK;
    }
    /* Perhaps a long option with one dash. */
    for (const tutti_option_t *option = table; option->name != NULL; option++) {
        if (tt_name_is(letters, strcspn(letters, "="), option->name)) {
            return TT_FAIL(TUTTI_ERR_ARG, "unknown option -%s: write --%s", letters, option->name);
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "unknown option -%s (--help lists all)", letters);
}

static tutti_status_t fail_value(const tutti_option_t *option, const char *value)
{
    char wanted[256];
    tt_option_wanted(option, wanted, sizeof wanted);
    return TT_FAIL(TUTTI_ERR_ARG, "--%s %s: want %s", option->name, value, wanted);
}

static bool is_within(const tutti_option_t *option, double value)
{
    return option->min == option->max || (value >= option->min && value <= option->max);
}

static tutti_status_t store_int(const tutti_option_t *option, const char *text, int64_t *out)
{
    int64_t value;
    if (!tt_parse_int(text, &value) || !is_within(option, (double)value)) {
        return fail_value(option, text);
    }
    if (out != NULL) {
        *out = value;
    }
    return TUTTI_OK;
}

static tutti_status_t store_real(const tutti_option_t *option, const char *text, double *out)
{
    double value;
    if (!tt_parse_real(text, &value) || !isfinite(value) || !is_within(option, value)) {
        return fail_value(option, text);
    }
    if (out != NULL) {
        *out = value;
    }
    return TUTTI_OK;
}

static tutti_status_t store_choice(const tutti_option_t *option, const char *text, int *out)
{
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            if (out != NULL) {
                *out = i;
            }
            return TUTTI_OK;
        }
    }
    return fail_value(option, text);
}

/* Checks a value, and stores it unless `options` is NULL. */
static tutti_status_t store(const tutti_option_t *option, const char *value, void *options)
{
    void *field = options == NULL ? NULL : (char *)options + option->offset;
    switch (option->kind) {
    case TUTTI_OPTION_INT:
        return store_int(option, value, field);
    case TUTTI_OPTION_REAL:
        return store_real(option, value, field);
    case TUTTI_OPTION_CHOICE:
        return store_choice(option, value, field);
    case TUTTI_OPTION_TEXT:
        if (field != NULL) {
            *(const char **)field = value;
        }
        break;
    case TUTTI_OPTION_TEXTS:
        if (field != NULL) {
            tutti_option_texts_t *texts = field;
            texts->texts[texts->count++] = value;
        }
        break;
    case TUTTI_OPTION_FLAG:
        if (field != NULL) {
            *(bool *)field = true;
        }
        break;
    }
    return TUTTI_OK;
}

/* The value of an option: attached, or the next argument, which is then consumed. */
static tutti_status_t take_value(argument_t *argument, int argc, char *const *argv, int *at)
{
    const tutti_option_t *option = argument->option;
    if (option->kind == TUTTI_OPTION_FLAG) {
        return argument->value == NULL
                   ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_ARG, "--%s is a flag and takes no value, not \"%s\"",
                             option->name, argument->value);
    }
    if (argument->value != NULL) {
        return TUTTI_OK;
    }
    const bool has_next = *at + 1 < argc;
    if (!has_next || strncmp(argv[*at + 1], "--", 2) == 0) {
        char wanted[256];
        tt_option_wanted(option, wanted, sizeof wanted);
        return TT_FAIL(TUTTI_ERR_ARG, "--%s: the value is missing: want %s%s%s", option->name,
                       wanted, has_next ? ", and before " : "", has_next ? argv[*at + 1] : "");
    }
    argument->value = argv[++*at];
    return TUTTI_OK;
}

/* Of all options that collect their values together, so that each has room for its own. */
static tutti_status_t count_texts(const tutti_option_t *option, int *count)
{
    *count += option->kind == TUTTI_OPTION_TEXTS;
    return *count <= TUTTI_OPTION_TEXTS_MAX
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "--%s: given too often; at most %d times", option->name,
                         TUTTI_OPTION_TEXTS_MAX);
}

static bool is_option(const char *text)
{
    return text[0] == '-' && text[1] != 0;
}

static tutti_status_t walk(const tutti_option_t *table, int argc, char *const *argv, void *options,
                           int *rest)
{
    int at = 1, texts = 0;
    for (; at < argc && is_option(argv[at]); at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        argument_t argument;
        const bool is_long = argv[at][1] == '-';
        TT_TRY(is_long ? find_long(table, argv[at] + 2, &argument)
                       : find_short(table, argv[at] + 1, &argument));
        if (argument.is_help) {
            return TUTTI_END;
        }
        TT_TRY(take_value(&argument, argc, argv, &at));
        TT_TRY(count_texts(argument.option, &texts));
        TT_TRY(store(argument.option, argument.value, options));
    }
    *rest = at < argc ? at : argc;
    return TUTTI_OK;
}

tutti_status_t tutti_options_parse(const tutti_option_t *table, int argc, char *const *argv,
                                   void *options, int *rest)
{
    int first;
    const tutti_status_t status = walk(table, argc, argv, NULL, &first);
    if (status != TUTTI_OK) {
        return status;
    }
    if (rest == NULL && first < argc) {
        return TT_FAIL(TUTTI_ERR_ARG, "unexpected argument \"%s\": options start with -- (--help)",
                       argv[first]);
    }
    if (rest != NULL) {
        *rest = first;
    }
    return walk(table, argc, argv, options, &first);
}
