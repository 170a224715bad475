/* Functions of one tensor, each a line of unary.def: y = f(x), dx = k(dy, x or y).
 *
 * One pass forward, one backward; what the gradient needs (the input or the result) is shared, not
 * copied. For relu that is the result, which the next operation usually keeps anyway.
 */
#include <tutti/op_math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

typedef enum { FLOATS, NUMBERS } types_t;
typedef enum { INPUT, RESULT } kept_t;

typedef struct {
    tt_unary_t kind;
    types_t types;
    tt_binary_t backward;
    kept_t kept;
    tutti_tensor_t *(*grad)(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *kept);
} unary_t;

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const unary_t *unary = call->op->family;
    TT_TRY(tutti_op_infer_same(call, outputs));
    if (unary->types == FLOATS) {
        outputs->dtype = tt_float_of(outputs->dtype);
    } else if (outputs->dtype == TUTTI_BOOL) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "bool is no number: cast it first");
    }
    return TUTTI_OK;
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const unary_t *unary = call->op->family;
    TT_TRY(tt_forward_unary(call, unary->kind));
    return tutti_op_save(call, unary->kept == INPUT ? call->inputs[0] : call->outputs[0]);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const unary_t *unary = call->op->family;
    const tt_map_to_t to = {call->inputs[0].dtype, call->inputs[0].shape, {0, 0}};
    call->grads[0] =
        tt_new_binary(call->scope, unary->backward, to, call->grad_outputs[0], call->saved[0]);
    return TUTTI_OK;
}

/* ---- the gradient, recorded: from g and x or y ----------------------------------------------- */

static tutti_tensor_t *abs_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    const tt_map_to_t to = {x->dtype, x->shape, {0, 0}};
    tutti_tensor_t *one = tutti_ones(s, x->dtype, TUTTI_SCALAR);
    return one->status < 0 ? one
                           : tutti_mul(s, g, tt_new_binary(s, TT_BINARY_ABS_BACKWARD, to, one, x));
}

static tutti_tensor_t *relu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *y)
{
    return tutti_where(s, tutti_le_scalar(s, y, 0), tutti_zeros(s, g->dtype, TUTTI_SCALAR), g);
}

static tutti_tensor_t *square_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    return tutti_mul(s, g, tutti_mul_scalar(s, x, 2));
}

static tutti_tensor_t *sqrt_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *y)
{
    return tutti_div(s, g, tutti_mul_scalar(s, y, 2));
}

static tutti_tensor_t *rsqrt_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *y)
{
    g = tutti_mul_scalar(s, g, -0.5);
    return tutti_mul(s, tutti_mul(s, tutti_mul(s, g, y), y), y);
}

static tutti_tensor_t *log1p_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    return tutti_div(s, g, tutti_add_scalar(s, x, 1));
}

static tutti_tensor_t *expm1_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *y)
{
    return tutti_mul(s, g, tutti_add_scalar(s, y, 1));
}

static tutti_tensor_t *sin_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    return tutti_mul(s, g, tutti_cos(s, x));
}

static tutti_tensor_t *cos_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    return tutti_neg(s, tutti_mul(s, g, tutti_sin(s, x)));
}

/* e^(-x²) times a factor. */
static tutti_tensor_t *bell(tutti_scope_t *s, tutti_tensor_t *x, double factor)
{
    return tutti_mul_scalar(s, tutti_exp(s, tutti_neg(s, tutti_square(s, x))), factor);
}

static tutti_tensor_t *erf_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    return tutti_mul(s, g, bell(s, x, 1.1283791670955126));
}

static tutti_tensor_t *tanh_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *y)
{
    return tutti_mul(s, g, tutti_scalar_sub(s, 1, tutti_square(s, y)));
}

static tutti_tensor_t *sigmoid_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *y)
{
    return tutti_mul(s, g, tutti_mul(s, y, tutti_scalar_sub(s, 1, y)));
}

static tutti_tensor_t *silu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    tutti_tensor_t *sigma = tutti_sigmoid(s, x), *rest = tutti_scalar_sub(s, 1, sigma);
    tutti_tensor_t *slope = tutti_add_scalar(s, tutti_mul(s, x, rest), 1);
    return tutti_mul(s, g, tutti_mul(s, sigma, slope));
}

