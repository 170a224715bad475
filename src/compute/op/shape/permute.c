/* Other orders of dimensions, all views: permute, transpose. */
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
    .grad = permute_backward,
    .makes_outputs = true,
    .family = &(const order_t){permute_order},
};

const tutti_op_t tt_op_transpose = {
    .name = "transpose",
    .about = "two dimensions exchanged, a view; dx = the same of dy",
    .params_bytes = 2 * sizeof(int),
    .infer = order_infer,
    .forward = order_forward,
    .backward = transpose_backward,
    .grad = transpose_backward,
    .makes_outputs = true,
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
