/* Backward: runs the graph of results from its end to its leaves.
 *
 * 1. discover (backward_run.c): from the roots, count for each node how many gradients it will
 * receive.
 * 2. execute: a heap of nodes that have received all, the latest made first, accumulators before
 *    all others (so that a bucket can leave as early as it can). The order is a function of the
 *    program alone.
 * 3. each node's saved tensors are let go as soon as it has run, unless retain_graph.
 *
 * Gradients that meet are added in the order of their arrival. Between two nodes the context's
 * idle functions run, which is where communication makes progress.
 *
 * A node is made after those whose results it takes, so every node runs before those made earlier.
 * To keep that order, no node runs while the gradient of a root that was made later is awaited:
 * when a gradient arrives changes no bit. It cannot wait in a circle either: processes that send
 * each other tensors in forward go back through their events in the opposite order.
 *
 * With create_graph the run is recorded: operations make their gradients by `grad`, and gradients
 * that meet are added by the operation add.
 *
 * Cost: O(nodes log nodes) beside the operations themselves. Source: PyTorch's engine, for the
 * semantics of hooks, retain_graph and inputs.
 */
#include "compute/autograd/backward_run.h"

#include <tutti/modes.h>

#include "compute/autograd/anomaly.h"
#include "compute/autograd/cast.h"
#include "compute/autograd/history.h"
#include "compute/autograd/profiled.h"
#include "core/base/alloc.h"

static void capture(tt_run_t *run, const tt_visit_t *visit)
{
    for (int i = 0; i < run->input_count; i++) {
        const tt_edge_t edge = run->inputs[i];
        if (edge.node == visit->node && visit->grads[edge.output] != NULL &&
            run->captured[i] == NULL) {
            run->captured[i] = tutti_tensor_retain(visit->grads[edge.output]);
        }
    }
}

/* A module may have been cast since the graph was made. */
static tutti_status_t cast_to_leaf(tutti_scope_t *s, tt_visit_t *visit)
{
    tutti_tensor_t *grad = visit->grads[0];
    if (grad == NULL || grad->dtype == visit->node->leaf->dtype) {
        return TUTTI_OK;
    }
    tutti_tensor_t *cast = tt_cast_grad(s, grad, visit->node->leaf->dtype);
    TT_TRY(cast->status);
    visit->grads[0] = tutti_tensor_retain(cast);
    tutti_tensor_release(grad);
    return TUTTI_OK;
}

static tutti_status_t accumulate(tt_run_t *run, tutti_scope_t *s, tt_visit_t *visit)
{
    tutti_tensor_t *leaf = visit->node->leaf;
    tt_autograd_t *a = tt_autograd_of(leaf);
    if (!a->requires_grad && !run->captures) {
        return TUTTI_OK; /* not any more */
    }
    TT_TRY(cast_to_leaf(s, visit));
    TT_TRY(tt_run_grad_hooks(s, &a->hooks, 0, &visit->grads[0]));
    if (run->captures) {
        capture(run, visit);
        return TUTTI_OK;
    }
    if (visit->grads[0] == NULL) {
        return TUTTI_OK;
    }
    if (run->options.sink != NULL) {
        TT_TRY(run->options.sink(s, leaf, visit->grads[0], run->options.sink_user));
    } else {
        TT_TRY(tt_leaf_accumulate(s, leaf, &visit->grads[0]));
        TT_TRY(tt_run_accumulate_hooks(s, &a->hooks, leaf));
    }
    return tutti_scope_status(s);
}

static tutti_status_t check_saved(const tt_node_t *node)
{
    for (int i = 0; i < node->saved.count; i++) {
        const tt_saved_t saved = node->saved.items[i];
        const tutti_tensor_t *x = saved.tensor;
        char text[192];
        if (x != NULL && x->storage->away != NULL) {
            return TT_FAIL(
                TUTTI_ERR_STATE, "%s needs %s for its gradient, which is not in memory: %s",
                node->op->name, tutti_tensor_describe(x, text, sizeof text), x->storage->away);
        }
        if (x != NULL && x->storage->version != saved.version) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "%s needs %s for its gradient, but it was written since: write after "
                           "backward, or clone it",
                           node->op->name, tutti_tensor_describe(x, text, sizeof text));
        }
    }
    return TUTTI_OK;
}

