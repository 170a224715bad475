/* Running an operation: failures pass through, autocast, shape rule, outputs, forward, record. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/autograd/anomaly.h"
#include "compute/autograd/cast.h"
#include "compute/autograd/node.h"
#include "compute/autograd/profiled.h"
#include "core/base/alloc.h"
#include "core/base/reals.h"

bool tutti_op_needs_grad(const tutti_op_call_t *call, int input)
{
    const tutti_tensor_t *x = input >= 0 && input < call->input_count ? call->inputs[input] : NULL;
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

/* An input's place in the graph, or that it has none, is that of other values, if an operation has
 * changed its memory since. A leaf's cannot be changed by what is recorded. */
static tutti_status_t check_places(const tutti_op_call_t *call)
{
    for (int i = 0; i < call->input_count; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        if (x != NULL && x->changes != x->storage->changes && !tt_is_leaf(x)) {
            return tutti_op_fail(call, TUTTI_ERR_STATE,
                                 "input %d shares memory with a tensor that an operation has "
                                 "changed in place: make it again from that operation's output, "
                                 "or tutti_detach() it",
                                 i);
        }
    }
    return TUTTI_OK;
}

static void note_changes(const tutti_op_call_t *call)
{
    for (int i = 0; i < call->output_count && call->op->makes_outputs; i++) {
        call->outputs[i]->changes = call->outputs[i]->storage->changes;
    }
}

static tutti_status_t fail_spec(const tutti_op_call_t *call, int output, tutti_status_t status)
{
    char reason[256];
    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    return tutti_op_fail(call, status, "output %d: %s", output, reason);
}

