/* bilinear: x and the weight as one product, then y with each row of it. Source: op_feature.h. */
#include <tutti/op_feature.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/autograd/op_call.h"
#include "compute/op/linear/dense.h"

static tutti_status_t check(const tutti_tensor_t *x, const tutti_tensor_t *y,
                            const tutti_tensor_t *weight)
{
    char a[160], b[160], c[160];
    TT_TRY(tt_tensor_status(x));
    TT_TRY(tt_tensor_status(y));
    TT_TRY(tt_tensor_status(weight));
    const int rank = x->shape.rank;
    bool is_good = rank >= 1 && y->shape.rank == rank && weight->shape.rank == 3 &&
                   x->shape.dims[rank - 1] == weight->shape.dims[1] &&
                   y->shape.dims[rank - 1] == weight->shape.dims[2];
    for (int i = 0; is_good && i < rank - 1; i++) {
        is_good = x->shape.dims[i] == y->shape.dims[i];
    }
    return is_good ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_SHAPE,
                             "bilinear: x must be [..., I], y [..., J], weight [O, I, J]: %s, %s "
                             "and %s",
                             tutti_tensor_describe(x, a, sizeof a),
                             tutti_tensor_describe(y, b, sizeof b),
                             tutti_tensor_describe(weight, c, sizeof c));
}

tutti_tensor_t *tutti_bilinear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                               tutti_tensor_t *weight, tutti_tensor_t *bias)
{
    const tutti_status_t status = check(x, y, weight);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_shape_t shape = x->shape;
    const int last = shape.rank - 1;
    const int64_t *sizes = weight->shape.dims, rows = tt_row_count(shape);
    const int64_t o = sizes[0], i = sizes[1], j = sizes[2];
    /* [I, O J], so that the product is [rows, O, J] */
    tutti_tensor_t *flat =
        tutti_reshape(s, tutti_transpose(s, weight, 0, 1), TUTTI_SHAPE(i, o * j));
    tutti_tensor_t *product = tutti_matmul(s, tutti_reshape(s, x, TUTTI_SHAPE(rows, i)), flat);
    product = tutti_matmul(s, tutti_reshape(s, product, TUTTI_SHAPE(rows, o, j)),
                           tutti_reshape(s, y, TUTTI_SHAPE(rows, j, 1)));
    shape.dims[last] = o;
    product = tutti_reshape(s, product, shape);
    return bias == NULL ? product : tutti_add(s, product, bias);
}
