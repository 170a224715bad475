/* rrelu, gumbel_softmax: activations whose numbers are drawn, made of other operations. Source:
 * op_activation.h. */
#include <tutti/autograd.h>
#include <tutti/op_activation.h>
#include <tutti/op_index.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>

#include <math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

static tutti_status_t check_float(const char *name, const tutti_tensor_t *x)
{
    TT_TRY(tt_tensor_status(x));
    return tutti_dtype_is_float(x->dtype)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_DTYPE, "%s: x must be of a floating dtype, not %s", name,
                         tutti_dtype_name(x->dtype));
}

static tutti_tensor_t *uniform_beside(tutti_scope_t *s, const tutti_tensor_t *x,
                                      tutti_dtype_t dtype, double low, double high)
{
    const tt_place_t before = tt_context_enter_beside(s->ctx, x);
    tutti_tensor_t *u = tutti_uniform(s, dtype, x->shape, low, high);
    s->ctx->place = before;
    return u;
}

/* ---- rrelu ----------------------------------------------------------------------------------- */

static tutti_status_t check_bounds(double lower, double upper)
{
    return isfinite(lower) && isfinite(upper) && lower <= upper
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "rrelu: no slopes lie between %g and %g", lower, upper);
}

tutti_tensor_t *tutti_rrelu(tutti_scope_t *s, tutti_tensor_t *x, double lower, double upper)
{
    tutti_status_t status = check_float("rrelu", x);
    if (status >= 0) {
        status = check_bounds(lower, upper);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (!s->ctx->is_training) {
        return tutti_leaky_relu(s, x, (lower + upper) / 2);
    }
    tutti_tensor_t *slopes = uniform_beside(s, x, tt_sum_dtype(x->dtype), lower, upper);
    return tutti_op_run(s, &tt_op_prelu, (tutti_tensor_t *[]){x, slopes}, 2, NULL);
}

/* ---- gumbel_softmax -------------------------------------------------------------------------- */

/* -log(-log u): u is never 0 nor 1, so that all are finite. */
static tutti_tensor_t *gumbels(tutti_scope_t *s, const tutti_tensor_t *x)
{
    tutti_tensor_t *u = uniform_beside(s, x, x->dtype, 0x1p-25, 1);
    return tutti_neg(s, tutti_log(s, tutti_neg(s, tutti_log(s, u))));
}

/* 1 at the largest, with the gradient of the softmax: what is added to ones and zeros is 0. */
static tutti_tensor_t *harden(tutti_scope_t *s, tutti_tensor_t *soft, int dim)
{
    tutti_tensor_t *index = tutti_argmax(s, soft, dim, true);
    const tt_place_t before = tt_context_enter_beside(s->ctx, soft);
    tutti_tensor_t *ones = tutti_ones(s, soft->dtype, index->shape);
    tutti_tensor_t *hard =
        tutti_scatter_along(s, tutti_zeros(s, soft->dtype, soft->shape), dim, index, ones);
    s->ctx->place = before;
    return tutti_add(s, hard, tutti_sub(s, soft, tutti_detach(s, soft)));
}

tutti_tensor_t *tutti_gumbel_softmax(tutti_scope_t *s, tutti_tensor_t *x, double tau, bool is_hard,
                                     int dim)
{
    tutti_status_t status = check_float("gumbel_softmax", x);
    if (status >= 0 && !(tau > 0)) {
        status = TT_FAIL(TUTTI_ERR_ARG, "gumbel_softmax: tau must be above 0, not %g", tau);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *wide = tt_wide(s, x);
    wide = tutti_div_scalar(s, tutti_add(s, wide, gumbels(s, wide)), tau);
    tutti_tensor_t *soft = tutti_softmax(s, wide, dim);
    return tutti_cast(s, is_hard ? harden(s, soft, dim) : soft, x->dtype);
}
