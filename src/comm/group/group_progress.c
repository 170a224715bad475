/* Moving calls forward: those of one group, and while one waits, those of its family.
 *
 * A wait in one group moves the others of its family forward, every so often and only while they
 * have calls under way: else two ranks that wait for two groups in different order would wait for
 * ever.
 *
 * While the family's stream is in a call, another thread's abort is a flag, which the stream looks
 * at every few ms: one thread at a time uses a family.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"

enum { FAMILY_SLICE_NS = 100000, HEED_NS = 2000000 };

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
        group->backend->abort(group->state, tutti_last_error());
    }
    give_up(group);
}

static void abort_here(tutti_group_t *group, const char *cause)
{
    group->backend->abort(group->state, cause);
    give_up(group);
}

/* On the family's stream: aborts groups of the family that this rank's thread wants to abort.
 * ABORTED: this one is among them. */
static tutti_status_t heed(tutti_group_t *group)
{
    bool is_mine = false;
    tutti_group_t *each;
    LIST_FOREACH(each, &group->family->groups, of_family)
    {
        if (atomic_exchange(&each->is_abort_asked, false)) {
            abort_here(each, each->abort_cause);
            is_mine = is_mine || each == group;
        }
    }
    return is_mine
               ? TT_FAIL(TUTTI_ERR_ABORTED, "rank %d aborted group %s", group->rank, group->name)
               : TUTTI_OK;
}

/* True: the family's stream has done it. */
static bool let_stream_abort(tutti_group_t *group, const char *cause)
{
    tt_group_stream_t *stream = group->family->stream;
    if (stream == NULL) {
        return false;
    }
    if (!group->has_abort_cause) {
        group->has_abort_cause = true;
        snprintf(group->abort_cause, sizeof group->abort_cause, "%s", cause);
    }
    atomic_store(&group->is_abort_asked, true);
    while (!tt_stream_pass(stream, tt_clock_ns() + HEED_NS) &&
           atomic_load(&group->is_abort_asked)) {
    }
    return !atomic_exchange(&group->is_abort_asked, false);
}

/* Often on the way out of a failure, whose text stays the last one. */
static void abort_group(tutti_group_t *group, bool has_cause)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    const char *cause = has_cause ? text : "";
    if (group != NULL && !tt_group_is_forked(group) && !let_stream_abort(group, cause)) {
        abort_here(group, cause);
    }
    (void)tt_fail_again(TUTTI_OK, text);
}

void tutti_group_abort(tutti_group_t *group)
{
    abort_group(group, false);
}

tutti_status_t tt_group_give_up(tutti_group_t *group, tutti_status_t status)
{
    if (group != NULL && group->size > 1) { /* else nobody waits */
        abort_group(group, true);
    }
    return status;
}

void tutti_group_progress(tutti_group_t *group)
{
    const bool is_mine =
        group != NULL && !tt_group_is_forked(group) && tt_group_has_family(group, 0);
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

static tt_deadline_t end_of_slice(bool is_family_waiting)
{
    return tt_clock_ns() + (is_family_waiting ? FAMILY_SLICE_NS : HEED_NS);
}

tutti_status_t tt_group_await_device(tutti_group_t *group, tt_event_t event)
{
    tutti_status_t status = heed(group);
    bool is_busy = tt_group_is_family_busy(group);
    while (status >= 0 && tt_event_pass(event, end_of_slice(is_busy)) == TUTTI_ERR_TIMEOUT) {
        status = heed(group);
        is_busy = tt_group_is_family_busy(group);
        if (is_busy) {
            tutti_group_progress(group);
        }
    }
    return status;
}

tutti_status_t tt_group_settle_by(tutti_group_t *group, tt_deadline_t deadline)
{
    if (tt_group_has_family(group, deadline)) {
        return TUTTI_OK;
    }
    return tt_group_give_up(
        group, TT_FAIL(TUTTI_ERR_TIMEOUT,
                       "group %s: calls on tensors of devices are not done in %lld ms, so rank %d "
                       "gives the group up: a call behind them cannot be made",
                       group->name, (long long)group->timeout_ms, group->rank));
}

/* In slices, between which somebody else has a turn. */
static tutti_status_t wait_in_slices(tutti_group_t *group, tt_op_t *op, tt_deadline_t deadline)
{
    tt_group_stream_t *stream = group->family->stream;
    const bool is_streamed = stream != NULL && tt_group_stream_is_inside(stream);
    tutti_status_t status = TUTTI_PENDING;
    bool is_last = false;
    while (status == TUTTI_PENDING && !is_last &&
           (is_streamed || tt_group_is_family_waiting(group))) {
        const bool is_family_waiting = tt_group_is_family_waiting(group);
        const tt_deadline_t slice = end_of_slice(is_family_waiting);
        is_last = deadline <= slice;
        status = group->backend->wait(group->state, op, is_last ? deadline : slice);
        if (status == TUTTI_PENDING && is_streamed) {
            (void)heed(group);
        }
        if (status == TUTTI_PENDING && is_family_waiting) {
            tutti_group_progress(group);
        }
    }
    return is_last || status != TUTTI_PENDING ? status
                                              : group->backend->wait(group->state, op, deadline);
}

tutti_status_t tt_group_wait(tutti_group_t *group, tt_op_t *op, tt_deadline_t deadline)
{
    _Atomic uintptr_t *waits_in = &group->family->waits_in;
    const uintptr_t outer = atomic_load_explicit(waits_in, memory_order_relaxed);
    atomic_store_explicit(waits_in, (uintptr_t)pthread_self(), memory_order_relaxed);
    const tutti_status_t status = wait_in_slices(group, op, deadline);
    atomic_store_explicit(waits_in, outer, memory_order_relaxed);
    return status;
}
