/* Norms whose parameters every rank of the group has: layer_norm and rms_norm, but for dw and db.
 *
 *     forward    as it is of the whole: each row by itself
 *     backward   dx, too; dw and db over T slices of the sequence, whether one rank has them all or
 *                each its own, added by the canonical tree: [dw | db] is one sum
 *
 * Cost: with the sequence cut an all_reduce of both parameters' size in backward. Source: as
 * tp_column_op.c. */
#include <tutti/op.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "compute/op/norm/norm_parts.h"
#include "core/kernel/elementwise/map.h"
#include "parallel/tensor/leaf_sum.h"
#include "parallel/tensor/tp_ops.h"

enum { X = TT_NORM_X, WEIGHT = TT_NORM_WEIGHT, BIAS = TT_NORM_BIAS, INPUTS = TT_NORM_INPUTS };

typedef struct {
    tt_norm_params_t norm;
    tt_tp_t tp;
    bool is_sequence_cut, is_layer_norm;
} params_t;

static void retain_group(const void *params)
{
    (void)tutti_group_retain(((const params_t *)params)->tp.group);
}

static void release_group(const void *params)
{
    tutti_group_release(((const params_t *)params)->tp.group);
}

/* Slices that are here: of T, or of this rank's. */
static tt_leaves_t slices_here(const params_t *p)
{
    return p->is_sequence_cut ? tt_tp_leaves(&p->tp) : (tt_leaves_t){0, p->tp.shards};
}

static tutti_status_t norm_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_leaves_t slices = slices_here(call->params);
    TT_TRY(tt_norm_infer(call, outputs));
    return slices.end - slices.begin == 1 || outputs->shape.rank >= 2
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_SHAPE,
                               "a norm over slices of a sequence wants x [..., positions, width]");
}

static tutti_status_t norm_forward(tutti_op_call_t *call)
{
    const params_t *p = call->params;
    const tutti_status_t status = tt_norm_forward(call, p->is_layer_norm);
    return status < 0 ? tt_group_give_up(p->tp.group, status) : TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct {
    tutti_op_backward_t *call;
    tt_norm_t norm;     /* of all rows that are here */
    tt_leaves_t slices; /* that are here */
    size_t length;      /* of the sequence, here */
} slices_t;

static tutti_status_t run(const slices_t *s, const tt_norm_t *norm)
{
    const params_t *p = s->call->params;
    tt_exec_t *exec = tt_scope_exec(s->call->scope);
    return p->is_layer_norm ? tt_layer_norm_backward(exec, norm) : tt_rms_norm_backward(exec, norm);
}

/* `rows` further on in an array of `bytes` for each; NULL stays NULL. */
static void *further(const void *array, size_t rows, size_t bytes)
{
    return array == NULL ? NULL : (char *)(uintptr_t)array + rows * bytes;
}

/* The positions of a slice, of all samples. */
static tt_norm_t slice_of(const slices_t *s, int leaf)
{
    const int count = s->slices.end - s->slices.begin;
    const tt_cut_t cut = {(int64_t)s->length, count, count};
    const tt_span_t span = tt_cut_leaf(&cut, leaf - s->slices.begin);
    const size_t first = (size_t)span.begin,
                 row = s->norm.shape.n * tutti_dtype_bytes(s->norm.shape.dtype),
                 number = tutti_dtype_bytes(tt_accum_dtype(s->norm.shape.dtype));
    tt_norm_t slice = s->norm;
    slice.run = (size_t)span.count;
    slice.stride = s->length;
    slice.shape.rows = s->length == 0 ? 0 : s->norm.shape.rows / s->length * slice.run;
    slice.x = further(s->norm.x, first, row);
    slice.dy = further(s->norm.dy, first, row);
    slice.dx = further(s->norm.dx, first, row);
    slice.mean = further(s->norm.mean, first, number);
    slice.rstd = further(s->norm.rstd, first, number);
    return slice;
}

/* dx of a slice, on the way to its dw and db. */
static tutti_status_t make_slice(void *user, int leaf, const tt_tp_rows_t *rows,
                                 tutti_tensor_t *into)
{
    (void)rows; /* of a vector */
    const slices_t *s = user;
    const params_t *p = s->call->params;
    tt_norm_t slice = slice_of(s, leaf);
    slice.dgamma = tt_tensor_data(into);
    slice.dbeta = p->is_layer_norm
                      ? further(slice.dgamma, slice.shape.n, tutti_dtype_bytes(into->dtype))
                      : NULL;
    return run(s, &slice);
}

/* One of the two, of which the sum has the first or second n. */
static tutti_status_t push_one(tutti_op_backward_t *call, int input, const tutti_tensor_t *sums)
{
    tutti_tensor_t *grad;
    if (!call->wanted[input]) {
        return TUTTI_OK;
    }
    TT_TRY(tt_new_grad(call, input, &grad));
    const tt_strided_t to = tt_strided_rows(tt_tensor_data(grad), grad->dtype, 1, grad->numel),
                       from = tt_strided_rows(
                           further(tt_tensor_data(sums),
                                   (size_t)(input == WEIGHT ? 0 : sums->numel - grad->numel),
                                   tutti_dtype_bytes(sums->dtype)),
                           sums->dtype, 1, grad->numel);
    return tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &to,
                        &from);
}

