/* Starting calls and messages that have been checked: waited for at once, as a work, or as one of
 * several that are coalesced.
 *
 * A caller's work holds the group and its tensors. A blocking call uses a work too, but holds
 * nothing: its caller holds everything.
 */
#include <stdio.h>

#include "comm/group/coalesced.h"
#include "comm/group/group_works.h"

static void hold(tutti_group_t *group, tutti_work_t *work, const tt_start_t *start)
{
    work->next = NULL;
    work->pack = start->pack;
    work->prepared = NULL;
    for (int i = 0; i < start->tensor_count; i++) {
        work->tensors[i] = tutti_tensor_retain(start->tensors[i]);
    }
    work->tensor_count = start->tensor_count;
    work->is_under_way = true;
    work->is_released = false;
    work->group = tutti_group_retain(group);
    tt_ref_init(&work->ref);
    if (group->last != NULL) {
        group->last->next = work;
    } else {
        group->first = work;
    }
    group->last = work;
}

static inline tutti_status_t begin(tutti_group_t *group, tt_start_t *start, bool waits, tt_op_t *op)
{
    if (start->message != NULL) {
        return group->backend->start_message(group->state, start->message, tt_message_of(op));
    }
    start->call.tag = group->tag;
    start->call.is_awaited = waits;
    return group->backend->start(group->state, &start->call, tt_run_of(op));
}

static tutti_status_t refuse(tutti_group_t *group, const tt_start_t *start, tutti_status_t status)
{
    if (start->pack != NULL) {
        tt_pack_settle(group, start->pack, false);
    }
    return status;
}

static inline tutti_work_t *take_work_for(tutti_group_t *group, const tt_start_t *start)
{
    return tt_work_take(group, start->message != NULL ? TT_WORK_MESSAGE : TT_WORK_CALL);
}

/* Waits for a call that is not done yet. What the engine may still touch after a failure, pack and
 * tensors, is never freed. */
__attribute__((noinline)) static tutti_status_t end_call(tutti_group_t *group,
                                                         const tt_start_t *start, tt_op_t *op)
{
    if (op->status == TUTTI_PENDING) {
        (void)tt_group_wait(group, op, TT_NEVER);
    }
    if (op->status >= 0 || !tt_group_is_held(group, op)) {
        if (start->pack != NULL) {
            tt_pack_settle(group, start->pack, op->status == TUTTI_OK);
        }
        return op->status;
    }
    for (int i = 0; i < start->tensor_count; i++) {
        (void)tutti_tensor_retain(start->tensors[i]);
    }
    return op->status;
}

/* Its caller holds everything, so the work is no more than the place of the operation. */
static tutti_status_t call_and_wait(tutti_group_t *group, tt_start_t *start)
{
    tutti_work_t *work = take_work_for(group, start);
    if (work == NULL) {
        return refuse(group, start, TUTTI_ERR_NOMEM);
    }
    tutti_status_t status = begin(group, start, true, work->op);
    if (status < 0) {
        (void)refuse(group, start, status);
    } else if (work->op->status != TUTTI_OK) {
        status = end_call(group, start, work->op);
    } else if (start->pack != NULL) {
        tt_pack_settle(group, start->pack, true);
    }
    tt_work_give_back(group, work);
    if (group->first != NULL) {
        tt_group_reap(group);
    }
    return status;
}

static tutti_status_t start_work(tutti_group_t *group, tt_start_t *start, tutti_work_t **out)
{
    tutti_work_t *work = take_work_for(group, start);
    if (work == NULL) {
        return refuse(group, start, TUTTI_ERR_NOMEM);
    }
    const tutti_status_t status = begin(group, start, false, work->op);
    if (status < 0) {
        tt_work_give_back(group, work);
        (void)refuse(group, start, status);
    } else {
        hold(group, work, start);
        *out = work;
        if (work->op->status == TUTTI_PENDING) {
            group->backend->progress(group->state);
        }
    }
    tt_group_reap(group);
    return status;
}

/* ---- coalesced calls ---- */

/* For the end of what is coalesced, which makes one work of all. */
static tutti_status_t keep_work(tt_coalesced_t *all, tutti_work_t *work)
{
    const tutti_status_t status = tt_coalesced_add(all, work);
    if (status < 0) {
        tutti_work_release(work);
    }
    return status;
}

/* Starts the pack of what was fused. */
static tutti_status_t start_fused(tutti_group_t *group, tt_coalesced_t *all)
{
    tt_start_t start;
    tutti_work_t *work;
    TT_TRY(tt_coalesced_pack(all, group, &start));
    TT_TRY(start_work(group, &start, &work));
    return keep_work(all, work);
}

tutti_status_t tt_coalesce_flush(tutti_group_t *group)
{
    tt_coalesced_t *all = group->coalesce;
    if (all->fused_count == 0 || all->status < 0) {
        return all->status;
    }
    const tutti_status_t status = start_fused(group, all);
    tt_coalesced_drop_fused(all);
    if (status < 0) {
        all->status = status;
        snprintf(all->error, sizeof all->error, "%s", tutti_last_error());
    }
    return status;
}

/* Between coalesce_begin and _end. */
static tutti_status_t check_coalesced(tutti_group_t *group, const tt_start_t *start,
                                      tutti_work_t **out)
{
    if (out != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "group %s: calls are coalesced: pass NULL for the work, tutti_coalesce_end "
                       "gives one for all",
                       group->name);
    }
    TT_TRY(tt_coalesced_check(group->coalesce, start));
    return tt_coalesce_flush(group);
}

static tutti_status_t start_coalesced(tutti_group_t *group, tt_start_t *start, tutti_work_t **out)
{
    tutti_work_t *work;
    const tutti_status_t status = check_coalesced(group, start, out);
    if (status < 0) {
        return refuse(group, start, status);
    }
    TT_TRY(start_work(group, start, &work));
    return keep_work(group->coalesce, work);
}

/* ---- all of them ---- */

tutti_status_t tt_group_start(tutti_group_t *group, tt_start_t *start, tutti_work_t **out)
{
    if (group->coalesce != NULL) {
        return start_coalesced(group, start, out);
    }
    return out == NULL ? call_and_wait(group, start) : start_work(group, start, out);
}

tutti_status_t tt_group_check_free(const tutti_group_t *group, const char *call)
{
    if (group->coalesce != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "%s: calls of group %s are coalesced; call tutti_coalesce_end first", call,
                       group->name);
    }
    return TUTTI_OK;
}
