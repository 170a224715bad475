/* sort, argsort, topk: one kernel, which gives the first elements of each line in order. The
 * gradient goes back to where each element came from. */
#include <tutti/op_index.h>
#include <tutti/op_shape.h>

#include "compute/op/ops.h"
#include "compute/op/shape/view.h"
#include "core/kernel/index/sorting.h"

typedef struct {
    int dim;
    int64_t count; /* of elements */
    bool has_all;  /* or all of them */
    bool is_descending;
} params_t;

static tutti_status_t infer_shape(const tutti_op_call_t *call, tutti_shape_t *out)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    int dim;
    TT_TRY(tt_op_dim(call, params->dim, x->shape.rank, &dim));
    *out = x->shape;
    if (!params->has_all && (params->count < 0 || params->count > x->shape.dims[dim])) {
        return tutti_op_fail(call, TUTTI_ERR_ARG,
                             "%lld elements are asked for, of %lld in dimension %d",
                             (long long)params->count, (long long)x->shape.dims[dim], dim);
    }
    out->dims[dim] = params->has_all ? x->shape.dims[dim] : params->count;
    return TUTTI_OK;
}

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(infer_shape(call, &outputs[0].shape));
    outputs[0].dtype = call->inputs[0]->dtype;
    outputs[1] = (tutti_spec_t){TUTTI_I64, outputs[0].shape};
    return TUTTI_OK;
}

static tutti_status_t arg_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    outputs[0].dtype = TUTTI_I64;
    return infer_shape(call, &outputs[0].shape);
}

static tt_sort_t sort_of(const tutti_op_call_t *call, const tutti_tensor_t *indices)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    return (tt_sort_t){.indices = tt_tensor_strided(indices),
                       .x = tt_tensor_strided(x),
                       .dim = tt_dim_index(params->dim, x->shape.rank),
                       .is_descending = params->is_descending};
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    tt_sort_t sort = sort_of(call, call->outputs[1]);
    sort.values = tt_tensor_strided(call->outputs[0]);
    TT_TRY(tt_sort(tt_scope_exec(call->scope), &sort));
    return tutti_op_save(call, call->outputs[1]);
}

static tutti_status_t arg_forward(tutti_op_call_t *call)
{
    const tt_sort_t sort = sort_of(call, call->outputs[0]);
    return tt_sort(tt_scope_exec(call->scope), &sort);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    const tutti_shape_t shape = call->inputs[0].shape;
    if (call->grad_outputs[0] != NULL) {
        call->grads[0] = tt_add_along(call->scope, call->grad_outputs[0], shape,
                                      tt_dim_index(params->dim, shape.rank), call->saved[0]);
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_sort = {
    .name = "sort",
    .output_count = 2,
    .about = "elements in order, and where they were; dx = dy where they were",
    .params_bytes = sizeof(params_t),
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = backward,
};

const tutti_op_t tt_op_topk = {
    .name = "topk",
    .output_count = 2,
    .about = "the largest or smallest elements in order, and where they were; dx = dy there",
    .params_bytes = sizeof(params_t),
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = backward,
};

const tutti_op_t tt_op_argsort = {
    .name = "argsort",
    .about = "where the elements in order were",
    .params_bytes = sizeof(params_t),
    .infer = arg_infer,
    .forward = arg_forward,
};

static tutti_tensor_t *run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *x,
                           params_t params, tutti_tensor_t **indices)
{
    tutti_tensor_t *outputs[2];
    tutti_op_run_many(s, op, &x, 1, &params, outputs, 2);
    if (indices != NULL) {
        *indices = outputs[1];
    }
    return outputs[0];
}

tutti_tensor_t *tutti_sort(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool descending,
                           tutti_tensor_t **indices)
{
    return run(s, &tt_op_sort, x, (params_t){dim, 0, true, descending}, indices);
}

tutti_tensor_t *tutti_argsort(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool descending)
{
    return tutti_op_run(s, &tt_op_argsort, &x, 1, &(params_t){dim, 0, true, descending});
}

tutti_tensor_t *tutti_topk(tutti_scope_t *s, tutti_tensor_t *x, int64_t k, int dim,
                           tutti_tensor_t **indices)
{
    return run(s, &tt_op_topk, x, (params_t){dim, k, false, true}, indices);
}

tutti_tensor_t *tutti_topk_smallest(tutti_scope_t *s, tutti_tensor_t *x, int64_t k, int dim,
                                    tutti_tensor_t **indices)
{
    return run(s, &tt_op_topk, x, (params_t){dim, k, false, false}, indices);
}
