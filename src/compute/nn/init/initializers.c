/* Initial values by name. Values are made in f32, one after the other, in the order of the indices,
 * and copied where x is of another dtype or layout, or of a device. */
#include <tutti/nn.h>

#include <math.h>

#include "compute/nn/init/initializers.h"
#include "compute/nn/module_impl.h"
#include "core/base/default.h"
#include "core/kernel/random/random.h"
#include "core/tensor/tensor_impl.h"

/* ---- writing --------------------------------------------------------------------------------- */

tutti_status_t tt_init_check(const tutti_tensor_t *x, const char *name, int rank)
{
    char text[160];
    TT_TRY(tt_tensor_check(x));
    if (!tutti_dtype_is_float(x->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: want a floating dtype, not %s", name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (x->shape.rank < rank) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: want at least %d dimensions, not %s", name, rank,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    return TUTTI_OK;
}

tutti_status_t tt_init_borrow(tutti_tensor_t *x, tutti_tensor_t **out)
{
    if (x->dtype == TUTTI_F32 && x->storage->device == NULL && tutti_tensor_is_contiguous(x)) {
        *out = tutti_tensor_retain(x);
        return TUTTI_OK;
    }
    return tt_tensor_new(NULL, TUTTI_F32, x->shape, false, out);
}

tutti_status_t tt_init_give_back(tutti_tensor_t *x, tutti_tensor_t *values)
{
    tutti_status_t status = TUTTI_OK;
    if (values == x) {
        tt_tensor_touch(x);
    } else {
        status = tutti_tensor_copy(x, values);
    }
    tutti_tensor_release(values);
    return status;
}

void tt_init_bound(const tutti_tensor_t *x, const tutti_tensor_t *values, double low, double high,
                   bool has_high)
{
    const tutti_dtype_t dtype = x->dtype == TUTTI_F64 ? TUTTI_F32 : x->dtype;
    const double least = tt_float_from(dtype, low);
    const double most = has_high ? -tt_float_from(dtype, -high) : tt_float_below(dtype, high);
    float *data = tutti_tensor_data(values);
    for (int64_t i = 0; i < x->numel && least <= most; i++) {
        data[i] = (float)fmin(fmax((double)data[i], least), most);
    }
}

static tutti_status_t make_bounded(tutti_context_t *ctx, tutti_tensor_t *x,
                                   const tt_initializer_t *init)
{
    tutti_tensor_t *values;
    TT_TRY(tt_init_borrow(x, &values));
    const tutti_status_t status = tt_init_fill(ctx, values, init);
    if (status < 0) {
        tutti_tensor_release(values);
        return status;
    }
    if ((tutti_init_kind_t)init->numbers[2] == TUTTI_INIT_UNIFORM) {
        tt_init_bound(x, values, init->numbers[0], init->numbers[1], false);
    }
    return tt_init_give_back(x, values);
}

static tutti_status_t fill(tutti_context_t *ctx, tutti_tensor_t *x, tutti_init_t kind)
{
    tt_initializer_t init = tt_init_filler(ctx, kind);
    init.run = make_bounded;
    return tt_init_run(ctx, x, init);
}

/* ---- plain ----------------------------------------------------------------------------------- */

tutti_status_t tutti_init_constant(tutti_tensor_t *x, double value)
{
    TT_TRY(tt_init_check(x, "init_constant", 0));
    return tutti_tensor_fill(x, value);
}

static tutti_status_t make_eye(tutti_context_t *ctx, tutti_tensor_t *x,
                               const tt_initializer_t *init)
{
    tutti_tensor_t *values;
    (void)ctx;
    (void)init;
    TT_TRY(tt_init_borrow(x, &values));
    float *data = tutti_tensor_data(values);
    const int64_t columns = x->shape.dims[1];
    for (int64_t i = 0; i < x->numel; i++) {
        data[i] = i / columns == i % columns ? 1.0F : 0.0F;
    }
    return tt_init_give_back(x, values);
}

tutti_status_t tutti_init_eye(tutti_tensor_t *x)
{
    TT_TRY(tt_init_check(x, "init_eye", 2));
    if (x->shape.rank != 2) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "init_eye: want a matrix, not %d dimensions",
                       x->shape.rank);
    }
    return tt_init_run(NULL, x, (tt_initializer_t){.run = make_eye});
}

