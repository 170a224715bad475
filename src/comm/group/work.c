/* Works: calls under way, as the caller sees them.
 *
 * A work under way is in its group's list and holds its tensors; when it is found done it lets go
 * of them, and goes back to the group's free works if its caller has released it. A caller's work
 * holds the group. A blocking call uses a work too, but holds nothing: its caller holds everything.
 */
#include "comm/group/group_impl.h"

#include <string.h>

#include "core/base/alloc.h"

static tutti_work_t *take_work(tutti_group_t *group)
{
    tutti_work_t *work = group->free_works;
    if (work != NULL) {
        group->free_works = work->next;
    } else {
        work = tt_alloc(sizeof *work, "work");
        if (work == NULL) {
            return NULL;
        }
    }
    work->next = NULL;
    work->tensor_count = 0;
    work->is_under_way = false;
    return work;
}

static void give_back_work(tutti_group_t *group, tutti_work_t *work)
{
    tt_free(work->error);
    work->error = NULL;
    work->next = group->free_works;
    group->free_works = work;
}

static void settle(tutti_work_t *work)
{
    for (int i = 0; i < work->tensor_count; i++) {
        tutti_tensor_release(work->tensors[i]);
    }
    work->tensor_count = 0;
    work->is_under_way = false;
    if (work->run.status < 0) {
        /* test gives a failed run's text */
        (void)work->group->backend->test(work->group->state, &work->run);
        work->error = tt_strdup(tutti_last_error(), "work error");
    }
}

void tt_group_reap(tutti_group_t *group)
{
    while (group->first != NULL && group->first->run.status != TUTTI_PENDING) {
        tutti_work_t *work = group->first;
        group->first = work->next;
        if (group->first == NULL) {
            group->last = NULL;
        }
        settle(work);
        if (work->is_released) {
            give_back_work(group, work);
        }
    }
}

static void hold(tutti_group_t *group, tutti_work_t *work, tutti_tensor_t *const *tensors,
                 int tensor_count)
{
    for (int i = 0; i < tensor_count; i++) {
        work->tensors[i] = tutti_tensor_retain(tensors[i]);
    }
    work->tensor_count = tensor_count;
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

tutti_status_t tt_group_call(tutti_group_t *group, tt_call_t *call, tutti_tensor_t *const *tensors,
                             int tensor_count, tutti_work_t **out)
{
    tutti_work_t *work = take_work(group);
    TT_TRY_ALLOC(work);
    call->tag = group->tag;
    tutti_status_t status = group->backend->start(group->state, call, &work->run);
    if (status < 0) {
        give_back_work(group, work);
        return status;
    }
    if (out == NULL) {
        status = group->backend->wait(group->state, &work->run, TT_NEVER);
        give_back_work(group, work);
    } else {
        hold(group, work, tensors, tensor_count);
        *out = work;
        group->backend->progress(group->state);
    }
    if (group->first != NULL) {
        tt_group_reap(group);
    }
    return status;
}

/* What the caller hears; the text of a failure is recorded again. */
static tutti_status_t outcome(tutti_work_t *work)
{
    const tutti_status_t status = work->run.status;
    tt_group_reap(work->group);
    if (status < 0) {
        return tt_fail_again(status, tutti_work_error(work));
    }
    return status;
}

tutti_status_t tutti_work_wait(tutti_work_t *work, int64_t timeout_ms)
{
    if (timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "work_wait: timeout_ms is %lld; 0 waits until the call ends",
                       (long long)timeout_ms);
    }
    if (work->run.status == TUTTI_PENDING) {
        const tt_deadline_t deadline = timeout_ms > 0 ? tt_deadline_in_ms(timeout_ms) : TT_NEVER;
        (void)work->group->backend->wait(work->group->state, &work->run, deadline);
    }
    return outcome(work);
}

tutti_status_t tutti_work_test(tutti_work_t *work)
{
    if (work->run.status == TUTTI_PENDING) {
        (void)work->group->backend->test(work->group->state, &work->run);
    }
    return outcome(work);
}

void tutti_work_abort(tutti_work_t *work)
{
    tutti_group_abort(work->group);
}

const char *tutti_work_error(const tutti_work_t *work)
{
    return work->error != NULL ? work->error : "";
}

tutti_work_t *tutti_work_retain(tutti_work_t *work)
{
    tt_ref_retain(&work->ref);
    return work;
}

void tutti_work_release(tutti_work_t *work)
{
    if (work == NULL || !tt_ref_release(&work->ref)) {
        return;
    }
    tutti_group_t *group = work->group;
    work->is_released = true;
    if (!work->is_under_way) {
        give_back_work(group, work);
    }
    tutti_group_release(group);
}
