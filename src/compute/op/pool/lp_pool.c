/* lp_pool1d, lp_pool2d, lp_pool3d: the mean of powers, times the window, and its root. Source:
 * op_volume.h. */
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/op_volume.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/math/flat_power.h"

typedef tutti_tensor_t *(*pool_t)(tutti_scope_t *s, tutti_tensor_t *x,
                                  const tutti_avg_pool_options_t *options);

static tutti_tensor_t *lp_pool(tutti_scope_t *s, tutti_tensor_t *x,
                               const tutti_lp_pool_options_t *options, int dims, pool_t pool)
{
    tutti_lp_pool_options_t o = {.p = 0};
    tutti_avg_pool_options_t means = {.kernel = {0}};
    double elements = 1;
    if (options != NULL) {
        o = *options;
    }
    for (int i = 0; i < dims; i++) {
        means.kernel[i] = o.kernel[i];
        means.stride[i] = o.stride[i];
        elements *= (double)o.kernel[i];
    }
    means.ceil_mode = o.ceil_mode;
    tutti_status_t status = tt_tensor_status(x);
    if (status >= 0 && o.p == 0) {
        status = TT_FAIL(TUTTI_ERR_ARG, "lp_pool%dd: p must not be 0", dims);
    }
    if (status >= 0 && !tutti_dtype_is_float(x->dtype)) {
        status = TT_FAIL(TUTTI_ERR_DTYPE, "lp_pool%dd: x must be of a floating dtype, not %s", dims,
                         tutti_dtype_name(x->dtype));
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *y = pool(s, tutti_pow_scalar(s, tt_wide(s, x), o.p), &means);
    y = tt_flat_power(s, tutti_mul_scalar(s, y, elements), 1 / o.p);
    return tutti_cast(s, y, x->dtype);
}

tutti_tensor_t *tutti_lp_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                const tutti_lp_pool_options_t *options)
{
    return lp_pool(s, x, options, 1, tutti_avg_pool1d);
}

tutti_tensor_t *tutti_lp_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                const tutti_lp_pool_options_t *options)
{
    return lp_pool(s, x, options, 2, tutti_avg_pool2d);
}

tutti_tensor_t *tutti_lp_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                const tutti_lp_pool_options_t *options)
{
    return lp_pool(s, x, options, 3, tutti_avg_pool3d);
}
