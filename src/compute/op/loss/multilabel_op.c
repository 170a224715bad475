/* multilabel_margin_loss: the losses of rows as an operation, reduced by others. What forward
 * counts is the slope, a constant: the gradient is a product. Source: multilabel.h. */
#include <tutti/op_margin_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/op/linear/dense.h"
#include "compute/op/loss/loss_reduction.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/loss/multilabel.h"

/* The inputs; then what forward makes on its way. */
enum { X, TARGETS, INPUTS, SLOPE = INPUTS, PARTS };

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[X], *targets = call->inputs[TARGETS];
    if (!tutti_dtype_is_float(x->dtype) ||
        (targets->dtype != TUTTI_I64 && targets->dtype != TUTTI_I32)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE,
                             "want a floating input, and targets of i64 or i32");
    }
    if (x->shape.rank == 0 || !tutti_shape_equal(x->shape, targets->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "want an input [..., V], and targets of its shape");
    }
    outputs[0] = (tutti_spec_t){tt_sum_dtype(x->dtype), tt_loss_rows(x->shape)};
    return TUTTI_OK;
}

static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **parts)
{
    const tutti_tensor_t *loss = call->outputs[0];
    const tutti_shape_t shape = call->inputs[X]->shape;
    TT_TRY(tt_dense(call->scope, call->inputs[X], loss->dtype, &parts[X]));
    TT_TRY(tt_dense(call->scope, call->inputs[TARGETS], TUTTI_I64, &parts[TARGETS]));
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, loss->dtype, shape, false, &parts[SLOPE]));
    const tt_multilabel_t job = {.is_wide = loss->dtype == TUTTI_F64,
                                 .rows = (size_t)loss->numel,
                                 .n = (size_t)shape.dims[shape.rank - 1],
                                 .x = tt_data_of(parts[X]),
                                 .targets = tt_data_of(parts[TARGETS]),
                                 .loss = tt_data_of(loss),
                                 .slope = tt_data_of(parts[SLOPE])};
    TT_TRY(tt_multilabel(tt_scope_exec(call->scope), &job));
    return tutti_op_save(call, parts[SLOPE]);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    return tt_forward_in_parts(call, compute, PARTS);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    call->grads[X] = tutti_mul(s, call->saved[0], tutti_unsqueeze(s, call->grad_outputs[0], -1));
    return tutti_scope_status(s);
}

const tutti_op_t tt_op_multilabel_margin_loss = {
    .name = "multilabel_margin_loss",
    .about = "Σ max(0, 1 - x[t] + x[c]) / V of targets t and other classes c; dx = dy counts / V",
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = backward,
};

tutti_tensor_t *tutti_multilabel_margin_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                             tutti_tensor_t *targets,
                                             tutti_loss_reduction_t reduction)
{
    const tutti_status_t status = tt_loss_check("multilabel_margin_loss", reduction);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *losses = tutti_op_run(s, &tt_op_multilabel_margin_loss,
                                          (tutti_tensor_t *[INPUTS]){x, targets}, INPUTS, NULL);
    return tt_loss_reduce(s, losses, reduction);
}
