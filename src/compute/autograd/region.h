/* Regions: parts of a graph whose saved tensors are not kept but computed again in backward.
 *
 * While a region is recorded, nodes, edges and hooks are those of any graph; only what
 * operations save is let go. The first of its nodes that needs something saved runs the region's
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
 *
 * Regions nest: the inputs of an inner one are what the outer one lets go of in its place. The
 * outer forward, run again, gives them back, and runs the inner forward as a part of itself, of
 * which nothing is filled; the inner one runs once more when one of its nodes wants what it saved.
 * Source: torch.utils.checkpoint with use_reentrant=False, for the semantics. */
#ifndef TT_REGION_H
#define TT_REGION_H

#include "compute/autograd/node.h"

typedef struct tt_region tt_region_t;

/* Whose forward it is. */
typedef struct {
    const char *name; /* for texts of errors; lives as long as the region */
    void *user;
    void (*forward)(tutti_scope_t *s, void *user, tutti_tensor_t *const *inputs, int input_count,
                    tutti_tensor_t **outputs, int output_count);
    /* A number that changes when something is written that forward reads. */
    uint64_t (*stamp)(void *user, bool is_training);
    /* Whether forward reads memory of these storages, in the order of their addresses, beside its
     * inputs. NULL: of none. */
    bool (*reads)(void *user, tt_storage_t *const *storages, size_t count);
    void (*release)(void *user); /* called once, whether creation succeeds or not */
} tt_region_forward_t;

typedef struct {
    tutti_tensor_t *const *inputs;
    int input_count;
    tutti_tensor_t **outputs; /* out, in the scope; null tensors after a failure */
    int output_count;
} tt_region_call_t;

/* Run forward as a region; where nothing is recorded, just run it. */
void tt_region_run(tutti_scope_t *s, const tt_region_forward_t *forward,
                   const tt_region_call_t *call);

/* Whether what is recorded now is to be computed again. */
bool tt_region_is_around(const tutti_context_t *ctx);

#endif
