/* ctc_loss: the losses of samples as an operation, reduced by others. Source: ctc.h. */
#include <tutti/op_likelihood.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/op/loss/loss_reduction.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/loss/ctc.h"

typedef struct {
    int64_t blank;
    bool zero_infinity;
} params_t;

enum { LOG_PROBS, TARGETS, INPUT_LENGTHS, TARGET_LENGTHS };

static bool is_index(const tutti_tensor_t *x)
{
    return x == NULL || x->dtype == TUTTI_I64 || x->dtype == TUTTI_I32;
}

/* log_probs are [T, N, V]: the public call makes them so. */
static tutti_status_t check_lengths(const tutti_op_call_t *call, int which)
{
    const tutti_tensor_t *lengths = call->inputs[which];
    const int64_t samples = call->inputs[LOG_PROBS]->shape.dims[1];
    if (lengths != NULL && (lengths->shape.rank != 1 || lengths->numel != samples)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want a length for each of %lld samples",
                             (long long)samples);
    }
    return TUTTI_OK;
}

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[LOG_PROBS], *targets = call->inputs[TARGETS];
    if (!tutti_dtype_is_float(x->dtype) || !is_index(targets) ||
        !is_index(call->inputs[INPUT_LENGTHS]) || !is_index(call->inputs[TARGET_LENGTHS])) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE,
                             "want floating log-probabilities; targets and lengths of i64 or i32");
    }
    if (x->shape.rank != 3) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want log-probabilities [T, N, V] or [T, V]");
    }
    const bool is_padded = targets->shape.rank == 2 && targets->shape.dims[0] == x->shape.dims[1];
    if (!is_padded && (targets->shape.rank != 1 || call->inputs[TARGET_LENGTHS] == NULL)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "want targets [N, S], or one behind the other with their lengths");
    }
    TT_TRY(check_lengths(call, INPUT_LENGTHS));
    TT_TRY(check_lengths(call, TARGET_LENGTHS));
    if (params->blank < 0 || params->blank >= x->shape.dims[2]) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "the blank %lld is outside [0, %lld)",
                             (long long)params->blank, (long long)x->shape.dims[2]);
    }
    outputs[0] = (tutti_spec_t){tt_sum_dtype(x->dtype), TUTTI_SHAPE(x->shape.dims[1])};
    return TUTTI_OK;
}

/* An integer input as kernels want it; what is missing stays so. */
static tutti_status_t prepare(tutti_op_call_t *call, int which, tutti_tensor_t **out)
{
    tutti_tensor_t *x = call->inputs[which];
    *out = NULL;
    if (x != NULL) {
        *out = tutti_contiguous(call->scope, tutti_cast(call->scope, x, TUTTI_I64));
        TT_TRY((*out)->status);
    }
    return tutti_op_save(call, *out);
}

static const int64_t *data_of(const tutti_tensor_t *x)
{
    return x == NULL ? NULL : tt_tensor_data(x);
}

