/* Works: calls under way, as the caller sees them; group_works.c has what becomes of them in their
 * group. A bundle is a work that owns others: its state is theirs.
 */
#include "comm/group/group_works.h"

#include "core/base/alloc.h"

static bool is_bundle(const tutti_work_t *work)
{
    return work->kind == TT_WORK_BUNDLE;
}

/* ---- bundles ---- */

static tutti_status_t make_room_for_parts(tutti_work_t *bundle, int count)
{
    if (count <= bundle->part_capacity) {
        return TUTTI_OK;
    }
    tutti_work_t **parts =
        tt_realloc(bundle->parts, (size_t)count * sizeof *parts, "bundle of works");
    TT_TRY_ALLOC(parts);
    bundle->parts = parts;
    bundle->part_capacity = count;
    return TUTTI_OK;
}

tutti_status_t tt_bundle_open(tutti_group_t *group, int count, tutti_work_t **out)
{
    tutti_work_t *work = tt_work_take(group, TT_WORK_BUNDLE);
    TT_TRY_ALLOC(work);
    const tutti_status_t status = make_room_for_parts(work, count);
    if (status < 0) {
        tt_work_give_back(group, work);
        return status;
    }
    work->next = NULL;
    work->part_count = 0;
    work->is_released = false;
    work->group = tutti_group_retain(group);
    tt_ref_init(&work->ref);
    *out = work;
    return TUTTI_OK;
}

tutti_status_t tt_bundle_add(tutti_work_t *bundle, tutti_work_t *part)
{
    const int count = bundle->part_count;
    const tutti_status_t status =
        count < bundle->part_capacity ? TUTTI_OK : make_room_for_parts(bundle, 2 * count + 1);
    if (status < 0) {
        tutti_work_release(part);
        return status;
    }
    bundle->parts[bundle->part_count++] = part;
    return TUTTI_OK;
}

tutti_status_t tt_bundle_hand_over(tutti_work_t *bundle, tutti_work_t **out)
{
    if (out != NULL) {
        *out = bundle;
        return TUTTI_OK;
    }
    const tutti_status_t status = tutti_work_wait(bundle, 0);
    tutti_work_release(bundle);
    return status;
}

/* ---- works of the family's stream ---- */

tutti_work_t *tt_work_of_streamed(tutti_group_t *group, tt_streamed_t *call)
{
    tutti_work_t *work = tt_work_take(group, TT_WORK_STREAMED);
    if (work == NULL) {
        return NULL;
    }
    tt_ref_init(&work->ref);
    work->group = tutti_group_retain(group);
    work->streamed = call;
    work->op->status = TUTTI_PENDING;
    tt_ref_retain(&call->ref);
    return work;
}

void tt_work_drop_streamed(tutti_work_t *work)
{
    if (work != NULL) {
        tutti_group_t *group = work->group;
        work->streamed = NULL;
        tt_work_drop(group, work);
        tt_group_let_go(group);
    }
}

/* What has become of it since the last look. */
static void look(tutti_work_t *work)
{
    if (work->streamed != NULL && work->op->status == TUTTI_PENDING) {
        work->op->status = tt_streamed_status(work->streamed);
        if (work->op->status < 0) {
            work->error = tt_strdup(tutti_last_error(), "work error");
        }
    }
}

static tutti_status_t outcome_of_streamed(tutti_work_t *work)
{
    look(work);
    const tutti_status_t status = work->op->status;
    return status < 0 ? tt_fail_again(status, tutti_work_error(work)) : status;
}

/* The device waits, and the host does not. */
static tutti_status_t wait_for_streamed(tutti_work_t *work)
{
    TT_TRY(tt_group_check_forked("work_wait", work->group));
    TT_TRY(tt_streamed_join(work->streamed));
    const tutti_status_t status = outcome_of_streamed(work);
    return status < 0 ? status : TUTTI_OK;
}

/* Nobody will wait: the device does, before it uses the memory for anything else. */
static void release_streamed(tutti_work_t *work)
{
    if (!tt_group_is_forked(work->group)) {
        (void)tt_streamed_join(work->streamed);
        tt_streamed_let_go(work->streamed);
    }
    tt_work_drop_streamed(work);
}

/* ---- all works ---- */

/* OK, PENDING, or the first failure of what the work is or holds. PENDING, too, while the family's
 * stream is in a call, which may be moving this one. */
static tutti_status_t find_status(const tutti_work_t *work)
{
    if (!tt_group_has_family(work->group, 0)) {
        return TUTTI_PENDING;
    }
    if (!is_bundle(work)) { /* as the loop below, at less cost */
        return work->op->status;
    }
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < work->part_count; i++) {
        const tutti_status_t part = work->parts[i]->op->status;
        if (part == TUTTI_PENDING) {
            return part;
        }
        status = status < 0 ? status : part;
    }
    return status;
}

void tt_work_begin_wait(tutti_work_t *work, int64_t now)
{
    for (int i = 0; i < work->part_count; i++) {
        if (is_bundle(work)) {
            tt_op_begin_deadline(work->parts[i]->op, now);
        } else {
            tt_op_await(work->op, now);
        }
    }
}

bool tt_work_is_pending(tutti_work_t *work)
{
    look(work);
    return work->streamed != NULL ? work->op->status == TUTTI_PENDING
                                  : find_status(work) == TUTTI_PENDING;
}

