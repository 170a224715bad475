/* What operations share that take an index as their second input. */
#ifndef TT_INDEX_INPUT_H
#define TT_INDEX_INPUT_H

#include "compute/autograd/op_call.h"

/* DTYPE unless it is of i64 or i32. */
tutti_status_t tt_op_check_index(const tutti_op_call_t *call);

/* The index as kernels want it, kept for backward. */
tutti_status_t tt_op_prepare_index(tutti_op_call_t *call, tutti_tensor_t **out);

/* x cut to the index's sizes but along dim. */
static inline tt_strided_t tt_cut_to(tt_strided_t x, tutti_shape_t index, int dim)
{
    for (int i = 0; i < x.rank; i++) {
        x.shape[i] = i == dim ? x.shape[i] : index.dims[i];
    }
    return x;
}

#endif
