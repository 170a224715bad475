/* The same elements in the same order in another shape: view, reshape, flatten, squeeze, unsqueeze.
 *
 * A view exists if x's dimensions fall into runs that lie in memory like one dimension each, and
 * the new dimensions do not reach over the ends of the runs. Otherwise reshape and flatten copy.
 */
#include "compute/op/shape/view.h"

#include <tutti/op_shape.h>

#include <string.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

tutti_status_t tt_op_dim(const tutti_op_call_t *call, int dim, int rank, int *out)
{
    const int index = tt_dim_index(dim, rank);
    if (index < 0 && rank == 0) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "dimension %d of a scalar, which has none", dim);
    }
    if (index < 0) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "dimension %d is outside %d to %d", dim, -rank,
                             rank - 1);
    }
    *out = index;
    return TUTTI_OK;
}

tutti_status_t tt_op_view(tutti_op_call_t *call, int i, tutti_shape_t shape, const int64_t *strides,
                          int64_t offset)
{
    const tutti_tensor_t *x = call->inputs[0];
    return tt_tensor_over(x->storage, x->dtype, shape, strides, offset, tt_op_output(call, i));
}

tutti_shape_t tt_shape_without(tutti_shape_t shape, int dim)
{
    shape.rank--;
    for (int i = dim; i < shape.rank; i++) {
        shape.dims[i] = shape.dims[i + 1];
    }
    return shape;
}

tutti_shape_t tt_shape_with(tutti_shape_t shape, int dim, int64_t size)
{
    for (int i = shape.rank; i > dim; i--) {
        shape.dims[i] = shape.dims[i - 1];
    }
    shape.dims[dim] = size;
    shape.rank++;
    return shape;
}

/* Strides that show x's elements in x's order in another shape (of as many elements), if any do.
 * From the last dimension on, each run of x's dimensions takes new dimensions until they have as
 * many elements; `to` counts down the new dimensions. */
static bool find_strides(const tutti_tensor_t *x, tutti_shape_t shape, int64_t *strides)
{
    tt_shape_strides(shape, strides);
    if (x->numel <= 1 || tutti_tensor_is_contiguous(x)) {
        return true;
    }
    int to = shape.rank;
    int64_t run = 1, step = 0;
    for (int from = x->shape.rank; from-- > 0;) {
        const int64_t size = x->shape.dims[from];
        step = run == 1 && size != 1 ? x->strides[from] : step;
        run *= size;
        int above = from - 1; /* the next dimension that is not of size 1 */
        while (above >= 0 && x->shape.dims[above] == 1) {
            above--;
        }
        if (size == 1 || (above >= 0 && x->strides[above] == x->strides[from] * size)) {
            continue;
        }
        for (int64_t taken = 1; to > 0 && (taken < run || shape.dims[to - 1] == 1); to--) {
            strides[to - 1] = step * taken;
            taken *= shape.dims[to - 1];
            if (run % taken != 0) {
                return false;
            }
        }
        run = 1;
    }
    return true;
}

/* ---- shape rules ----------------------------------------------------------------------------- */

/* Fills in the -1, if there is one, and compares the numbers of elements. */
static tutti_status_t view_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    tutti_shape_t shape = *(const tutti_shape_t *)call->params;
    char text[160];
    int open = -1;
    tutti_shape_t known = shape;
    for (int i = 0; i < shape.rank && i < TUTTI_RANK_MAX; i++) {
        if (shape.dims[i] == -1 && open >= 0) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE, "%s: only one size can be left open (-1)",
                                 tutti_shape_format(shape, text, sizeof text));
        }
        if (shape.dims[i] == -1) {
            open = i;
            known.dims[i] = 1;
        }
    }
    TT_TRY(tt_shape_check(x->dtype, known));
    const int64_t count = tutti_shape_numel(known);
    if (open >= 0 && count > 0 && x->numel % count == 0) {
        known.dims[open] = x->numel / count;
    }
    if (tutti_shape_numel(known) != x->numel || (open >= 0 && count == 0)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "%s has another number of elements than the input",
                             tutti_shape_format(shape, text, sizeof text));
    }
    outputs[0] = (tutti_spec_t){x->dtype, known};
    return TUTTI_OK;
}

static tutti_status_t flatten_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int *ends = call->params;
    const int rank = x->shape.rank == 0 ? 1 : x->shape.rank;
    int first, last;
    TT_TRY(tt_op_dim(call, ends[0], rank, &first));
    TT_TRY(tt_op_dim(call, ends[1], rank, &last));
    if (last < first) {
        return tutti_op_fail(call, TUTTI_ERR_ARG,
                             "the last dimension %d stands before the first, %d", ends[1], ends[0]);
    }
    tutti_shape_t shape = x->shape.rank == 0 ? TUTTI_SHAPE(1) : x->shape;
    for (; last > first; last--) {
        const int64_t size = shape.dims[last];
        shape = tt_shape_without(shape, last);
        shape.dims[last - 1] *= size;
    }
    outputs[0] = (tutti_spec_t){x->dtype, shape};
    return TUTTI_OK;
}

