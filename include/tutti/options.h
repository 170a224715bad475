/**
 * @file options.h
 * Command lines of programs: one table says which options there are, where their values go, and
 * what `--help` says.
 *
 * `--name value`, `--name=value`, `-n value` and `-nvalue` are understood, and names may be written
 * with dashes or underscores. Parsing stops at the first argument that is not an option, and
 * behind `--`. An unknown option is answered with the nearest known one, a bad value with the
 * option, the value and what is wanted.
 *
 * Example:
 *
 *     typedef struct { int64_t steps; bool quiet; } settings_t;
 *     static const tutti_option_t table[] = {
 *         {.name = "steps", .kind = TUTTI_OPTION_INT, .offset = offsetof(settings_t, steps),
 *          .argument = "N", .min = 1, .max = 1e9, .about = "steps to train"},
 *         {.name = "quiet", .alias = 'q', .offset = offsetof(settings_t, quiet),
 *          .about = "print the result only"},
 *         {0}};
 *
 *     settings_t settings = {.steps = 100};
 *     int rest = 0;
 *     const tutti_status_t status = tutti_options_parse(table, argc, argv, &settings, &rest);
 *     if (status != TUTTI_OK) { // TUTTI_END: --help stands there, and nothing else is wanted
 *         char help[2048];
 *         tutti_options_help(table, &settings, help, sizeof help);
 *         fprintf(status < 0 ? stderr : stdout, "%s\n", status < 0 ? tutti_last_error() : help);
 *         return status;
 *     }
 */
#ifndef TUTTI_OPTIONS_H
#define TUTTI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What an option takes, and the type of the field that receives it. */
typedef enum tutti_option_kind {
    TUTTI_OPTION_FLAG,   /**< nothing; bool */
    TUTTI_OPTION_INT,    /**< an integer; int64_t */
    TUTTI_OPTION_REAL,   /**< a finite number; double */
    TUTTI_OPTION_TEXT,   /**< any text; const char *, which points into argv */
    TUTTI_OPTION_CHOICE, /**< one of `choices`; int, its index */
    TUTTI_OPTION_TEXTS,  /**< any text, as often as it is given; tutti_option_texts_t */
} tutti_option_kind_t;

/** Most values of an option that may be given several times. */
enum { TUTTI_OPTION_TEXTS_MAX = 64 };

/** The values of such an option, in the order in which they were given. */
typedef struct tutti_option_texts {
    int count;
    const char *texts[TUTTI_OPTION_TEXTS_MAX]; /**< they point into argv */
} tutti_option_texts_t;

/** One option. A table of them ends with an entry of zeros. */
typedef struct tutti_option {
    const char *name; /**< without dashes in front, at most 63 bytes: "nproc-per-node" */
    char alias;       /**< a letter for the short form, or 0 */
    tutti_option_kind_t kind;
    size_t offset;        /**< of the field in the caller's struct: offsetof(settings_t, steps) */
    const char *argument; /**< how help calls the value: "N"; NULL: "VALUE", or the choices */
    const char *const *choices; /**< TUTTI_OPTION_CHOICE: the texts, ended by NULL */
    double min, max;            /**< INT and REAL, both allowed; min == max: any value */
    const char *about;          /**< a few words for help */
} tutti_option_t;

/**
 * Read the options in argv[1] … argv[argc - 1] into the fields of a struct.
 *
 * Fields whose option is not given keep what they have, so that the caller's initial values are the
 * defaults. An option given twice takes the last value, unless it is one of TUTTI_OPTION_TEXTS.
 *
 * @param table    borrowed; ended by an entry of zeros
 * @param argc     as main has it; argv[0] is skipped
 * @param argv     borrowed; texts in the result point into it
 * @param options  out, the struct that the offsets mean; written only on TUTTI_OK; NULL: the
 *                 command line is checked alone
 * @param rest     out, index of the first argument that is no option, argc if there is none; NULL:
 *                 such an argument is an error
 * @return TUTTI_OK; TUTTI_END where `--help` or `-h` is found first: print tutti_options_help()
 * @thread  any
 * @cost    no allocation
 * @errors  ARG: unknown option, missing or bad value, too many values, unwanted argument
 * @source  getopt_long and argparse, for the forms understood
 */
TUTTI_API tutti_status_t tutti_options_parse(const tutti_option_t *table, int argc,
                                             char *const *argv, void *options, int *rest);

/**
 * The lines of `--help`: one for each option, with argument, limits and default.
 *
 * @param table       borrowed
 * @param defaults    borrowed; a struct as it is before parsing; NULL leaves defaults out
 * @param text        out, cut to text_bytes with its final 0
 * @param text_bytes  room in text; may be 0
 * @return length of the whole text without the final 0, as snprintf does
 * @thread  any
 * @errors  none
 */
TUTTI_API size_t tutti_options_help(const tutti_option_t *table, const void *defaults, char *text,
                                    size_t text_bytes);

/**
 * The known name nearest to a mistyped one, for texts such as "did you mean …".
 *
 * @param name   borrowed; dashes and underscores count as equal
 * @param known  borrowed; ended by NULL
 * @return an element of known; NULL where it is empty
 * @thread  any
 * @cost    length of name × lengths of all known names
 * @errors  none
 * @source  Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals",
 *          1966
 */
TUTTI_API const char *tutti_nearest_name(const char *name, const char *const *known);

#ifdef __cplusplus
}
#endif

#endif
