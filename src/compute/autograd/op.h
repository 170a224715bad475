/* The contract of an operation: shape rule, forward, backward. Adding one is one file in
 * compute/op and one line in ops.def.
 *
 *     static const tutti_op_t square = {
 *         .name = "square", .about = "y = x²", .infer = tt_infer_same,
 *         .forward = square_forward, .backward = square_backward,
 *     };
 *
 *     tutti_tensor_t *tutti_square(tutti_scope_t *s, tutti_tensor_t *x)
 *     {
 *         return tutti_op_run(s, &square, (tutti_tensor_t *[]){x}, 1, NULL);
 *     }
 *
 * tutti_op_run() passes failures on (a null tensor in gives the null tensor out), applies autocast,
 * asks `infer`, makes the outputs, calls `forward`, and records a node if a gradient is wanted.
 *
 * `backward` may call public operations: nothing is recorded while it runs, and what it makes in
 * call->scope is freed when it returns, except for what it puts into call->grads.
 */
#ifndef TT_OP_H
#define TT_OP_H

#include <tutti/autograd.h>
#include <tutti/tensor.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

enum { TT_OP_OUTPUTS_MAX = 4, TT_OP_SAVED_MAX = 8 };

/* An operation may have any number of inputs; up to so many need no memory from the heap. */
enum { TT_OP_INPUTS_FEW = 16 };

typedef struct tutti_op tutti_op_t;

typedef struct {
    tutti_dtype_t dtype;
    tutti_shape_t shape;
} tutti_spec_t;

/* A call under way, forward. */
typedef struct tutti_op_call {
    const tutti_op_t *op;
    tutti_scope_t *scope; /* temporaries are fine here; so are pool and context through it */
    int input_count, output_count;
    tutti_tensor_t *const *inputs; /* NULL where an optional input is missing */
    const void *params; /* op->params_bytes of them, copied into the graph; see retain_params */
    tutti_tensor_t *outputs[TT_OP_OUTPUTS_MAX];
    bool needs_grad; /* whether saving is worth it */
    int saved_count;
    tutti_tensor_t *saved[TT_OP_SAVED_MAX];
    bool is_leaf_saved[TT_OP_SAVED_MAX];
} tutti_op_call_t;

/* A call under way, backward. */
typedef struct {
    const tutti_op_t *op;
    tutti_scope_t *scope;
    int input_count, output_count;
    const void *params;
    const tutti_spec_t *inputs;          /* [input_count] what forward was given */
    const tutti_spec_t *outputs;         /* [output_count] */
    const bool *wanted;                  /* [input_count] whose gradient is asked for */
    bool retain_graph;                   /* another backward may come: keep what there is */
    tutti_tensor_t *const *grad_outputs; /* [output_count] NULL: zero */
    tutti_tensor_t *const *saved;        /* in the order of tutti_op_save */
    tutti_tensor_t **grads;              /* out, [input_count]; NULL: zero */
} tutti_op_backward_t;

/* What autocast does to the floating inputs. */
typedef enum {
    TUTTI_OP_AUTOCAST_KEEP, /* nothing: the operation takes any mixture */
    TUTTI_OP_AUTOCAST_LOW,  /* to the autocast dtype: matrix products */
    TUTTI_OP_AUTOCAST_F32,  /* 16-bit inputs to f32: what would lose too much */
} tutti_op_autocast_t;

struct tutti_op {
    const char *name;  /* as in "softmax" */
    const char *about; /* one line: formula and gradient */
    size_t params_bytes;
    tutti_op_autocast_t autocast;

    /* Shape rule: checks the inputs and writes outputs[i] for i < output_count. Pure. A failure
     * names the operation, the shapes and the rule that is broken. Required. */
    tutti_status_t (*infer)(const tutti_op_call_t *call, tutti_spec_t *outputs);

    /* Compute. The outputs exist, contiguous and uninitialised, unless is_view is set: then
     * forward sets call->outputs[0] to a new tensor over the input's storage. Required. */
    tutti_status_t (*forward)(tutti_op_call_t *call);

    /* Set call->grads[i] for wanted inputs: a tensor of the input's shape (any floating dtype:
     * the engine casts to the input's). NULL: the operation has no gradient. */
    tutti_status_t (*backward)(tutti_op_backward_t *call);

    /* Parameters that point to something with a lifetime of its own keep it alive: the node calls
     * retain_params for its copy of them, and release_params when it has run for the last time, or
     * goes. Both or neither. */
    void (*retain_params)(const void *params);
    void (*release_params)(const void *params);

    bool is_view;
    bool (*is_differentiable)(const tutti_op_call_t *call); /* NULL: always, given a backward */
    const void *family; /* where operations share these functions: what tells them apart */
};

/* Run an operation with one output. */
tutti_tensor_t *tutti_op_run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *const *inputs,
                             int input_count, const void *params);

/* Run an operation with several: all null tensors after a failure. */
void tutti_op_run_many(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *const *inputs,
                       int input_count, const void *params, tutti_tensor_t **outputs,
                       int output_count);

/* Save a tensor for backward (an input, an output, or something made in call->scope). It is kept
 * without its history, and must not be written before backward (the engine checks). NULL is
 * kept as NULL. */
tutti_status_t tutti_op_save(tutti_op_call_t *call, tutti_tensor_t *x);

/* Whether the gradient of input i is wanted; for forward passes that save less otherwise. */
bool tutti_op_needs_grad(const tutti_op_call_t *call, int input);

/* ---- shape rules that several operations share ---------------------------------------------- */

/* One output of the first input's shape and dtype. */
tutti_status_t tt_infer_same(const tutti_op_call_t *call, tutti_spec_t *outputs);

/* As tt_infer_same, but DTYPE unless it is a floating type. */
tutti_status_t tt_infer_same_float(const tutti_op_call_t *call, tutti_spec_t *outputs);

/* All inputs broadcast against each other; the promoted dtype. */
tutti_status_t tt_infer_broadcast(const tutti_op_call_t *call, tutti_spec_t *outputs);

/* Broadcast two shapes; SHAPE names the operation and both shapes. */
tutti_status_t tt_broadcast_shapes(const char *op, tutti_shape_t a, tutti_shape_t b,
                                   tutti_shape_t *out);

/* The type that holds both: f64 > f32 > (bf16 and f16 give f32) > 16-bit > i64 > i32 > i8/u8
 * (mixed: i32) > bool. */
tutti_dtype_t tt_promote(tutti_dtype_t a, tutti_dtype_t b);

/* Sum a gradient over the dimensions that broadcasting to it added. */
tutti_tensor_t *tt_sum_to(tutti_scope_t *s, tutti_tensor_t *grad, tutti_shape_t shape);

/* SHAPE/DTYPE errors with the operation's name and a description of the inputs appended:
 * "matmul: the inner sizes differ: f32[2, 3] and f32[4, 5]". */
__attribute__((format(printf, 3, 4))) tutti_status_t
tutti_op_fail(const tutti_op_call_t *call, tutti_status_t status, const char *format, ...);

#endif
