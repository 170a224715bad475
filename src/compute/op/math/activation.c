/* Activations, each a line of activation.def: one pass forward, one backward, which keeps x. */
#include <tutti/op_activation.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>

#include <math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

/* The incoming gradient times the slope at x. */
typedef tutti_tensor_t *(*slope_fn_t)(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                      tt_map_params_t params);

typedef struct {
    tt_unary_t kind;
    tt_binary_t backward;
    slope_fn_t grad;
} activation_t;

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same(call, outputs));
    outputs->dtype = tt_float_of(outputs->dtype);
    return TUTTI_OK;
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const activation_t *activation = call->op->family;
    const tt_map_params_t *params = call->params;
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]),
                       x = tt_tensor_strided(call->inputs[0]);
    TT_TRY(tt_map_unary(tt_scope_exec(call->scope), activation->kind, *params, &out, &x));
    return tutti_op_save(call, call->inputs[0]);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const activation_t *activation = call->op->family;
    const tt_map_params_t *params = call->params;
    const tt_map_to_t to = {call->inputs[0].dtype, call->inputs[0].shape, *params};
    call->grads[0] =
        tt_new_binary(call->scope, activation->backward, to, call->grad_outputs[0], call->saved[0]);
    return TUTTI_OK;
}

static tutti_status_t grad(tutti_op_backward_t *call)
{
    const activation_t *activation = call->op->family;
    const tt_map_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    call->grads[0] =
        activation->grad(s, tt_wide(s, call->grad_outputs[0]), tt_wide(s, call->saved[0]), *params);
    return TUTTI_OK;
}

/* ---- gradients, recorded --------------------------------------------------------------------- */

static tutti_tensor_t *zero_like(tutti_scope_t *s, const tutti_tensor_t *g)
{
    return tutti_zeros(s, tutti_tensor_dtype(g), TUTTI_SCALAR);
}

/* g above 0, else g times the slope there. */
static tutti_tensor_t *above_zero(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                  tutti_tensor_t *below)
{
    return tutti_where(s, tutti_gt_scalar(s, x, 0), g, below);
}

static tutti_tensor_t *leaky_relu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                       tt_map_params_t params)
{
    return above_zero(s, g, x, tutti_mul_scalar(s, g, params.p));
}

static tutti_tensor_t *elu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                tt_map_params_t params)
{
    tutti_tensor_t *power =
        tutti_exp(s, tutti_mul_scalar(s, tutti_clamp(s, x, -(double)INFINITY, 0), params.q));
    return above_zero(s, g, x, tutti_mul(s, g, tutti_mul_scalar(s, power, params.p * params.q)));
}

static tutti_tensor_t *selu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                 tt_map_params_t params)
{
    params = (tt_map_params_t){1.6732632423543772, 1};
    return tutti_mul_scalar(s, elu_grad(s, g, x, params), 1.0507009873554805);
}

static tutti_tensor_t *softplus_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                     tt_map_params_t params)
{
    x = tutti_mul_scalar(s, x, params.p);
    return tutti_where(s, tutti_gt_scalar(s, x, params.q), g, tutti_mul(s, g, tutti_sigmoid(s, x)));
}

static tutti_tensor_t *logsigmoid_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                       tt_map_params_t params)
{
    (void)params;
    return tutti_mul(s, g, tutti_sigmoid(s, tutti_neg(s, x)));
}

static tutti_tensor_t *mish_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                 tt_map_params_t params)
{
    (void)params;
    tutti_tensor_t *t = tutti_tanh(s, tutti_softplus(s, x, 1, 40));
    tutti_tensor_t *rest = tutti_scalar_sub(s, 1, tutti_square(s, t));
    rest = tutti_mul(s, tutti_mul(s, x, rest), tutti_sigmoid(s, x));
    return tutti_mul(s, g, tutti_add(s, t, rest));
}

static tutti_tensor_t *hardswish_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                      tt_map_params_t params)
{
    (void)params;
    tutti_tensor_t *slope = tutti_add_scalar(s, tutti_div_scalar(s, x, 3), 0.5);
    tutti_tensor_t *inside = tutti_where(s, tutti_ge_scalar(s, x, 3), g, tutti_mul(s, g, slope));
    return tutti_where(s, tutti_le_scalar(s, x, -3), zero_like(s, g), inside);
}

static tutti_tensor_t *hardsigmoid_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                        tt_map_params_t params)
{
    (void)params;
    tutti_tensor_t *is_inside =
        tutti_logical_and(s, tutti_gt_scalar(s, x, -3), tutti_lt_scalar(s, x, 3));
    return tutti_where(s, is_inside, tutti_div_scalar(s, g, 6), zero_like(s, g));
}

