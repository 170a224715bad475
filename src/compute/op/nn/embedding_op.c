/* embedding: rows of a table. The gradient is dense and added in the order of the indices.
 * Cost: one read per row; backward zeroes and adds. Source: textbook. */
#include <tutti/op_nn.h>

#include <string.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "core/kernel/index/indexing.h"
#include "core/kernel/norm/rows.h"

static tutti_status_t embedding_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *indices = call->inputs[0], *weight = call->inputs[1];
    if (indices->dtype != TUTTI_I64 && indices->dtype != TUTTI_I32 && indices->dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the indices must be i64, i32 or u8");
    }
    if (!tutti_dtype_is_float(weight->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the table must be of a floating dtype");
    }
    if (weight->shape.rank != 2 || indices->shape.rank == TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the table must be [V, C], the indices of at most %d dimensions",
                             TUTTI_RANK_MAX - 1);
    }
    outputs->dtype = weight->dtype;
    outputs->shape = indices->shape;
    outputs->shape.dims[outputs->shape.rank++] = weight->shape.dims[1];
    return TUTTI_OK;
}

static tt_rows_by_index_t describe(tutti_dtype_t dtype, tutti_shape_t table,
                                   const tutti_tensor_t *indices)
{
    tt_rows_by_index_t at = {.dtype = dtype,
                             .table_rows = (size_t)table.dims[0],
                             .columns = (size_t)table.dims[1],
                             .indices = tt_tensor_data(indices),
                             .count = (size_t)indices->numel,
                             .rank = indices->shape.rank};
    memcpy(at.shape, indices->shape.dims, sizeof at.shape);
    return at;
}

static tutti_status_t take(tutti_op_call_t *call, tutti_tensor_t *indices, tutti_tensor_t **table)
{
    tutti_tensor_t *weight = call->inputs[1];
    TT_TRY(tt_dense(call->scope, weight, weight->dtype, table));
    const tt_rows_by_index_t at = describe(weight->dtype, weight->shape, indices);
    TT_TRY(tt_take_rows(tt_scope_exec(call->scope), &at, tt_tensor_data(call->outputs[0]),
                        tt_tensor_data(*table)));
    return tutti_op_save_copy(call, indices, 0);
}

static tutti_status_t embedding_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *indices, *table = NULL;
    TT_TRY(tt_dense(call->scope, call->inputs[0], TUTTI_I64, &indices));
    const tutti_status_t status = take(call, indices, &table);
    tutti_tensor_release(table);
    tutti_tensor_release(indices);
    return status;
}

static tutti_status_t embedding_backward(tutti_op_backward_t *call)
{
    const tutti_shape_t table = call->inputs[1].shape;
    const tutti_dtype_t dtype = tt_accum_dtype(call->inputs[1].dtype);
    tutti_tensor_t *dw = tutti_zeros(call->scope, dtype, table), *dy;
    TT_TRY(dw->status);
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], dtype, &dy));
    const tt_rows_by_index_t at = describe(dtype, table, call->saved[0]);
    const tutti_status_t status =
        tt_add_rows(tt_scope_exec(call->scope), &at, tt_tensor_data(dw), tt_tensor_data(dy));
    tutti_tensor_release(dy);
    call->grads[1] = dw;
    return status;
}

const tutti_op_t tt_op_embedding = {
    .name = "embedding",
    .about = "y = weight[indices]; dweight[v] = Σ dy where v stands",
    .infer = embedding_infer,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tutti_embedding(tutti_scope_t *s, tutti_tensor_t *indices, tutti_tensor_t *weight)
{
    return tutti_op_run(s, &tt_op_embedding, (tutti_tensor_t *[]){indices, weight}, 2, NULL);
}
