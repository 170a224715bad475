/* Coalesced calls: several calls that become one work.
 *
 * Between begin and end a call starts as soon as it is made, and its work is kept. Small
 * all_reduces are not started but collected: as long as the next one has the same dtype and
 * reduction they are laid side by side (group_pack.c) and become one call. What is small depends on
 * the tensor alone, so that all ranks fuse alike. Each element is still added up by itself: fusing
 * changes no bit. What is packed gets its result when the work is done, so a tensor that is in one
 * such call may be in no other: the ranges are remembered, and that is refused.
 *
 * Cost: a copy in and a copy out of what is fused, against a hand-over of flags for each.
 * Source: torch's coalescing manager; ncclGroupStart and ncclGroupEnd.
 */
#include "comm/group/group_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"

enum { SMALL_BYTES = 16 << 10, FUSED_BYTES_MAX = 1 << 20 };

/* Memory that gets its result at the end. */
typedef struct {
    const char *begin, *end;
} range_t;

struct tt_coalesce {
    tutti_work_t **works;
    int work_count, work_capacity;
    tutti_tensor_t **fused; /* retained; of one dtype and reduction, not started yet */
    int fused_count, fused_capacity;
    size_t fused_bytes;
    range_t *owed;
    int owed_count, owed_capacity;
    tutti_reduction_t op;
    const void *site;      /* of the first that is fused */
    tutti_status_t status; /* the first failure of a call that had been accepted */
    char error[TT_ERROR_TEXT_BYTES];
};

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

tutti_status_t tt_coalesce_add(tutti_group_t *group, tutti_work_t *work)
{
    tt_coalesce_t *all = group->coalesce;
    void *works = all->works;
    const tutti_status_t status =
        grow(&works, &all->work_capacity, all->work_count, sizeof *all->works, "coalesced works");
    all->works = works;
    if (status < 0) {
        tutti_work_release(work);
        return status;
    }
    all->works[all->work_count++] = work;
    return TUTTI_OK;
}

static range_t range_of(const tutti_tensor_t *x)
{
    const char *begin = tutti_tensor_data(x);
    return (range_t){begin, begin + tutti_tensor_bytes(x)};
}

