/* The command line: one function per verb. argv[0] is the verb; the result is the exit code. */
#ifndef TT_CLI_H
#define TT_CLI_H

#include <tutti/options.h>

/* Of a command line that cannot be understood. */
enum { TT_EXIT_USAGE = 2 };

#define X(name, about) int tt_verb_##name(int argc, char **argv);
#include "cli/verbs.def"
#undef X

/* Where what is no option stands once the command line has been parsed: argv[first … argc), of
 * which argv[behind … argc) stood behind "--". */
typedef struct {
    int first, behind;
} tt_operands_t;

/* As tutti_options_parse(), but options may stand behind operands, too, up to "--": argv is put in
 * that order. Not for `tutti run`, whose command has options of its own. */
tutti_status_t tt_cli_parse(const tutti_option_t *table, int argc, char **argv, void *flags,
                            tt_operands_t *operands);

/* Of an operand too many. On stderr; returns TT_EXIT_USAGE. */
int tt_cli_refuse_operand(const char *verb, const char *operand);

/* "tutti VERB: " and the text of the last failure, on stderr; returns `exit_code`. */
int tt_cli_fail(const char *verb, int exit_code);

/* "tutti VERB: --FLAG VALUE: want …" on stderr; returns TT_EXIT_USAGE. */
int tt_cli_refuse(const char *verb, const char *flag, const char *value, const char *want);

/* The help of a verb: usage, a line about it, its options. */
int tt_cli_help(const char *usage, const tutti_option_t *table, const void *defaults);

#endif
