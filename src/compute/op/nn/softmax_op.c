/* softmax, log_softmax: along the last dimension in one kernel call; along another one, that
 * dimension is brought to the end first (a copy) and back again (a view).
 * Cost: one pass in cache per row. Source: textbook. */
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/norm/rows.h"

typedef tutti_status_t (*row_forward_t)(tt_exec_t *, tt_rows_t, void *y, const void *x);
typedef tutti_status_t (*row_backward_t)(tt_exec_t *, tt_rows_t, void *dx, const void *dy,
                                         const void *y);

static tt_rows_t rows_of(tutti_dtype_t dtype, tutti_shape_t shape)
{
    const int64_t n = shape.rank == 0 ? 1 : shape.dims[shape.rank - 1];
    return (tt_rows_t){dtype, (size_t)tt_row_count(shape), (size_t)n};
}

static tutti_status_t run_forward(tutti_op_call_t *call, row_forward_t kernel)
{
    tutti_tensor_t *x, *y = call->outputs[0];
    TT_TRY(tt_dense(call->scope, call->inputs[0], y->dtype, &x));
    const tutti_status_t status = kernel(tt_scope_exec(call->scope), rows_of(y->dtype, y->shape),
                                         tt_tensor_data(y), tt_tensor_data(x));
    tutti_tensor_release(x);
    return status < 0 ? status : tutti_op_save(call, y);
}

static tutti_status_t run_backward(tutti_op_backward_t *call, row_backward_t kernel)
{
    const tutti_tensor_t *y = call->saved[0];
    tutti_tensor_t *dy, *dx = tt_scratch(call->scope, y->dtype, y->shape);
    if (dx == NULL) {
        return tutti_scope_status(call->scope);
    }
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], y->dtype, &dy));
    call->grads[0] = dx;
    const tutti_status_t status = kernel(tt_scope_exec(call->scope), rows_of(y->dtype, y->shape),
                                         tt_tensor_data(dx), tt_tensor_data(dy), tt_tensor_data(y));
    tutti_tensor_release(dy);
    return status;
}

static tutti_status_t softmax_forward(tutti_op_call_t *call)
{
    return run_forward(call, tt_softmax);
}

static tutti_status_t softmax_backward(tutti_op_backward_t *call)
{
    return run_backward(call, tt_softmax_backward);
}

static tutti_status_t log_softmax_forward(tutti_op_call_t *call)
{
    return run_forward(call, tt_log_softmax);
}

static tutti_status_t log_softmax_backward(tutti_op_backward_t *call)
{
    return run_backward(call, tt_log_softmax_backward);
}

/* Σ of each row, which is repeated where it meets the row. */
static tutti_tensor_t *row_sum(tutti_scope_t *s, tutti_tensor_t *x)
{
    return x->shape.rank == 0 ? x : tutti_sum_over(s, x, TUTTI_DIMS(-1), true);
}

static tutti_status_t softmax_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *y = tt_wide(s, call->saved[0]), *g = tt_wide(s, call->grad_outputs[0]);
    tutti_tensor_t *mean = row_sum(s, tutti_mul(s, g, y));
    call->grads[0] = tutti_mul(s, tutti_sub(s, g, mean), y);
    return TUTTI_OK;
}

static tutti_status_t log_softmax_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *y = tt_wide(s, call->saved[0]), *g = tt_wide(s, call->grad_outputs[0]);
    call->grads[0] = tutti_sub(s, g, tutti_mul(s, tutti_exp(s, y), row_sum(s, g)));
    return TUTTI_OK;
}

const tutti_op_t tt_op_softmax = {
    .name = "softmax",
    .about = "y = exp(x) / Σ exp(x); dx = (dy - Σ dy y) y",
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = tutti_op_infer_same_float,
    .forward = softmax_forward,
    .backward = softmax_backward,
    .grad = softmax_grad,
};

const tutti_op_t tt_op_log_softmax = {
    .name = "log_softmax",
    .about = "y = x - log Σ exp(x); dx = dy - exp(y) Σ dy",
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = tutti_op_infer_same_float,
    .forward = log_softmax_forward,
    .backward = log_softmax_backward,
    .grad = log_softmax_grad,
};

static tutti_tensor_t *run_along(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *x, int dim)
{
    const int rank = x->shape.rank,
              at = rank == 0 && (dim == 0 || dim == -1) ? 0 : tt_dim_index(dim, rank);
    if (x->status >= 0 && at < 0) {
        const tutti_op_call_t call = {.op = op, .inputs = &x, .input_count = 1};
        return tutti_scope_fail(
            s, tutti_op_fail(&call, TUTTI_ERR_ARG, "there is no dimension %d", dim));
    }
    if (x->status < 0 || at >= rank - 1) {
        return tutti_op_run(s, op, &x, 1, NULL);
    }
    tutti_tensor_t *last = tutti_transpose(s, x, at, -1);
    return tutti_transpose(s, tutti_op_run(s, op, &last, 1, NULL), at, -1);
}

tutti_tensor_t *tutti_softmax(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return run_along(s, &tt_op_softmax, x, dim);
}

tutti_tensor_t *tutti_log_softmax(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return run_along(s, &tt_op_log_softmax, x, dim);
}
