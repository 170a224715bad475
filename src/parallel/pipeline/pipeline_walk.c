/* Walks: what an action needs, what it does, and who goes on then. */
#include "parallel/pipeline/pipeline_walk.h"

#include <stdarg.h>

#include "core/base/alloc.h"
#include "core/base/reals.h"

#define BIT(kind) (1u << (unsigned)(kind))

enum {
    F = TUTTI_PIPELINE_F,
    B = TUTTI_PIPELINE_B,
    I = TUTTI_PIPELINE_I,
    W = TUTTI_PIPELINE_W,
    SEND_F = TUTTI_PIPELINE_SEND_F,
    RECV_F = TUTTI_PIPELINE_RECV_F,
    SEND_B = TUTTI_PIPELINE_SEND_B,
    RECV_B = TUTTI_PIPELINE_RECV_B,
};

tutti_status_t tt_pipeline_walk_init(tt_pipeline_walk_t *walk,
                                     const tutti_pipeline_schedule_t *schedule)
{
    static const tutti_pipeline_costs_t nothing = {0};
    const size_t ranks = (size_t)schedule->ranks, stages = (size_t)schedule->stages;
    *walk = (tt_pipeline_walk_t){.schedule = schedule,
                                 .costs = &nothing,
                                 .total = schedule->micro_batches * schedule->shards};
    walk->cells = tt_alloc_array(stages * (size_t)walk->total, sizeof *walk->cells, "walk cells");
    walk->steps = tt_alloc_array(stages, sizeof *walk->steps, "walk steps");
    walk->at = tt_alloc_array(ranks, sizeof *walk->at, "walk places");
    walk->clocks = tt_alloc_array(ranks, sizeof *walk->clocks, "walk clocks");
    walk->is_waiting = tt_alloc_array(ranks, sizeof *walk->is_waiting, "walk ranks");
    walk->ready = tt_alloc_array(ranks, sizeof *walk->ready, "walk ranks");
    const bool is_whole = walk->cells != NULL && walk->steps != NULL && walk->at != NULL &&
                          walk->clocks != NULL && walk->is_waiting != NULL && walk->ready != NULL;
    return is_whole ? TUTTI_OK : TUTTI_ERR_NOMEM;
}

void tt_pipeline_walk_fini(tt_pipeline_walk_t *walk)
{
    tt_free(walk->cells);
    tt_free(walk->steps);
    tt_free(walk->at);
    tt_free(walk->clocks);
    tt_free(walk->is_waiting);
    tt_free(walk->ready);
}

tt_pipeline_cell_t *tt_pipeline_cell(const tt_pipeline_walk_t *walk, int stage, int micro_batch)
{
    return &walk->cells[(size_t)stage * (size_t)walk->total + (size_t)micro_batch];
}

tutti_status_t tt_pipeline_blame(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                 const char *format, ...)
{
    char why[160];
    va_list args;
    va_start(args, format);
    (void)tt_format_list(why, sizeof why, format, args);
    va_end(args);
    const tutti_pipeline_row_t *row = &walk->schedule->rows[place.rank];
    const tt_pipeline_label_t name = place.index < row->count
                                         ? tt_pipeline_label(&row->actions[place.index])
                                         : (tt_pipeline_label_t){"the end"};
    walk->has_failed = true;
    walk->failure = place;
    return TT_FAIL(TUTTI_ERR_ARG, "pipeline: rank %d, action %lld, %s: %s", place.rank,
                   (long long)place.index, name.text, why);
}

/* ---- what an action needs ---- */

static bool is_local(const tt_pipeline_walk_t *walk, int rank, int stage)
{
    return walk->schedule->rank_of_stage[stage] == rank;
}

static unsigned done(const tt_pipeline_walk_t *walk, int stage, int micro_batch)
{
    return tt_pipeline_cell(walk, stage, micro_batch)->done;
}

/* The neighbour's action that must have happened, `local` on this rank, `message` on others. */
static bool find_awaited(const tt_pipeline_walk_t *walk, int rank, int stage, int micro_batch,
                         const int *kinds, tutti_pipeline_action_t *awaited)
{
    const bool sends = walk->has_messages && !is_local(walk, rank, stage);
    const int kind = sends ? kinds[0] : kinds[1];
    unsigned bits = BIT(kind);
    bits |= kind == I ? BIT(B) : 0; /* either gives gradients of inputs */
    *awaited = (tutti_pipeline_action_t){
        .kind = (tutti_pipeline_kind_t)kind, .stage = stage, .micro_batch = micro_batch};
    return (done(walk, stage, micro_batch) & bits) == 0;
}

static bool lacks(const tt_pipeline_walk_t *walk, const tutti_pipeline_action_t *action,
                  tutti_pipeline_kind_t kind, tutti_pipeline_action_t *awaited)
{
    *awaited = *action;
    awaited->kind = kind;
    return (done(walk, action->stage, action->micro_batch) & BIT(kind)) == 0;
}

