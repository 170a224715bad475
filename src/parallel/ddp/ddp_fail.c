/* The first failure of a step is its own for good, and gives the groups up. */
#include <stdio.h>

#include "comm/group/agree.h"
#include "parallel/ddp/ddp_impl.h"

/* All groups that it calls, with the last error as the cause. */
static void give_up(tutti_ddp_t *ddp)
{
    tt_unit_source_t *source = &ddp->units.source;
    if (source->ops != NULL && source->ops->give_up != NULL) {
        source->ops->give_up(source);
    }
    (void)tt_group_give_up(ddp->units.group, TUTTI_ERR_ABORTED);
    (void)tt_group_give_up(ddp->units.rows.group, TUTTI_ERR_ABORTED);
    (void)tt_group_give_up(ddp->slices.group, TUTTI_ERR_ABORTED);
    (void)tt_group_give_up(ddp->group, TUTTI_ERR_ABORTED);
}

tutti_status_t tt_ddp_fail(tutti_ddp_t *ddp, tutti_status_t status)
{
    tt_ddp_step_t *step = &ddp->step;
    if (step->status >= 0) {
        step->status = status;
        snprintf(step->error, sizeof step->error, "%s", tutti_last_error());
        give_up(ddp);
    }
    return tt_fail_again(step->status, step->error);
}
