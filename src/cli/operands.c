/* Options and operands in any order. What <tutti/options.h> reads ends at the first operand, so the
 * options behind it are brought before it, until none is left:
 *
 *     FOLDER -o FILE OTHER -q -- -x     →     -o FILE -q -- FOLDER OTHER -x
 *
 * Which arguments are values of options the table knows: each stretch is checked, and not stored.
 *
 * Source: getopt_long() of the GNU C library.
 */
#include <string.h>

#include "cli/cli.h"

/* argv[from … to) comes before argv[first … from). */
static void bring_forward(char **argv, int first, int from, int to)
{
    for (; from < to; first++, from++) {
        char *option = argv[from];
        memmove(argv + first + 1, argv + first, (size_t)(from - first) * sizeof *argv);
        argv[first] = option;
    }
}

tutti_status_t tt_cli_parse(const tutti_option_t *table, int argc, char **argv, void *flags,
                            tt_operands_t *operands)
{
    int first = 1, rest = 0; /* the operands so far are argv[first … at) */
    bool is_end = false;
    for (int at = 1, next; !is_end; at = next + 1) {
        const tutti_status_t status =
            tutti_options_parse(table, argc - at + 1, argv + at - 1, NULL, &rest);
        if (status != TUTTI_OK) {
            return status;
        }
        next = at - 1 + rest;
        const bool is_dashed = strcmp(argv[next - 1], "--") == 0;
        bring_forward(argv, first, at, next);
        first += next - at;
        operands->behind = is_dashed ? next : argc;
        is_end = is_dashed || next == argc;
    }
    operands->first = first;
    return tutti_options_parse(table, argc, argv, flags, &rest);
}
