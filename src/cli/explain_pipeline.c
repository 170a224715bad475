/* tutti explain pipeline: a schedule of a pipeline is planned or read, checked and simulated; it is
 * printed in time, drawn, and written. Nothing runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/pipeline.h>

#include "cli/explain_parts.h"

typedef struct {
    const char *schedule, *read, *svg, *csv;
    int64_t ranks, stages_per_rank, micro_batches, shards, accumulate, rank;
    bool vertical_sync, compute_only, sharded, is_json;
    tutti_pipeline_costs_t costs;
} flags_t;

#define COST(field, help)                                                                          \
    .kind = TUTTI_OPTION_REAL, FIELD(costs.field), .argument = "T", .min = 0, .max = 1e12,         \
    .about = (help)

static const tutti_option_t table[] = {
    {.name = "schedule",
     TEXT(schedule, "NAME",
          "1f1b, zb-v, …; without --schedule and --read all "
          "of them are listed")},
    {.name = "ranks", .alias = 'n', NUMBER(ranks, "N", 0, 1 << 20, "ranks of the pipeline; 0: 4")},
    {.name = "micro-batches",
     NUMBER(micro_batches, "M", 0, 1 << 28, "of each shard; 0: twice the ranks")},
    {.name = "stages-per-rank",
     NUMBER(stages_per_rank, "V", 0, 1 << 20, "0: the least that the schedule wants")},
    {.name = "shards", NUMBER(shards, "V", 0, 1 << 20, "one behind the other; 0: 1")},
    {.name = "accumulate",
     NUMBER(accumulate, "M", 0, 1 << 28, "2bw: micro-batches of an update; 0: the ranks")},
    {.name = "vertical-sync", FIELD(vertical_sync), .about = "pipedream: one version everywhere"},
    {.name = "sharded", FIELD(sharded), .about = "gather and drop parameters (sharded training)"},
    {.name = "compute-only", FIELD(compute_only), .about = "without messages and all the rest"},
    {.name = "forward", COST(forward, "time of F; F, I and W all 0: 1 each")},
    {.name = "input", COST(input, "time of I, the gradients of inputs")},
    {.name = "weight", COST(weight, "time of W, the gradients of weights")},
    {.name = "backward", COST(backward, "time of B; 0: that of I and W")},
    {.name = "message", COST(message, "time of a message between two ranks")},
    {.name = "step", COST(step, "time of the optimizer's step of a stage")},
    {.name = "activation", COST(activation, "memory from F to B or I; 0: 1")},
    {.name = "pending", COST(pending, "memory from I to W; 0: as --activation")},
    {.name = "read", TEXT(read, "FILE", "a schedule of one's own, CSV as PyTorch writes it")},
    {.name = "rank", NUMBER(rank, "R", -1, 1 << 20, "print the actions of this rank alone")},
    {.name = "svg", TEXT(svg, "FILE", "draw it into a file")},
    {.name = "csv", TEXT(csv, "FILE", "write the actions into a file")},
    {.name = "json", FIELD(is_json), .about = "print JSON"},
    {0}};

static int list_schedules(void)
{
    tutti_pipeline_about_t about;
    for (size_t i = 0; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        printf("%-16s %s\n", about.name, about.about);
        printf("%-16s stages of a rank: %d%s%s%s\n", "", about.stages_per_rank_min,
               about.stages_per_rank_max == 0 ? " or more" : "", about.is_v ? ", in a V" : "",
               about.is_asynchronous ? "; asynchronous" : "");
        printf("%-16s source: %s\n", "", about.source);
    }
    printf("\n`tutti explain pipeline --schedule zb-v --ranks 4 --micro-batches 8` prints one.\n");
    return 0;
}

static int print_rank(const tutti_pipeline_options_t *options, int rank)
{
    tutti_pipeline_row_t row;
    if (tutti_pipeline_plan_row(options, rank, &row) < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    for (int64_t i = 0; i < row.count; i++) {
        char text[TUTTI_PIPELINE_TEXT_MAX];
        tutti_pipeline_action_text(&row.actions[i], text, sizeof text);
        printf("%s\n", text);
    }
    tutti_pipeline_row_release(&row);
    return 0;
}

/* ---- results ---- */

typedef struct {
    const flags_t *flags;
    const tutti_pipeline_schedule_t *schedule;
    tutti_pipeline_report_t report;
    tutti_pipeline_simulation_t simulation;
} result_t;

static const char *name_of(const flags_t *flags)
{
    return flags->read != NULL ? flags->read : flags->schedule;
}

static json_t *rank_json(const tutti_pipeline_load_t *load)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:i}", "work", load->busy, "begin", load->begin,
                     "end", load->end, "idle", load->idle, "activations_max", load->activations_max,
                     "accumulators_max", load->accumulators_max);
}

static int print_json(const result_t *result)
{
    const tutti_pipeline_schedule_t *schedule = result->schedule;
    const tutti_pipeline_simulation_t *s = &result->simulation;
    json_t *ranks = json_array();
    for (int rank = 0; rank < s->ranks; rank++) {
        json_array_append_new(ranks, rank_json(&s->loads[rank]));
    }
    json_t *all = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:b, s:I, s:i, s:i, s:i, s:f, s:f, s:f, s:o}", "schedule",
        name_of(result->flags), "ranks", schedule->ranks, "stages", schedule->stages,
        "micro_batches", schedule->micro_batches, "shards", schedule->shards, "canonical",
        result->report.is_canonical, "messages", (json_int_t)result->report.messages,
        "activations_max", result->report.activations_max, "versions_max",
        result->report.versions_max, "open_shards_max", result->report.open_shards_max, "time",
        s->time, "work", s->work, "bubble", s->bubble, "loads", ranks);
    return tt_explain_print_json(all);
}

