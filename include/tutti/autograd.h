/**
 * @file autograd.h
 * Gradients by reverse differentiation of what operations recorded.
 *
 * Example:
 *
 *     tutti_tensor_set_requires_grad(w, true);
 *     tutti_tensor_t *loss = tutti_sum(s, tutti_mul(s, w, w));
 *     tutti_backward(s, loss);
 *     printf("d loss / d w = %g\n", tutti_tensor_at(tutti_tensor_grad(w), 0));
 *     tutti_tensor_zero_grad(w);
 *
 * Unlike PyTorch, gradients of gradients are not recorded, and the order of execution is fixed:
 * later operations first, so that equal programs give equal bits.
 */
#ifndef TUTTI_AUTOGRAD_H
#define TUTTI_AUTOGRAD_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whether a gradient is wanted: a leaf marked so, or a result that depends on one.
 *  @thread any @errors none */
TUTTI_API bool tutti_tensor_requires_grad(const tutti_tensor_t *x);

/**
 * Mark a leaf. Results of operations cannot be changed, they depend on their inputs.
 *
 * @thread  the context's
 * @errors  DTYPE (not a floating type), STATE (a result), NOMEM
 */
TUTTI_API tutti_status_t tutti_tensor_set_requires_grad(tutti_tensor_t *x, bool requires_grad);

/** The accumulated gradient, borrowed, of x's shape; NULL if there is none, or it was forgotten.
 *  It is x's alone, unless tutti_tensor_set_grad() gave it. Looking changes nothing.
 *  @thread the context's @errors none */
TUTTI_API tutti_tensor_t *tutti_tensor_grad(tutti_tensor_t *x);

/**
 * Give a leaf a tensor to accumulate into (or NULL to drop it): of x's shape and dtype.
 *
 * @param grad  retained; no other leaf's
 * @thread      the context's
 * @errors      SHAPE, DTYPE, NOMEM
 */
TUTTI_API tutti_status_t tutti_tensor_set_grad(tutti_tensor_t *x, tutti_tensor_t *grad);

/** Forget the gradient: the next backward overwrites it, and until then there is none. Costs
 *  nothing. @thread the context's @errors none
 *  @source torch.Tensor.grad = None */
TUTTI_API void tutti_tensor_zero_grad(tutti_tensor_t *x);

typedef struct tutti_backward_options {
    bool retain_graph;    /**< keep what the graph saved, for another backward */
    tutti_tensor_t *seed; /**< gradient of the result, of its shape; stays the caller's. NULL: ones
                             (a scalar only) */
} tutti_backward_options_t;

/**
 * Accumulate the gradients of a scalar into all leaves it depends on, and free the graph.
 *
 * @param loss  one element
 * @thread      the context's
 * @cost        about twice the forward pass
 * @errors      SHAPE (not a scalar), STATE (needs no gradient, or the graph is gone)
 * @source      torch.Tensor.backward
 */
TUTTI_API tutti_status_t tutti_backward(tutti_scope_t *s, tutti_tensor_t *loss);

/** The same with options; `options` NULL for the defaults. @thread the context's
 *  @errors as tutti_backward, and SHAPE for the seed */
TUTTI_API tutti_status_t tutti_backward_with(tutti_scope_t *s, tutti_tensor_t *loss,
                                             const tutti_backward_options_t *options);

/**
 * Gradients of y with respect to chosen inputs, without touching any tensor's gradient. Only what
 * lies between y and the inputs runs, and is freed: what made an input is left as it is.
 *
 * @param inputs   [count] tensors that y depends on
 * @param grads    out, [count], in scope s, the caller's alone; NULL where y does not depend on the
 *                 input
 * @thread         the context's
 * @errors         as tutti_backward
 * @source         torch.autograd.grad (allow_unused)
 */
TUTTI_API tutti_status_t tutti_grad(tutti_scope_t *s, tutti_tensor_t *y,
                                    const tutti_backward_options_t *options,
                                    tutti_tensor_t *const *inputs, int count,
                                    tutti_tensor_t **grads);

/**
 * Called with the gradient of a tensor as soon as it is complete; may return another one of the
 * same shape (made in s, or retained elsewhere, which is only read), or NULL to leave it as it is.
 * It must not write grad, which may be that of other tensors, too.
 */
typedef tutti_tensor_t *(*tutti_grad_hook_t)(tutti_scope_t *s, tutti_tensor_t *grad, void *user);

/** Hooks run in the order of their registration. @thread the context's @errors STATE (needs no
 *  gradient), NOMEM @source torch.Tensor.register_hook */
TUTTI_API tutti_status_t tutti_tensor_on_grad(tutti_tensor_t *x, tutti_grad_hook_t hook,
                                              void *user);

/** Called with a leaf after its gradient, which it may write, was accumulated. */
typedef void (*tutti_accumulate_hook_t)(tutti_scope_t *s, tutti_tensor_t *leaf, void *user);

/** @brief Call `hook` each time a leaf's gradient has been accumulated. @thread the context's
 *  @errors STATE (not a leaf that needs a gradient), NOMEM
 *  @source torch.Tensor.register_post_accumulate_grad_hook */
TUTTI_API tutti_status_t tutti_tensor_on_accumulate(tutti_tensor_t *leaf,
                                                    tutti_accumulate_hook_t hook, void *user);

/** Remove the hooks of both kinds that were registered with `user`. @thread the context's
 *  @errors none */
TUTTI_API void tutti_tensor_remove_hooks(tutti_tensor_t *x, void *user);

/** Called once when the backward that is under way ends, failed or not. */
typedef tutti_status_t (*tutti_backward_end_t)(tutti_scope_t *s, tutti_status_t status, void *user);

/** Queue a callback, from a hook, for the end of the backward that is under way.
 *  @thread the context's @errors STATE (no backward is under way), NOMEM */
TUTTI_API tutti_status_t tutti_backward_on_end(tutti_scope_t *s, tutti_backward_end_t callback,
                                               void *user);

/** x without its history, sharing memory. @thread the scope's @errors NOMEM
 *  @source torch.Tensor.detach */
TUTTI_API tutti_tensor_t *tutti_detach(tutti_scope_t *s, tutti_tensor_t *x);

#ifdef __cplusplus
}
#endif

#endif
