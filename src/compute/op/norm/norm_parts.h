/* The parts of layer_norm and rms_norm, for operations that are one of them and communicate:
 * inputs, what is saved and how parameters begin are the same. */
#ifndef TT_NORM_PARTS_H
#define TT_NORM_PARTS_H

#include "compute/autograd/op_call.h"
#include "core/kernel/norm/rows.h"

enum { TT_NORM_X, TT_NORM_WEIGHT, TT_NORM_BIAS, TT_NORM_INPUTS };

/* The call's parameters begin with these. */
typedef struct {
    double eps;
    int row_rank; /* how many dimensions make a row */
} tt_norm_params_t;

tt_norm_params_t tt_layer_norm_params(const tutti_tensor_t *weight, const tutti_tensor_t *bias,
                                      double eps);
tt_norm_params_t tt_rms_norm_params(const tutti_tensor_t *weight, double eps);

tutti_status_t tt_norm_infer(const tutti_op_call_t *call, tutti_spec_t *outputs);
tutti_status_t tt_norm_forward(tutti_op_call_t *call, bool is_layer_norm);

/* Backward of all rows, but for where gradients go. dy: contiguous, of the dtype of x. */
tt_norm_t tt_norm_of(const tutti_op_backward_t *call, const tutti_tensor_t *dy);

#endif
