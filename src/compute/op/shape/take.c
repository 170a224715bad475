/* Elements and slices chosen by index: gather, index_select. Backward adds at the same indices, in
 * their order, so that repeated indices give the same bits for any number of threads. */
#include <tutti/op_shape.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/index_input.h"
#include "compute/op/shape/view.h"
#include "core/kernel/index/indexing.h"

/* ---- gather ---------------------------------------------------------------------------------- */

static tutti_status_t gather_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *index = call->inputs[1];
    int dim;
    TT_TRY(tt_op_check_index(call));
    TT_TRY(tt_op_dim(call, *(const int *)call->params, x->shape.rank, &dim));
    bool fits = index->shape.rank == x->shape.rank;
    for (int i = 0; fits && i < x->shape.rank; i++) {
        fits = i == dim || index->shape.dims[i] <= x->shape.dims[i];
    }
    if (!fits) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the index must have as many dimensions, none larger but dimension %d",
                             dim);
    }
    outputs[0] = (tutti_spec_t){x->dtype, index->shape};
    return TUTTI_OK;
}

static tutti_status_t gather_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int dim = tt_dim_index(*(const int *)call->params, x->shape.rank);
    tutti_tensor_t *index;
    TT_TRY(tt_op_prepare_index(call, &index));
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]), at = tt_tensor_strided(index),
                       in = tt_cut_to(tt_tensor_strided(x), index->shape, dim);
    return tt_gather(tt_scope_exec(call->scope), &out, &in, dim, &at);
}

static tutti_status_t gather_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0], *index = call->saved[0];
    const int dim = tt_dim_index(*(const int *)call->params, g->shape.rank);
    g = tutti_cast(call->scope, g, tt_sum_dtype(g->dtype));
    tutti_tensor_t *dx = tutti_zeros(call->scope, g->dtype, call->inputs[0].shape);
    TT_TRY(dx->status);
    const tt_strided_t out = tt_cut_to(tt_tensor_strided(dx), index->shape, dim),
                       in = tt_tensor_strided(g), at = tt_tensor_strided(index);
    call->grads[0] = dx;
    return tt_scatter_add(tt_scope_exec(call->scope), &out, &in, dim, &at);
}

const tutti_op_t tt_op_gather = {
    .name = "gather",
    .about = "y = x[.., index[i,j,k], ..]; dx = dy added at the chosen places",
    .params_bytes = sizeof(int),
    .infer = gather_infer,
    .forward = gather_forward,
    .backward = gather_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tt_add_along(tutti_scope_t *s, tutti_tensor_t *g, tutti_shape_t x, int dim,
                             tutti_tensor_t *index)
{
    index = tutti_contiguous(s, tutti_cast(s, index, TUTTI_I64));
    if (g->status < 0 || index->status < 0) {
        return g;
    }
    const tutti_spec_t inputs[] = {{g->dtype, x}, {TUTTI_I64, index->shape}},
                       output = {g->dtype, index->shape};
    const tt_saved_t saved = {.tensor = index, .from = 2};
    const tt_op_backward_t call = {.seen = {.op = &tt_op_gather,
                                            .scope = s,
                                            .input_count = 2,
                                            .output_count = 1,
                                            .params = &dim,
                                            .inputs = inputs,
                                            .outputs = &output,
                                            .grad_outputs = &g,
                                            .saved = &index},
                                   .items = &saved,
                                   .saved_count = 1};
    return tt_adjoint(&call.seen, 0);
}

tutti_tensor_t *tutti_gather_along(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                   tutti_tensor_t *index)
{
    return tutti_op_run(s, &tt_op_gather, (tutti_tensor_t *[]){x, index}, 2, &dim);
}

/* ---- index_select ---------------------------------------------------------------------------- */

static tutti_status_t index_select_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *index = call->inputs[1];
    int dim;
    TT_TRY(tt_op_check_index(call));
    TT_TRY(tt_op_dim(call, *(const int *)call->params, x->shape.rank, &dim));
    if (index->shape.rank != 1) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the index must have one dimension");
    }
    TT_TRY(tutti_op_infer_same(call, outputs));
    outputs->shape.dims[dim] = index->numel;
    return tt_shape_check(outputs->dtype, outputs->shape);
}

static tutti_status_t index_select_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int dim = tt_dim_index(*(const int *)call->params, x->shape.rank);
    tutti_tensor_t *index;
    TT_TRY(tt_op_prepare_index(call, &index));
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]), in = tt_tensor_strided(x);
    return tt_index_select(tt_scope_exec(call->scope), &out, &in, dim, tt_tensor_data(index));
}

static tutti_status_t index_select_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0];
    const int dim = tt_dim_index(*(const int *)call->params, g->shape.rank);
    tutti_tensor_t *dx = tutti_zeros(call->scope, tt_sum_dtype(g->dtype), call->inputs[0].shape);
    TT_TRY(dx->status);
    const tt_strided_t out = tt_tensor_strided(dx), in = tt_tensor_strided(g);
    call->grads[0] = dx;
    return tt_index_add(tt_scope_exec(call->scope), &out, &in, dim, tt_tensor_data(call->saved[0]));
}

const tutti_op_t tt_op_index_select = {
    .name = "index_select",
    .about = "chosen indices of a dimension; dx = dy added at them",
    .params_bytes = sizeof(int),
    .infer = index_select_infer,
    .forward = index_select_forward,
    .backward = index_select_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tutti_index_select(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                   tutti_tensor_t *index)
{
    return tutti_op_run(s, &tt_op_index_select, (tutti_tensor_t *[]){x, index}, 2, &dim);
}
