/* max_pool1d, max_pool2d and the adaptive ones. Kept for backward: where the maxima are, in i32;
 * the i64 indices are made for those who ask. Cost and source: op_conv.h, pooling.h. */
#include <tutti/op_conv.h>
#include <tutti/op_shape.h>

#include "compute/op/shape/view.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "compute/op/pool/pooling_op.h"

/* at: i32, where the maxima are; NULL if nobody asks. */
static tutti_status_t find_max(tutti_op_call_t *call, tutti_tensor_t *at)
{
    const tutti_tensor_t *y = call->outputs[0];
    const tt_pooling_t p =
        tt_pool_describe(call->op, call->params, call->inputs[0]->shape, y->shape, y->dtype);
    tutti_tensor_t *x;
    TT_TRY(tt_dense(call->scope, call->inputs[0], y->dtype, &x));
    const tutti_status_t status = tt_pooling_max(tt_scope_exec(call->scope), &p, tt_tensor_data(x),
                                                 tt_tensor_data(y), tt_data_of(at));
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t max_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *at = NULL;
    if (call->needs_grad || call->output_count > 1) {
        at = tt_scratch(call->scope, TUTTI_I32, call->outputs[0]->shape);
        TT_TRY(at == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    }
    TT_TRY(find_max(call, at));
    if (call->output_count > 1) {
        TT_TRY(tt_tensor_convert(tt_scope_exec(call->scope), call->outputs[1], at));
    }
    return tutti_op_save(call, at);
}

static tutti_status_t max_backward(tutti_op_backward_t *call)
{
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    const tt_pooling_t p = tt_pool_describe(call->op, call->params, call->inputs[0].shape,
                                            call->outputs[0].shape, dtype);
    if (call->grad_outputs[0] == NULL) {
        return TUTTI_OK;
    }
    const bool is_wide = dtype != TUTTI_F64 && !tt_pooling_is_disjoint(&p);
    tutti_tensor_t *dy,
        *dx = tt_scratch(call->scope, is_wide ? TUTTI_F32 : dtype, call->inputs[0].shape);
    TT_TRY(dx == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], dtype, &dy));
    const tutti_status_t status =
        tt_pooling_max_backward(tt_scope_exec(call->scope), &p, tt_tensor_data(dy),
                                tt_tensor_data(call->saved[0]), tt_tensor_data(dx));
    tutti_tensor_release(dy);
    call->grads[0] = dx;
    return status;
}

/* The same, recorded: a plane is a row, of which elements were chosen. */
static tutti_status_t max_grad(tutti_op_backward_t *call)
{
    const int dims = ((const tt_pool_kind_t *)call->op->family)->dims;
    tutti_scope_t *s = call->scope;
    if (call->grad_outputs[0] == NULL) {
        return TUTTI_OK;
    }
    tutti_tensor_t *g = tutti_flatten(s, call->grad_outputs[0], -dims, -1),
                   *at = tutti_flatten(s, call->saved[0], -dims, -1);
    tutti_shape_t planes = call->inputs[0].shape;
    for (int i = 1; i < dims; i++) {
        planes.rank--;
        planes.dims[planes.rank - 1] *= planes.dims[planes.rank];
    }
    tutti_tensor_t *dx = tt_add_along(s, g, planes, -1, at);
    call->grads[0] = tutti_reshape(s, dx, call->inputs[0].shape);
    return TUTTI_OK;
}

const tutti_op_t tt_op_max_pool1d = {
    .name = "max_pool1d",
    .output_count = TUTTI_OP_ANY, /* the indices are optional */
    .about = "y = the largest of each window of a line and its index; dx = dy at the index",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = max_forward,
    .backward = max_backward,
    .grad = max_grad,
    .family = &(const tt_pool_kind_t){.dims = 1},
};

const tutti_op_t tt_op_max_pool2d = {
    .name = "max_pool2d",
    .output_count = TUTTI_OP_ANY, /* the indices are optional */
    .about = "y = the largest of each window of a plane and its index; dx = dy at the index",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = max_forward,
    .backward = max_backward,
    .grad = max_grad,
    .family = &(const tt_pool_kind_t){.dims = 2},
};

const tutti_op_t tt_op_adaptive_max_pool1d = {
    .name = "adaptive_max_pool1d",
    .output_count = TUTTI_OP_ANY, /* the indices are optional */
    .about = "max_pool1d, its windows chosen for the size of y",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = max_forward,
    .backward = max_backward,
    .grad = max_grad,
    .family = &(const tt_pool_kind_t){.dims = 1, .is_adaptive = true},
};

const tutti_op_t tt_op_adaptive_max_pool2d = {
    .name = "adaptive_max_pool2d",
    .output_count = TUTTI_OP_ANY, /* the indices are optional */
    .about = "max_pool2d, its windows chosen for the size of y",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = max_forward,
    .backward = max_backward,
    .grad = max_grad,
    .family = &(const tt_pool_kind_t){.dims = 2, .is_adaptive = true},
};

/* ---- calls ----------------------------------------------------------------------------------- */

static tutti_tensor_t *run_max(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *x,
                               const tt_pool_params_t *params, tutti_tensor_t **indices)
{
    tutti_tensor_t *outputs[2] = {NULL};
    tutti_op_run_many(s, op, &x, 1, params, outputs, indices == NULL ? 1 : 2);
    if (indices != NULL) {
        *indices = outputs[1];
    }
    return outputs[0];
}

static tt_pool_params_t params_of(const tutti_pool_options_t *given, int dims)
{
    const tutti_pool_options_t o = given == NULL ? (tutti_pool_options_t){.kernel = {0}} : *given;
    tt_pool_params_t p = tt_pool_params(dims, o.kernel, o.stride, o.padding, o.dilation);
    p.ceil_mode = o.ceil_mode;
    return p;
}

tutti_tensor_t *tutti_max_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_pool_options_t *options, tutti_tensor_t **indices)
{
    const tt_pool_params_t params = params_of(options, 1);
    return run_max(s, &tt_op_max_pool1d, x, &params, indices);
}

tutti_tensor_t *tutti_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_pool_options_t *options, tutti_tensor_t **indices)
{
    const tt_pool_params_t params = params_of(options, 2);
    return run_max(s, &tt_op_max_pool2d, x, &params, indices);
}

tutti_tensor_t *tutti_adaptive_max_pool1d(tutti_scope_t *s, tutti_tensor_t *x, int64_t length,
                                          tutti_tensor_t **indices)
{
    const tt_pool_params_t params = {.size = {1, length}};
    return run_max(s, &tt_op_adaptive_max_pool1d, x, &params, indices);
}

tutti_tensor_t *tutti_adaptive_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x, int64_t height,
                                          int64_t width, tutti_tensor_t **indices)
{
    const tt_pool_params_t params = {.size = {height, width}};
    return run_max(s, &tt_op_adaptive_max_pool2d, x, &params, indices);
}
