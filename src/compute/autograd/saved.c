/* Sets of saved tensors. See saved.h. */
#include "compute/autograd/saved.h"

#include <stdlib.h>

#include "compute/autograd/node.h"

void tt_saved_release(tt_saved_set_t *set)
{
    for (int i = 0; i < set->count; i++) {
        tutti_tensor_release(set->items[i].tensor);
        set->items[i].tensor = NULL;
    }
}

void tt_keeper_release(tt_keeper_t *keeper)
{
    if (tt_ref_release(&keeper->ref)) {
        keeper->ops->destroy(keeper);
    }
}

void tt_keeper_enter(tutti_context_t *ctx, tt_keeper_t *keeper)
{
    tt_ref_retain(&keeper->ref);
    keeper->outer = ctx->keeper;
    ctx->keeper = keeper;
}

void tt_keeper_leave(tutti_context_t *ctx, tt_keeper_t *outer)
{
    while (ctx->keeper != outer) {
        tt_keeper_t *keeper = ctx->keeper;
        ctx->keeper = keeper->outer;
        tt_keeper_release(keeper);
    }
}

/* A node's backward may need what its parameters point to instead, which goes and comes with it. */
static bool is_needed(const tt_saved_set_t *set)
{
    return set->count > 0 || (set->node != NULL && set->node->op->retain_params != NULL);
}

tutti_status_t tt_saved_keep(tutti_scope_t *s, tt_saved_set_t *set)
{
    tt_keeper_t *keeper = s->ctx->keeper;
    if (keeper == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(keeper->ops->keep(keeper, s, set));
    tt_ref_retain(&keeper->ref);
    set->keeper = keeper;
    set->is_away = true;
    return TUTTI_OK;
}

tutti_status_t tt_saved_restore(tutti_scope_t *s, tt_saved_set_t *set)
{
    if (!set->is_away || !is_needed(set)) {
        return TUTTI_OK;
    }
    TT_TRY(set->keeper->ops->restore(set->keeper, s, set));
    TT_ASSERT(!set->is_away);
    set->run = s->ctx->backward;
    return TUTTI_OK;
}

void tt_saved_forget(tt_saved_set_t *set, const tt_run_t *run)
{
    if (set->keeper != NULL) {
        set->keeper->ops->forget(set, run);
    }
    if (set->keeper != NULL && set->run == run) {
        set->is_away = true;
        set->run = NULL;
    }
}

void tt_saved_drop(tt_saved_set_t *set)
{
    tt_saved_release(set);
    if (set->keeper != NULL) {
        set->keeper->ops->leave(set->keeper, set);
        tt_keeper_release(set->keeper);
        set->keeper = NULL;
    }
}

static int compare_addresses(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (tt_storage_t *const *)a;
    const uintptr_t y = (uintptr_t) * (tt_storage_t *const *)b;
    return (x > y) - (x < y);
}

void tt_storages_sort(tt_storage_t **storages, size_t count)
{
    qsort(storages, count, sizeof *storages, compare_addresses);
}

bool tt_is_over_any(const tutti_tensor_t *x, tt_storage_t *const *storages, size_t count)
{
    return x != NULL &&
           bsearch(&x->storage, storages, count, sizeof(tt_storage_t *), compare_addresses) != NULL;
}

bool tt_saved_reads(const tt_saved_set_t *set, tt_storage_t *const *storages, size_t count)
{
    for (int i = 0; i < set->count; i++) {
        if (tt_is_over_any(set->items[i].tensor, storages, count)) {
            return true;
        }
    }
    return set->keeper != NULL && set->is_away && is_needed(set) &&
           set->keeper->ops->reads(set, storages, count);
}
