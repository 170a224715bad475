/* Who has and who steps which parameter, and who has which buffer. Each is one slice, whole, of the
 * rank of the first part that has it, and an empty one of all others (slice.h), so that optimizers,
 * clipping and scaling make the same calls everywhere and add up what one process would.
 *
 *     parameter        0.weight   1.weight   2.weight
 *     rank 0           whole      empty      empty
 *     rank 1           empty      whole      whole
 *
 * What a rank has no part of lies on meta. Cost of a step: an all_reduce of a number for each
 * parameter, which says where there are gradients at all.
 */
#include <tutti/collectives.h>
#include <tutti/devices.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

/* ---- names and owners ------------------------------------------------------------------------ */

static tutti_status_t check_tensor(const char *name, const tutti_tensor_t *x)
{
    if (x->slice != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "pipeline: %s is dealt out by another pipeline or a DDP: release that first",
                       name);
    }
    return tt_ddp_has(x) ? TT_FAIL(TUTTI_ERR_STATE,
                                   "pipeline: %s is averaged by a DDP: make that behind the "
                                   "pipeline",
                                   name)
                         : TUTTI_OK;
}

static tutti_status_t add_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_pipeline_t *p = user;
    if (p->tensor_count == p->tensor_capacity) {
        const int capacity = p->tensor_capacity == 0 ? 16 : 2 * p->tensor_capacity;
        tt_pipeline_param_t *params =
            tt_realloc(p->params, (size_t)capacity * sizeof *params, "pipeline parameters");
        TT_TRY_ALLOC(params);
        p->params = params;
        p->tensor_capacity = capacity;
    }
    TT_TRY(check_tensor(name, x));
    char *copy = tt_strdup(name, "parameter's name");
    TT_TRY_ALLOC(copy);
    p->params[p->tensor_count++] =
        (tt_pipeline_param_t){.name = copy, .tensor = tutti_tensor_retain(x), .owner = -1};
    return TUTTI_OK;
}

typedef struct {
    tutti_pipeline_t *p;
    int part;
} owners_t;

static tutti_status_t note_owner(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    const owners_t *at = user;
    const int rank = tt_rank_of_stage(at->p, at->p->chain.parts[at->part].stage);
    for (int i = 0; i < at->p->tensor_count; i++) {
        tt_pipeline_param_t *param = &at->p->params[i];
        if (param->tensor != x) {
            continue;
        }
        if (i >= at->p->param_count && param->owner >= 0 && param->owner != rank) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "pipeline: the buffer %s is of parts on rank %d and on rank %d, which "
                           "would change it apart: cut so that one rank has all of them",
                           param->name, param->owner, rank);
        }
        param->owner = param->owner < 0 ? rank : param->owner;
        param->is_mine |= rank == at->p->rank;
    }
    return TUTTI_OK;
}

tutti_status_t tt_params_open(tutti_pipeline_t *p)
{
    TT_TRY(tutti_module_each_parameter(p->module, add_tensor, p));
    p->param_count = p->tensor_count;
    TT_TRY(tutti_module_each_buffer(p->module, add_tensor, p));
    for (int i = 0; i < p->chain.count; i++) {
        owners_t at = {p, i};
        TT_TRY(tutti_module_each_tensor(p->chain.parts[i].module, note_owner, &at));
    }
    return TUTTI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct {
    tutti_pipeline_t *p;
    const tutti_tensor_t *tensor;
    bool is_found;
} search_t;

static tutti_status_t compare(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    search_t *search = user;
    search->is_found |= search->tensor == x;
    return TUTTI_OK;
}

static tutti_status_t is_needed(tutti_pipeline_t *p, const tutti_tensor_t *x, bool *out)
{
    search_t search = {.p = p, .tensor = x};
    for (int i = 0; i < p->chain.count; i++) {
        const tt_part_t *part = &p->chain.parts[i];
        if (tt_rank_of_stage(p, part->stage) == p->rank) {
            TT_TRY(tutti_module_each_tensor(part->module, compare, &search));
        }
    }
    *out = search.is_found;
    return TUTTI_OK;
}

/* Names, shape and marks stay. */
static tutti_status_t drop_values(tutti_pipeline_t *p, tutti_tensor_t *x)
{
    tutti_tensor_t *empty;
    TT_TRY(tutti_tensor_set_grad(x, NULL));
    if (x->storage->device == p->meta) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_new(p->meta, x->dtype, x->shape, false, &empty));
    empty->storage->version = x->storage->version + 1;
    tt_tensor_swap(x, empty);
    tutti_tensor_release(empty);
    return TUTTI_OK;
}

static tutti_status_t place(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    tutti_pipeline_t *p = user;
    bool needed;
    TT_TRY(is_needed(p, x, &needed));
    return needed ? tutti_tensor_materialize(p->ctx, x, tutti_context_device(p->ctx))
                  : drop_values(p, x);
}

tutti_status_t tt_params_place(tutti_pipeline_t *p)
{
    return tutti_module_each_tensor(p->module, place, p);
}

/* ---- what optimizers ask --------------------------------------------------------------------- */

