/* Vocabulary-parallel embedding: rows of a table of which a rank has some.
 *
 *     forward    rows that are here, zeros for others; their sum: all_reduce, or reduce_scatter
 *                along the sequence. One summand is not zero: the sum is exact in every dtype
 *     backward   dy, gathered if the sequence is cut; added to the rows that are here, in the
 *                order of the indices
 *
 * Where there are several shards, -0 becomes 0, also on one rank. Cost: a call of y's size each
 * way. Source: Shoeybi et al., "Megatron-LM" (2019). */
#include <tutti/op.h>

#include <string.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/index/indexing.h"
#include "core/kernel/norm/rows.h"
#include "parallel/placement/placement_impl.h"
#include "parallel/tensor/tp_linear_impl.h"
#include "parallel/tensor/tp_sequence.h"

enum { INDICES, TABLE };

static tutti_status_t embedding_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_tp_params_t *p = call->params;
    const tutti_tensor_t *indices = call->inputs[INDICES], *table = call->inputs[TABLE];
    if (indices->dtype != TUTTI_I64 && indices->dtype != TUTTI_I32 && indices->dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the indices must be i64, i32 or u8");
    }
    if (!tutti_dtype_is_float(table->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the table must be of a floating dtype");
    }
    if (table->shape.rank != 2 || indices->shape.rank == TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the table must be [V, C], the indices of at most %d dimensions",
                             TUTTI_RANK_MAX - 1);
    }
    outputs->dtype = table->dtype;
    outputs->shape = indices->shape;
    outputs->shape.dims[outputs->shape.rank++] = table->shape.dims[1];
    return p->how.is_sequence_cut ? tt_tp_part_shape(call, &p->how.tp, &outputs->shape) : TUTTI_OK;
}

static tt_rows_by_index_t describe(const tt_tp_params_t *p, tutti_dtype_t dtype,
                                   tutti_shape_t table, const tutti_tensor_t *indices)
{
    tt_rows_by_index_t at = {.dtype = dtype,
                             .table_rows = (size_t)table.dims[0],
                             .columns = (size_t)table.dims[1],
                             .indices = tt_tensor_data(indices),
                             .count = (size_t)indices->numel,
                             .rank = indices->shape.rank,
                             .first = (size_t)tt_tp_part(&p->how.tp, &p->how.dim, 0).begin,
                             .whole_rows = (size_t)tt_tp_whole_size(&p->how.dim)};
    memcpy(at.shape, indices->shape.dims, sizeof at.shape);
    return at;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* As if zeros of other shards had been added. */
static tutti_status_t drop_signs(tutti_scope_t *s, const tutti_tensor_t *y)
{
    const tt_strided_t out = tt_tensor_strided(y);
    return tt_map_unary(tt_scope_exec(s), TT_UNARY_AFFINE, (tt_map_params_t){1, 0}, &out, &out);
}

static tutti_status_t add_ranks(const tt_tp_params_t *p, tutti_scope_t *s, tutti_tensor_t *rows,
                                tutti_tensor_t *y)
{
    tutti_tensor_t *part = NULL;
    if (!p->how.is_sequence_cut) {
        return tt_device_has_values(y->storage->device)
                   ? tutti_all_reduce(p->how.tp.group, y, TUTTI_SUM, NULL)
                   : TUTTI_OK;
    }
    const int dim = y->shape.rank - 2;
    const tt_sharding_t sh = {
        p->how.tp.group,
        s,
        dim,
        {rows->shape.dims[dim], p->how.tp.shards, tutti_group_size(p->how.tp.group)}};
    TT_TRY(tt_shard_reduce(&sh, rows, TUTTI_SUM, &part));
    const tutti_status_t status = tutti_tensor_copy(y, part);
    tutti_tensor_release(part);
    return status;
}

typedef struct {
    tutti_tensor_t *indices, *table, *rows;
} operands_t;

static tutti_status_t take(tutti_op_call_t *call, operands_t *o)
{
    const tt_tp_params_t *p = call->params;
    tutti_tensor_t *y = call->outputs[0], *weight = call->inputs[TABLE];
    tutti_shape_t shape = call->inputs[INDICES]->shape;
    TT_TRY(tt_dense(call->scope, call->inputs[INDICES], TUTTI_I64, &o->indices));
    TT_TRY(tt_dense(call->scope, weight, weight->dtype, &o->table));
    shape.dims[shape.rank++] = weight->shape.dims[1];
    if (p->how.is_sequence_cut) {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, y->dtype, shape, false, &o->rows));
    } else {
        o->rows = tutti_tensor_retain(y);
    }
    const tt_rows_by_index_t at = describe(p, weight->dtype, weight->shape, o->indices);
    TT_TRY(tt_take_rows(tt_scope_exec(call->scope), &at, tt_tensor_data(o->rows),
                        tt_tensor_data(o->table)));
    if (p->how.tp.shards > 1) {
        TT_TRY(drop_signs(call->scope, o->rows));
    }
    TT_TRY(tutti_group_size(p->how.tp.group) > 1 || o->rows != y
               ? add_ranks(p, call->scope, o->rows, y)
               : TUTTI_OK);
    return tutti_op_save_copy(call, o->indices, INDICES);
}

