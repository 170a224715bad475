/* max_unpool1d, max_unpool2d, max_unpool3d: planes of zeros, with x at its indices.
 *
 *     x, indices [N, C, L...] -> [N C, L] -> scatter_along -> [N C, L'] -> y [N, C, L'...]
 *
 * Source: op_volume.h. */
#include <tutti/op_index.h>
#include <tutti/op_shape.h>
#include <tutti/op_volume.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

static const char *const names[] = {NULL, "max_unpool1d", "max_unpool2d", "max_unpool3d"};

static tutti_status_t check_tensors(const tutti_tensor_t *x, const tutti_tensor_t *indices,
                                    int dims)
{
    char a[96], b[96];
    TT_TRY(tt_tensor_status(x));
    TT_TRY(tt_tensor_status(indices));
    if ((x->shape.rank == dims + 1 || x->shape.rank == dims + 2) &&
        tutti_shape_equal(x->shape, indices->shape)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_SHAPE,
                   "%s: x must have %d or %d dimensions, and the indices its shape: %s and %s",
                   names[dims], dims + 1, dims + 2, tutti_tensor_describe(x, a, sizeof a),
                   tutti_tensor_describe(indices, b, sizeof b));
}

/* The size of y in a dimension: the one given, or the least that gives `size` windows. */
static tutti_status_t find_size(const tutti_max_unpool_options_t *o, int dims, int i, int64_t size,
                                int64_t *y)
{
    if (o->size[i] < 0 || o->stride[i] < 0 || o->padding[i] < 0 ||
        (o->size[i] == 0 && o->kernel[i] < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: kernel %lld must be at least 1; stride %lld, padding %lld and size "
                       "%lld not negative",
                       names[dims], (long long)o->kernel[i], (long long)o->stride[i],
                       (long long)o->padding[i], (long long)o->size[i]);
    }
    const int64_t stride = o->stride[i] == 0 ? o->kernel[i] : o->stride[i];
    *y = o->size[i] != 0 ? o->size[i] : (size - 1) * stride - 2 * o->padding[i] + o->kernel[i];
    return *y >= 1 ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_SHAPE, "%s: y would have the size %lld", names[dims],
                             (long long)*y);
}

/* [N, C, L...] as [N C, L]. */
static tutti_shape_t rows_of(tutti_shape_t shape, int dims)
{
    tutti_shape_t rows = TUTTI_SHAPE(1, 1);
    for (int i = 0; i < shape.rank; i++) {
        rows.dims[i >= shape.rank - dims] *= shape.dims[i];
    }
    return rows;
}

static tutti_tensor_t *max_unpool(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *indices,
                                  const tutti_max_unpool_options_t *options, int dims)
{
    static const tutti_max_unpool_options_t none = {.kernel = {0}};
    const tutti_max_unpool_options_t *o = options == NULL ? &none : options;
    tutti_status_t status = check_tensors(x, indices, dims);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_shape_t shape = x->shape;
    for (int i = 0; i < dims && status >= 0; i++) {
        int64_t *size = &shape.dims[shape.rank - dims + i];
        status = find_size(o, dims, i, *size, size);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const tutti_shape_t from = rows_of(x->shape, dims);
    tutti_tensor_t *y = tutti_zeros(s, x->dtype, shape);
    y = tutti_reshape(s, y, rows_of(shape, dims));
    y = tutti_scatter_along(s, y, 1, tutti_reshape(s, indices, from), tutti_reshape(s, x, from));
    return tutti_reshape(s, y, shape);
}

tutti_tensor_t *tutti_max_unpool1d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *indices,
                                   const tutti_max_unpool_options_t *options)
{
    return max_unpool(s, x, indices, options, 1);
}

tutti_tensor_t *tutti_max_unpool2d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *indices,
                                   const tutti_max_unpool_options_t *options)
{
    return max_unpool(s, x, indices, options, 2);
}

tutti_tensor_t *tutti_max_unpool3d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *indices,
                                   const tutti_max_unpool_options_t *options)
{
    return max_unpool(s, x, indices, options, 3);
}
