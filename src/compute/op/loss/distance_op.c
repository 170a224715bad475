/* cdist, pdist: distances between all pairs of rows, one kernel each way. Gradients of gradients
 * are composed, of [pairs, n] differences. Cost: distances.h; keeps the rows and the distances. */
#include <tutti/op_index.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include <math.h>

#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/base/alloc.h"
#include "core/kernel/distance/distances.h"

typedef struct {
    double p;
} params_t;

static tutti_status_t check(const tutti_op_call_t *call)
{
    const params_t *params = call->params;
    for (int i = 0; i < call->input_count; i++) {
        if (!tutti_dtype_is_float(call->inputs[i]->dtype)) {
            return tutti_op_fail(call, TUTTI_ERR_DTYPE, "rows must be of a floating dtype");
        }
    }
    return params->p >= 0
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_ARG, "p must be at least 0, not %g", params->p);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* x and y NULL: pairs of x's own rows. */
static tt_distances_t job_of(const tutti_tensor_t *x, const tutti_tensor_t *y, double p)
{
    const tutti_shape_t shape = x->shape;
    const size_t n = (size_t)shape.dims[shape.rank - 1], rows = (size_t)shape.dims[shape.rank - 2];
    tt_distances_t job = {.is_wide = x->dtype == TUTTI_F64,
                          .is_own = y == NULL,
                          .p = p,
                          .batch = 1,
                          .rows = rows,
                          .others = y == NULL ? rows : (size_t)y->shape.dims[shape.rank - 2],
                          .n = n,
                          .x = tt_data_of(x),
                          .y = tt_data_of(y == NULL ? x : y)};
    for (int i = 0; i < shape.rank - 2; i++) {
        job.batch *= (size_t)shape.dims[i];
    }
    return job;
}

/* Distances, of one input or two, which are kept with them. */
static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **rows)
{
    tutti_tensor_t *d = call->outputs[0];
    for (int i = 0; i < call->input_count; i++) {
        TT_TRY(tt_dense(call->scope, call->inputs[i], d->dtype, &rows[i]));
        TT_TRY(tutti_op_save_copy(call, rows[i], i));
    }
    TT_TRY(tutti_op_save(call, d));
    tt_distances_t job = job_of(rows[0], rows[1], ((const params_t *)call->params)->p);
    job.d = tt_data_of(d);
    return tt_distances(tt_scope_exec(call->scope), &job);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    tutti_tensor_t *rows[2] = {NULL, NULL};
    const tutti_status_t status = compute(call, rows);
    tt_tensors_release(rows, 2);
    return status;
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *x = call->saved[0], *d = call->saved[call->input_count];
    tutti_tensor_t *dd;
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i]) {
            call->grads[i] = tt_scratch(call->scope, x->dtype, call->inputs[i].shape);
        }
    }
    TT_TRY(tutti_scope_status(call->scope));
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], x->dtype, &dd));
    const bool is_own = call->input_count == 1;
    tt_distances_t job =
        job_of(x, is_own ? NULL : call->saved[1], ((const params_t *)call->params)->p);
    job.d = tt_data_of(d);
    job.dd = tt_data_of(dd);
    job.dx = tt_data_of(call->grads[0]);
    job.dy = is_own ? NULL : tt_data_of(call->grads[1]);
    const tutti_status_t status = tt_distances_backward(tt_scope_exec(call->scope), &job);
    tutti_tensor_release(dd);
    return status;
}

/* ---- gradients, recorded --------------------------------------------------------------------- */

static tutti_tensor_t *sign_of(tutti_scope_t *s, tutti_tensor_t *t)
{
    return tutti_sub(s, tutti_cast(s, tutti_gt_scalar(s, t, 0), t->dtype),
                     tutti_cast(s, tutti_lt_scalar(s, t, 0), t->dtype));
}

/* |t|^(p-1) sign(t) / d^(p-1); t that are 0 have no slope, and are replaced in the power. */
static tutti_tensor_t *powers(tutti_scope_t *s, tutti_tensor_t *t, tutti_tensor_t *d, double p)
{
    tutti_tensor_t *size = tutti_abs(s, t);
    size = tutti_masked_fill(s, size, tutti_eq_scalar(s, size, 0), 1);
    return tutti_mul(s, tutti_pow_scalar(s, tutti_div(s, size, d), p - 1), sign_of(s, t));
}

/* dd slope(t, d) as distances.h says. dd, d: [...], t: [..., n]. Where d is 0 it is replaced. */
static tutti_tensor_t *slopes(tutti_scope_t *s, tutti_tensor_t *dd, tutti_tensor_t *d,
                              tutti_tensor_t *t, double p)
{
    tutti_tensor_t *is_zero = tutti_eq_scalar(s, d, 0);
    dd = tutti_unsqueeze(s, tutti_masked_fill(s, dd, is_zero, 0), -1);
    d = tutti_unsqueeze(s, tutti_masked_fill(s, d, is_zero, 1), -1);
    if (p == 2) {
        return tutti_mul(s, tutti_div(s, dd, d), t);
    }
    if (p == 1) {
        return tutti_mul(s, dd, sign_of(s, t));
    }
    if (isinf(p)) {
        tutti_tensor_t *is_less = tutti_ne(s, tutti_abs(s, t), d);
        return tutti_mul(s, dd, tutti_masked_fill(s, sign_of(s, t), is_less, 0));
    }
    return tutti_mul(s, dd, powers(s, t, d, p));
}

