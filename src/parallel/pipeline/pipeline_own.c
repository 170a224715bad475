/* A schedule of one's own becomes rows that run: messages, reductions, steps and gathered
 * parameters are added where it has none of that kind. What it has is kept as it is.
 */
#include "parallel/pipeline/pipeline_own.h"
#include "parallel/pipeline/pipeline_text.h"

#include "core/base/alloc.h"

bool tt_pipeline_has(const tutti_pipeline_schedule_t *schedule, tutti_pipeline_kind_t kind)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        for (int64_t i = 0; i < row->count; i++) {
            if (row->actions[i].kind == kind) {
                return true;
            }
        }
    }
    return false;
}

bool tt_pipeline_has_messages(const tutti_pipeline_schedule_t *schedule)
{
    return tt_pipeline_has(schedule, TUTTI_PIPELINE_SEND_F) ||
           tt_pipeline_has(schedule, TUTTI_PIPELINE_RECV_F) ||
           tt_pipeline_has(schedule, TUTTI_PIPELINE_SEND_B) ||
           tt_pipeline_has(schedule, TUTTI_PIPELINE_RECV_B);
}

/* Whether other actions of a stage follow a STEP. */
static bool steps_early(const tutti_pipeline_schedule_t *schedule)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        for (int64_t i = 0; i < row->count; i++) {
            if (row->actions[i].kind == TUTTI_PIPELINE_STEP && row->actions[i].version > 1) {
                return true;
            }
        }
    }
    return false;
}

static bool is_computation(tutti_pipeline_kind_t kind)
{
    return kind <= TUTTI_PIPELINE_W;
}

tutti_status_t tt_pipeline_give_row(tt_pipeline_emit_t *emit, tutti_pipeline_row_t *row)
{
    if (emit->count < emit->capacity) {
        const size_t count = emit->count > 0 ? (size_t)emit->count : 1;
        const size_t bytes = count * sizeof *emit->actions;
        tutti_pipeline_action_t *actions = tt_realloc(emit->actions, bytes, "pipeline row");
        if (actions == NULL) {
            tt_free(emit->actions);
            return TUTTI_ERR_NOMEM;
        }
        emit->actions = actions;
    }
    *row = (tutti_pipeline_row_t){emit->actions, emit->count};
    return TUTTI_OK;
}

/* What is still to come of each stage, in one block. */
static tt_pipeline_left_t *make_left(const tt_pipeline_shape_t *shape)
{
    const size_t stages = (size_t)shape->stages, shards = (size_t)shape->shards;
    tt_pipeline_left_t *left =
        tt_alloc(stages * (sizeof *left + shards * sizeof(int)), "pipeline shards");
    int *counts = left != NULL ? (int *)(left + stages) : NULL;
    for (size_t stage = 0; left != NULL && stage < stages; stage++) {
        left[stage].left = shape->total;
        left[stage].of_shard = counts + stage * shards;
        for (size_t shard = 0; shard < shards; shard++) {
            left[stage].of_shard[shard] = shape->micro_batches;
        }
    }
    return left;
}

/* Steps are kept in asynchronous schedules even if only computations are wanted. */
static bool is_kept(const tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind, bool compute_only)
{
    return !compute_only || (kind == TUTTI_PIPELINE_STEP && emit->is_asynchronous);
}

static void put_row(tt_pipeline_emit_t *emit, const tutti_pipeline_row_t *from, bool compute_only)
{
    for (int64_t i = 0; i < from->count; i++) {
        const tutti_pipeline_action_t *action = &from->actions[i];
        if (is_computation(action->kind)) {
            tt_pipeline_put_computation(emit, *action);
        } else if (is_kept(emit, action->kind, compute_only)) {
            if (action->kind == TUTTI_PIPELINE_STEP) {
                tt_pipeline_put_step(emit, *action);
            } else {
                tt_pipeline_put(emit, *action);
            }
        }
    }
    for (int stage = 0; emit->adds_steps && stage < emit->shape->stages; stage++) {
        if (emit->rank_of_stage[stage] == emit->rank) {
            tt_pipeline_put_step(emit,
                                 (tutti_pipeline_action_t){.kind = TUTTI_PIPELINE_STEP,
                                                           .stage = stage,
                                                           .micro_batch = emit->shape->total - 1,
                                                           .version = 1});
        }
    }
}

static tutti_status_t check_numbers(const tutti_pipeline_row_t *row,
                                    const tt_pipeline_shape_t *shape, int rank)
{
    for (int64_t i = 0; i < row->count; i++) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        if ((unsigned)action->kind >= TT_PIPELINE_KINDS) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: rank %d, action %lld: there is no kind of action with the "
                           "number %d",
                           rank, (long long)i, (int)action->kind);
        }
        const int least = is_computation(action->kind) ? 0 : -1;
        if (action->stage < 0 || action->stage >= shape->stages || action->micro_batch < least ||
            action->micro_batch >= shape->total) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: action %lld is of stage %d, micro-batch %d; there are %d "
                           "stages, %d micro-batches",
                           (long long)i, action->stage, action->micro_batch, shape->stages,
                           shape->total);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_pipeline_own_row(tt_pipeline_emit_t *emit, const tutti_pipeline_schedule_t *own,
                                   tutti_pipeline_row_t *row)
{
    const tutti_pipeline_row_t *from = &own->rows[emit->rank];
    const bool compute_only = !emit->adds_messages;
    TT_TRY(check_numbers(from, emit->shape, emit->rank));
    emit->is_asynchronous = steps_early(own);
    emit->adds_messages = emit->adds_messages && !tt_pipeline_has_messages(own);
    emit->adds_reductions = emit->adds_reductions && !tt_pipeline_has(own, TUTTI_PIPELINE_REDUCE);
    emit->adds_steps = emit->adds_steps && !tt_pipeline_has(own, TUTTI_PIPELINE_STEP);
    emit->adds_shards = emit->adds_shards && !tt_pipeline_has(own, TUTTI_PIPELINE_UNSHARD);
    if (emit->is_asynchronous && emit->adds_shards) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: the schedule of one's own steps while parameters "
                                      "are gathered: it cannot be sharded");
    }
    emit->left = make_left(emit->shape);
    TT_TRY_ALLOC(emit->left);
    /* two messages and a REDUCE for each, and what each stage has once */
    emit->capacity = 4 * from->count + 3 * (int64_t)emit->shape->stages;
    emit->actions = tt_alloc_array((size_t)emit->capacity, sizeof *emit->actions, "pipeline row");
    if (emit->actions != NULL) {
        put_row(emit, from, compute_only);
    }
    tt_free(emit->left);
    TT_TRY_ALLOC(emit->actions);
    return tt_pipeline_give_row(emit, row);
}
