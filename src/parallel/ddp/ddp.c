/* Construction and release of DDP. */
#include <tutti/ddp.h>

#include <stdio.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "parallel/ddp/ddp_impl.h"

enum { MIB = 1 << 20 };

static tutti_status_t take_options(tutti_ddp_t *ddp, const tutti_ddp_options_t *options)
{
    ddp->options = options == NULL ? (tutti_ddp_options_t){0} : *options;
    (void)tutti_trace_retain(ddp->options.trace);
    if ((unsigned)ddp->options.uneven > TUTTI_DDP_ACTIVE) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no option uneven %d", (int)ddp->options.uneven);
    }
    if (ddp->options.shards < 0 || ddp->options.shards > TT_TREE_LEAVES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: %d shards: want 1 to %d, or 0 for one per rank",
                       ddp->options.shards, TT_TREE_LEAVES_MAX);
    }
    const int size = tutti_group_size(ddp->group), rank = tutti_group_rank(ddp->group);
    if (ddp->options.shards == 0) {
        ddp->options.shards = size;
    }
    if (ddp->options.bucket_bytes == 0) {
        ddp->options.bucket_bytes = (size_t)25 * MIB;
    }
    if (ddp->options.first_bucket_bytes == 0) {
        ddp->options.first_bucket_bytes = MIB;
    }
    if (ddp->options.first_bucket_bytes > ddp->options.bucket_bytes) {
        ddp->options.first_bucket_bytes = ddp->options.bucket_bytes;
    }
    const tt_leaves_t share = tt_tree_share(ddp->options.shards, size, rank);
    ddp->first_shard = share.begin;
    ddp->shard_count = share.end - share.begin;
    TT_TRY(tt_ddp_check_mixed(ddp));
    return tt_ddp_settle_exact(ddp);
}

/* ---- parameters
 * ---------------------------------------------------------------------------------- */

static bool has_ddp(const tutti_tensor_t *tensor)
{
    const tt_hook_link_t *link = tt_autograd_of(tensor)->hooks.first;
    for (; link != NULL; link = link->next) {
        if (((const tt_hook_t *)link)->on_accumulate == tt_ddp_on_accumulate && !link->is_removed) {
            return true;
        }
    }
    return false;
}

static tutti_status_t add_param(tutti_ddp_t *ddp, const char *name, tutti_tensor_t *tensor)
{
    if (!tutti_tensor_requires_grad(tensor)) {
        return TUTTI_OK;
    }
    if (!tutti_tensor_is_contiguous(tensor)) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: parameter %s is not contiguous", name);
    }
    if (has_ddp(tensor)) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: parameter %s is averaged by another tutti_ddp_t: release that first",
                       name);
    }
    ddp->params[ddp->param_count++] = (tt_ddp_param_t){.ddp = ddp, .name = name, .tensor = tensor};
    return TUTTI_OK;
}

static tutti_status_t collect_params(tutti_ddp_t *ddp)
{
    const tt_tensor_list_t *all = &ddp->all_params;
    TT_TRY(tutti_module_each_parameter(ddp->module, tt_tensor_list_add, &ddp->all_params));
    ddp->params = tt_alloc_array(all->count, sizeof *ddp->params, "ddp parameters");
    TT_TRY_ALLOC(ddp->params);
    for (size_t i = 0; i < all->count; i++) {
        TT_TRY(add_param(ddp, all->items[i].name, tt_listed(all, i)));
    }
    if (ddp->param_count == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no parameter of the module requires a gradient");
    }
    return TUTTI_OK;
}

/* ---- buckets
 * -------------------------------------------------------------------------------------- */

static tutti_status_t view_of(const tutti_tensor_t *flat, int64_t offset, tutti_shape_t shape,
                              tutti_tensor_t **out)
{
    return tt_tensor_over(flat->storage, flat->dtype, shape, NULL, flat->offset + offset, out);
}

/* The parameter's gradient becomes a view of its bucket. */
static tutti_status_t attach_param(tutti_ddp_t *ddp, int index)
{
    tt_ddp_param_t *param = &ddp->params[index];
    const tt_bucket_slot_t slot = ddp->plan.slots[index];
    const tt_bucket_t *bucket = &ddp->buckets[slot.bucket];
    const tutti_shape_t shape = param->tensor->shape;
    TT_TRY(view_of(bucket->grad, slot.offset, shape, &param->view));
    if (bucket->result == bucket->grad) {
        param->result = tutti_tensor_retain(param->view);
    } else {
        TT_TRY(view_of(bucket->result, slot.offset, shape, &param->result));
    }
    return tutti_tensor_set_grad(param->tensor, param->result);
}

tutti_status_t tt_ddp_open_buckets(tutti_ddp_t *ddp)
{
    const size_t count = (size_t)ddp->plan.bucket_count;
    ddp->buckets = tt_alloc_array(count, sizeof *ddp->buckets, "ddp buckets");
    TT_TRY_ALLOC(ddp->buckets);
    for (int b = 0; b < ddp->plan.bucket_count; b++) {
        TT_TRY(tt_bucket_open(ddp, b));
    }
    for (int i = 0; i < ddp->param_count; i++) {
        TT_TRY(attach_param(ddp, i));
    }
    return TUTTI_OK;
}

