/* What is coalesced so far: the bundle of the calls that have started, the tensors of those that
 * are fused and have not, and the memory that gets its result at the end. Nothing here starts a
 * call: group_start.c does, and group_coalesce.c is the caller's side.
 */
#include "comm/group/coalesced.h"

#include <string.h>

#include "core/base/alloc.h"

static tutti_status_t grow(void **array, int *capacity, int count, size_t size, const char *what)
{
    if (count < *capacity) {
        return TUTTI_OK;
    }
    const int wanted = *capacity > 0 ? 2 * *capacity : 16;
    void *grown = tt_realloc(*array, (size_t)wanted * size, what);
    TT_TRY_ALLOC(grown);
    *array = grown;
    *capacity = wanted;
    return TUTTI_OK;
}

static tt_memory_range_t range_of(const tutti_tensor_t *x)
{
    const char *begin = tutti_tensor_data(x);
    return (tt_memory_range_t){begin, begin + tutti_tensor_bytes(x)};
}

tutti_status_t tt_coalesced_check_free(const tt_coalesced_t *all, const tutti_tensor_t *x)
{
    const tt_memory_range_t range = range_of(x);
    for (int i = 0; i < all->owed_count; i++) {
        if (range.begin < all->owed[i].end && all->owed[i].begin < range.end) {
            char text[128];
            return TT_FAIL(
                TUTTI_ERR_ARG,
                "%s is in an earlier one of the coalesced calls, whose result it gets at "
                "their end; end them first",
                tutti_tensor_describe(x, text, sizeof text));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t owe(tt_coalesced_t *all, const tutti_tensor_t *x)
{
    void *owed = all->owed;
    const tutti_status_t status =
        grow(&owed, &all->owed_capacity, all->owed_count, sizeof *all->owed, "coalesced results");
    all->owed = owed;
    TT_TRY(status);
    all->owed[all->owed_count++] = range_of(x);
    return TUTTI_OK;
}

tutti_status_t tt_coalesced_check(tt_coalesced_t *all, const tt_start_t *start)
{
    for (int i = 0; i < start->tensor_count; i++) {
        TT_TRY(tt_coalesced_check_free(all, start->tensors[i]));
    }
    const int held = start->pack != NULL ? start->pack->held_count : 0;
    for (int i = 0; i < held; i++) {
        TT_TRY(tt_coalesced_check_free(all, start->pack->held[i].x));
    }
    for (int i = 0; i < held; i++) {
        if (start->pack->held[i].from != NULL) {
            TT_TRY(owe(all, start->pack->held[i].x));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_coalesced_hold(tt_coalesced_t *all, tutti_tensor_t *x)
{
    TT_TRY(owe(all, x));
    void *fused = all->fused;
    const tutti_status_t status = grow(&fused, &all->fused_capacity, all->fused_count,
                                       sizeof *all->fused, "coalesced tensors");
    all->fused = fused;
    TT_TRY(status);
    all->fused[all->fused_count++] = tutti_tensor_retain(x);
    all->fused_bytes += tutti_tensor_bytes(x);
    return TUTTI_OK;
}

void tt_coalesced_drop_fused(tt_coalesced_t *all)
{
    for (int i = 0; i < all->fused_count; i++) {
        tutti_tensor_release(all->fused[i]);
    }
    all->fused_count = 0;
    all->fused_bytes = 0;
}

/* Lay the tensors side by side in a pack, which holds them and copies the results back. */
static tutti_status_t pack_fused(tutti_group_t *group, const tt_coalesced_t *all, tt_pack_t **out)
{
    tt_pack_t *pack;
    TT_TRY(tt_pack_take(group, all->fused_bytes, all->fused_count, &pack));
    char *at = pack->memory;
    for (int i = 0; i < all->fused_count; i++) {
        const size_t bytes = tutti_tensor_bytes(all->fused[i]);
        if (bytes > 0) {
            memcpy(at, tutti_tensor_data(all->fused[i]), bytes);
            tt_pack_hold(pack, all->fused[i], at);
            at += bytes;
        }
    }
    *out = pack;
    return TUTTI_OK;
}

tutti_status_t tt_coalesced_pack(tt_coalesced_t *all, tutti_group_t *group, tt_start_t *start)
{
    tt_pack_t *pack;
    TT_TRY(pack_fused(group, all, &pack));
    const tutti_dtype_t dtype = tutti_tensor_dtype(all->fused[0]);
    all->pieces[0] = pack->memory;
    *start = (tt_start_t){.pack = pack};
    start->call = (tt_call_t){.collective = TT_ALL_REDUCE,
                              .reduction = all->op,
                              .dtype = dtype,
                              .out_dtype = dtype,
                              .count = all->fused_bytes / tutti_dtype_bytes(dtype),
                              .pieces = all->pieces,
                              .piece_count = 1,
                              .out = pack->memory,
                              .site = all->site};
    tt_coalesced_drop_fused(all); /* the pack holds them */
    return TUTTI_OK;
}

void tt_coalesced_free(tt_coalesced_t *all)
{
    tt_coalesced_drop_fused(all);
    tt_free(all->fused);
    tt_free(all->owed);
    tt_free(all);
}
