/* Running an operation: failures pass through, autocast, shape rule, outputs, forward, record. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/autograd/cast.h"
#include "compute/autograd/node.h"
#include "core/base/alloc.h"

bool tutti_op_needs_grad(const tutti_op_call_t *call, int input)
{
    const tutti_tensor_t *x = call->inputs[input];
    return call->needs_grad && x != NULL && tutti_tensor_requires_grad(x);
}

static bool is_graph_wanted(const tutti_op_call_t *call)
{
    if (!call->scope->ctx->is_grad_enabled || call->op->backward == NULL) {
        return false;
    }
    if (call->op->is_differentiable != NULL && !call->op->is_differentiable(call)) {
        return false;
    }
    for (int i = 0; i < call->input_count; i++) {
        if (call->inputs[i] != NULL && tutti_tensor_requires_grad(call->inputs[i])) {
            return true;
        }
    }
    return false;
}

/* The dtype that autocast wants of an input; its own where it wants nothing. */
static tutti_dtype_t autocast_dtype(const tutti_op_call_t *call, tutti_dtype_t dtype)
{
    const tutti_dtype_t low = call->scope->ctx->autocast;
    const bool is_low = dtype == TUTTI_BF16 || dtype == TUTTI_F16;
    if (low == TUTTI_F32 || call->op->autocast == TUTTI_OP_AUTOCAST_KEEP) {
        return dtype;
    }
    if (call->op->autocast == TUTTI_OP_AUTOCAST_F32) {
        return is_low ? TUTTI_F32 : dtype;
    }
    return is_low || dtype == TUTTI_F32 ? low : dtype;
}

/* `cast`: room for all inputs. */
static tutti_status_t autocast_inputs(tutti_op_call_t *call, tutti_tensor_t **cast)
{
    for (int i = 0; i < call->input_count; i++) {
        tutti_tensor_t *x = call->inputs[i];
        if (x != NULL && autocast_dtype(call, x->dtype) != x->dtype) {
            x = tt_cast(call->scope, x, autocast_dtype(call, x->dtype));
            TT_TRY(x->status);
        }
        cast[i] = x;
    }
    call->inputs = cast;
    return TUTTI_OK;
}

static tutti_status_t make_outputs(tutti_op_call_t *call)
{
    tutti_spec_t *specs = tt_op_call_of(call)->specs;
    TT_TRY(call->op->infer(call, specs));
    for (int i = 0; i < call->output_count && !call->op->is_view; i++) {
        TT_TRY(tt_tensor_new(call->scope->ctx->device, specs[i].dtype, specs[i].shape, false,
                             &call->outputs[i]));
    }
    return TUTTI_OK;
}

/* The parts that may fail; what was made is released by the caller. */
static tutti_status_t perform(tutti_op_call_t *call)
{
    call->needs_grad = is_graph_wanted(call);
    TT_TRY(make_outputs(call));
    TT_TRY(call->op->forward(call));
    return call->needs_grad ? tt_node_record(call) : TUTTI_OK;
}

static tutti_status_t perform_cast(tutti_op_call_t *call)
{
    tutti_tensor_t *few[TT_OP_INPUTS_FEW], **cast = few;
    if (call->scope->ctx->autocast == TUTTI_F32) {
        return perform(call);
    }
    if (call->input_count > TT_OP_INPUTS_FEW) {
        cast = tt_alloc_array((size_t)call->input_count, sizeof *cast, "operation inputs");
        TT_TRY_ALLOC(cast);
    }
    tutti_status_t status = autocast_inputs(call, cast);
    if (status >= 0) {
        status = perform(call);
    }
    if (cast != few) {
        tt_free(cast);
    }
    return status;
}

static tutti_status_t fail_input(const tutti_op_call_t *call, int input)
{
    char text[192];
    const tutti_tensor_t *x = call->inputs[input];
    if (x->status < 0) {
        return TT_FAIL(x->status, "%s: input %d is the result of a failed operation",
                       call->op->name, input);
    }
    if (x->storage == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "%s: input %d is a result that is not there yet",
                       call->op->name, input);
    }
    return TT_FAIL(TUTTI_ERR_STATE, "%s: input %d, %s, is not in memory: %s", call->op->name, input,
                   tutti_tensor_describe(x, text, sizeof text), x->storage->away);
}

static tutti_status_t find_failed_input(const tutti_op_call_t *call)
{
    for (int i = 0; i < call->input_count; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        if (x != NULL && tt_tensor_is_absent(x)) {
            return fail_input(call, i);
        }
    }
    return call->scope->null.status;
}

static void run(tt_op_call_t *own, tutti_tensor_t **outputs)
{
    tutti_op_call_t *call = &own->seen;
    tutti_status_t status = find_failed_input(call);
    if (status >= 0) {
        status = perform_cast(call);
    }
    for (int i = 0; i < own->saved_count; i++) {
        tutti_tensor_release(own->saved[i].tensor);
    }
    tt_free(own->saved_heap);
    for (int i = 0; i < call->output_count; i++) {
        if (status < 0) {
            tutti_tensor_release(call->outputs[i]);
        }
        outputs[i] = tt_scope_adopt(call->scope, status, call->outputs[i]);
    }
}

