/* Repetition of dimensions, and the sum over what was repeated: expand, a view, and sum_to. Each is
 * the gradient of the other. */
#include <tutti/op_shape.h>

#include "compute/op/ops.h"
#include "compute/op/shape/view.h"
#include "core/kernel/reduce/reduce.h"

/* ---- sum_to ---------------------------------------------------------------------------------- */

/* Which of the gradient's dimensions were repeated to get there from `shape`. */
static unsigned repeated_dims(tutti_shape_t wide, tutti_shape_t shape)
{
    const int added = wide.rank - shape.rank;
    unsigned dims = 0;
    for (int i = 0; i < wide.rank; i++) {
        if (i < added || (shape.dims[i - added] == 1 && wide.dims[i] != 1)) {
            dims |= 1u << i;
        }
    }
    return dims;
}

static tutti_status_t sum_to_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_shape_t shape = *(const tutti_shape_t *)call->params;
    const tutti_tensor_t *grad = call->inputs[0];
    tutti_shape_t wide;
    if (shape.rank < 0 || shape.rank > grad->shape.rank ||
        tutti_op_broadcast_shapes("sum_to", grad->shape, shape, &wide) < 0 ||
        !tutti_shape_equal(wide, grad->shape)) {
        char text[160];
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the shape %s does not broadcast to it",
                             tutti_shape_format(shape, text, sizeof text));
    }
    outputs[0] = (tutti_spec_t){grad->dtype, shape};
    return TUTTI_OK;
}

static tutti_status_t sum_to_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *grad = call->inputs[0], *sum = call->outputs[0];
    const tutti_shape_t shape = sum->shape;
    const tt_strided_t x = tt_tensor_strided(grad);
    tt_strided_t out = {.data = tt_tensor_data(sum), .dtype = sum->dtype, .rank = x.rank};
    const int added = x.rank - shape.rank; /* the new leading ones keep their stride of 0 */
    for (int i = 0; i < x.rank; i++) {
        out.shape[i] = i < added ? 1 : shape.dims[i - added];
        out.strides[i] = i < added ? 0 : sum->strides[i - added];
    }
    return tt_reduce(tt_scope_exec(call->scope), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &x,
                     repeated_dims(grad->shape, shape));
}

static tutti_status_t sum_to_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_expand(call->scope, call->grad_outputs[0], call->inputs[0].shape);
    return TUTTI_OK;
}

/* Only gradients are made by it. */
static const tutti_op_t op_sum_to = {
    .name = "sum_to",
    .about = "the sum over dimensions that were repeated; dx = dy repeated",
    .params_bytes = sizeof(tutti_shape_t),
    .infer = sum_to_infer,
    .forward = sum_to_forward,
    .backward = sum_to_backward,
    .grad = sum_to_backward,
};

tutti_tensor_t *tutti_sum_to(tutti_scope_t *s, tutti_tensor_t *grad, tutti_shape_t shape)
{
    if (grad != NULL && tutti_shape_equal(grad->shape, shape)) {
        return grad;
    }
    return tutti_op_run(s, &op_sum_to, &grad, 1, &shape);
}

/* ---- expand ---------------------------------------------------------------------------------- */

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
    .grad = expand_backward,
    .makes_outputs = true,
};

tutti_tensor_t *tutti_expand(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape)
{
    return tutti_op_run(s, &tt_op_expand, &x, 1, &shape);
}
