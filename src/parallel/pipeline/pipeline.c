/* Construction and release of a pipeline. Each rank prepares alone, compares what it is about to do
 * with the others, and only then changes the module.
 */
#include <tutti/collectives.h>
#include <tutti/devices.h>

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "comm/group/agree.h"
#include "comm/group/root_rank.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_norms.h"
#include "parallel/pipeline/pipeline_shape.h"
#include "parallel/pipeline/pipeline_versions.h"

/* ---- the plan -------------------------------------------------------------------------------- */

static tutti_status_t check_plan(tutti_pipeline_t *p)
{
    tutti_pipeline_options_t *plan = &p->options.plan;
    if (plan->ranks != 0 && plan->ranks != p->ranks) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: a plan of %d ranks, and the group has %d",
                       plan->ranks, p->ranks);
    }
    plan->ranks = p->ranks;
    plan->compute_only = false;
    return TUTTI_OK;
}

/* The caller's text may go; rows are planned later, too (pipeline_ahead.c). */
static tutti_status_t keep_name(tutti_pipeline_options_t *plan)
{
    tt_pipeline_plan_t known;
    TT_TRY(tt_pipeline_shape(plan, &known));
    plan->schedule = known.ops == NULL ? NULL : known.ops->name;
    return TUTTI_OK;
}

static tutti_status_t plan_row(tutti_pipeline_t *p)
{
    const tutti_pipeline_options_t *plan = &p->options.plan;
    TT_TRY(check_plan(p));
    TT_TRY(keep_name(&p->options.plan));
    TT_TRY(tutti_pipeline_stages(plan, &p->stages));
    p->micro_batches = plan->own != NULL          ? plan->own->micro_batches
                       : plan->micro_batches == 0 ? 1
                                                  : plan->micro_batches;
    p->shards = plan->own != NULL ? plan->own->shards : plan->shards == 0 ? 1 : plan->shards;
    p->slots = p->shards * p->micro_batches;
    p->cut_into = p->micro_batches;
    p->rank_of_stage = tt_alloc_array((size_t)p->stages, sizeof(int), "ranks of stages");
    TT_TRY_ALLOC(p->rank_of_stage);
    for (int s = 0; s < p->stages; s++) {
        p->rank_of_stage[s] = tutti_pipeline_rank_of(plan, s);
        p->own_count += p->rank_of_stage[s] == p->rank;
    }
    return tutti_pipeline_plan_row(plan, p->rank, &p->row);
}

/* Of a stage's parts with a tied parameter. */
static tutti_status_t check_reduced(const tutti_pipeline_t *p, const tt_tie_t *tie, int stage)
{
    for (int64_t i = 0; i < p->row.count; i++) {
        if (p->row.actions[i].kind == TUTTI_PIPELINE_REDUCE && p->row.actions[i].stage == stage) {
            return TUTTI_OK;
        }
    }
    return TT_FAIL(
        TUTTI_ERR_ARG,
        "pipeline: nobody reduces the tied weight %s: stage %d has a part of it, and the "
        "schedule's row of rank %d no %dREDUCE_GRAD",
        tie->name, stage, p->rank, stage);
}

static tutti_status_t check_ties(const tutti_pipeline_t *p)
{
    for (int t = 0; t < p->tie_count; t++) {
        const tt_tie_t *tie = &p->ties[t];
        for (int i = 0; i < tie->use_count; i++) {
            const int stage = p->chain.parts[tie->uses[i].part].stage;
            if (p->rank_of_stage[stage] == p->rank) {
                TT_TRY(check_reduced(p, tie, stage));
            }
        }
    }
    return TUTTI_OK;
}

