/* Hooks around a module's forward and backward.
 *
 *     x ── before_forward ── entry ── forward ── after_forward ── exit ── y
 *     dx ─ after_backward ── entry ── backward ──────────────── exit ─ before_backward ── dy
 *
 * Entry and exit are nodes of the graph whose results are their inputs. A node runs when the
 * gradients of all its results are complete, so a module's hooks see them together. They are there
 * only if the module has hooks of its backward when it is called. Where no input needs a gradient
 * there is no entry: the exit calls after_backward, too, as PyTorch does.
 *
 * Cost: nothing for a module without hooks. Source: torch.nn.Module's register_forward_pre_hook,
 * register_forward_hook, register_full_backward_pre_hook, register_full_backward_hook. */
#include "compute/nn/module_hooks.h"

#include "compute/autograd/op_call.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"

typedef struct {
    tt_hook_link_t link;
    tutti_module_hooks_t hooks;
} tt_module_hook_t;

/* ---- the list -------------------------------------------------------------------------------- */

static tt_module_hook_t *hook_of(tt_hook_link_t *link)
{
    return (tt_module_hook_t *)link;
}

tutti_status_t tutti_module_add_hooks(tutti_module_t *m, const tutti_module_hooks_t *hooks,
                                      void *user)
{
    tt_module_hook_t *added = tt_alloc(sizeof *added, "module hook");
    TT_TRY_ALLOC(added);
    *added = (tt_module_hook_t){.link.user = user, .hooks = *hooks};
    tt_hooks_add(&m->hooks, &added->link);
    return TUTTI_OK;
}

void tutti_module_remove_hooks(tutti_module_t *m, void *user)
{
    for (tt_hook_link_t *link = m->hooks.first; link != NULL; link = link->next) {
        link->is_removed = link->is_removed || link->user == user;
    }
    tt_hooks_free_removed(&m->hooks);
}

typedef enum { BEFORE_FORWARD, AFTER_FORWARD, BEFORE_BACKWARD, AFTER_BACKWARD } moment_t;

static tutti_module_hook_t function_of(const tt_module_hook_t *hook, moment_t moment)
{
    const tutti_module_hooks_t *hooks = &hook->hooks;
    const tutti_module_hook_t functions[] = {hooks->before_forward, hooks->after_forward,
                                             hooks->before_backward, hooks->after_backward};
    return functions[moment];
}

static bool has_hook(const tutti_module_t *m, moment_t moment)
{
    for (tt_hook_link_t *link = m->hooks.first; link != NULL; link = link->next) {
        if (!link->is_removed && function_of(hook_of(link), moment) != NULL) {
            return true;
        }
    }
    return false;
}

static bool is_called(const tt_module_hook_t *hook, moment_t moment, tutti_status_t status)
{
    return function_of(hook, moment) != NULL &&
           (status >= 0 || (moment == AFTER_FORWARD && hook->hooks.always_call));
}

/* status: how it went so far. */
static tutti_status_t run_hooks(tutti_scope_t *s, tutti_module_call_t *call, moment_t moment,
                                tutti_status_t status)
{
    tt_hook_walk_t walk = tt_hooks_begin(&call->module->hooks);
    tt_module_hook_t *hook;
    while ((hook = hook_of(tt_hooks_next(&walk))) != NULL) {
        if (is_called(hook, moment, status)) {
            const tutti_status_t result = function_of(hook, moment)(s, call, hook->link.user);
            (void)tutti_scope_fail(s, result); /* the first failure stays */
            status = tutti_scope_status(s);
        }
    }
    tt_hooks_end(&walk);
    return status;
}

/* ---- entry and exit -------------------------------------------------------------------------- */

/* Which of a module's inputs, or outputs, go through the node. The node's parameters point to it.
 */
typedef struct {
    tt_ref_t ref;
    tutti_module_t *module; /* retained */
    bool is_entry;
    int absent;   /* of an exit: inputs of a module without entry; -1: there is one */
    int total;    /* inputs, or outputs, of the module */
    int count;    /* of those that go through */
    int places[]; /* [count] */
} border_t;

static border_t *border_of(const void *params)
{
    return *(border_t *const *)params;
}

static void retain_border(const void *params)
{
    tt_ref_retain(&border_of(params)->ref);
}

static void release_border(const void *params)
{
    border_t *border = border_of(params);
    if (tt_ref_release(&border->ref)) {
        tutti_module_release(border->module);
        tt_free(border);
    }
}

static tutti_status_t border_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    for (int i = 0; i < call->input_count; i++) {
        outputs[i] = (tutti_spec_t){call->inputs[i]->dtype, call->inputs[i]->shape};
    }
    return TUTTI_OK;
}

static tutti_status_t border_forward(tutti_op_call_t *call)
{
    for (int i = 0; i < call->input_count; i++) {
        TT_TRY(tt_tensor_alias(call->inputs[i], tt_op_output(call, i)));
    }
    return TUTTI_OK;
}

