/* cumsum, cumprod. Sums go back as sums from the end. Source: scan.h. */
#include <tutti/op_index.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/autograd/adjoint.h"
#include "compute/autograd/compose.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/view.h"
#include "core/kernel/index/scan.h"

static int dim_of(const void *params, tutti_shape_t shape)
{
    return tt_dim_index(*(const int *)params, shape.rank);
}

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    int dim;
    TT_TRY(tt_op_dim(call, *(const int *)call->params, call->inputs[0]->shape.rank, &dim));
    TT_TRY(tutti_op_infer_same(call, outputs));
    outputs->dtype = tutti_dtype_is_float(outputs->dtype) ? outputs->dtype : TUTTI_I64;
    return TUTTI_OK;
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const tt_scan_kind_t *kind = call->op->family;
    const tutti_tensor_t *x = call->inputs[0];
    const tt_scan_t scan = {.out = tt_tensor_strided(call->outputs[0]),
                            .x = tt_tensor_strided(x),
                            .dim = dim_of(call->params, x->shape),
                            .kind = *kind};
    TT_TRY(tt_scan(tt_scope_exec(call->scope), &scan));
    return *kind == TT_SCAN_SUM ? TUTTI_OK : tutti_op_save(call, call->inputs[0]);
}

static tutti_status_t sum_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0];
    tutti_tensor_t *dx = tutti_empty(call->scope, tt_sum_dtype(g->dtype), g->shape);
    TT_TRY(dx->status);
    const tt_scan_t scan = {.out = tt_tensor_strided(dx),
                            .x = tt_tensor_strided(g),
                            .dim = dim_of(call->params, g->shape),
                            .is_reverse = true};
    call->grads[0] = dx;
    return tt_scan(tt_scope_exec(call->scope), &scan);
}

static tutti_status_t product_backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *g = call->grad_outputs[0];
    tutti_tensor_t *dx = tutti_empty(call->scope, tt_sum_dtype(g->dtype), g->shape);
    TT_TRY(dx->status);
    const tt_product_backward_t backward = {.dx = tt_tensor_strided(dx),
                                            .g = tt_tensor_strided(g),
                                            .x = tt_tensor_strided(call->saved[0]),
                                            .dim = dim_of(call->params, g->shape)};
    call->grads[0] = dx;
    return tt_scan_product_backward(tt_scope_exec(call->scope), &backward);
}

/* y[i] times y[i - width], of all i at a time, with widths 1, 2, 4, …: products alone, so that
 * every gradient of them is one of products. In f64, which f32's products do not leave. */
static tutti_tensor_t *compose_product(const tutti_op_backward_t *call,
                                       tutti_tensor_t *const *inputs)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *y = tutti_cast(s, inputs[0], TUTTI_F64);
    const int dim = dim_of(call->params, call->inputs[0].shape);
    const int64_t n = call->inputs[0].shape.dims[dim];
    for (int64_t width = 1; width < n; width *= 2) {
        tutti_tensor_t *first = tutti_narrow(s, y, dim, 0, width),
                       *rest = tutti_narrow(s, y, dim, width, n - width);
        rest = tutti_mul(s, rest, tutti_narrow(s, y, dim, 0, n - width));
        y = tutti_cat(s, (tutti_tensor_t *[]){first, rest}, 2, dim);
    }
    return y;
}

static tutti_status_t product_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose_product);
}

const tutti_op_t tt_op_cumsum = {
    .name = "cumsum",
    .about = "y[i] = Σ x[j], j ≤ i; dx[j] = Σ dy[i], i ≥ j",
    .params_bytes = sizeof(int),
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = infer,
    .forward = forward,
    .backward = sum_backward,
    .grad = tt_grad_linear,
    .family = &(const tt_scan_kind_t){TT_SCAN_SUM},
};

const tutti_op_t tt_op_cumprod = {
    .name = "cumprod",
    .about = "y[i] = Π x[j], j ≤ i; dx[j] = Σ dy[i] Π x[k], i ≥ j, k ≤ i but j",
    .params_bytes = sizeof(int),
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = infer,
    .forward = forward,
    .backward = product_backward,
    .grad = product_grad,
    .family = &(const tt_scan_kind_t){TT_SCAN_PRODUCT},
};

tutti_tensor_t *tutti_cumsum(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return tutti_op_run(s, &tt_op_cumsum, &x, 1, &dim);
}

tutti_tensor_t *tutti_cumprod(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return tutti_op_run(s, &tt_op_cumprod, &x, 1, &dim);
}
