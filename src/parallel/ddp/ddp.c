/* Construction and release of DDP. */
#include <stdio.h>
#include <tutti/ddp.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "parallel/ddp/ddp_impl.h"

/* ---- parameters ------------------------------------------------------------------------------ */

static tutti_status_t add_param(void *user, const char *name, tutti_tensor_t *tensor)
{
    tutti_ddp_t *ddp = user;
    if (tt_slice_is_elsewhere(tensor)) {
        ddp->has_others = true;
        return TUTTI_OK; /* a pipeline's rank of another stage averages it */
    }
    if (tt_ddp_is_ignored(ddp, tensor)) {
        return TUTTI_OK;
    }
    if (!tutti_tensor_is_contiguous(tensor)) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: parameter %s is not contiguous", name);
    }
    if (!tt_ddp_has(tensor)) {
        TT_TRY(tt_tensor_check_named(tensor, name));
    }
    TT_TRY(tt_ddp_check_meta(ddp, name, tensor));
    if (!tutti_tensor_requires_grad(tensor)) {
        const bool is_float = tutti_dtype_is_float(tensor->dtype);
        return is_float ? tt_tensor_list_add(&ddp->frozen, name, tensor) : TUTTI_OK;
    }
    if (tt_ddp_has(tensor)) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: parameter %s is averaged by another tutti_ddp_t: release that first",
                       name);
    }
    return tt_tensor_list_add(&ddp->list, name, tensor);
}

static tutti_status_t collect_params(tutti_ddp_t *ddp)
{
    const tt_tensor_list_t *list = &ddp->list;
    TT_TRY(tutti_module_each_parameter(ddp->module, add_param, ddp));
    if (list->count == 0 && !ddp->has_others) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no parameter of the module requires a gradient%s",
                       ddp->ignored.params.count > 0 ? " and is not ignored" : "");
    }
    ddp->params = tt_alloc_array(list->count, sizeof *ddp->params, "ddp parameters");
    TT_TRY_ALLOC(ddp->params);
    ddp->param_count = (int)list->count;
    for (int i = 0; i < ddp->param_count; i++) {
        ddp->params[i] = (tt_ddp_param_t){.ddp = ddp,
                                          .index = i,
                                          .name = list->items[i].name,
                                          .tensor = tt_listed(list, (size_t)i)};
    }
    return TUTTI_OK;
}

static tutti_status_t hook_params(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_ddp_param_t *param = &ddp->params[i];
        TT_TRY(tutti_tensor_on_accumulate(param->tensor, tt_ddp_on_accumulate, param));
        if (ddp->options.stage >= 2) {
            TT_TRY(tutti_tensor_on_grad(param->tensor, tt_ddp_on_grad, param));
        }
    }
    return TUTTI_OK;
}

static void release_params(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tutti_tensor_remove_hooks(ddp->params[i].tensor, &ddp->params[i]);
    }
    tt_free(ddp->params);
    tt_tensor_list_release(&ddp->list);
    tt_tensor_list_release(&ddp->frozen);
    tt_ddp_forget_ignored(ddp);
}

/* ---- making and releasing -------------------------------------------------------------------- */

/* What a rank does alone, before and after the buckets' size is known. */
static tutti_status_t take_model(tutti_ddp_t *ddp, const tutti_ddp_options_t *options)
{
    TT_TRY(tt_ddp_take_options(ddp, options));
    TT_TRY(tt_ddp_choose_ignored(ddp));
    TT_TRY(tt_ddp_choose_borders(ddp));
    TT_TRY(collect_params(ddp));
    TT_TRY(tt_ddp_choose_units(ddp));
    TT_TRY(tt_ddp_choose_rows(ddp));
    TT_TRY(tt_ddp_choose_near(ddp));
    TT_TRY(tt_ddp_check_store(ddp));
    return tt_ddp_attach_optimizer(ddp);
}

static tutti_status_t open_parts(tutti_ddp_t *ddp)
{
    TT_TRY(tt_ddp_open_meta(ddp));
    TT_TRY(tt_ddp_open_mixed(ddp));
    TT_TRY(tt_ddp_open_layout(ddp));
    TT_TRY(tt_ddp_open_slices(ddp));
    TT_TRY(tt_ddp_open_control(ddp));
    TT_TRY(tt_ddp_open_buffers(ddp));
    TT_TRY(tt_ddp_hook_borders(ddp));
    return hook_params(ddp);
}

/* A rank that fails alone tells the others, who would wait for it. */
static tutti_status_t build(tutti_ddp_t *ddp, const tutti_ddp_options_t *options)
{
    TT_TRY(tt_ddp_check_model(ddp, take_model(ddp, options)));
    TT_TRY(tt_ddp_choose_bucket_bytes(ddp));
    TT_TRY(tt_ddp_steps_buckets(ddp) ? tt_ddp_open_gathers(ddp) : TUTTI_OK);
    TT_TRY(tt_group_agree(ddp->group, open_parts(ddp)));
    TT_TRY(tt_ddp_broadcast_model(ddp));
    return tt_ddp_open_units(ddp);
}

