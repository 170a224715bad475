/* What stands around a rank's computations: messages, reductions, steps, gathered parameters. */
#include "parallel/pipeline/pipeline_emit.h"

#include "core/base/fail.h"

int tt_pipeline_rank(const tt_pipeline_emit_t *emit, int stage)
{
    if (emit->rank_of_stage != NULL) {
        return emit->rank_of_stage[stage];
    }
    const int ranks = emit->shape->ranks;
    return emit->is_v && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks;
}

int tt_pipeline_chunk(const tt_pipeline_emit_t *emit, int chunk)
{
    const int ranks = emit->shape->ranks;
    return emit->is_v && chunk == 1 ? 2 * ranks - 1 - emit->rank : chunk * ranks + emit->rank;
}

void tt_pipeline_put(tt_pipeline_emit_t *emit, tutti_pipeline_action_t action)
{
    TT_ASSERT(emit->count < emit->capacity);
    emit->actions[emit->count++] = action;
}

/* A message between this stage and a neighbour, where that is another rank's. */
static void put_message(tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind,
                        const tutti_pipeline_action_t *action, int neighbour)
{
    if (emit->adds_messages && neighbour >= 0 && neighbour < emit->shape->stages &&
        tt_pipeline_rank(emit, neighbour) != emit->rank) {
        tt_pipeline_put(emit, (tutti_pipeline_action_t){.kind = kind,
                                                        .stage = action->stage,
                                                        .micro_batch = action->micro_batch});
    }
}

static void put_shards(tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind, int stage)
{
    if (emit->adds_shards) {
        tt_pipeline_put(emit,
                        (tutti_pipeline_action_t){.kind = kind, .stage = stage, .micro_batch = -1});
    }
}

static void put_reduction(tt_pipeline_emit_t *emit, int stage, int last)
{
    if (emit->adds_reductions) {
        tt_pipeline_put(emit, (tutti_pipeline_action_t){.kind = TUTTI_PIPELINE_REDUCE,
                                                        .stage = stage,
                                                        .micro_batch = last});
    }
}

static bool is_first(tt_pipeline_emit_t *emit, const tutti_pipeline_action_t *action)
{
    if (emit->left == NULL) {
        return action->kind == TUTTI_PIPELINE_F && action->micro_batch == 0;
    }
    const bool is_open = emit->left[action->stage].is_open;
    emit->left[action->stage].is_open = true;
    return !is_open;
}

/* Behind the last B or W of a shard, of the whole stage. */
static void close_stage(tt_pipeline_emit_t *emit, const tutti_pipeline_action_t *action)
{
    const int of_shard = emit->shape->micro_batches, b = action->micro_batch;
    const int last = b / of_shard * of_shard + of_shard - 1;
    bool ends_shard = b == last, ends_stage = b == emit->shape->total - 1;
    if (emit->left != NULL) {
        tt_pipeline_left_t *left = &emit->left[action->stage];
        ends_shard = --left->of_shard[b / of_shard] == 0;
        ends_stage = --left->left == 0;
    }
    if (ends_shard && !emit->is_asynchronous) {
        put_reduction(emit, action->stage, last);
    }
    if (ends_stage) {
        put_shards(emit, TUTTI_PIPELINE_RESHARD, action->stage);
    }
}

void tt_pipeline_put_computation(tt_pipeline_emit_t *emit, tutti_pipeline_action_t action)
{
    const int stage = action.stage;
    if (is_first(emit, &action)) {
        put_shards(emit, TUTTI_PIPELINE_UNSHARD, stage);
    }
    switch (action.kind) {
    case TUTTI_PIPELINE_F:
        put_message(emit, TUTTI_PIPELINE_RECV_F, &action, stage - 1);
        tt_pipeline_put(emit, action);
        put_message(emit, TUTTI_PIPELINE_SEND_F, &action, stage + 1);
        break;
    case TUTTI_PIPELINE_B:
    case TUTTI_PIPELINE_I:
        put_message(emit, TUTTI_PIPELINE_RECV_B, &action, stage + 1);
        tt_pipeline_put(emit, action);
        put_message(emit, TUTTI_PIPELINE_SEND_B, &action, stage - 1);
        break;
    default:
        tt_pipeline_put(emit, action);
    }
    if (action.kind == TUTTI_PIPELINE_B || action.kind == TUTTI_PIPELINE_W) {
        close_stage(emit, &action);
    }
}

void tt_pipeline_put_step(tt_pipeline_emit_t *emit, tutti_pipeline_action_t step)
{
    if (emit->is_asynchronous) {
        put_reduction(emit, step.stage, step.micro_batch);
    }
    tt_pipeline_put(emit, step);
}

/* ---- what schedules call ---- */

void tt_pipeline_emit_at(tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind, int chunk,
                         int micro_batch, int version)
{
    tt_pipeline_put_computation(emit,
                                (tutti_pipeline_action_t){.kind = kind,
                                                          .stage = tt_pipeline_chunk(emit, chunk),
                                                          .micro_batch = micro_batch,
                                                          .version = version});
}

void tt_pipeline_emit(tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind, int chunk,
                      int micro_batch)
{
    tt_pipeline_emit_at(emit, kind, chunk, micro_batch, 0);
}

void tt_pipeline_emit_weight(tt_pipeline_emit_t *emit)
{
    while (emit->next_input < emit->count &&
           emit->actions[emit->next_input].kind != TUTTI_PIPELINE_I) {
        emit->next_input++;
    }
    TT_ASSERT(emit->next_input < emit->count);
    tutti_pipeline_action_t action = emit->actions[emit->next_input++];
    action.kind = TUTTI_PIPELINE_W;
    tt_pipeline_put_computation(emit, action);
}

void tt_pipeline_emit_step(tt_pipeline_emit_t *emit, int chunk, int micro_batch, int version)
{
    tt_pipeline_put_step(emit, (tutti_pipeline_action_t){.kind = TUTTI_PIPELINE_STEP,
                                                         .stage = tt_pipeline_chunk(emit, chunk),
                                                         .micro_batch = micro_batch,
                                                         .version = version});
}
