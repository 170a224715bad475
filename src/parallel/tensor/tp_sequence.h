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

/* Rows of a tensor [..., positions, width], and a part of them: sums are made and sent in chunks,
 * so that one travels while the next is computed. Chunks are some samples each, of a single sample
 * some positions of each rank's. */
enum { TT_TP_CHUNKS_MAX = 4 };

typedef struct {
    tutti_shape_t whole;
    bool is_packed; /* the rows of the ranks' parts of the sequence lie side by side */
    int chunk, chunks;
} tt_tp_rows_t;

/* How many chunks there are to be: one of what is small, or all on one rank. */
int tt_tp_chunk_count(const tt_tp_t *tp, const tt_tp_rows_t *rows);

/* Elements of the chunk; of each rank's rows in it, if parts is not NULL: [ranks]. */
int64_t tt_tp_chunk_numel(const tt_tp_t *tp, const tt_tp_rows_t *rows, int64_t *parts);

/* Where it is in a rank's result, which is its part if the rows are packed: elements before it. */
int64_t tt_tp_chunk_offset(const tt_tp_t *tp, const tt_tp_rows_t *rows);

/* matmul->m, a and c are of all rows, which are matmul->a.ld apart. The chunk's alone are made, one
 * behind the other from c on. */
TT_LAUNCHES tutti_status_t tt_tp_multiply(tt_exec_t *exec, const tt_tp_t *tp,
                                          const tt_tp_rows_t *rows, const tt_matmul_t *matmul);

/* Sums over the rows of slice `leaf` of T of dz [B, S, n], contiguous, into `into` [n]: the slices
 * are those of torch.chunk, whether the sequence is cut or not. */
tutti_status_t tt_tp_sum_slice(tutti_scope_t *s, const tt_tp_t *tp, const tutti_tensor_t *dz,
                               int leaf, tutti_tensor_t *into);

#endif