/* Φ(x) + x φ(x) */
static tutti_tensor_t *gelu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    tutti_tensor_t *scaled = tutti_mul_scalar(s, x, 0.70710678118654752);
    tutti_tensor_t *below =
        tutti_add_scalar(s, tutti_mul_scalar(s, tutti_erf(s, scaled), 0.5), 0.5);
    tutti_tensor_t *density = bell(s, scaled, 0.39894228040143268);
    return tutti_mul(s, g, tutti_add(s, below, tutti_mul(s, x, density)));
}

/* With t = tanh(u), u = √(2/π) (x + 0.044715 x³): (1 + t)/2 + x (1 - t²) u' / 2 */
static tutti_tensor_t *gelu_tanh_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x)
{
    const double root = 0.79788456080286536, cubic = 0.044715;
    tutti_tensor_t *xx = tutti_square(s, x);
    tutti_tensor_t *inner = tutti_add_scalar(s, tutti_mul_scalar(s, xx, root * cubic), root);
    tutti_tensor_t *t = tutti_tanh(s, tutti_mul(s, x, inner));
    tutti_tensor_t *rise = tutti_add_scalar(s, tutti_mul_scalar(s, xx, 3 * root * cubic), root);
    rise = tutti_mul(s, tutti_mul(s, x, rise), tutti_scalar_sub(s, 1, tutti_square(s, t)));
    tutti_tensor_t *twice = tutti_add(s, tutti_add_scalar(s, t, 1), rise);
    return tutti_mul(s, g, tutti_mul_scalar(s, twice, 0.5));
}

tutti_tensor_t *tt_gelu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                             tutti_gelu_t formula)
{
    g = tt_wide(s, g);
    x = tt_wide(s, x);
    return formula == TUTTI_GELU_ERF ? gelu_grad(s, g, x) : gelu_tanh_grad(s, g, x);
}

static tutti_status_t grad(tutti_op_backward_t *call)
{
    const unary_t *unary = call->op->family;
    tutti_scope_t *s = call->scope;
    call->grads[0] = unary->grad(s, tt_wide(s, call->grad_outputs[0]), tt_wide(s, call->saved[0]));
    return TUTTI_OK;
}

#define X(id, kernel, accepted, cast, gradient, keep, recorded, formula)                           \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = backward,                                                                      \
        .grad = grad,                                                                              \
        .family =                                                                                  \
            &(const unary_t){TT_UNARY_##kernel, accepted, TT_BINARY_##gradient, keep, recorded},   \
    };
#include "compute/op/math/unary.def"
#undef X

#define X(id, ...)                                                                                 \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *x)                                \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, &x, 1, NULL);                                          \
    }
#include "compute/op/math/unary.def"
#undef X

const tutti_op_t tt_op_gelu = {
    .name = "gelu",
    .about = "y = x Φ(x); dx = dy (Φ(x) + x φ(x))",
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = grad,
    .family = &(const unary_t){TT_UNARY_GELU, FLOATS, TT_BINARY_GELU_BACKWARD, INPUT, gelu_grad},
};

const tutti_op_t tt_op_gelu_tanh = {
    .name = "gelu_tanh",
    .about = "y = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))); dx = dy times its slope",
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = grad,
    .family = &(const unary_t){TT_UNARY_GELU_TANH, FLOATS, TT_BINARY_GELU_TANH_BACKWARD, INPUT,
                               gelu_tanh_grad},
};

tutti_tensor_t *tutti_gelu(tutti_scope_t *s, tutti_tensor_t *x, tutti_gelu_t formula)
{
    if (formula != TUTTI_GELU_ERF && formula != TUTTI_GELU_TANH) {
        return tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_ARG, "gelu: formula %d: want TUTTI_GELU_ERF or TUTTI_GELU_TANH",
                       (int)formula));
    }
    return tutti_op_run(s, formula == TUTTI_GELU_ERF ? &tt_op_gelu : &tt_op_gelu_tanh, &x, 1, NULL);
}