/* A group of two or more moves its calls forward between the nodes of a backward; an optimizer has
 * something to do there anyway. */
static void set_idle(tutti_ddp_t *ddp)
{
    if (tutti_group_size(ddp->group) > 1 || ddp->optimizer.slots != NULL) {
        ddp->idle = (tutti_idle_t){.call = tt_ddp_progress, .move = tt_ddp_move, .user = ddp};
        tutti_context_add_idle(ddp->ctx, &ddp->idle);
    }
}

/* The others hear of it where they compare their modules. */
static tutti_status_t refuse(tutti_group_t *group, const char *argument)
{
    tutti_ddp_t none = {.group = group};
    return tt_ddp_check_model(&none, TT_FAIL(TUTTI_ERR_ARG, "ddp_create: %s is NULL", argument));
}

tutti_status_t tutti_ddp_create(tutti_context_t *ctx, tutti_module_t *module, tutti_group_t *group,
                                const tutti_ddp_options_t *options, tutti_ddp_t **out)
{
    TT_WANT("ddp_create", group);
    if (ctx == NULL || module == NULL || out == NULL) {
        return refuse(group, ctx == NULL ? "ctx" : module == NULL ? "module" : "out");
    }
    tutti_ddp_t *ddp = tt_alloc(sizeof *ddp, "ddp");
    if (ddp == NULL) {
        return tt_group_give_up(group, TUTTI_ERR_NOMEM);
    }
    ddp->ctx = ctx;
    ddp->module = tutti_module_retain(module);
    ddp->group = tutti_group_retain(group);
    ddp->sent_before = tutti_group_sent_bytes(group, NULL);
    ddp->uncanonical_sums = tutti_group_uncanonical_sums(group);
    const tutti_status_t status = build(ddp, options);
    if (status < 0) {
        tutti_ddp_release(ddp);
        return status;
    }
    set_idle(ddp);
    *out = ddp;
    return TUTTI_OK;
}

/* Often on the way out of a failure elsewhere, whose text stays the last one. */
static void leave_step(tutti_ddp_t *ddp)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    (void)tt_ddp_fail(ddp, TT_FAIL(TUTTI_ERR_ABORTED, "ddp: it was released within a step%s%s",
                                   text[0] != 0 ? ", behind: " : "", text));
    (void)tt_fail_again(TUTTI_OK, text);
}

void tutti_ddp_release(tutti_ddp_t *ddp)
{
    if (ddp == NULL) {
        return;
    }
    if (ddp->step.phase != TT_DDP_BETWEEN_STEPS) {
        leave_step(ddp);
    }
    if (ddp->driver != NULL) {
        ddp->driver->forget(ddp->driver);
    }
    tutti_context_remove_idle(ddp->ctx, &ddp->idle);
    tt_ddp_detach_optimizer(ddp);
    (void)tt_ddp_units_end_step(ddp);
    tt_ddp_close_mixed(ddp);
    tt_ddp_close_slices(ddp);
    tt_ddp_close_units(ddp);
    tt_ddp_close_layout(ddp);
    tt_ddp_close_control(ddp);
    tt_ddp_close_buffers(ddp);
    tt_ddp_close_borders(ddp);
    tt_ddp_close_meta(ddp);
    release_params(ddp);
    if (tutti_trace_release(ddp->options.trace) < 0) {
        tt_log(TT_LOG_ERROR, "%s", tutti_last_error());
    }
    tutti_module_release(ddp->module);
    tutti_group_release(ddp->group);
    tt_free(ddp);
}

/* ---- looking --------------------------------------------------------------------------------- */

tutti_module_t *tutti_ddp_module(const tutti_ddp_t *ddp)
{
    return ddp == NULL ? NULL : ddp->module;
}

int tutti_ddp_shards(const tutti_ddp_t *ddp)
{
    return ddp->options.shards;
}

int tutti_ddp_first_shard(int shards, int ranks, int rank)
{
    return tt_tree_first_leaf(shards, ranks, rank);
}

void tutti_ddp_local_shards(const tutti_ddp_t *ddp, int *first, int *count)
{
    *first = ddp->hosted.first;
    *count = tt_ddp_shard_count(ddp);
}

int tutti_ddp_shard_stride(const tutti_ddp_t *ddp)
{
    return ddp->hosted.stride;
}

int tutti_ddp_bucket_count(const tutti_ddp_t *ddp)
{
    return ddp->reducer->plan.bucket_count;
}

char *tutti_ddp_describe(const tutti_ddp_t *ddp, char *text, size_t bytes)
{
    const size_t used = tt_bucket_plan_format(&ddp->reducer->plan, text, bytes);
    if (used < bytes) {
        (void)tt_ddp_describe_units(ddp, text + used, bytes - used);
    }
    return text;
}
