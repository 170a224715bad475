/* Extremes along one dimension and where they are: max_along, min_along, argmax, argmin. The
 * first of equal ones counts, and NaN counts as the extreme. */
#include <tutti/op_reduce.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/reduce/reduce_op.h"
#include "compute/op/shape/view.h"
#include "core/kernel/index/indexing.h"
#include "core/kernel/reduce/reduce.h"

typedef struct {
    int dim;
    bool keepdim;
} params_t;

/* The shape that the index has. */
static tutti_status_t index_shape(const tutti_op_call_t *call, tutti_shape_t *out)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    int dim;
    TT_TRY(tt_op_dim(call, params->dim, x->shape.rank, &dim));
    *out = params->keepdim ? tt_shape_reduced(x->shape, 1u << dim)
                           : tt_shape_dropped(x->shape, 1u << dim);
    if (x->shape.dims[dim] == 0 && tutti_shape_numel(*out) > 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "there is no element to choose");
    }
    return TUTTI_OK;
}

static tutti_status_t along_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(index_shape(call, &outputs[0].shape));
    outputs[0].dtype = call->inputs[0]->dtype;
    outputs[1] = (tutti_spec_t){TUTTI_I64, outputs[0].shape};
    return TUTTI_OK;
}

static tutti_status_t arg_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(index_shape(call, &outputs[0].shape));
    outputs[0].dtype = TUTTI_I64;
    return TUTTI_OK;
}

/* The index of the extreme, written to a tensor of the result's shape, which is out as kernels see
 * it. */
static tutti_status_t find(tutti_op_call_t *call, tutti_tensor_t *index, int dim, tt_strided_t *out)
{
    const tt_reduce_t *kind = call->op->family;
    const tutti_tensor_t *x = call->inputs[0];
    const tt_strided_t in = tt_tensor_strided(x);
    *out = tt_strided_reduced(index, tt_shape_reduced(x->shape, 1u << dim));
    return tt_reduce(tt_scope_exec(call->scope), *kind, (tt_reduce_params_t){0}, out, &in,
                     1u << dim);
}

static tutti_status_t arg_forward(tutti_op_call_t *call)
{
    const params_t *params = call->params;
    tt_strided_t at;
    return find(call, call->outputs[0], tt_dim_index(params->dim, call->inputs[0]->shape.rank),
                &at);
}

static tutti_status_t along_forward(tutti_op_call_t *call)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    const int dim = tt_dim_index(params->dim, x->shape.rank);
    tt_strided_t at;
    TT_TRY(find(call, call->outputs[1], dim, &at));
    const tt_strided_t in = tt_tensor_strided(x),
                       out = tt_strided_reduced(call->outputs[0],
                                                tt_shape_reduced(x->shape, 1u << dim));
    TT_TRY(tt_gather(tt_scope_exec(call->scope), &out, &in, dim, &at));
    return tutti_op_save(call, call->outputs[1]);
}

static tutti_status_t along_backward(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    const tutti_shape_t wide = call->inputs[0].shape;
    const int dim = tt_dim_index(params->dim, wide.rank);
    const tutti_shape_t one = tt_shape_reduced(wide, 1u << dim);
    tutti_tensor_t *g = call->grad_outputs[0];
    if (g == NULL) {
        return TUTTI_OK;
    }
    g = tutti_contiguous(call->scope, tutti_cast(call->scope, g, tt_sum_dtype(g->dtype)));
    tutti_tensor_t *dx = tutti_zeros(call->scope, g->dtype, wide);
    TT_TRY(dx->status);
    const tt_strided_t out = tt_tensor_strided(dx), in = tt_strided_reduced(g, one),
                       at = tt_strided_reduced(call->saved[0], one);
    call->grads[0] = dx;
    return tt_scatter_add(tt_scope_exec(call->scope), &out, &in, dim, &at);
}

/* The same, recorded. */
static tutti_status_t along_grad(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    const tutti_shape_t wide = call->inputs[0].shape;
    const int dim = tt_dim_index(params->dim, wide.rank);
    const tutti_shape_t one = tt_shape_reduced(wide, 1u << dim);
    if (call->grad_outputs[0] != NULL) {
        tutti_tensor_t *g = tutti_reshape(call->scope, call->grad_outputs[0], one),
                       *at = tutti_reshape(call->scope, call->saved[0], one);
        call->grads[0] = tt_add_along(call->scope, g, wide, dim, at);
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_max_along = {
    .name = "max_along",
    .output_count = 2,
    .about = "y = max x and its index; dx = dy at the index",
    .params_bytes = sizeof(params_t),
    .infer = along_infer,
    .forward = along_forward,
    .backward = along_backward,
    .grad = along_grad,
    .family = &(const tt_reduce_t){TT_REDUCE_ARGMAX},
};

const tutti_op_t tt_op_min_along = {
    .name = "min_along",
    .output_count = 2,
    .about = "y = min x and its index; dx = dy at the index",
    .params_bytes = sizeof(params_t),
    .infer = along_infer,
    .forward = along_forward,
    .backward = along_backward,
    .grad = along_grad,
    .family = &(const tt_reduce_t){TT_REDUCE_ARGMIN},
};

const tutti_op_t tt_op_argmax = {
    .name = "argmax",
    .about = "index of the largest x",
    .params_bytes = sizeof(params_t),
    .infer = arg_infer,
    .forward = arg_forward,
    .family = &(const tt_reduce_t){TT_REDUCE_ARGMAX},
};

const tutti_op_t tt_op_argmin = {
    .name = "argmin",
    .about = "index of the smallest x",
    .params_bytes = sizeof(params_t),
    .infer = arg_infer,
    .forward = arg_forward,
    .family = &(const tt_reduce_t){TT_REDUCE_ARGMIN},
};

static tutti_tensor_t *run_along(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *x,
                                 params_t params, tutti_tensor_t **indices)
{
    tutti_tensor_t *outputs[2];
    tutti_op_run_many(s, op, &x, 1, &params, outputs, 2);
    if (indices != NULL) {
        *indices = outputs[1];
    }
    return outputs[0];
}

tutti_tensor_t *tutti_max_along(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool keepdim,
                                tutti_tensor_t **indices)
{
    return run_along(s, &tt_op_max_along, x, (params_t){dim, keepdim}, indices);
}

tutti_tensor_t *tutti_min_along(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool keepdim,
                                tutti_tensor_t **indices)
{
    return run_along(s, &tt_op_min_along, x, (params_t){dim, keepdim}, indices);
}

tutti_tensor_t *tutti_argmax(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool keepdim)
{
    return tutti_op_run(s, &tt_op_argmax, &x, 1, &(params_t){dim, keepdim});
}

tutti_tensor_t *tutti_argmin(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool keepdim)
{
    return tutti_op_run(s, &tt_op_argmin, &x, 1, &(params_t){dim, keepdim});
}
