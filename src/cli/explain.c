/* tutti explain: which algorithms there are; the plan of a collective, its cost, and why it would
 * be chosen. Nothing runs. `pipeline`, `partition` and `sharded` have files of their
 * own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/diagnose.h>

#include "cli/explain_parts.h"

typedef struct {
    const char *algorithm, *dtype, *hosts, *svg;
    int64_t ranks, rank, root, count, leaves;
    bool is_foreign;
} flags_t;

static const tutti_option_t table[] = {
    {.name = "algo",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(algorithm),
     .argument = "NAME",
     .about = "the algorithm; otherwise the one that would be chosen"},
    {.name = "ranks", .alias = 'n', NUMBER(ranks, "N", 0, 4096, "ranks of the group; 0: 2")},
    {.name = "rank", NUMBER(rank, "R", -1, 4095, "the plan of this rank alone; -1: of all")},
    {.name = "count", NUMBER(count, "N", 0, 1e15, "elements of a part; 0: 16 for each rank")},
    {.name = "root", NUMBER(root, "R", 0, 4095, "of collectives that have one")},
    {.name = "leaves", NUMBER(leaves, "V", 0, 1e6, "of a reduction; 0: one for each rank")},
    {.name = "hosts",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(hosts),
     .argument = "HxR",
     .about = "H hosts with R ranks each: 2x2; otherwise one host"},
    {.name = "dtype",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(dtype),
     .argument = "TYPE",
     .about = "of the elements, for the choice"},
    {.name = "svg",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(svg),
     .argument = "FILE",
     .about = "draw the plans of all ranks into a file instead"},
    {.name = "foreign", FIELD(is_foreign), .about = "buffers outside the ranks' shared heap"},
    {0}};

static int list_algorithms(void)
{
    tutti_algorithm_t algorithm;
    for (size_t i = 0; tutti_explain_algorithm(i, &algorithm) == TUTTI_OK; i++) {
        printf("%-16s %s\n", algorithm.name, algorithm.about);
        printf("%-16s canonical: %s\n", "", algorithm.is_canonical ? "yes" : "no");
        printf("%-16s does: %s\n", "", algorithm.collectives);
        if (algorithm.source != NULL) {
            printf("%-16s source: %s\n", "", algorithm.source);
        }
    }
    printf("\n`tutti explain all_reduce --ranks 4` prints the plan of a collective,\n"
           "`tutti explain pipeline` the schedules of pipelines, `tutti explain partition` where\n"
           "to cut a model into stages, `tutti explain sharded` a step of sharded training.\n");
    return 0;
}

static bool parse_hosts(const char *text, tutti_explain_options_t *options)
{
    char *end;
    const long hosts = strtol(text, &end, 10);
    if (*end != 'x' || hosts < 1 || hosts > 4096) {
        return false;
    }
    const long per_host = strtol(end + 1, &end, 10);
    if (*end != 0 || per_host < 1 || per_host > 4096) {
        return false;
    }
    options->hosts = (int)hosts;
    options->per_host = (int)per_host;
    return true;
}

static int explain(const char *collective, const flags_t *flags)
{
    tutti_explain_options_t options = {.collective = collective,
                                       .algorithm = flags->algorithm,
                                       .ranks = (int)flags->ranks,
                                       .is_one_rank = flags->rank >= 0,
                                       .rank = flags->rank >= 0 ? (int)flags->rank : 0,
                                       .root = (int)flags->root,
                                       .count = flags->count,
                                       .leaves = (int)flags->leaves,
                                       .is_foreign = flags->is_foreign};
    if (flags->hosts != NULL && !parse_hosts(flags->hosts, &options)) {
        fprintf(stderr, "tutti explain: --hosts %s: want HOSTSxRANKS, as in 2x2\n", flags->hosts);
        return TT_EXIT_USAGE;
    }
    tutti_buffer_t text;
    const bool draws = flags->svg != NULL;
    if (tutti_dtype_parse(flags->dtype, &options.dtype) < 0 ||
        (draws ? tutti_explain_draw : tutti_explain)(&options, &text) < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    int result = 0;
    if (draws) {
        result = tt_explain_write("svg", flags->svg, &text);
    } else {
        fwrite(text.data, 1, text.bytes, stdout);
    }
    tutti_buffer_release(&text);
    return result;
}

int tt_verb_explain(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    if (strcmp(first, "pipeline") == 0) {
        return tt_explain_pipeline(argc - 1, argv + 1);
    }
    if (strcmp(first, "partition") == 0) {
        return tt_explain_partition(argc - 1, argv + 1);
    }
    if (strcmp(first, "sharded") == 0) {
        return tt_explain_sharded(argc - 1, argv + 1);
    }
    const flags_t defaults = {.dtype = "f32", .rank = -1};
    flags_t flags = defaults;
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(table, argc, argv, &flags, &operands);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti explain [COLLECTIVE | pipeline | partition | sharded] [OPTION …]",
                           table, &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    const int count = argc - operands.first;
    return count == 0   ? list_algorithms()
           : count == 1 ? explain(argv[operands.first], &flags)
                        : tt_cli_refuse_operand("explain", argv[operands.first + 1]);
}
