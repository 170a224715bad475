/* Looking at what operations make. The least and the largest number of a tensor tell all: a NaN is
 * both, and an infinity is one of them. */
#include "compute/autograd/anomaly.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/reals.h"
#include "core/kernel/reduce/reduce.h"

enum { MODULE_BYTES = 256, TEXT_BYTES = 640, TENSORS_TOLD = 3 };

/* ---- what a tensor holds --------------------------------------------------------------------- */

typedef struct {
    bool is_known; /* numbers of a floating dtype, at least one */
    double low, high;
} range_t;

static bool has_nan(range_t range)
{
    return range.is_known && isnan(range.low);
}

static bool has_infinity(range_t range)
{
    return range.is_known && (isinf(range.low) || isinf(range.high));
}

static tutti_status_t end_of(tutti_context_t *ctx, tutti_tensor_t *x, tt_reduce_t kind, double *end)
{
    tutti_tensor_t *one;
    tutti_shape_t shape = x->shape;
    for (int i = 0; i < shape.rank; i++) {
        shape.dims[i] = 1;
    }
    TT_TRY(tt_tensor_new(tt_memory_of(ctx, x), TUTTI_F64, shape, false, &one));
    const tt_strided_t out = tt_tensor_strided(one), in = tt_tensor_strided(x);
    tutti_status_t status = tt_reduce(tt_tensor_exec(ctx, x), kind, (tt_reduce_params_t){0}, &out,
                                      &in, (1u << shape.rank) - 1);
    status = status < 0 ? status : tt_tensor_read(one, end);
    tutti_tensor_release(one);
    return status;
}

static tutti_status_t measure(tutti_context_t *ctx, tutti_tensor_t *x, range_t *range)
{
    *range = (range_t){0};
    if (x == NULL || !tutti_dtype_is_float(x->dtype) || x->numel == 0 ||
        !tt_device_has_values(x->storage->device)) {
        return TUTTI_OK;
    }
    TT_TRY(end_of(ctx, x, TT_REDUCE_MIN, &range->low));
    TT_TRY(end_of(ctx, x, TT_REDUCE_MAX, &range->high));
    range->is_known = true;
    return TUTTI_OK;
}

/* ---- saying so ------------------------------------------------------------------------------- */

typedef struct {
    char text[TEXT_BYTES];
    size_t used;
    int told;
} account_t;

static void add(account_t *a, const char *name, const tutti_tensor_t *x, range_t range)
{
    char what[192];
    if (!range.is_known || a->told++ >= TENSORS_TOLD || a->used >= sizeof a->text) {
        return;
    }
    const char *between = a->used == 0 ? ": " : "; ";
    tutti_tensor_describe(x, what, sizeof what);
    a->used += (size_t)(has_nan(range) ? tt_format(a->text + a->used, sizeof a->text - a->used,
                                                   "%s%s, %s, holds NaN", between, name, what)
                                       : tt_format(a->text + a->used, sizeof a->text - a->used,
                                                   "%s%s, %s, from %g to %g", between, name, what,
                                                   range.low, range.high));
}

/* Several tensors, `name` with their place; whether one holds a NaN, and whether one an infinity.
 */
typedef struct {
    bool any_nan, any_infinity;
} seen_t;