static tutti_tensor_t *hardtanh_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                     tt_map_params_t params)
{
    tutti_tensor_t *is_outside =
        tutti_logical_or(s, tutti_le_scalar(s, x, params.p), tutti_ge_scalar(s, x, params.q));
    return tutti_where(s, is_outside, zero_like(s, g), g);
}

static tutti_tensor_t *softsign_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                     tt_map_params_t params)
{
    (void)params;
    return tutti_div(s, g, tutti_square(s, tutti_add_scalar(s, tutti_abs(s, x), 1)));
}

static tutti_tensor_t *tanhshrink_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                       tt_map_params_t params)
{
    (void)params;
    return tutti_mul(s, g, tutti_square(s, tutti_tanh(s, x)));
}

static tutti_tensor_t *threshold_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                      tt_map_params_t params)
{
    return tutti_where(s, tutti_le_scalar(s, x, params.p), zero_like(s, g), g);
}

static tutti_tensor_t *shrink_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                                   tt_map_params_t params)
{
    return tutti_where(s, tutti_le_scalar(s, tutti_abs(s, x), params.p), zero_like(s, g), g);
}

/* ---- tables and calls ------------------------------------------------------------------------ */

#define X(id, kernel, gradient, cast, recorded, formula)                                           \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .params_bytes = sizeof(tt_map_params_t),                                                   \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = backward,                                                                      \
        .grad = grad,                                                                              \
        .family = &(const activation_t){TT_UNARY_##kernel, TT_BINARY_##gradient, recorded},        \
    };
#include "compute/op/math/activation.def"
#undef X

static tutti_tensor_t *run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *x, double p,
                           double q)
{
    return tutti_op_run(s, op, &x, 1, &(tt_map_params_t){p, q});
}

/* A number that must be one that the rule of the operation makes sense with. */
static tutti_tensor_t *refuse(tutti_scope_t *s, const char *text, double value)
{
    return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "%s, not %g", text, value));
}

tutti_tensor_t *tutti_leaky_relu(tutti_scope_t *s, tutti_tensor_t *x, double slope)
{
    return run(s, &tt_op_leaky_relu, x, slope, 0);
}

tutti_tensor_t *tutti_elu(tutti_scope_t *s, tutti_tensor_t *x, double alpha)
{
    return run(s, &tt_op_elu, x, alpha, 1);
}

tutti_tensor_t *tutti_celu(tutti_scope_t *s, tutti_tensor_t *x, double alpha)
{
    return alpha != 0 ? run(s, &tt_op_celu, x, alpha, 1 / alpha)
                      : refuse(s, "celu: alpha must be a divisor", alpha);
}

tutti_tensor_t *tutti_selu(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_selu, x, 0, 0);
}

tutti_tensor_t *tutti_softplus(tutti_scope_t *s, tutti_tensor_t *x, double beta, double threshold)
{
    return beta != 0 ? run(s, &tt_op_softplus, x, beta, threshold)
                     : refuse(s, "softplus: beta must be a divisor", beta);
}

tutti_tensor_t *tutti_logsigmoid(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_logsigmoid, x, 0, 0);
}

tutti_tensor_t *tutti_mish(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_mish, x, 0, 0);
}

tutti_tensor_t *tutti_hardswish(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_hardswish, x, 0, 0);
}

tutti_tensor_t *tutti_hardsigmoid(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_hardsigmoid, x, 0, 0);
}

tutti_tensor_t *tutti_hardtanh(tutti_scope_t *s, tutti_tensor_t *x, double low, double high)
{
    return low <= high
               ? run(s, &tt_op_hardtanh, x, low, high)
               : tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                             "hardtanh: the bounds %g and %g enclose nothing", low,
                                             high));
}

tutti_tensor_t *tutti_relu6(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_hardtanh(s, x, 0, 6);
}

tutti_tensor_t *tutti_softsign(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_softsign, x, 0, 0);
}

tutti_tensor_t *tutti_tanhshrink(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_tanhshrink, x, 0, 0);
}

tutti_tensor_t *tutti_threshold(tutti_scope_t *s, tutti_tensor_t *x, double threshold, double value)
{
    return run(s, &tt_op_threshold, x, threshold, value);
}

tutti_tensor_t *tutti_hardshrink(tutti_scope_t *s, tutti_tensor_t *x, double lambda)
{
    return run(s, &tt_op_hardshrink, x, lambda, 0);
}

tutti_tensor_t *tutti_softshrink(tutti_scope_t *s, tutti_tensor_t *x, double lambda)
{
    return lambda >= 0 ? run(s, &tt_op_softshrink, x, lambda, 0)
                       : refuse(s, "softshrink: lambda must be at least 0", lambda);
}

tutti_tensor_t *tutti_softmin(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return tutti_softmax(s, tutti_neg(s, x), dim);
}
