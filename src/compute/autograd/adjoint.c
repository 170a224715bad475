/* Gradients of linear operations as operations. See adjoint.h. */
#include "compute/autograd/adjoint.h"

#include <string.h>
#include <tutti/modes.h>
#include <tutti/op_shape.h>

#include "compute/autograd/cast.h"
#include "core/base/alloc.h"

/* Whose gradient it is. What it takes are the operation's incoming gradients, then what was saved.
 */
typedef struct {
    tt_ref_t ref;
    const tutti_op_t *op;
    void *params;
    int input; /* of these */
    int input_count, output_count, saved_count;
    tutti_spec_t *inputs, *outputs;
    int *from; /* [saved_count] as in tt_saved_t */
} adjoint_t;

static adjoint_t *adjoint_of(const void *params)
{
    return *(adjoint_t *const *)params;
}

static void retain_adjoint(const void *params)
{
    tt_ref_retain(&adjoint_of(params)->ref);
}

static void release_adjoint(const void *params)
{
    adjoint_t *a = adjoint_of(params);
    if (tt_ref_release(&a->ref)) {
        if (a->params != NULL && a->op->release_params != NULL) {
            a->op->release_params(a->params);
        }
        tt_free(a->params);
        tt_free(a);
    }
}

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const adjoint_t *a = adjoint_of(call->params);
    outputs[0] = a->inputs[a->input];
    return TUTTI_OK;
}

/* ---- forward: the operation's backward, of which nothing is recorded ------------------------- */

/* grads, wanted: [input_count], zeroed. */
static tutti_status_t run_backward(tutti_op_call_t *call, const adjoint_t *a,
                                   tutti_tensor_t **grads, bool *wanted)
{
    tutti_op_backward_t backward = {.op = a->op,
                                    .scope = call->scope,
                                    .input_count = a->input_count,
                                    .output_count = a->output_count,
                                    .params = a->params,
                                    .inputs = a->inputs,
                                    .outputs = a->outputs,
                                    .wanted = wanted,
                                    .retain_graph = true,
                                    .grad_outputs = call->inputs,
                                    .saved = call->inputs + a->output_count,
                                    .grads = grads};
    wanted[a->input] = true;
    TT_TRY(a->op->backward(&backward));
    TT_TRY(tutti_scope_status(call->scope));
    return tt_tensor_alias(grads[a->input], tt_op_output(call, 0));
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const adjoint_t *a = adjoint_of(call->params);
    const size_t count = (size_t)a->input_count;
    tutti_tensor_t **grads = tt_alloc_array(count, sizeof *grads + sizeof(bool), "backward");
    TT_TRY_ALLOC(grads);
    const bool was_enabled = tutti_context_set_grad_enabled(call->scope->ctx, false);
    tutti_status_t status = run_backward(call, a, grads, (bool *)(grads + count));
    (void)tutti_context_set_grad_enabled(call->scope->ctx, was_enabled);
    tt_free(grads);
    for (int k = 0; k < call->input_count && status >= 0; k++) {
        status = tutti_op_save(call, call->inputs[k]);
    }
    return status;
}

/* ---- backward: the operation ----------------------------------------------------------------- */

/* What was saved of an input; NULL if nothing was. */
static tutti_tensor_t *saved_input(const adjoint_t *a, tutti_tensor_t *const *saved, int input)
{
    for (int k = 0; k < a->saved_count; k++) {
        if (a->from[k] == input + 1) {
            return saved[k];
        }
    }
    return NULL;
}

/* The operation on u, where its input was. `room`: [inputs and outputs] */
static void run_operation(const tutti_op_backward_t *call, const adjoint_t *a, tutti_tensor_t *u,
                          tutti_tensor_t **room)
{
    tutti_tensor_t **outputs = room + a->input_count;
    for (int i = 0; i < a->input_count; i++) {
        room[i] = i == a->input ? u : saved_input(a, call->saved + a->output_count, i);
    }
    tutti_op_run_many(call->scope, a->op, room, a->input_count, a->params, outputs,
                      a->output_count);
    for (int k = 0; k < a->output_count; k++) {
        call->grads[k] = call->wanted[k] ? outputs[k] : NULL;
    }
}

/* In the layout and dtype that the operation's backward finds its saved input in. */
static tutti_tensor_t *saved_like(tutti_scope_t *s, tutti_tensor_t *u, const tutti_tensor_t *saved)
{
    return tutti_contiguous(s, tt_cast(s, u, saved->dtype));
}

static tutti_tensor_t *run_adjoint(tutti_scope_t *s, const adjoint_t *of, int input,
                                   tutti_tensor_t *const *taken);

