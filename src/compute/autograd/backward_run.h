/* A backward under way. What it knows of the nodes that it comes through stands here and not in the
 * nodes, so that several may be under way over one graph, one inside another or in turns.
 *
 *     run ── visit ── visit ── visit ── …      a visit for each node that the roots lead to
 *              │        │
 *            node ◄── node                     a node knows the visits of it
 *
 * A run goes through its nodes once. One that defers goes through them twice: first where an input
 * is to be reached, for the inputs' gradients; then through all that the first turn left.
 */
#ifndef TT_BACKWARD_RUN_H
#define TT_BACKWARD_RUN_H

#include "compute/autograd/ready_heap.h"

typedef struct tt_visit_chunk tt_visit_chunk_t; /* backward_run.c */

/* A result from which the run begins. */
typedef struct {
    tt_visit_t *visit;
    int output;
    bool is_awaited;      /* its gradient has not been delivered yet */
    tutti_tensor_t *late; /* it has: retained until its node runs, so that order changes no bit */
} tt_run_root_t;

typedef struct tt_end_callback {
    struct tt_end_callback *next;
    tutti_backward_end_t call;
    void *user;
    bool is_of_turns; /* called behind each turn */
} tt_end_callback_t;

struct tt_run {
    tt_run_t *outer; /* of a run that executes: the one it interrupted; else the next that waits */
    tutti_scope_t *scope;
    tutti_backward_options_t options;
    bool captures;       /* gradients of inputs are wanted; leaves keep what they have */
    bool defers;         /* all others are wanted in a second turn */
    bool ends_at_inputs; /* what made them is not looked at: no input depends on another */

    tt_visit_chunk_t *chunks;
    tt_visit_t *first, **end;
    size_t visit_count;
    tt_ready_heap_t ready;

    tt_run_root_t *roots;
    int root_count;
    int awaited_count; /* roots whose gradients are awaited */
    uint64_t awaited;  /* the latest sequence of these; 0: that of none matters */

    tt_edge_t *inputs;         /* [input_count] */
    tutti_tensor_t **captured; /* [input_count], retained */
    int input_count;
    tt_end_callback_t *end_callbacks;
};

/* Whether the gradient of an input is to be computed in this turn. */
static inline bool tt_edge_is_wanted(const tt_run_t *run, tt_edge_t edge)
{
    return edge.node != NULL && tt_visit_of(edge.node, run)->is_wanted;
}

/* ---- backward_run.c: life, and what is to be done -------------------------------------------- */

/* All that the roots lead to. Awaited roots count as one more gradient to come.
 * Errors: SHAPE (a root's gradient), STATE (a root needs none, or its graph is gone), NOMEM. */
tutti_status_t tt_run_open(tt_run_t *run, const tutti_root_t *roots, int root_count);

/* The gradients of these are wanted, and captured; before tt_run_open. */
tutti_status_t tt_run_capture(tt_run_t *run, tutti_tensor_t *const *inputs, int count);

/* The second turn of a run that defers. */
void tt_run_turn(tt_run_t *run);

void tt_run_close(tt_run_t *run);

/* slot += grad */
tutti_status_t tt_run_add_grad(const tt_run_t *run, tutti_scope_t *s, tutti_tensor_t **slot,
                               tutti_tensor_t *grad);

/* A root's gradient; NULL: one, of a scalar. Added at once, or when its node runs (an awaited one).
 * Errors: SHAPE. */
tutti_status_t tt_run_seed(tt_run_t *run, tt_run_root_t *root, tutti_tensor_t *grad);

/* Adds what was awaited of the visit's node, in the order of the roots. */
tutti_status_t tt_run_add_late(tt_run_t *run, tt_visit_t *visit);

/* The operation that made it, for texts. */
const char *tt_run_root_name(const tt_run_t *run, int root);

/* After a root's gradient is no longer awaited. */
void tt_run_note_awaited(tt_run_t *run);

/* ---- engine.c: doing it ---------------------------------------------------------------------- */

/* Run what can run. OK: all has; PENDING: a root's gradient is awaited. */
tutti_status_t tt_run_advance(tt_run_t *run);

/* The callbacks for its end; status: how it went. */
tutti_status_t tt_run_finish(tt_run_t *run, tutti_status_t status);

#endif
