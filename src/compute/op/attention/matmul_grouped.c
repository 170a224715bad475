/* Products of many heads with matrices that groups of them share. See matmul_grouped.h. */
#include "compute/op/attention/matmul_grouped.h"

#include <tutti/op_math.h>
#include <tutti/op_shape.h>

tutti_tensor_t *tt_matmul_grouped(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y)
{
    const tutti_shape_t a = tutti_tensor_shape(x), b = tutti_tensor_shape(y);
    if (a.rank != 4 || b.rank != 4 || a.dims[1] == b.dims[1]) { /* or one of them failed */
        return tutti_matmul(s, x, y);
    }
    const int64_t group = b.dims[1] == 0 ? 1 : a.dims[1] / b.dims[1];
    x = tutti_reshape(s, x, TUTTI_SHAPE(a.dims[0], b.dims[1], group * a.dims[2], a.dims[3]));
    return tutti_reshape(s, tutti_matmul(s, x, y),
                         TUTTI_SHAPE(a.dims[0], a.dims[1], a.dims[2], b.dims[3]));
}