tutti_status_t tutti_init_uniform(tutti_context_t *ctx, tutti_tensor_t *x, double low, double high)
{
    TT_TRY(tt_init_check(x, "init_uniform", 0));
    if (!(low <= high)) {
        return TT_FAIL(TUTTI_ERR_ARG, "init_uniform: nothing lies between %g and %g", low, high);
    }
    return fill(ctx, x, (tutti_init_t){TUTTI_INIT_UNIFORM, low, high});
}

tutti_status_t tutti_init_normal(tutti_context_t *ctx, tutti_tensor_t *x, double mean, double std)
{
    TT_TRY(tt_init_check(x, "init_normal", 0));
    if (!(std >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "init_normal: the standard deviation %g is negative", std);
    }
    return fill(ctx, x, (tutti_init_t){TUTTI_INIT_NORMAL, mean, std});
}

/* ---- by the fans ----------------------------------------------------------------------------- */

double tutti_init_gain(tutti_nonlinearity_t nonlinearity, double slope)
{
    switch (nonlinearity) {
    case TUTTI_NONLINEARITY_LEAKY_RELU:
        return sqrt(2 / (1 + slope * slope));
    case TUTTI_NONLINEARITY_RELU:
        return sqrt(2);
    case TUTTI_NONLINEARITY_TANH:
        return 5.0 / 3;
    case TUTTI_NONLINEARITY_SELU:
        return 0.75;
    case TUTTI_NONLINEARITY_LINEAR:
        break;
    }
    return 1;
}

static double fan_of(const tutti_tensor_t *x, bool is_out)
{
    double fan = (double)x->shape.dims[is_out ? 0 : 1];
    for (int i = 2; i < x->shape.rank; i++) {
        fan *= (double)x->shape.dims[i];
    }
    return fan;
}

/* Without elements there is nothing to draw, and perhaps no fan to divide by. */
static double over(double value, double fan)
{
    return fan > 0 ? value / fan : 0;
}

tutti_status_t tutti_init_xavier_uniform(tutti_context_t *ctx, tutti_tensor_t *x, double gain)
{
    TT_TRY(tt_init_check(x, "init_xavier_uniform", 2));
    const double bound = tt_or_default(gain, 1) * sqrt(over(6, fan_of(x, false) + fan_of(x, true)));
    return fill(ctx, x, (tutti_init_t){TUTTI_INIT_UNIFORM, -bound, bound});
}

tutti_status_t tutti_init_xavier_normal(tutti_context_t *ctx, tutti_tensor_t *x, double gain)
{
    TT_TRY(tt_init_check(x, "init_xavier_normal", 2));
    const double std = tt_or_default(gain, 1) * sqrt(over(2, fan_of(x, false) + fan_of(x, true)));
    return fill(ctx, x, (tutti_init_t){TUTTI_INIT_NORMAL, 0, std});
}

/* gain / √fan */
static double kaiming_deviation(const tutti_tensor_t *x, const tutti_kaiming_options_t *options)
{
    const tutti_kaiming_options_t o = options == NULL ? (tutti_kaiming_options_t){0} : *options;
    return tutti_init_gain(o.nonlinearity, o.slope) * sqrt(over(1, fan_of(x, o.fan_out)));
}

tutti_status_t tutti_init_kaiming_uniform(tutti_context_t *ctx, tutti_tensor_t *x,
                                          const tutti_kaiming_options_t *options)
{
    TT_TRY(tt_init_check(x, "init_kaiming_uniform", 2));
    const double bound = sqrt(3) * kaiming_deviation(x, options);
    return fill(ctx, x, (tutti_init_t){TUTTI_INIT_UNIFORM, -bound, bound});
}

tutti_status_t tutti_init_kaiming_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                         const tutti_kaiming_options_t *options)
{
    TT_TRY(tt_init_check(x, "init_kaiming_normal", 2));
    return fill(ctx, x, (tutti_init_t){TUTTI_INIT_NORMAL, 0, kaiming_deviation(x, options)});
}
