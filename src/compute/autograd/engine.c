/* Backward: runs the graph of a result from its end to its leaves.
 *
 * 1. discover: from the roots, count for each node how many gradients it will receive.
 * 2. execute: a heap of nodes that have received all, the latest made first, accumulators before
 *    all others (so that a bucket can leave as early as it can). The order is a function of the
 *    program alone.
 * 3. each node's saved tensors are let go as soon as it has run, unless retain_graph.
 *
 * Gradients that meet are added in the order of their arrival. Between two nodes the context's
 * idle functions run, which is where communication makes progress.
 *
 * Cost: O(nodes log nodes) beside the operations themselves. Source: PyTorch's engine, for the
 * semantics of hooks, retain_graph and inputs.
 */
#include <tutti/autograd.h>

#include <stdlib.h>

#include "compute/autograd/cast.h"
#include "compute/autograd/node.h"
#include "compute/autograd/ready_heap.h"
#include "compute/autograd/segment.h"
#include "core/base/alloc.h"
#include "core/kernel/map.h"

typedef struct end_callback {
    struct end_callback *next;
    tutti_backward_end_t call;
    void *user;
} end_callback_t;

/* A backward under way. */
typedef struct tt_run {
    struct tt_run *outer; /* a hook may start another */
    tutti_scope_t *scope;
    bool retain_graph;
    tt_node_t **nodes; /* discovered */
    size_t node_count, node_capacity;
    tt_ready_heap_t ready;
    bool captures;                 /* tutti_grad: leaves keep what they have */
    tutti_tensor_t *const *inputs; /* of tutti_grad */
    tt_edge_t *input_edges;
    int input_count;
    tutti_tensor_t **captured; /* [input_count], retained */
    end_callback_t *end_callbacks;
} run_t;

/* ---- 1. discover ---------------------------------------------------------------------------- */

static tutti_status_t add_node(run_t *run, tt_node_t *node)
{
    if (node->run == run) {
        return TUTTI_OK;
    }
    if (node->run != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "a hook started a backward over the graph that is being "
                                        "run: give it a graph of its own");
    }
    if (run->node_count == run->node_capacity) {
        const size_t capacity = run->node_capacity == 0 ? 256 : 2 * run->node_capacity;
        tt_node_t **grown = tt_realloc(run->nodes, capacity * sizeof *grown, "backward");
        TT_TRY_ALLOC(grown);
        run->nodes = grown;
        run->node_capacity = capacity;
    }
    node->run = run;
    run->nodes[run->node_count++] = tt_node_retain(node);
    return TUTTI_OK;
}

static tutti_status_t discover(run_t *run, tt_node_t *root)
{
    TT_TRY(add_node(run, root));
    for (size_t i = 0; i < run->node_count; i++) {
        tt_node_t *node = run->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            tt_node_t *input = node->edges[k].node;
            if (input != NULL) {
                TT_TRY(add_node(run, input));
                input->pending++;
            }
        }
    }
    return TUTTI_OK;
}