bool tt_pipeline_awaited(const tt_pipeline_walk_t *walk, int rank, tutti_pipeline_action_t *awaited)
{
    static const int forward[] = {SEND_F, F}, backward[] = {SEND_B, I};
    const tutti_pipeline_row_t *row = &walk->schedule->rows[rank];
    if (walk->at[rank] >= row->count) {
        return false;
    }
    const tutti_pipeline_action_t *action = &row->actions[walk->at[rank]];
    const int stage = action->stage, b = action->micro_batch;
    switch ((int)action->kind) {
    case F:
        return stage > 0 && find_awaited(walk, rank, stage - 1, b, forward, awaited);
    case B:
    case I:
        return lacks(walk, action, TUTTI_PIPELINE_F, awaited) ||
               (stage + 1 < walk->schedule->stages &&
                find_awaited(walk, rank, stage + 1, b, backward, awaited));
    case W:
        return lacks(walk, action, TUTTI_PIPELINE_I, awaited);
    case SEND_F:
        return lacks(walk, action, TUTTI_PIPELINE_F, awaited);
    case SEND_B:
        return lacks(walk, action, TUTTI_PIPELINE_I, awaited) &&
               lacks(walk, action, TUTTI_PIPELINE_B, awaited);
    default:
        return false;
    }
}

/* ---- what is wrong with an action ---- */

static tutti_status_t check_numbers(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                    const tutti_pipeline_action_t *action)
{
    if ((unsigned)action->kind >= TT_PIPELINE_KINDS) {
        return tt_pipeline_blame(walk, place, "there is no kind of action with the number %d",
                                 (int)action->kind);
    }
    if (action->stage < 0 || action->stage >= walk->schedule->stages) {
        return tt_pipeline_blame(walk, place, "there are %d stages", walk->schedule->stages);
    }
    const bool has_batch = action->kind <= TUTTI_PIPELINE_RECV_B;
    if (action->micro_batch >= walk->total || action->micro_batch < (has_batch ? 0 : -1)) {
        return tt_pipeline_blame(walk, place, "there are %d micro-batches", walk->total);
    }
    if (!is_local(walk, place.rank, action->stage)) {
        return tt_pipeline_blame(walk, place, "stage %d is of rank %d, too", action->stage,
                                 walk->schedule->rank_of_stage[action->stage]);
    }
    return TUTTI_OK;
}

static tutti_status_t check_once(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                 const tutti_pipeline_action_t *action)
{
    const unsigned before = done(walk, action->stage, action->micro_batch);
    unsigned excluded = BIT(action->kind);
    excluded |= action->kind == TUTTI_PIPELINE_B ? BIT(I) : 0;
    excluded |= action->kind == TUTTI_PIPELINE_I || action->kind == TUTTI_PIPELINE_W ? BIT(B) : 0;
    return (before & excluded) == 0 ? TUTTI_OK
                                    : tt_pipeline_blame(walk, place,
                                                        "this has been done before, for the same "
                                                        "stage and micro-batch");
}

/* The other end of a message, and whether there is one at all. */
static tutti_status_t check_message(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                    const tutti_pipeline_action_t *action)
{
    const bool is_up =
        action->kind == TUTTI_PIPELINE_SEND_F || action->kind == TUTTI_PIPELINE_RECV_B;
    const int neighbour = is_up ? action->stage + 1 : action->stage - 1;
    if (neighbour < 0 || neighbour >= walk->schedule->stages) {
        return tt_pipeline_blame(walk, place, "there is no stage %d", neighbour);
    }
    return is_local(walk, place.rank, neighbour)
               ? tt_pipeline_blame(walk, place, "stage %d is on this rank, too: want no message",
                                   neighbour)
               : TUTTI_OK;
}

static tutti_status_t check_received(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                     const tutti_pipeline_action_t *action)
{
    const bool is_forward = action->kind == TUTTI_PIPELINE_F;
    const int neighbour = is_forward ? action->stage - 1 : action->stage + 1;
    const int receive = is_forward ? RECV_F : RECV_B;
    if (!walk->has_messages || action->kind == TUTTI_PIPELINE_W || neighbour < 0 ||
        neighbour >= walk->schedule->stages || is_local(walk, place.rank, neighbour) ||
        (done(walk, action->stage, action->micro_batch) & BIT(receive)) != 0) {
        return TUTTI_OK;
    }
    return tt_pipeline_blame(walk, place, "want %d%s%d before it", action->stage,
                             tt_pipeline_kind_name((tutti_pipeline_kind_t)receive),
                             action->micro_batch);
}

static tutti_status_t check_version(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                    const tutti_pipeline_action_t *action)
{
    const tt_pipeline_cell_t *cell = tt_pipeline_cell(walk, action->stage, action->micro_batch);
    if (action->kind != TUTTI_PIPELINE_F && action->version != cell->version) {
        return tt_pipeline_blame(walk, place, "weights of version %d; its forward used %d",
                                 action->version, cell->version);
    }
    const int newest = walk->steps[action->stage];
    return action->version >= 0 && action->version <= newest
               ? TUTTI_OK
               : tt_pipeline_blame(walk, place, "weights of version %d; the newest is %d",
                                   action->version, newest);
}

