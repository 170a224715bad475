/* Rows of a schedule: each rank's by itself, or all of them. */
#include <tutti/pipeline.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_emit.h"
#include "parallel/pipeline/pipeline_own.h"
#include "parallel/pipeline/pipeline_shape.h"

tutti_status_t tutti_pipeline_describe(size_t index, tutti_pipeline_about_t *out)
{
    TT_WANT("pipeline_describe", out);
    for (size_t i = 0; i <= index; i++) {
        if (tt_pipeline_schedules[i] == NULL) {
            return TUTTI_END;
        }
    }
    const tt_pipeline_ops_t *ops = tt_pipeline_schedules[index];
    *out = (tutti_pipeline_about_t){.name = ops->name,
                                    .about = ops->about,
                                    .source = ops->source,
                                    .stages_per_rank_min = ops->per_rank_min,
                                    .stages_per_rank_max = ops->per_rank_max,
                                    .is_v = ops->is_v,
                                    .is_split = ops->is_split,
                                    .is_asynchronous = ops->is_asynchronous};
    return TUTTI_OK;
}

static tt_pipeline_emit_t begin_row(const tutti_pipeline_options_t *options,
                                    const tt_pipeline_plan_t *plan, int rank)
{
    return (tt_pipeline_emit_t){.shape = &plan->shape,
                                .rank_of_stage =
                                    options->own != NULL ? options->own->rank_of_stage : NULL,
                                .is_v = plan->ops != NULL && plan->ops->is_v,
                                .is_asynchronous = plan->ops != NULL && plan->ops->is_asynchronous,
                                .rank = rank,
                                .adds_messages = !options->compute_only,
                                .adds_reductions = !options->compute_only,
                                .adds_steps = !options->compute_only,
                                .adds_shards = options->sharded && !options->compute_only};
}

/* ---- rows ---- */

/* Messages of a micro-batch of a stage. */
static int count_messages(const tt_pipeline_emit_t *emit, int stage)
{
    int count = 0;
    for (int neighbour = stage - 1; neighbour <= stage + 1; neighbour += 2) {
        const bool is_there = neighbour >= 0 && neighbour < emit->shape->stages;
        count += is_there && tt_pipeline_rank(emit, neighbour) != emit->rank ? 2 : 0;
    }
    return count;
}

/* How long a row is, if all backwards are split where some are. */
static int64_t count_actions(const tt_pipeline_emit_t *emit, const tt_pipeline_ops_t *ops)
{
    const tt_pipeline_shape_t *shape = emit->shape;
    const int64_t updates = ops->is_asynchronous ? shape->total / shape->accumulate : 0;
    int64_t count = 0;
    for (int chunk = 0; chunk < shape->per_rank; chunk++) {
        const int messages = count_messages(emit, tt_pipeline_chunk(emit, chunk));
        count += (int64_t)shape->total *
                 ((ops->is_split ? 3 : 2) + (emit->adds_messages ? messages : 0));
        count += updates; /* STEP, in compute-only rows too */
        count += emit->adds_reductions ? (ops->is_asynchronous ? updates : shape->shards) : 0;
        count += (emit->adds_shards ? 2 : 0) + (emit->adds_steps && updates == 0 ? 1 : 0);
    }
    return count;
}

static void put_last_steps(tt_pipeline_emit_t *emit)
{
    for (int chunk = 0; chunk < emit->shape->per_rank; chunk++) {
        tt_pipeline_emit_step(emit, chunk, emit->shape->total - 1, 1);
    }
}

static tutti_status_t plan_row(const tutti_pipeline_options_t *options,
                               const tt_pipeline_plan_t *plan, int rank, tutti_pipeline_row_t *row)
{
    tt_pipeline_emit_t emit = begin_row(options, plan, rank);
    if (options->own != NULL) {
        return tt_pipeline_own_row(&emit, options->own, row);
    }
    emit.capacity = count_actions(&emit, plan->ops);
    emit.actions = tt_alloc_array((size_t)emit.capacity, sizeof *emit.actions, "pipeline row");
    TT_TRY_ALLOC(emit.actions);
    plan->ops->plan(&emit, &plan->shape, rank);
    if (emit.adds_steps && !emit.is_asynchronous) {
        put_last_steps(&emit);
    }
    return tt_pipeline_give_row(&emit, row);
}