void tt_ddp_close_buckets(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_ddp_param_t *param = &ddp->params[i];
        if (param->view != NULL) {
            (void)tutti_tensor_set_grad(param->tensor, NULL);
        }
        tutti_tensor_release(param->view);
        tutti_tensor_release(param->result);
        param->view = param->result = NULL;
    }
    for (int b = 0; ddp->buckets != NULL && b < ddp->plan.bucket_count; b++) {
        tt_ddp_drop_hook_data(ddp, &ddp->buckets[b]);
        tt_bucket_close(&ddp->buckets[b]);
    }
    tt_free(ddp->buckets);
    ddp->buckets = NULL;
}

static tutti_status_t hook_params(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_ddp_param_t *param = &ddp->params[i];
        TT_TRY(tutti_tensor_on_accumulate(param->tensor, tt_ddp_on_accumulate, param));
    }
    return TUTTI_OK;
}

static tutti_status_t watch_order(tutti_ddp_t *ddp)
{
    if (!ddp->options.no_rebuild) {
        ddp->order = tt_alloc_array((size_t)ddp->param_count, sizeof *ddp->order, "ddp order");
        TT_TRY_ALLOC(ddp->order);
    }
    return TUTTI_OK;
}

static tutti_status_t build(tutti_ddp_t *ddp, const tutti_ddp_options_t *options)
{
    TT_TRY(take_options(ddp, options));
    TT_TRY(tt_ddp_check_model(ddp));
    TT_TRY(collect_params(ddp));
    TT_TRY(tt_ddp_take_optimizer(ddp));
    TT_TRY(watch_order(ddp));
    TT_TRY(tt_ddp_open_mixed(ddp));
    TT_TRY(tt_ddp_choose_bucket_bytes(ddp));
    TT_TRY(tt_ddp_plan_buckets(ddp, NULL, &ddp->plan));
    TT_TRY(tt_ddp_open_buckets(ddp));
    TT_TRY(tt_ddp_open_control(ddp));
    TT_TRY(tt_ddp_buffers_open(ddp));
    TT_TRY(tt_ddp_broadcast_model(ddp));
    return hook_params(ddp);
}

/* A group of two or more moves its calls forward between the nodes of a backward; an optimizer has
 * something to do there anyway. */
static void set_idle(tutti_ddp_t *ddp)
{
    if (tutti_group_size(ddp->group) > 1 || ddp->slots != NULL) {
        ddp->idle = (tt_context_idle_t){.call = tt_ddp_progress, .move = tt_ddp_move, .user = ddp};
        tt_context_add_idle(ddp->ctx, &ddp->idle);
    }
}

tutti_status_t tutti_ddp_create(tutti_context_t *ctx, tutti_module_t *module, tutti_group_t *group,
                                const tutti_ddp_options_t *options, tutti_ddp_t **out)
{
    tutti_ddp_t *ddp = tt_alloc(sizeof *ddp, "ddp");
    TT_TRY_ALLOC(ddp);
    ddp->ctx = ctx;
    ddp->module = tutti_module_retain(module);
    ddp->group = tutti_group_retain(group);
    ddp->uncanonical_sums = tutti_group_uncanonical_sums(group);
    const tutti_status_t status = build(ddp, options);
    if (status < 0) {
        tutti_ddp_release(ddp);
        return status;
    }
    for (int i = 0; i < ddp->options.shards; i++) {
        ddp->weights[i] = 1;
    }
    set_idle(ddp);
    *out = ddp;
    return TUTTI_OK;
}

static void release_params(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tutti_tensor_remove_hooks(ddp->params[i].tensor, &ddp->params[i]);
    }
    tt_free(ddp->params);
    tt_tensor_list_release(&ddp->all_params);
}

void tutti_ddp_release(tutti_ddp_t *ddp)
{
    if (ddp == NULL) {
        return;
    }
    if (ddp->is_in_step) {
        tutti_group_abort(ddp->group);
    }
    tt_context_remove_idle(ddp->ctx, &ddp->idle);
    tt_ddp_give_optimizer(ddp);
    tt_ddp_clear_hook(ddp);
    tt_ddp_close_mixed(ddp);
    tt_ddp_close_buckets(ddp);
    tt_ddp_close_control(ddp);
    tt_ddp_buffers_close(&ddp->module_buffers);
    release_params(ddp);
    tt_bucket_plan_fini(&ddp->plan);
    if (tutti_trace_release(ddp->options.trace) < 0) {
        tt_log(TT_LOG_ERROR, "%s", tutti_last_error());
    }
    tt_free(ddp->order);
    tt_free(ddp->unused);
    tutti_module_release(ddp->module);
    tutti_group_release(ddp->group);
    tt_free(ddp);
}

/* ---- looking
 * -------------------------------------------------------------------------------------- */

tutti_module_t *tutti_ddp_module(const tutti_ddp_t *ddp)
{
    return ddp->module;
}

int tutti_ddp_shards(const tutti_ddp_t *ddp)
{
    return ddp->options.shards;
}

void tutti_ddp_local_shards(const tutti_ddp_t *ddp, int *first, int *count)
{
    *first = ddp->first_shard;
    *count = ddp->shard_count;
}

const char *tutti_ddp_unused(const tutti_ddp_t *ddp)
{
    return ddp->unused == NULL ? "" : ddp->unused;
}

int tutti_ddp_bucket_count(const tutti_ddp_t *ddp)
{
    return ddp->plan.bucket_count;
}

char *tutti_ddp_describe(const tutti_ddp_t *ddp, char *text, size_t bytes)
{
    (void)tt_bucket_plan_format(&ddp->plan, text, bytes);
    return text;
}
