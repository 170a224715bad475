/* Scopes: a growing list of the tensors made in them, and the first failure. */
#include <tutti/context.h>

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t open_scope(tutti_context_t *ctx, tutti_scope_t *parent, tutti_scope_t **out)
{
    tutti_scope_t *s = tt_alloc(sizeof *s, "scope");
    TT_TRY_ALLOC(s);
    s->ctx = ctx;
    s->parent = parent;
    if (parent != NULL) {
        parent->inner_count++;
    }
    tt_ref_init(&s->null.ref);
    *out = s;
    return TUTTI_OK;
}

tutti_status_t tutti_scope_open(tutti_context_t *ctx, tutti_scope_t **out)
{
    return open_scope(ctx, NULL, out);
}

tutti_status_t tutti_scope_open_inside(tutti_scope_t *parent, tutti_scope_t **out)
{
    return open_scope(parent->ctx, parent, out);
}

static void release_tensors(tutti_scope_t *s)
{
    for (size_t i = s->count; i > 0; i--) {
        tutti_tensor_release(s->tensors[i - 1]);
    }
    tt_free(s->tensors);
    s->tensors = NULL;
    s->count = s->capacity = 0;
}

/* A scope goes when it and all inside it are closed. */
static void free_closed(tutti_scope_t *s)
{
    while (s != NULL && s->is_closed && s->inner_count == 0) {
        tutti_scope_t *parent = s->parent;
        tutti_tensor_release(&s->null); /* and with it the scope's memory */
        if (parent != NULL) {
            parent->inner_count--;
        }
        s = parent;
    }
}

tutti_status_t tutti_scope_close(tutti_scope_t *scope)
{
    if (scope == NULL) {
        return TUTTI_OK;
    }
    release_tensors(scope);
    if (scope->inner_count > 0) {
        (void)tutti_scope_fail(scope,
                               TT_FAIL(TUTTI_ERR_STATE,
                                       "a scope was closed before %d that were opened inside it: "
                                       "close the inner ones first",
                                       scope->inner_count));
    }
    const tutti_status_t status = scope->null.status;
    if (status < 0) {
        (void)tt_fail_again(status, scope->error);
        if (scope->parent != NULL) {
            (void)tutti_scope_fail(scope->parent, status);
        }
    }
    scope->is_closed = true;
    free_closed(scope);
    return status;
}

tutti_status_t tutti_scope_status(const tutti_scope_t *scope)
{
    return scope->null.status;
}

const char *tutti_scope_error(const tutti_scope_t *scope)
{
    return scope->error;
}

tutti_context_t *tutti_scope_context(const tutti_scope_t *scope)
{
    return scope->ctx;
}

tutti_tensor_t *tutti_scope_fail(tutti_scope_t *scope, tutti_status_t status)
{
    if (scope->null.status >= 0 && status < 0) {
        scope->null.status = status;
        snprintf(scope->error, sizeof scope->error, "%s", tutti_last_error());
    }
    return &scope->null;
}

static tutti_status_t grow(tutti_scope_t *s)
{
    const size_t capacity = s->capacity == 0 ? 16 : 2 * s->capacity;
    tutti_tensor_t **tensors = tt_realloc(s->tensors, capacity * sizeof *tensors, "scope");
    TT_TRY_ALLOC(tensors);
    s->tensors = tensors;
    s->capacity = capacity;
    return TUTTI_OK;
}

tutti_tensor_t *tt_scope_adopt(tutti_scope_t *s, tutti_status_t status, tutti_tensor_t *x)
{
    if (status >= 0 && s->count == s->capacity) {
        status = grow(s);
        if (status < 0) {
            tutti_tensor_release(x);
        }
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    s->tensors[s->count++] = x;
    return x;
}

tutti_tensor_t *tutti_scope_keep(tutti_scope_t *scope, tutti_tensor_t *x)
{
    tutti_scope_t *parent = scope->parent;
    if (parent == NULL || parent->is_closed) {
        return tutti_scope_fail(
            scope, TT_FAIL(TUTTI_ERR_STATE, parent == NULL
                                                ? "nothing to hand a tensor to: the scope is not "
                                                  "inside another; tutti_tensor_retain() it"
                                                : "nothing to hand a tensor to: the outer scope "
                                                  "is closed"));
    }
    if (scope->null.status < 0) {
        (void)tt_fail_again(scope->null.status, scope->error);
        return tutti_scope_fail(parent, scope->null.status);
    }
    if (x->status < 0) {
        return tutti_scope_fail(
            parent, TT_FAIL(x->status, "a tensor to keep is the result of a failed operation"));
    }
    return tt_scope_adopt(parent, TUTTI_OK, tutti_tensor_retain(x));
}
