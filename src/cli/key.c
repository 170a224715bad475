/* tutti key: the file that makes processes on several hosts one job, and keeps others out. */
#include <stdio.h>

#include <tutti/launch.h>

#include "cli/cli.h"

static const tutti_option_t table[] = {{0}};

int tt_verb_key(int argc, char **argv)
{
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(table, argc, argv, NULL, &operands);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti key FILE", table, NULL);
    }
    if (status < 0) {
        return tt_cli_fail("key", TT_EXIT_USAGE);
    }
    if (operands.first != argc - 1) {
        fprintf(stderr, "tutti key: want the name of one new file\n");
        return TT_EXIT_USAGE;
    }
    return tutti_key_create(argv[operands.first]) < 0 ? tt_cli_fail("key", 1) : 0;
}
