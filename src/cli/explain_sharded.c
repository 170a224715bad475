/* tutti explain sharded: a step of sharded training is planned, checked and simulated; it is
 * printed in time, as actions or as JSON, and drawn. Nothing runs.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/sharded_plan.h>

#include "cli/explain_parts.h"

static const double BYTES_MAX = 1e18; /* of all units */

enum { UNITS_MAX = 1 << 14, STAGE_DEFAULT = 3, NAME_BYTES = 24 };

typedef struct {
    const char *units, *forward, *backward, *model, *svg;
    int64_t stage, ranks, shards, rows, prefetch, reshard_ranks, rank, bucket_bytes, vocab, context;
    bool keep_after_forward, keep_after_backward, is_first, is_shared, is_json;
    double compute;
    tutti_sharded_costs_t costs;
} flags_t;

#define COST(field, word, help)                                                                    \
    .kind = TUTTI_OPTION_REAL, FIELD(field), .argument = (word), .min = 0, .max = 1e18,            \
    .about = (help)

static const tutti_option_t table[] = {
    {.name = "units", TEXT(units, "N,N,…", "bytes of each unit, the root first: 4e6,1.2e7,1.2e7")},
    {.name = "model",
     TEXT(model, "LxW", "instead of --units: the example gpt with L blocks of width W, in f32")},
    {.name = "vocab", NUMBER(vocab, "V", 1, 1 << 30, "of --model")},
    {.name = "context", NUMBER(context, "T", 1, 1 << 30, "of --model")},
    {.name = "stage", NUMBER(stage, "S", 0, 3, "what is dealt out")},
    {.name = "ranks", .alias = 'n', NUMBER(ranks, "N", 1, 4096, "ranks of the group")},
    {.name = "shards", NUMBER(shards, "V", 0, 1 << 20, "0: one for each rank")},
    {.name = "rows", NUMBER(rows, "R", 0, 4096, "of ranks, each with all parameters; 0: 1")},
    {.name = "prefetch",
     NUMBER(prefetch, "N", -1, 1 << 20, "units gathered before they are wanted; 0: 1; -1: none")},
    {.name = "keep-after-forward",
     FIELD(keep_after_forward),
     .about = "a unit stays from its forward to its backward"},
    {.name = "keep-after-backward",
     FIELD(keep_after_backward),
     .about = "and from its backward to the end of the step"},
    {.name = "reshard-ranks",
     NUMBER(reshard_ranks, "K", 0, 4096,
            "ranks that keep a unit together from its forward to its backward; 0: none do")},
    {.name = "shared", FIELD(is_shared), .about = "ranks of a host share parameters: no gathers"},
    {.name = "first", FIELD(is_first), .about = "the first step, in which no order is known"},
    {.name = "bucket-bytes",
     NUMBER(bucket_bytes, "N", 0, (int64_t)1 << 50,
            "cut a unit's gradients into buckets of so many; 0: one of each unit")},
    {.name = "forward", TEXT(forward, "T,T,…", "seconds of each unit in a shard")},
    {.name = "backward", TEXT(backward, "T,T,…", "the same; without it twice --forward")},
    {.name = "compute",
     COST(compute, "T",
          "seconds of a shard in all, dealt out by units' bytes, a third of them forward")},
    {.name = "step", COST(costs.step, "T", "seconds of the optimizer's step")},
    {.name = "bandwidth",
     COST(costs.bytes_per_second, "B", "bytes per second of a rank's wire; 0: no time")},
    {.name = "latency", COST(costs.latency, "T", "seconds of a collective")},
    {.name = "near-bandwidth",
     COST(costs.near_bytes_per_second, "B", "the same among --reshard-ranks ranks")},
    {.name = "near-latency", COST(costs.near_latency, "T", "the same")},
    {.name = "rank", NUMBER(rank, "R", -1, 4095, "print the actions of this rank alone")},
    {.name = "svg", TEXT(svg, "FILE", "draw it into a file")},
    {.name = "json", FIELD(is_json), .about = "print JSON"},
    {0}};

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct {
    tutti_sharded_unit_t *units; /* owned, as all below */
    char (*names)[NAME_BYTES];
    int count;
    tutti_sharded_bucket_t *buckets; /* NULL: one of each unit */
    int bucket_count;
} model_t;

