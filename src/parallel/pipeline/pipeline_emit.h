/* A row that is being planned: what a schedule computes, with all that stands around it.
 *
 *     UNSHARD RECV_F F SEND_F … RECV_B I SEND_B … W REDUCE RESHARD … STEP
 *
 * The room is known before: it is allocated once and, but for what dualpipe-v does not split, used
 * to its last action.
 */
#ifndef TT_PIPELINE_EMIT_H
#define TT_PIPELINE_EMIT_H

#include "parallel/pipeline/pipeline_schedule.h"

/* What of a stage is still to come; for schedules of one's own, whose order may be any. */
typedef struct {
    bool is_open;
    int left;      /* B or W of all shards */
    int *of_shard; /* [shards] of each */
} tt_pipeline_left_t;

struct tt_pipeline_emit {
    const tt_pipeline_shape_t *shape;
    const int *rank_of_stage; /* of schedules of one's own; NULL: by the shape */
    bool is_v, is_asynchronous;
    int rank;
    bool adds_messages, adds_reductions, adds_steps, adds_shards;
    tt_pipeline_left_t *left; /* [stages]; NULL: B or W of each stage ascend */
    tutti_pipeline_action_t *actions;
    int64_t count, capacity;
    int64_t next_input; /* where the oldest I without W is looked for */
};

/* The rank of a stage; the stage of a rank's chunk. */
int tt_pipeline_rank(const tt_pipeline_emit_t *emit, int stage);
int tt_pipeline_chunk(const tt_pipeline_emit_t *emit, int chunk);

/* An action as it is, without anything around it. */
void tt_pipeline_put(tt_pipeline_emit_t *emit, tutti_pipeline_action_t action);

/* F, B, I or W of a stage, with what stands around it. */
void tt_pipeline_put_computation(tt_pipeline_emit_t *emit, tutti_pipeline_action_t action);

/* STEP, with its REDUCE in asynchronous schedules. */
void tt_pipeline_put_step(tt_pipeline_emit_t *emit, tutti_pipeline_action_t step);

#endif