/* A schedule of one's own may do anything. */
static tutti_status_t check_own(const tutti_pipeline_t *p)
{
    tutti_pipeline_report_t report;
    return p->options.plan.own == NULL ? TUTTI_OK
                                       : tutti_pipeline_check(p->options.plan.own, &report, NULL);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static tutti_status_t open_cells(tutti_pipeline_t *p, tt_stage_t *stage)
{
    stage->left = tt_alloc_array((size_t)p->shards, sizeof *stage->left, "pipeline shards");
    TT_TRY_ALLOC(stage->left);
    stage->cells = tt_alloc_array((size_t)p->slots, sizeof *stage->cells, "pipeline cells");
    TT_TRY_ALLOC(stage->cells);
    for (int b = 0; b < p->slots; b++) {
        stage->cells[b].segments =
            tt_alloc_array((size_t)stage->segment_count, sizeof(tt_segment_t), "pipeline segments");
        TT_TRY_ALLOC(stage->cells[b].segments);
    }
    return TUTTI_OK;
}

static tutti_status_t open_stage(tutti_pipeline_t *p, int index, tt_stage_t *stage)
{
    *stage = (tt_stage_t){.index = index, .first = p->chain.count};
    for (int i = 0; i < p->chain.count; i++) {
        if (p->chain.parts[i].stage == index) {
            stage->first = i < stage->first ? i : stage->first;
            stage->end = i + 1;
            stage->segment_count += p->chain.parts[i].begins_segment;
        }
    }
    return open_cells(p, stage);
}

static tutti_status_t open_stages(tutti_pipeline_t *p)
{
    int at = 0;
    p->own = tt_alloc_array((size_t)p->own_count, sizeof *p->own, "pipeline stages");
    TT_TRY_ALLOC(p->own);
    for (int s = 0; s < p->stages; s++) {
        if (p->rank_of_stage[s] == p->rank) {
            TT_TRY(open_stage(p, s, &p->own[at++]));
        }
    }
    return TUTTI_OK;
}

static void close_stages(tutti_pipeline_t *p)
{
    for (int i = 0; p->own != NULL && i < p->own_count; i++) {
        for (int b = 0; p->own[i].cells != NULL && b < p->slots; b++) {
            (void)tt_cell_close(p, &p->own[i], b);
            tt_free(p->own[i].cells[b].segments);
        }
        tt_free(p->own[i].cells);
        tt_free(p->own[i].left);
        tt_free(p->own[i].weights);
        tt_free(p->own[i].buffers);
        tt_stage_forget(&p->own[i]);
    }
    tt_free(p->own);
}

/* ---- do ranks agree? ------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    return XXH3_64bits_withSeed(bytes, count, hash);
}

static uint64_t mix_module(const tutti_pipeline_t *p, uint64_t hash)
{
    for (int i = 0; i < p->chain.count; i++) {
        hash = mix(hash, p->chain.parts[i].name, strlen(p->chain.parts[i].name) + 1);
        hash = mix(hash, &p->chain.parts[i].stage, sizeof(int));
    }
    for (int i = 0; i < p->tensor_count; i++) {
        const tutti_tensor_t *x = p->params[i].tensor;
        const int kind[] = {x->dtype, tutti_tensor_requires_grad(x), x->shape.rank,
                            x->spread == NULL ? -1 : x->spread->leaf_begin};
        hash = mix(hash, p->params[i].name, strlen(p->params[i].name) + 1);
        hash = mix(hash, kind, sizeof kind);
        hash = mix(hash, x->shape.dims, (size_t)x->shape.rank * sizeof *x->shape.dims);
    }
    return hash;
}

/* A schedule's name and numbers make its rows; of one's own they are what is given. */
static uint64_t mix_plan(const tutti_pipeline_options_t *plan, uint64_t hash)
{
    const int numbers[] = {plan->stages_per_rank, plan->accumulate, plan->vertical_sync,
                           plan->sharded, plan->own != NULL};
    const char *name = plan->schedule == NULL ? "" : plan->schedule;
    hash = mix(hash, numbers, sizeof numbers);
    hash = mix(hash, &plan->costs, sizeof plan->costs);
    for (int rank = 0; plan->own != NULL && rank < plan->own->ranks; rank++) {
        const tutti_pipeline_row_t *row = &plan->own->rows[rank];
        hash = mix(hash, &row->count, sizeof row->count);
        hash = mix(hash, row->actions, (size_t)row->count * sizeof *row->actions);
    }
    return mix(hash, name, strlen(name));
}

/* Of all that ranks must have in common. */
static uint64_t fingerprint(const tutti_pipeline_t *p)
{
    const int numbers[] = {p->stages,      p->micro_batches,
                           p->shards,      p->options.loss_is_sum,
                           p->param_count, p->options.deferred_statistics};
    uint64_t hash = mix(0, numbers, sizeof numbers);
    hash = mix(hash, p->rank_of_stage, (size_t)p->stages * sizeof(int));
    hash = mix_module(p, hash);
    return mix_plan(&p->options.plan, hash);
}

static tutti_status_t compare_ranks(tutti_pipeline_t *p)
{
    uint64_t first;
    const uint64_t mine = fingerprint(p);
    TT_TRY(tt_group_hear_first(p->group, &mine, sizeof mine, &first));
    return tt_group_agree(p->group,
                          mine == first
                              ? TUTTI_OK
                              : TT_FAIL(TUTTI_ERR_MISMATCH,
                                        "pipeline: ranks have different modules, parts of layers, "
                                        "cuts, schedules or numbers of micro-batches: this one and "
                                        "rank 0"));
}

/* ---- life ------------------------------------------------------------------------------------ */

static tutti_status_t prepare(tutti_pipeline_t *p)
{
    const tutti_pipeline_run_options_t *o = &p->options;
    if (o->loss == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: no loss function (options.loss)");
    }
    TT_TRY(tutti_device_open("meta", NULL, &p->meta));
    TT_TRY(check_own(p));
    TT_TRY(plan_row(p));
    TT_TRY(tt_chain_open(p->module, &p->chain));
    TT_TRY(tt_chain_cut(&p->chain, p->stages, o->cut, o->cut_count));
    TT_TRY(tt_params_open(p));
    TT_TRY(tt_ties_open(p));
    TT_TRY(check_ties(p));
    TT_TRY(open_stages(p));
    TT_TRY(tt_updates_open(p));
    if (p->versions != NULL && o->deferred_statistics) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "pipeline: deferred_statistics move once for a batch, and this schedule "
                       "steps inside it, where each update is a batch: leave them out, or take a "
                       "schedule that steps at the end (flush)");
    }
    return tt_mail_open(p);
}