static bool open_units(model_t *model, int count)
{
    model->count = count;
    model->units = calloc((size_t)count, sizeof *model->units);
    model->names = calloc((size_t)count, sizeof *model->names);
    for (int u = 0; model->units != NULL && model->names != NULL && u < count; u++) {
        if (u > 0) { /* the root's is empty */
            snprintf(model->names[u], NAME_BYTES, "blocks.%d", u - 1);
        }
        model->units[u].name = model->names[u];
    }
    return model->units != NULL && model->names != NULL;
}

static void close_model(model_t *model)
{
    free(model->units);
    free(model->names);
    free(model->buckets);
}

static int out_of_memory(void)
{
    fprintf(stderr, "tutti explain: out of memory\n");
    return 1;
}

static int count_numbers(const char *text)
{
    int count = 1;
    for (; *text != 0; text++) {
        count += *text == ',';
    }
    return count;
}

/* Numbers with commas between them, exactly so many. */
static bool parse_numbers(const char *text, int count, double *numbers)
{
    for (int i = 0; i < count; i++) {
        char *end;
        numbers[i] = strtod(text, &end);
        const bool is_number = end > text && isfinite(numbers[i]) && numbers[i] >= 0;
        if (!is_number || *end != (i + 1 < count ? ',' : 0)) {
            return false;
        }
        text = end + 1;
    }
    return true;
}

/* As examples/gpt: blocks, and what is in none of them. */
static int take_model(const flags_t *flags, model_t *model)
{
    char *end;
    const long layers = strtol(flags->model, &end, 10);
    const long width = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    if (*end != 0 || layers < 1 || layers >= UNITS_MAX || width < 1 || width > 1 << 20) {
        return tt_cli_refuse("explain", "model", flags->model, "LAYERSxWIDTH, as 6x384");
    }
    if (!open_units(model, (int)layers + 1)) {
        return out_of_memory();
    }
    const size_t w = (size_t)width;
    model->units[0].bytes = 4 * (2 * (size_t)flags->vocab * w + (size_t)flags->context * w + 2 * w);
    for (int u = 1; u < model->count; u++) {
        model->units[u].bytes = 4 * (12 * w * w + 13 * w);
    }
    return -1;
}

/* Returns -1, or the exit code. */
static int take_units(const flags_t *flags, model_t *model)
{
    const int count = count_numbers(flags->units);
    if (count > UNITS_MAX || !open_units(model, count)) {
        return count > UNITS_MAX ? tt_cli_refuse("explain", "units", "…", "16384 at most")
                                 : out_of_memory();
    }
    double *bytes = calloc((size_t)count, sizeof *bytes);
    const bool is_good = bytes != NULL && parse_numbers(flags->units, count, bytes);
    double all = 0;
    for (int u = 0; is_good && u < count; u++) {
        all += bytes[u];
        model->units[u].bytes = all <= BYTES_MAX ? (size_t)bytes[u] : 0;
    }
    free(bytes);
    return is_good && all <= BYTES_MAX
               ? -1
               : tt_cli_refuse("explain", "units", flags->units,
                               is_good ? "1e18 bytes in all, at most"
                                       : "bytes of each unit, as 4e6,1.2e7,1.2e7");
}

/* ---- what they cost -------------------------------------------------------------------------- */

static int refuse_times(const char *flag, const char *text, int count)
{
    char want[64];
    snprintf(want, sizeof want, "%d numbers of seconds, as 0.01,0.02", count);
    return tt_cli_refuse("explain", flag, text, want);
}

static void deal_out(const flags_t *flags, model_t *model)
{
    double all = 0;
    for (int u = 0; u < model->count; u++) {
        all += (double)model->units[u].bytes;
    }
    for (int u = 0; u < model->count && all > 0; u++) {
        const double part = flags->compute * (double)model->units[u].bytes / all;
        model->units[u].forward = part / 3;
        model->units[u].backward = part * 2 / 3;
    }
}