static int compare_sequences(const void *a, const void *b)
{
    const tt_node_t *x = *(tt_node_t *const *)a, *y = *(tt_node_t *const *)b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static bool is_captured_edge(const run_t *run, const tt_node_t *node)
{
    for (int i = 0; i < run->input_count; i++) {
        if (run->input_edges[i].node == node) {
            return true;
        }
    }
    return false;
}

static void mark_all(const run_t *run)
{
    for (size_t i = 0; i < run->node_count; i++) {
        run->nodes[i]->is_wanted = true;
        run->nodes[i]->is_to_run = run->nodes[i]->leaf == NULL;
    }
}

static bool is_input_wanted(const tt_node_t *node)
{
    for (int k = 0; k < node->input_count; k++) {
        if (node->edges[k].node != NULL && node->edges[k].node->is_wanted) {
            return true;
        }
    }
    return false;
}

/* For tutti_grad: only nodes from which an input can be reached run; that of an input itself only
 * if it leads to another one. Inputs of a node are accumulators, or were made before it, so one
 * pass in the order of creation finds them. */
static tutti_status_t mark_captured(const run_t *run)
{
    tt_node_t **sorted = tt_alloc_array(run->node_count, sizeof(tt_node_t *), "backward");
    TT_TRY_ALLOC(sorted);
    for (size_t i = 0; i < run->node_count; i++) {
        sorted[i] = run->nodes[i];
        sorted[i]->is_wanted = is_captured_edge(run, sorted[i]);
    }
    qsort(sorted, run->node_count, sizeof *sorted, compare_sequences);
    for (size_t i = 0; i < run->node_count; i++) {
        sorted[i]->is_to_run = is_input_wanted(sorted[i]);
        sorted[i]->is_wanted = sorted[i]->is_wanted || sorted[i]->is_to_run;
    }
    tt_free(sorted);
    return TUTTI_OK;
}

static tutti_status_t mark_wanted(const run_t *run)
{
    if (run->captures) {
        TT_TRY(mark_captured(run));
    } else {
        mark_all(run);
    }
    for (size_t i = 0; i < run->node_count; i++) {
        const tt_node_t *node = run->nodes[i];
        if (node->is_to_run && node->is_consumed) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "backward through %s a second time: its saved tensors are gone; pass "
                           "retain_graph the first time",
                           node->op->name);
        }
    }
    return TUTTI_OK;
}

/* ---- 2. execute -------------------------------------------------------------------------------
 */

/* slot += grad */
static tutti_status_t add_grad(tutti_scope_t *s, tutti_tensor_t **slot, tutti_tensor_t *grad)
{
    if (*slot == NULL) {
        *slot = tutti_tensor_retain(grad);
        return TUTTI_OK;
    }
    tutti_tensor_t *old = *slot, *sum = old;
    const bool is_sole = tt_grad_is_sole(old);
    if (!is_sole) {
        TT_TRY(tt_tensor_new(s->ctx->device, old->dtype, old->shape, false, &sum));
    }
    const tt_strided_t out = tt_tensor_strided(sum), a = tt_tensor_strided(old),
                       b = tt_tensor_strided(grad);
    tt_map_binary(tt_scope_pool(s), TT_BINARY_ADD, (tt_map_params_t){0}, &out, &a, &b);
    if (!is_sole) {
        tutti_tensor_release(old);
        *slot = sum;
    }
    return TUTTI_OK;
}

