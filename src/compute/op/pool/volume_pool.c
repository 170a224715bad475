/* max_pool3d, avg_pool3d and the adaptive ones: windows over planes first, then over depth, where a
 * plane is the width. Extremes and means of boxes are those of their sides; indices and divisors
 * are put together. Source: op_volume.h. */
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/op_volume.h>

#include "compute/op/math/elementwise.h"

/* A volume as planes [N C, D, H, W], and its sizes. */
typedef struct {
    tutti_tensor_t *planes;
    tutti_shape_t shape;
    int64_t count, depth, plane; /* N C, D, H W */
} volume_t;

static tutti_status_t check_volume(const char *name, const tutti_tensor_t *x)
{
    char text[160];
    TT_TRY(tt_tensor_status(x));
    if (x->shape.rank != 4 && x->shape.rank != 5) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: x must be [N, C, D, H, W] or [C, D, H, W]: %s", name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (!tutti_dtype_is_float(x->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: x must be of a floating dtype: %s", name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    for (int i = x->shape.rank - 4; i < x->shape.rank; i++) {
        if (x->shape.dims[i] < 1) {
            return TT_FAIL(TUTTI_ERR_SHAPE, "%s: only N may be 0: %s", name,
                           tutti_tensor_describe(x, text, sizeof text));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t take_volume(tutti_scope_t *s, const char *name, tutti_tensor_t *x,
                                  volume_t *v)
{
    TT_TRY(check_volume(name, x));
    const int64_t *size = x->shape.dims + x->shape.rank - 3;
    v->shape = x->shape;
    v->count = x->shape.dims[0] * (x->shape.rank == 5 ? x->shape.dims[1] : 1);
    v->depth = size[0];
    v->plane = size[1] * size[2];
    v->planes = tutti_reshape(s, x, TUTTI_SHAPE(v->count, size[0], size[1], size[2]));
    return TUTTI_OK;
}

/* Planes [N C, D, h, w] with depth as height and their elements as width. */
static tutti_tensor_t *upright(tutti_scope_t *s, const volume_t *v, tutti_tensor_t *planes)
{
    const int64_t plane = tutti_tensor_dim(planes, -2) * tutti_tensor_dim(planes, -1);
    return tutti_reshape(s, planes, TUTTI_SHAPE(v->count, 1, v->depth, plane));
}

/* [N C, 1, D', h w] as volumes; h and w are those of the planes. */
static tutti_tensor_t *as_volume(tutti_scope_t *s, const volume_t *v, tutti_tensor_t *y,
                                 const tutti_tensor_t *planes)
{
    tutti_shape_t shape = v->shape;
    if (tt_tensor_status(y) < 0 || tt_tensor_status(planes) < 0) {
        return y;
    }
    shape.dims[shape.rank - 3] = y->shape.dims[2];
    shape.dims[shape.rank - 2] = planes->shape.dims[2];
    shape.dims[shape.rank - 1] = planes->shape.dims[3];
    return tutti_reshape(s, y, shape);
}

/* ---- maxima ---------------------------------------------------------------------------------- */

/* Where the maxima are in their volumes: place of the plane's maximum, which `along` chose. -1
 * where a window has no element, as of planes. */
static tutti_tensor_t *places(tutti_scope_t *s, const volume_t *v, tutti_tensor_t *in_planes,
                              tutti_tensor_t *along)
{
    tutti_tensor_t *first = tutti_arange(s, TUTTI_I64, 0, 1, v->depth);
    first = tutti_mul_scalar(s, first, (double)v->plane);
    first = tutti_reshape(s, first, TUTTI_SHAPE(1, v->depth, 1, 1));
    tutti_tensor_t *at = tutti_flatten(s, along, 1, -1);
    tutti_tensor_t *is_empty = tutti_lt_scalar(s, at, 0);
    tutti_tensor_t *all = tutti_flatten(s, tutti_add(s, in_planes, first), 1, -1);
    all = tutti_gather_along(s, all, 1, tutti_masked_fill(s, at, is_empty, 0));
    return tutti_masked_fill(s, all, is_empty, -1);
}

typedef struct {
    const tutti_pool_options_t *options; /* NULL: adaptive */
    const int64_t *size;
} windows_t;

static tutti_tensor_t *max_of_planes(tutti_scope_t *s, tutti_tensor_t *x, const windows_t *w,
                                     tutti_tensor_t **at)
{
    if (w->options == NULL) {
        return tutti_adaptive_max_pool2d(s, x, w->size[1], w->size[2], at);
    }
    tutti_pool_options_t o = *w->options;
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = o.kernel[i + 1];
        o.stride[i] = o.stride[i + 1];
        o.padding[i] = o.padding[i + 1];
        o.dilation[i] = o.dilation[i + 1];
    }
    return tutti_max_pool2d(s, x, &o, at);
}

static tutti_tensor_t *max_of_depth(tutti_scope_t *s, tutti_tensor_t *x, const windows_t *w,
                                    tutti_tensor_t **at)
{
    if (w->options == NULL) {
        return tutti_adaptive_max_pool2d(s, x, w->size[0], 0, at);
    }
    const tutti_pool_options_t *from = w->options;
    const tutti_pool_options_t o = {.kernel = {from->kernel[0], 1},
                                    .stride = {from->stride[0], 1},
                                    .padding = {from->padding[0]},
                                    .dilation = {from->dilation[0], 1},
                                    .ceil_mode = from->ceil_mode};
    return tutti_max_pool2d(s, x, &o, at);
}

static tutti_tensor_t *max_of(tutti_scope_t *s, const char *name, tutti_tensor_t *x,
                              const windows_t *w, tutti_tensor_t **indices)
{
    volume_t v;
    tutti_tensor_t *in_planes = NULL, *along = NULL;
    const tutti_status_t status = take_volume(s, name, x, &v);
    if (status < 0) {
        tutti_tensor_t *null = tutti_scope_fail(s, status);
        if (indices != NULL) {
            *indices = null;
        }
        return null;
    }
    tutti_tensor_t *planes = max_of_planes(s, v.planes, w, indices == NULL ? NULL : &in_planes);
    tutti_tensor_t *y = max_of_depth(s, upright(s, &v, planes), w, indices == NULL ? NULL : &along);
    if (indices != NULL) {
        *indices = as_volume(
            s, &v, tutti_reshape(s, places(s, &v, in_planes, along), tutti_tensor_shape(along)),
            planes);
    }
    return as_volume(s, &v, y, planes);
}

tutti_tensor_t *tutti_max_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_pool_options_t *options, tutti_tensor_t **indices)
{
    static const tutti_pool_options_t none = {.kernel = {0}};
    return max_of(s, "max_pool3d", x, &(windows_t){options == NULL ? &none : options, NULL},
                  indices);
}

tutti_tensor_t *tutti_adaptive_max_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                          const int64_t size[3], tutti_tensor_t **indices)
{
    return max_of(s, "adaptive_max_pool3d", x, &(windows_t){NULL, size}, indices);
}