static int take_times(const flags_t *flags, model_t *model)
{
    double *times = calloc(2 * (size_t)model->count, sizeof *times);
    double *back = times + model->count;
    int code = times == NULL ? out_of_memory() : -1;
    if (code < 0 && flags->forward != NULL && !parse_numbers(flags->forward, model->count, times)) {
        code = refuse_times("forward", flags->forward, model->count);
    }
    if (code < 0 && flags->backward != NULL &&
        !parse_numbers(flags->backward, model->count, back)) {
        code = refuse_times("backward", flags->backward, model->count);
    }
    for (int u = 0; code < 0 && u < model->count; u++) {
        model->units[u].forward = times[u];
        model->units[u].backward = flags->backward != NULL ? back[u] : 2 * times[u];
    }
    free(times);
    return code;
}

/* A unit's gradients in buckets of so many bytes, the last one of what is left. */
static int take_buckets(const flags_t *flags, model_t *model)
{
    const size_t most = (size_t)flags->bucket_bytes;
    size_t count = 0;
    for (int u = 0; u < model->count; u++) {
        count += (model->units[u].bytes + most - 1) / most;
    }
    if (count > UNITS_MAX) {
        return tt_cli_refuse("explain", "bucket-bytes", "", "16384 buckets at most");
    }
    model->buckets = calloc(count + 1, sizeof *model->buckets);
    if (model->buckets == NULL) {
        return out_of_memory();
    }
    for (int u = model->count; u-- > 0;) {
        for (size_t left = model->units[u].bytes; left > 0;) {
            const size_t bytes = left < most ? left : most;
            model->buckets[model->bucket_count++] = (tutti_sharded_bucket_t){u, bytes};
            left -= bytes;
        }
    }
    return -1;
}

static int take(const flags_t *flags, model_t *model)
{
    int code = flags->model != NULL ? take_model(flags, model) : take_units(flags, model);
    if (code < 0 && flags->forward == NULL && flags->backward == NULL) {
        deal_out(flags, model);
    } else if (code < 0) {
        code = take_times(flags, model);
    }
    return code < 0 && flags->bucket_bytes > 0 ? take_buckets(flags, model) : code;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct {
    const flags_t *flags;
    const tutti_sharded_plan_t *plan;
    const tutti_sharded_simulation_t *simulation;
} result_t;

static int print_rank(const result_t *result, int rank)
{
    const tutti_sharded_plan_t *plan = result->plan;
    char text[64], value[16];
    if (rank >= plan->options.ranks) {
        snprintf(text, sizeof text, "0 to %d", plan->options.ranks - 1);
        snprintf(value, sizeof value, "%d", rank);
        return tt_cli_refuse("explain", "rank", value, text);
    }
    for (int i = 0; i < plan->rows[rank].count; i++) {
        const tutti_sharded_action_t *action = &plan->rows[rank].actions[i];
        tutti_sharded_action_text(plan, action, text, sizeof text);
        printf("%s%s%s\n", text, action->is_near ? " (near)" : "",
               action->is_early ? " (early)" : "");
    }
    return 0;
}

static json_t *row_json(const result_t *result, int rank)
{
    const tutti_sharded_row_t *row = &result->plan->rows[rank];
    json_t *actions = json_array();
    for (int i = 0; i < row->count; i++) {
        const tutti_sharded_span_t *span = &result->simulation->spans[rank][i];
        char text[64];
        tutti_sharded_action_text(result->plan, &row->actions[i], text, sizeof text);
        json_array_append_new(actions,
                              json_pack("{s:s, s:b, s:b, s:f, s:f}", "action", text, "early",
                                        row->actions[i].is_early, "near", row->actions[i].is_near,
                                        "begin", span->begin, "end", span->end));
    }
    return actions;
}

static int print_json(const result_t *result)
{
    const tutti_sharded_options_t *o = &result->plan->options;
    const tutti_sharded_simulation_t *s = result->simulation;
    json_t *rows = json_array();
    for (int rank = 0; rank < o->ranks; rank++) {
        json_array_append_new(rows, row_json(result, rank));
    }
    return tt_explain_print_json(json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:o}", "stage", o->stage,
        "ranks", o->ranks, "shards", o->shards, "units", o->unit_count, "buckets", o->bucket_count,
        "time", s->time, "compute", s->compute, "exposed", s->exposed, "wire", s->wire,
        "sent_bytes", (json_int_t)s->sent_bytes, "near_bytes", (json_int_t)s->near_bytes,
        "peak_unit_bytes", (json_int_t)s->peak_unit_bytes, "peak_gradient_bytes",
        (json_int_t)s->peak_gradient_bytes, "rows", rows));
}

