/* tutti verdict: what the dumps of several ranks say together. Exit code: 0 nothing is wrong, 1 a
 * rank keeps others waiting, 2 the files cannot be read. */
#include <stdio.h>

#include <tutti/diagnose.h>

#include "cli/cli.h"

static const tutti_option_t table[] = {{0}};

int tt_verb_verdict(int argc, char **argv)
{
    int rest = 0;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &rest, &rest);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti verdict FILE …", table, &rest);
    }
    if (status < 0) {
        return tt_cli_fail("verdict", TT_EXIT_USAGE);
    }
    tutti_buffer_t text;
    bool is_guilty;
    if (tutti_verdict((const char *const *)argv + rest, argc - rest, &text, &is_guilty) < 0) {
        return tt_cli_fail("verdict", TT_EXIT_USAGE);
    }
    fwrite(text.data, 1, text.bytes, stdout);
    tutti_buffer_release(&text);
    return is_guilty ? 1 : 0;
}