static int most_accumulators(const tutti_pipeline_simulation_t *s)
{
    int most = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        most = s->loads[rank].accumulators_max > most ? s->loads[rank].accumulators_max : most;
    }
    return most;
}

static int print_text(const result_t *result)
{
    const tutti_pipeline_schedule_t *schedule = result->schedule;
    tutti_buffer_t text;
    if (tutti_pipeline_draw(schedule, &result->simulation, false, &text) < 0) {
        return tt_cli_fail("explain", 1);
    }
    printf("%s: %d ranks, %d stages, %d micro-batches", name_of(result->flags), schedule->ranks,
           schedule->stages, schedule->micro_batches);
    if (schedule->shards > 1) {
        printf(" of each of %d shards", schedule->shards);
    }
    printf("\ncanonical: %s; messages: %" PRId64 "; micro-batches held: %d",
           result->report.is_canonical ? "yes" : "no", result->report.messages,
           result->report.activations_max);
    if (result->report.versions_max > 1) {
        printf("; versions of weights: %d", result->report.versions_max);
    }
    if (schedule->shards > 1) {
        printf("; accumulators: %d", most_accumulators(&result->simulation));
    }
    printf("\n\n");
    fwrite(text.data, 1, text.bytes, stdout);
    tutti_buffer_release(&text);
    return 0;
}

static int write_files(const result_t *result)
{
    tutti_buffer_t text;
    int code = 0;
    if (result->flags->csv != NULL) {
        if (tutti_pipeline_write(result->schedule, &text) < 0) {
            return tt_cli_fail("explain", 1);
        }
        code = tt_explain_write("csv", result->flags->csv, &text);
        tutti_buffer_release(&text);
    }
    if (code == 0 && result->flags->svg != NULL) {
        if (tutti_pipeline_draw(result->schedule, &result->simulation, true, &text) < 0) {
            return tt_cli_fail("explain", 1);
        }
        code = tt_explain_write("svg", result->flags->svg, &text);
        tutti_buffer_release(&text);
    }
    return code;
}

/* ---- schedules ---- */

static int show(result_t *result)
{
    tutti_buffer_t grid;
    if (tutti_pipeline_check(result->schedule, &result->report, &grid) < 0) {
        const int code = tt_cli_fail("explain", 1);
        fprintf(stderr, "%s", grid.data != NULL ? (const char *)grid.data : "");
        tutti_buffer_release(&grid);
        return code;
    }
    if (tutti_pipeline_simulate(result->schedule, &result->flags->costs, 1, &result->simulation) <
        0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    int code = write_files(result);
    if (code == 0) {
        code = result->flags->is_json ? print_json(result) : print_text(result);
    }
    tutti_pipeline_simulation_release(&result->simulation);
    return code;
}

static int plan(const flags_t *flags, const tutti_pipeline_options_t *options)
{
    if (flags->rank >= 0) {
        return print_rank(options, (int)flags->rank);
    }
    tutti_pipeline_schedule_t schedule;
    if (tutti_pipeline_plan(options, &schedule) < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    const int code = show(&(result_t){.flags = flags, .schedule = &schedule});
    tutti_pipeline_schedule_release(&schedule);
    return code;
}

static tutti_pipeline_options_t options_of(const flags_t *flags)
{
    return (tutti_pipeline_options_t){.schedule = flags->schedule,
                                      .ranks = (int)flags->ranks,
                                      .stages_per_rank = (int)flags->stages_per_rank,
                                      .micro_batches = (int)flags->micro_batches,
                                      .shards = (int)flags->shards,
                                      .accumulate = (int)flags->accumulate,
                                      .vertical_sync = flags->vertical_sync,
                                      .compute_only = flags->compute_only,
                                      .sharded = flags->sharded,
                                      .costs = flags->costs};
}

static int plan_own(const flags_t *flags)
{
    char *text;
    size_t bytes;
    const int code = tt_explain_read("read", flags->read, &text, &bytes);
    if (code >= 0) {
        return code;
    }
    tutti_pipeline_schedule_t own;
    const tutti_status_t status = tutti_pipeline_read(text, bytes, (int)flags->micro_batches, &own);
    free(text);
    if (status < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    tutti_pipeline_options_t options = options_of(flags);
    options.own = &own;
    const int result = plan(flags, &options);
    tutti_pipeline_schedule_release(&own);
    return result;
}

int tt_explain_pipeline(int argc, char **argv)
{
    const flags_t defaults = {.rank = -1};
    flags_t flags = defaults;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &flags, NULL);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti explain pipeline [OPTION …]", table, &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    if (flags.read != NULL) {
        return plan_own(&flags);
    }
    if (flags.schedule == NULL) {
        return list_schedules();
    }
    flags.ranks = flags.ranks != 0 ? flags.ranks : 4;
    flags.micro_batches = flags.micro_batches != 0 ? flags.micro_batches : 2 * flags.ranks;
    const tutti_pipeline_options_t options = options_of(&flags);
    return plan(&flags, &options);
}