/* ---- means of means, rounded to 16 bits once ------------------------------------------------ */

static tutti_tensor_t *mean_of_planes(tutti_scope_t *s, tutti_tensor_t *x,
                                      const tutti_avg_pool_options_t *from)
{
    tutti_avg_pool_options_t o = {.ceil_mode = from->ceil_mode,
                                  .excludes_padding = from->excludes_padding,
                                  .divisor = from->divisor == 0 ? 0 : 1};
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = from->kernel[i + 1];
        o.stride[i] = from->stride[i + 1];
        o.padding[i] = from->padding[i + 1];
    }
    return tutti_avg_pool2d(s, x, &o);
}

static tutti_tensor_t *mean_of_depth(tutti_scope_t *s, tutti_tensor_t *x,
                                     const tutti_avg_pool_options_t *from)
{
    const tutti_avg_pool_options_t o = {.kernel = {from->kernel[0], 1},
                                        .stride = {from->stride[0], 1},
                                        .padding = {from->padding[0]},
                                        .ceil_mode = from->ceil_mode,
                                        .excludes_padding = from->excludes_padding,
                                        .divisor = from->divisor};
    return tutti_avg_pool2d(s, x, &o);
}

tutti_tensor_t *tutti_avg_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_avg_pool_options_t *options)
{
    static const tutti_avg_pool_options_t none = {.kernel = {0}};
    const tutti_avg_pool_options_t *o = options == NULL ? &none : options;
    volume_t v;
    const tutti_status_t status = take_volume(s, "avg_pool3d", x, &v);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *planes = mean_of_planes(s, tt_wide(s, v.planes), o);
    tutti_tensor_t *y = mean_of_depth(s, upright(s, &v, planes), o);
    return tutti_cast(s, as_volume(s, &v, y, planes), x->dtype);
}

tutti_tensor_t *tutti_adaptive_avg_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                          const int64_t size[3])
{
    volume_t v;
    const tutti_status_t status = take_volume(s, "adaptive_avg_pool3d", x, &v);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *planes = tutti_adaptive_avg_pool2d(s, tt_wide(s, v.planes), size[1], size[2]);
    tutti_tensor_t *y = tutti_adaptive_avg_pool2d(s, upright(s, &v, planes), size[0], 0);
    return tutti_cast(s, as_volume(s, &v, y, planes), x->dtype);
}
