/* Row-parallel linear: y = x · Wᵀ + b, where a rank has some columns of x and of W.
 *
 *     forward    Σ over T leaves of x[leaf] · W[leaf]ᵀ, in f32, by the canonical tree: all_reduce,
 *                or reduce_scatter along the sequence, in chunks of rows, of which one travels
 *                while the next is made; then b, once; then rounded, once
 *     backward   dy, gathered if the sequence is cut; dx = dy · W, dW = dyᵀ · x as they are of
 *                the whole; db over T slices of the sequence, by the tree, on every rank
 *
 * Cost: per call an all_reduce of y's size in forward; with the sequence cut a reduce_scatter there
 * and an all_gather in backward. Source: as tp_column_op.c. */
#include <tutti/op.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "compute/op/linear/linear_parts.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/norm/rows.h"
#include "parallel/tensor/leaf_sum.h"
#include "parallel/tensor/tp_linear_impl.h"
#include "parallel/tensor/tp_sequence.h"

enum { X = TT_LINEAR_X, WEIGHT = TT_LINEAR_WEIGHT, BIAS = TT_LINEAR_BIAS };

static tutti_status_t row_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_tp_params_t *p = call->params;
    TT_TRY(tt_linear_infer(call, outputs));
    return p->how.is_sequence_cut ? tt_tp_part_shape(call, &p->how.tp, &outputs->shape) : TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

typedef struct {
    tutti_op_call_t *call;
    tutti_tensor_t *in[TT_LINEAR_INPUTS];
    tutti_shape_t whole; /* of y */
} row_t;

static tutti_status_t multiply_leaf(void *user, int leaf, const tt_tp_rows_t *rows,
                                    tutti_tensor_t *into)
{
    const row_t *r = user;
    const tt_tp_params_t *p = r->call->params;
    const tutti_tensor_t *x = r->in[X], *w = r->in[WEIGHT];
    const int64_t bytes = (int64_t)tutti_dtype_bytes(x->dtype);
    tt_span_t runs[TT_TP_PARTS_MAX];
    const int count = tt_tp_runs(&p->how.tp, &p->how.dim, leaf, runs);
    tt_matmul_t product = {
        .batch = 1,
        .m = tt_row_count(r->whole),
        .n = w->shape.dims[0],
        .dtype = x->dtype,
        .out_dtype = into->dtype,
        .a = {.ld = tt_row_stride(x)},
        .b = {.ld = tt_row_stride(w), .transposed = true},
        .c = tt_tensor_data(into),
    };
    for (int i = 0; i < count; i++) {
        product.k = runs[i].count;
        product.a.data = (const char *)tt_tensor_data(x) + runs[i].begin * bytes;
        product.b.data = (const char *)tt_tensor_data(w) + runs[i].begin * bytes;
        product.accumulate = i > 0;
        TT_TRY(tt_tp_multiply(tt_scope_exec(r->call->scope), &p->how.tp, rows, &product));
    }
    return TUTTI_OK;
}

/* out: as y, or in f32 if a bias is to come before the rounding. */
static tutti_status_t add_leaves(row_t *r, tutti_tensor_t *out)
{
    const tt_tp_params_t *p = r->call->params;
    tt_leaf_sum_t sum = {.tp = &p->how.tp,
                         .s = r->call->scope,
                         .dtype = tt_accum_dtype(r->in[X]->dtype),
                         .rows = {.whole = r->whole, .is_packed = p->how.is_sequence_cut},
                         .make = multiply_leaf,
                         .user = r};
    return tt_leaf_sum(&sum, out);
}

static tutti_status_t add_bias(tutti_op_call_t *call, const tutti_tensor_t *sum,
                               const tutti_tensor_t *bias)
{
    const tt_strided_t y = tt_tensor_strided(call->outputs[0]), a = tt_tensor_strided(sum),
                       b = tt_tensor_strided_as(bias, call->outputs[0]->shape);
    return tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_ADD, (tt_map_params_t){0}, &y, &a,
                         &b);
}

static tutti_status_t add_up(row_t *r)
{
    tutti_tensor_t *y = r->call->outputs[0], *sum = NULL;
    const tutti_dtype_t accum = tt_accum_dtype(y->dtype);
    if (r->in[BIAS] == NULL || y->dtype == accum) {
        TT_TRY(add_leaves(r, y));
        return r->in[BIAS] == NULL ? TUTTI_OK : add_bias(r->call, y, r->in[BIAS]);
    }
    TT_TRY(tt_tensor_new(r->call->scope->ctx->place.device, accum, y->shape, false, &sum));
    tutti_status_t status = add_leaves(r, sum);
    if (status >= 0) {
        status = add_bias(r->call, sum, r->in[BIAS]);
    }
    tutti_tensor_release(sum);
    return status;
}

