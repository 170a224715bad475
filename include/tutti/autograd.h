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
 * Unlike PyTorch, the order of execution is fixed: later operations first, so that equal programs
 * give equal bits.
 *
 * Gradients of gradients: with the option create_graph tutti_grad() records what it computes, and
 * what it gives can be differentiated in turn:
 *
 *     tutti_tensor_t *slope, *penalty;
 *     tutti_grad(s, loss, &(tutti_backward_options_t){.create_graph = true}, &x, 1, &slope);
 *     penalty = tutti_mean(s, tutti_square(s, slope));
 *     tutti_backward(s, tutti_add(s, loss, penalty));
 *
 * Casts, hooks, sinks and gradients that meet are recorded like all else, also where recording is
 * off around the call; recomputed modules and saved-tensor hooks take part. Each such gradient may
 * be taken with create_graph again, for any order. Under DDP the last backward, which is not
 * recorded, averages as ever.
 *
 * Operations that have no gradient of their gradient fail with UNSUPPORTED, which names them:
 * ctc_loss, rnn_scan, lstm_scan, gru_scan; and sync_batch_norm.
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
 * Mark a leaf. Results of operations cannot be changed, they depend on their inputs. A leaf that is
 * not marked any more gets no gradient, nor do its hooks run, also where a graph was made before.
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
 * Give a leaf a tensor to accumulate into (or NULL to drop it): of x's shape and dtype, and on its
 * device, as all gradients are.
 *
 * @param grad  retained; no other leaf's
 * @thread      the context's
 * @errors      SHAPE, DTYPE, ARG (it lies elsewhere), STATE (grad has a history), NOMEM
 */
TUTTI_API tutti_status_t tutti_tensor_set_grad(tutti_tensor_t *x, tutti_tensor_t *grad);

/** Forget the gradient: the next backward overwrites it, and until then there is none. Costs
 *  nothing. @thread the context's @errors none
 *  @source torch.Tensor.grad = None */
TUTTI_API void tutti_tensor_zero_grad(tutti_tensor_t *x);

/**
 * Takes the gradients of leaves in their place, so that the leaves keep what they have: for
 * gradients that belong to one of several computations under way, or that go elsewhere.
 *
 * @param leaf  borrowed
 * @param grad  its whole gradient of this backward, borrowed, of its shape and dtype; only read
 * @return      OK; an error ends the backward with it
 */
typedef tutti_status_t (*tutti_grad_sink_t)(tutti_scope_t *s, tutti_tensor_t *leaf,
                                            tutti_tensor_t *grad, void *user);

typedef struct tutti_backward_options {
    bool retain_graph;           /**< keep what the graph saved, for another backward */
    bool create_graph;           /**< record this backward, for gradients of gradients: see above.
                                      Implies retain_graph. Leaves do not keep such gradients, which
                                      would keep themselves alive: tutti_grad(), or a sink */
    tutti_tensor_t *grad_output; /**< gradient of the result, of its shape; stays the caller's.
                                      NULL: one (a scalar only). Of several results: tutti_root_t */
    tutti_grad_sink_t sink;      /**< NULL: gradients are accumulated into the leaves */
    void *sink_user;
} tutti_backward_options_t;

/** A result from which a backward begins. */
typedef struct tutti_root {
    tutti_tensor_t *tensor;
    tutti_tensor_t *grad_output; /**< of its shape; stays the caller's. NULL: one (a scalar only) */
    bool is_awaited;             /**< it comes later, by tutti_backward_deliver() */
} tutti_root_t;

/**
 * Accumulate the gradients of a scalar into all leaves it depends on, and free the graph.
 *
 * Several backwards may be under way over one graph (one that a hook starts, or those of
 * tutti_backward_begin()); what one of them has freed fails the others, so all but the last want
 * retain_graph.
 *
 * @param loss  one element
 * @thread      the context's
 * @cost        about twice the forward pass
 * @errors      SHAPE (not a scalar), STATE (needs no gradient, or the graph is gone)
 * @source      torch.Tensor.backward
 */
TUTTI_API tutti_status_t tutti_backward(tutti_scope_t *s, tutti_tensor_t *loss);

/** The same with options; `options` NULL for the defaults. @thread the context's
 *  @errors as tutti_backward, SHAPE for the gradient, UNSUPPORTED (create_graph), ARG
 *  (create_graph without a sink; a gradient that somebody gave lies on another device than its
 *  tensor), and those of the sink */
TUTTI_API tutti_status_t tutti_backward_with(tutti_scope_t *s, tutti_tensor_t *loss,
                                             const tutti_backward_options_t *options);

/**
 * One backward from several results: what they share is run once.
 *
 * @param roots    [count], at least one; none awaited
 * @param options  NULL for the defaults; its grad_output is not used
 * @thread         the context's
 * @errors         as tutti_backward_with, ARG
 * @source         torch.autograd.backward
 */
