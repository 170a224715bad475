/* What is coalesced so far: the bundle of the calls that have started, the tensors of those that
 * are fused and have not, and the memory that gets its result at the end. Nothing here starts a
 * call: group_start.c does, and group_coalesce.c is the caller's side.
 */
#include "comm/group/coalesced.h"

#include <string.h>

#include "core/base/alloc.h"

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
    if (all->owed_count == all->owed_capacity) {
        const int wanted = all->owed_capacity > 0 ? 2 * all->owed_capacity : 16;
        tt_memory_range_t *owed =
            tt_realloc(all->owed, (size_t)wanted * sizeof *owed, "coalesced results");
        TT_TRY_ALLOC(owed);
        all->owed = owed;
        all->owed_capacity = wanted;
    }
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

tutti_status_t tt_coalesced_hold(tt_coalesced_t *all, tutti_group_t *group, tutti_tensor_t *x)
{
    TT_TRY(owe(all, x));
    TT_TRY(all->fused == NULL ? tt_pack_take(group, 0, 1, &all->fused)
                              : tt_pack_grow(group, all->fused, 0, all->fused->held_count + 1));
    tt_pack_hold(all->fused, &(tt_held_t){.x = x, .is_output = true});
    all->fused_bytes += tutti_tensor_bytes(x);
    return TUTTI_OK;
}

void tt_coalesced_drop_fused(tt_coalesced_t *all, tutti_group_t *group)
{
    if (all->fused != NULL) {
        tt_pack_settle(group, all->fused, false);
    }
    all->fused = NULL;
    all->fused_bytes = 0;
}

/* The tensors lie side by side, and the results are copied back. */
static void lay_out(const tt_pack_t *pack)
{
    char *at = pack->memory;
    for (int i = 0; i < pack->held_count; i++) {
        tt_held_t *held = &pack->held[i];
        const size_t bytes = tutti_tensor_bytes(held->x);
        if (bytes > 0) {
            held->from = memcpy(at, tutti_tensor_data(held->x), bytes);
            at += bytes;
        }
    }
}

tutti_status_t tt_coalesced_pack(tt_coalesced_t *all, tutti_group_t *group, tt_start_t *start)
{
    tt_pack_t *pack = all->fused;
    TT_TRY(tt_pack_grow(group, pack, all->fused_bytes, pack->held_count));
    lay_out(pack);
    const tutti_dtype_t dtype = tutti_tensor_dtype(pack->held[0].x);
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
    all->fused = NULL; /* the start's */
    all->fused_bytes = 0;
    return TUTTI_OK;
}

void tt_coalesced_free(tt_coalesced_t *all, tutti_group_t *group)
{
    tt_coalesced_drop_fused(all, group);
    tt_free(all->owed);
    tt_free(all);
}
