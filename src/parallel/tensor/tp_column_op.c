/* Column-parallel linear: y = act(x · Wᵀ + b), where a rank has some rows of W.
 *
 *     forward    x, gathered if the sequence is cut, times this rank's rows: its bits are those
 *                of the whole (decision 0004)
 *     backward   dx = Σ over T leaves of dz[leaf] · W[leaf], in f32, by the canonical tree:
 *                all_reduce, or reduce_scatter along the sequence, in chunks of rows; dW and db
 *                are made meanwhile
 *
 * Cost: per call an all_reduce of x's size in backward; with the sequence cut an all_gather in
 * forward and a reduce_scatter in backward. Source: Shoeybi et al., "Megatron-LM" (2019);
 * Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022). */
#include <tutti/op.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "compute/op/linear/linear_parts.h"
#include "core/kernel/norm/rows.h"
#include "parallel/tensor/leaf_sum.h"
#include "parallel/tensor/tp_linear_impl.h"
#include "parallel/tensor/tp_sequence.h"

enum { X = TT_LINEAR_X, WEIGHT = TT_LINEAR_WEIGHT, BIAS = TT_LINEAR_BIAS };

static tutti_status_t column_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_tp_params_t *p = call->params;
    TT_TRY(tt_linear_infer(call, outputs));
    return p->how.is_sequence_cut ? tt_tp_whole_shape(call, &p->how.tp, &outputs->shape) : TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tutti_status_t gather_x(tutti_op_call_t *call, tutti_tensor_t **x)
{
    const tt_tp_params_t *p = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    tutti_tensor_t *part;
    if (!p->how.is_sequence_cut) {
        return tt_dense_rows(call->scope, call->inputs[X], y->dtype, x);
    }
    TT_TRY(tt_dense(call->scope, call->inputs[X], y->dtype, &part));
    const tutti_status_t status =
        tt_tp_gather(call->scope, &p->how.tp, part, y->shape.dims[y->shape.rank - 2], x);
    tutti_tensor_release(part);
    return status;
}

static tutti_status_t save_x(tutti_op_call_t *call, tutti_tensor_t *x)
{
    const tt_tp_params_t *p = call->params;
    x = tutti_op_needs_grad(call, WEIGHT) ? x : NULL;
    return p->how.is_sequence_cut ? tutti_op_save(call, x) : tutti_op_save_copy(call, x, X);
}

static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **in, tutti_tensor_t **pre)
{
    const tt_tp_params_t *p = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    TT_TRY(gather_x(call, &in[X]));
    TT_TRY(tt_dense_rows(call->scope, call->inputs[WEIGHT], y->dtype, &in[WEIGHT]));
    TT_TRY(tt_dense(call->scope, call->inputs[BIAS], y->dtype, &in[BIAS]));
    if (call->needs_grad && p->linear.epilogue != TT_EPILOGUE_NONE) {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, y->dtype, y->shape, false, pre));
    }
    TT_TRY(tt_linear_multiply(call, in, *pre));
    TT_TRY(save_x(call, in[X]));
    TT_TRY(tutti_op_save_copy(call, tutti_op_needs_grad(call, X) ? in[WEIGHT] : NULL, WEIGHT));
    return tutti_op_save(call, *pre);
}

