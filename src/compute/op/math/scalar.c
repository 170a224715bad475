/* Arithmetic of a tensor and a number, each a line of scalar.def.
 *
 * The number is an operand of stride 0 in the type that x computes in, or a kernel's parameter.
 * x is kept for backward only where the gradient depends on it.
 */
#include <tutti/op_math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

typedef enum { FLOATS, NUMBERS, ANY } types_t;
typedef enum { AFFINE_FORM, UNARY_FORM, LEFT_FORM, RIGHT_FORM } forward_form_t;
typedef enum { SLOPE_FORM, BY_NUMBER_FORM, BY_INPUT_FORM, BY_BOTH_FORM } backward_form_t;

typedef struct {
    types_t types;
    struct {
        forward_form_t form;
        int kind;
        double p, q; /* of AFFINE_FORM */
    } forward;
    struct {
        backward_form_t form;
        int kind;
        double p, q; /* of SLOPE_FORM */
    } backward;
} scalar_t;

#define AFFINE(p, q)                                                                               \
    {                                                                                              \
        AFFINE_FORM, TT_UNARY_AFFINE, p, q                                                         \
    }
#define UNARY(kernel)                                                                              \
    {                                                                                              \
        UNARY_FORM, TT_UNARY_##kernel, 0, 0                                                        \
    }
#define LEFT(kernel)                                                                               \
    {                                                                                              \
        LEFT_FORM, TT_BINARY_##kernel, 0, 0                                                        \
    }
#define RIGHT(kernel)                                                                              \
    {                                                                                              \
        RIGHT_FORM, TT_BINARY_##kernel, 0, 0                                                       \
    }
#define SLOPE(p, q)                                                                                \
    {                                                                                              \
        SLOPE_FORM, 0, p, q                                                                        \
    }
#define BY_NUMBER(kernel)                                                                          \
    {                                                                                              \
        BY_NUMBER_FORM, TT_BINARY_##kernel, 0, 0                                                   \
    }
#define BY_INPUT(kernel)                                                                           \
    {                                                                                              \
        BY_INPUT_FORM, TT_BINARY_##kernel, 0, 0                                                    \
    }
#define BY_BOTH(kernel)                                                                            \
    {                                                                                              \
        BY_BOTH_FORM, TT_TERNARY_##kernel, 0, 0                                                    \
    }

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const scalar_t *op = call->op->family;
    const double *value = call->params;
    TT_TRY(tutti_op_infer_same(call, outputs));
    if (op->types == NUMBERS && outputs->dtype == TUTTI_BOOL) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "bool is no number: cast it first");
    }
    outputs->dtype = op->types == FLOATS ? tt_float_of(outputs->dtype)
                                         : tt_promote_number(outputs->dtype, *value);
    return tt_check_number(call, outputs->dtype, *value);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const scalar_t *op = call->op->family;
    const double v = *(const double *)call->params;
    tutti_tensor_t *y = call->outputs[0];
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tt_strided_t out = tt_tensor_strided(y), x = tt_tensor_strided(call->inputs[0]);
    const tt_strided_t number = tt_number(v, y->dtype, y->shape);
    const tt_binary_t kind = (tt_binary_t)op->forward.kind;
    if (op->forward.form == LEFT_FORM) {
        TT_TRY(tt_map_binary(exec, kind, (tt_map_params_t){0}, &out, &number, &x));
    } else if (op->forward.form == RIGHT_FORM) {
        TT_TRY(tt_map_binary(exec, kind, (tt_map_params_t){0}, &out, &x, &number));
    } else {
        const tt_map_params_t affine = {op->forward.p, op->forward.q * v}, own = {v, 0};
        TT_TRY(tt_map_unary(exec, (tt_unary_t)op->forward.kind,
                            op->forward.form == AFFINE_FORM ? affine : own, &out, &x));
    }
    const bool is_kept = op->backward.form >= BY_INPUT_FORM;
    return is_kept ? tutti_op_save(call, call->inputs[0]) : TUTTI_OK;
}