TUTTI_API tutti_status_t tutti_backward_many(tutti_scope_t *s, const tutti_root_t *roots, int count,
                                             const tutti_backward_options_t *options);

/**
 * Gradients of y with respect to chosen inputs, without touching any tensor's gradient. Only what
 * lies between y and the inputs runs, and is freed: what made an input is left as it is.
 *
 * @param inputs   [count] tensors that y depends on
 * @param grads    out, [count], in scope s, the caller's alone; NULL where y does not depend on the
 *                 input. With create_graph they have a history
 * @thread         the context's
 * @errors         as tutti_backward
 * @source         torch.autograd.grad (allow_unused)
 */
TUTTI_API tutti_status_t tutti_grad(tutti_scope_t *s, tutti_tensor_t *y,
                                    const tutti_backward_options_t *options,
                                    tutti_tensor_t *const *inputs, int count,
                                    tutti_tensor_t **grads);

/** The same for the sum over several results, each weighed by its gradient; parameters as those of
 *  tutti_backward_many() and tutti_grad(). @thread the context's @errors as both
 *  @source torch.autograd.grad(outputs, inputs, grad_outputs) */
TUTTI_API tutti_status_t tutti_grad_many(tutti_scope_t *s, const tutti_root_t *roots,
                                         int root_count, const tutti_backward_options_t *options,
                                         tutti_tensor_t *const *inputs, int count,
                                         tutti_tensor_t **grads);

/* ---- backward in parts ----------------------------------------------------------------------- */

/** A backward under way. It keeps its graph and its scope's memory; its scope must outlive it. */
typedef struct tutti_backward_run tutti_backward_run_t;

/**
 * Prepare a backward of which some gradients come later, from another process as a rule: the
 * results that were sent there are its roots, and awaited. Nothing runs yet.
 *
 * No operation runs while the gradient of a root that was made after it is awaited. So the bits do
 * not depend on when gradients come (those of one result are added in the order of the roots,
 * behind the graph's own); and processes that go back through the tensors that they sent each other
 * do not wait in a circle.
 *
 * @param run  out, the caller's to release; NULL after a failure
 * @thread     the context's
 * @errors     as tutti_backward_many
 * @source     torch.distributed.autograd, for the use
 */
TUTTI_API tutti_status_t tutti_backward_begin(tutti_scope_t *s, const tutti_root_t *roots,
                                              int count, const tutti_backward_options_t *options,
                                              tutti_backward_run_t **run);

/** The gradient of an awaited root has come (NULL: none will; a scalar's is then zero, too). It is
 *  retained as long as it is needed. @thread the context's, also from an idle function, but not
 *  from a hook of this run @errors ARG (none is awaited), SHAPE */
TUTTI_API tutti_status_t tutti_backward_deliver(tutti_backward_run_t *run, int root,
                                                tutti_tensor_t *grad);

/** Run all that can run. @return OK: the backward is done; PENDING: a gradient is awaited
 *  @thread the context's @errors as tutti_backward */
TUTTI_API tutti_status_t tutti_backward_advance(tutti_backward_run_t *run);

/** Advance until the backward is done; functions that were given to tutti_context_add_idle() are
 *  called in between, and deliver. @param timeout_ms 0: without a wait @thread the context's
 *  @errors ARG (a negative timeout), TIMEOUT (names the root); as tutti_backward */
TUTTI_API tutti_status_t tutti_backward_wait(tutti_backward_run_t *run, int64_t timeout_ms);

/** Let go of a backward, whether it is done or not. NULL is allowed. @thread the context's, but not
 *  from a hook or an idle function inside this run @errors none */
TUTTI_API void tutti_backward_release(tutti_backward_run_t *run);

/**
 * The first turn of a backward: gradients of inputs alone, as tutti_grad_many() gives them. What
 * else the graph is to give waits for tutti_backward_weights(): a pipeline's stage sends the first
 * to the stage before, and fills its waiting with the second. Both together have the bits of
 * one backward, in which the inputs' gradients are those that are given.
 *
 * @param inputs  [count] tensors that the roots depend on: the stage's inputs
 * @param grads   out, [count], as tutti_grad()
 * @param run     out, for tutti_backward_weights() or tutti_backward_release(); it keeps what the
 *                second turn needs; NULL after a failure
 * @thread        the context's
 * @errors        as tutti_grad_many
 * @source        Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024
 */
TUTTI_API tutti_status_t tutti_backward_inputs(tutti_scope_t *s, const tutti_root_t *roots,
                                               int root_count,
                                               const tutti_backward_options_t *options,
                                               tutti_tensor_t *const *inputs, int count,
                                               tutti_tensor_t **grads, tutti_backward_run_t **run);

