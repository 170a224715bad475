/* Works: calls under way, as the caller sees them.
 *
 * A work under way is in its group's list and holds its tensors; when it is found done it lets go
 * of them, and goes back to the group's free works if its caller has released it. A caller's work
 * holds the group. A blocking call uses a work too, but holds nothing: its caller holds everything.
 * A bundle is a work that owns others: its state is theirs.
 *
 * A wait in one group moves the others of its family forward, every so often and only while they
 * have calls under way: else two ranks that wait for two groups in different order would wait for
 * ever.
 */
#include "comm/group/group_impl.h"

#include <string.h>

#include "core/base/alloc.h"

enum { FAMILY_SLICE_NS = 100000 };

/* A work of each kind, with the memory that this kind needs. */
typedef struct {
    tutti_work_t work;
    tt_run_t run;
    tutti_tensor_t *tensors[TUTTI_LEAF_PIECES_MAX + 1];
} call_work_t;

typedef struct {
    tutti_work_t work;
    tt_message_op_t op;
    tutti_tensor_t *tensors[1];
} message_work_t;

static tutti_work_t *new_call_work(void)
{
    call_work_t *own = tt_alloc(sizeof *own, "work");
    if (own == NULL) {
        return NULL;
    }
    own->run.op.kind = TT_OP_CALL;
    own->work.op = &own->run.op;
    own->work.tensors = own->tensors;
    return &own->work;
}

static tutti_work_t *new_message_work(void)
{
    message_work_t *own = tt_alloc(sizeof *own, "work");
    if (own == NULL) {
        return NULL;
    }
    own->op.op.kind = TT_OP_MESSAGE;
    own->work.op = &own->op.op;
    own->work.tensors = own->tensors;
    return &own->work;
}

static tutti_work_t *new_work(tt_work_kind_t kind)
{
    switch (kind) {
    case TT_WORK_CALL:
        return new_call_work();
    case TT_WORK_MESSAGE:
        return new_message_work();
    default:
        return tt_alloc(sizeof(tutti_work_t), "work");
    }
}

static inline tutti_work_t *take_work(tutti_group_t *group, tt_work_kind_t kind)
{
    tutti_work_t *work = group->free_works[kind];
    if (work == NULL) {
        work = new_work(kind);
        if (work != NULL) {
            work->kind = kind;
        }
        return work;
    }
    group->free_works[kind] = work->next;
    return work;
}

static inline void give_back_work(tutti_group_t *group, tutti_work_t *work)
{
    work->next = group->free_works[work->kind];
    group->free_works[work->kind] = work;
}

static void drop_work(tutti_group_t *group, tutti_work_t *work)
{
    tt_free(work->error);
    work->error = NULL;
    give_back_work(group, work);
}

void tt_group_free_works(tutti_group_t *group)
{
    for (int kind = 0; kind < TT_WORK_KINDS; kind++) {
        while (group->free_works[kind] != NULL) {
            tutti_work_t *work = group->free_works[kind];
            group->free_works[kind] = work->next;
            tt_free(work->parts);
            tt_free(work);
        }
    }
}

/* The engine may still touch the memory of an operation that failed, nobody knows how long: it is
 * given to it for good. Asked after failures only, and not inlined, so that calls that go well do
 * not pay for it. */
__attribute__((noinline)) static bool is_held(tutti_group_t *group, const tt_op_t *op)
{
    return group->backend->holds != NULL && group->backend->holds(group->state, op);
}

static void settle_pack(tutti_group_t *group, tutti_work_t *work)
{
    if (work->pack != NULL) {
        tt_pack_settle(group, work->pack, work->op->status == TUTTI_OK);
        work->pack = NULL;
    }
}