/* Gradients of other saved inputs, with u in the place of this one. `room`: [all that it takes] */
static void run_others(const tutti_op_backward_t *call, const adjoint_t *a, tutti_tensor_t *u,
                       tutti_tensor_t **room)
{
    const int *from = a->from - a->output_count;
    for (int k = 0; k < call->input_count; k++) {
        const bool is_own = k >= a->output_count && from[k] == a->input + 1;
        tutti_tensor_t *saved = call->saved[k];
        room[k] = is_own && saved != NULL ? saved_like(call->scope, u, saved) : saved;
    }
    for (int k = a->output_count; k < call->input_count; k++) {
        if (call->wanted[k] && from[k] != a->input + 1) {
            call->grads[k] = run_adjoint(call->scope, a, from[k] - 1, room);
        }
    }
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const adjoint_t *a = adjoint_of(call->params);
    tutti_tensor_t *u = call->grad_outputs[0];
    const size_t count = (size_t)(a->input_count + a->output_count + a->saved_count);
    tutti_tensor_t **room = tt_alloc_array(count, sizeof *room, "backward");
    TT_TRY_ALLOC(room);
    run_operation(call, a, u, room);
    run_others(call, a, u, room);
    tt_free(room);
    return tutti_scope_status(call->scope);
}

static const tutti_op_t op_adjoint = {
    .name = "adjoint",
    .optional_inputs = UINT64_MAX,
    .about = "the gradient of a linear operation; its own is the operation",
    .params_bytes = sizeof(adjoint_t *),
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = backward,
    .retain_params = retain_adjoint,
    .release_params = release_adjoint,
    .makes_outputs = true,
};

/* ---- calls ----------------------------------------------------------------------------------- */

/* A copy, with parameters of its own. */
static tutti_status_t copy_adjoint(const adjoint_t *of, adjoint_t **out)
{
    const size_t specs = (size_t)(of->input_count + of->output_count),
                 saved = (size_t)of->saved_count, bytes = of->op->params_bytes;
    adjoint_t *a =
        tt_alloc(sizeof *a + specs * sizeof(tutti_spec_t) + saved * sizeof(int), "graph node");
    TT_TRY_ALLOC(a);
    *a = *of;
    tt_ref_init(&a->ref);
    a->params = NULL;
    a->inputs = (tutti_spec_t *)(a + 1);
    a->outputs = a->inputs + of->input_count;
    a->from = (int *)(a->outputs + of->output_count);
    memcpy(a->inputs, of->inputs, (size_t)of->input_count * sizeof *a->inputs);
    memcpy(a->outputs, of->outputs, (size_t)of->output_count * sizeof *a->outputs);
    memcpy(a->from, of->from, saved * sizeof *a->from);
    if (of->params != NULL && bytes > 0) {
        a->params = tt_alloc_raw(bytes, "graph node");
        if (a->params == NULL) {
            tt_free(a);
            return TUTTI_ERR_NOMEM;
        }
        memcpy(a->params, of->params, bytes);
        if (a->op->retain_params != NULL) {
            a->op->retain_params(a->params);
        }
    }
    *out = a;
    return TUTTI_OK;
}

static tutti_tensor_t *run_adjoint(tutti_scope_t *s, const adjoint_t *of, int input,
                                   tutti_tensor_t *const *taken)
{
    adjoint_t *a;
    const tutti_status_t status = copy_adjoint(of, &a);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    a->input = input;
    tutti_tensor_t *grad =
        tutti_op_run(s, &op_adjoint, taken, a->output_count + a->saved_count, &a);
    release_adjoint(&a);
    return grad;
}

tutti_tensor_t *tt_adjoint(const tutti_op_backward_t *call, int input)
{
    const tt_op_backward_t *own = (const tt_op_backward_t *)call;
    const size_t outputs = (size_t)call->output_count, saved = (size_t)own->saved_count;
    tutti_tensor_t **taken =
        tt_alloc_array(outputs + saved, sizeof *taken + sizeof(int), "backward");
    if (taken == NULL) {
        return tutti_scope_fail(call->scope, TUTTI_ERR_NOMEM);
    }
    const adjoint_t a = {.op = call->op,
                         .params = (void *)(uintptr_t)call->params,
                         .input_count = call->input_count,
                         .output_count = call->output_count,
                         .saved_count = own->saved_count,
                         .inputs = (tutti_spec_t *)(uintptr_t)call->inputs,
                         .outputs = (tutti_spec_t *)(uintptr_t)call->outputs,
                         .from = (int *)(taken + outputs + saved)};
    memcpy(taken, call->grad_outputs, outputs * sizeof(tutti_tensor_t *));
    for (int k = 0; k < own->saved_count; k++) {
        taken[call->output_count + k] = call->saved[k];
        a.from[k] = own->items[k].from;
    }
    tutti_tensor_t *grad = run_adjoint(call->scope, &a, input, taken);
    tt_free(taken);
    return grad;
}

tutti_status_t tt_grad_linear(tutti_op_backward_t *call)
{
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i]) {
            call->grads[i] = tt_adjoint(call, i);
        }
    }
    return TUTTI_OK;
}
