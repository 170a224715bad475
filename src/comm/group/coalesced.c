/* What is coalesced so far: the bundle of the calls that have started, and the tensors of those
 * that are fused and have not. Nothing here starts a call: group_start.c does, and group_coalesce.c
 * and coalesce_take.c are the callers' side.
 */
#include "comm/group/coalesced.h"

#include "core/base/alloc.h"

/* Most come in the order in which they lie: then one look is enough. */
static tutti_status_t check_apart(const tt_coalesced_t *all, const tutti_tensor_t *x)
{
    const tt_pack_t *fused = all->fused;
    char text[128], other[128];
    const bool is_behind = (const char *)tutti_tensor_data(x) >= all->fused_end;
    for (int i = 0; fused != NULL && !is_behind && i < fused->held_count; i++) {
        if (tt_tensors_overlap(x, fused->held[i].x)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "all_reduce: x, %s, overlaps %s of call %d before it, with which it is "
                           "fused: small all_reduces that are coalesced take tensors apart from "
                           "each other; call tutti_coalesce_end first",
                           tutti_tensor_describe(x, text, sizeof text),
                           tutti_tensor_describe(fused->held[i].x, other, sizeof other),
                           fused->held_count - i);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_coalesced_hold(tt_coalesced_t *all, tutti_group_t *group, tutti_tensor_t *x)
{
    TT_TRY(check_apart(all, x));
    TT_TRY(all->fused == NULL ? tt_pack_take(group, 0, 1, &all->fused)
                              : tt_pack_grow(group, all->fused, 0, all->fused->held_count + 1));
    tt_pack_hold(all->fused, x, true);
    const char *end = (const char *)tutti_tensor_data(x) + tutti_tensor_bytes(x);
    all->fused_end = all->fused_bytes == 0 || end > all->fused_end ? end : all->fused_end;
    all->fused_bytes += tutti_tensor_bytes(x);
    return TUTTI_OK;
}

void tt_coalesced_drop_fused(tt_coalesced_t *all, tutti_group_t *group)
{
    if (all->fused != NULL) {
        tt_pack_give_back(group, all->fused);
    }
    all->fused = NULL;
    all->fused_bytes = 0;
}

/* The tensors are copied side by side, and the results back. */
static void lay_out(tt_pack_t *pack)
{
    char *at = pack->memory;
    for (int i = 0; i < pack->held_count; i++) {
        tutti_tensor_t *x = pack->held[i].x;
        const size_t bytes = tutti_tensor_bytes(x);
        if (bytes > 0) {
            tt_pack_add(pack, (tt_copy_t){.memory = tutti_tensor_data(x),
                                          .packed = at,
                                          .bytes = bytes,
                                          .is_in = true,
                                          .is_out = true});
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
                              .packed = tt_pack_copies(pack),
                              .site = all->site};
    all->fused = NULL; /* the start's */
    all->fused_bytes = 0;
    return TUTTI_OK;
}

void tt_coalesced_free(tt_coalesced_t *all, tutti_group_t *group)
{
    tt_coalesced_drop_fused(all, group);
    if (all->streamed != NULL) {
        tt_streamed_free(all->streamed);
    }
    tt_free(all);
}
