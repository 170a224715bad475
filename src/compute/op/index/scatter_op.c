/* Writing and adding at indices: index_add, scatter_along, scatter_along_add. x is copied, and the
 * source goes into the copy in its order, so that equal indices give the same bits for any number
 * of threads. 16-bit floats are added up in f32, integers in i64. */
#include <tutti/op_index.h>
#include <tutti/op_math.h>
#include <tutti/op_pad.h>
#include <tutti/op_shape.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/index_input.h"
#include "compute/op/shape/view.h"
#include "core/kernel/index/indexing.h"
#include "core/kernel/index/scatter_back.h"

static tutti_status_t check_operands(const tutti_op_call_t *call, tutti_spec_t *outputs, int *dim)
{
    const tutti_tensor_t *x = call->inputs[0], *source = call->inputs[2];
    TT_TRY(tt_op_check_index(call));
    TT_TRY(tt_op_dim(call, *(const int *)call->params, x->shape.rank, dim));
    if (x->dtype != source->dtype) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the source must have the dtype of the input");
    }
    return tutti_op_infer_same(call, outputs);
}

static int dim_of(const void *params, tutti_shape_t shape)
{
    return tt_dim_index(*(const int *)params, shape.rank);
}

/* The dtype that equal indices are added up in. */
static tutti_dtype_t adding_dtype(tutti_dtype_t dtype)
{
    return tutti_dtype_is_float(dtype) ? tt_sum_dtype(dtype) : TUTTI_I64;
}

static tutti_status_t copy(tutti_scope_t *s, const tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t out = tt_tensor_strided(to), in = tt_tensor_strided(from);
    return tt_map_unary(tt_scope_exec(s), TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in);
}

/* The output, or a wider tensor beside it, with x's values. */
static tutti_status_t begin_sum(tutti_op_call_t *call, tutti_tensor_t **sum)
{
    const tutti_tensor_t *y = call->outputs[0];
    const tutti_dtype_t dtype = adding_dtype(y->dtype);
    *sum = dtype == y->dtype ? call->outputs[0] : tutti_empty(call->scope, dtype, y->shape);
    TT_TRY((*sum)->status);
    return copy(call->scope, *sum, call->inputs[0]);
}

static tutti_status_t end_sum(tutti_op_call_t *call, const tutti_tensor_t *sum)
{
    return sum == call->outputs[0] ? TUTTI_OK : copy(call->scope, call->outputs[0], sum);
}

/* ---- index_add ------------------------------------------------------------------------------- */

static tutti_status_t index_add_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *index = call->inputs[1], *source = call->inputs[2];
    int dim;
    TT_TRY(check_operands(call, outputs, &dim));
    if (index->shape.rank != 1) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the index must have one dimension");
    }
    tutti_shape_t want = x->shape;
    want.dims[dim] = index->numel;
    if (!tutti_shape_equal(want, source->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the source must have the input's shape, but as many indices in "
                             "dimension %d as the index",
                             dim);
    }
    return TUTTI_OK;
}

static tutti_status_t index_add_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *index, *sum;
    TT_TRY(tt_op_prepare_index(call, &index));
    TT_TRY(begin_sum(call, &sum));
    const tt_strided_t out = tt_tensor_strided(sum), in = tt_tensor_strided(call->inputs[2]);
    TT_TRY(tt_index_add(tt_scope_exec(call->scope), &out, &in, dim_of(call->params, sum->shape),
                        tt_tensor_data(index)));
    return end_sum(call, sum);
}