/* operands: log_probs, targets, both lengths */
static tt_ctc_t ctc_of(const params_t *params, tutti_tensor_t *const *operands)
{
    const tutti_tensor_t *x = operands[LOG_PROBS], *targets = operands[TARGETS];
    return (tt_ctc_t){.dtype = x->dtype,
                      .log_probs = tt_tensor_data(x),
                      .targets = tt_tensor_data(targets),
                      .input_lengths = data_of(operands[INPUT_LENGTHS]),
                      .target_lengths = data_of(operands[TARGET_LENGTHS]),
                      .steps = x->shape.dims[0],
                      .samples = x->shape.dims[1],
                      .classes = x->shape.dims[2],
                      .target_count = targets->numel,
                      .target_stride = targets->shape.rank == 2 ? targets->shape.dims[1] : 0,
                      .blank = params->blank,
                      .zero_infinity = params->zero_infinity};
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    tutti_tensor_t *operands[4];
    tutti_scope_t *s = call->scope;
    operands[LOG_PROBS] =
        tutti_contiguous(s, tutti_cast(s, call->inputs[LOG_PROBS], call->outputs[0]->dtype));
    TT_TRY(operands[LOG_PROBS]->status);
    TT_TRY(tutti_op_save(call, operands[LOG_PROBS]));
    for (int i = TARGETS; i <= TARGET_LENGTHS; i++) {
        TT_TRY(prepare(call, i, &operands[i]));
    }
    tt_ctc_t ctc = ctc_of(call->params, operands);
    ctc.losses = tt_tensor_data(call->outputs[0]);
    return tt_ctc(tt_scope_exec(s), &ctc);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    const tutti_tensor_t *x = call->saved[LOG_PROBS];
    tutti_tensor_t *g = tutti_contiguous(s, tutti_cast(s, call->grad_outputs[0], x->dtype));
    tutti_tensor_t *dx = tutti_empty(s, x->dtype, x->shape);
    TT_TRY(tutti_scope_status(s));
    tt_ctc_t ctc = ctc_of(call->params, call->saved);
    ctc.grad_losses = tt_tensor_data(g);
    ctc.grad_log_probs = tt_tensor_data(dx);
    call->grads[LOG_PROBS] = dx;
    return tt_ctc_backward(tt_scope_exec(s), &ctc);
}

const tutti_op_t tt_op_ctc_loss = {
    .name = "ctc_loss",
    .about = "-log of the probability of all paths that read as the target; dx = (e^x - that of "
             "being there) dy",
    .optional_inputs = 1u << INPUT_LENGTHS | 1u << TARGET_LENGTHS,
    .params_bytes = sizeof(params_t),
    .autocast = TUTTI_OP_AUTOCAST_F32,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

/* Lengths as floats, at least 1. */
static tutti_tensor_t *divisors(tutti_scope_t *s, tutti_tensor_t *lengths, tutti_tensor_t *targets,
                                tutti_dtype_t dtype)
{
    if (lengths == NULL) {
        const int64_t length = tutti_tensor_dim(targets, -1);
        return tutti_full(s, dtype, TUTTI_SCALAR, length < 1 ? 1 : (double)length);
    }
    return tutti_cast(s, tutti_clamp(s, lengths, 1, 0x1p53), dtype);
}

static tutti_tensor_t *as_list(tutti_scope_t *s, tutti_tensor_t *lengths)
{
    return lengths != NULL && tutti_tensor_status(lengths) >= 0 && tutti_tensor_rank(lengths) == 0
               ? tutti_reshape(s, lengths, TUTTI_SHAPE(1))
               : lengths;
}

tutti_tensor_t *tutti_ctc_loss(tutti_scope_t *s, tutti_tensor_t *log_probs, tutti_tensor_t *targets,
                               const tutti_ctc_options_t *options)
{
    const tutti_ctc_options_t o = options == NULL ? (tutti_ctc_options_t){.blank = 0} : *options;
    const params_t params = {o.blank, o.zero_infinity};
    const tutti_status_t status = tt_loss_check("ctc_loss", o.reduction);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const bool is_single = tutti_tensor_status(log_probs) >= 0 && tutti_tensor_rank(log_probs) == 2;
    if (is_single) {
        log_probs = tutti_unsqueeze(s, log_probs, 1);
        if (tutti_tensor_status(targets) >= 0 && tutti_tensor_rank(targets) == 1) {
            targets = tutti_unsqueeze(s, targets, 0);
        }
    }
    tutti_tensor_t *in = as_list(s, o.input_lengths), *out = as_list(s, o.target_lengths);
    tutti_tensor_t *losses = tutti_op_run(
        s, &tt_op_ctc_loss, (tutti_tensor_t *[]){log_probs, targets, in, out}, 4, &params);
    if (tutti_tensor_status(losses) < 0) {
        return losses;
    }
    if (o.reduction == TUTTI_LOSS_MEAN) {
        losses = tutti_div(s, losses, divisors(s, out, targets, tutti_tensor_dtype(losses)));
    }
    if (is_single && o.reduction == TUTTI_LOSS_NONE) {
        losses = tutti_squeeze(s, losses, 0);
    }
    return tt_loss_reduce(s, losses, o.reduction);
}
