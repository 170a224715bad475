/* Simulation: a walk with costs, and what each rank has done with its time and memory. */
#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_form.h"
#include "parallel/pipeline/pipeline_grid.h"
#include "parallel/pipeline/pipeline_own.h"
#include "parallel/pipeline/pipeline_shape.h"

/* ---- what a rank has done ---- */

static bool takes_time(tutti_pipeline_kind_t kind)
{
    return tt_pipeline_computes(kind) || kind == TUTTI_PIPELINE_STEP;
}

static double held_by(const tutti_pipeline_costs_t *costs, tutti_pipeline_kind_t kind)
{
    switch (kind) {
    case TUTTI_PIPELINE_F:
        return costs->activation;
    case TUTTI_PIPELINE_B:
        return -costs->activation;
    case TUTTI_PIPELINE_I:
        return costs->pending - costs->activation;
    case TUTTI_PIPELINE_W:
        return -costs->pending;
    default:
        return 0;
    }
}

/* Gradients of a rank: what tutti_pipeline_step_shards() holds. */
typedef struct {
    const tutti_pipeline_schedule_t *schedule;
    int *left;     /* [stages][shards] B or W to come */
    int *of_shard; /* [shards] those of the rank's stages together */
    int stages;    /* of the rank */
    int turn, held, held_max;
} gradients_t;

static void begin_gradients(gradients_t *g, int rank)
{
    const tutti_pipeline_schedule_t *schedule = g->schedule;
    g->stages = g->turn = g->held = g->held_max = 0;
    for (int stage = 0; stage < schedule->stages; stage++) {
        g->stages += schedule->rank_of_stage[stage] == rank;
    }
    for (int shard = 0; shard < schedule->shards; shard++) {
        g->of_shard[shard] = g->stages * schedule->micro_batches;
        for (int stage = 0; stage < schedule->stages; stage++) {
            g->left[stage * schedule->shards + shard] = schedule->micro_batches;
        }
    }
}

static void note_gradient(gradients_t *g, const tutti_pipeline_action_t *action)
{
    const tutti_pipeline_schedule_t *schedule = g->schedule;
    const int shard = action->micro_batch / schedule->micro_batches;
    int *left = &g->left[action->stage * schedule->shards + shard];
    g->held += (*left)-- == schedule->micro_batches;
    g->held_max = g->held > g->held_max ? g->held : g->held_max;
    g->of_shard[shard]--;
    while (g->turn + 1 < schedule->shards && g->of_shard[g->turn] == 0) {
        g->turn++;
        g->held -= g->stages;
    }
}

static tutti_pipeline_load_t load_of(const tt_pipeline_walk_t *walk, int rank, gradients_t *g)
{
    const tutti_pipeline_row_t *row = &walk->schedule->rows[rank];
    tutti_pipeline_load_t load = {0};
    double held = 0;
    bool has_begun = false;
    begin_gradients(g, rank);
    for (int64_t i = 0; i < row->count; i++) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        const tutti_pipeline_span_t *span = &walk->spans[rank][i];
        held += held_by(&walk->costs[walk->is_cost_of_stage ? action->stage : 0], action->kind);
        load.activations_max = held > load.activations_max ? held : load.activations_max;
        if (action->kind == TUTTI_PIPELINE_B || action->kind == TUTTI_PIPELINE_W) {
            note_gradient(g, action);
        }
        if (takes_time(action->kind)) {
            load.begin = has_begun ? load.begin : span->begin;
            load.end = span->end;
            load.busy += span->end - span->begin;
            has_begun = true;
        }
    }
    load.idle = load.end - load.begin - load.busy;
    load.accumulators_max = g->held_max;
    return load;
}

static void sum_up_with(const tt_pipeline_walk_t *walk, gradients_t *g,
                        tutti_pipeline_simulation_t *out)
{
    double busy = 0;
    for (int rank = 0; rank < out->ranks; rank++) {
        out->loads[rank] = load_of(walk, rank, g);
        const tutti_pipeline_load_t *load = &out->loads[rank];
        busy += load->busy;
        out->time = load->end > out->time ? load->end : out->time;
        out->work = load->busy > out->work ? load->busy : out->work;
    }
    out->bubble = out->time > 0 ? 1 - busy / (out->ranks * out->time) : 0;
}