static tutti_status_t index_add_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0];
    const int dim = dim_of(call->params, g->shape);
    call->grads[0] = call->wanted[0] ? g : NULL;
    if (call->wanted[2]) {
        call->grads[2] = tutti_index_select(call->scope, g, dim, call->saved[0]);
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_index_add = {
    .name = "index_add",
    .about = "x with the source added at chosen indices; dx = dy, dsource = dy at them",
    .params_bytes = sizeof(int),
    .infer = index_add_infer,
    .forward = index_add_forward,
    .backward = index_add_backward,
    .grad = index_add_backward,
};

tutti_tensor_t *tutti_index_add(tutti_scope_t *s, tutti_tensor_t *x, int dim, tutti_tensor_t *index,
                                tutti_tensor_t *source)
{
    return tutti_op_run(s, &tt_op_index_add, (tutti_tensor_t *[]){x, index, source}, 3, &dim);
}

/* ---- scatter_along, scatter_along_add -------------------------------------------------------- */

static tutti_status_t scatter_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *index = call->inputs[1], *source = call->inputs[2];
    int dim;
    TT_TRY(check_operands(call, outputs, &dim));
    const int rank = x->shape.rank;
    bool fits = index->shape.rank == rank && source->shape.rank == rank;
    for (int i = 0; fits && i < rank; i++) {
        const int64_t size = index->shape.dims[i];
        fits = size <= source->shape.dims[i] && (i == dim || size <= x->shape.dims[i]);
    }
    if (!fits) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the index must have as many dimensions as input and source, none "
                             "larger than the source's, or but for dimension %d than the input's",
                             dim);
    }
    return TUTTI_OK;
}

/* The part of the source that the index names. */
static tt_strided_t used_part(const tutti_tensor_t *source, tutti_shape_t index)
{
    tt_strided_t part = tt_tensor_strided(source);
    for (int i = 0; i < part.rank; i++) {
        part.shape[i] = index.dims[i];
    }
    return part;
}

static tutti_status_t scatter_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *y = call->outputs[0];
    const int dim = dim_of(call->params, y->shape);
    tutti_tensor_t *index;
    TT_TRY(tt_op_prepare_index(call, &index));
    TT_TRY(copy(call->scope, y, call->inputs[0]));
    const tt_strided_t out = tt_cut_to(tt_tensor_strided(y), index->shape, dim),
                       in = used_part(call->inputs[2], index->shape), at = tt_tensor_strided(index);
    return tt_scatter(tt_scope_exec(call->scope), &out, &in, dim, &at);
}

static tutti_status_t scatter_add_forward(tutti_op_call_t *call)
{
    const int dim = dim_of(call->params, call->inputs[0]->shape);
    tutti_tensor_t *index, *sum;
    TT_TRY(tt_op_prepare_index(call, &index));
    TT_TRY(begin_sum(call, &sum));
    tutti_tensor_t *source = tutti_cast(call->scope, call->inputs[2], sum->dtype);
    TT_TRY(source->status);
    const tt_strided_t out = tt_cut_to(tt_tensor_strided(sum), index->shape, dim),
                       in = used_part(source, index->shape), at = tt_tensor_strided(index);
    TT_TRY(tt_scatter_add(tt_scope_exec(call->scope), &out, &in, dim, &at));
    return end_sum(call, sum);
}

/* Of the index's shape; what is outside of it in the source gets 0. */
static tutti_tensor_t *to_source(const tutti_op_backward_t *call, tutti_tensor_t *grad)
{
    const tutti_shape_t source = call->inputs[2].shape, index = call->inputs[1].shape;
    tutti_padding_t padding = {.count = 2 * source.rank};
    for (int i = 0; i < source.rank; i++) {
        padding.sizes[2 * (source.rank - 1 - i) + 1] = source.dims[i] - index.dims[i];
    }
    return tutti_shape_equal(source, index)
               ? grad
               : tutti_pad(call->scope, grad, padding, TUTTI_PAD_CONSTANT, 0);
}

/* Of several elements with one target the last one stands there, and gets the gradient. */
static tutti_tensor_t *where_it_stands(const tutti_op_backward_t *call, tutti_tensor_t *index,
                                       int dim)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *numbers =
        tutti_reshape(s, tutti_arange(s, TUTTI_I64, 0, 1, tutti_tensor_numel(index)), index->shape);
    tutti_tensor_t *none = tutti_zeros(s, TUTTI_I64, call->inputs[0].shape);
    tutti_tensor_t *standing = tutti_scatter_along(s, none, dim, index, numbers);
    return tutti_eq(s, tutti_gather_along(s, standing, dim, index), numbers);
}

