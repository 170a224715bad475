/* What becomes of coalesced calls, in whatever thread makes them.
 *
 * A call starts as soon as it is made, and its work is kept. Small all_reduces are not started but
 * collected: as long as the next one has the same dtype and reduction they are laid side by side
 * (group_pack.c) and become one call. What is small depends on the tensor alone, so that all ranks
 * fuse the same calls. Each element is still added up by itself: fusing changes no bit. What is
 * fused is one call, so its tensors may not overlap.
 *
 * Cost: a copy in and a copy out of what is fused, against a hand-over of flags for each.
 * Source: torch's coalescing manager; ncclGroupStart and ncclGroupEnd.
 */
#include <stdio.h>

#include "comm/group/coalesced.h"
#include "core/base/alloc.h"

enum { SMALL_BYTES = 16 << 10, FUSED_BYTES_MAX = 1 << 20 };

bool tt_coalesce_take(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                      const void *site, tutti_status_t *status)
{
    tt_coalesced_t *all = group->coalesce;
    if (tutti_tensor_bytes(x) > SMALL_BYTES || all->streamed != NULL) {
        return false;
    }
    *status = TUTTI_OK;
    if (all->fused != NULL &&
        (all->op != op || tutti_tensor_dtype(all->fused->held[0].x) != tutti_tensor_dtype(x) ||
         all->fused_bytes + tutti_tensor_bytes(x) > FUSED_BYTES_MAX)) {
        *status = tt_coalesce_flush(group);
    }
    if (*status >= 0) {
        all->op = op;
        all->site = all->fused == NULL ? site : all->site;
        *status = tt_coalesced_hold(all, group, x);
    }
    return true;
}

tutti_status_t tt_coalesce_open(tutti_group_t *group)
{
    group->coalesce = tt_alloc(sizeof *group->coalesce, "coalesced calls");
    TT_TRY_ALLOC(group->coalesce);
    return TUTTI_OK;
}

tutti_status_t tt_coalesce_close(tutti_group_t *group, tutti_status_t status, tutti_work_t **work)
{
    tt_coalesced_t *all = group->coalesce;
    if (status < 0 && all->status >= 0) {
        all->status = status;
        snprintf(all->error, sizeof all->error, "%s", tutti_last_error());
    }
    status = tt_coalesce_flush(group);
    tutti_work_t *bundle = all->bundle;
    if (status < 0) {
        (void)tt_fail_again(status, all->error);
        tutti_work_release(bundle); /* calls that have started go on */
    } else if (bundle == NULL) {
        status = tt_bundle_open(group, 0, &bundle);
    }
    group->coalesce = NULL;
    tt_coalesced_free(all, group);
    return status < 0 ? status : tt_bundle_hand_over(bundle, work);
}