/* Hand a gradient to the node it belongs to, in the dtype of the tensor it is a gradient of. */
static tutti_status_t deliver(const tt_run_t *run, tutti_scope_t *s, const tt_node_t *node,
                              int input, tutti_tensor_t *grad)
{
    const tt_edge_t edge = node->edges[input];
    const tutti_spec_t want = node->inputs[input];
    TT_TRY(tt_tensor_check(grad));
    if (!tutti_shape_equal(grad->shape, want.shape)) {
        char got[160], shape[160];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s gave input %d of shape %s a gradient of shape %s",
                       node->op->name, input, tutti_shape_format(want.shape, shape, sizeof shape),
                       tutti_shape_format(grad->shape, got, sizeof got));
    }
    if (!tutti_dtype_is_float(grad->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE,
                       "%s gave input %d a gradient of dtype %s: want a floating one",
                       node->op->name, input, tutti_dtype_name(grad->dtype));
    }
    TT_TRY(tt_grad_check_place(node->op->name, grad, tt_node_place(edge.node, edge.output)));
    if (grad->dtype != want.dtype) {
        grad = tt_cast_grad(s, grad, want.dtype);
        TT_TRY(grad->status);
    }
    return tt_run_add_grad(run, s, &tt_visit_of(edge.node, run)->grads[edge.output], grad);
}

static void drop_grads(tt_visit_t *visit)
{
    for (int i = 0; i < visit->node->output_count; i++) {
        tutti_tensor_release(visit->grads[i]);
        visit->grads[i] = NULL;
    }
}

/* Whether the second turn will need what the node keeps. */
static bool is_deferred(const tt_run_t *run, const tt_node_t *node)
{
    for (int i = 0; i < node->input_count && run->defers; i++) {
        if (node->edges[i].node != NULL && !tt_edge_is_wanted(run, node->edges[i])) {
            return true;
        }
    }
    return false;
}

/* The gradients; where they are to have gradients themselves, `grad` makes them, and is recorded.
 */
static tutti_status_t make_grads(const tt_run_t *run, tt_node_t *node, tutti_op_backward_t *call,
                                 tutti_tensor_t **saved)
{
    if (!run->options.create_graph) {
        return node->op->backward(call);
    }
    if (node->op->grad == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: its gradient has no gradient: leave create_graph out, or make the "
                       "result of operations that have one (autograd.h lists those that do not)",
                       node->op->name);
    }
    TT_TRY(tt_history_restore(call->scope, node, saved));
    return node->op->grad(call);
}

/* What was saved is the run's while the operation reads it: a hook may start another backward that
 * comes here, too. Operations that make a gradient are not looked at one by one: what comes of them
 * is, where it is known whose gradient it is. */
static tutti_status_t call_backward(const tt_run_t *run, tt_node_t *node, tutti_op_backward_t *call,
                                    tutti_tensor_t **saved)
{
    const tt_run_t *around = node->saved.run;
    node->saved.run = run;
    const bool detects = tutti_context_set_detect_anomaly(call->scope->ctx, false);
    const bool is_profiled = tt_profile_begin(TT_PROFILE_BACKWARD, node->op->name, node->profiled);
    const tutti_status_t status = make_grads(run, node, call, saved);
    if (is_profiled) {
        tt_profile_end(tt_profiled_backward(call, node->saved.count));
    }
    (void)tutti_context_set_detect_anomaly(call->scope->ctx, detects);
    node->saved.run = around;
    TT_TRY(status < 0 ? status : tutti_scope_status(call->scope));
    return call->scope->ctx->detects_anomaly ? tt_anomaly_check_grads(call, node) : TUTTI_OK;
}

/* For good; but what another run has brought back or reads goes with that one. */
static void consume(const tt_run_t *run, tt_node_t *node)
{
    node->is_consumed = true;
    if (node->saved.run == NULL || node->saved.run == run) {
        tt_node_consume(node);
    }
}

/* A gradient of nothing but zeros, where its tensor lies. */
static tutti_tensor_t *zeros_of(tutti_scope_t *s, const tt_node_t *node, int output)
{
    const tt_place_t before = tt_context_enter(s->ctx, tt_node_place(node, output));
    tutti_tensor_t *zeros =
        tutti_zeros(s, node->outputs[output].dtype, node->outputs[output].shape);
    s->ctx->place = before;
    return zeros;
}

