/* What a backward has still to read: who wants to write a tensor before the backward has ended (a
 * parameter whose gradient is there) must know.
 *
 * A node reads what it saved, and the gradients that have come to it; both are let go when it has
 * run. Where what it saved is to be computed again, its segment's forward reads. Memory is told
 * apart by storage, so that views count as what they are views of. A node that keeps what it saved
 * (retain_graph) counts as one that has not run.
 *
 * Cost: O(saved tensors × log count).
 */
#include <stdlib.h>

#include "compute/autograd/backward_run.h"
#include "compute/autograd/segment.h"

static int compare_addresses(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (tt_storage_t *const *)a;
    const uintptr_t y = (uintptr_t) * (tt_storage_t *const *)b;
    return (x > y) - (x < y);
}

bool tt_is_over_any(const tutti_tensor_t *x, tt_storage_t *const *storages, size_t count)
{
    return x != NULL &&
           bsearch(&x->storage, storages, count, sizeof(tt_storage_t *), compare_addresses) != NULL;
}

static bool reads(const tt_visit_t *visit, tt_storage_t *const *storages, size_t count)
{
    const tt_node_t *node = visit->node;
    for (int i = 0; i < node->saved_count; i++) {
        if (tt_is_over_any(node->saved[i].tensor, storages, count)) {
            return true;
        }
    }
    for (int i = 0; i < node->output_count; i++) {
        if (tt_is_over_any(visit->grads[i], storages, count)) {
            return true;
        }
    }
    return tt_segment_reads(node, storages, count);
}

static bool any_reads(const tt_run_t *run, tt_storage_t *const *storages, size_t count)
{
    for (; run != NULL; run = run->outer) {
        for (const tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
            if (reads(visit, storages, count)) {
                return true;
            }
        }
    }
    return false;
}

bool tt_backward_reads(const tutti_context_t *ctx, tt_storage_t *const *storages, size_t count)
{
    return any_reads(ctx->backward, storages, count) ||
           any_reads(ctx->waiting_backwards, storages, count);
}