static tutti_status_t capture(run_t *run, tt_node_t *node)
{
    for (int i = 0; i < run->input_count; i++) {
        const tt_edge_t edge = run->input_edges[i];
        if (edge.node == node && node->grads[edge.output] != NULL && run->captured[i] == NULL) {
            run->captured[i] = tutti_tensor_retain(node->grads[edge.output]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t accumulate(run_t *run, tutti_scope_t *s, tt_node_t *node)
{
    tt_autograd_t *a = tt_autograd_of(node->leaf);
    TT_TRY(tt_run_grad_hooks(s, &a->hooks, 0, &node->grads[0]));
    TT_TRY(capture(run, node));
    if (run->captures || node->grads[0] == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_leaf_accumulate(s, node->leaf, &node->grads[0]));
    tutti_tensor_release(node->grads[0]);
    node->grads[0] = NULL;
    tt_run_accumulate_hooks(s, &a->hooks, node->leaf);
    return tutti_scope_status(s);
}

static tutti_status_t check_saved(const tt_node_t *node)
{
    for (int i = 0; i < node->saved_count; i++) {
        const tutti_tensor_t *x = node->saved[i].tensor;
        if (x != NULL && x->storage->version != node->saved[i].version) {
            char text[192];
            return TT_FAIL(TUTTI_ERR_STATE,
                           "%s needs %s for its gradient, but it was written since: write after "
                           "backward, or clone it",
                           node->op->name, tutti_tensor_describe(x, text, sizeof text));
        }
    }
    return TUTTI_OK;
}

/* Hand a gradient to the node it belongs to, in the dtype of the tensor it is a gradient of. */
static tutti_status_t deliver(tutti_scope_t *s, const tt_node_t *node, int input,
                              tutti_tensor_t *grad)
{
    const tt_edge_t edge = node->edges[input];
    const tt_spec_t want = node->inputs[input];
    TT_TRY(grad->status);
    if (!tutti_shape_equal(grad->shape, want.shape)) {
        char got[160], shape[160];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s gave input %d of shape %s a gradient of shape %s",
                       node->op->name, input, tutti_shape_format(want.shape, shape, sizeof shape),
                       tutti_shape_format(grad->shape, got, sizeof got));
    }
    if (grad->dtype != want.dtype) {
        grad = tt_cast(s, grad, want.dtype);
        TT_TRY(grad->status);
    }
    return add_grad(s, &edge.node->grads[edge.output], grad);
}

/* grads, wanted: [input_count], zeroed. */
static tutti_status_t run_backward_in(const run_t *run, tutti_scope_t *s, tt_node_t *node,
                                      tutti_tensor_t **grads, bool *wanted)
{
    tutti_tensor_t *saved[TT_OP_SAVED_MAX];
    for (int i = 0; i < node->input_count; i++) {
        wanted[i] = node->edges[i].node != NULL && node->edges[i].node->is_wanted;
    }
    TT_TRY(tt_segment_restore(s, node));
    for (int i = 0; i < node->saved_count; i++) {
        saved[i] = node->saved[i].tensor;
    }
    tt_backward_call_t call = {.op = node->op,
                               .scope = s,
                               .input_count = node->input_count,
                               .output_count = node->output_count,
                               .params = node->params,
                               .inputs = node->inputs,
                               .outputs = node->outputs,
                               .wanted = wanted,
                               .retain_graph = run->retain_graph,
                               .grad_outputs = node->grads,
                               .saved = saved,
                               .grads = grads};
    TT_TRY(check_saved(node));
    TT_TRY(node->op->backward(&call));
    TT_TRY(tutti_scope_status(s));
    tt_segment_forget(node);
    if (!run->retain_graph) {
        tt_node_consume(node);
    }
    for (int i = 0; i < node->input_count; i++) {
        if (wanted[i] && grads[i] != NULL) {
            TT_TRY(deliver(s, node, i, grads[i]));
        }
    }
    /* Last, for a gradient may be passed on as it is. */
    for (int i = 0; i < node->output_count; i++) {
        tutti_tensor_release(node->grads[i]);
        node->grads[i] = NULL;
    }
    return TUTTI_OK;
}

static tutti_status_t run_backward(const run_t *run, tutti_scope_t *s, tt_node_t *node)
{
    const size_t count = (size_t)node->input_count;
    bool few_wanted[TT_OP_INPUTS_FEW] = {0};
    tutti_tensor_t *few[TT_OP_INPUTS_FEW] = {0};
    if (count <= TT_OP_INPUTS_FEW) {
        return run_backward_in(run, s, node, few, few_wanted);
    }
    tutti_tensor_t **grads = tt_alloc_array(count, sizeof *grads + sizeof(bool), "backward");
    TT_TRY_ALLOC(grads);
    const tutti_status_t status = run_backward_in(run, s, node, grads, (bool *)(grads + count));
    tt_free(grads);
    return status;
}

static tutti_status_t run_operation(run_t *run, tutti_scope_t *s, tt_node_t *node)
{
    bool has_grad = false;
    for (int i = 0; i < node->output_count; i++) {
        TT_TRY(tt_run_grad_hooks(s, &node->hooks, i, &node->grads[i]));
        has_grad = has_grad || node->grads[i] != NULL;
    }
    TT_TRY(capture(run, node));
    return has_grad && node->is_to_run ? run_backward(run, s, node) : TUTTI_OK;
}

static tutti_status_t execute_node(run_t *run, tt_node_t *node)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open_inside(run->scope, &s));
    tutti_status_t status =
        node->leaf != NULL ? accumulate(run, s, node) : run_operation(run, s, node);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
    return tutti_scope_close(s);
}

static void release_inputs(run_t *run, tt_node_t *node)
{
    for (int i = 0; i < node->input_count; i++) {
        tt_node_t *input = node->edges[i].node;
        if (input != NULL && --input->pending == 0 && input->is_wanted) {
            tt_ready_push(&run->ready, input);
        }
    }
}

static tutti_status_t execute(run_t *run, tt_node_t *root)
{
    tutti_context_t *ctx = run->scope->ctx;
    run->ready.nodes = tt_alloc_array(run->node_count, sizeof(tt_node_t *), "backward");
    TT_TRY_ALLOC(run->ready.nodes);
    tt_ready_push(&run->ready, root);
    while (run->ready.count > 0) {
        tt_node_t *node = tt_ready_pop(&run->ready);
        TT_TRY(execute_node(run, node));
        release_inputs(run, node);
        tt_context_idle(ctx);
    }
    return TUTTI_OK;
}

tt_node_t *const *tt_backward_nodes(const void *run, size_t *count, const void **outer)
{
    *count = ((const run_t *)run)->node_count;
    *outer = ((const run_t *)run)->outer;
    return ((const run_t *)run)->nodes;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static tutti_status_t seed_root(run_t *run, tutti_tensor_t *y, tutti_tensor_t *seed, tt_edge_t root)
{
    char text[192], other[192];
    if (seed != NULL && !tutti_shape_equal(seed->shape, y->shape)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "backward: the seed %s does not have the shape of %s",
                       tutti_tensor_describe(seed, other, sizeof other),
                       tutti_tensor_describe(y, text, sizeof text));
    }
    if (seed == NULL && y->numel != 1) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "backward wants a scalar, not %s: sum it, or pass a seed of its shape",
                       tutti_tensor_describe(y, text, sizeof text));
    }
    if (seed == NULL) {
        seed = tutti_ones(run->scope, y->dtype, y->shape);
    } else if (seed->dtype != y->dtype) {
        seed = tt_cast(run->scope, seed, y->dtype);
    }
    TT_TRY(seed->status);
    root.node->grads[root.output] = tutti_tensor_retain(seed);
    return TUTTI_OK;
}