static tutti_status_t make_outputs(tutti_op_call_t *call)
{
    tt_op_call_t *own = tt_op_call_of(call);
    tutti_spec_t *specs = own->specs;
    TT_TRY(call->op->infer(call, specs));
    for (int i = 0; i < call->output_count && !call->op->makes_outputs; i++) {
        const tutti_status_t status = tt_tensor_new(call->scope->ctx->place.device, specs[i].dtype,
                                                    specs[i].shape, false, &own->made[i]);
        if (status < 0) {
            return fail_spec(call, i, status);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_made(const tutti_op_call_t *call)
{
    for (int i = 0; i < call->output_count && call->op->makes_outputs; i++) {
        if (call->outputs[i] == NULL) {
            return tutti_op_fail(call, TUTTI_ERR_STATE, "forward made no output %d", i);
        }
    }
    return call->scope->null.status; /* of what it called */
}

static tutti_status_t run_forward(tutti_op_call_t *call)
{
    tutti_context_t *ctx = call->scope->ctx;
    const bool was_enabled = ctx->is_grad_enabled;
    const tutti_dtype_t autocast = ctx->autocast;
    ctx->is_grad_enabled = false;
    ctx->autocast = TUTTI_F32;
    const bool is_profiled =
        tt_profile_begin(TT_PROFILE_FORWARD, call->op->name, tt_profiled_module(ctx));
    const tutti_status_t status = call->op->forward(call);
    if (is_profiled) {
        tt_profile_end(tt_profiled_forward(call));
    }
    ctx->is_grad_enabled = was_enabled;
    ctx->autocast = autocast;
    return status < 0 ? status : check_made(call);
}

/* The parts that may fail; what was made is released by the caller. */
static tutti_status_t perform(tutti_op_call_t *call)
{
    tt_op_call_of(call)->is_recorded = call->scope->ctx->is_grad_enabled;
    call->needs_grad = is_graph_wanted(call);
    TT_TRY(tt_op_call_of(call)->is_recorded ? check_places(call) : TUTTI_OK);
    TT_TRY(make_outputs(call));
    TT_TRY(run_forward(call));
    TT_TRY(call->scope->ctx->detects_anomaly ? tt_anomaly_check_outputs(call) : TUTTI_OK);
    if (!call->needs_grad) {
        return TUTTI_OK;
    }
    note_changes(call);
    return tt_node_record(call);
}

static tutti_status_t perform_cast(tutti_op_call_t *call)
{
    tutti_tensor_t *few[TT_OP_INPUTS_FEW], **cast = few;
    const tutti_dtype_t low = call->scope->ctx->autocast;
    if (low == TUTTI_F32) {
        return perform(call);
    }
    if (low != TUTTI_BF16 && low != TUTTI_F16) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE,
                             "autocast is set to %s: tutti_context_set_autocast() wants f32, bf16 "
                             "or f16",
                             (unsigned)low < TUTTI_DTYPE_COUNT ? tutti_dtype_name(low)
                                                               : "what is no dtype");
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

static bool is_optional(const tutti_op_t *op, int input)
{
    return (op->optional_inputs >> (input < 63 ? input : 63) & 1) != 0;
}

static tutti_status_t fail_input(const tutti_op_call_t *call, int input)
{
    char text[192];
    const tutti_tensor_t *x = call->inputs[input];
    if (x == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: input %d is NULL; a batch has no tensors when its epoch is over",
                       call->op->name, input);
    }
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

static tutti_status_t fail_mixed(const tutti_op_call_t *call, int first, int input)
{
    char a[192], b[192];
    const tutti_tensor_t *x = call->inputs[first], *y = call->inputs[input];
    return TT_FAIL(TUTTI_ERR_ARG,
                   "%s: input %d, %s, lies on %s, and input %d, %s, on %s: tutti_tensor_to() "
                   "brings one to the other",
                   call->op->name, first, tutti_tensor_describe(x, a, sizeof a),
                   tt_device_text(x->storage->device), input, tutti_tensor_describe(y, b, sizeof b),
                   tt_device_text(y->storage->device));
}

/* Where the inputs lie: all on one device. Without any it is where the context is. */
static tutti_status_t check_inputs(const tutti_op_call_t *call, tt_device_t **device)
{
    int first = -1;
    *device = call->scope->ctx->place.accelerator;
    for (int i = 0; i < call->input_count; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        if (x == NULL ? !is_optional(call->op, i) : tt_tensor_is_absent(x)) {
            return fail_input(call, i);
        }
        if (x == NULL || (first >= 0 && x->storage->device == *device)) {
            continue;
        }
        if (first >= 0) {
            return fail_mixed(call, first, i);
        }
        *device = x->storage->device;
        first = i;
    }
    return call->scope->null.status;
}

static void run(tt_op_call_t *own, tutti_tensor_t **outputs)
{
    tutti_op_call_t *call = &own->seen;
    tt_device_t *device;
    tutti_status_t status = check_inputs(call, &device);
    if (status >= 0) {
        const tt_place_t before = tt_context_enter(call->scope->ctx, device);
        status = perform_cast(call);
        call->scope->ctx->place = before;
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

/* The room for outputs, zeroed. */
typedef struct {
    tutti_spec_t *specs;
    tutti_tensor_t **made;
    bool *is_constant;
} room_t;

static void run_in(tutti_op_call_t seen, room_t room, tutti_tensor_t **outputs)
{
    tt_saved_t few[TT_OP_SAVED_FEW];
    tt_op_call_t call = {.seen = seen,
                         .given = seen.inputs,
                         .made = room.made,
                         .specs = room.specs,
                         .is_constant = room.is_constant,
                         .saved = few,
                         .saved_capacity = TT_OP_SAVED_FEW};
    call.seen.outputs = room.made;
    run(&call, outputs);
}

static void run_many_outputs(tutti_op_call_t seen, tutti_tensor_t **outputs)
{
    const size_t count = (size_t)seen.output_count;
    const size_t each = sizeof(tutti_spec_t) + sizeof *outputs + sizeof(bool);
    tutti_spec_t *specs = tt_alloc_array(count, each, "operation");
    if (specs == NULL) {
        tt_fail_outputs(seen.scope, TUTTI_ERR_NOMEM, outputs, seen.output_count);
        return;
    }
    tutti_tensor_t **made = (tutti_tensor_t **)(specs + count);
    run_in(seen, (room_t){specs, made, (bool *)(made + count)}, outputs);
    tt_free(specs);
}

/* ---- what a caller, or a table of the caller's, can do wrong --------------------------------- */

static tutti_status_t check_table(const tutti_op_t *op)
{
    if (op->name == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "an operation without a name");
    }
    if (op->infer == NULL || op->forward == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: its table has no %s", op->name,
                       op->infer == NULL ? "infer" : "forward");
    }
    if ((op->retain_params == NULL) != (op->release_params == NULL)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: its table has no %s_params, but the other one", op->name,
                       op->retain_params == NULL ? "retain" : "release");
    }
    return TUTTI_OK;
}

static tutti_status_t check_count(const char *op, const char *what, int got, int want)
{
    return got == want ? TUTTI_OK
                       : TT_FAIL(TUTTI_ERR_ARG, "%s: %d %ss, but it has %d", op, got, what, want);
}

static tutti_status_t check_call(const tutti_op_call_t *call)
{
    const tutti_op_t *op = call->op;
    if (op == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "op_run: op is NULL");
    }
    TT_TRY(check_table(op));
    if (call->input_count < 0 || (call->inputs == NULL && call->input_count > 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %d inputs%s", op->name, call->input_count,
                       call->inputs == NULL ? ", and inputs is NULL" : "");
    }
    if (op->input_count > 0) {
        TT_TRY(check_count(op->name, "input", call->input_count, op->input_count));
    }
    if (op->output_count >= 0) {
        TT_TRY(check_count(op->name, "output", call->output_count,
                           op->output_count == 0 ? 1 : op->output_count));
    }
    if (call->output_count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %d outputs: want at least one", op->name,
                       call->output_count);
    }
    if (op->params_bytes > 0 && call->params == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: params is NULL", op->name);
    }
    return TUTTI_OK;
}

/* ---- the public calls ------------------------------------------------------------------------ */

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
    tutti_status_t status = check_call(&call);
    if (status >= 0 && outputs == NULL) {
        status = TT_FAIL(TUTTI_ERR_ARG, "%s: outputs is NULL", op->name);
    }
    if (status < 0) {
        tt_fail_outputs(s, status, outputs, output_count);
        return;
    }
    if (output_count > TT_OP_OUTPUTS_FEW) {
        run_many_outputs(call, outputs);
        return;
    }
    tutti_tensor_t *made[TT_OP_OUTPUTS_FEW] = {0};
    bool is_constant[TT_OP_OUTPUTS_FEW] = {0};
    tutti_spec_t specs[TT_OP_OUTPUTS_FEW];
    memset(specs, 0, (size_t)output_count * sizeof *specs);
    run_in(call, (room_t){specs, made, is_constant}, outputs);
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
        TT_TRY(tt_tensor_status(x));
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
    tt_format_list(reason, sizeof reason, format, args);
    va_end(args);
    describe_inputs(call, inputs, sizeof inputs);
    return TT_FAIL(status, "%s: %s%s%s", call->op->name, reason, call->input_count > 0 ? ": " : "",
                   inputs);
}