/* g times a number. */
static tutti_tensor_t *scaled(tutti_scope_t *s, tutti_tensor_t *g, double factor, tt_map_to_t to)
{
    to.params = (tt_map_params_t){factor, 0};
    return factor == 1 ? g : tt_new_unary(s, TT_UNARY_AFFINE, to, g);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const scalar_t *op = call->op->family;
    const double v = *(const double *)call->params;
    tutti_tensor_t *g = call->grad_outputs[0];
    const tt_map_to_t to = {call->inputs[0].dtype, call->inputs[0].shape, {v, 0}};
    if (op->backward.form == SLOPE_FORM) {
        call->grads[0] = scaled(call->scope, g, op->backward.p + op->backward.q * v, to);
        return TUTTI_OK;
    }
    if (op->backward.form == BY_INPUT_FORM) {
        call->grads[0] =
            tt_new_binary(call->scope, (tt_binary_t)op->backward.kind, to, g, call->saved[0]);
        return TUTTI_OK;
    }
    tutti_tensor_t *dx = tutti_empty(call->scope, to.dtype, to.shape);
    TT_TRY(dx->status);
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tt_strided_t out = tt_tensor_strided(dx), dy = tt_tensor_strided(g);
    const tt_strided_t number = tt_number(v, to.dtype, to.shape);
    if (op->backward.form == BY_NUMBER_FORM) {
        TT_TRY(tt_map_binary(exec, (tt_binary_t)op->backward.kind, to.params, &out, &dy, &number));
    } else {
        const tt_strided_t x = tt_tensor_strided(call->saved[0]);
        TT_TRY(tt_map_ternary(exec, (tt_ternary_t)op->backward.kind, to.params, &out, &dy, &number,
                              &x));
    }
    call->grads[0] = dx;
    return TUTTI_OK;
}

/* The same, recorded. */
static tutti_status_t grad(tutti_op_backward_t *call)
{
    const scalar_t *op = call->op->family;
    const double v = *(const double *)call->params, slope = op->backward.p + op->backward.q * v;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = call->grad_outputs[0], *x;
    switch (op->backward.form) {
    case SLOPE_FORM:
        call->grads[0] = slope == 1 ? g : tutti_mul_scalar(s, g, slope);
        return TUTTI_OK;
    case BY_NUMBER_FORM:
        call->grads[0] = tutti_div_scalar(s, g, v);
        return TUTTI_OK;
    case BY_INPUT_FORM:
        if (v != 0) {
            x = tutti_pow_scalar(s, tt_wide(s, call->saved[0]), v - 1);
            call->grads[0] = tutti_mul(s, tt_wide(s, g), tutti_mul_scalar(s, x, v));
        }
        return TUTTI_OK;
    default:
        x = tt_wide(s, call->saved[0]);
        x = tutti_div(s, tutti_scalar_div(s, v, x), x);
        call->grads[0] = tutti_neg(s, tutti_mul(s, tt_wide(s, g), x));
        return TUTTI_OK;
    }
}

#define X(id, accepted, cast, forth, back, formula)                                                \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .params_bytes = sizeof(double),                                                            \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = backward,                                                                      \
        .grad = grad,                                                                              \
        .family = &(const scalar_t){accepted, forth, back},                                        \
    };
#include "compute/op/math/scalar.def"
#undef X

static tutti_tensor_t *run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *x, double value)
{
    return tutti_op_run(s, op, &x, 1, &value);
}

tutti_tensor_t *tutti_neg(tutti_scope_t *s, tutti_tensor_t *x)
{
    return run(s, &tt_op_neg, x, 0);
}

tutti_tensor_t *tutti_add_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value)
{
    return run(s, &tt_op_add_scalar, x, value);
}

tutti_tensor_t *tutti_sub_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value)
{
    return run(s, &tt_op_sub_scalar, x, value);
}

tutti_tensor_t *tutti_scalar_sub(tutti_scope_t *s, double value, tutti_tensor_t *x)
{
    return run(s, &tt_op_scalar_sub, x, value);
}

tutti_tensor_t *tutti_mul_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value)
{
    return run(s, &tt_op_mul_scalar, x, value);
}

tutti_tensor_t *tutti_div_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value)
{
    return run(s, &tt_op_div_scalar, x, value);
}

tutti_tensor_t *tutti_scalar_div(tutti_scope_t *s, double value, tutti_tensor_t *x)
{
    return run(s, &tt_op_scalar_div, x, value);
}

tutti_tensor_t *tutti_pow_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value)
{
    return run(s, &tt_op_pow_scalar, x, value);
}
