/* Histories of saved tensors. See history.h. */
#include "compute/autograd/history.h"

#include "compute/autograd/cast.h"

/* An edge in the graph: x becomes the result that it leads to. */
static tutti_status_t attach(tutti_tensor_t *x, tt_edge_t edge)
{
    tt_autograd_t *a;
    if (edge.node == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_autograd_ensure(x, &a));
    a->requires_grad = true;
    a->node = tt_node_retain(edge.node);
    a->output = edge.output;
    return TUTTI_OK;
}

static tutti_status_t alias_in(tutti_scope_t *s, const tutti_tensor_t *x, tutti_tensor_t **out)
{
    tutti_tensor_t *alias = NULL;
    const tutti_status_t status = tt_tensor_alias(x, &alias);
    *out = tt_scope_adopt(s, status, alias);
    return (*out)->status;
}

/* A tensor of which only dtype, shape and history are looked at. */
static tutti_status_t stand_in(tutti_scope_t *s, const tutti_tensor_t *any, tutti_spec_t spec,
                               tt_edge_t edge, tutti_tensor_t **out)
{
    TT_TRY(alias_in(s, any, out));
    (*out)->dtype = spec.dtype;
    (*out)->shape = spec.shape;
    return attach(*out, edge);
}

/* copy = (its dtype)x was not recorded. */
static tutti_status_t record_cast(tutti_scope_t *s, tutti_tensor_t *copy, tutti_spec_t spec,
                                  tt_edge_t edge)
{
    tutti_tensor_t *x;
    TT_TRY(stand_in(s, copy, spec, edge, &x));
    tt_op_call_t call = {.seen = {.op = &tt_op_cast,
                                  .scope = s,
                                  .input_count = 1,
                                  .output_count = 1,
                                  .inputs = &x,
                                  .params = &copy->dtype,
                                  .outputs = &copy,
                                  .needs_grad = true}};
    return tt_node_record(&call.seen);
}

/* The operation saves what the call's has saved of its inputs, and nothing else. */
static tutti_status_t save_inputs(tt_op_call_t *of, const tt_op_backward_t *call)
{
    for (int k = 0; k < call->saved_count; k++) {
        const int from = call->items[k].from;
        TT_TRY(from > 0 ? tutti_op_save_copy(&of->seen, call->seen.saved[k], from - 1)
                        : tutti_op_save(&of->seen, NULL));
    }
    return TUTTI_OK;
}

tutti_tensor_t *tt_history_of_result(const tutti_op_backward_t *seen, int saved,
                                     const tutti_op_t *op, const void *params)
{
    const tt_op_backward_t *call = (const tt_op_backward_t *)seen;
    tutti_tensor_t *inputs[TT_OP_INPUTS_FEW] = {NULL}, *value;
    tt_saved_t few[TT_OP_SAVED_FEW];
    tutti_status_t status = alias_in(seen->scope, seen->saved[saved], &value);
    TT_ASSERT(seen->input_count <= TT_OP_INPUTS_FEW && call->saved_count <= TT_OP_SAVED_FEW);
    for (int i = 0; i < seen->input_count && status >= 0; i++) {
        if (call->node->edges[i].node != NULL) {
            status =
                stand_in(seen->scope, value, seen->inputs[i], call->node->edges[i], &inputs[i]);
        }
    }
    tt_op_call_t recorded = {.seen = {.op = op,
                                      .scope = seen->scope,
                                      .input_count = seen->input_count,
                                      .output_count = 1,
                                      .inputs = inputs,
                                      .params = params,
                                      .outputs = &value,
                                      .needs_grad = true},
                             .saved = few,
                             .saved_capacity = TT_OP_SAVED_FEW};
    if (status >= 0) {
        status = save_inputs(&recorded, call);
    }
    if (status >= 0) {
        status = tt_node_record(&recorded.seen);
    }
    for (int k = 0; k < recorded.saved_count; k++) {
        tutti_tensor_release(recorded.saved[k].tensor);
    }
    return status < 0 ? tutti_scope_fail(seen->scope, status) : value;
}

static tutti_status_t become_input(tutti_scope_t *s, const tt_node_t *node, int input,
                                   tutti_tensor_t *copy)
{
    const tt_edge_t edge = node->edges[input];
    return edge.node == NULL || node->inputs[input].dtype == copy->dtype
               ? attach(copy, edge)
               : record_cast(s, copy, node->inputs[input], edge);
}

static tutti_status_t restore(tutti_scope_t *s, tt_node_t *node, const tt_saved_t *saved,
                              tutti_tensor_t **out)
{
    TT_TRY(alias_in(s, saved->tensor, out));
    if (saved->from == 0 || !tutti_dtype_is_float((*out)->dtype)) {
        return TUTTI_OK;
    }
    return saved->from < 0 ? attach(*out, (tt_edge_t){node, -1 - saved->from})
                           : become_input(s, node, saved->from - 1, *out);
}

tutti_tensor_t *tt_history_of_input(const tutti_op_backward_t *call, int input,
                                    tutti_tensor_t *copy)
{
    const tt_node_t *node = ((const tt_op_backward_t *)call)->node;
    tutti_status_t status = copy->status;
    if (status >= 0) {
        status = become_input(call->scope, node, input, copy);
    }
    return status < 0 ? tutti_scope_fail(call->scope, status) : copy;
}

tutti_status_t tt_history_restore(tutti_scope_t *s, tt_node_t *node, tutti_tensor_t **saved)
{
    for (int i = 0; i < node->saved.count; i++) {
        if (saved[i] != NULL) {
            TT_TRY(restore(s, node, &node->saved.items[i], &saved[i]));
        }
    }
    return TUTTI_OK;
}
