/* The first failure of a step is its own for good, and gives the groups up. */
#include <stdio.h>

#include "parallel/ddp/ddp_impl.h"

void tt_ddp_abort(tutti_ddp_t *ddp)
{
    tt_unit_source_t *source = &ddp->units.source;
    if (source->ops != NULL && source->ops->give_up != NULL) {
        source->ops->give_up(source);
    }
    tutti_group_abort(ddp->units.group);
    tutti_group_abort(ddp->units.rows.group);
    tutti_group_abort(ddp->slices.group);
    tutti_group_abort(ddp->group);
}

tutti_status_t tt_ddp_fail(tutti_ddp_t *ddp, tutti_status_t status)
{
    tt_ddp_step_t *step = &ddp->step;
    if (step->status >= 0) {
        step->status = status;
        snprintf(step->error, sizeof step->error, "%s", tutti_last_error());
        tt_ddp_abort(ddp);
    }
    return tt_fail_again(step->status, step->error);
}
