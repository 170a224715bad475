/* What element-wise operations share: kernels on tensors, and numbers as operands. */
#ifndef TT_ELEMENTWISE_H
#define TT_ELEMENTWISE_H

#include <tutti/op_math.h>

#include "compute/autograd/op_call.h"
#include "core/kernel/elementwise/map.h"

/* `value` as an operand, repeated to a shape, in the type that leaves computing with x (of this
 * dtype) as it is. */
tt_strided_t tt_number(double value, tutti_dtype_t dtype, tutti_shape_t shape);

/* `value` as a floating dtype holds it: what a tensor of it is compared with. Whole dtypes leave it
 * as it is. */
double tt_rounded_number(double value, tutti_dtype_t dtype);

/* An integer dtype gives f32, a floating one itself. */
tutti_dtype_t tt_float_of(tutti_dtype_t dtype);

/* The dtype that floats are added up in. */
static inline tutti_dtype_t tt_sum_dtype(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
}

/* x in that dtype, recorded: for gradients of several operations, which 16 bits would round often.
 */
tutti_tensor_t *tt_wide(tutti_scope_t *s, tutti_tensor_t *x);

/* The dtype of x and a number: x's (i64 for bool), or f32 where x is whole and the number is not.
 */
tutti_dtype_t tt_promote_number(tutti_dtype_t dtype, double value);

/* The integers that a dtype holds without gaps. */
void tt_whole_range(tutti_dtype_t dtype, int64_t *lowest, int64_t *highest);

/* ARG: the result's dtype is one of integers that does not hold the number. A negative one wraps in
 * u8, as in torch. */
tutti_status_t tt_check_number(const tutti_op_call_t *call, tutti_dtype_t dtype, double value);

/* The forward of a function of one tensor: its output, element by element. */
tutti_status_t tt_forward_unary(tutti_op_call_t *call, tt_unary_t kind);

/* New tensors of a shape and dtype in a scope; operands are broadcast to it. The null tensor after
 * a failure. */
typedef struct {
    tutti_dtype_t dtype;
    tutti_shape_t shape;
    tt_map_params_t params;
} tt_map_to_t;

tutti_tensor_t *tt_new_unary(tutti_scope_t *s, tt_unary_t kind, tt_map_to_t to, tutti_tensor_t *x);
tutti_tensor_t *tt_new_binary(tutti_scope_t *s, tt_binary_t kind, tt_map_to_t to, tutti_tensor_t *a,
                              tutti_tensor_t *b);
tutti_tensor_t *tt_new_ternary(tutti_scope_t *s, tt_ternary_t kind, tt_map_to_t to,
                               tutti_tensor_t *const operands[3]);

/* The gradient of gelu(x), recorded. */
tutti_tensor_t *tt_gelu_grad(tutti_scope_t *s, tutti_tensor_t *g, tutti_tensor_t *x,
                             tutti_gelu_t formula);

#endif
