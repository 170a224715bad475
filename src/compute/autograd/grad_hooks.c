/* Hooks on tensors: registration and calls. */
#include <tutti/autograd.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"

static tt_hook_t *hook_of(tt_hook_link_t *link)
{
    return (tt_hook_t *)link;
}

static tt_hook_list_t *hooks_of(tt_autograd_t *a)
{
    if (a->node == NULL) {
        return &a->hooks;
    }
    return a->node->leaf != NULL ? &tt_autograd_of(a->node->leaf)->hooks : &a->node->hooks;
}

static tutti_status_t add_hook(tutti_tensor_t *x, tt_hook_t hook)
{
    char text[192];
    tt_autograd_t *a = tt_autograd_of(x);
    if (a == NULL || !a->requires_grad) {
        return TT_FAIL(TUTTI_ERR_STATE, "a hook on %s would never run: it needs no gradient",
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (hook.on_accumulate != NULL && !tt_is_leaf(x)) {
        return TT_FAIL(TUTTI_ERR_STATE, "%s is the result of %s: only leaves accumulate",
                       tutti_tensor_describe(x, text, sizeof text), tt_node_name(a->node));
    }
    tt_hook_t *added = tt_alloc(sizeof *added, "autograd hook");
    TT_TRY_ALLOC(added);
    *added = hook;
    added->output = a->output;
    tt_hooks_add(hooks_of(a), &added->link);
    return TUTTI_OK;
}

tutti_status_t tutti_tensor_on_grad(tutti_tensor_t *x, tutti_grad_hook_t hook, void *user)
{
    TT_TRY(tt_tensor_status(x));
    return add_hook(x, (tt_hook_t){.link.user = user, .on_grad = hook});
}

tutti_status_t tutti_tensor_on_accumulate(tutti_tensor_t *leaf, tutti_accumulate_hook_t hook,
                                          void *user)
{
    TT_TRY(tt_tensor_status(leaf));
    return add_hook(leaf, (tt_hook_t){.link.user = user, .on_accumulate = hook});
}

void tutti_tensor_remove_hooks(tutti_tensor_t *x, void *user)
{
    tt_autograd_t *a = tt_autograd_of(x);
    if (a == NULL) {
        return;
    }
    tt_hook_list_t *hooks = hooks_of(a);
    for (tt_hook_link_t *link = hooks->first; link != NULL; link = link->next) {
        if (link->user == user && (a->node == NULL || hook_of(link)->output == a->output)) {
            link->is_removed = true;
        }
    }
    tt_hooks_free_removed(hooks);
}

/* ---- calling them ---------------------------------------------------------------------------- */

/* What a hook made of a gradient takes its place. */
static tutti_status_t change_grad(tutti_tensor_t **grad, tutti_tensor_t *changed)
{
    char before[192], after[192];
    TT_TRY(tt_tensor_check(changed));
    if (changed->dtype != (*grad)->dtype || !tutti_shape_equal(changed->shape, (*grad)->shape)) {
        return TT_FAIL(changed->dtype != (*grad)->dtype ? TUTTI_ERR_DTYPE : TUTTI_ERR_SHAPE,
                       "a hook made of the gradient %s one of %s",
                       tutti_tensor_describe(*grad, before, sizeof before),
                       tutti_tensor_describe(changed, after, sizeof after));
    }
    TT_TRY(tt_grad_check_place("a hook", changed, tutti_tensor_device(*grad)));
    tutti_tensor_retain(changed);
    tutti_tensor_release(*grad);
    *grad = changed;
    return TUTTI_OK;
}

static tutti_status_t check_hook(const tt_hook_t *hook)
{
    return hook->is_running ? TT_FAIL(TUTTI_ERR_STATE, "a hook started a backward that comes to "
                                                       "that hook again: it would never end")
                            : TUTTI_OK;
}

static tutti_status_t call_grad_hook(tutti_scope_t *s, tt_hook_t *hook, tutti_tensor_t **grad)
{
    TT_TRY(check_hook(hook));
    hook->is_running = true;
    tutti_tensor_t *changed = hook->on_grad(s, *grad, hook->link.user);
    hook->is_running = false;
    TT_TRY(tutti_scope_status(s));
    return changed == NULL ? TUTTI_OK : change_grad(grad, changed);
}

static tutti_status_t walk_grad_hooks(tutti_scope_t *s, tt_hook_list_t *hooks, int output,
                                      tutti_tensor_t **grad)
{
    tutti_status_t status = TUTTI_OK;
    tt_hook_walk_t walk = tt_hooks_begin(hooks);
    tt_hook_t *hook;
    while (status >= 0 && (hook = hook_of(tt_hooks_next(&walk))) != NULL) {
        if (hook->on_grad != NULL && hook->output == output) {
            status = call_grad_hook(s, hook, grad);
        }
    }
    tt_hooks_end(&walk);
    return status;
}

static bool has_grad_hook(const tt_hook_list_t *hooks)
{
    tt_hook_link_t *link = hooks->first;
    while (link != NULL && hook_of(link)->on_grad == NULL) {
        link = link->next;
    }
    return link != NULL;
}

/* In a scope of their own: when it has closed, what they made is held by `grad` alone. */
tutti_status_t tt_run_grad_hooks(tutti_scope_t *outer, tt_hook_list_t *hooks, int output,
                                 tutti_tensor_t **grad)
{
    tutti_scope_t *s;
    if (*grad == NULL || !has_grad_hook(hooks)) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_scope_open_inside(outer, &s));
    const tutti_status_t status = walk_grad_hooks(s, hooks, output, grad);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
    return tutti_scope_close(s);
}

static tutti_status_t call_accumulate_hook(tutti_scope_t *s, tt_hook_t *hook, tutti_tensor_t *leaf)
{
    TT_TRY(check_hook(hook));
    hook->is_running = true;
    hook->on_accumulate(s, leaf, hook->link.user);
    hook->is_running = false;
    return TUTTI_OK;
}

tutti_status_t tt_run_accumulate_hooks(tutti_scope_t *s, tt_hook_list_t *hooks,
                                       tutti_tensor_t *leaf)
{
    tutti_status_t status = TUTTI_OK;
    tt_hook_walk_t walk = tt_hooks_begin(hooks);
    tt_hook_t *hook;
    while (status >= 0 && (hook = hook_of(tt_hooks_next(&walk))) != NULL) {
        if (hook->on_accumulate != NULL) {
            status = call_accumulate_hook(s, hook, leaf);
        }
    }
    tt_hooks_end(&walk);
    return status;
}
