/* The command line: one function per verb. argv[0] is the verb; the result is the exit code. */
#ifndef TT_CLI_H
#define TT_CLI_H

#include <tutti/options.h>

/* Of a command line that cannot be understood. */
enum { TT_EXIT_USAGE = 2 };

#define X(name, about) int tt_verb_##name(int argc, char **argv);
#include "cli/verbs.def"
#undef X

/* "tutti VERB: " and the text of the last failure, on stderr; returns `exit_code`. */
int tt_cli_fail(const char *verb, int exit_code);

/* "tutti VERB: --FLAG VALUE: want …" on stderr; returns TT_EXIT_USAGE. */
int tt_cli_refuse(const char *verb, const char *flag, const char *value, const char *want);

/* The help of a verb: usage, a line about it, its options. */
int tt_cli_help(const char *usage, const tutti_option_t *table, const void *defaults);

#endif
