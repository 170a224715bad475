/* tutti key: the file that makes processes on several hosts one job, and keeps others out. */
#include <stdio.h>

#include <tutti/launch.h>

#include "cli/cli.h"

static const tutti_option_t table[] = {{0}};

int tt_verb_key(int argc, char **argv)
{
    int rest = 0;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &rest, &rest);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti key FILE", table, &rest);
    }
    if (status < 0) {
        return tt_cli_fail("key", TT_EXIT_USAGE);
    }
    if (rest != argc - 1) {
        fprintf(stderr, "tutti key: want the name of one new file\n");
        return TT_EXIT_USAGE;
    }
    return tutti_key_create(argv[rest]) < 0 ? tt_cli_fail("key", 1) : 0;
}