static tutti_status_t run_end_callbacks(run_t *run, tutti_status_t status)
{
    while (run->end_callbacks != NULL) {
        end_callback_t *callback = run->end_callbacks;
        run->end_callbacks = callback->next;
        const tutti_status_t result = callback->call(run->scope, status, callback->user);
        status = status < 0 ? status : result;
        tt_free(callback);
    }
    return status;
}

static void fini_run(run_t *run)
{
    for (size_t i = 0; i < run->node_count; i++) {
        tt_node_t *node = run->nodes[i];
        tt_segment_forget(node);
        node->run = NULL;
        node->pending = 0;
        node->is_wanted = node->is_to_run = false;
        for (int k = 0; k < node->output_count; k++) {
            tutti_tensor_release(node->grads[k]);
            node->grads[k] = NULL;
        }
    }
    for (size_t i = 0; i < run->node_count; i++) {
        tt_node_release(run->nodes[i]);
    }
    tt_free(run->nodes);
    tt_free(run->ready.nodes);
}

static tutti_status_t perform(run_t *run, tutti_tensor_t *y, tutti_tensor_t *seed)
{
    tt_edge_t root;
    TT_TRY(y->status);
    if (run->scope->ctx->segment != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "backward inside a forward that is to be recomputed: "
                                        "what it saved is not kept; call it outside");
    }
    TT_TRY(tt_edge_of(y, &root));
    if (root.node == NULL) {
        char text[192];
        return TT_FAIL(TUTTI_ERR_STATE,
                       "backward: %s needs no gradient: no tensor that it depends on does, or "
                       "recording was off",
                       tutti_tensor_describe(y, text, sizeof text));
    }
    tutti_status_t status = discover(run, root.node);
    if (status >= 0) {
        status = mark_wanted(run);
    }
    if (status >= 0) {
        status = seed_root(run, y, seed, root);
    }
    if (status >= 0 && root.node->is_wanted) {
        status = execute(run, root.node);
    }
    tt_node_release(root.node);
    return status;
}