static tutti_pipeline_t *pipeline_of(tt_slicer_t *slicer)
{
    return (tutti_pipeline_t *)(void *)((char *)slicer - offsetof(tutti_pipeline_t, slicer));
}

/* Replicas of this rank's stage: those that deal its parameters out further, or step all of them
 * (DDP's stage 0). */
tutti_status_t tt_slices_agree_with_replicas(const tutti_pipeline_t *p, tutti_status_t status)
{
    tt_slicer_t *inner = p->slicer.inner;
    return inner != NULL    ? inner->agree(inner, status)
           : p->ddp != NULL ? tt_ddp_agree(p->ddp, status)
                            : status;
}

/* A call with replicas alone failed: other stages do not wait for this one. */
static tutti_status_t end_inner(tt_slicer_t *slicer, tutti_status_t status)
{
    return status < 0 ? tt_group_give_up(pipeline_of(slicer)->group, status) : TUTTI_OK;
}

/* A stage that steps alone (steps_alone) needs its replicas, and no other stage. */
static tutti_status_t agree(tt_slicer_t *slicer, tutti_status_t status)
{
    const tutti_pipeline_t *p = pipeline_of(slicer);
    if (p->steps_alone) {
        return end_inner(slicer, tt_slices_agree_with_replicas(p, status));
    }
    if (status >= 0 && p->is_undecided) {
        status = TT_FAIL(TUTTI_ERR_STATE, "pipeline: the last step may be undone yet: "
                                          "tutti_pipeline_validate() comes first");
    }
    return tt_group_agree(p->group, tt_slices_agree_with_replicas(p, status));
}

/* In a tensor of its own: a failed call may write into it later. */
static tutti_status_t sum_numbers(tutti_pipeline_t *p, double *numbers, size_t count)
{
    tutti_tensor_t *x = NULL;
    tutti_status_t status =
        tt_group_agree(p->group, tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE((int64_t)count), &x));
    if (status >= 0) {
        memcpy(tutti_tensor_data(x), numbers, count * sizeof *numbers);
        status = tutti_all_reduce(p->group, x, TUTTI_SUM, NULL);
        memcpy(numbers, tutti_tensor_data(x), count * sizeof *numbers);
    }
    tutti_tensor_release(x);
    return status < 0 ? tt_group_give_up(p->group, status) : TUTTI_OK;
}

static tutti_status_t sum(tt_slicer_t *slicer, double *numbers, size_t count)
{
    tutti_pipeline_t *p = pipeline_of(slicer);
    tt_slicer_t *inner = slicer->inner;
    TT_TRY(inner != NULL ? end_inner(slicer, inner->sum(inner, numbers, count)) : TUTTI_OK);
    if (p->answer != NULL) {
        return p->answer(p, numbers, count);
    }
    return p->steps_alone ? TUTTI_OK : sum_numbers(p, numbers, count);
}

/* No rank of another stage reads the parameters of one. */
static tutti_status_t begin(tt_slicer_t *slicer)
{
    tt_slicer_t *inner = slicer->inner;
    return inner != NULL ? end_inner(slicer, inner->begin(inner)) : TUTTI_OK;
}

static tutti_status_t stepped(tt_slicer_t *slicer, tutti_status_t status)
{
    tutti_pipeline_t *p = pipeline_of(slicer);
    tt_slicer_t *inner = slicer->inner;
    status =
        inner != NULL ? inner->stepped(inner, status) : tt_slices_agree_with_replicas(p, status);
    if (p->steps_alone) {
        return end_inner(slicer, status);
    }
    TT_TRY(tt_group_agree(p->group, status));
    if (p->tie_count == 0) {
        return TUTTI_OK;
    }
    status = tt_ties_share(p);
    return status < 0 ? tt_group_give_up(p->group, status) : tt_group_agree(p->group, TUTTI_OK);
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* All of x, or nothing of it, in a row: what optimizers see of a parameter. */
static tutti_status_t open_row(const tutti_pipeline_t *p, const tutti_tensor_t *whole,
                               const tutti_tensor_t *x, bool is_owner, tutti_tensor_t **out)
{
    if (is_owner) {
        TT_TRY(tt_tensor_over(whole->storage, whole->dtype, TUTTI_SHAPE(whole->numel), NULL,
                              whole->offset, out));
    } else {
        TT_TRY(tt_tensor_new(tt_memory_on(tutti_context_device(p->ctx)), x->dtype, TUTTI_SHAPE(0),
                             false, out));
    }
    tt_tensor_set_spread(*out, x->spread);
    const tutti_status_t status = tt_tensor_set_part(*out, x->shape, 0);
    if (status < 0) {
        tutti_tensor_release(*out);
        *out = NULL;
    }
    return status;
}

static tutti_status_t open_slice(tutti_pipeline_t *p, tt_pipeline_param_t *param)
{
    tutti_tensor_t *x = param->tensor;
    if (!tutti_tensor_is_contiguous(x)) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %s is not contiguous", param->name);
    }
    TT_TRY(open_row(p, x, x, param->owner == p->rank, &param->seen.values));
    TT_TRY(tt_slice_hang(x, &param->seen, &p->slicer));
    param->is_sliced = true;
    return TUTTI_OK;
}