static tutti_status_t cdist_grad(tutti_op_backward_t *call)
{
    const double p = ((const params_t *)call->params)->p;
    tutti_scope_t *s = call->scope;
    if (p == 0) {
        return TUTTI_OK;
    }
    tutti_tensor_t *t = tutti_sub(s, tutti_unsqueeze(s, call->saved[0], -2),
                                  tutti_unsqueeze(s, call->saved[1], -3));
    tutti_tensor_t *dt = slopes(s, call->grad_outputs[0], call->saved[2], t, p);
    if (call->wanted[0]) {
        call->grads[0] = tutti_sum_over(s, dt, TUTTI_DIMS(-2), false);
    }
    if (call->wanted[1]) {
        call->grads[1] = tutti_neg(s, tutti_sum_over(s, dt, TUTTI_DIMS(-3), false));
    }
    return tutti_scope_status(s);
}

/* The first rows of all pairs, or the second. */
static tutti_tensor_t *rows_of_pairs(tutti_scope_t *s, int64_t rows, bool is_second)
{
    const int64_t count = rows * (rows - 1) / 2;
    int64_t *indices = tt_alloc_array((size_t)count + 1, sizeof *indices, "pairs"), at = 0;
    if (indices == NULL) {
        return tutti_scope_fail(s, TUTTI_ERR_NOMEM);
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = i + 1; j < rows; j++) {
            indices[at++] = is_second ? j : i;
        }
    }
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(count), indices);
    tt_free(indices);
    return x;
}

static tutti_status_t pdist_grad(tutti_op_backward_t *call)
{
    const double p = ((const params_t *)call->params)->p;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = call->saved[0];
    if (p == 0) {
        return TUTTI_OK;
    }
    tutti_tensor_t *first = rows_of_pairs(s, x->shape.dims[0], false);
    tutti_tensor_t *second = rows_of_pairs(s, x->shape.dims[0], true);
    tutti_tensor_t *t =
        tutti_sub(s, tutti_index_select(s, x, 0, first), tutti_index_select(s, x, 0, second));
    tutti_tensor_t *dt = slopes(s, call->grad_outputs[0], call->saved[1], t, p);
    tutti_tensor_t *dx = tutti_zeros(s, x->dtype, x->shape);
    dx = tutti_index_add(s, dx, 0, first, dt);
    call->grads[0] = tutti_index_add(s, dx, 0, second, tutti_neg(s, dt));
    return tutti_scope_status(s);
}

/* ---- operations ------------------------------------------------------------------------------ */

static tutti_status_t pdist_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    TT_TRY(check(call));
    if (x->shape.rank != 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want rows [N, D]");
    }
    const int64_t rows = x->shape.dims[0];
    outputs[0] = (tutti_spec_t){tt_sum_dtype(x->dtype), TUTTI_SHAPE(rows * (rows - 1) / 2)};
    return TUTTI_OK;
}

const tutti_op_t tt_op_pdist = {
    .name = "pdist",
    .about = "(Σ |x[i] - x[j]|^p)^(1/p) of rows i < j; dx[i] = Σ dd sign(t) (|t| / d)^(p-1)",
    .params_bytes = sizeof(params_t),
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = pdist_infer,
    .forward = forward,
    .backward = backward,
    .grad = pdist_grad,
};

/* The sizes in front of a matrix. */
static tutti_shape_t batch_of(tutti_shape_t shape)
{
    shape.rank -= 2;
    return shape;
}

static tutti_status_t cdist_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *y = call->inputs[1];
    const int rank = x->shape.rank;
    TT_TRY(check(call));
    if (rank < 2 || y->shape.rank != rank ||
        !tutti_shape_equal(batch_of(x->shape), batch_of(y->shape)) ||
        x->shape.dims[rank - 1] != y->shape.dims[rank - 1]) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want rows [..., P, D] and [..., R, D]");
    }
    outputs[0] = (tutti_spec_t){tt_sum_dtype(tutti_op_promote(x->dtype, y->dtype)), x->shape};
    outputs[0].shape.dims[rank - 1] = y->shape.dims[rank - 2];
    return TUTTI_OK;
}

const tutti_op_t tt_op_cdist = {
    .name = "cdist",
    .about = "(Σ |x[i] - y[j]|^p)^(1/p) of rows; dx[i] = Σ dd sign(t) (|t| / d)^(p-1), dy as well",
    .params_bytes = sizeof(params_t),
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = cdist_infer,
    .forward = forward,
    .backward = backward,
    .grad = cdist_grad,
};

tutti_tensor_t *tutti_pdist(tutti_scope_t *s, tutti_tensor_t *x, double p)
{
    return tutti_op_run(s, &tt_op_pdist, &x, 1, &(params_t){p});
}

/* x with other sizes in front of its matrices. */
static tutti_tensor_t *with_batch(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t batch)
{
    const tutti_shape_t own = x->shape;
    batch.dims[batch.rank] = own.dims[own.rank - 2];
    batch.dims[batch.rank + 1] = own.dims[own.rank - 1];
    batch.rank += 2;
    return tutti_shape_equal(own, batch) ? x : tutti_expand(s, x, batch);
}

tutti_tensor_t *tutti_cdist(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y, double p)
{
    tutti_shape_t batch = {.rank = 0};
    tutti_status_t status = tt_tensor_status(x);
    if (status >= 0) {
        status = tt_tensor_status(y);
    }
    const bool are_matrices = status >= 0 && x->shape.rank >= 2 && y->shape.rank >= 2;
    if (are_matrices) {
        status = tutti_op_broadcast_shapes("cdist", batch_of(x->shape), batch_of(y->shape), &batch);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *inputs[2] = {x, y};
    for (int i = 0; i < 2 && are_matrices; i++) {
        inputs[i] = with_batch(s, inputs[i], batch);
    }
    return tutti_op_run(s, &tt_op_cdist, inputs, 2, &(params_t){p});
}