/* Where the operation asks for zeros. */
static tutti_status_t fill_grad_outputs(tutti_scope_t *s, const tt_visit_t *visit,
                                        tutti_tensor_t **filled)
{
    const tt_node_t *node = visit->node;
    for (int i = 0; i < node->output_count; i++) {
        filled[i] = visit->grads[i] != NULL ? visit->grads[i] : zeros_of(s, node, i);
    }
    return tutti_scope_status(s);
}

/* `room`: [inputs and saved tensors, and outputs where they are filled], zeroed, and `wanted`:
 * [input_count]. */
static tutti_status_t run_backward_in(const tt_run_t *run, tutti_scope_t *s, tt_visit_t *visit,
                                      tutti_tensor_t **room, bool *wanted)
{
    tt_node_t *node = visit->node;
    const bool stays = is_deferred(run, node);
    tutti_tensor_t **grads = room, **saved = room + node->input_count;
    for (int i = 0; i < node->input_count; i++) {
        wanted[i] = tt_edge_is_wanted(run, node->edges[i]);
    }
    TT_TRY(tt_node_check_kept(node)); /* another backward may have come by meanwhile */
    TT_TRY(tt_saved_restore(s, &node->saved));
    for (int i = 0; i < node->saved.count; i++) {
        saved[i] = node->saved.items[i].tensor;
    }
    tt_op_backward_t call = {.seen = {.op = node->op,
                                      .scope = s,
                                      .input_count = node->input_count,
                                      .output_count = node->output_count,
                                      .params = node->params,
                                      .inputs = node->inputs,
                                      .outputs = node->outputs,
                                      .wanted = wanted,
                                      .retain_graph = run->options.retain_graph || stays,
                                      .grad_outputs = visit->grads,
                                      .saved = saved,
                                      .grads = grads},
                             .items = node->saved.items,
                             .saved_count = node->saved.count,
                             .node = node};
    TT_TRY(check_saved(node));
    if (node->op->zero_grad_outputs) {
        call.seen.grad_outputs = saved + node->saved.count;
        TT_TRY(fill_grad_outputs(s, visit, saved + node->saved.count));
    }
    TT_TRY(call_backward(run, node, &call.seen, saved));
    for (int i = 0; i < node->input_count; i++) {
        if (wanted[i] && grads[i] != NULL) {
            TT_TRY(deliver(run, s, node, i, grads[i])); /* it may be what was saved */
        }
    }
    if (!stays) {
        tt_saved_forget(&node->saved, run);
    }
    if (!call.seen.retain_graph || node->is_consumed) {
        consume(run, node);
    }
    return TUTTI_OK;
}

enum { FEW = TT_OP_INPUTS_FEW + TT_OP_SAVED_FEW };

static tutti_status_t run_backward(const tt_run_t *run, tutti_scope_t *s, tt_visit_t *visit)
{
    const tt_node_t *node = visit->node;
    const int filled = node->op->zero_grad_outputs ? node->output_count : 0;
    const size_t count = (size_t)node->input_count + (size_t)node->saved.count + (size_t)filled;
    bool few_wanted[FEW];
    tutti_tensor_t *few[FEW] = {0};
    if (count <= FEW) {
        return run_backward_in(run, s, visit, few, few_wanted);
    }
    tutti_tensor_t **room = tt_alloc_array(count, sizeof *room + sizeof(bool), "backward");
    TT_TRY_ALLOC(room);
    const tutti_status_t status = run_backward_in(run, s, visit, room, (bool *)(room + count));
    tt_free(room);
    return status;
}

static tutti_status_t run_operation(tt_run_t *run, tutti_scope_t *s, tt_visit_t *visit)
{
    bool has_grad = false;
    for (int i = 0; i < visit->node->output_count; i++) {
        if (!visit->is_complete) {
            TT_TRY(tt_run_grad_hooks(s, &visit->node->hooks, i, &visit->grads[i]));
        }
        has_grad = has_grad || visit->grads[i] != NULL;
    }
    capture(run, visit);
    return has_grad && visit->is_to_run ? run_backward(run, s, visit) : TUTTI_OK;
}