tt_op_t *tt_work_pending(const tutti_work_t *work)
{
    int i = 0;
    while (i < work->part_count && work->parts[i]->op->status != TUTTI_PENDING) {
        i++;
    }
    return i < work->part_count ? work->parts[i]->op : NULL;
}

static void wait_for(tutti_work_t *work, tt_deadline_t deadline)
{
    if (is_bundle(work)) {
        tt_work_begin_wait(work, tt_clock_ns());
    }
    const bool is_profiled = tt_work_profile_wait(work);
    tt_op_t *op = tt_work_pending(work);
    while (op != NULL && !tt_deadline_is_past(deadline)) {
        (void)tt_group_wait(work->group, op, deadline);
        op = tt_work_pending(work);
    }
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
    }
}

tutti_status_t tt_work_outcome(tutti_work_t *work)
{
    if (work->streamed != NULL) {
        return outcome_of_streamed(work);
    }
    if (!tt_group_has_family(work->group, 0)) {
        return TUTTI_PENDING;
    }
    tt_group_reap(work->group);
    const tutti_status_t status = find_status(work);
    return status < 0 ? tt_fail_again(status, tutti_work_error(work)) : status;
}

tutti_status_t tutti_work_wait(tutti_work_t *work, int64_t timeout_ms)
{
    TT_WANT("work_wait", work);
    TT_TRY(tt_group_check_timeout("work_wait", timeout_ms, "0 waits until the call ends"));
    if (work->streamed != NULL) {
        return wait_for_streamed(work);
    }
    const tt_deadline_t deadline = timeout_ms > 0 ? tt_deadline_in_ms(timeout_ms) : TT_NEVER;
    if (timeout_ms > 0 && !tt_group_has_family(work->group, deadline)) {
        return TUTTI_PENDING;
    }
    TT_TRY(tt_group_settle(work->group));
    if (find_status(work) == TUTTI_PENDING) {
        TT_TRY(tt_group_check_forked("work_wait", work->group));
        wait_for(work, deadline);
    }
    return tt_work_outcome(work);
}

tutti_status_t tutti_work_test(tutti_work_t *work)
{
    TT_WANT("work_test", work);
    tutti_group_t *group = work->group;
    TT_TRY(tt_group_check_forked("work_test", group));
    if (work->streamed != NULL) {
        return outcome_of_streamed(work);
    }
    if (!tt_group_has_family(group, 0)) {
        return TUTTI_PENDING;
    }
    for (int i = 0; i < work->part_count; i++) {
        if (work->parts[i]->op->status == TUTTI_PENDING) {
            (void)group->backend->test(group->state, work->parts[i]->op);
        }
    }
    if (tt_group_is_family_waiting(group)) {
        tutti_group_progress(group);
    }
    return tt_work_outcome(work);
}

bool tutti_work_is_done(const tutti_work_t *work)
{
    return work == NULL || (work->streamed != NULL ? tt_event_is_done(work->streamed->end)
                                                   : find_status(work) != TUTTI_PENDING);
}

void tutti_work_abort(tutti_work_t *work)
{
    tutti_group_abort(work != NULL ? work->group : NULL);
}

const char *tutti_work_error(const tutti_work_t *work)
{
    const char *text = NULL;
    for (int i = 0; work != NULL && text == NULL && i < work->part_count; i++) {
        text = work->parts[i]->error;
    }
    return text != NULL ? text : "";
}

/* The message of a receive that is done; NULL for other works. */
static const tt_message_op_t *received(const tutti_work_t *work)
{
    const bool is_message = work != NULL && work->kind == TT_WORK_MESSAGE;
    const tt_message_op_t *op = is_message ? tt_message_of(work->op) : NULL;
    return op != NULL && op->message.kind == TT_MESSAGE_RECV && op->op.status == TUTTI_OK ? op
                                                                                          : NULL;
}

/* A receive on a device that is done. */
static bool has_streamed(const tutti_work_t *work)
{
    return work != NULL && work->streamed != NULL && tt_event_is_done(work->streamed->end);
}

int tutti_work_source(const tutti_work_t *work)
{
    if (has_streamed(work)) {
        return work->streamed->source;
    }
    const tt_message_op_t *op = received(work);
    return op != NULL ? op->source : -1;
}

int tutti_work_tag(const tutti_work_t *work)
{
    if (has_streamed(work)) {
        return work->streamed->tag;
    }
    const tt_message_op_t *op = received(work);
    return op != NULL ? op->tag : -1;
}

tutti_work_t *tutti_work_retain(tutti_work_t *work)
{
    if (work != NULL) {
        tt_ref_retain(&work->ref);
    }
    return work;
}

void tutti_work_release(tutti_work_t *work)
{
    if (work == NULL || !tt_ref_release(&work->ref)) {
        return;
    }
    if (work->streamed != NULL) {
        release_streamed(work);
        return;
    }
    tutti_group_t *group = work->group;
    (void)tt_group_has_family(group, TT_NEVER);
    work->is_released = true;
    for (int i = 0; is_bundle(work) && i < work->part_count; i++) {
        tutti_work_release(work->parts[i]);
    }
    if (!work->is_under_way) {
        tt_work_drop(group, work);
    }
    tutti_group_release(group);
}