static tutti_status_t squeeze_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    int dim;
    TT_TRY(tt_op_dim(call, *(const int *)call->params, x->shape.rank, &dim));
    if (x->shape.dims[dim] != 1) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "dimension %d has size %lld, not 1", dim,
                             (long long)x->shape.dims[dim]);
    }
    outputs[0] = (tutti_spec_t){x->dtype, tt_shape_without(x->shape, dim)};
    return TUTTI_OK;
}

static tutti_status_t unsqueeze_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    int dim;
    TT_TRY(tt_op_dim(call, *(const int *)call->params, x->shape.rank + 1, &dim));
    if (x->shape.rank == TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "a tensor has at most %d dimensions",
                             TUTTI_RANK_MAX);
    }
    outputs[0] = (tutti_spec_t){x->dtype, tt_shape_with(x->shape, dim, 1)};
    return TUTTI_OK;
}

/* ---- forward, backward ----------------------------------------------------------------------- */

static tutti_status_t view_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    tutti_spec_t spec;
    TT_TRY(call->op->infer(call, &spec));
    int64_t strides[TUTTI_RANK_MAX];
    if (!find_strides(x, spec.shape, strides)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the elements do not lie in memory so that a view can show them in "
                             "this shape: use tutti_reshape");
    }
    return tt_op_view(call, 0, spec.shape, strides, x->offset);
}

static tutti_status_t reshape_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    tutti_spec_t spec;
    TT_TRY(call->op->infer(call, &spec));
    int64_t strides[TUTTI_RANK_MAX];
    if (find_strides(x, spec.shape, strides)) {
        return tt_op_view(call, 0, spec.shape, strides, x->offset);
    }
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, x->dtype, spec.shape, false,
                         tt_op_output(call, 0)));
    const tt_strided_t in = tt_tensor_strided(x);
    tt_strided_t out = in; /* the input's shape, in order */
    out.data = tt_tensor_data(call->outputs[0]);
    tt_shape_strides(x->shape, out.strides);
    TT_TRY(
        tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in));
    return TUTTI_OK;
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_reshape(call->scope, call->grad_outputs[0], call->inputs[0].shape);
    return TUTTI_OK;
}

const tutti_op_t tt_op_view_shape = {
    .name = "view",
    .about = "x in another shape, sharing memory; dx = dy in x's shape",
    .params_bytes = sizeof(tutti_shape_t),
    .infer = view_infer,
    .forward = view_forward,
    .backward = backward,
    .grad = backward,
    .makes_outputs = true,
};

const tutti_op_t tt_op_reshape = {
    .name = "reshape",
    .about = "x in another shape, copied only if it must be; dx = dy in x's shape",
    .params_bytes = sizeof(tutti_shape_t),
    .infer = view_infer,
    .forward = reshape_forward,
    .backward = backward,
    .grad = backward,
    .makes_outputs = true,
};

const tutti_op_t tt_op_flatten = {
    .name = "flatten",
    .about = "several dimensions as one; dx = dy in x's shape",
    .params_bytes = 2 * sizeof(int),
    .infer = flatten_infer,
    .forward = reshape_forward,
    .backward = backward,
    .grad = backward,
    .makes_outputs = true,
};

const tutti_op_t tt_op_squeeze = {
    .name = "squeeze",
    .about = "x without a dimension of size 1; dx = dy in x's shape",
    .params_bytes = sizeof(int),
    .infer = squeeze_infer,
    .forward = view_forward,
    .backward = backward,
    .grad = backward,
    .makes_outputs = true,
};

const tutti_op_t tt_op_unsqueeze = {
    .name = "unsqueeze",
    .about = "x with a new dimension of size 1; dx = dy in x's shape",
    .params_bytes = sizeof(int),
    .infer = unsqueeze_infer,
    .forward = view_forward,
    .backward = backward,
    .grad = backward,
    .makes_outputs = true,
};

tutti_tensor_t *tutti_view(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape)
{
    return tutti_op_run(s, &tt_op_view_shape, &x, 1, &shape);
}

tutti_tensor_t *tutti_reshape(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape)
{
    return tutti_op_run(s, &tt_op_reshape, &x, 1, &shape);
}

tutti_tensor_t *tutti_flatten(tutti_scope_t *s, tutti_tensor_t *x, int first, int last)
{
    return tutti_op_run(s, &tt_op_flatten, &x, 1, (int[]){first, last});
}

tutti_tensor_t *tutti_squeeze(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return tutti_op_run(s, &tt_op_squeeze, &x, 1, &dim);
}

tutti_tensor_t *tutti_unsqueeze(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return tutti_op_run(s, &tt_op_unsqueeze, &x, 1, &dim);
}
