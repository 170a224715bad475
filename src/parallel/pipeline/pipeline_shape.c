/* Options of a pipeline: defaults, limits, and micro-batches that a schedule does not take. */
#include "parallel/pipeline/pipeline_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/options.h>

#include "core/base/default.h"
#include "core/base/fail.h"
#include "parallel/pipeline/pipeline_form.h"

enum { STAGES_MAX = TT_PIPELINE_STAGES_MAX, COMPUTATIONS_MAX = TT_PIPELINE_COMPUTATIONS_MAX };

const tt_pipeline_ops_t *const tt_pipeline_schedules[] = {
#define X(symbol) &tt_pipeline_##symbol,
#include "parallel/pipeline/pipelines.def"
#undef X
    NULL,
};

enum { SCHEDULE_COUNT = sizeof tt_pipeline_schedules / sizeof tt_pipeline_schedules[0] - 1 };

static tutti_status_t find(const char *name, const tt_pipeline_ops_t **out)
{
    const char *known[SCHEDULE_COUNT + 1] = {0};
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        known[i] = tt_pipeline_schedules[i]->name;
        if (strcmp(known[i], name) == 0) {
            *out = tt_pipeline_schedules[i];
            return TUTTI_OK;
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "pipeline: there is no schedule \"%s\"; did you mean \"%s\"?",
                   name, tutti_nearest_name(name, known));
}

static tutti_status_t want_range(const char *name, int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "pipeline: %s is %lld; want %lld to %lld", name,
                         (long long)value, (long long)least, (long long)most);
}

/* ---- costs ---- */

tutti_pipeline_costs_t tt_pipeline_costs(const tutti_pipeline_costs_t *costs)
{
    tutti_pipeline_costs_t all = costs != NULL ? *costs : (tutti_pipeline_costs_t){0};
    if (!tt_is_given(all.forward) && !tt_is_given(all.input) && !tt_is_given(all.weight)) {
        all.forward = all.input = all.weight = 1;
    }
    all.backward = tt_or_default(all.backward, all.input + all.weight);
    all.activation = tt_or_default(all.activation, 1);
    all.pending = tt_or_default(all.pending, all.activation);
    return all;
}

tutti_status_t tt_pipeline_check_costs(const tutti_pipeline_costs_t *costs)
{
    const struct {
        const char *name;
        double value;
    } all[] = {{"forward", costs->forward}, {"input", costs->input},
               {"weight", costs->weight},   {"backward", costs->backward},
               {"message", costs->message}, {"step", costs->step},
               {"pending", costs->pending}, {"activation", costs->activation}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!isfinite(all[i].value) || all[i].value < 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "pipeline: the cost \"%s\" is %g; want 0 or more",
                           all[i].name, all[i].value);
        }
    }
    return TUTTI_OK;
}

/* ---- micro-batches ---- */

static bool fits(const tt_pipeline_plan_t *plan, int64_t micro_batches)
{
    tt_pipeline_shape_t shape = plan->shape;
    if (micro_batches < 1 || micro_batches * shape.shards > COMPUTATIONS_MAX / shape.per_rank) {
        return false;
    }
    shape.micro_batches = (int)micro_batches;
    shape.total = (int)(micro_batches * shape.shards);
    return plan->ops->fits == NULL || plan->ops->fits(&shape);
}

/* The nearest number in one direction that would do; 0: none. */
static int64_t find_fitting(const tt_pipeline_plan_t *plan, int step)
{
    const int most = COMPUTATIONS_MAX;
    for (int64_t m = (int64_t)plan->shape.micro_batches + step; m >= 1 && m <= most; m += step) {
        if (fits(plan, m)) {
            return m;
        }
    }
    return 0;
}

static tutti_status_t check_micro_batches(const tt_pipeline_plan_t *plan)
{
    const tt_pipeline_shape_t *shape = &plan->shape;
    if (fits(plan, shape->micro_batches)) {
        return TUTTI_OK;
    }
    const long long below = find_fitting(plan, -1), above = find_fitting(plan, 1);
    char would[64];
    if (below > 0 && above > 0) {
        (void)snprintf(would, sizeof would, "%lld or %lld", below, above);
    } else {
        (void)snprintf(would, sizeof would, "%lld", below > 0 ? below : above);
    }
    return TT_FAIL(TUTTI_ERR_ARG,
                   "pipeline: %d micro-batches%s do not satisfy %s on %d ranks, which wants %s; %s "
                   "would",
                   shape->micro_batches, shape->shards > 1 ? " of each shard" : "", plan->ops->name,
                   shape->ranks, plan->ops->want, would);
}

/* ---- options ---- */

static int or_one(int value)
{
    return value != 0 ? value : 1;
}

