/* What a backward has still to read: who wants to write a tensor before the backward has ended (a
 * parameter whose gradient is there) must know.
 *
 * A node reads what it saved, and the gradients that have come to it; both are let go when it has
 * run. Where what it saved is to be computed again, that forward reads. Memory is told
 * apart by storage, so that views count as what they are views of. A node that keeps what it saved
 * (retain_graph) counts as one that has not run.
 *
 * Cost: O(saved tensors × log count).
 */
#include "compute/autograd/backward_run.h"

static bool reads(const tt_visit_t *visit, tt_storage_t *const *storages, size_t count)
{
    for (int i = 0; i < visit->node->output_count; i++) {
        if (tt_is_over_any(visit->grads[i], storages, count)) {
            return true;
        }
    }
    return tt_saved_reads(&visit->node->saved, storages, count);
}

/* Gradients that were awaited, and wait for their node. */
static bool late_reads(const tt_run_t *run, tt_storage_t *const *storages, size_t count)
{
    for (int i = 0; i < run->root_count; i++) {
        if (tt_is_over_any(run->roots[i].late, storages, count)) {
            return true;
        }
    }
    return false;
}

static bool any_reads(const tt_run_t *run, tt_storage_t *const *storages, size_t count)
{
    for (; run != NULL; run = run->outer) {
        if (late_reads(run, storages, count)) {
            return true;
        }
        for (const tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
            if (reads(visit, storages, count)) {
                return true;
            }
        }
    }
    return false;
}

bool tt_backward_reads(const tutti_context_t *ctx, tt_storage_t **storages, size_t count)
{
    tt_storages_sort(storages, count);
    return any_reads(ctx->backward, storages, count) ||
           any_reads(ctx->waiting_backwards, storages, count);
}
