/* Moving calls forward: those of one group, and while one waits, those of its family.
 *
 * A wait in one group moves the others of its family forward, every so often and only while they
 * have calls under way: else two ranks that wait for two groups in different order would wait for
 * ever.
 */
#include "comm/group/group_impl.h"

enum { FAMILY_SLICE_NS = 100000 };

/* Calls of its own, or answers that the other side of a message waits for. */
static bool has_work(const tutti_group_t *group)
{
    const tt_backend_ops_t *backend = group->backend;
    return group->first != NULL || (backend->is_busy != NULL && backend->is_busy(group->state));
}

static void give_up(tutti_group_t *group)
{
    group->backend->progress(group->state);
    tt_group_reap(group);
}

void tt_group_fail(tutti_group_t *group, tutti_status_t status)
{
    if (group->backend->fail != NULL) {
        group->backend->fail(group->state, status);
    } else {
        group->backend->abort(group->state);
    }
    give_up(group);
}

void tutti_group_abort(tutti_group_t *group)
{
    if (group == NULL || tt_group_is_forked(group)) {
        return;
    }
    (void)tt_group_settle(group); /* its calls have deadlines */
    group->backend->abort(group->state);
    give_up(group);
}

void tutti_group_progress(tutti_group_t *group)
{
    const bool is_mine = group != NULL && !tt_group_is_forked(group) && tt_group_settle(group) >= 0;
    tutti_group_t *first = is_mine ? LIST_FIRST(&group->family->groups) : NULL;
    for (tutti_group_t *each = first; each != NULL; each = LIST_NEXT(each, of_family)) {
        if (each == group || has_work(each)) {
            each->backend->progress(each->state);
            tt_group_reap(each);
        }
    }
}

bool tt_group_is_family_busy(const tutti_group_t *group)
{
    return has_work(group) || tt_group_is_family_waiting(group);
}

bool tt_group_is_family_waiting(const tutti_group_t *group)
{
    const tutti_group_t *each = LIST_FIRST(&group->family->groups);
    while (each != NULL && (each == group || !has_work(each))) {
        each = LIST_NEXT(each, of_family);
    }
    return each != NULL;
}

tutti_status_t tt_group_wait(tutti_group_t *group, tt_op_t *op, tt_deadline_t deadline)
{
    TT_TRY(tt_group_settle(group));
    while (tt_group_is_family_waiting(group)) {
        const tt_deadline_t slice = tt_clock_ns() + FAMILY_SLICE_NS;
        const bool is_last = deadline <= slice;
        const tutti_status_t status =
            group->backend->wait(group->state, op, is_last ? deadline : slice);
        if (status != TUTTI_PENDING || is_last) {
            return status;
        }
        tutti_group_progress(group);
    }
    return group->backend->wait(group->state, op, deadline);
}
