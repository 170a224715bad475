/* Choices element by element: clamp, where, masked_fill. One pass each; backward passes the
 * gradient on where the element was chosen, and 0 elsewhere. */
#include <tutti/op_math.h>

#include <math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

/* ---- clamp ----------------------------------------------------------------------------------- */

static tutti_status_t clamp_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_map_params_t *bounds = call->params;
    if (!(bounds->p <= bounds->q)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "the bounds %g and %g enclose nothing", bounds->p,
                             bounds->q);
    }
    TT_TRY(tutti_op_infer_same(call, outputs));
    for (int i = 0; i < 2; i++) {
        const double bound = i == 0 ? bounds->p : bounds->q;
        if (!isinf(bound)) {
            outputs->dtype = tt_promote_number(outputs->dtype, bound);
        }
    }
    return TUTTI_OK;
}

/* Integers: a bound that no number reaches must not be converted to one. */
static tutti_status_t clamp_whole(tt_exec_t *exec, tt_map_params_t bounds, const tt_strided_t *out,
                                  const tt_strided_t *x, tutti_shape_t shape)
{
    tt_strided_t bound;
    TT_TRY(tt_map_unary(exec, TT_UNARY_COPY, (tt_map_params_t){0}, out, x));
    if (!isinf(bounds.p)) {
        bound = tt_number(bounds.p, TUTTI_I64, shape);
        TT_TRY(tt_map_binary(exec, TT_BINARY_MAXIMUM, (tt_map_params_t){0}, out, out, &bound));
    }
    if (!isinf(bounds.q)) {
        bound = tt_number(bounds.q, TUTTI_I64, shape);
        TT_TRY(tt_map_binary(exec, TT_BINARY_MINIMUM, (tt_map_params_t){0}, out, out, &bound));
    }
    return TUTTI_OK;
}

static tutti_status_t clamp_forward(tutti_op_call_t *call)
{
    const tt_map_params_t *bounds = call->params;
    tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y), x = tt_tensor_strided(call->inputs[0]);
    if (tutti_dtype_is_float(y->dtype)) {
        TT_TRY(tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_CLAMP, *bounds, &out, &x));
    } else {
        TT_TRY(clamp_whole(tt_scope_exec(call->scope), *bounds, &out, &x, y->shape));
    }
    return tutti_op_save(call, call->inputs[0]);
}

static tutti_status_t clamp_backward(tutti_op_backward_t *call)
{
    const tt_map_params_t *bounds = call->params;
    const tutti_dtype_t dtype = call->inputs[0].dtype;
    const tt_map_to_t to = {
        dtype,
        call->inputs[0].shape,
        {tt_rounded_number(bounds->p, dtype), tt_rounded_number(bounds->q, dtype)}};
    call->grads[0] = tt_new_binary(call->scope, TT_BINARY_CLAMP_BACKWARD, to, call->grad_outputs[0],
                                   call->saved[0]);
    return TUTTI_OK;
}

static tutti_status_t clamp_grad(tutti_op_backward_t *call)
{
    const tt_map_params_t *bounds = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = call->saved[0], *g = call->grad_outputs[0];
    tutti_tensor_t *is_inside =
        tutti_logical_and(s, tutti_ge_scalar(s, x, bounds->p), tutti_le_scalar(s, x, bounds->q));
    call->grads[0] = tutti_where(s, is_inside, g, tutti_zeros(s, g->dtype, TUTTI_SCALAR));
    return TUTTI_OK;
}

const tutti_op_t tt_op_clamp = {
    .name = "clamp",
    .about = "y = min(max(x, low), high); dx = dy where low ≤ x ≤ high",
    .params_bytes = sizeof(tt_map_params_t),
    .infer = clamp_infer,
    .forward = clamp_forward,
    .backward = clamp_backward,
    .grad = clamp_grad,
};

tutti_tensor_t *tutti_clamp(tutti_scope_t *s, tutti_tensor_t *x, double low, double high)
{
    return tutti_op_run(s, &tt_op_clamp, &x, 1, &(tt_map_params_t){low, high});
}

/* ---- where ----------------------------------------------------------------------------------- */

static tutti_status_t where_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *condition = call->inputs[0], *a = call->inputs[1], *b = call->inputs[2];
    if (condition->dtype != TUTTI_BOOL) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the condition must be bool");
    }
    TT_TRY(tutti_op_infer_broadcast(call, outputs));
    outputs->dtype = tutti_op_promote(a->dtype, b->dtype);
    return TUTTI_OK;
}

static tutti_status_t where_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y);
    tt_strided_t in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = tt_tensor_strided_as(call->inputs[i], y->shape);
    }
    TT_TRY(tt_map_ternary(tt_scope_exec(call->scope), TT_TERNARY_WHERE, (tt_map_params_t){0}, &out,
                          &in[0], &in[1], &in[2]));
    return tutti_op_save(call, call->inputs[0]);
}

static tutti_status_t where_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = call->grad_outputs[0], *condition = call->saved[0];
    tutti_tensor_t *zero = tutti_zeros(s, g->dtype, TUTTI_SCALAR);
    for (int i = 1; i < 3; i++) {
        if (call->wanted[i]) {
            tutti_tensor_t *grad = tutti_where(s, condition, i == 1 ? g : zero, i == 1 ? zero : g);
            call->grads[i] = tutti_sum_to(s, grad, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_where = {
    .name = "where",
    .about = "y = condition ? a : b; dy goes to the chosen one",
    .infer = where_infer,
    .forward = where_forward,
    .backward = where_backward,
    .grad = where_backward,
};

tutti_tensor_t *tutti_where(tutti_scope_t *s, tutti_tensor_t *condition, tutti_tensor_t *a,
                            tutti_tensor_t *b)
{
    return tutti_op_run(s, &tt_op_where, (tutti_tensor_t *[]){condition, a, b}, 3, NULL);
}

/* ---- masked_fill ----------------------------------------------------------------------------- */

static tutti_status_t masked_fill_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *mask = call->inputs[1];
    const tt_map_params_t *value = call->params;
    if (mask->dtype != TUTTI_BOOL) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the mask must be bool");
    }
    TT_TRY(tutti_op_infer_broadcast(call, outputs));
    if (!tutti_shape_equal(outputs->shape, x->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the mask is larger than what it masks");
    }
    outputs->dtype = tt_promote_number(x->dtype, value->p);
    return tt_check_number(call, outputs->dtype, value->p);
}

static tutti_status_t masked_fill_forward(tutti_op_call_t *call)
{
    const tt_map_params_t *value = call->params;
    tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y), x = tt_tensor_strided(call->inputs[0]),
                       mask = tt_tensor_strided_as(call->inputs[1], y->shape);
    TT_TRY(
        tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_MASKED_FILL, *value, &out, &x, &mask));
    return tutti_op_save(call, call->inputs[1]);
}

static tutti_status_t masked_fill_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_masked_fill(call->scope, call->grad_outputs[0], call->saved[0], 0);
    return TUTTI_OK;
}

const tutti_op_t tt_op_masked_fill = {
    .name = "masked_fill",
    .fills = true,
    .about = "y = mask ? value : x; dx = dy where the mask is not set",
    .params_bytes = sizeof(tt_map_params_t),
    .infer = masked_fill_infer,
    .forward = masked_fill_forward,
    .backward = masked_fill_backward,
    .grad = masked_fill_backward,
};

tutti_tensor_t *tutti_masked_fill(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *mask,
                                  double value)
{
    return tutti_op_run(s, &tt_op_masked_fill, (tutti_tensor_t *[]){x, mask}, 2,
                        &(tt_map_params_t){value, 0});
}