static tutti_status_t embedding_forward(tutti_op_call_t *call)
{
    const tt_tp_params_t *p = call->params;
    operands_t o = {NULL, NULL, NULL};
    const tutti_status_t status = take(call, &o);
    tutti_tensor_release(o.rows);
    tutti_tensor_release(o.table);
    tutti_tensor_release(o.indices);
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_status_t gather_dy(tutti_op_backward_t *call, tutti_dtype_t dtype, tutti_tensor_t **dy)
{
    const tt_tp_params_t *p = call->params;
    const tutti_shape_t indices = call->inputs[INDICES].shape;
    tutti_tensor_t *part, *whole = NULL;
    if (!p->how.is_sequence_cut) {
        return tt_dense(call->scope, call->grad_outputs[0], dtype, dy);
    }
    /* in the dtype of y: fewer bytes */
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], call->outputs[0].dtype, &part));
    tutti_status_t status =
        tt_tp_gather(call->scope, &p->how.tp, part, indices.dims[indices.rank - 1], &whole);
    if (status >= 0) {
        status = tt_dense(call->scope, whole, dtype, dy);
    }
    tutti_tensor_release(whole);
    tutti_tensor_release(part);
    return status;
}

static tutti_status_t embedding_backward(tutti_op_backward_t *call)
{
    const tt_tp_params_t *p = call->params;
    const tutti_shape_t table = call->inputs[TABLE].shape;
    const tutti_dtype_t dtype = tt_accum_dtype(call->inputs[TABLE].dtype);
    tutti_tensor_t *dw = tutti_zeros(call->scope, dtype, table), *dy = NULL;
    tutti_status_t status = tutti_tensor_status(dw);
    if (status >= 0) {
        status = gather_dy(call, dtype, &dy);
    }
    if (status >= 0) {
        const tt_rows_by_index_t at = describe(p, dtype, table, call->saved[INDICES]);
        status =
            tt_add_rows(tt_scope_exec(call->scope), &at, tt_tensor_data(dw), tt_tensor_data(dy));
    }
    tutti_tensor_release(dy);
    call->grads[TABLE] = dw;
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

static const tutti_op_t embedding_op = {
    .name = "vocabulary_embedding",
    .about = "y = weight[indices], rows of weight cut; dweight[v] = Σ dy where v stands",
    .params_bytes = sizeof(tt_tp_params_t),
    .infer = embedding_infer,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .retain_params = tt_tp_retain,
    .release_params = tt_tp_release,
};

tutti_tensor_t *tt_tp_embedding(tutti_scope_t *s, tutti_tensor_t *indices, tutti_tensor_t *weight,
                                const tt_tp_linear_t *how)
{
    const tt_tp_params_t params = {{TT_EPILOGUE_NONE}, *how};
    return tt_tp_run(s, &embedding_op, (tutti_tensor_t *[]){indices, weight}, 2, &params);
}