tutti_status_t tutti_pipeline_plan_row(const tutti_pipeline_options_t *options, int rank,
                                       tutti_pipeline_row_t *row)
{
    TT_WANT("pipeline_plan_row", options);
    TT_WANT("pipeline_plan_row", row);
    tt_pipeline_plan_t plan = {0};
    TT_TRY(tt_pipeline_shape(options, &plan));
    if (rank < 0 || rank >= plan.shape.ranks) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: rank %d of %d", rank, plan.shape.ranks);
    }
    return plan_row(options, &plan, rank, row);
}

void tutti_pipeline_row_release(tutti_pipeline_row_t *row)
{
    if (row != NULL) {
        tt_free(row->actions);
        *row = (tutti_pipeline_row_t){0};
    }
}

/* ---- schedules ---- */

static tutti_status_t fill(const tutti_pipeline_options_t *options, const tt_pipeline_plan_t *plan,
                           tutti_pipeline_schedule_t *schedule)
{
    const tt_pipeline_emit_t emit = begin_row(options, plan, 0);
    schedule->rank_of_stage =
        tt_alloc_array((size_t)schedule->stages, sizeof(int), "pipeline stages");
    TT_TRY_ALLOC(schedule->rank_of_stage);
    schedule->rows =
        tt_alloc_array((size_t)schedule->ranks, sizeof(tutti_pipeline_row_t), "pipeline rows");
    TT_TRY_ALLOC(schedule->rows);
    for (int stage = 0; stage < schedule->stages; stage++) {
        schedule->rank_of_stage[stage] = tt_pipeline_rank(&emit, stage);
    }
    for (int rank = 0; rank < schedule->ranks; rank++) {
        TT_TRY(plan_row(options, plan, rank, &schedule->rows[rank]));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_pipeline_plan(const tutti_pipeline_options_t *options,
                                   tutti_pipeline_schedule_t *out)
{
    TT_WANT("pipeline_plan", options);
    TT_WANT("pipeline_plan", out);
    tt_pipeline_plan_t plan = {0};
    TT_TRY(tt_pipeline_shape(options, &plan));
    tutti_pipeline_schedule_t schedule = {.ranks = plan.shape.ranks,
                                          .stages = plan.shape.stages,
                                          .micro_batches = plan.shape.micro_batches,
                                          .shards = plan.shape.shards};
    const tutti_status_t status = fill(options, &plan, &schedule);
    if (status < 0) {
        tutti_pipeline_schedule_release(&schedule);
        return status;
    }
    *out = schedule;
    return TUTTI_OK;
}

void tutti_pipeline_schedule_release(tutti_pipeline_schedule_t *schedule)
{
    if (schedule == NULL) {
        return;
    }
    for (int rank = 0; schedule->rows != NULL && rank < schedule->ranks; rank++) {
        tutti_pipeline_row_release(&schedule->rows[rank]);
    }
    tt_free(schedule->rows);
    tt_free(schedule->rank_of_stage);
    *schedule = (tutti_pipeline_schedule_t){0};
}

tutti_status_t tutti_pipeline_stages(const tutti_pipeline_options_t *options, int *stages)
{
    TT_WANT("pipeline_stages", options);
    TT_WANT("pipeline_stages", stages);
    tt_pipeline_plan_t plan = {0};
    TT_TRY(tt_pipeline_shape(options, &plan));
    *stages = plan.shape.stages;
    return TUTTI_OK;
}

int tutti_pipeline_rank_of(const tutti_pipeline_options_t *options, int stage)
{
    tt_pipeline_plan_t plan = {0};
    if (options == NULL || tt_pipeline_shape(options, &plan) < 0 || stage < 0 ||
        stage >= plan.shape.stages) {
        return -1;
    }
    const tt_pipeline_emit_t emit = begin_row(options, &plan, 0);
    return tt_pipeline_rank(&emit, stage);
}
