/* One step of a recurrent layer on all rows of a batch: what is left of it beside the products.
 *
 *     a = x + product           x: of the step's input, product: of the state, each with its bias
 *     tanh, relu   h' = f(a)
 *     LSTM         i f g o of a;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c')
 *     GRU          r z n of a, but n = tanh(x_n + r product_n);  h' = n + z (h - n)
 *
 * dtype (f32, f64, bf16, f16) is that of x, the states h and their gradients; the products, the
 * cells c and what is kept for backward have the accumulation type: f64 for f64, else f32. Every
 * element is computed alone; threads take rows.
 *
 *     TT_TRY(tt_recurrent_forward(exec, &step));
 */
#ifndef TT_RECURRENT_H
#define TT_RECURRENT_H

#include <stddef.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef enum {
    TT_RECURRENT_TANH,
    TT_RECURRENT_RELU,
    TT_RECURRENT_LSTM,
    TT_RECURRENT_GRU,
} tt_recurrent_t;

/* Gates G of a kind, and numbers kept for backward, of each hidden unit. */
size_t tt_recurrent_gates(tt_recurrent_t kind);
size_t tt_recurrent_kept(tt_recurrent_t kind);

typedef struct {
    tt_recurrent_t kind;
    tutti_dtype_t dtype;
    size_t rows, n;      /* batch, hidden units */
    const void *x;       /* [rows, G n] */
    const void *product; /* [rows, G n], accumulation type */
    const void *h;       /* [rows, n] the state before; GRU */
    const void *c;       /* [rows, n], accumulation type, the cell before; LSTM */
    void *kept;          /* [rows, kept n], accumulation type; forward writes */
    void *c_next;        /* [rows, n], accumulation type; may be c; forward writes; LSTM */
    void *y;             /* [rows, n] the state after; forward writes */
    /* Backward: */
    const void *dy; /* [rows, n]; NULL: zeros */
    void *dh;       /* [rows, n], accumulation type: added to dy; GRU: dh z comes back */
    void *dc;       /* [rows, n], accumulation type: of c_next, and comes back as c's; LSTM */
    void *dx;       /* [rows, G n]; also the product's, but for GRU: */
    void *dproduct; /* [rows, G n]; GRU */
} tt_recurrent_step_t;

/* Errors: those of a launch. */
TT_LAUNCHES tutti_status_t tt_recurrent_forward(tt_exec_t *exec, const tt_recurrent_step_t *step);
TT_LAUNCHES tutti_status_t tt_recurrent_backward(tt_exec_t *exec, const tt_recurrent_step_t *step);

#endif
