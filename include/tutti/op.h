/**
 * @file op.h
 * Your own operation: a table of functions, which the graph then treats like one of the library's.
 *
 * Example:
 *
 *     static tutti_status_t square_forward(tutti_op_call_t *call)
 *     {
 *         return tutti_tensor_copy(call->outputs[0],
 *                                  tutti_mul(call->scope, call->inputs[0], call->inputs[0]));
 *     }
 *
 *     static tutti_status_t square_backward(tutti_op_backward_t *call)
 *     {
 *         tutti_scope_t *s = call->scope;
 *         tutti_tensor_t *slope = tutti_mul_scalar(s, call->saved[0], 2);
 *         call->grads[0] = tutti_mul(s, slope, call->grad_outputs[0]);
 *         return TUTTI_OK;
 *     }
 *
 *     static const tutti_op_t square = {
 *         .name = "square",
 *         .infer = tutti_op_infer_same_float,
 *         .forward = square_forward,
 *         .backward = square_backward,
 *     };
 *
 *     y = tutti_op_run(s, &square, &x, 1, NULL);
 *
 * A call passes failures on (a null tensor in gives the null tensor out), applies autocast, asks
 * `infer`, makes the outputs, calls `forward`, and records a node of the graph if a gradient is
 * wanted. tutti_gradient_check() (autograd.h) compares `backward` with differences.
 */
#ifndef TUTTI_OP_H
#define TUTTI_OP_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The table of an operation; it must live as long as any graph that the operation is in. */
typedef struct tutti_op tutti_op_t;

/** What a tensor is, without its values. */
typedef struct tutti_spec {
    tutti_dtype_t dtype;
    tutti_shape_t shape;
} tutti_spec_t;

/** A call under way, forward. */
typedef struct tutti_op_call {
    const tutti_op_t *op;
    tutti_scope_t *scope; /**< the caller's: what is made here lives as long as it does */
    int input_count, output_count;
    tutti_tensor_t *const *inputs;  /**< [input_count]; NULL where an optional input is missing */
    const void *params;             /**< op->params_bytes of them */
    tutti_tensor_t *const *outputs; /**< [output_count]; see makes_outputs */
    bool needs_grad;                /**< a gradient is wanted: saving is worth it */
} tutti_op_call_t;

/** A call under way, backward. */
typedef struct tutti_op_backward {
    const tutti_op_t *op;
    tutti_scope_t *scope; /**< what is made here is freed when backward returns, but for `grads` */
    int input_count, output_count;
    const void *params;                  /**< the graph's copy of forward's */
    const tutti_spec_t *inputs;          /**< [input_count] what forward was given */
    const tutti_spec_t *outputs;         /**< [output_count] */
    const bool *wanted;                  /**< [input_count] whose gradient is asked for */
    bool retain_graph;                   /**< another backward may come: keep what there is */
    tutti_tensor_t *const *grad_outputs; /**< [output_count] only read; NULL: zero */
    tutti_tensor_t *const *saved;        /**< in the order of tutti_op_save(); only read */
    tutti_tensor_t **grads; /**< out, [input_count], on its input's device; NULL: zero */
} tutti_op_backward_t;

/** What autocast does to the floating inputs. */
typedef enum tutti_op_autocast {
    TUTTI_OP_AUTOCAST_KEEP, /**< nothing: the operation takes any mixture */
    TUTTI_OP_AUTOCAST_LOW,  /**< to the autocast dtype: matrix products */
    TUTTI_OP_AUTOCAST_F32   /**< 16-bit inputs to f32: what would lose too much */
} tutti_op_autocast_t;

enum { TUTTI_OP_ANY = -1 };

struct tutti_op {
    const char *name;         /**< as in "softmax" */
    const char *about;        /**< one line: formula and gradient; may be NULL */
    int input_count;          /**< 0: any number, which `infer` checks */
    uint64_t optional_inputs; /**< bit i: input i may be NULL; bit 63: those behind it, too */
    int output_count;         /**< 0: one; TUTTI_OP_ANY: what the caller asks for */
    size_t params_bytes;      /**< of a call's parameters, which are copied into the graph */
    tutti_op_autocast_t autocast;

