/* A case of op_speed: one operation with inputs of one shape, and what the operations' tables in
 * op_moves.c, op_layers.c and op_losses.c are made of.
 */
#ifndef TT_OP_CASE_H
#define TT_OP_CASE_H

#include <tutti/tutti.h>

enum { OP_NUMBERS = 10, OP_INPUTS = 5 };

typedef struct op_case op_case_t;

typedef struct {
    const char *name;
    void (*prepare)(op_case_t *c); /* makes the inputs from the numbers */
    tutti_tensor_t *(*forward)(tutti_scope_t *s, op_case_t *c);
} op_t;

struct op_case {
    tutti_context_t *ctx;
    tutti_scope_t *scope; /* of the inputs */
    const op_t *op;
    char text[32]; /* a word that is no number: an equation */
    int64_t n[OP_NUMBERS];
    int count; /* of the numbers */
    tutti_tensor_t *in[OP_INPUTS];
    int inputs;
    tutti_module_t *module; /* or NULL */
    tutti_tensor_t *grad_output;
    tutti_tensor_t *second; /* another result of a forward, to be compared, too; or NULL */
};

/** The tables; the last row of each has no name. */
extern const op_t op_moves[], op_layers[], op_losses[];

/** The sizes n[from], …, `rank` of them. */
tutti_shape_t op_sizes(const op_case_t *c, int from, int rank);

/** Numbers in [low, high), a function of the seed; those of bench/peers/torch_ops.py. */
tutti_tensor_t *op_spread(op_case_t *c, tutti_shape_t shape, uint32_t seed, double low,
                          double high);

/* Inputs: each call makes the next one of c->in. */

/** f32 in [low, high), with a gradient. */
void op_input(op_case_t *c, tutti_shape_t shape, double low, double high);
/** f32 in [low, high). */
void op_constant(op_case_t *c, tutti_shape_t shape, double low, double high);
/** i64 in [0, below). */
void op_indices(op_case_t *c, tutti_shape_t shape, int64_t below);
/** f32, -1 or 1. */
void op_signs(op_case_t *c, tutti_shape_t shape);
/** A module; its matrices have numbers of about 1/√columns, its vectors in [-1, 1). */
void op_module(op_case_t *c, const tutti_module_ops_t *kind, const void *options);

#endif
