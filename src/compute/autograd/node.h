/* The graph: a node for each recorded call, an accumulator for each leaf.
 *
 *     loss ── node(mean) ── node(mul) ┬─ accumulator(w)
 *                                     └─ node(linear) ── …
 *
 * A tensor's meta holds the node that made it; a node holds its inputs' nodes, so the graph lives
 * as long as a result does. Leaves hold their accumulator weakly and it holds the leaf.
 */
#ifndef TT_NODE_H
#define TT_NODE_H

#include <stddef.h>

#include "compute/autograd/hook_list.h"
#include "compute/autograd/op_call.h"

typedef struct tt_visit tt_visit_t; /* visit.h */

typedef struct {
    tt_node_t *node; /* NULL: no gradient is wanted here */
    int output;      /* which output of that node */
} tt_edge_t;

typedef struct {
    tt_hook_link_t link;
    int output; /* of the node */
    tutti_grad_hook_t on_grad;
    tutti_accumulate_hook_t on_accumulate;
    bool is_running;
} tt_hook_t;

struct tt_node {
    tt_ref_t ref;
    const tutti_op_t *op; /* NULL: an accumulator */
    tutti_tensor_t *leaf; /* of an accumulator, retained */
    uint64_t sequence;    /* order of creation; accumulators run as soon as they can */
    int input_count, output_count;
    bool is_consumed;
    tt_edge_t *edges;      /* [input_count] */
    tt_device_t **places;  /* [output_count] that outputs lie on, retained; NULL: the host */
    tutti_spec_t *inputs;  /* [input_count] */
    tutti_spec_t *outputs; /* [output_count] */
    tt_saved_set_t saved;
    void *params;     /* NULL: none */
    bool owns_params; /* what they point to is retained */
    tt_hook_list_t hooks;
    uint32_t profiled; /* the number of the module whose forward made it, in a profile; 0: none */
    char *module;      /* whose forward made it; NULL: none, or nobody asked (anomaly.h) */

    tt_visit_t *visits; /* by the backwards under way (visit.h) */
    tt_node_t *freed;   /* the next of those that go together */

    max_align_t room[]; /* of params, edges, specs and what was saved */
};

/* What compute/autograd attaches to a tensor. */
typedef struct {
    tt_meta_t base;
    bool requires_grad;
    bool grad_is_stale;   /* forgotten: overwritten by the next accumulation */
    bool is_view_of_leaf; /* one that wants a gradient */
    tutti_tensor_t *grad;
    tt_node_t *node; /* made it; NULL for a leaf; of a tensor in a leaf's place, its accumulator */
    int output;
    tt_node_t *accumulator; /* weak */
    tt_hook_list_t hooks;   /* of a leaf */
} tt_autograd_t;

/* The tensor's meta, NULL if it has none (or made, for the second one). */
tt_autograd_t *tt_autograd_of(const tutti_tensor_t *x);
tutti_status_t tt_autograd_ensure(tutti_tensor_t *x, tt_autograd_t **out);

/* Whether an output has no gradient. */
static inline bool tt_is_constant(const tutti_op_call_t *call, int output)
{
    const bool *is_constant = ((const tt_op_call_t *)call)->is_constant;
    return (is_constant != NULL && is_constant[output]) ||
           !tutti_dtype_is_float(call->outputs[output]->dtype);
}

/* A recorded call's node with its edges; attached to the outputs. */
tutti_status_t tt_node_record(tutti_op_call_t *call);

tt_node_t *tt_node_retain(tt_node_t *node);
void tt_node_release(tt_node_t *node);

/* Let go of what was saved and of what the parameters point to; for good. */
void tt_node_consume(tt_node_t *node);
void tt_node_release_params(tt_node_t *node);

/* STATE: it is consumed. */
tutti_status_t tt_node_check_kept(const tt_node_t *node);

/* What was saved moves from the call into the node. */
void tt_node_move_saved(tt_node_t *node, tutti_op_call_t *call);

/* A call's parameters become the node's, in place of those that it has; what they point to is
 * retained. */
void tt_node_take_params(tt_node_t *node, const tutti_op_call_t *call);

/* The operation, for texts. */
const char *tt_node_name(const tt_node_t *node);

/* Where an output lies, or the leaf; NULL: on the host. */
static inline tt_device_t *tt_node_place(const tt_node_t *node, int output)
{
    return node->leaf != NULL ? node->leaf->storage->device : node->places[output];
}

/* Whether x is nobody's result and wants a gradient. */
bool tt_is_leaf(const tutti_tensor_t *x);

/* Where x's gradient goes: its node or its accumulator; {NULL} if none is wanted. The caller
 * owns a reference. */
tutti_status_t tt_edge_of(tutti_tensor_t *x, tt_edge_t *out);

/* Hooks of a node's output see a gradient, and may put another in its place; those of a leaf hear
 * that its gradient has been accumulated. */
tutti_status_t tt_run_grad_hooks(tutti_scope_t *s, tt_hook_list_t *hooks, int output,
                                 tutti_tensor_t **grad);
tutti_status_t tt_run_accumulate_hooks(tutti_scope_t *s, tt_hook_list_t *hooks,
                                       tutti_tensor_t *leaf);

/* As tutti_backward_on_end(), behind the second turn of a backward in two turns, too: called with
 * each; not where the second is not wanted. */
tutti_status_t tt_backward_on_turns(tutti_scope_t *s, tutti_backward_end_t callback, void *user);

/* Whether what a context's backwards have still to do reads memory of these storages, which are
 * sorted here. */
bool tt_backward_reads(const tutti_context_t *ctx, tt_storage_t **storages, size_t count);

/* A gradient lies where its tensor does. ARG: it does not; `who` gave it. */
tutti_status_t tt_grad_check_place(const char *who, const tutti_tensor_t *grad,
                                   const tt_device_t *place);

/* ---- who owns a gradient ---------------------------------------------------------------------
 *
 * Gradients are handed on without copies: `add` gives one tensor to both of its inputs. Whoever
 * wants to write one, or to keep it where others will write, asks here. */

/* Whether nobody but the holder of this one reference can see the gradient or its memory. */
bool tt_grad_is_alone(tutti_tensor_t *grad);

/* The same, and that it has no history, which writing would belie. */
bool tt_grad_is_sole(tutti_tensor_t *grad);

/* The reference becomes one to a copy, unless the gradient is its holder's alone. */
tutti_status_t tt_grad_own(const tutti_context_t *ctx, tutti_tensor_t **grad);

/* Add a gradient, of the leaf's dtype, into the leaf's; *grad is NULL where the leaf took it over.
 */
tutti_status_t tt_leaf_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, tutti_tensor_t **grad);

#endif
