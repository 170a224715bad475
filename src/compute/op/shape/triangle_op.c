/* tril, triu: one pass each, and the same for the gradient. */
#include <tutti/op_pad.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/ops.h"
#include "core/kernel/index/triangle.h"

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    if (call->inputs[0]->shape.rank < 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want matrices: at least two dimensions");
    }
    return tutti_op_infer_same(call, outputs);
}

static tutti_status_t triangle_of(tutti_scope_t *s, const tutti_op_t *op, const void *params,
                                  const tutti_tensor_t *y, const tutti_tensor_t *x)
{
    const bool *is_upper = op->family;
    int64_t diagonal = *(const int64_t *)params;
    const int rank = x->shape.rank;
    const int64_t most = x->shape.dims[rank - 1] + x->shape.dims[rank - 2];
    diagonal = diagonal > most ? most : diagonal < -most ? -most : diagonal;
    const tt_triangle_t triangle = {tt_tensor_strided(y), tt_tensor_strided(x), diagonal,
                                    *is_upper};
    return x->numel == 0 ? TUTTI_OK : tt_triangle(tt_scope_exec(s), &triangle);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    return triangle_of(call->scope, call->op, call->params, call->outputs[0], call->inputs[0]);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *g = call->grad_outputs[0];
    call->grads[0] = tutti_empty(call->scope, g->dtype, g->shape);
    TT_TRY(call->grads[0]->status);
    return triangle_of(call->scope, call->op, call->params, call->grads[0], g);
}

const tutti_op_t tt_op_tril = {
    .name = "tril",
    .about = "y = x on and below a diagonal, else 0; dx = dy there",
    .params_bytes = sizeof(int64_t),
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = tt_grad_linear,
    .family = &(const bool){false},
};

const tutti_op_t tt_op_triu = {
    .name = "triu",
    .about = "y = x on and above a diagonal, else 0; dx = dy there",
    .params_bytes = sizeof(int64_t),
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = tt_grad_linear,
    .family = &(const bool){true},
};

tutti_tensor_t *tutti_tril(tutti_scope_t *s, tutti_tensor_t *x, int64_t diagonal)
{
    return tutti_op_run(s, &tt_op_tril, &x, 1, &diagonal);
}

tutti_tensor_t *tutti_triu(tutti_scope_t *s, tutti_tensor_t *x, int64_t diagonal)
{
    return tutti_op_run(s, &tt_op_triu, &x, 1, &diagonal);
}
