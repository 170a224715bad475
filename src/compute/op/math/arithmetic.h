/* What operations on two tensors that broadcast share (arithmetic.c). */
#ifndef TT_ARITHMETIC_H
#define TT_ARITHMETIC_H

#include "compute/op/math/elementwise.h"

/* What an operation is: its kernel, what it accepts, and how the gradients of the operands are made
 * from the incoming one. */
typedef struct {
    tt_binary_t kind;
    enum { FLOATS, NUMBERS, ANY } types;
    struct {
        enum { SAME_FORM, NEGATIVE_FORM, BINARY_FORM, FIRST_FORM, SECOND_FORM } form;
        int kind; /* tt_binary_t of BINARY_FORM, tt_ternary_t of the last two */
    } slopes[2];
} tt_arithmetic_t;

tutti_status_t tt_arithmetic_infer(const tutti_op_call_t *call, tutti_spec_t *outputs);
tutti_status_t tt_arithmetic_forward(tutti_op_call_t *call);
tutti_status_t tt_arithmetic_backward(tutti_op_backward_t *call);

#endif
