/* tutti report: a folder of numbers and profiles as one page of HTML. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <tutti/profile.h>

#include "cli/cli.h"

enum { PATH_BYTES = 4096 };

typedef struct {
    const char *output;
} flags_t;

static const tutti_option_t table[] = {{.name = "output",
                                        .alias = 'o',
                                        .kind = TUTTI_OPTION_TEXT,
                                        .offset = offsetof(flags_t, output),
                                        .argument = "FILE",
                                        .about = "the page; else FOLDER/report.html"},
                                       {0}};

static int write_page(const tutti_buffer_t *page, const char *path)
{
    FILE *file = fopen(path, "we");
    bool is_written = file != NULL && fwrite(page->data, 1, page->bytes, file) == page->bytes;
    is_written = file != NULL && fclose(file) == 0 && is_written;
    if (!is_written) {
        fprintf(stderr, "tutti report: %s: %s\n", path, strerror(errno));
        return 1;
    }
    printf("%s\n", path);
    return 0;
}

int tt_verb_report(int argc, char **argv)
{
    flags_t flags = {0};
    const flags_t defaults = flags;
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(table, argc, argv, &flags, &operands);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti report [OPTION …] FOLDER", table, &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("report", TT_EXIT_USAGE);
    }
    if (operands.first != argc - 1) {
        fprintf(stderr, "tutti report: want one folder\n");
        return TT_EXIT_USAGE;
    }
    char path[PATH_BYTES];
    tutti_buffer_t page;
    const char *folder = argv[operands.first];
    snprintf(path, sizeof path, "%s/report.html", folder);
    if (tutti_report(folder, &page) < 0) {
        return tt_cli_fail("report", TT_EXIT_USAGE);
    }
    const int code = write_page(&page, flags.output != NULL ? flags.output : path);
    tutti_buffer_release(&page);
    return code;
}
