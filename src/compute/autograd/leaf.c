/* Leaves: marks, gradients, and who owns them. */
#include <tutti/autograd.h>

#include <stdio.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"

bool tutti_tensor_requires_grad(const tutti_tensor_t *x)
{
    const tt_autograd_t *a = tt_autograd_of(x);
    return a != NULL && a->requires_grad;
}

tutti_status_t tutti_tensor_set_requires_grad(tutti_tensor_t *x, bool requires_grad)
{
    TT_TRY(tt_tensor_status(x));
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
                       tutti_tensor_describe(x, text, sizeof text), tt_node_name(a->node));
    }
    a->requires_grad = requires_grad;
    return TUTTI_OK;
}

tutti_tensor_t *tutti_tensor_grad(tutti_tensor_t *x)
{
    const tt_autograd_t *a = tt_autograd_of(x);
    return a == NULL || a->grad_is_stale ? NULL : a->grad;
}

tutti_status_t tt_grad_check_place(const char *who, const tutti_tensor_t *grad,
                                   const tt_device_t *place)
{
    char text[192];
    const tt_device_t *own = tutti_tensor_device(grad);
    return own == place ? TUTTI_OK
                        : TT_FAIL(TUTTI_ERR_ARG,
                                  "%s: the gradient %s lies on %s, and what it is a gradient of "
                                  "on %s: tutti_tensor_to() brings it there",
                                  who, tutti_tensor_describe(grad, text, sizeof text),
                                  tt_device_text(own), tt_device_text(place));
}

tutti_status_t tutti_tensor_set_grad(tutti_tensor_t *x, tutti_tensor_t *grad)
{
    char want[192], got[192];
    TT_TRY(tt_tensor_status(x));
    TT_TRY(grad == NULL ? TUTTI_OK : tt_tensor_status(grad));
    if (grad != NULL && (grad->dtype != x->dtype || !tutti_shape_equal(grad->shape, x->shape))) {
        return TT_FAIL(grad->dtype != x->dtype ? TUTTI_ERR_DTYPE : TUTTI_ERR_SHAPE,
                       "the gradient of %s cannot be %s",
                       tutti_tensor_describe(x, want, sizeof want),
                       tutti_tensor_describe(grad, got, sizeof got));
    }
    if (grad != NULL) {
        TT_TRY(tt_grad_check_place("set_grad", grad, tutti_tensor_device(x)));
    }
    tt_autograd_t *a = grad == NULL ? NULL : tt_autograd_of(grad);
    if (a != NULL && a->node != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "the gradient %s has a history, which would keep the leaf alive: "
                       "tutti_detach() it",
                       tutti_tensor_describe(grad, got, sizeof got));
    }
    if (grad == NULL && tt_autograd_of(x) == NULL) {
        return TUTTI_OK; /* nothing to forget, and so nothing that can fail */
    }
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

bool tt_grad_is_alone(tutti_tensor_t *grad)
{
    const bool owns_memory = grad->storage->release != NULL;
    return tt_ref_is_unique(&grad->ref) && tt_ref_is_unique(&grad->storage->ref) && owns_memory &&
           tutti_tensor_is_contiguous(grad);
}

bool tt_grad_is_sole(tutti_tensor_t *grad)
{
    return grad->meta == NULL && tt_grad_is_alone(grad);
}

tutti_status_t tt_grad_own(const tutti_context_t *ctx, tutti_tensor_t **grad)
{
    tutti_tensor_t *shared = *grad, *copy;
    if (tt_grad_is_sole(shared)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_new(tt_memory_of(ctx, shared), shared->dtype, shared->shape, false, &copy));
    *grad = copy;
    const tutti_status_t status = tutti_tensor_copy(copy, shared);
    tutti_tensor_release(shared);
    return status;
}

/* Its kernels run later, or are skipped behind a failure. Zeros are made in any case: what was lost
 * adds nothing, once that has been told. */
static bool may_be_lost(const tutti_tensor_t *grad)
{
    return tt_device_streams(grad->storage->device) != NULL;
}

/* The leaf has none yet: it takes it over, or keeps a copy. */
static tutti_status_t take(const tutti_context_t *ctx, tt_autograd_t *a, tutti_tensor_t **grad)
{
    if (!may_be_lost(*grad)) {
        TT_TRY(tt_grad_own(ctx, grad));
        a->grad = *grad;
        *grad = NULL;
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_new((*grad)->storage->device, (*grad)->dtype, (*grad)->shape, true, &a->grad));
    return tutti_tensor_copy(a->grad, *grad);
}

tutti_status_t tt_leaf_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, tutti_tensor_t **grad)
{
    tt_autograd_t *a = tt_autograd_of(leaf);
    if (a->grad == NULL) {
        return take(s->ctx, a, grad);
    }
    TT_TRY(tt_tensor_check(a->grad));
    if ((*grad)->storage == a->grad->storage) {
        TT_TRY(tt_grad_own(s->ctx, grad)); /* what is read must not be written meanwhile */
    }
    if (a->grad_is_stale) {
        a->grad_is_stale = false;
        TT_TRY(may_be_lost(a->grad) ? tutti_tensor_fill(a->grad, 0) : TUTTI_OK);
        return tutti_tensor_copy(a->grad, *grad);
    }
    const tt_strided_t sum = tt_tensor_strided(a->grad), more = tt_tensor_strided(*grad);
    TT_TRY(tt_map_binary(tt_tensor_exec(s->ctx, a->grad), TT_BINARY_ADD, (tt_map_params_t){0}, &sum,
                         &sum, &more));
    tt_tensor_touch(a->grad);
    return TUTTI_OK;
}
