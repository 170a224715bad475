/* Indices as inputs: i64 or i32, which kernels see as contiguous i64. */
#include "compute/op/shape/index_input.h"

#include <tutti/op_shape.h>

tutti_status_t tt_op_check_index(const tutti_op_call_t *call)
{
    const tutti_dtype_t dtype = call->inputs[1]->dtype;
    if (dtype != TUTTI_I64 && dtype != TUTTI_I32) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the index must be i64 or i32");
    }
    return TUTTI_OK;
}

tutti_status_t tt_op_prepare_index(tutti_op_call_t *call, tutti_tensor_t **out)
{
    tutti_tensor_t *index = tutti_cast(call->scope, call->inputs[1], TUTTI_I64);
    *out = tutti_contiguous(call->scope, index);
    TT_TRY((*out)->status);
    return tutti_op_save_copy(call, *out, 1);
}