static void settle(tutti_group_t *group, tutti_work_t *work)
{
    if (work->op->status < 0 && is_held(group, work->op)) {
        work->pack = NULL;
        work->tensor_count = 0;
    }
    settle_pack(group, work);
    if (work->prepared != NULL) {
        tt_prepared_note_end(work->prepared);
        work->prepared = NULL;
    }
    for (int i = 0; i < work->tensor_count; i++) {
        tutti_tensor_release(work->tensors[i]);
    }
    work->tensor_count = 0;
    work->is_under_way = false;
    if (work->op->status < 0) {
        /* test gives the text of a failed operation */
        (void)group->backend->test(group->state, work->op);
        work->error = tt_strdup(tutti_last_error(), "work error");
    }
    if (work->is_released) {
        drop_work(group, work);
    }
}

/* Collectives end in order, messages in any. */
void tt_group_reap(tutti_group_t *group)
{
    tutti_work_t **at = &group->first, *last = NULL;
    while (*at != NULL) {
        tutti_work_t *work = *at;
        if (work->op->status == TUTTI_PENDING) {
            last = work;
            at = &work->next;
        } else {
            *at = work->next;
            settle(group, work);
        }
    }
    group->last = last;
}

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

bool tt_group_is_family_waiting(const tutti_group_t *group)
{
    const tutti_group_t *each = group->family->first;
    while (each != NULL && (each == group || each->first == NULL)) {
        each = each->sibling;
    }
    return each != NULL;
}

tutti_status_t tt_group_wait(tutti_group_t *group, tt_op_t *op, tt_deadline_t deadline)
{
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
    return take_work(group, start->message != NULL ? TT_WORK_MESSAGE : TT_WORK_CALL);
}

/* Waits for a call that is not done yet. What the engine may still touch after a failure, pack and
 * tensors, is never freed. */
