/* dropout1d, dropout2d, dropout3d, alpha_dropout, feature_alpha_dropout: a mask of ones that
 * tutti_dropout() makes, of one number for each channel or element. Source: op_feature.h. */
#include <tutti/op_feature.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include <math.h>

#include "compute/op/math/elementwise.h"

/* Where x is neither changed nor refused. */
static bool is_kept(const tutti_scope_t *s, float p)
{
    return p == 0 || !s->ctx->is_training;
}

static tutti_status_t check(const char *name, const tutti_tensor_t *x, float p)
{
    TT_TRY(tt_tensor_status(x));
    if (!(p >= 0 && p <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: p must be in [0, 1], not %g", name, (double)p);
    }
    return tutti_dtype_is_float(x->dtype)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_DTYPE, "%s: x must be of a floating dtype, not %s", name,
                         tutti_dtype_name(x->dtype));
}

/* Ones with zeros among them, and what is left divided by 1 - p. */
static tutti_tensor_t *mask_of(tutti_scope_t *s, const tutti_tensor_t *x, tutti_shape_t shape,
                               float p)
{
    const tt_place_t before = tt_context_enter_beside(s->ctx, x);
    tutti_tensor_t *mask = tutti_dropout(s, tutti_ones(s, tt_sum_dtype(x->dtype), shape), p);
    s->ctx->place = before;
    return mask;
}

/* One number for each of the first `kept` dimensions. */
static tutti_shape_t channels_of(tutti_shape_t shape, int kept)
{
    for (int i = kept; i < shape.rank; i++) {
        shape.dims[i] = 1;
    }
    return shape;
}

/* ---- whole channels -------------------------------------------------------------------------- */

static tutti_tensor_t *drop_channels(tutti_scope_t *s, const char *name, tutti_tensor_t *x, float p,
                                     int dims)
{
    tutti_status_t status = check(name, x, p);
    if (status >= 0 && x->shape.rank != dims + 1 && x->shape.rank != dims + 2) {
        status = TT_FAIL(TUTTI_ERR_SHAPE, "%s: x must have %d or %d dimensions, not %d", name,
                         dims + 1, dims + 2, x->shape.rank);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (is_kept(s, p)) {
        return x;
    }
    tutti_tensor_t *mask = mask_of(s, x, channels_of(x->shape, x->shape.rank - dims), p);
    return tutti_cast(s, tutti_mul(s, x, mask), x->dtype);
}

tutti_tensor_t *tutti_dropout1d(tutti_scope_t *s, tutti_tensor_t *x, float p)
{
    return drop_channels(s, "dropout1d", x, p, 1);
}

tutti_tensor_t *tutti_dropout2d(tutti_scope_t *s, tutti_tensor_t *x, float p)
{
    return drop_channels(s, "dropout2d", x, p, 2);
}

tutti_tensor_t *tutti_dropout3d(tutti_scope_t *s, tutti_tensor_t *x, float p)
{
    return drop_channels(s, "dropout3d", x, p, 3);
}

/* ---- SELU's ---------------------------------------------------------------------------------- */

static const double selu_limit = 1.7580993408473766; /* λ α */

static tutti_tensor_t *drop_to_limit(tutti_scope_t *s, tutti_tensor_t *x, float p,
                                     tutti_shape_t shape)
{
    if (p == 1) {
        return tutti_mul_scalar(s, x, 0);
    }
    const double q = (double)p, kept = 1 - q;
    const double scale = 1 / sqrt(kept * (1 + selu_limit * selu_limit * q));
    tutti_tensor_t *mask = tutti_mul_scalar(s, mask_of(s, x, shape, p), kept); /* 0 and 1 */
    tutti_tensor_t *shift =
        tutti_mul_scalar(s, tutti_add_scalar(s, mask, q - 1), scale * selu_limit);
    tutti_tensor_t *y = tutti_mul(s, x, tutti_mul_scalar(s, mask, scale));
    return tutti_cast(s, tutti_add(s, y, shift), x->dtype);
}

tutti_tensor_t *tutti_alpha_dropout(tutti_scope_t *s, tutti_tensor_t *x, float p)
{
    const tutti_status_t status = check("alpha_dropout", x, p);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    return is_kept(s, p) ? x : drop_to_limit(s, x, p, x->shape);
}

tutti_tensor_t *tutti_feature_alpha_dropout(tutti_scope_t *s, tutti_tensor_t *x, float p)
{
    tutti_status_t status = check("feature_alpha_dropout", x, p);
    if (status >= 0 && x->shape.rank < 2) {
        status = TT_FAIL(TUTTI_ERR_SHAPE, "feature_alpha_dropout: x must be [N, C, ...]");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    return is_kept(s, p) ? x : drop_to_limit(s, x, p, channels_of(x->shape, 2));
}
