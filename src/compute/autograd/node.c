/* Graph nodes: made when an operation is recorded, gone with the last result that needs them. */
#include "compute/autograd/node.h"

#include <string.h>

#include "compute/autograd/anomaly.h"
#include "compute/autograd/profiled.h"
#include "core/base/alloc.h"

/* ---- what is attached to a tensor ---------------------------------------------------------- */

static void release_autograd(tt_meta_t *meta)
{
    tt_autograd_t *a = (tt_autograd_t *)meta;
    tutti_tensor_release(a->grad);
    tt_node_release(a->node);
    tt_hooks_free(&a->hooks);
    tt_free(a);
}

tt_autograd_t *tt_autograd_of(const tutti_tensor_t *x)
{
    return (tt_autograd_t *)x->meta;
}

tutti_status_t tt_autograd_ensure(tutti_tensor_t *x, tt_autograd_t **out)
{
    if (x->meta == NULL) {
        tt_autograd_t *a = tt_alloc(sizeof *a, "autograd");
        TT_TRY_ALLOC(a);
        a->base.release = release_autograd;
        x->meta = &a->base;
    }
    *out = tt_autograd_of(x);
    return TUTTI_OK;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

tt_node_t *tt_node_retain(tt_node_t *node)
{
    if (node != NULL) {
        tt_ref_retain(&node->ref);
    }
    return node;
}

void tt_node_release_params(tt_node_t *node)
{
    if (node->owns_params) {
        node->op->release_params(node->params);
        node->owns_params = false;
    }
}

void tt_node_consume(tt_node_t *node)
{
    tt_node_release_params(node);
    tt_saved_drop(&node->saved);
    node->is_consumed = true;
}

tutti_status_t tt_node_check_kept(const tt_node_t *node)
{
    return node->is_consumed
               ? TT_FAIL(TUTTI_ERR_STATE,
                         "backward through %s a second time: its saved tensors are gone; pass "
                         "retain_graph the first time",
                         node->op->name)
               : TUTTI_OK;
}

/* Frees one node; its inputs' nodes, where this was the last reference, are put on the list. */
static void free_node(tt_node_t *node, tt_node_t **list)
{
    tt_node_consume(node);
    for (int i = 0; i < node->output_count; i++) {
        tutti_device_release(node->places[i]);
    }
    for (int i = 0; i < node->input_count; i++) {
        tt_node_t *input = node->edges[i].node;
        if (input != NULL && tt_ref_release(&input->ref)) {
            input->freed = *list;
            *list = input;
        }
    }
    if (node->leaf != NULL) {
        tt_autograd_of(node->leaf)->accumulator = NULL;
        tutti_tensor_release(node->leaf);
    }
    tt_hooks_free(&node->hooks);
    tt_free(node->module);
    tt_free(node);
}

/* A loop instead of recursion: a graph may be a million nodes deep. */
void tt_node_release(tt_node_t *node)
{
    if (node == NULL || !tt_ref_release(&node->ref)) {
        return;
    }
    node->freed = NULL;
    for (tt_node_t *list = node; list != NULL;) {
        tt_node_t *last = list;
        list = last->freed;
        free_node(last, &list);
    }
}

bool tt_is_leaf(const tutti_tensor_t *x)
{
    const tt_autograd_t *a = tt_autograd_of(x);
    return a != NULL && a->requires_grad && (a->node == NULL || a->node->leaf != NULL);
}

const char *tt_node_name(const tt_node_t *node)
{
    return node->leaf != NULL ? "a leaf" : node->op->name;
}

/* A node with room for these; counts of inputs and outputs grow as they are filled in. */
typedef struct {
    int inputs, outputs, saved;
    size_t params_bytes;
} sizes_t;

static tt_node_t *new_node(sizes_t sizes, const char *what)
{
    const size_t params = (sizes.params_bytes + sizeof(void *) - 1) / sizeof(void *);
    const size_t specs = (size_t)sizes.inputs + (size_t)sizes.outputs;
    tt_node_t *node =
        tt_alloc(sizeof *node + params * sizeof(void *) + (size_t)sizes.inputs * sizeof(tt_edge_t) +
                     (size_t)sizes.outputs * sizeof(tt_device_t *) + specs * sizeof(tutti_spec_t) +
                     (size_t)sizes.saved * sizeof(tt_saved_t),
                 what);
    if (node != NULL) {
        tt_ref_init(&node->ref);
        node->edges = (tt_edge_t *)((void **)node->room + params);
        node->places = (tt_device_t **)(node->edges + sizes.inputs);
        node->inputs = (tutti_spec_t *)(node->places + sizes.outputs);
        node->outputs = node->inputs + sizes.inputs;
        node->saved.items = (tt_saved_t *)(node->outputs + sizes.outputs);
        node->params = params > 0 ? node->room : NULL;
    }
    return node;
}

static tutti_status_t make_accumulator(tutti_tensor_t *leaf, tt_autograd_t *a, tt_node_t **out)
{
    tt_node_t *node = new_node((sizes_t){.outputs = 1}, "gradient accumulator");
    TT_TRY_ALLOC(node);
    node->leaf = tutti_tensor_retain(leaf);
    node->sequence = UINT64_MAX;
    node->output_count = 1;
    node->outputs[0] = (tutti_spec_t){leaf->dtype, leaf->shape};
    a->accumulator = node;
    *out = node;
    return TUTTI_OK;
}

tutti_status_t tt_edge_of(tutti_tensor_t *x, tt_edge_t *out)
{
    tt_autograd_t *a = x == NULL ? NULL : tt_autograd_of(x);
    *out = (tt_edge_t){0};
    if (a == NULL || !(a->requires_grad || a->node != NULL)) {
        return TUTTI_OK;
    }
    if (a->node != NULL) {
        *out = (tt_edge_t){tt_node_retain(a->node), a->output};
        return TUTTI_OK;
    }
    if (a->accumulator != NULL) {
        out->node = tt_node_retain(a->accumulator);
        return TUTTI_OK;
    }
    return make_accumulator(x, a, &out->node);
}

static tutti_status_t fill_inputs(tt_node_t *node, const tutti_op_call_t *call)
{
    for (node->input_count = 0; node->input_count < call->input_count; node->input_count++) {
        tutti_tensor_t *x = call->inputs[node->input_count];
        TT_TRY(tt_edge_of(x, &node->edges[node->input_count]));
        if (x != NULL) {
            node->inputs[node->input_count] = (tutti_spec_t){x->dtype, x->shape};
        }
    }
    return TUTTI_OK;
}

void tt_node_take_params(tt_node_t *node, const tutti_op_call_t *call)
{
    if (node->params == NULL || call->params == NULL) {
        return;
    }
    if (call->op->retain_params != NULL) {
        call->op->retain_params(call->params);
    }
    tt_node_release_params(node);
    memcpy(node->params, call->params, call->op->params_bytes);
    node->owns_params = call->op->retain_params != NULL;
}

void tt_node_move_saved(tt_node_t *node, tutti_op_call_t *call)
{
    tt_op_call_t *own = tt_op_call_of(call);
    for (int i = 0; i < own->saved_count; i++) {
        const tutti_tensor_t *x = own->saved[i].tensor;
        node->saved.items[i] = own->saved[i];
        node->saved.items[i].version = x == NULL ? 0 : x->storage->version;
    }
    node->saved.count = own->saved_count;
    own->saved_count = 0;
}

static bool is_view_of_leaf(const tutti_op_call_t *call, const tutti_tensor_t *y)
{
    for (int i = 0; i < call->input_count && call->op->makes_outputs; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        const tt_autograd_t *a = x == NULL ? NULL : tt_autograd_of(x);
        if (a != NULL && x->storage == y->storage && (tt_is_leaf(x) || a->is_view_of_leaf)) {
            return true;
        }
    }
    return false;
}

/* An input that was changed in place leaves the node that made it. */
static void attach_output(tt_node_t *node, const tutti_op_call_t *call, int output,
                          tt_autograd_t *a)
{
    const tutti_tensor_t *y = call->outputs[output];
    const bool is_constant = tt_is_constant(call, output);
    a->is_view_of_leaf = is_view_of_leaf(call, y);
    tt_node_release(a->node);
    a->requires_grad = !is_constant;
    a->node = is_constant ? NULL : tt_node_retain(node);
    a->output = output;
}

static tutti_status_t attach_outputs(tt_node_t *node, const tutti_op_call_t *call)
{
    for (int i = 0; i < call->output_count; i++) {
        tutti_tensor_t *y = call->outputs[i];
        node->outputs[i] = (tutti_spec_t){y->dtype, y->shape};
        node->places[i] =
            y->storage->device == NULL ? NULL : tutti_device_retain(y->storage->device);
        node->output_count = i + 1;
        tt_autograd_t *a;
        TT_TRY(tt_autograd_ensure(y, &a));
        attach_output(node, call, i, a);
    }
    return TUTTI_OK;
}

static tutti_status_t fill_saved(tt_node_t *node, tutti_op_call_t *call)
{
    node->saved.kind = node->op;
    node->saved.name = node->op->name;
    node->saved.node = node;
    tt_node_move_saved(node, call);
    return tt_saved_keep(call->scope, &node->saved);
}

tutti_status_t tt_node_record(tutti_op_call_t *call)
{
    tt_keeper_t *refilled = call->scope->ctx->refilled;
    if (refilled != NULL) {
        return refilled->ops->refill(refilled, call);
    }
    tt_node_t *node =
        new_node((sizes_t){call->input_count, call->output_count, tt_op_call_of(call)->saved_count,
                           call->params == NULL ? 0 : call->op->params_bytes},
                 "graph node");
    TT_TRY_ALLOC(node);
    node->op = call->op;
    node->sequence = ++call->scope->ctx->node_sequence;
    node->profiled = tt_profiled_module(call->scope->ctx);
    tutti_status_t status = fill_inputs(node, call);
    tt_node_take_params(node, call);
    if (status >= 0) {
        status = fill_saved(node, call);
    }
    if (status >= 0) {
        status = tt_anomaly_note_module(call->scope->ctx, &node->module);
    }
    if (status >= 0) {
        status = attach_outputs(node, call);
    }
    tt_node_release(node); /* the outputs hold it */
    return status;
}