static tutti_status_t sum_up(const tt_pipeline_walk_t *walk, tutti_pipeline_simulation_t *out)
{
    const size_t stages = (size_t)walk->schedule->stages, shards = (size_t)walk->schedule->shards;
    gradients_t g = {.schedule = walk->schedule};
    g.left = tt_alloc_array((stages + 1) * shards, sizeof *g.left, "simulated shards");
    TT_TRY_ALLOC(g.left);
    g.of_shard = g.left + stages * shards;
    sum_up_with(walk, &g, out);
    tt_free(g.left);
    return TUTTI_OK;
}

/* ---- simulations ---- */

/* A block for the results, spans of all ranks behind the pointers to them. */
static tutti_status_t make_spans(const tutti_pipeline_schedule_t *schedule,
                                 tutti_pipeline_simulation_t *out)
{
    size_t count = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        count += (size_t)schedule->rows[rank].count;
    }
    const size_t ranks = (size_t)schedule->ranks;
    out->ranks = schedule->ranks;
    out->loads = tt_alloc_array(ranks, sizeof *out->loads, "simulated ranks");
    out->spans =
        tt_alloc(ranks * sizeof *out->spans + count * sizeof **out->spans, "simulated actions");
    if (out->loads == NULL || out->spans == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    tutti_pipeline_span_t *next = (tutti_pipeline_span_t *)(void *)(out->spans + ranks);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        out->spans[rank] = next;
        next += schedule->rows[rank].count;
    }
    return TUTTI_OK;
}

static tutti_status_t run(tt_pipeline_walk_t *walk, const tutti_pipeline_schedule_t *schedule,
                          const tutti_pipeline_costs_t *costs, int count,
                          tutti_pipeline_simulation_t *out)
{
    TT_TRY(tt_pipeline_walk_init(walk, schedule));
    TT_TRY(make_spans(schedule, out));
    walk->costs = costs;
    walk->is_cost_of_stage = count > 1;
    walk->has_messages = tt_pipeline_has_messages(schedule);
    walk->spans = out->spans;
    const tutti_status_t status = tt_pipeline_walk_run(walk);
    if (status < 0) {
        return walk->has_failed ? status : tt_pipeline_explain_stop(walk);
    }
    return sum_up(walk, out);
}

static tutti_status_t simulate(const tutti_pipeline_schedule_t *schedule,
                               const tutti_pipeline_costs_t *costs, int count,
                               tutti_pipeline_simulation_t *out)
{
    tutti_pipeline_simulation_t made = {0};
    tt_pipeline_walk_t walk;
    const tutti_status_t status = run(&walk, schedule, costs, count, &made);
    tt_pipeline_walk_fini(&walk);
    if (status < 0) {
        tutti_pipeline_simulation_release(&made);
        return status;
    }
    *out = made;
    return TUTTI_OK;
}

tutti_status_t tutti_pipeline_simulate(const tutti_pipeline_schedule_t *schedule,
                                       const tutti_pipeline_costs_t *costs, int count,
                                       tutti_pipeline_simulation_t *out)
{
    TT_WANT("pipeline_simulate", schedule);
    TT_WANT("pipeline_simulate", out);
    TT_TRY(tt_pipeline_check_form(schedule));
    const int wanted = costs != NULL ? count : 1;
    if (wanted != 1 && wanted != schedule->stages) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: costs of %d stages; there are %d", count,
                       schedule->stages);
    }
    tutti_pipeline_costs_t *all = tt_alloc_array((size_t)wanted, sizeof *all, "costs of stages");
    TT_TRY_ALLOC(all);
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < wanted && status >= 0; i++) {
        status = costs != NULL ? tt_pipeline_check_costs(&costs[i]) : TUTTI_OK;
        all[i] = tt_pipeline_costs(costs != NULL ? &costs[i] : NULL);
    }
    if (status >= 0) {
        status = simulate(schedule, all, wanted, out);
    }
    tt_free(all);
    return status;
}

void tutti_pipeline_simulation_release(tutti_pipeline_simulation_t *simulation)
{
    if (simulation != NULL) {
        tt_free(simulation->loads);
        tt_free(simulation->spans);
        *simulation = (tutti_pipeline_simulation_t){0};
    }
}