__attribute__((noinline)) static tutti_status_t end_call(tutti_group_t *group,
                                                         const tt_start_t *start, tt_op_t *op)
{
    if (op->status == TUTTI_PENDING) {
        (void)tt_group_wait(group, op, TT_NEVER);
    }
    if (op->status >= 0 || !is_held(group, op)) {
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
    give_back_work(group, work);
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
        give_back_work(group, work);
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

tutti_status_t tt_group_start_work(tutti_group_t *group, tt_start_t *start, tutti_work_t **out)
{
    return start_work(group, start, out);
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
    TT_TRY(tt_coalesce_check(group, start));
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
    return tt_coalesce_add(group, work);
}

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

/* ---- bundles ---- */

static tutti_status_t make_room_for_parts(tutti_work_t *bundle, int count)
{
    if (count <= bundle->part_capacity) {
        return TUTTI_OK;
    }
    tutti_work_t **parts = tt_alloc_array((size_t)count, sizeof *parts, "bundle of works");
    TT_TRY_ALLOC(parts);
    tt_free(bundle->parts);
    bundle->parts = parts;
    bundle->part_capacity = count;
    return TUTTI_OK;
}

tutti_status_t tt_group_open_bundle(tutti_group_t *group, int count, tutti_work_t **out)
{
    tutti_work_t *work = take_work(group, TT_WORK_BUNDLE);
    TT_TRY_ALLOC(work);
    const tutti_status_t status = make_room_for_parts(work, count);
    if (status < 0) {
        give_back_work(group, work);
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

void tt_group_add_to_bundle(tutti_work_t *bundle, tutti_work_t *part)
{
    TT_ASSERT(bundle->part_count < bundle->part_capacity);
    bundle->parts[bundle->part_count++] = part;
}

tutti_status_t tt_group_bundle(tutti_group_t *group, tutti_work_t *const *parts, int count,
                               tutti_work_t **out)
{
    const tutti_status_t status = tt_group_open_bundle(group, count, out);
    for (int i = 0; i < count; i++) {
        if (status < 0) {
            tutti_work_release(parts[i]);
        } else {
            tt_group_add_to_bundle(*out, parts[i]);
        }
    }
    return status;
}

static bool is_bundle(const tutti_work_t *work)
{
    return work->kind == TT_WORK_BUNDLE;
}

tutti_status_t tt_work_status(const tutti_work_t *work)
{
    tutti_status_t status = is_bundle(work) ? TUTTI_OK : work->op->status;
    for (int i = 0; is_bundle(work) && i < work->part_count; i++) {
        const tutti_status_t part = work->parts[i]->op->status;
        if (part == TUTTI_PENDING) {
            return part;
        }
        status = status < 0 ? status : part;
    }
    return status;
}

static void wait_for(tutti_work_t *work, tt_deadline_t deadline)
{
    tutti_group_t *group = work->group;
    if (!is_bundle(work)) {
        (void)tt_group_wait(group, work->op, deadline);
        return;
    }
    for (int i = 0; i < work->part_count && !tt_deadline_is_past(deadline); i++) {
        if (work->parts[i]->op->status == TUTTI_PENDING) {
            (void)tt_group_wait(group, work->parts[i]->op, deadline);
        }
    }
}

tutti_status_t tt_work_outcome(tutti_work_t *work)
{
    tt_group_reap(work->group);
    const tutti_status_t status = tt_work_status(work);
    return status < 0 ? tt_fail_again(status, tutti_work_error(work)) : status;
}

tutti_status_t tutti_work_wait(tutti_work_t *work, int64_t timeout_ms)
{
    TT_WANT("work_wait", work);
    if (timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "work_wait: timeout_ms is %lld; 0 waits until the call ends",
                       (long long)timeout_ms);
    }
    if (tt_work_status(work) == TUTTI_PENDING) {
        wait_for(work, timeout_ms > 0 ? tt_deadline_in_ms(timeout_ms) : TT_NEVER);
    }
    return tt_work_outcome(work);
}

tutti_status_t tutti_work_test(tutti_work_t *work)
{
    TT_WANT("work_test", work);
    tutti_group_t *group = work->group;
    if (!is_bundle(work) && work->op->status == TUTTI_PENDING) {
        (void)group->backend->test(group->state, work->op);
    }
    for (int i = 0; is_bundle(work) && i < work->part_count; i++) {
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
    return work == NULL || tt_work_status(work) != TUTTI_PENDING;
}

void tutti_work_abort(tutti_work_t *work)
{
    tutti_group_abort(work != NULL ? work->group : NULL);
}

const char *tutti_work_error(const tutti_work_t *work)
{
    if (work == NULL) {
        return "";
    }
    for (int i = 0; is_bundle(work) && i < work->part_count; i++) {
        if (work->parts[i]->op->status < 0) {
            return tutti_work_error(work->parts[i]);
        }
    }
    return work->error != NULL ? work->error : "";
}

/* The message of a receive that is done; NULL for other works. */
static const tt_message_op_t *received(const tutti_work_t *work)
{
    const bool is_message = work != NULL && work->kind == TT_WORK_MESSAGE;
    const tt_message_op_t *op = is_message ? tt_message_of(work->op) : NULL;
    return op != NULL && op->message.kind == TT_MESSAGE_RECV && op->op.status == TUTTI_OK ? op
                                                                                          : NULL;
}

int tutti_work_source(const tutti_work_t *work)
{
    const tt_message_op_t *op = received(work);
    return op != NULL ? op->source : -1;
}

int tutti_work_tag(const tutti_work_t *work)
{
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

static void release_parts(tutti_work_t *work)
{
    for (int i = 0; i < work->part_count; i++) {
        tutti_work_release(work->parts[i]);
    }
    work->part_count = 0;
}

void tutti_work_release(tutti_work_t *work)
{
    if (work == NULL || !tt_ref_release(&work->ref)) {
        return;
    }
    tutti_group_t *group = work->group;
    work->is_released = true;
    if (is_bundle(work)) {
        release_parts(work);
    }
    if (!work->is_under_way) {
        drop_work(group, work);
    }
    tutti_group_release(group);
}
