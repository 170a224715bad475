/* tutti verdict: what the dumps of several ranks say together. Exit code: 0 nothing is wrong, 1 a
 * rank keeps others waiting, 2 the files cannot be read. */
#include <stdio.h>

#include <tutti/diagnose.h>

#include "cli/cli.h"

static const tutti_option_t table[] = {{0}};

int tt_verb_verdict(int argc, char **argv)
{
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(table, argc, argv, NULL, &operands);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti verdict FILE …", table, NULL);
    }
    if (status < 0) {
        return tt_cli_fail("verdict", TT_EXIT_USAGE);
    }
    tutti_buffer_t text;
    bool is_guilty;
    const char *const *files = (const char *const *)argv + operands.first;
    if (tutti_verdict(files, argc - operands.first, &text, &is_guilty) < 0) {
        return tt_cli_fail("verdict", TT_EXIT_USAGE);
    }
    fwrite(text.data, 1, text.bytes, stdout);
    tutti_buffer_release(&text);
    return is_guilty ? 1 : 0;
}
