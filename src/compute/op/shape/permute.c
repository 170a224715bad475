/* Other orders and repetitions of dimensions, all views: permute, transpose, expand. */
#include <tutti/op_shape.h>

#include "compute/op/ops.h"
#include "compute/op/shape/view.h"

/* ---- permute, transpose ---------------------------------------------------------------------- */

/* order[i] is the input's dimension at place i of the result. */
static tutti_status_t permute_order(const tutti_op_call_t *call, int *order)
{
    const tutti_dims_t *dims = call->params;
    const int rank = call->inputs[0]->shape.rank;
    bool seen[TUTTI_RANK_MAX] = {0};
    if (dims->count != rank) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%d dimensions given for an input of %d",
                             dims->count, rank);
    }
    for (int i = 0; i < rank; i++) {
        TT_TRY(tt_op_dim(call, dims->dims[i], rank, &order[i]));
        if (seen[order[i]]) {
            return tutti_op_fail(call, TUTTI_ERR_ARG, "dimension %d is given twice", order[i]);
        }
        seen[order[i]] = true;
    }
    return TUTTI_OK;
}

static tutti_status_t transpose_order(const tutti_op_call_t *call, int *order)
{
    const int *ends = call->params;
    const int rank = call->inputs[0]->shape.rank;
    int a, b;
    TT_TRY(tt_op_dim(call, ends[0], rank, &a));
    TT_TRY(tt_op_dim(call, ends[1], rank, &b));
    for (int i = 0; i < rank; i++) {
        order[i] = i == a ? b : i == b ? a : i;
    }
    return TUTTI_OK;
}

typedef struct {
    tutti_status_t (*order)(const tutti_op_call_t *call, int *order);
} order_t;

static tutti_status_t order_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const order_t *rule = call->op->family;
    int order[TUTTI_RANK_MAX];
    TT_TRY(rule->order(call, order));
    TT_TRY(tutti_op_infer_same(call, outputs));
    for (int i = 0; i < outputs->shape.rank; i++) {
        outputs->shape.dims[i] = call->inputs[0]->shape.dims[order[i]];
    }
    return TUTTI_OK;
}

static tutti_status_t order_forward(tutti_op_call_t *call)
{
    const order_t *rule = call->op->family;
    const tutti_tensor_t *x = call->inputs[0];
    int order[TUTTI_RANK_MAX];
    TT_TRY(rule->order(call, order));
    tutti_shape_t shape = x->shape;
    int64_t strides[TUTTI_RANK_MAX];
    for (int i = 0; i < shape.rank; i++) {
        shape.dims[i] = x->shape.dims[order[i]];
        strides[i] = x->strides[order[i]];
    }
    return tt_op_view(call, 0, shape, strides, x->offset);
}

static tutti_status_t permute_backward(tutti_op_backward_t *call)
{
    const tutti_dims_t *dims = call->params;
    tutti_dims_t inverse = {.count = dims->count};
    for (int i = 0; i < dims->count; i++) {
        inverse.dims[tt_dim_index(dims->dims[i], dims->count)] = i;
    }
    call->grads[0] = tutti_permute(call->scope, call->grad_outputs[0], inverse);
    return TUTTI_OK;
}

static tutti_status_t transpose_backward(tutti_op_backward_t *call)
{
    const int *ends = call->params;
    call->grads[0] = tutti_transpose(call->scope, call->grad_outputs[0], ends[0], ends[1]);
    return TUTTI_OK;
}

const tutti_op_t tt_op_permute = {
    .name = "permute",
    .about = "dimensions in another order, a view; dx = the inverse of dy",
    .params_bytes = sizeof(tutti_dims_t),
    .infer = order_infer,
    .forward = order_forward,
    .backward = permute_backward,
    .is_view = true,
    .family = &(const order_t){permute_order},
};

const tutti_op_t tt_op_transpose = {
    .name = "transpose",
    .about = "two dimensions exchanged, a view; dx = the same of dy",
    .params_bytes = 2 * sizeof(int),
    .infer = order_infer,
    .forward = order_forward,
    .backward = transpose_backward,
    .is_view = true,
    .family = &(const order_t){transpose_order},
};

tutti_tensor_t *tutti_permute(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t order)
{
    return tutti_op_run(s, &tt_op_permute, &x, 1, &order);
}

tutti_tensor_t *tutti_transpose(tutti_scope_t *s, tutti_tensor_t *x, int a, int b)
{
    return tutti_op_run(s, &tt_op_transpose, &x, 1, (int[]){a, b});
}

/* ---- expand
 * -------------------------------------------------------------------------------------- */

static tutti_status_t expand_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    tutti_shape_t shape = *(const tutti_shape_t *)call->params;
    const int added = shape.rank - x->shape.rank;
    char text[160];
    tutti_shape_format(shape, text, sizeof text);
    if (added < 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "%s has fewer dimensions than the input", text);
    }
    for (int i = added; i < shape.rank && i < TUTTI_RANK_MAX; i++) {
        const int64_t size = x->shape.dims[i - added];
        shape.dims[i] = shape.dims[i] == -1 ? size : shape.dims[i];
        if (size != 1 && shape.dims[i] != size) {
            return tutti_op_fail(
                call, TUTTI_ERR_SHAPE,
                "dimension %d of the input has size %lld; only size 1 expands to %s", i - added,
                (long long)size, text);
        }
    }
    TT_TRY(tt_shape_check(x->dtype, shape));
    outputs[0] = (tutti_spec_t){x->dtype, shape};
    return TUTTI_OK;
}

static tutti_status_t expand_forward(tutti_op_call_t *call)
{
    tutti_spec_t spec;
    TT_TRY(expand_infer(call, &spec));
    const tt_strided_t wide = tt_tensor_strided_as(call->inputs[0], spec.shape);
    return tt_op_view(call, 0, spec.shape, wide.strides, call->inputs[0]->offset);
}

static tutti_status_t expand_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_sum_to(call->scope, call->grad_outputs[0], call->inputs[0].shape);
    return TUTTI_OK;
}

const tutti_op_t tt_op_expand = {
    .name = "expand",
    .about = "dimensions of size 1 repeated, a view; dx = the sum of dy over the repetitions",
    .params_bytes = sizeof(tutti_shape_t),
    .infer = expand_infer,
    .forward = expand_forward,
    .backward = expand_backward,
    .is_view = true,
};

tutti_tensor_t *tutti_expand(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape)
{
    return tutti_op_run(s, &tt_op_expand, &x, 1, &shape);
}
