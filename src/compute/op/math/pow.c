/* pow: one tensor to the power of another. It stands apart from other arithmetic, since the
 * gradient of its gradient takes a logarithm, whose gradient is made by arithmetic. */
#include <tutti/op_math.h>

#include "compute/op/math/arithmetic.h"
#include "compute/op/ops.h"

/* dy b a^(b-1), 0 where b = 0 */
static tutti_tensor_t *base_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *a,
                                 tutti_tensor_t *b)
{
    tutti_tensor_t *slope = tutti_mul(s, b, tutti_pow(s, a, tutti_sub_scalar(s, b, 1)));
    return tutti_masked_fill(s, tutti_mul(s, g, slope), tutti_eq_scalar(s, b, 0), 0);
}

/* dy a^b ln a, 0 where a = 0 and b ≥ 0 */
static tutti_tensor_t *exponent_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *a,
                                     tutti_tensor_t *b)
{
    tutti_tensor_t *is_flat =
        tutti_logical_and(s, tutti_eq_scalar(s, a, 0), tutti_ge_scalar(s, b, 0));
    tutti_tensor_t *zero = tutti_zeros(s, g->dtype, TUTTI_SCALAR);
    tutti_tensor_t *log_a =
        tutti_log(s, tutti_where(s, is_flat, tutti_ones(s, a->dtype, TUTTI_SCALAR), a));
    tutti_tensor_t *slope = tutti_mul(s, tutti_pow(s, a, b), log_a);
    return tutti_where(s, is_flat, zero, tutti_mul(s, g, slope));
}

static tutti_status_t grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = tt_wide(s, call->grad_outputs[0]);
    tutti_tensor_t *a = tt_wide(s, call->saved[0]), *b = tt_wide(s, call->saved[1]);
    if (call->wanted[0]) {
        call->grads[0] = tutti_sum_to(s, base_grad(s, g, a, b), call->inputs[0].shape);
    }
    if (call->wanted[1]) {
        call->grads[1] = tutti_sum_to(s, exponent_grad(s, g, a, b), call->inputs[1].shape);
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_pow = {
    .name = "pow",
    .about = "y = a^b; da = dy b a^(b-1), db = dy y ln a",
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = tt_arithmetic_infer,
    .forward = tt_arithmetic_forward,
    .backward = tt_arithmetic_backward,
    .grad = grad,
    .family = &(const tt_arithmetic_t){TT_BINARY_POW,
                                       FLOATS,
                                       {{FIRST_FORM, TT_TERNARY_POW_BACKWARD_A},
                                        {FIRST_FORM, TT_TERNARY_POW_BACKWARD_B}}},
};

tutti_tensor_t *tutti_pow(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b)
{
    return tutti_op_run(s, &tt_op_pow, (tutti_tensor_t *[]){a, b}, 2, NULL);
}
