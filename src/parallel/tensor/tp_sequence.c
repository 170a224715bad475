/* The sequence, cut: shapes, gathering, products in the order of parts. */
#include "parallel/tensor/tp_sequence.h"

#include "compute/op/linear/dense.h"
#include "core/kernel/reduce/reduce.h"
#include "parallel/placement/placement_impl.h"

static int sequence_dim(tutti_shape_t shape)
{
    return shape.rank - 2;
}

static int64_t length_of(tutti_shape_t shape)
{
    return shape.rank < 2 ? 1 : shape.dims[sequence_dim(shape)];
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

/* ---- chunks ---------------------------------------------------------------------------------- */

enum { CHUNK_ELEMENTS = 1 << 16 };

/* Share i of n, as even as can be. */
static tt_span_t share(int64_t n, int i, int shares)
{
    const int64_t begin = n * i / shares;
    return (tt_span_t){begin, n * (i + 1) / shares - begin};
}

/* A chunk is of these samples. */
static tt_span_t samples_of(const tt_tp_rows_t *rows)
{
    const int64_t batch = batch_of(rows->whole);
    return batch > 1 ? share(batch, rows->chunk, rows->chunks) : (tt_span_t){0, batch};
}

/* And of these of so many positions that lie side by side. */
static tt_span_t positions_of(const tt_tp_rows_t *rows, tt_span_t all)
{
    if (batch_of(rows->whole) > 1) {
        return all;
    }
    const tt_span_t own = share(all.count, rows->chunk, rows->chunks);
    return (tt_span_t){all.begin + own.begin, own.count};
}

static tt_span_t all_positions(const tt_tp_rows_t *rows)
{
    return (tt_span_t){0, length_of(rows->whole)};
}

static int64_t width_of(tutti_shape_t shape)
{
    return shape.dims[shape.rank - 1];
}

int tt_tp_chunk_count(const tt_tp_t *tp, const tt_tp_rows_t *rows)
{
    const int64_t batch = batch_of(rows->whole), numel = tutti_shape_numel(rows->whole);
    const int64_t most = batch > 1 ? batch : TT_TP_CHUNKS_MAX, wanted = numel / CHUNK_ELEMENTS;
    const int64_t few = wanted < most ? wanted : most;
    if (tutti_group_size(tp->group) == 1 || few < 2) {
        return 1;
    }
    return few < TT_TP_CHUNKS_MAX ? (int)few : TT_TP_CHUNKS_MAX;
}

int64_t tt_tp_chunk_numel(const tt_tp_t *tp, const tt_tp_rows_t *rows, int64_t *parts)
{
    const tt_cut_t cut = cut_of(tp, length_of(rows->whole));
    const int64_t each = samples_of(rows).count * width_of(rows->whole);
    int64_t sum = 0;
    if (!rows->is_packed) {
        return each * positions_of(rows, all_positions(rows)).count;
    }
    for (int rank = 0; rank < cut.ranks; rank++) {
        const int64_t part = each * positions_of(rows, tt_cut_rank(&cut, rank)).count;
        sum += part;
        if (parts != NULL) {
            parts[rank] = part;
        }
    }
    return sum;
}

int64_t tt_tp_chunk_offset(const tt_tp_t *tp, const tt_tp_rows_t *rows)
{
    const tt_cut_t cut = cut_of(tp, length_of(rows->whole));
    const tt_span_t own =
        rows->is_packed ? tt_cut_rank(&cut, tutti_group_rank(tp->group)) : all_positions(rows);
    return (samples_of(rows).begin * own.count + positions_of(rows, own).begin - own.begin) *
           width_of(rows->whole);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Some positions of some samples, which lie side by side if they are all. */
static tutti_status_t multiply_span(tt_exec_t *exec, const tt_tp_rows_t *rows, tt_span_t positions,
                                    const tt_matmul_t *matmul, char *c)
{
    const int64_t length = length_of(rows->whole),
                  a_bytes = (int64_t)tutti_dtype_bytes(matmul->dtype);
    const tt_span_t samples = samples_of(rows);
    const bool is_whole = positions.count == length;
    tt_matmul_t part = *matmul;
    part.batch = is_whole ? 1 : samples.count;
    part.m = is_whole ? samples.count * length : positions.count;
    part.a.data = (const char *)matmul->a.data +
                  (samples.begin * length + positions.begin) * matmul->a.ld * a_bytes;
    part.a.batch_stride = length * matmul->a.ld;
    part.c = c;
    part.c_batch_stride = positions.count * matmul->n;
    return tt_matmul(exec, &part);
}

tutti_status_t tt_tp_multiply(tt_exec_t *exec, const tt_tp_t *tp, const tt_tp_rows_t *rows,
                              const tt_matmul_t *matmul)
{
    const tt_cut_t cut = cut_of(tp, length_of(rows->whole));
    const int64_t row_bytes = matmul->n * (int64_t)tutti_dtype_bytes(matmul->out_dtype);
    char *c = matmul->c;
    if (!rows->is_packed) {
        return multiply_span(exec, rows, positions_of(rows, all_positions(rows)), matmul, c);
    }
    for (int rank = 0; rank < cut.ranks; rank++) {
        const tt_span_t positions = positions_of(rows, tt_cut_rank(&cut, rank));
        TT_TRY(multiply_span(exec, rows, positions, matmul, c));
        c += samples_of(rows).count * positions.count * row_bytes;
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
