/* What one run of backward knows of a node (backward_run.h). */
#ifndef TT_VISIT_H
#define TT_VISIT_H

#include "compute/autograd/node.h"

struct tt_visit {
    tt_node_t *node; /* retained */
    const tt_run_t *run;
    tt_visit_t *next;        /* of the run, in the order of discovery */
    tt_visit_t *other;       /* of the node, by another run */
    int pending;             /* gradients still to come */
    bool is_wanted;          /* its gradient is, in this turn */
    bool is_to_run;          /* for an input's gradient is wanted, too */
    bool is_complete;        /* all gradients had come, and hooks have seen them */
    tutti_tensor_t *grads[]; /* [node->output_count] what has come so far, retained */
};

/* The run's visit of a node; NULL: it does not come there. */
static inline tt_visit_t *tt_visit_of(const tt_node_t *node, const tt_run_t *run)
{
    tt_visit_t *visit = node->visits;
    while (visit != NULL && visit->run != run) {
        visit = visit->other;
    }
    return visit;
}

#endif