static tutti_status_t look(tutti_context_t *ctx, const char *name, tutti_tensor_t *const *tensors,
                           int count, account_t *account, seen_t *seen)
{
    for (int i = 0; i < count; i++) {
        range_t range;
        char numbered[48];
        TT_TRY(measure(ctx, tensors[i], &range));
        seen->any_nan = seen->any_nan || has_nan(range);
        seen->any_infinity = seen->any_infinity || has_infinity(range);
        snprintf(numbered, sizeof numbered, "%s %d", name, i);
        if (range.is_known) {
            add(account, numbered, tensors[i], range);
        }
    }
    return TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* " in " and the path of the module whose forward runs, or nothing. */
static void write_place(const tutti_context_t *ctx, char *text, size_t bytes)
{
    text[0] = '\0';
    if (ctx->frame != NULL) {
        const int n = snprintf(text, bytes, " in ");
        (void)ctx->frame->write(ctx->frame, text + n, bytes - (size_t)n);
    }
}

static tutti_status_t check_output(const tutti_op_call_t *call, int output, range_t range)
{
    account_t account = {0};
    seen_t seen = {0};
    char what[192], place[MODULE_BYTES];
    TT_TRY(look(call->scope->ctx, "input", call->inputs, call->input_count, &account, &seen));
    if (!has_nan(range) && (seen.any_infinity || call->op->fills)) {
        return TUTTI_OK; /* handed on */
    }
    write_place(call->scope->ctx, place, sizeof place);
    return TT_FAIL(
        TUTTI_ERR_NUMERIC, "%s%s: output %d, %s, holds %s (step %lld)%s%s", call->op->name, place,
        output, tutti_tensor_describe(call->outputs[output], what, sizeof what),
        has_nan(range) ? "NaN" : "an infinity", (long long)call->scope->ctx->step, account.text,
        seen.any_nan ? ": no operation made that one, it was put there (data, a parameter's step)"
                     : "");
}

tutti_status_t tt_anomaly_check_outputs(const tutti_op_call_t *call)
{
    for (int i = 0; i < call->output_count; i++) {
        range_t range;
        TT_TRY(measure(call->scope->ctx, call->outputs[i], &range));
        if (has_nan(range) || has_infinity(range)) {
            TT_TRY(check_output(call, i, range));
        }
    }
    return TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_status_t check_grad(const tutti_op_backward_t *call, const tt_node_t *node, int input,
                                 range_t range)
{
    account_t account = {0};
    seen_t incoming = {0}, saved = {0};
    char what[192];
    tutti_tensor_t *grad = call->grads[input];
    TT_TRY(look(call->scope->ctx, "incoming gradient", call->grad_outputs, call->output_count,
                &account, &incoming));
    const bool overflows = !has_nan(range) && grad->dtype == TUTTI_F16; /* a scaler's matter */
    if (incoming.any_nan || incoming.any_infinity || overflows) {
        return TUTTI_OK;
    }
    TT_TRY(look(call->scope->ctx, "saved", call->saved, node->saved.count, &account, &saved));
    if (!has_nan(range) && saved.any_infinity) {
        return TUTTI_OK; /* handed on */
    }
    return TT_FAIL(
        TUTTI_ERR_NUMERIC, "gradient of %s%s%s: that of input %d, %s, holds %s (step %lld)%s",
        call->op->name, node->module == NULL ? "" : " in ",
        node->module == NULL ? "" : node->module, input,
        tutti_tensor_describe(grad, what, sizeof what), has_nan(range) ? "NaN" : "an infinity",
        (long long)call->scope->ctx->step, account.text);
}

tutti_status_t tt_anomaly_check_grads(const tutti_op_backward_t *call, const tt_node_t *node)
{
    for (int i = 0; i < call->input_count; i++) {
        range_t range;
        if (!call->wanted[i] || call->grads[i] == NULL) {
            continue;
        }
        TT_TRY(tt_tensor_check(call->grads[i]));
        TT_TRY(measure(call->scope->ctx, call->grads[i], &range));
        if (has_nan(range) || has_infinity(range)) {
            TT_TRY(check_grad(call, node, i, range));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_anomaly_note_module(const tutti_context_t *ctx, char **out)
{
    char text[MODULE_BYTES];
    *out = NULL;
    if (!ctx->detects_anomaly || ctx->frame == NULL) {
        return TUTTI_OK;
    }
    (void)ctx->frame->write(ctx->frame, text, sizeof text);
    *out = tt_strdup(text, "anomaly detection");
    TT_TRY_ALLOC(*out);
    return TUTTI_OK;
}