static tutti_status_t push_parameters(slices_t *s)
{
    tutti_op_backward_t *call = s->call;
    const params_t *p = call->params;
    const tutti_dtype_t accum = tt_accum_dtype(s->norm.shape.dtype);
    const int64_t n = (int64_t)s->norm.shape.n * (p->is_layer_norm ? 2 : 1);
    tutti_tensor_t *sums = tt_scratch(call->scope, accum, TUTTI_SHAPE(n));
    TT_TRY(tutti_scope_status(call->scope));
    tt_leaf_sum_t sum = {
        .tp = &p->tp, .s = call->scope, .dtype = accum, .numel = n, .make = make_slice, .user = s};
    TT_TRY(p->is_sequence_cut ? tt_leaf_sum(&sum, sums) : tt_leaf_sum_here(&sum, sums));
    TT_TRY(push_one(call, WEIGHT, sums));
    return push_one(call, BIAS, sums);
}

static tutti_status_t push(tutti_op_backward_t *call, const tutti_tensor_t *dy)
{
    const params_t *p = call->params;
    const tutti_shape_t shape = call->inputs[X].shape;
    slices_t s = {.call = call,
                  .norm = tt_norm_of(call, dy),
                  .slices = slices_here(p),
                  .length = shape.rank < 2 ? 1 : (size_t)shape.dims[shape.rank - 2]};
    if (call->wanted[X]) {
        call->grads[X] = tt_scratch(call->scope, call->inputs[X].dtype, shape);
        TT_TRY(tutti_scope_status(call->scope));
    }
    s.norm.dx = tt_data_of(call->grads[X]);
    return call->wanted[WEIGHT] || call->wanted[BIAS] ? push_parameters(&s) : run(&s, &s.norm);
}

static tutti_status_t norm_backward(tutti_op_backward_t *call)
{
    const params_t *p = call->params;
    tutti_tensor_t *dy;
    tutti_status_t status =
        tt_dense(call->scope, call->grad_outputs[0], call->inputs[X].dtype, &dy);
    if (status >= 0) {
        status = push(call, dy);
        tutti_tensor_release(dy);
    }
    return status < 0 ? tt_group_give_up(p->tp.group, status) : TUTTI_OK;
}

static const tutti_op_t norm_op = {
    .name = "slice_norm",
    .about = "layer_norm or rms_norm; dw, db = Σ T slices of the sequence",
    .optional_inputs = 1 << WEIGHT | 1 << BIAS,
    .params_bytes = sizeof(params_t),
    .infer = norm_infer,
    .forward = norm_forward,
    .backward = norm_backward,
    .retain_params = retain_group,
    .release_params = release_group,
};

static tutti_tensor_t *run_norm(tutti_scope_t *s, tutti_tensor_t *const inputs[INPUTS],
                                const params_t *params)
{
    tutti_tensor_t *y = tutti_op_run(s, &norm_op, inputs, INPUTS, params);
    if (tutti_tensor_status(y) < 0) {
        (void)tt_group_give_up(params->tp.group, tt_tensor_status(y));
    }
    return y;
}

tutti_tensor_t *tt_tp_layer_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                 tutti_tensor_t *bias, double eps, const tt_tp_linear_t *how)
{
    const params_t params = {tt_layer_norm_params(weight, bias, eps), how->tp, how->is_sequence_cut,
                             true};
    return run_norm(s, (tutti_tensor_t *[]){x, weight, bias}, &params);
}

tutti_tensor_t *tt_tp_rms_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                               double eps, const tt_tp_linear_t *how)
{
    const params_t params = {tt_rms_norm_params(weight, eps), how->tp, how->is_sequence_cut, false};
    return run_norm(s, (tutti_tensor_t *[]){x, weight, NULL}, &params);
}