/** The second turn: accumulate all gradients but those of the inputs, and release the run.
 *  @thread as tutti_backward_release @errors as tutti_backward */
TUTTI_API tutti_status_t tutti_backward_weights(tutti_backward_run_t *run);

/* ---- hooks ----------------------------------------------------------------------------------- */

/**
 * Called with the gradient of a tensor as soon as it is complete; may return another one of the
 * same shape there (made in s, or retained elsewhere, which is only read), or NULL to leave it as
 * it is. It must not write grad, which may be that of other tensors, too.
 */
typedef tutti_tensor_t *(*tutti_grad_hook_t)(tutti_scope_t *s, tutti_tensor_t *grad, void *user);

/** Hooks run in the order of their registration; one that a hook adds runs from the next gradient
 *  on. @thread the context's @errors STATE (needs no
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

/* ---- saved tensors -------------------------------------------------------------------------- */

/** What becomes of the tensors that operations save for their backward. Leaves that need a gradient
 *  (parameters) stay where they are, whose memory is there anyway. */
typedef struct tutti_saved_hooks {
    /** Take a tensor: copy it to a file, a smaller dtype, another memory. x is borrowed, without a
     *  history, only to be read. What is made in s ends with the call; retain what is to stay. */
    tutti_status_t (*pack)(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **packed);

    /** Give it back, in s or retained elsewhere: a tensor of the same shape and dtype, on the
     * same device. Once for each backward that needs it. */
    tutti_tensor_t *(*unpack)(tutti_scope_t *s, void *packed, void *user);

    /** It is not needed any more: called once for each that was packed. NULL: nothing is to be
     * done. */
    void (*release)(void *packed, void *user);

    void *user;
} tutti_saved_hooks_t;

/**
 * From here on, tensors are saved by these hooks, until tutti_saved_hooks_pop(). Hooks nest, the
 * innermost ones take a tensor. Of what is recomputed (modes.h) they take the inputs.
 * Operations of hooks are not recorded. An error of a hook is the operation's, or the backward's.
 *
 * @param hooks  copied; what `user` points to must live as long as graphs recorded meanwhile
 * @thread       the context's
 * @errors       ARG (no pack or unpack), NOMEM
 * @source       torch.autograd.graph.saved_tensors_hooks
 */
TUTTI_API tutti_status_t tutti_saved_hooks_push(tutti_context_t *ctx,
                                                const tutti_saved_hooks_t *hooks);

/** Tensors are saved as before the last push. @thread the context's @errors STATE (no hooks were
 *  pushed, or not in this forward) */
TUTTI_API tutti_status_t tutti_saved_hooks_pop(tutti_context_t *ctx);

/* ---- checking ------------------------------------------------------------------------------- */

/** What is checked: outputs[0] … from inputs[0] …, in scope s; the same function each time. */
typedef void (*tutti_gradient_check_fn_t)(tutti_scope_t *s, tutti_tensor_t *const *inputs,
                                          tutti_tensor_t **outputs, void *user);

typedef struct tutti_gradient_check_options {
    double step;      /**< of the differences; 0: 1e-5 */
    double tolerance; /**< of a gradient, times 1 + its size; 0: 2e-6 */
    int order;        /**< 2: gradients of gradients, too; 0 and 1: gradients alone */
} tutti_gradient_check_options_t;

/**
 * Compare the gradients of a function with central differences: for tests of operations, of modules
 * and of losses.
 *
 * All outputs that have a gradient are checked at once, by a sum with weights. Each forward draws
 * the same random numbers. The inputs and their gradients stay as they are. With order 2 the
 * gradients (create_graph) are then taken for a function of the inputs and of the outputs'
 * gradients, and checked in the same way.
 *
 * @param inputs   [input_count]; those that need a gradient, at least one, are checked, and are
 *                 contiguous f64. Others are handed on, NULL too
 * @param options  NULL for the defaults
 * @return         OK: all are near
 * @thread         the context's
 * @cost           two forwards for each element of the inputs; order 2: two gradients for each
 *                 element of inputs and outputs
 * @errors         MISMATCH (names input, element, both values), DTYPE, STATE (no input needs a
 *                 gradient, or no output has one), ARG, NOMEM, and those of fn
 * @source         torch.autograd.gradcheck, gradgradcheck
 */
TUTTI_API tutti_status_t tutti_gradient_check(tutti_context_t *ctx, tutti_gradient_check_fn_t fn,
                                              void *user, tutti_tensor_t *const *inputs,
                                              int input_count, int output_count,
                                              const tutti_gradient_check_options_t *options);

/** x without its history, sharing memory. @thread the scope's @errors NOMEM
 *  @source torch.Tensor.detach */
TUTTI_API tutti_tensor_t *tutti_detach(tutti_scope_t *s, tutti_tensor_t *x);

#ifdef __cplusplus
}
#endif

#endif