static tutti_status_t check_free(const tt_coalesce_t *all, const tutti_tensor_t *x)
{
    const range_t range = range_of(x);
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

static tutti_status_t owe(tt_coalesce_t *all, const tutti_tensor_t *x)
{
    void *owed = all->owed;
    const tutti_status_t status =
        grow(&owed, &all->owed_capacity, all->owed_count, sizeof *all->owed, "coalesced results");
    all->owed = owed;
    TT_TRY(status);
    all->owed[all->owed_count++] = range_of(x);
    return TUTTI_OK;
}

tutti_status_t tt_coalesce_check(tutti_group_t *group, const tt_start_t *start)
{
    tt_coalesce_t *all = group->coalesce;
    for (int i = 0; i < start->tensor_count; i++) {
        TT_TRY(check_free(all, start->tensors[i]));
    }
    const int held = start->pack != NULL ? start->pack->held_count : 0;
    for (int i = 0; i < held; i++) {
        TT_TRY(check_free(all, start->pack->held[i].x));
    }
    for (int i = 0; i < held; i++) {
        if (start->pack->held[i].from != NULL) {
            TT_TRY(owe(all, start->pack->held[i].x));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t hold_fused(tt_coalesce_t *all, tutti_tensor_t *x)
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

bool tt_coalesce_take(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                      const void *site, tutti_status_t *status)
{
    tt_coalesce_t *all = group->coalesce;
    if (tutti_tensor_bytes(x) > SMALL_BYTES) {
        return false;
    }
    *status = check_free(all, x);
    if (*status < 0) {
        return true;
    }
    if (all->fused_count > 0 &&
        (all->op != op || tutti_tensor_dtype(all->fused[0]) != tutti_tensor_dtype(x) ||
         all->fused_bytes + tutti_tensor_bytes(x) > FUSED_BYTES_MAX)) {
        *status = tt_coalesce_flush(group);
    }
    if (*status >= 0) {
        all->op = op;
        all->site = all->fused_count == 0 ? site : all->site;
        *status = hold_fused(all, x);
    }
    return true;
}

static void drop_fused(tt_coalesce_t *all)
{
    for (int i = 0; i < all->fused_count; i++) {
        tutti_tensor_release(all->fused[i]);
    }
    all->fused_count = 0;
    all->fused_bytes = 0;
}

/* Lay the tensors side by side in a pack, which holds them and copies the results back. */
static tutti_status_t pack_fused(tutti_group_t *group, const tt_coalesce_t *all, tt_pack_t **out)
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

static tutti_status_t start_fused(tutti_group_t *group, tt_coalesce_t *all)
{
    tt_pack_t *pack;
    TT_TRY(pack_fused(group, all, &pack));
    const void *pieces[1] = {pack->memory};
    const tutti_dtype_t dtype = tutti_tensor_dtype(all->fused[0]);
    tt_start_t start = {.pack = pack};
    start.call = (tt_call_t){.collective = TT_ALL_REDUCE,
                             .reduction = all->op,
                             .dtype = dtype,
                             .out_dtype = dtype,
                             .count = all->fused_bytes / tutti_dtype_bytes(dtype),
                             .pieces = pieces,
                             .piece_count = 1,
                             .out = pack->memory,
                             .site = all->site};
    drop_fused(all); /* the pack holds them */
    tutti_work_t *work;
    TT_TRY(tt_group_start_work(group, &start, &work));
    return tt_coalesce_add(group, work);
}

tutti_status_t tt_coalesce_flush(tutti_group_t *group)
{
    tt_coalesce_t *all = group->coalesce;
    if (all->fused_count == 0 || all->status < 0) {
        return all->status;
    }
    const tutti_status_t status = start_fused(group, all);
    drop_fused(all);
    if (status < 0) {
        all->status = status;
        snprintf(all->error, sizeof all->error, "%s", tutti_last_error());
    }
    return status;
}

tutti_status_t tutti_coalesce_begin(tutti_group_t *group)
{
    TT_WANT("coalesce_begin", group);
    TT_TRY(tt_group_check_free(group, "coalesce_begin"));
    group->coalesce = tt_alloc(sizeof *group->coalesce, "coalesced calls");
    TT_TRY_ALLOC(group->coalesce);
    return TUTTI_OK;
}

/* Takes the state away from the group; its works are left to the caller. */
static tt_coalesce_t *take(tutti_group_t *group)
{
    tt_coalesce_t *all = group->coalesce;
    drop_fused(all);
    group->coalesce = NULL;
    return all;
}

static void free_coalesce(tt_coalesce_t *all)
{
    tt_free(all->works);
    tt_free(all->fused);
    tt_free(all->owed);
    tt_free(all);
}

void tt_coalesce_drop(tutti_group_t *group)
{
    tt_coalesce_t *all = take(group);
    for (int i = 0; i < all->work_count; i++) {
        tutti_work_release(all->works[i]);
    }
    free_coalesce(all);
}

tutti_status_t tutti_coalesce_end(tutti_group_t *group, tutti_work_t **work)
{
    TT_WANT("coalesce_end", group);
    if (group->coalesce == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "coalesce_end: group %s has not begun", group->name);
    }
    const tutti_status_t flushed = tt_coalesce_flush(group);
    if (flushed < 0) {
        const tutti_status_t again = tt_fail_again(flushed, group->coalesce->error);
        tt_coalesce_drop(group);
        return again;
    }
    tt_coalesce_t *all = take(group);
    tutti_work_t *bundle;
    tutti_status_t status = tt_group_bundle(group, all->works, all->work_count, &bundle);
    free_coalesce(all);
    TT_TRY(status);
    if (work != NULL) {
        *work = bundle;
        return TUTTI_OK;
    }
    status = tutti_work_wait(bundle, 0);
    tutti_work_release(bundle);
    return status;
}