static tutti_status_t run_backward_hooks(tutti_op_backward_t *call, tutti_tensor_t **grads)
{
    const border_t *border = border_of(call->params);
    tutti_module_call_t before = {
        .module = border->module, .outputs = grads, .output_count = border->total};
    tutti_module_call_t after = {.module = border->module,
                                 .inputs = grads + (border->is_entry ? 0 : border->total),
                                 .input_count = border->is_entry ? border->total : border->absent};
    for (int i = 0; i < border->count; i++) {
        grads[border->places[i]] = call->grad_outputs[i];
    }
    if (!border->is_entry) {
        TT_TRY(run_hooks(call->scope, &before, BEFORE_BACKWARD, TUTTI_OK));
    }
    if (after.input_count >= 0) {
        TT_TRY(run_hooks(call->scope, &after, AFTER_BACKWARD, TUTTI_OK));
    }
    for (int i = 0; i < border->count; i++) {
        call->grads[i] = grads[border->places[i]];
    }
    return TUTTI_OK;
}

static tutti_status_t border_backward(tutti_op_backward_t *call)
{
    const border_t *border = border_of(call->params);
    const size_t count = (size_t)border->total + (size_t)tt_max(border->absent, 0);
    tutti_tensor_t **grads = tt_alloc_array(count, sizeof *grads, "module hook");
    TT_TRY_ALLOC(grads);
    const tutti_status_t status = run_backward_hooks(call, grads);
    tt_free(grads);
    return status;
}

static const tutti_op_t border_op = {
    .name = "module_hooks",
    .output_count = TUTTI_OP_ANY,
    .about = "y = x; hooks of a module see and may change the gradients",
    .params_bytes = sizeof(border_t *),
    .retain_params = retain_border,
    .release_params = release_border,
    .infer = border_infer,
    .forward = border_forward,
    .backward = border_backward,
    .grad = border_backward,
    .makes_outputs = true,
};

/* Those that need gradients go through the node. `crossing`: room for all. */
static void cross_in(tutti_scope_t *s, border_t *border, tutti_tensor_t **tensors,
                     tutti_tensor_t **crossing)
{
    for (int i = 0; i < border->total; i++) {
        if (tensors[i] != NULL && tutti_tensor_requires_grad(tensors[i])) {
            border->places[border->count] = i;
            crossing[border->count++] = tensors[i];
        }
    }
    if (border->count > 0) {
        tutti_op_run_many(s, &border_op, crossing, border->count, &border, crossing, border->count);
    }
    for (int i = 0; i < border->count; i++) {
        tensors[border->places[i]] = crossing[i];
    }
}

static tutti_status_t cross(tutti_scope_t *s, const border_t *like, tutti_tensor_t **tensors)
{
    const size_t count = (size_t)like->total;
    tutti_tensor_t **crossing = tt_alloc_array(count, sizeof *crossing, "module hook");
    TT_TRY_ALLOC(crossing);
    border_t *border = tt_alloc(sizeof *border + count * sizeof(int), "module hook");
    if (border != NULL) {
        *border = *like;
        tt_ref_init(&border->ref);
        (void)tutti_module_retain(border->module);
        cross_in(s, border, tensors, crossing);
        release_border(&border);
    }
    tt_free(crossing);
    return border == NULL ? TUTTI_ERR_NOMEM : tutti_scope_status(s);
}

/* ---- for the call of a module ---------------------------------------------------------------- */

static bool is_watched(const tutti_scope_t *s, const tutti_module_t *m)
{
    return s->ctx->is_grad_enabled && (has_hook(m, BEFORE_BACKWARD) || has_hook(m, AFTER_BACKWARD));
}

tutti_status_t tt_module_enter(tutti_scope_t *s, tutti_module_call_t *call, bool *takes_grads)
{
    const border_t border = {
        .module = call->module, .is_entry = true, .absent = -1, .total = call->input_count};
    TT_TRY(run_hooks(s, call, BEFORE_FORWARD, TUTTI_OK));
    for (int i = 0; i < call->input_count; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        *takes_grads = *takes_grads || (x != NULL && tutti_tensor_requires_grad(x));
    }
    return *takes_grads && is_watched(s, call->module) ? cross(s, &border, call->inputs) : TUTTI_OK;
}

tutti_status_t tt_module_leave(tutti_scope_t *s, tutti_module_call_t *call, bool takes_grads,
                               tutti_status_t status)
{
    const border_t border = {.module = call->module,
                             .absent = takes_grads ? -1 : call->input_count,
                             .total = call->output_count};
    TT_TRY(run_hooks(s, call, AFTER_FORWARD, status));
    return is_watched(s, call->module) ? cross(s, &border, call->outputs) : TUTTI_OK;
}
