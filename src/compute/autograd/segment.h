/* Segments: parts of a graph whose saved tensors are not kept but computed again in backward.
 *
 * While a segment is recorded, nodes, edges and hooks are those of any graph; only what
 * operations save is let go. The first of its nodes that needs something saved runs the segment's
 * forward once more, in which nothing is recorded: the kth recorded call hands what it saves to
 * the kth node.
 *
 *     forward    node 0 {}      node 1 {}      node 2 {}
 *     backward                                 node 2 wants its saved tensors:
 *     forward    -> {a}         -> {b}         -> {c}, d
 *     backward   takes {a}  <-  takes {b}  <-  takes {c}
 *
 * The graph being the same, so are the order of execution, the bits, and how often hooks run.
 * Every backward that comes through computes once more; what it leaves is freed at its end.
 * Source: torch.utils.checkpoint with use_reentrant=False, for the semantics. */
#ifndef TT_SEGMENT_H
#define TT_SEGMENT_H

#include "compute/autograd/node.h"

/* Whose forward it is. */
typedef struct {
    const char *name; /* for texts of errors; lives as long as the segment */
    void *user;
    void (*forward)(tutti_scope_t *s, void *user, tutti_tensor_t *const *inputs, int input_count,
                    tutti_tensor_t **outputs, int output_count);
    /* A number that changes when something is written that forward reads. */
    uint64_t (*stamp)(void *user, bool is_training);
    /* Whether forward reads memory of these storages, in the order of their addresses, beside its
     * inputs. NULL: of none. */
    bool (*reads)(void *user, tt_storage_t *const *storages, size_t count);
    void (*release)(void *user); /* called once, whether creation succeeds or not */
} tt_segment_forward_t;

typedef struct {
    tutti_tensor_t *const *inputs;
    int input_count;
    tutti_tensor_t **outputs; /* out, in the scope; null tensors after a failure */
    int output_count;
} tt_segment_call_t;

/* Run forward as a segment. Inside another one, or where nothing is recorded, just run it. */
void tt_segment_run(tutti_scope_t *s, const tt_segment_forward_t *forward,
                    const tt_segment_call_t *call);

/* ---- for the graph and the engine ------------------------------------------------------------ */

/* A node recorded in it. The node holds the segment, and is known to it until tt_segment_leave. */
tutti_status_t tt_segment_join(tt_segment_t *segment, tt_node_t *node);
void tt_segment_leave(tt_node_t *node);

/* Whether it is being computed again; NULL: no. */
bool tt_segment_is_filling(const tt_segment_t *segment);

/* In place of recording while it is computed again: what the call has saved goes to its node. */
tutti_status_t tt_segment_refill(tt_segment_t *segment, tt_op_call_t *call);

/* Before a node's backward: see that what it saved is there. */
tutti_status_t tt_segment_restore(tutti_scope_t *s, tt_node_t *node);

/* Whether that would read memory of these storages. */
bool tt_segment_reads(const tt_node_t *node, tt_storage_t *const *storages, size_t count);

/* After it: let go of it again. */
void tt_segment_forget(tt_node_t *node);

#endif
