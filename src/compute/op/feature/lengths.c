/* normalize, local_response_norm. Source: op_feature.h. */
#include <tutti/op_conv.h>
#include <tutti/op_feature.h>
#include <tutti/op_math.h>
#include <tutti/op_pad.h>
#include <tutti/op_reduce.h>

#include <float.h>
#include <math.h>

#include "compute/op/feature/lengths.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/math/flat_power.h"
#include "core/base/default.h"

static tutti_tensor_t *root_of(tutti_scope_t *s, tutti_tensor_t *sum, double p)
{
    return p == 1 ? sum : p == 2 ? tutti_sqrt(s, sum) : tutti_pow_scalar(s, sum, 1 / p);
}

/* At least eps. A root is bounded before it is taken, for at 0 it has no slope; or, where the bound
 * is too small for the dtype, it is taken of 1 instead of 0. */
static tutti_tensor_t *bounded_root(tutti_scope_t *s, tutti_tensor_t *sum, double p, double eps)
{
    const double bound = p == 2 ? eps * eps : pow(eps, p);
    const double least = tutti_tensor_dtype(sum) == TUTTI_F64 ? DBL_MIN : (double)FLT_MIN;
    if (bound >= least) {
        return root_of(s, tutti_clamp(s, sum, bound, (double)INFINITY), p);
    }
    tutti_tensor_t *is_zero = tutti_eq_scalar(s, sum, 0);
    return tutti_masked_fill(s, root_of(s, tutti_masked_fill(s, sum, is_zero, 1), p), is_zero, eps);
}

tutti_tensor_t *tt_length_of(tutti_scope_t *s, tutti_tensor_t *x, double p, int dim, double eps)
{
    const tutti_dims_t dims = TUTTI_DIMS(dim);
    if (p == 2) {
        return bounded_root(s, tutti_sum_over(s, tutti_square(s, x), dims, true), p, eps);
    }
    x = tutti_abs(s, x);
    if (isinf(p)) {
        return tutti_clamp(s, tutti_max_over(s, x, dims, true), eps, (double)INFINITY);
    }
    tutti_tensor_t *sum = tutti_sum_over(s, tt_flat_power(s, x, p), dims, true);
    return bounded_root(s, sum, p, eps);
}

tutti_tensor_t *tutti_normalize(tutti_scope_t *s, tutti_tensor_t *x, double p, int dim, double eps)
{
    tutti_status_t status = tt_tensor_status(x);
    if (status >= 0 && !(p > 0)) {
        status = TT_FAIL(TUTTI_ERR_ARG, "normalize: p must be above 0, not %g", p);
    }
    if (status >= 0 && !tutti_dtype_is_float(x->dtype)) {
        status = TT_FAIL(TUTTI_ERR_DTYPE, "normalize: x must be of a floating dtype, not %s",
                         tutti_dtype_name(x->dtype));
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *wide = tt_wide(s, x);
    return tutti_cast(s, tutti_div(s, wide, tt_length_of(s, wide, p, dim, eps)), x->dtype);
}

/* Means of x² over neighbouring channels. */
static tutti_tensor_t *energy_of(tutti_scope_t *s, tutti_tensor_t *x, int64_t size)
{
    const tutti_shape_t shape = tutti_tensor_shape(x);
    int64_t rest = 1;
    for (int i = 2; i < shape.rank; i++) {
        rest *= shape.dims[i];
    }
    tutti_tensor_t *squares =
        tutti_reshape(s, tutti_square(s, x), TUTTI_SHAPE(shape.dims[0], 1, shape.dims[1], rest));
    squares =
        tutti_pad(s, squares, TUTTI_PADDING(0, 0, size / 2, (size - 1) / 2), TUTTI_PAD_CONSTANT, 0);
    const tutti_avg_pool_options_t window = {.kernel = {size, 1}, .stride = {1, 1}};
    return tutti_reshape(s, tutti_avg_pool2d(s, squares, &window), shape);
}

tutti_tensor_t *tutti_local_response_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                          const tutti_local_response_options_t *options)
{
    tutti_status_t status = tt_tensor_status(x);
    if (status >= 0 && (options == NULL || options->size < 1 || options->size > INT32_MAX)) {
        status =
            TT_FAIL(TUTTI_ERR_ARG, "local_response_norm: the size must be at least 1, not %lld",
                    options == NULL ? 0LL : (long long)options->size);
    }
    if (status >= 0 && (x->shape.rank < 3 || !tutti_dtype_is_float(x->dtype))) {
        status = TT_FAIL(TUTTI_ERR_SHAPE, "local_response_norm: x must be floating, [N, C, ...]");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (x->numel == 0) {
        return x;
    }
    tutti_tensor_t *wide = tt_wide(s, x), *energy = energy_of(s, wide, options->size);
    energy = tutti_mul_scalar(s, energy, tt_or_default(options->alpha, 1e-4));
    energy = tutti_add_scalar(s, energy, tt_or_default(options->k, 1));
    energy = tutti_pow_scalar(s, energy, tt_or_default(options->beta, 0.75));
    return tutti_cast(s, tutti_div(s, wide, energy), x->dtype);
}
