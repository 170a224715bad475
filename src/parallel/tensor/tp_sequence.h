/* Activations that are cut along the sequence, the dimension before the last: sequence parallelism.
 *
 *     x [B, S, C]   shard t has positions [S t / T, S (t + 1) / T): T divides S, so that the length
 *                   of the whole follows from a rank's
 *
 * A reduce_scatter wants each rank's rows side by side, so products are made in that order:
 *
 *     [rank 0: B × S_0 rows | rank 1: B × S_1 rows | …]
 */
#ifndef TT_TP_SEQUENCE_H
#define TT_TP_SEQUENCE_H

#include "compute/autograd/op_call.h"
#include "core/kernel/matmul/matmul.h"
#include "parallel/tensor/tp_shards.h"

/* Shapes, of a rank's part and of the whole. Errors: SHAPE, for `call`. */
tutti_status_t tt_tp_whole_shape(const tutti_op_call_t *call, const tt_tp_t *tp,
                                 tutti_shape_t *shape);
tutti_status_t tt_tp_part_shape(const tutti_op_call_t *call, const tt_tp_t *tp,
                                tutti_shape_t *shape);

/* The whole of a contiguous x, of which this rank has a part; contiguous, owned by the caller.
 * whole: its shape. */
tutti_status_t tt_tp_gather(tutti_scope_t *s, const tt_tp_t *tp, tutti_tensor_t *x, int64_t whole,
                            tutti_tensor_t **out);

/* Elements of each rank's rows: [ranks], owned by the caller. */
tutti_status_t tt_tp_row_parts(const tt_tp_t *tp, tutti_shape_t whole, int64_t **out);

/* matmul->m, a and c are of all rows of a tensor of shape `whole`, whose rows are matmul->a.ld
 * apart. Rows of c come in the order of the ranks' parts, if is_packed. */
TT_LAUNCHES tutti_status_t tt_tp_multiply(tt_exec_t *exec, const tt_tp_t *tp, tutti_shape_t whole,
                                          bool is_packed, const tt_matmul_t *matmul);

/* Sums over the rows of slice `leaf` of T of dz [B, S, n], contiguous, into `into` [n]: the slices
 * are those of torch.chunk, whether the sequence is cut or not. */
tutti_status_t tt_tp_sum_slice(tutti_scope_t *s, const tt_tp_t *tp, const tutti_tensor_t *dz,
                               int leaf, tutti_tensor_t *into);

#endif
