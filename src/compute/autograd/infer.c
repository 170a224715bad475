/* Shape rules that several operations share, and type promotion. */
#include "compute/autograd/op_call.h"

tutti_status_t tutti_op_infer_same(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    if (call->input_count < 1 || call->inputs[0] == NULL) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "want a first input");
    }
    outputs[0] = (tutti_spec_t){call->inputs[0]->dtype, call->inputs[0]->shape};
    return TUTTI_OK;
}

tutti_status_t tutti_op_infer_same_float(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same(call, outputs));
    return tutti_dtype_is_float(outputs->dtype)
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_DTYPE, "want a floating dtype");
}

tutti_dtype_t tutti_op_promote(tutti_dtype_t a, tutti_dtype_t b)
{
    /* In order of precedence; two different 16-bit floats, and i8 with u8, need a wider type. */
    static const tutti_dtype_t order[] = {TUTTI_F64, TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_I64,
                                          TUTTI_I32, TUTTI_I8,  TUTTI_U8,   TUTTI_BOOL};
    if (a == b) {
        return a;
    }
    if ((a == TUTTI_BF16 && b == TUTTI_F16) || (a == TUTTI_F16 && b == TUTTI_BF16)) {
        return TUTTI_F32;
    }
    if ((a == TUTTI_I8 && b == TUTTI_U8) || (a == TUTTI_U8 && b == TUTTI_I8)) {
        return TUTTI_I32;
    }
    for (size_t i = 0;; i++) {
        if (order[i] == a || order[i] == b) {
            return order[i];
        }
    }
}

tutti_status_t tutti_op_broadcast_shapes(const char *op, tutti_shape_t a, tutti_shape_t b,
                                         tutti_shape_t *out)
{
    tutti_shape_t wide = a.rank >= b.rank ? a : b;
    const tutti_shape_t narrow = a.rank >= b.rank ? b : a;
    const int added = wide.rank - narrow.rank;
    for (int i = 0; i < narrow.rank; i++) {
        int64_t *dim = &wide.dims[i + added];
        if (*dim == 1) {
            *dim = narrow.dims[i];
        } else if (narrow.dims[i] != 1 && narrow.dims[i] != *dim) {
            char first[160], second[160];
            return TT_FAIL(TUTTI_ERR_SHAPE,
                           "%s: shapes %s and %s do not broadcast: dimension %d must be equal "
                           "or 1",
                           op, tutti_shape_format(a, first, sizeof first),
                           tutti_shape_format(b, second, sizeof second), i - narrow.rank);
        }
    }
    *out = wide;
    return TUTTI_OK;
}

tutti_status_t tutti_op_infer_broadcast(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same(call, outputs));
    for (int i = 1; i < call->input_count; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        if (x == NULL) {
            continue;
        }
        outputs->dtype = tutti_op_promote(outputs->dtype, x->dtype);
        TT_TRY(
            tutti_op_broadcast_shapes(call->op->name, outputs->shape, x->shape, &outputs->shape));
    }
    return TUTTI_OK;
}