/* Before it is known whether it has to wait. */
static tutti_status_t check_before(tt_pipeline_walk_t *walk, tt_pipeline_place_t place,
                                   const tutti_pipeline_action_t *action)
{
    TT_TRY(check_numbers(walk, place, action));
    if (action->kind > TUTTI_PIPELINE_RECV_B) {
        return TUTTI_OK;
    }
    TT_TRY(check_once(walk, place, action));
    return tt_pipeline_computes(action->kind) ? check_received(walk, place, action)
                                              : check_message(walk, place, action);
}

/* ---- what an action does ---- */

static const tutti_pipeline_costs_t *costs_of(const tt_pipeline_walk_t *walk, int stage)
{
    return &walk->costs[walk->is_cost_of_stage ? stage : 0];
}

static double duration(const tutti_pipeline_costs_t *costs, tutti_pipeline_kind_t kind)
{
    switch ((int)kind) {
    case F:
        return costs->forward;
    case B:
        return costs->backward;
    case I:
        return costs->input;
    case W:
        return costs->weight;
    default:
        return kind == TUTTI_PIPELINE_STEP ? costs->step : 0;
    }
}

/* When what an action needs from a neighbour is there. */
static double arrival(const tt_pipeline_walk_t *walk, int rank,
                      const tutti_pipeline_action_t *action)
{
    const int stage = action->stage, b = action->micro_batch;
    const bool is_forward = action->kind == TUTTI_PIPELINE_F;
    const int neighbour = is_forward ? stage - 1 : stage + 1;
    if (action->kind >= TUTTI_PIPELINE_W || neighbour < 0 || neighbour >= walk->schedule->stages) {
        return 0;
    }
    const tt_pipeline_cell_t *cell = tt_pipeline_cell(walk, neighbour, b);
    const double there = is_forward ? cell->outputs : cell->gradients;
    return is_local(walk, rank, neighbour) ? there : there + costs_of(walk, neighbour)->message;
}

static void note(tt_pipeline_walk_t *walk, const tutti_pipeline_action_t *action, double end)
{
    if (action->kind == TUTTI_PIPELINE_STEP) {
        walk->steps[action->stage]++;
    }
    if (action->kind > TUTTI_PIPELINE_RECV_B) {
        return;
    }
    tt_pipeline_cell_t *cell = tt_pipeline_cell(walk, action->stage, action->micro_batch);
    cell->done |= BIT(action->kind);
    switch ((int)action->kind) {
    case F:
        cell->version = action->version;
        cell->outputs = end;
        break;
    case SEND_F:
        cell->outputs = end;
        break;
    case B:
    case I:
    case SEND_B:
        cell->gradients = end;
        break;
    default:
        break;
    }
}

static void perform(tt_pipeline_walk_t *walk, int rank, const tutti_pipeline_action_t *action)
{
    const double there = arrival(walk, rank, action), now = walk->clocks[rank];
    const double begin = there > now ? there : now;
    const double end = begin + duration(costs_of(walk, action->stage), action->kind);
    if (walk->spans != NULL) {
        walk->spans[rank][walk->at[rank]] = (tutti_pipeline_span_t){begin, end};
    }
    walk->clocks[rank] = end;
    note(walk, action, end);
    walk->at[rank]++;
}

/* ---- walks ---- */

/* The ranks that may have waited for what has just happened on a stage. */
static void wake(tt_pipeline_walk_t *walk, int stage)
{
    for (int other = stage - 1; other <= stage + 1; other++) {
        const int rank = other >= 0 && other < walk->schedule->stages
                             ? walk->schedule->rank_of_stage[other]
                             : -1;
        if (rank >= 0 && walk->is_waiting[rank]) {
            walk->is_waiting[rank] = false;
            walk->ready[walk->ready_count++] = rank;
        }
    }
}

/* A rank goes on until it waits or is done. */
static tutti_status_t walk_rank(tt_pipeline_walk_t *walk, int rank)
{
    const tutti_pipeline_row_t *row = &walk->schedule->rows[rank];
    tutti_pipeline_action_t awaited;
    while (walk->at[rank] < row->count) {
        const tutti_pipeline_action_t *action = &row->actions[walk->at[rank]];
        const tt_pipeline_place_t place = {rank, walk->at[rank]};
        TT_TRY(check_before(walk, place, action));
        if (tt_pipeline_awaited(walk, rank, &awaited)) {
            walk->is_waiting[rank] = true;
            break;
        }
        if (tt_pipeline_computes(action->kind)) {
            TT_TRY(check_version(walk, place, action));
        }
        perform(walk, rank, action);
        wake(walk, action->stage);
    }
    return TUTTI_OK;
}

tutti_status_t tt_pipeline_walk_run(tt_pipeline_walk_t *walk)
{
    for (int rank = walk->schedule->ranks - 1; rank >= 0; rank--) {
        walk->ready[walk->ready_count++] = rank;
    }
    while (walk->ready_count > 0) {
        TT_TRY(walk_rank(walk, walk->ready[--walk->ready_count]));
    }
    for (int rank = 0; rank < walk->schedule->ranks; rank++) {
        if (walk->at[rank] < walk->schedule->rows[rank].count) {
            return TUTTI_ERR_ARG;
        }
    }
    return TUTTI_OK;
}