static tutti_status_t compute(row_t *r)
{
    tutti_op_call_t *call = r->call;
    const tutti_tensor_t *y = call->outputs[0];
    r->whole = call->inputs[X]->shape;
    r->whole.dims[r->whole.rank - 1] = call->inputs[WEIGHT]->shape.dims[0];
    TT_TRY(tt_dense_rows(call->scope, call->inputs[X], y->dtype, &r->in[X]));
    TT_TRY(tt_dense_rows(call->scope, call->inputs[WEIGHT], y->dtype, &r->in[WEIGHT]));
    TT_TRY(tt_dense(call->scope, call->inputs[BIAS], y->dtype, &r->in[BIAS]));
    TT_TRY(add_up(r));
    TT_TRY(tutti_op_save_copy(call, tutti_op_needs_grad(call, WEIGHT) ? r->in[X] : NULL, X));
    return tutti_op_save_copy(call, tutti_op_needs_grad(call, X) ? r->in[WEIGHT] : NULL, WEIGHT);
}

static tutti_status_t row_forward(tutti_op_call_t *call)
{
    const tt_tp_params_t *p = call->params;
    row_t r = {.call = call};
    const tutti_status_t status = compute(&r);
    tt_tensors_release(r.in, TT_LINEAR_INPUTS);
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct {
    tutti_op_backward_t *call;
    const tutti_tensor_t *dz;
} slices_t;

static tutti_status_t sum_slice(void *user, int leaf, const tt_tp_rows_t *rows,
                                tutti_tensor_t *into)
{
    (void)rows; /* of a vector */
    const slices_t *l = user;
    const tt_tp_params_t *p = l->call->params;
    return tt_tp_sum_slice(l->call->scope, &p->how.tp, l->dz, leaf, into);
}

static tutti_status_t push_to_bias(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    const tt_tp_params_t *p = call->params;
    slices_t slices = {call, dz};
    tutti_tensor_t *db;
    TT_TRY(tt_new_grad(call, BIAS, &db));
    tt_leaf_sum_t sum = {.tp = &p->how.tp,
                         .s = call->scope,
                         .dtype = tt_accum_dtype(db->dtype),
                         .numel = db->numel,
                         .make = sum_slice,
                         .user = &slices};
    return tt_leaf_sum_here(&sum, db);
}

static tutti_status_t gather_dz(tutti_op_backward_t *call, tutti_tensor_t **dz)
{
    const tt_tp_params_t *p = call->params;
    const tutti_shape_t x = call->inputs[X].shape;
    tutti_tensor_t *part;
    TT_TRY(tt_linear_dz(call, &part));
    if (!p->how.is_sequence_cut) {
        *dz = part;
        return TUTTI_OK;
    }
    const tutti_status_t status =
        tt_tp_gather(call->scope, &p->how.tp, part, x.dims[x.rank - 2], dz);
    tutti_tensor_release(part);
    return status;
}

static tutti_status_t row_backward(tutti_op_backward_t *call)
{
    const tt_tp_params_t *p = call->params;
    tutti_tensor_t *dz = NULL;
    tutti_status_t status = gather_dz(call, &dz);
    if (status >= 0 && call->wanted[BIAS]) {
        status = push_to_bias(call, dz);
    }
    if (status >= 0 && call->wanted[WEIGHT]) {
        status = tt_linear_push_weight(call, dz);
    }
    if (status >= 0 && call->wanted[X]) {
        status = tt_linear_push_x(call, dz);
    }
    tutti_tensor_release(dz);
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

static const tutti_op_t row_op = {
    .name = "row_linear",
    .optional_inputs = 1 << BIAS,
    .about = "y = Σ leaves x Wᵀ + b, columns of W cut; dx = dy W, dW = dyᵀ x, db = Σ dy",
    .params_bytes = sizeof(tt_tp_params_t),
    .infer = row_infer,
    .forward = row_forward,
    .backward = row_backward,
    .retain_params = tt_tp_retain,
    .release_params = tt_tp_release,
};

tutti_tensor_t *tt_tp_row_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                 tutti_tensor_t *bias, const tt_tp_linear_t *how)
{
    const tt_tp_params_t params = {{TT_EPILOGUE_NONE}, *how};
    return tt_tp_run(s, &row_op, (tutti_tensor_t *[]){x, weight, bias}, TT_LINEAR_INPUTS, &params);
}
