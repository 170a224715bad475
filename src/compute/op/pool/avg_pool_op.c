/* avg_pool1d, avg_pool2d and the adaptive ones. Backward needs no values, only shapes. Cost and
 * source: op_conv.h, pooling.h. */
#include <tutti/op_conv.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "compute/op/pool/pooling_op.h"

static tutti_status_t average_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *y = call->outputs[0];
    const tt_pooling_t p =
        tt_pool_describe(call->op, call->params, call->inputs[0]->shape, y->shape, y->dtype);
    tutti_tensor_t *x;
    TT_TRY(tt_dense(call->scope, call->inputs[0], y->dtype, &x));
    const tutti_status_t status =
        tt_pooling_average(tt_scope_exec(call->scope), &p, tt_tensor_data(x), tt_tensor_data(y));
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t average_backward(tutti_op_backward_t *call)
{
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    const tt_pooling_t p = tt_pool_describe(call->op, call->params, call->inputs[0].shape,
                                            call->outputs[0].shape, dtype);
    tutti_tensor_t *dy, *dx = tt_scratch(call->scope, dtype, call->inputs[0].shape);
    TT_TRY(dx == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], dtype, &dy));
    const tutti_status_t status = tt_pooling_average_backward(
        tt_scope_exec(call->scope), &p, tt_tensor_data(dy), tt_tensor_data(dx));
    tutti_tensor_release(dy);
    call->grads[0] = dx;
    return status;
}

const tutti_op_t tt_op_avg_pool1d = {
    .name = "avg_pool1d",
    .about = "y = the mean of each window of a line; dx = its part of dy",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = average_forward,
    .backward = average_backward,
    .grad = tt_grad_linear,
    .family = &(const tt_pool_kind_t){.dims = 1},
};

const tutti_op_t tt_op_avg_pool2d = {
    .name = "avg_pool2d",
    .about = "y = the mean of each window of a plane; dx = its part of dy",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = average_forward,
    .backward = average_backward,
    .grad = tt_grad_linear,
    .family = &(const tt_pool_kind_t){.dims = 2},
};

const tutti_op_t tt_op_adaptive_avg_pool1d = {
    .name = "adaptive_avg_pool1d",
    .about = "avg_pool1d, its windows chosen for the size of y",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = average_forward,
    .backward = average_backward,
    .grad = tt_grad_linear,
    .family = &(const tt_pool_kind_t){.dims = 1, .is_adaptive = true},
};

const tutti_op_t tt_op_adaptive_avg_pool2d = {
    .name = "adaptive_avg_pool2d",
    .about = "avg_pool2d, its windows chosen for the size of y",
    .params_bytes = sizeof(tt_pool_params_t),
    .infer = tt_pool_infer,
    .forward = average_forward,
    .backward = average_backward,
    .grad = tt_grad_linear,
    .family = &(const tt_pool_kind_t){.dims = 2, .is_adaptive = true},
};

static tt_pool_params_t params_of(const tutti_avg_pool_options_t *given, int dims)
{
    const tutti_avg_pool_options_t o =
        given == NULL ? (tutti_avg_pool_options_t){.kernel = {0}} : *given;
    tt_pool_params_t p =
        tt_pool_params(dims, o.kernel, o.stride, o.padding, (const int64_t[]){1, 1});
    p.ceil_mode = o.ceil_mode;
    p.excludes_padding = o.excludes_padding;
    p.divisor = o.divisor;
    return p;
}

tutti_tensor_t *tutti_avg_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_avg_pool_options_t *options)
{
    const tt_pool_params_t params = params_of(options, 1);
    return tutti_op_run(s, &tt_op_avg_pool1d, &x, 1, &params);
}

tutti_tensor_t *tutti_avg_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_avg_pool_options_t *options)
{
    const tt_pool_params_t params = params_of(options, 2);
    return tutti_op_run(s, &tt_op_avg_pool2d, &x, 1, &params);
}

tutti_tensor_t *tutti_adaptive_avg_pool1d(tutti_scope_t *s, tutti_tensor_t *x, int64_t length)
{
    const tt_pool_params_t params = {.size = {1, length}};
    return tutti_op_run(s, &tt_op_adaptive_avg_pool1d, &x, 1, &params);
}

tutti_tensor_t *tutti_adaptive_avg_pool2d(tutti_scope_t *s, tutti_tensor_t *x, int64_t height,
                                          int64_t width)
{
    const tt_pool_params_t params = {.size = {height, width}};
    return tutti_op_run(s, &tt_op_adaptive_avg_pool2d, &x, 1, &params);
}