tutti_status_t tt_slices_follow(tutti_pipeline_t *p, tt_pipeline_param_t *param)
{
    tutti_tensor_t *row;
    if (!param->is_sliced) {
        return TUTTI_OK;
    }
    TT_TRY(open_row(p, param->tensor, param->tensor, param->owner == p->rank, &row));
    tutti_tensor_release(param->seen.values);
    param->seen.values = row;
    return TUTTI_OK;
}

tutti_status_t tt_slices_open(tutti_pipeline_t *p)
{
    p->slicer = (tt_slicer_t){
        .agree = agree, .sum = sum, .begin = begin, .stepped = stepped, .deals_wholes = true};
    for (int i = 0; i < p->tensor_count && p->ranks > 1; i++) {
        TT_TRY(open_slice(p, &p->params[i]));
    }
    return TUTTI_OK;
}

void tt_slices_close(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->tensor_count; i++) {
        tt_pipeline_param_t *param = &p->params[i];
        tt_slice_take(param->tensor, &param->seen);
        tutti_tensor_release(param->seen.values);
        tutti_tensor_release(param->grad);
        tutti_tensor_release(param->tensor);
        tt_free(param->name);
    }
    tt_free(p->params);
    p->params = NULL;
    p->param_count = p->tensor_count = 0;
}

/* ---- in a step ------------------------------------------------------------------------------- */

/* Where DDP deals them out further, it shows them. */
static bool is_dealt_out(const tt_pipeline_param_t *param)
{
    return param->tensor->slice != NULL && param->tensor->slice != &param->seen;
}

bool tt_slices_has_grad(const tutti_pipeline_t *p, const tt_pipeline_param_t *param)
{
    const bool is_there = is_dealt_out(param) ? param->tensor->slice->grad != NULL
                                              : tutti_tensor_grad(param->tensor) != NULL;
    return param->owner == p->rank && is_there;
}

static void forget_grad(tt_pipeline_param_t *param)
{
    tt_tensor_slice_t *slice = param->tensor->slice;
    if (slice != NULL && slice->grad == param->grad) {
        slice->grad = NULL;
    }
    param->seen.grad = NULL;
    tutti_tensor_release(param->grad);
    param->grad = NULL;
}

void tt_slices_begin_step(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->param_count; i++) {
        forget_grad(&p->params[i]);
    }
}

tutti_status_t tt_slices_show(tutti_pipeline_t *p, tt_pipeline_param_t *param)
{
    forget_grad(param);
    if (!param->is_sliced || is_dealt_out(param)) {
        return TUTTI_OK;
    }
    tutti_tensor_t *grad = tutti_tensor_grad(param->tensor);
    TT_TRY(open_row(p, grad, param->tensor, param->owner == p->rank, &param->grad));
    param->seen.grad = param->grad;
    return TUTTI_OK;
}

tutti_status_t tt_slices_count(tutti_pipeline_t *p, tt_pipeline_param_t *param)
{
    if (tt_slices_has_grad(p, param)) {
        return tt_slices_show(p, param);
    }
    forget_grad(param);
    TT_TRY(open_row(p, NULL, param->tensor, false, &param->grad));
    param->tensor->slice->grad = param->grad;
    return TUTTI_OK;
}

double tt_slices_loss(const tutti_pipeline_t *p, int shard)
{
    double loss = 0;
    const int first = shard * p->cut_into;
    for (int i = 0; i < p->own_count; i++) {
        for (int b = 0; p->own[i].index == p->stages - 1 && b < p->cut_into; b++) {
            loss += p->own[i].cells[first + b].loss;
        }
    }
    return loss;
}

/* numbers: the losses, then whether a parameter has a gradient. */
static tutti_status_t tell_all(tutti_pipeline_t *p, double *numbers, int params)
{
    double *has_grad = numbers + p->batch_count;
    for (int shard = 0; shard < p->batch_count; shard++) {
        numbers[shard] = tt_slices_loss(p, shard);
    }
    for (int i = 0; i < params; i++) {
        has_grad[i] = tt_slices_has_grad(p, &p->params[i]);
    }
    TT_TRY(p->ranks > 1 ? sum_numbers(p, numbers, (size_t)(p->batch_count + params)) : TUTTI_OK);
    for (int i = 0; i < params; i++) {
        forget_grad(&p->params[i]);
        TT_TRY(has_grad[i] > 0 ? tt_slices_show(p, &p->params[i]) : TUTTI_OK);
    }
    return TUTTI_OK;
}

tutti_status_t tt_slices_end_step(tutti_pipeline_t *p, bool shows_grads, double *losses)
{
    const int params = shows_grads ? p->param_count : 0;
    const size_t count = (size_t)(p->batch_count + params);
    double *numbers = tt_alloc_array(count, sizeof *numbers, "pipeline's numbers");
    const tutti_status_t status = numbers == NULL ? TUTTI_ERR_NOMEM : tell_all(p, numbers, params);
    for (int shard = 0; status >= 0 && losses != NULL && shard < p->batch_count; shard++) {
        losses[shard] = numbers[shard];
    }
    tt_free(numbers);
    return status;
}
