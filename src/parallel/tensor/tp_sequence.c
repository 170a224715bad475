/* The sequence, cut: shapes, gathering, products in the order of parts. */
#include "parallel/tensor/tp_sequence.h"

#include "compute/op/linear/dense.h"
#include "core/base/alloc.h"
#include "core/kernel/reduce/reduce.h"
#include "parallel/placement/placement_impl.h"

static int sequence_dim(tutti_shape_t shape)
{
    return shape.rank - 2;
}

static int64_t length_of(tutti_shape_t shape)
{
    return shape.dims[sequence_dim(shape)];
}

/* What lies before the sequence. */
static int64_t batch_of(tutti_shape_t shape)
{
    int64_t batch = 1;
    for (int i = 0; i < sequence_dim(shape); i++) {
        batch *= shape.dims[i];
    }
    return batch;
}

static tutti_status_t check_rank(const tutti_op_call_t *call, tutti_shape_t shape)
{
    return shape.rank >= 2
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_SHAPE,
                               "a sequence that is cut has a dimension before the last");
}

tutti_status_t tt_tp_whole_shape(const tutti_op_call_t *call, const tt_tp_t *tp,
                                 tutti_shape_t *shape)
{
    const tt_leaves_t own = tt_tp_leaves(tp);
    const int leaves = own.end - own.begin;
    TT_TRY(check_rank(call, *shape));
    if (length_of(*shape) % leaves != 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "%lld positions here, where this rank has %d of %d shards of the "
                             "sequence",
                             (long long)length_of(*shape), leaves, tp->shards);
    }
    shape->dims[sequence_dim(*shape)] = length_of(*shape) / leaves * tp->shards;
    return TUTTI_OK;
}

tutti_status_t tt_tp_part_shape(const tutti_op_call_t *call, const tt_tp_t *tp,
                                tutti_shape_t *shape)
{
    const tt_leaves_t own = tt_tp_leaves(tp);
    TT_TRY(check_rank(call, *shape));
    if (length_of(*shape) % tp->shards != 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "a sequence of %lld positions is not %d equal shards: choose a length "
                             "that is a multiple of %d, or go without sequence parallelism",
                             (long long)length_of(*shape), tp->shards, tp->shards);
    }
    shape->dims[sequence_dim(*shape)] = length_of(*shape) / tp->shards * (own.end - own.begin);
    return TUTTI_OK;
}

static tt_cut_t cut_of(const tt_tp_t *tp, int64_t length)
{
    return (tt_cut_t){length, tp->shards, tutti_group_size(tp->group)};
}

tutti_status_t tt_tp_gather(tutti_scope_t *s, const tt_tp_t *tp, tutti_tensor_t *x, int64_t whole,
                            tutti_tensor_t **out)
{
    const tt_sharding_t sh = {tp->group, s, sequence_dim(x->shape), cut_of(tp, whole)};
    return tt_shard_gather(&sh, x, out);
}

tutti_status_t tt_tp_row_parts(const tt_tp_t *tp, tutti_shape_t whole, int64_t **out)
{
    const int ranks = tutti_group_size(tp->group);
    const tt_cut_t cut = cut_of(tp, length_of(whole));
    int64_t *parts = tt_alloc_array((size_t)ranks, sizeof *parts, "parts");
    TT_TRY_ALLOC(parts);
    for (int rank = 0; rank < ranks; rank++) {
        parts[rank] = batch_of(whole) * tt_cut_rank(&cut, rank).count * whole.dims[whole.rank - 1];
    }
    *out = parts;
    return TUTTI_OK;
}

tutti_status_t tt_tp_multiply(tt_exec_t *exec, const tt_tp_t *tp, tutti_shape_t whole,
                              bool is_packed, const tt_matmul_t *matmul)
{
    const int64_t batch = batch_of(whole), length = length_of(whole);
    const int64_t a_bytes = (int64_t)tutti_dtype_bytes(matmul->dtype),
                  c_bytes = (int64_t)tutti_dtype_bytes(matmul->out_dtype);
    const tt_cut_t cut = cut_of(tp, length);
    if (!is_packed || batch == 1) {
        return tt_matmul(exec, matmul);
    }
    char *c = matmul->c;
    for (int rank = 0; rank < cut.ranks; rank++) {
        const tt_span_t span = tt_cut_rank(&cut, rank);
        tt_matmul_t part = *matmul;
        part.batch = batch;
        part.m = span.count;
        part.a.data = (const char *)matmul->a.data + span.begin * matmul->a.ld * a_bytes;
        part.a.batch_stride = length * matmul->a.ld;
        part.c = c;
        part.c_batch_stride = span.count * matmul->n;
        TT_TRY(tt_matmul(exec, &part));
        c += batch * span.count * matmul->n * c_bytes;
    }
    return TUTTI_OK;
}

/* A strided slice would be summed in another order where its rows lie side by side. */
tutti_status_t tt_tp_sum_slice(tutti_scope_t *s, const tt_tp_t *tp, const tutti_tensor_t *dz,
                               int leaf, tutti_tensor_t *into)
{
    const int dim = sequence_dim(dz->shape);
    const tt_cut_t cut = cut_of(tp, dim < 0 ? 1 : dz->shape.dims[dim]);
    const tt_span_t span = tt_cut_leaf(&cut, leaf);
    tutti_shape_t shape = dz->shape;
    tt_strided_t view = tt_tensor_strided(dz);
    tutti_tensor_t *rows;
    if (dim >= 0) {
        shape.dims[dim] = view.shape[dim] = span.count;
        view.data = (char *)view.data +
                    span.begin * view.strides[dim] * (int64_t)tutti_dtype_bytes(dz->dtype);
    }
    TT_TRY(tt_dense_copy(s, &view, shape, dz->dtype, &rows));
    const int64_t n = into->numel;
    const tt_strided_t in =
        tt_strided_rows(tt_tensor_data(rows), rows->dtype, tt_row_count(shape), n);
    const tt_strided_t out = tt_strided_rows(tt_tensor_data(into), into->dtype, 1, n);
    const tutti_status_t status =
        tt_reduce(tt_scope_exec(s), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in, 1u);
    tutti_tensor_release(rows);
    return status;
}
