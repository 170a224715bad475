/* affine_grid: theta (x, y, z, 1) as a sum of columns of theta times coordinates, each of which
 * lies along one dimension.
 *
 *     [N, 2] × x [W'] + ([N, 2] × y [H', 1] + [N, 2])  ->  [N, 2, H', W']  ->  [N, H', W', 2]
 *
 * The largest sum is the only one of the grid's size. Cost and source: op_sample.h. */
#include <tutti/op_math.h>
#include <tutti/op_sample.h>
#include <tutti/op_shape.h>

#include "compute/op/math/elementwise.h"

static tutti_status_t check(const tutti_tensor_t *theta, tutti_shape_t size)
{
    char text[96];
    TT_TRY(tt_tensor_status(theta));
    const int dims = size.rank - 2;
    bool is_right = (dims == 2 || dims == 3) &&
                    tutti_shape_equal(theta->shape, TUTTI_SHAPE(size.dims[0], dims, dims + 1));
    for (int i = 0; i < size.rank; i++) {
        is_right = is_right && size.dims[i] > 0;
    }
    if (!is_right) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "affine_grid: theta must be [N, 2, 3] for a size [N, C, H, W], or [N, 3, 4] "
                       "for [N, C, D, H, W], all at least 1: %s",
                       tutti_tensor_describe(theta, text, sizeof text));
    }
    if (!tutti_dtype_is_float(theta->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "affine_grid: theta must be of a floating dtype: %s",
                       tutti_tensor_describe(theta, text, sizeof text));
    }
    return TUTTI_OK;
}

/* From -1 to 1: n middles, or with the ends. */
static tutti_tensor_t *coordinates(tutti_scope_t *s, tutti_dtype_t dtype, int64_t n,
                                   bool align_corners)
{
    const double step = !align_corners ? 2 / (double)n : n > 1 ? 2 / (double)(n - 1) : 0;
    const double first = -step * (double)(n - 1) / 2;
    return tutti_arange(s, dtype, first, step, n);
}

/* A column of theta [N, dims], as [N, dims, 1, 1(, 1)]. */
static tutti_tensor_t *column(tutti_scope_t *s, tutti_tensor_t *theta, int dims, int64_t k)
{
    tutti_shape_t shape = {.rank = dims + 2, .dims = {theta->shape.dims[0], dims, 1, 1, 1}};
    return tutti_reshape(s, tutti_select(s, theta, 2, k), shape);
}

tutti_tensor_t *tutti_affine_grid(tutti_scope_t *s, tutti_tensor_t *theta, tutti_shape_t size,
                                  bool align_corners)
{
    const tutti_status_t status = check(theta, size);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const int dims = size.rank - 2;
    const tutti_dtype_t dtype = theta->dtype;
    theta = tt_wide(s, theta);
    if (tt_tensor_status(theta) < 0) {
        return theta;
    }
    tutti_tensor_t *grid = column(s, theta, dims, dims);
    for (int k = dims - 1; k >= 0; k--) { /* depth first, the width last */
        tutti_shape_t shape = {.rank = dims, .dims = {1, 1, 1}};
        shape.dims[dims - 1 - k] = -1;
        tutti_tensor_t *along =
            coordinates(s, theta->dtype, size.dims[size.rank - 1 - k], align_corners);
        along = tutti_mul(s, column(s, theta, dims, k), tutti_reshape(s, along, shape));
        grid = tutti_add(s, grid, along);
    }
    const tutti_dims_t order = {.count = dims + 2, .dims = {0, 2, 3, dims == 3 ? 4 : 1, 1}};
    return tutti_contiguous(s, tutti_cast(s, tutti_permute(s, grid, order), dtype));
}
