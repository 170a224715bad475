/* What a backward needs of a forward: the tensors that were saved, and who keeps them until then.
 *
 * A set is kept as it is, or by the keeper in which it was saved: a region of the graph that is
 * computed again (region.h), or hooks that pack and unpack (saved_hooks.c). Keepers nest, and the
 * innermost one keeps. What a keeper needs itself of the forward around it, the inputs of a
 * region, is a set of the keeper around that one.
 *
 *     context.keeper ──> region ──outer──> hooks ──outer──> NULL
 *                          │ inputs: a set that the hooks keep
 *                          └ sets of the nodes recorded inside
 */
#ifndef TT_SAVED_H
#define TT_SAVED_H

#include <tutti/op.h>

#include "core/base/ref.h"
#include "core/tensor/tensor_impl.h"

typedef struct tt_node tt_node_t;
typedef struct tt_saved_set tt_saved_set_t;
typedef struct tt_keeper tt_keeper_t;
typedef struct tt_run tt_run_t; /* backward_run.h */

typedef struct {
    tutti_tensor_t *tensor; /* NULL was saved as NULL */
    uint32_t version;
    bool is_leaf : 1;     /* somebody else's, who wants its gradient: a parameter as a rule */
    signed int from : 31; /* i + 1: it is input i; -1 - k: it is output k; 0: something else */
} tt_saved_t;

typedef struct {
    /* Takes what a set holds, or lets it go (tt_saved_release); a failure leaves the set alone. */
    tutti_status_t (*keep)(tt_keeper_t *keeper, tutti_scope_t *s, tt_saved_set_t *set);

    /* Brings it back: afterwards the set is not away. */
    tutti_status_t (*restore)(tt_keeper_t *keeper, tutti_scope_t *s, tt_saved_set_t *set);

    /* Whether restoring the set, or its use then, may read memory of these storages, which are in
     * the order of their addresses. */
    bool (*reads)(const tt_saved_set_t *set, tt_storage_t *const *storages, size_t count);

    /* Lets go of what restore brought back for this backward. */
    void (*forget)(tt_saved_set_t *set, const tt_run_t *run);

    /* The set is not needed any more. */
    void (*leave)(tt_keeper_t *keeper, tt_saved_set_t *set);

    void (*destroy)(tt_keeper_t *keeper);

    /* While the keeper makes the forward run again (context.refilled), in place of recording: what
     * the call has saved goes to its set. NULL: it never does. */
    tutti_status_t (*refill)(tt_keeper_t *keeper, tutti_op_call_t *call);
} tt_keeper_ops_t;

struct tt_keeper {
    tt_ref_t ref; /* by its sets, and while it is a context's */
    const tt_keeper_ops_t *ops;
    tt_keeper_t *outer; /* while it is a context's: the one before */
};

struct tt_saved_set {
    const void *kind;  /* operation or region: the same each time that forward is run */
    const char *name;  /* of it, for texts */
    tt_node_t *node;   /* whose set it is; NULL: a region's, of its inputs */
    tt_saved_t *items; /* [count], of the owner of the set */
    int count;
    bool is_away;        /* the keeper has it, or knows how to make it */
    const tt_run_t *run; /* for which it was brought back; while a node's backward runs: whose */
    tt_keeper_t *keeper; /* retained; NULL: it is kept as it is */
    union {
        size_t number;            /* of a region: which set it is */
        struct tt_packed *packed; /* [count], of hooks */
    } at;
};

/* A set is given to the innermost keeper, if there is one. A failure leaves it as it is. */
tutti_status_t tt_saved_keep(tutti_scope_t *s, tt_saved_set_t *set);

/* Before its use: see that it is there. */
tutti_status_t tt_saved_restore(tutti_scope_t *s, tt_saved_set_t *set);

/* After it: a keeper can bring it back once more. What is there for another backward stays. */
void tt_saved_forget(tt_saved_set_t *set, const tt_run_t *run);

/* It is not used any more. */
void tt_saved_drop(tt_saved_set_t *set);

/* For keepers: let go of the tensors. */
void tt_saved_release(tt_saved_set_t *set);

/* In the order of their addresses, as tt_is_over_any() wants them. */
void tt_storages_sort(tt_storage_t **storages, size_t count);

/* Whether a tensor (NULL: no) is over one of these sorted storages. */
bool tt_is_over_any(const tutti_tensor_t *x, tt_storage_t *const *storages, size_t count);

/* Whether using it reads memory of these storages. */
bool tt_saved_reads(const tt_saved_set_t *set, tt_storage_t *const *storages, size_t count);

/* Makes a keeper the context's innermost one. */
void tt_keeper_enter(tutti_context_t *ctx, tt_keeper_t *keeper);

/* `outer` is the innermost one again: of those that were entered since, hooks that a forward did
 * not pop are the last. */
void tt_keeper_leave(tutti_context_t *ctx, tt_keeper_t *outer);

void tt_keeper_release(tt_keeper_t *keeper);

#endif
