/* A pipeline schedule: a table and a function that says what a rank computes, in order. All else
 * (messages, reductions, steps) is added behind its back, by pipeline_emit.c. A new schedule is a
 * file with a tt_pipeline_ops_t and a line in pipelines.def.
 */
#ifndef TT_PIPELINE_SCHEDULE_H
#define TT_PIPELINE_SCHEDULE_H

#include <tutti/pipeline.h>

/* What a schedule knows of the pipeline. */
typedef struct {
    int ranks, per_rank, stages;      /* stages = ranks × per_rank */
    int micro_batches, shards, total; /* total = micro_batches × shards */
    int accumulate;                   /* micro-batches of an update, in asynchronous schedules */
    bool vertical_sync;
    tutti_pipeline_costs_t costs; /* without defaults: all are what they are */
} tt_pipeline_shape_t;

/* A row that is being planned. */
typedef struct tt_pipeline_emit tt_pipeline_emit_t;

typedef struct {
    const char *name, *about, *source;
    int per_rank_min, per_rank_max; /* stages of a rank; max 0: any number */
    bool is_v;                      /* the second stage of rank r is 2 ranks - 1 - r */
    bool is_split, is_asynchronous;
    const char *want; /* which micro-batches it takes, where `fits` refuses some */
    bool (*fits)(const tt_pipeline_shape_t *shape); /* NULL: any */
    /* F, B, I and W of all stages of a rank, B or W of a stage in ascending order. */
    void (*plan)(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank);
} tt_pipeline_ops_t;

/* Every schedule there is; the end is NULL. */
extern const tt_pipeline_ops_t *const tt_pipeline_schedules[];

#define X(symbol) extern const tt_pipeline_ops_t tt_pipeline_##symbol;
#include "parallel/pipeline/pipelines.def"
#undef X

/* ---- what a plan says ---- */

/* A rank computes something; chunk: the rank's first, second, … stage. */
void tt_pipeline_emit(tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind, int chunk,
                      int micro_batch);

/* The same at weights that have seen `version` steps. */
void tt_pipeline_emit_at(tt_pipeline_emit_t *emit, tutti_pipeline_kind_t kind, int chunk,
                         int micro_batch, int version);

/* W of the oldest I that has none yet. */
void tt_pipeline_emit_weight(tt_pipeline_emit_t *emit);

/* The optimizer steps a stage behind a micro-batch; in asynchronous schedules alone. */
void tt_pipeline_emit_step(tt_pipeline_emit_t *emit, int chunk, int micro_batch, int version);

/* ---- what several schedules share ---- */

/* The order of schedules that deal a rank's stages out in rounds of micro-batches. */
typedef struct {
    int per_round; /* micro-batches of a round */
    int per_rank;
} tt_pipeline_rounds_t;

/* Whether the micro-batches are whole rounds, of at least one micro-batch for each rank. */
bool tt_pipeline_are_rounds(const tt_pipeline_shape_t *shape);
tt_pipeline_rounds_t tt_pipeline_rounds(const tt_pipeline_shape_t *shape);

/* The index-th forward of a rank, the index-th backward: chunks in reversed order. */
void tt_pipeline_emit_forward(tt_pipeline_emit_t *emit, const tt_pipeline_rounds_t *rounds,
                              int index);
void tt_pipeline_emit_backward(tt_pipeline_emit_t *emit, const tt_pipeline_rounds_t *rounds,
                               tutti_pipeline_kind_t kind, int index);

/* One forward, one backward: the plan of 1f1b and flush. */
void tt_pipeline_plan_1f1b(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank);

#endif