/* The room for outputs: tensors that are NULL, and specs. */
static void run_in(tutti_op_call_t seen, tutti_tensor_t **made, tutti_spec_t *specs,
                   tutti_tensor_t **outputs)
{
    tt_saved_t few[TT_OP_SAVED_FEW];
    tt_op_call_t call = {
        .seen = seen, .specs = specs, .saved = few, .saved_capacity = TT_OP_SAVED_FEW};
    call.seen.outputs = made;
    run(&call, outputs);
}

static void run_many_outputs(tutti_op_call_t seen, tutti_tensor_t **outputs)
{
    const size_t count = (size_t)seen.output_count;
    tutti_spec_t *specs = tt_alloc_array(count, sizeof *specs + sizeof *outputs, "operation");
    if (specs != NULL) {
        run_in(seen, (tutti_tensor_t **)(specs + count), specs, outputs);
        tt_free(specs);
        return;
    }
    for (int i = 0; i < seen.output_count; i++) {
        outputs[i] = tutti_scope_fail(seen.scope, TUTTI_ERR_NOMEM);
    }
}

void tutti_op_run_many(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *const *inputs,
                       int input_count, const void *params, tutti_tensor_t **outputs,
                       int output_count)
{
    const tutti_op_call_t call = {.op = op,
                                  .scope = s,
                                  .input_count = input_count,
                                  .output_count = output_count,
                                  .inputs = inputs,
                                  .params = params};
    if (output_count > TT_OP_OUTPUTS_FEW) {
        run_many_outputs(call, outputs);
        return;
    }
    tutti_tensor_t *made[TT_OP_OUTPUTS_FEW] = {0};
    tutti_spec_t specs[TT_OP_OUTPUTS_FEW];
    memset(specs, 0, (size_t)output_count * sizeof *specs);
    run_in(call, made, specs, outputs);
}

tutti_tensor_t *tutti_op_run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *const *inputs,
                             int input_count, const void *params)
{
    tutti_tensor_t *output;
    tutti_op_run_many(s, op, inputs, input_count, params, &output, 1);
    return output;
}

static tutti_status_t grow_saved(tt_op_call_t *own)
{
    const size_t count = (size_t)own->saved_count;
    tt_saved_t *grown = tt_realloc(own->saved_heap, 2 * count * sizeof *grown, "operation");
    TT_TRY_ALLOC(grown);
    if (own->saved_heap == NULL) {
        memcpy(grown, own->saved, count * sizeof *grown);
    }
    own->saved = own->saved_heap = grown;
    own->saved_capacity *= 2;
    return TUTTI_OK;
}

/* As in tt_saved_t. An input that the operation writes is its output from then on. */
static int place_of(const tutti_op_call_t *call, const tutti_tensor_t *x)
{
    for (int k = 0; k < call->output_count; k++) {
        if (call->outputs[k] == x) {
            return -1 - k;
        }
    }
    for (int i = 0; i < call->input_count; i++) {
        if (call->inputs[i] == x) {
            return i + 1;
        }
    }
    return 0;
}

static tutti_status_t save(tutti_op_call_t *call, tutti_tensor_t *x, int from)
{
    tt_op_call_t *own = tt_op_call_of(call);
    if (own->saved_count == own->saved_capacity) {
        TT_TRY(grow_saved(own));
    }
    tutti_tensor_t *alias = NULL;
    if (x != NULL) {
        TT_TRY(x->status);
        TT_TRY(tt_tensor_alias(x, &alias));
    }
    own->saved[own->saved_count++] =
        (tt_saved_t){.tensor = alias, .is_leaf = x != NULL && tt_is_leaf(x), .from = from};
    return TUTTI_OK;
}

tutti_status_t tutti_op_save(tutti_op_call_t *call, tutti_tensor_t *x)
{
    return call->needs_grad ? save(call, x, x == NULL ? 0 : place_of(call, x)) : TUTTI_OK;
}

tutti_status_t tutti_op_save_copy(tutti_op_call_t *call, tutti_tensor_t *x, int input)
{
    return call->needs_grad ? save(call, x, input + 1) : TUTTI_OK;
}

static void describe_inputs(const tutti_op_call_t *call, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < call->input_count && used < bytes; i++) {
        char one[192] = "none";
        if (call->inputs[i] != NULL) {
            tutti_tensor_describe(call->inputs[i], one, sizeof one);
        }
        const char *between = i == 0 ? "" : i + 1 == call->input_count ? " and " : ", ";
        const int n = snprintf(text + used, bytes - used, "%s%s", between, one);
        used += n > 0 ? (size_t)n : 0;
    }
}

tutti_status_t tutti_op_fail(const tutti_op_call_t *call, tutti_status_t status, const char *format,
                             ...)
{
    char reason[512], inputs[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    describe_inputs(call, inputs, sizeof inputs);
    return TT_FAIL(status, "%s: %s: %s", call->op->name, reason, inputs);
}
