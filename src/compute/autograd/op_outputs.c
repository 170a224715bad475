/* Outputs that a forward makes itself: views of inputs, and inputs that it changes in place. */
#include "compute/autograd/node.h"

static tutti_status_t check_output(const tutti_op_call_t *call, int output)
{
    return output >= 0 && output < call->output_count
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_ARG, "there is no output %d", output);
}

/* Whether x may be the output: as `infer` said, and there is none yet. */
static tutti_status_t check_place(tutti_op_call_t *call, int output, const tutti_tensor_t *x)
{
    char got[192], shape[160];
    TT_TRY(check_output(call, output));
    if (!call->op->makes_outputs) {
        return tutti_op_fail(call, TUTTI_ERR_STATE,
                             "output %d is made for it: fill it, or set makes_outputs", output);
    }
    if (x == NULL || call->outputs[output] != NULL) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "output %d %s", output,
                             x == NULL ? "is NULL" : "is made twice");
    }
    TT_TRY(tt_tensor_check(x));
    const tutti_spec_t want = tt_op_call_of(call)->specs[output];
    if (x->dtype != want.dtype || !tutti_shape_equal(x->shape, want.shape)) {
        return tutti_op_fail(call, x->dtype != want.dtype ? TUTTI_ERR_DTYPE : TUTTI_ERR_SHAPE,
                             "output %d is %s, and infer said %s%s", output,
                             tutti_tensor_describe(x, got, sizeof got),
                             tutti_dtype_name(want.dtype),
                             tutti_shape_format(want.shape, shape, sizeof shape));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_op_set_output(tutti_op_call_t *call, int output, tutti_tensor_t *x)
{
    TT_TRY(check_place(call, output, x));
    return tt_tensor_alias(x, tt_op_output(call, output));
}

tutti_status_t tutti_op_mark_constant(tutti_op_call_t *call, int output)
{
    TT_TRY(check_output(call, output));
    tt_op_call_of(call)->is_constant[output] = true;
    return TUTTI_OK;
}

/* While it is recorded. What is computed again has passed the first time. */
static tutti_status_t check_change(const tutti_op_call_t *call, int input)
{
    const tutti_tensor_t *x = call->inputs[input];
    const tt_autograd_t *a = tt_autograd_of(x);
    if (a == NULL || call->scope->ctx->refilled != NULL) {
        return TUTTI_OK;
    }
    if (tt_is_leaf(x) || a->is_view_of_leaf) {
        return tutti_op_fail(call, TUTTI_ERR_STATE,
                             "input %d is %sa leaf that needs a gradient, which cannot be changed "
                             "in place where gradients are recorded: clone it",
                             input, a->is_view_of_leaf ? "a view of " : "");
    }
    return a->requires_grad && !call->needs_grad
               ? tutti_op_fail(call, TUTTI_ERR_STATE,
                               "input %d needs a gradient, and the change has none: detach it",
                               input)
               : TUTTI_OK;
}

tutti_status_t tutti_op_mark_dirty(tutti_op_call_t *call, int input, int output)
{
    tt_op_call_t *own = tt_op_call_of(call);
    if (input < 0 || input >= call->input_count || call->inputs[input] == NULL) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "there is no input %d", input);
    }
    tutti_tensor_t *x = call->inputs[input];
    TT_TRY(check_place(call, output, x));
    for (int k = 0; k < call->output_count; k++) {
        if (call->outputs[k] == x) {
            return tutti_op_fail(call, TUTTI_ERR_ARG, "outputs %d and %d are one input", k, output);
        }
    }
    if (x != own->given[input]) {
        return tutti_op_fail(call, TUTTI_ERR_STATE,
                             "input %d is a copy that autocast made: set TUTTI_OP_AUTOCAST_KEEP",
                             input);
    }
    if (own->is_recorded) {
        TT_TRY(check_change(call, input));
    }
    tt_tensor_touch(x);
    x->storage->changes += call->needs_grad;
    *tt_op_output(call, output) = tutti_tensor_retain(x);
    return TUTTI_OK;
}
