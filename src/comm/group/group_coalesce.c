/* Coalesced calls: several calls that become one work.
 *
 * Between begin and end a call starts as soon as it is made, and its work is kept. Small
 * all_reduces are not started but collected: as long as the next one has the same dtype and
 * reduction they are laid side by side (group_pack.c) and become one call. What is small depends on
 * the tensor alone, so that all ranks fuse the same calls. Each element is still added up by
 * itself: fusing changes no bit. What is fused is one call, so its tensors may not overlap.
 *
 * Cost: a copy in and a copy out of what is fused, against a hand-over of flags for each.
 * Source: torch's coalescing manager; ncclGroupStart and ncclGroupEnd.
 */
#include "comm/group/coalesced.h"

#include "core/base/alloc.h"

enum { SMALL_BYTES = 16 << 10, FUSED_BYTES_MAX = 1 << 20 };

bool tt_coalesce_take(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                      const void *site, tutti_status_t *status)
{
    tt_coalesced_t *all = group->coalesce;
    if (tutti_tensor_bytes(x) > SMALL_BYTES) {
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

tutti_status_t tutti_coalesce_begin(tutti_group_t *group)
{
    TT_WANT("coalesce_begin", group);
    TT_TRY(tt_group_check_free(group, "coalesce_begin"));
    group->coalesce = tt_alloc(sizeof *group->coalesce, "coalesced calls");
    TT_TRY_ALLOC(group->coalesce);
    return TUTTI_OK;
}

tutti_status_t tutti_coalesce_end(tutti_group_t *group, tutti_work_t **work)
{
    TT_WANT("coalesce_end", group);
    if (group->coalesce == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "coalesce_end: group %s has not begun", group->name);
    }
    tutti_status_t status = tt_coalesce_flush(group);
    tt_coalesced_t *all = group->coalesce;
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