static tutti_status_t column_forward(tutti_op_call_t *call)
{
    const tt_tp_params_t *p = call->params;
    tutti_tensor_t *in[TT_LINEAR_INPUTS] = {NULL}, *pre = NULL;
    const tutti_status_t status = compute(call, in, &pre);
    tt_tensors_release(in, TT_LINEAR_INPUTS);
    tutti_tensor_release(pre);
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct {
    tutti_op_backward_t *call;
    const tutti_tensor_t *dz;
} leaf_product_t;

/* dz[leaf] · W[leaf], whose rows may be several runs: added up in their order. */
static tutti_status_t multiply_leaf(void *user, int leaf, const tt_tp_rows_t *rows,
                                    tutti_tensor_t *into)
{
    const leaf_product_t *l = user;
    const tt_tp_params_t *p = l->call->params;
    const tutti_tensor_t *w = l->call->saved[WEIGHT], *dz = l->dz;
    const int64_t bytes = (int64_t)tutti_dtype_bytes(dz->dtype), w_ld = tt_row_stride(w);
    tt_span_t runs[TT_TP_PARTS_MAX];
    const int count = tt_tp_runs(&p->how.tp, &p->how.dim, leaf, runs);
    tt_matmul_t product = {
        .batch = 1,
        .m = tt_row_count(dz->shape),
        .n = w->shape.dims[1],
        .dtype = dz->dtype,
        .out_dtype = into->dtype,
        .a = {.ld = dz->shape.dims[dz->shape.rank - 1]},
        .b = {.ld = w_ld},
        .c = tt_tensor_data(into),
    };
    for (int i = 0; i < count; i++) {
        product.k = runs[i].count;
        product.a.data = (const char *)tt_tensor_data(dz) + runs[i].begin * bytes;
        product.b.data = (const char *)tt_tensor_data(w) + runs[i].begin * w_ld * bytes;
        product.accumulate = i > 0;
        TT_TRY(tt_tp_multiply(tt_scope_exec(l->call->scope), &p->how.tp, rows, &product));
    }
    return TUTTI_OK;
}

static tutti_status_t start_dx(tutti_op_backward_t *call, const tutti_tensor_t *dz,
                               tt_leaf_sum_t *sum)
{
    const tt_tp_params_t *p = call->params;
    tutti_tensor_t *dx;
    sum->rows = (tt_tp_rows_t){.whole = dz->shape, .is_packed = p->how.is_sequence_cut};
    sum->rows.whole.dims[dz->shape.rank - 1] = call->saved[WEIGHT]->shape.dims[1];
    TT_TRY(tt_new_grad(call, X, &dx));
    return tt_leaf_sum_start(sum, dx);
}

static tutti_status_t push_weights(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    TT_TRY(call->wanted[BIAS] ? tt_linear_push_bias(call, dz) : TUTTI_OK);
    return call->wanted[WEIGHT] ? tt_linear_push_weight(call, dz) : TUTTI_OK;
}

/* A chunk of dx travels while the next is made, and the last while dW and db are. */
static tutti_status_t push(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    const tt_tp_params_t *p = call->params;
    leaf_product_t product = {call, dz};
    tt_leaf_sum_t sum = {.tp = &p->how.tp,
                         .s = call->scope,
                         .dtype = tt_accum_dtype(dz->dtype),
                         .make = multiply_leaf,
                         .user = &product};
    if (!call->wanted[X]) {
        return push_weights(call, dz);
    }
    tutti_status_t status = start_dx(call, dz, &sum);
    if (status >= 0) {
        status = push_weights(call, dz);
        status = status < 0 ? tt_group_give_up(p->how.tp.group, status) : status;
    }
    const tutti_status_t waited = tt_leaf_sum_wait(&sum);
    return status < 0 ? status : waited;
}

static tutti_status_t column_backward(tutti_op_backward_t *call)
{
    const tt_tp_params_t *p = call->params;
    tutti_tensor_t *dz = NULL;
    tutti_status_t status = tt_linear_dz(call, &dz);
    if (status >= 0) {
        status = push(call, dz);
    }
    tutti_tensor_release(dz);
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

static const tutti_op_t column_op = {
    .name = "column_linear",
    .optional_inputs = 1 << BIAS,
    .about = "y = act(x Wᵀ + b), rows of W cut; dx = Σ leaves dz W, dW = dzᵀ x, db = Σ dz",
    .params_bytes = sizeof(tt_tp_params_t),
    .infer = column_infer,
    .forward = column_forward,
    .backward = column_backward,
    .retain_params = tt_tp_retain,
    .release_params = tt_tp_release,
};

tutti_tensor_t *tt_tp_column_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                    tutti_tensor_t *bias, tt_epilogue_t epilogue,
                                    const tt_tp_linear_t *how)
{
    const tt_tp_params_t params = {{epilogue}, *how};
    return tt_tp_run(s, &column_op, (tutti_tensor_t *[]){x, weight, bias}, TT_LINEAR_INPUTS,
                     &params);
}