    /** Shape rule: checks the inputs and writes outputs[i] for i < output_count. Pure. A failure
     *  names the rule that is broken (tutti_op_fail). Required. */
    tutti_status_t (*infer)(const tutti_op_call_t *call, tutti_spec_t *outputs);

    /** Compute. Inputs are read only, and have any strides (tutti_contiguous). The outputs exist,
     *  contiguous and uninitialised, unless makes_outputs is set. Nothing is recorded meanwhile,
     *  and autocast is off. The context's threads: tutti_parallel_for(). Random numbers:
     *  tutti_uniform() and its like, which a recomputation draws again. Required. */
    tutti_status_t (*forward)(tutti_op_call_t *call);

    /** Set call->grads[i] for wanted inputs: a tensor of the input's shape (of any floating dtype:
     *  it is cast to the input's). Nothing is recorded meanwhile. It may be called several times
     *  for one forward, each time with others wanted (tutti_backward_inputs, retain_graph). NULL:
     *  the operation has no gradient. */
    tutti_status_t (*backward)(tutti_op_backward_t *call);

    /** Called in backward's place where the gradients are to have gradients themselves
     *  (create_graph): what it calls is recorded, so it is made of operations alone. Saved inputs
     *  and outputs have their history; other saved tensors have none, and count as constants. A
     *  backward that keeps to this is both. NULL: create_graph is UNSUPPORTED. */
    tutti_status_t (*grad)(tutti_op_backward_t *call);

    /** Parameters that point to something with a lifetime of its own keep it alive: the graph calls
     *  retain_params for its copy of them, and release_params when it does not need it any more.
     *  Both or neither. With DataParallel, several threads call them at a time. */
    void (*retain_params)(const void *params);
    void (*release_params)(const void *params);

    /** Outputs that are views of inputs, or inputs changed in place: forward makes them, by
     *  tutti_op_set_output() or tutti_op_mark_dirty(). */
    bool makes_outputs;

    /** In backward, gradients of outputs that did not get any are zeros instead of NULL. */
    bool zero_grad_outputs;

    /** Numbers of `params` become elements, which may be infinite: no anomaly (modes.h). */
    bool fills;

    /** Whether this call has a gradient. NULL: always, given a backward. */
    bool (*is_differentiable)(const tutti_op_call_t *call);

    const void *family; /**< where operations share these functions: what tells them apart */
};

/* ---- running --------------------------------------------------------------------------------- */

/**
 * Run an operation with one output.
 *
 * @param inputs  [input_count] borrowed; NULL where an optional one is missing
 * @param params  op->params_bytes, copied; NULL where the operation has none
 * @return        the output, in scope s; its null tensor after a failure
 * @thread        the scope's
 * @errors        through the scope: those of the operation, and of a failed input; NOMEM
 * @source        torch.autograd.Function.apply
 */
TUTTI_API tutti_tensor_t *tutti_op_run(tutti_scope_t *s, const tutti_op_t *op,
                                       tutti_tensor_t *const *inputs, int input_count,
                                       const void *params);

/** Run an operation with several outputs, [output_count], all null tensors after a failure.
 *  @thread the scope's @errors as tutti_op_run */
TUTTI_API void tutti_op_run_many(tutti_scope_t *s, const tutti_op_t *op,
                                 tutti_tensor_t *const *inputs, int input_count, const void *params,
                                 tutti_tensor_t **outputs, int output_count);

/* ---- in a forward ---------------------------------------------------------------------------- */

/**
 * Save a tensor for backward: an input, an output, or something made in call->scope. It is kept
 * without its history, and must not be written before backward (which fails with STATE). NULL is
 * kept as NULL. Where no gradient is wanted, nothing is done.
 *
 * @thread  the call's
 * @errors  NOMEM; that of a failed x
 * @source  torch.autograd.function.FunctionCtx.save_for_backward
 */
TUTTI_API tutti_status_t tutti_op_save(tutti_op_call_t *call, tutti_tensor_t *x);

/** The same for a copy of an input in another dtype or order, which has the history of that input
 *  in `grad`. @thread the call's @errors NOMEM */
TUTTI_API tutti_status_t tutti_op_save_copy(tutti_op_call_t *call, tutti_tensor_t *x, int input);

/** Whether the gradient of an input (counted from 0) is wanted, for a forward that saves less
 * otherwise.
 *  @thread the call's @errors none
 *  @source torch.autograd.function.FunctionCtx.needs_input_grad */
