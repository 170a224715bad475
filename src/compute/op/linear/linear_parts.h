/* The parts of linear and linear_gelu, for operations that are one of them and communicate: inputs,
 * what is saved and how parameters begin are the same. */
#ifndef TT_LINEAR_PARTS_H
#define TT_LINEAR_PARTS_H

#include "compute/autograd/op_call.h"
#include "core/kernel/matmul/matmul.h"

/* Inputs; x and weight are saved in the same places, and then what gelu was given. */
enum { TT_LINEAR_X, TT_LINEAR_WEIGHT, TT_LINEAR_BIAS, TT_LINEAR_INPUTS, TT_LINEAR_PRE = 2 };

/* The call's parameters begin with these. */
typedef struct {
    tt_epilogue_t epilogue;
} tt_linear_params_t;

tutti_status_t tt_linear_infer(const tutti_op_call_t *call, tutti_spec_t *outputs);

/* outputs[0] = act(in[x] · in[weight]ᵀ + in[bias]), all of its dtype; pre: NULL, or what act is
 * given. */
tutti_status_t tt_linear_multiply(const tutti_op_call_t *call, tutti_tensor_t *const *in,
                                  tutti_tensor_t *pre);

/* dz = dy act'(pre), contiguous and of the dtype of y; owned by the caller. */
tutti_status_t tt_linear_dz(tutti_op_backward_t *call, tutti_tensor_t **out);

/* Gradients from dz, into call->grads. */
tutti_status_t tt_linear_push_x(tutti_op_backward_t *call, const tutti_tensor_t *dz);
tutti_status_t tt_linear_push_weight(tutti_op_backward_t *call, const tutti_tensor_t *dz);
tutti_status_t tt_linear_push_bias(tutti_op_backward_t *call, const tutti_tensor_t *dz);

#endif
