/* Kernels on tensors: operands are broadcast by strides of 0, so that nothing is copied. */
#include "compute/op/math/elementwise.h"

#include <math.h>

#include "compute/autograd/cast.h"
#include "core/kernel/elementwise/convert.h"

/* Whether a 64-bit integer holds it. */
static bool is_whole(double value)
{
    return fabs(value) < 0x1p63 && value == nearbyint(value);
}

tutti_dtype_t tt_float_of(tutti_dtype_t dtype)
{
    return tutti_dtype_is_float(dtype) ? dtype : TUTTI_F32;
}

tutti_tensor_t *tt_wide(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tt_cast(s, x, tt_sum_dtype(x->dtype));
}

tutti_dtype_t tt_promote_number(tutti_dtype_t dtype, double value)
{
    if (tutti_dtype_is_float(dtype)) {
        return dtype;
    }
    if (!is_whole(value)) {
        return TUTTI_F32;
    }
    return dtype == TUTTI_BOOL ? TUTTI_I64 : dtype;
}

void tt_whole_range(tutti_dtype_t dtype, int64_t *lowest, int64_t *highest)
{
    static const struct {
        int64_t lowest, highest;
    } ranges[TUTTI_DTYPE_COUNT] = {
        [TUTTI_F32] = {-(1 << 24), 1 << 24},
        [TUTTI_F64] = {-(INT64_C(1) << 53), INT64_C(1) << 53},
        [TUTTI_BF16] = {-(1 << 8), 1 << 8},
        [TUTTI_F16] = {-(1 << 11), 1 << 11},
        [TUTTI_I64] = {INT64_MIN, INT64_MAX},
        [TUTTI_I32] = {INT32_MIN, INT32_MAX},
        [TUTTI_I8] = {INT8_MIN, INT8_MAX},
        [TUTTI_U8] = {0, UINT8_MAX},
        [TUTTI_BOOL] = {0, 1},
    };
    *lowest = ranges[dtype].lowest;
    *highest = ranges[dtype].highest;
}

tutti_status_t tt_check_number(const tutti_op_call_t *call, tutti_dtype_t dtype, double value)
{
    int64_t lowest, highest;
    tt_whole_range(dtype, &lowest, &highest);
    const double most = (double)highest, least = dtype == TUTTI_U8 ? -most : (double)lowest;
    return tutti_dtype_is_float(dtype) || (value >= least && value <= most)
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_ARG, "%s does not hold %.17g",
                               tutti_dtype_name(dtype), value);
}

tt_strided_t tt_number(double value, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tt_strided_t x = {.rank = shape.rank};
    for (int i = 0; i < shape.rank; i++) {
        x.shape[i] = shape.dims[i];
    }
    if (tutti_dtype_is_float(dtype) && dtype != TUTTI_F64) {
        x.dtype = TUTTI_F32;
        x.number.f32 = (float)value;
    } else if (dtype == TUTTI_F64 || !is_whole(value)) {
        x.dtype = TUTTI_F64;
        x.number.f64 = value;
    } else {
        x.dtype = TUTTI_I64;
        x.number.i64 = (int64_t)value;
    }
    return x;
}

double tt_rounded_number(double value, tutti_dtype_t dtype)
{
    if (tutti_dtype_is_float(dtype)) {
        double held;
        tt_convert_from(TT_CLASS_F64, dtype)(&held, &value, 1);
        tt_convert_to(TT_CLASS_F64, dtype)(&value, &held, 1);
    }
    return value;
}

/* y, or the null tensor where the kernel that makes it could not be launched. */
static tutti_tensor_t *launched(tutti_scope_t *s, tutti_tensor_t *y, tutti_status_t status)
{
    return status < 0 ? tutti_scope_fail(s, status) : y;
}

tutti_status_t tt_forward_unary(tutti_op_call_t *call, tt_unary_t kind)
{
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]),
                       x = tt_tensor_strided(call->inputs[0]);
    return tt_map_unary(tt_scope_exec(call->scope), kind, (tt_map_params_t){0}, &out, &x);
}

tutti_tensor_t *tt_new_unary(tutti_scope_t *s, tt_unary_t kind, tt_map_to_t to, tutti_tensor_t *x)
{
    tutti_tensor_t *y = tutti_empty(s, to.dtype, to.shape);
    if (y->status >= 0) {
        const tt_strided_t out = tt_tensor_strided(y), in = tt_tensor_strided_as(x, to.shape);
        return launched(s, y, tt_map_unary(tt_scope_exec(s), kind, to.params, &out, &in));
    }
    return y;
}

tutti_tensor_t *tt_new_binary(tutti_scope_t *s, tt_binary_t kind, tt_map_to_t to, tutti_tensor_t *a,
                              tutti_tensor_t *b)
{
    tutti_tensor_t *y = tutti_empty(s, to.dtype, to.shape);
    if (y->status >= 0) {
        const tt_strided_t out = tt_tensor_strided(y), first = tt_tensor_strided_as(a, to.shape),
                           second = tt_tensor_strided_as(b, to.shape);
        return launched(s, y,
                        tt_map_binary(tt_scope_exec(s), kind, to.params, &out, &first, &second));
    }
    return y;
}

tutti_tensor_t *tt_new_ternary(tutti_scope_t *s, tt_ternary_t kind, tt_map_to_t to,
                               tutti_tensor_t *const operands[3])
{
    tutti_tensor_t *y = tutti_empty(s, to.dtype, to.shape);
    if (y->status >= 0) {
        const tt_strided_t out = tt_tensor_strided(y);
        tt_strided_t in[3];
        for (int i = 0; i < 3; i++) {
            in[i] = tt_tensor_strided_as(operands[i], to.shape);
        }
        return launched(
            s, y, tt_map_ternary(tt_scope_exec(s), kind, to.params, &out, &in[0], &in[1], &in[2]));
    }
    return y;
}