static tutti_status_t change_module(tutti_pipeline_t *p)
{
    TT_TRY(tt_params_place(p));
    TT_TRY(tt_norms_open(p));
    TT_TRY(tt_shards_open(p));
    return tt_slices_open(p);
}

static tutti_status_t open_group(tutti_pipeline_t *p, tutti_group_t *group)
{
    p->ranks = group == NULL ? 1 : tutti_group_size(group);
    p->rank = group == NULL ? 0 : tutti_group_rank(group);
    p->world_rank = group == NULL ? 0 : tt_group_root_rank(group, p->rank);
    return p->ranks == 1 ? TUTTI_OK
                         : tutti_group_new(group, NULL, 0,
                                           &(tutti_group_options_t){.name = "pipeline"}, &p->group);
}

static tutti_status_t open_pipeline(tutti_pipeline_t *p, tutti_group_t *group)
{
    TT_TRY(open_group(p, group));
    TT_TRY(tt_group_agree(p->group, prepare(p)));
    TT_TRY(compare_ranks(p));
    return tt_group_agree(p->group, change_module(p));
}

tutti_status_t tutti_pipeline_create(tutti_context_t *ctx, tutti_module_t *module,
                                     tutti_group_t *group,
                                     const tutti_pipeline_run_options_t *options,
                                     tutti_pipeline_t **out)
{
    TT_WANT("pipeline_create", ctx);
    TT_WANT("pipeline_create", module);
    TT_WANT("pipeline_create", options);
    TT_WANT("pipeline_create", out);
    tutti_pipeline_t *p = tt_alloc(sizeof *p, "pipeline");
    const tutti_status_t made = tt_group_agree(group, p == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (made < 0) {
        tt_free(p);
        return made;
    }
    p->ctx = tutti_context_retain(ctx);
    p->module = tutti_module_retain(module);
    p->options = *options;
    const tutti_status_t status = open_pipeline(p, group);
    if (status < 0) {
        char text[TT_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        tutti_pipeline_release(p);
        return tt_fail_again(status, text);
    }
    p->options.cut = NULL; /* the caller's */
    *out = p;
    return TUTTI_OK;
}

void tutti_pipeline_release(tutti_pipeline_t *p)
{
    if (p == NULL) {
        return;
    }
    tt_pipeline_leave_ddp(p);
    close_stages(p);
    tt_validation_close(p);
    tt_versions_close(p);
    tt_norms_close(p);
    tt_mail_close(p);
    tt_ties_close(p);
    tt_shards_close(p);
    tt_slices_close(p);
    tt_chain_close(&p->chain);
    tutti_pipeline_row_release(&p->row);
    tt_free(p->rank_of_stage);
    tutti_group_release(p->group);
    tutti_device_release(p->meta);
    tutti_module_release(p->module);
    tutti_context_release(p->ctx);
    tt_free(p);
}

/* ---- looking --------------------------------------------------------------------------------- */

tutti_group_t *tutti_pipeline_group(const tutti_pipeline_t *p)
{
    return p->group;
}

tutti_pipeline_stats_t tutti_pipeline_stats(const tutti_pipeline_t *p)
{
    tutti_pipeline_stats_t stats = p->stats;
    stats.stages = p->stages;
    stats.parts = p->chain.count;
    stats.local_stages = p->own_count;
    stats.versions_max = stats.versions_max > 0 ? stats.versions_max : 1;
    return stats;
}

static int last_part(const tutti_pipeline_t *p, int stage)
{
    int last = p->chain.count - 1;
    while (p->chain.parts[last].stage != stage) {
        last--;
    }
    return last;
}

char *tutti_pipeline_describe_stages(const tutti_pipeline_t *p, char *text, size_t bytes)
{
    size_t used = 0;
    int first = 0;
    if (bytes > 0) {
        text[0] = 0;
    }
    for (int s = 0; s < p->stages && used < bytes; s++) {
        const int last = last_part(p, s);
        used += (size_t)snprintf(text + used, bytes - used, "stage %d  rank %d  %s to %s\n", s,
                                 p->rank_of_stage[s], p->chain.parts[first].name,
                                 p->chain.parts[last].name);
        first = last + 1;
    }
    return text;
}