/* Where the gradients that came in lie: the node's own are made there. */
static tt_device_t *device_of(const tt_run_t *run, const tt_visit_t *visit)
{
    for (int i = 0; i < visit->node->output_count; i++) {
        if (visit->grads[i] != NULL && visit->grads[i]->storage != NULL) {
            return visit->grads[i]->storage->device;
        }
    }
    return run->scope->ctx->place.accelerator;
}

static tutti_status_t execute_visit(tt_run_t *run, tt_visit_t *visit)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open_inside(run->scope, &s));
    tutti_status_t status = tt_run_add_late(run, visit);
    if (status >= 0) {
        const tt_place_t before = tt_context_enter(s->ctx, device_of(run, visit));
        status =
            visit->node->leaf != NULL ? accumulate(run, s, visit) : run_operation(run, s, visit);
        s->ctx->place = before;
    }
    visit->is_complete = true;
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
    /* Not before, for a gradient may be passed on as it is. */
    if (!is_deferred(run, visit->node)) {
        drop_grads(visit);
    }
    return tutti_scope_close(s);
}

static void release_inputs(tt_run_t *run, const tt_visit_t *visit)
{
    const tt_node_t *node = visit->node;
    for (int i = 0; i < node->input_count && visit->is_to_run; i++) {
        if (tt_edge_is_wanted(run, node->edges[i])) {
            tt_visit_t *input = tt_visit_of(node->edges[i].node, run);
            if (--input->pending == 0) {
                tt_ready_push(&run->ready, input);
            }
        }
    }
}

/* Accumulators hand nothing on, so that they need not wait. */
static bool may_run(const tt_run_t *run, const tt_visit_t *visit)
{
    return visit->node->leaf != NULL || visit->node->sequence > run->awaited;
}

static tutti_status_t execute(tt_run_t *run)
{
    while (run->ready.count > 0 && may_run(run, run->ready.visits[0])) {
        tt_visit_t *visit = tt_ready_pop(&run->ready);
        TT_TRY(execute_visit(run, visit));
        release_inputs(run, visit);
        tt_context_idle(run->scope->ctx);
    }
    return run->awaited_count > 0 ? TUTTI_PENDING : TUTTI_OK;
}

typedef struct {
    bool is_grad_enabled;
    tutti_dtype_t autocast;
} around_t;

static around_t enter(tt_run_t *run)
{
    tutti_context_t *ctx = run->scope->ctx;
    run->outer = ctx->backward;
    ctx->backward = run;
    return (around_t){tutti_context_set_grad_enabled(ctx, run->options.create_graph),
                      tutti_context_set_autocast(ctx, TUTTI_F32)};
}

static tutti_status_t leave(tt_run_t *run, around_t around, tutti_status_t status)
{
    tutti_context_t *ctx = run->scope->ctx;
    if (status < 0) {
        (void)tutti_scope_fail(run->scope, status);
    }
    (void)tutti_context_set_autocast(ctx, around.autocast);
    (void)tutti_context_set_grad_enabled(ctx, around.is_grad_enabled);
    ctx->backward = run->outer;
    return status;
}

tutti_status_t tt_run_advance(tt_run_t *run)
{
    const around_t around = enter(run);
    const bool is_profiled = tt_profile_begin(TT_PROFILE_REGION, "backward", 0);
    const tutti_status_t status = execute(run);
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
    }
    return leave(run, around, status);
}

tutti_status_t tt_run_finish(tt_run_t *run, tutti_status_t status)
{
    const around_t around = enter(run);
    tt_end_callback_t *kept = NULL, **end = &kept;
    while (run->end_callbacks != NULL) {
        tt_end_callback_t *callback = run->end_callbacks;
        run->end_callbacks = callback->next;
        const tutti_status_t result = callback->call(run->scope, status, callback->user);
        status = status < 0 ? status : result;
        if (callback->is_of_turns && run->defers && status >= 0) {
            callback->next = NULL;
            *end = callback;
            end = &callback->next;
        } else {
            tt_free(callback);
        }
    }
    run->end_callbacks = kept;
    return leave(run, around, status);
}