static tt_strided_t view_or_none(const tutti_tensor_t *x)
{
    return x == NULL ? (tt_strided_t){.data = NULL} : tt_tensor_strided(x);
}

static tutti_status_t scatter_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    const tutti_tensor_t *g = call->grad_outputs[0], *index = call->saved[0];
    const int dim = dim_of(call->params, g->shape);
    tutti_tensor_t *dx = call->wanted[0] ? tutti_empty(s, g->dtype, g->shape) : NULL;
    tutti_tensor_t *dsource = call->wanted[2] ? tutti_empty(s, g->dtype, index->shape) : NULL;
    TT_TRY(tutti_scope_status(s));
    if (dx != NULL) {
        TT_TRY(copy(s, dx, g));
    }
    const tt_scatter_back_t back = {.dx = tt_cut_to(view_or_none(dx), index->shape, dim),
                                    .g = tt_cut_to(tt_tensor_strided(g), index->shape, dim),
                                    .dsource = view_or_none(dsource),
                                    .index = tt_tensor_strided(index),
                                    .dim = dim};
    TT_TRY(tt_scatter_back(tt_scope_exec(s), &back));
    call->grads[0] = dx;
    call->grads[2] = dsource == NULL ? NULL : to_source(call, dsource);
    return TUTTI_OK;
}

/* The same, recorded. */
static tutti_status_t scatter_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = call->grad_outputs[0], *index = call->saved[0];
    const int dim = dim_of(call->params, g->shape);
    if (call->wanted[0]) {
        tutti_tensor_t *zeros = tutti_zeros(s, g->dtype, index->shape);
        call->grads[0] = tutti_scatter_along(s, g, dim, index, zeros);
    }
    if (call->wanted[2]) {
        tutti_tensor_t *taken = tutti_gather_along(s, g, dim, index);
        tutti_tensor_t *grad = tutti_where(s, where_it_stands(call, index, dim), taken,
                                           tutti_zeros(s, g->dtype, TUTTI_SCALAR));
        call->grads[2] = to_source(call, grad);
    }
    return TUTTI_OK;
}

static tutti_status_t scatter_add_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0], *index = call->saved[0];
    const int dim = dim_of(call->params, g->shape);
    call->grads[0] = call->wanted[0] ? g : NULL;
    if (call->wanted[2]) {
        call->grads[2] = to_source(call, tutti_gather_along(call->scope, g, dim, index));
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_scatter_along = {
    .name = "scatter_along",
    .about = "x with the source at chosen places; dsource = dy there, dx = dy elsewhere",
    .params_bytes = sizeof(int),
    .infer = scatter_infer,
    .forward = scatter_forward,
    .backward = scatter_backward,
    .grad = scatter_grad,
};

const tutti_op_t tt_op_scatter_along_add = {
    .name = "scatter_along_add",
    .about = "x with the source added at chosen places; dx = dy, dsource = dy there",
    .params_bytes = sizeof(int),
    .infer = scatter_infer,
    .forward = scatter_add_forward,
    .backward = scatter_add_backward,
    .grad = scatter_add_backward,
};

tutti_tensor_t *tutti_scatter_along(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                    tutti_tensor_t *index, tutti_tensor_t *source)
{
    return tutti_op_run(s, &tt_op_scatter_along, (tutti_tensor_t *[]){x, index, source}, 3, &dim);
}

tutti_tensor_t *tutti_scatter_along_add(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                        tutti_tensor_t *index, tutti_tensor_t *source)
{
    return tutti_op_run(s, &tt_op_scatter_along_add, (tutti_tensor_t *[]){x, index, source}, 3,
                        &dim);
}
