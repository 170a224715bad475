/* pixel_shuffle, pixel_unshuffle, channel_shuffle: views, permuted. Source: op_feature.h. */
#include <tutti/op_feature.h>
#include <tutti/op_shape.h>

#include "compute/autograd/op_call.h"

static tutti_tensor_t *refuse(tutti_scope_t *s, const char *name, const tutti_tensor_t *x,
                              const char *rule, int64_t number)
{
    char text[160];
    return tutti_scope_fail(s, TT_FAIL(number < 1 ? TUTTI_ERR_ARG : TUTTI_ERR_SHAPE,
                                       "%s: %s: %lld: %s", name, rule, (long long)number,
                                       tutti_tensor_describe(x, text, sizeof text)));
}

/* All dimensions but the last three as one: [rows, C, H, W]. */
static tutti_shape_t rows_of(tutti_shape_t shape)
{
    tutti_shape_t out = {.rank = 4, .dims = {1}};
    for (int i = 0; i < shape.rank - 3; i++) {
        out.dims[0] *= shape.dims[i];
    }
    for (int i = 0; i < 3; i++) {
        out.dims[1 + i] = shape.dims[shape.rank - 3 + i];
    }
    return out;
}

static tutti_tensor_t *with_planes(tutti_scope_t *s, tutti_tensor_t *y, tutti_shape_t shape,
                                   const int64_t planes[3])
{
    for (int i = 0; i < 3; i++) {
        shape.dims[shape.rank - 3 + i] = planes[i];
    }
    return tutti_reshape(s, y, shape);
}

tutti_tensor_t *tutti_pixel_shuffle(tutti_scope_t *s, tutti_tensor_t *x, int64_t factor)
{
    static const char name[] = "pixel_shuffle";
    tutti_status_t status = tt_tensor_status(x);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const int64_t r = factor;
    if (r < 1 || r > INT32_MAX) {
        return refuse(s, name, x, "the factor must be from 1 to 2^31 - 1", r < 1 ? r : 0);
    }
    if (x->shape.rank < 3 || x->shape.dims[x->shape.rank - 3] % (r * r) != 0) {
        return refuse(s, name, x, "x must be [..., C r r, H, W] for this r", r);
    }
    const tutti_shape_t rows = rows_of(x->shape);
    const int64_t n = rows.dims[0], c = rows.dims[1] / (r * r), h = rows.dims[2], w = rows.dims[3];
    tutti_tensor_t *y = tutti_reshape(s, x, TUTTI_SHAPE(n, c, r, r, h, w));
    y = tutti_permute(s, y, TUTTI_DIMS(0, 1, 4, 2, 5, 3));
    return with_planes(s, y, x->shape, (const int64_t[]){c, h * r, w * r});
}

tutti_tensor_t *tutti_pixel_unshuffle(tutti_scope_t *s, tutti_tensor_t *x, int64_t factor)
{
    static const char name[] = "pixel_unshuffle";
    tutti_status_t status = tt_tensor_status(x);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const int64_t r = factor;
    if (r < 1 || r > INT32_MAX) {
        return refuse(s, name, x, "the factor must be from 1 to 2^31 - 1", r < 1 ? r : 0);
    }
    const tutti_shape_t rows = x->shape.rank < 3 ? TUTTI_SHAPE(1, 1, 1, 1) : rows_of(x->shape);
    if (x->shape.rank < 3 || rows.dims[2] % r != 0 || rows.dims[3] % r != 0) {
        return refuse(s, name, x, "x must be [..., C, H r, W r] for this r", r);
    }
    const int64_t n = rows.dims[0], c = rows.dims[1], h = rows.dims[2] / r, w = rows.dims[3] / r;
    tutti_tensor_t *y = tutti_reshape(s, x, TUTTI_SHAPE(n, c, h, r, w, r));
    y = tutti_permute(s, y, TUTTI_DIMS(0, 1, 3, 5, 2, 4));
    return with_planes(s, y, x->shape, (const int64_t[]){c * r * r, h, w});
}

tutti_tensor_t *tutti_channel_shuffle(tutti_scope_t *s, tutti_tensor_t *x, int64_t groups)
{
    const tutti_status_t status = tt_tensor_status(x);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (groups < 1 || x->shape.rank < 2 || x->shape.dims[1] % groups != 0) {
        return refuse(s, "channel_shuffle", x,
                      "x must be [N, C, ...], C a multiple of these groups", groups);
    }
    const tutti_shape_t shape = x->shape;
    int64_t rest = 1;
    for (int i = 2; i < shape.rank; i++) {
        rest *= shape.dims[i];
    }
    tutti_tensor_t *y =
        tutti_reshape(s, x, TUTTI_SHAPE(shape.dims[0], groups, shape.dims[1] / groups, rest));
    return tutti_reshape(s, tutti_transpose(s, y, 1, 2), shape);
}