static tutti_status_t run_graph(run_t *run, tutti_tensor_t *y,
                                const tutti_backward_options_t *options)
{
    tutti_context_t *ctx = run->scope->ctx;
    tutti_tensor_t *seed = options == NULL ? NULL : options->seed;
    run->retain_graph = options != NULL && options->retain_graph;
    run->outer = ctx->backward;
    ctx->backward = run;
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, false);
    const tutti_dtype_t autocast = tutti_context_set_autocast(ctx, TUTTI_F32);
    tutti_status_t status = perform(run, y, seed);
    if (status < 0) {
        (void)tutti_scope_fail(run->scope, status);
    }
    status = run_end_callbacks(run, status);
    if (status < 0) {
        (void)tutti_scope_fail(run->scope, status);
    }
    (void)tutti_context_set_autocast(ctx, autocast);
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
    ctx->backward = run->outer;
    fini_run(run);
    return status;
}

tutti_status_t tutti_backward_with(tutti_scope_t *s, tutti_tensor_t *loss,
                                   const tutti_backward_options_t *options)
{
    TT_TRY(tutti_scope_status(s));
    run_t run = {.scope = s};
    return run_graph(&run, loss, options);
}

tutti_status_t tutti_backward(tutti_scope_t *s, tutti_tensor_t *loss)
{
    return tutti_backward_with(s, loss, NULL);
}

static tutti_status_t find_input_edges(run_t *run)
{
    for (int i = 0; i < run->input_count; i++) {
        TT_TRY(run->inputs[i]->status);
        TT_TRY(tt_edge_of(run->inputs[i], &run->input_edges[i]));
        if (run->input_edges[i].node == NULL) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "grad: input %d needs no gradient: mark it with "
                           "tutti_tensor_set_requires_grad",
                           i);
        }
    }
    return TUTTI_OK;
}

/* The caller's alone, who may write it. */
static tutti_status_t give_captured(tutti_scope_t *s, tutti_tensor_t **captured,
                                    tutti_tensor_t **out)
{
    const tutti_status_t status = tt_grad_own(s->ctx, captured);
    if (status < 0) {
        tutti_tensor_release(*captured);
        *captured = NULL;
    }
    *out = tt_scope_adopt(s, status, *captured);
    return (*out)->status;
}

tutti_status_t tutti_grad(tutti_scope_t *s, tutti_tensor_t *y,
                          const tutti_backward_options_t *options, tutti_tensor_t *const *inputs,
                          int count, tutti_tensor_t **grads)
{
    TT_TRY(tutti_scope_status(s));
    if (count < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "grad: %d inputs", count);
    }
    run_t run = {.scope = s, .captures = true, .inputs = inputs, .input_count = count};
    run.input_edges = tt_alloc_array((size_t)count, sizeof *run.input_edges, "backward");
    run.captured = tt_alloc_array((size_t)count, sizeof(tutti_tensor_t *), "backward");
    tutti_status_t status = TUTTI_ERR_NOMEM;
    if (run.input_edges != NULL && run.captured != NULL) {
        status = find_input_edges(&run);
    }
    if (status >= 0) {
        status = run_graph(&run, y, options);
    }
    for (int i = 0; i < count && run.captured != NULL && run.input_edges != NULL; i++) {
        tt_node_release(run.input_edges[i].node);
        if (run.captured[i] != NULL && status >= 0) {
            status = give_captured(s, &run.captured[i], &grads[i]);
        } else {
            tutti_tensor_release(run.captured[i]);
            grads[i] = NULL;
        }
    }
    tt_free(run.input_edges);
    tt_free(run.captured);
    return status;
}

tutti_status_t tutti_backward_on_end(tutti_scope_t *s, tutti_backward_end_t callback, void *user)
{
    run_t *run = s->ctx->backward;
    if (run == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "no backward is under way: call it from a hook");
    }
    end_callback_t *added = tt_alloc(sizeof *added, "backward callback");
    TT_TRY_ALLOC(added);
    *added = (end_callback_t){.call = callback, .user = user};
    end_callback_t **end = &run->end_callbacks;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = added;
    return TUTTI_OK;
}

tutti_tensor_t *tutti_detach(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *alias = NULL;
    tutti_status_t status = x->status;
    if (status >= 0) {
        status = tt_tensor_alias(x, &alias);
    }
    return tt_scope_adopt(s, status, alias);
}