static int print_text(const result_t *result)
{
    const tutti_sharded_options_t *o = &result->plan->options;
    tutti_buffer_t text;
    if (tutti_sharded_draw(result->plan, result->simulation, false, &text) < 0) {
        return tt_cli_fail("explain", 1);
    }
    printf("stage %d: %d ranks, %d shards, %d units, %d buckets; unit 0 is the root\n\n", o->stage,
           o->ranks, o->shards, o->unit_count, o->bucket_count);
    fwrite(text.data, 1, text.bytes, stdout);
    tutti_buffer_release(&text);
    return 0;
}

static int draw(const result_t *result)
{
    tutti_buffer_t picture;
    if (tutti_sharded_draw(result->plan, result->simulation, true, &picture) < 0) {
        return tt_cli_fail("explain", 1);
    }
    const int code = tt_explain_write("svg", result->flags->svg, &picture);
    tutti_buffer_release(&picture);
    return code;
}

static int show(const result_t *result)
{
    const flags_t *flags = result->flags;
    const int code = flags->svg != NULL ? draw(result) : 0;
    return code != 0                ? code
           : flags->rank >= 0       ? print_rank(result, (int)flags->rank)
           : result->flags->is_json ? print_json(result)
                                    : print_text(result);
}

static int explain(const flags_t *flags, const model_t *model)
{
    const tutti_sharded_options_t options = {.stage = (int)flags->stage,
                                             .ranks = (int)flags->ranks,
                                             .shards = (int)flags->shards,
                                             .rows = (int)flags->rows,
                                             .prefetch = (int)flags->prefetch,
                                             .keep_after_forward = flags->keep_after_forward,
                                             .keep_after_backward = flags->keep_after_backward,
                                             .reshard_ranks = (int)flags->reshard_ranks,
                                             .is_first = flags->is_first,
                                             .is_shared = flags->is_shared,
                                             .units = model->units,
                                             .unit_count = model->count,
                                             .buckets = model->buckets,
                                             .bucket_count = model->bucket_count};
    tutti_sharded_plan_t plan;
    tutti_sharded_simulation_t simulation;
    if (tutti_sharded_plan(&options, &plan) < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    int code = 1;
    if (tutti_sharded_check(&plan) < 0 ||
        tutti_sharded_simulate(&plan, &flags->costs, &simulation) < 0) {
        code = tt_cli_fail("explain", 1);
    } else {
        code = show(&(result_t){flags, &plan, &simulation});
        tutti_sharded_simulation_release(&simulation);
    }
    tutti_sharded_plan_release(&plan);
    return code;
}

int tt_explain_sharded(int argc, char **argv)
{
    const flags_t defaults = {
        .stage = STAGE_DEFAULT, .ranks = 2, .rank = -1, .vocab = 256, .context = 128};
    flags_t flags = defaults;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &flags, NULL);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti explain sharded --units N,N,… | --model LxW [OPTION …]", table,
                           &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    if ((flags.units == NULL) == (flags.model == NULL)) {
        fputs("tutti explain sharded: give either --units, the bytes of each, or --model\n",
              stderr);
        return TT_EXIT_USAGE;
    }
    model_t model = {0};
    int code = take(&flags, &model);
    code = code < 0 ? explain(&flags, &model) : code;
    close_model(&model);
    return code;
}
