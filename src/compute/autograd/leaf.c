/* Leaves: marks, gradients, hooks. */
#include <tutti/autograd.h>

#include <stdio.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/kernel/map.h"

bool tutti_tensor_requires_grad(const tutti_tensor_t *x)
{
    const tt_autograd_t *a = tt_autograd_of(x);
    return a != NULL && a->requires_grad;
}

tutti_status_t tutti_tensor_set_requires_grad(tutti_tensor_t *x, bool requires_grad)
{
    TT_TRY(x->status);
    char text[192];
    if (requires_grad && !tutti_dtype_is_float(x->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s cannot require a gradient: want a floating dtype",
                       tutti_tensor_describe(x, text, sizeof text));
    }
    tt_autograd_t *a;
    TT_TRY(tt_autograd_ensure(x, &a));
    if (a->node != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "%s is the result of %s: only leaves can be marked; tutti_detach() it",
                       tutti_tensor_describe(x, text, sizeof text), a->node->op->name);
    }
    a->requires_grad = requires_grad;
    return TUTTI_OK;
}

tutti_tensor_t *tutti_tensor_grad(tutti_tensor_t *x)
{
    tt_autograd_t *a = tt_autograd_of(x);
    if (a == NULL || a->grad == NULL) {
        return NULL;
    }
    if (a->grad_is_stale && tutti_tensor_fill(a->grad, 0.0) >= 0) {
        a->grad_is_stale = false;
    }
    return a->grad;
}

tutti_status_t tutti_tensor_set_grad(tutti_tensor_t *x, tutti_tensor_t *grad)
{
    TT_TRY(x->status);
    char want[192], got[192];
    if (grad != NULL && (grad->dtype != x->dtype || !tutti_shape_equal(grad->shape, x->shape))) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "the gradient of %s cannot be %s",
                       tutti_tensor_describe(x, want, sizeof want),
                       tutti_tensor_describe(grad, got, sizeof got));
    }
    tt_autograd_t *a;
    TT_TRY(tt_autograd_ensure(x, &a));
    tutti_tensor_t *old = a->grad;
    a->grad = grad == NULL ? NULL : tutti_tensor_retain(grad);
    a->grad_is_stale = false;
    tutti_tensor_release(old);
    return TUTTI_OK;
}

void tutti_tensor_zero_grad(tutti_tensor_t *x)
{
    tt_autograd_t *a = tt_autograd_of(x);
    if (a != NULL && a->grad != NULL) {
        a->grad_is_stale = true;
    }
}

/* A gradient nobody else holds becomes the leaf's own; any other is copied. */
static tutti_status_t take_grad(tutti_scope_t *s, tt_autograd_t *a, tutti_tensor_t *leaf,
                                tutti_tensor_t *grad)
{
    const bool is_ours = tt_ref_is_unique(&grad->storage->ref) && grad->dtype == leaf->dtype &&
                         tutti_tensor_is_contiguous(grad) && grad->meta == NULL;
    if (is_ours) {
        a->grad = tutti_tensor_retain(grad);
        return TUTTI_OK;
    }
    tutti_tensor_t *copy;
    TT_TRY(tt_tensor_new(s->ctx->device, leaf->dtype, leaf->shape, false, &copy));
    a->grad = copy;
    return tutti_tensor_copy(copy, grad);
}

tutti_status_t tt_leaf_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, tutti_tensor_t *grad)
{
    tt_autograd_t *a = tt_autograd_of(leaf);
    if (a->grad == NULL) {
        return take_grad(s, a, leaf, grad);
    }
    if (a->grad_is_stale) {
        a->grad_is_stale = false;
        return tutti_tensor_copy(a->grad, grad);
    }
    const tt_strided_t sum = tt_tensor_strided(a->grad), more = tt_tensor_strided(grad);
    tt_map_binary(tt_scope_pool(s), TT_BINARY_ADD, (tt_map_params_t){0}, &sum, &sum, &more);
    tt_tensor_touch(a->grad);
    return TUTTI_OK;
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static tt_hooks_t *hooks_of(tt_autograd_t *a)
{
    return a->node != NULL ? &a->node->hooks : &a->hooks;
}

static void free_removed(tt_hooks_t *hooks)
{
    for (tt_hook_t **link = &hooks->first; *link != NULL;) {
        tt_hook_t *hook = *link;
        if (hook->is_removed) {
            *link = hook->next;
            tt_free(hook);
        } else {
            link = &hook->next;
        }
    }
}

void tt_hooks_begin_walk(tt_hooks_t *hooks)
{
    hooks->walks++;
}

void tt_hooks_end_walk(tt_hooks_t *hooks)
{
    if (--hooks->walks == 0) {
        free_removed(hooks);
    }
}

static tutti_status_t add_hook(tutti_tensor_t *x, tt_hook_t hook)
{
    char text[192];
    tt_autograd_t *a = tt_autograd_of(x);
    if (a == NULL || !a->requires_grad) {
        return TT_FAIL(TUTTI_ERR_STATE, "a hook on %s would never run: it needs no gradient",
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (hook.on_accumulate != NULL && a->node != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "%s is the result of %s: only leaves accumulate",
                       tutti_tensor_describe(x, text, sizeof text), a->node->op->name);
    }
    tt_hook_t *added = tt_alloc(sizeof *added, "autograd hook");
    TT_TRY_ALLOC(added);
    *added = hook;
    added->output = a->output;
    tt_hook_t **end = &hooks_of(a)->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = added;
    return TUTTI_OK;
}

tutti_status_t tutti_tensor_on_grad(tutti_tensor_t *x, tutti_grad_hook_t hook, void *user)
{
    TT_TRY(x->status);
    return add_hook(x, (tt_hook_t){.on_grad = hook, .user = user});
}

tutti_status_t tutti_tensor_on_accumulate(tutti_tensor_t *leaf, tutti_accumulate_hook_t hook,
                                          void *user)
{
    TT_TRY(leaf->status);
    return add_hook(leaf, (tt_hook_t){.on_accumulate = hook, .user = user});
}

void tutti_tensor_remove_hooks(tutti_tensor_t *x, void *user)
{
    tt_autograd_t *a = tt_autograd_of(x);
    if (a == NULL) {
        return;
    }
    tt_hooks_t *hooks = hooks_of(a);
    for (tt_hook_t *hook = hooks->first; hook != NULL; hook = hook->next) {
        if (hook->user == user && (a->node == NULL || hook->output == a->output)) {
            hook->is_removed = true;
        }
    }
    if (hooks->walks == 0) {
        free_removed(hooks);
    }
}
