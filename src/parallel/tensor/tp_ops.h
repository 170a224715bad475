/* The operations of tensor parallelism. */
#ifndef TT_TP_OPS_H
#define TT_TP_OPS_H

#include "core/kernel/matmul/matmul.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/tensor/tp_shards.h"

/* y = act(x Wᵀ + b): x whole, rows of W and of b cut. y is cut, x's gradient is whole. */
typedef struct {
    tt_tp_t tp;
    tt_tp_dim_t dim;      /* of W's rows */
    bool is_sequence_cut; /* x and its gradient are parts of the sequence */
} tt_tp_linear_t;
tutti_tensor_t *tt_tp_column_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                    tutti_tensor_t *bias, tt_epilogue_t epilogue,
                                    const tt_tp_linear_t *how);

/* y = x Wᵀ + b: x and the columns of W cut; dim is of these. y is whole, or a part of the sequence.
 */
tutti_tensor_t *tt_tp_row_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                 tutti_tensor_t *bias, const tt_tp_linear_t *how);

/* Rows of a table whose rows are cut; dim is of these. */
tutti_tensor_t *tt_tp_embedding(tutti_scope_t *s, tutti_tensor_t *indices, tutti_tensor_t *weight,
                                const tt_tp_linear_t *how);

/* Norms of positions that are here, whose parameters every rank has: their gradients are sums of T
 * slices of the sequence. Of how, dim is not used. */
tutti_tensor_t *tt_tp_layer_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                 tutti_tensor_t *bias, double eps, const tt_tp_linear_t *how);
tutti_tensor_t *tt_tp_rms_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                               double eps, const tt_tp_linear_t *how);

#endif