TUTTI_API bool tutti_op_needs_grad(const tutti_op_call_t *call, int input);

/**
 * Make x an output, of an operation that makes_outputs. It may be a view of an input, an input, or
 * new; it becomes another tensor over the same memory, with its own place in the graph.
 *
 * @param x  of the dtype and shape that `infer` says
 * @thread   the call's
 * @errors   ARG, STATE (outputs are made for it), SHAPE, DTYPE; that of a failed x; NOMEM
 */
TUTTI_API tutti_status_t tutti_op_set_output(tutti_op_call_t *call, int output, tutti_tensor_t *x);

/**
 * Say that an input is changed in place, and make it an output, of an operation that makes_outputs.
 * Its version moves, so that a backward that needs the old values fails with STATE. The output is
 * the input, which has another place in the graph from then on: that of the change. Other tensors
 * over its memory (views of it, or what it is a view of) have no place any more, where PyTorch
 * gives them that of a view of the change: while gradients are recorded they are inputs of nothing
 * (STATE), but tutti_detach() gives their values as a constant.
 *
 * @thread  the call's
 * @errors  ARG, SHAPE, DTYPE; STATE (outputs are made for it; a leaf that needs a gradient, or a
 *          view of one; a tensor that needs a gradient, of an operation without one; a copy that
 *          autocast made)
 * @source  torch.autograd.function.FunctionCtx.mark_dirty
 */
TUTTI_API tutti_status_t tutti_op_mark_dirty(tutti_op_call_t *call, int input, int output);

/** Say that an output has no gradient. Those of integers have none anyway. @thread the call's
 *  @errors ARG @source torch.autograd.function.FunctionCtx.mark_non_differentiable */
TUTTI_API tutti_status_t tutti_op_mark_constant(tutti_op_call_t *call, int output);

/**
 * A failure whose text begins with the operation's name and ends with its inputs:
 * "matmul: the inner sizes differ: f32[2, 3] and f32[4, 5]".
 *
 * @param status  negative
 * @param format  as printf's
 * @return        status
 * @thread        the call's
 * @errors        none
 */
TUTTI_API tutti_status_t tutti_op_fail(const tutti_op_call_t *call, tutti_status_t status,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- shape rules ----------------------------------------------------------------------------- */

/** `infer`: one output of the first input's shape and dtype. @thread the call's
 *  @errors ARG (there is no input) */
TUTTI_API tutti_status_t tutti_op_infer_same(const tutti_op_call_t *call, tutti_spec_t *outputs);

/** `infer`: the same, of a floating dtype. @thread the call's @errors ARG, DTYPE */
TUTTI_API tutti_status_t tutti_op_infer_same_float(const tutti_op_call_t *call,
                                                   tutti_spec_t *outputs);

/** `infer`: one output; all inputs broadcast against each other; the promoted dtype. A NULL
 *  one is left out. @thread the call's @errors ARG, SHAPE */
TUTTI_API tutti_status_t tutti_op_infer_broadcast(const tutti_op_call_t *call,
                                                  tutti_spec_t *outputs);

/** Broadcast two shapes. @param op name of the operation, for the text @thread any @errors SHAPE
 *  (names the operation and both shapes) @source torch.broadcast_shapes */
TUTTI_API tutti_status_t tutti_op_broadcast_shapes(const char *op, tutti_shape_t a, tutti_shape_t b,
                                                   tutti_shape_t *out);

/** The type that holds both: f64 > f32 > (bf16 and f16 give f32) > 16-bit > i64 > i32 > i8/u8
 *  (mixed: i32) > bool. @thread any @errors none @source torch.promote_types */
TUTTI_API tutti_dtype_t tutti_op_promote(tutti_dtype_t a, tutti_dtype_t b);

/** In a backward: sum a gradient over the dimensions that broadcasting to it added; `grad` itself
 *  if there are none. @thread the scope's @errors ARG, SHAPE, NOMEM
 *  @source torch.Tensor.sum_to_size */
TUTTI_API tutti_tensor_t *tutti_sum_to(tutti_scope_t *s, tutti_tensor_t *grad, tutti_shape_t shape);

#ifdef __cplusplus
}
#endif

#endif