static tutti_status_t check_own(const tutti_pipeline_options_t *options)
{
    const tutti_pipeline_schedule_t *own = options->own;
    if (options->schedule != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: a schedule of one's own, and \"%s\": one of them is too many",
                       options->schedule);
    }
    const struct {
        const char *name;
        int given, has;
    } all[] = {{"ranks", options->ranks, own->ranks},
               {"micro_batches", options->micro_batches, own->micro_batches},
               {"shards", options->shards, own->shards}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].given != 0 && all[i].given != all[i].has) {
            return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %s is %d; the schedule of one's own has %d",
                           all[i].name, all[i].given, all[i].has);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t shape_own(const tutti_pipeline_options_t *options, tt_pipeline_plan_t *plan)
{
    const tutti_pipeline_schedule_t *own = options->own;
    TT_TRY(tt_pipeline_check_form(own));
    TT_TRY(check_own(options));
    *plan = (tt_pipeline_plan_t){.shape = {.ranks = own->ranks,
                                           .per_rank = own->stages,
                                           .stages = own->stages,
                                           .micro_batches = own->micro_batches,
                                           .shards = own->shards,
                                           .total = own->micro_batches * own->shards,
                                           .accumulate = 1}};
    return TUTTI_OK;
}

static tutti_status_t check_switches(const tutti_pipeline_options_t *options,
                                     const tt_pipeline_ops_t *ops)
{
    if (options->vertical_sync && ops != &tt_pipeline_pipedream) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %s has no vertical_sync; pipedream has",
                       ops->name);
    }
    if (options->accumulate != 0 && ops != &tt_pipeline_2bw) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %s has no accumulate; 2bw has", ops->name);
    }
    if (ops->is_asynchronous && options->sharded) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: %s steps while parameters are gathered: it cannot be sharded",
                       ops->name);
    }
    if (ops->is_asynchronous && or_one(options->shards) != 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: shards is %d; %s steps behind its micro-batches, not behind "
                       "shards: want 1",
                       options->shards, ops->name);
    }
    return TUTTI_OK;
}

static tutti_status_t check_ranges(const tt_pipeline_plan_t *plan)
{
    const tt_pipeline_ops_t *ops = plan->ops;
    const tt_pipeline_shape_t *shape = &plan->shape;
    TT_TRY(want_range("ranks", shape->ranks, 1, STAGES_MAX));
    const int most = ops->per_rank_max > 0 ? ops->per_rank_max : STAGES_MAX / shape->ranks;
    if (shape->per_rank < ops->per_rank_min || shape->per_rank > most) {
        return ops->per_rank_max > 0
                   ? TT_FAIL(TUTTI_ERR_ARG, "pipeline: stages_per_rank is %d; %s has %d",
                             shape->per_rank, ops->name, most)
                   : TT_FAIL(TUTTI_ERR_ARG, "pipeline: stages_per_rank is %d; %s wants %d to %d",
                             shape->per_rank, ops->name, ops->per_rank_min, most);
    }
    const int total_max = COMPUTATIONS_MAX / shape->per_rank;
    TT_TRY(want_range("shards", shape->shards, 1, total_max));
    TT_TRY(want_range("micro_batches", shape->micro_batches, 1, total_max / shape->shards));
    return want_range("accumulate", shape->accumulate, ops == &tt_pipeline_2bw ? shape->ranks : 1,
                      COMPUTATIONS_MAX);
}

static tutti_status_t shape_known(const tutti_pipeline_options_t *options, tt_pipeline_plan_t *plan)
{
    TT_TRY(find(options->schedule != NULL ? options->schedule : "1f1b", &plan->ops));
    TT_TRY(check_switches(options, plan->ops));
    TT_TRY(tt_pipeline_check_costs(&options->costs));
    const int per_rank =
        options->stages_per_rank != 0 ? options->stages_per_rank : plan->ops->per_rank_min;
    const bool is_2bw = plan->ops == &tt_pipeline_2bw;
    plan->shape = (tt_pipeline_shape_t){.ranks = or_one(options->ranks),
                                        .per_rank = per_rank,
                                        .micro_batches = or_one(options->micro_batches),
                                        .shards = or_one(options->shards),
                                        .vertical_sync = options->vertical_sync,
                                        .costs = tt_pipeline_costs(&options->costs)};
    plan->shape.accumulate =
        is_2bw && options->accumulate == 0 ? plan->shape.ranks : or_one(options->accumulate);
    TT_TRY(check_ranges(plan));
    plan->shape.stages = plan->shape.ranks * per_rank;
    plan->shape.total = plan->shape.micro_batches * plan->shape.shards;
    return check_micro_batches(plan);
}

tutti_status_t tt_pipeline_shape(const tutti_pipeline_options_t *options, tt_pipeline_plan_t *plan)
{
    return options->own != NULL ? shape_own(options, plan) : shape_known(options, plan);
}
