/* Starting calls and messages that have been checked: waited for at once, as a work, or as one of
 * several that are coalesced. The versions of the tensors that a call writes are moved here.
 *
 * A caller's work holds the group and its tensors. A blocking call uses a work too, but holds
 * nothing: its caller holds everything.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/coalesced.h"
#include "comm/group/group_works.h"
#include "core/base/clock.h"
#include "core/base/fnv.h"
#include "core/tensor/tensor_impl.h"

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

/* A message; or a call with a reduction of the program's own, whose description is only borrowed.
 */
__attribute__((noinline)) static tutti_status_t
begin_other(tutti_group_t *group, const tt_start_t *start, tutti_work_t *work)
{
    if (start->message != NULL) {
        return group->backend->start_message(group->state, start->message, tt_message_of(work->op));
    }
    tt_call_t call = start->call;
    work->custom = *call.custom;
    call.custom = &work->custom;
    return group->backend->start(group->state, &call, tt_run_of(work->op));
}

static const char *name_of(const tt_start_t *start)
{
    return start->message == NULL                    ? tt_collective_name(start->call.collective)
           : start->message->kind == TT_MESSAGE_SEND ? "send"
                                                     : "recv";
}

__attribute__((noinline)) static tutti_status_t refuse_forked(const tutti_group_t *group,
                                                              const tt_start_t *start)
{
    return tt_group_refuse_forked(name_of(start), group);
}

/* An owner that saved what the call writes, or keeps a copy of it, sees by the tensor's version
 * that it is another value from now on. The root of a broadcast keeps its values. */
static inline void touch_outputs(const tutti_group_t *group, const tt_start_t *start)
{
    const tt_call_t *call = &start->call;
    if (start->writes_first && (call->collective != TT_BROADCAST || call->root != group->rank)) {
        tt_tensor_touch(start->tensors[0]);
    }
    if (start->pack != NULL) {
        tt_pack_touch_outputs(start->pack);
    }
}

/* Each rank with something to give, and to get. */
static bool is_symmetric(const tt_call_t *call, int size)
{
    bool is_whole = call->counts == NULL && call->recv_counts == NULL && call->count > 0 &&
                    !tt_collective_has_root(call->collective) &&
                    !tt_collective_is_prefix(call->collective);
    for (int i = 0; i < size && call->first != NULL && is_whole; i++) {
        is_whole = call->first[i + 1] > call->first[i];
    }
    return is_whole || call->collective == TT_BARRIER;
}

/* As nccl-tests count: the largest buffer of a rank. */
static uint64_t bytes_of(const tt_call_t *call, int size)
{
    const bool is_all = call->collective == TT_REDUCE_SCATTER ||
                        call->collective == TT_ALL_GATHER || call->collective == TT_GATHER ||
                        call->collective == TT_SCATTER || call->collective == TT_ALL_TO_ALL;
    uint64_t elements = (uint64_t)call->count * (is_all ? (uint64_t)size : 1);
    for (int i = 0; i < size && call->counts != NULL; i++) {
        elements = (i > 0 ? elements : 0) + call->counts[i];
    }
    return call->collective == TT_BARRIER ? 0 : elements * tutti_dtype_bytes(call->dtype);
}

__attribute__((noinline)) static void begin_profile(const tutti_group_t *group,
                                                    const tt_start_t *start, tt_profile_call_t *out)
{
    const tt_message_t *message = start->message;
    *out = (tt_profile_call_t){.begin_ns = tt_clock_ns(), .rank = group->rank, .size = group->size};
    tt_fnv_shorten(group->name, out->group, sizeof out->group);
    out->name = name_of(start);
    if (message != NULL) {
        out->number = (uint64_t)(int64_t)message->tag;
        out->bytes = tt_message_bytes(message);
        out->peer = message->peer;
        return;
    }
    out->number = group->calls;
    out->bytes = bytes_of(&start->call, group->size);
    out->peer = -1;
    out->is_symmetric = is_symmetric(&start->call, group->size);
}

static inline tutti_status_t begin(tutti_group_t *group, tt_start_t *start, bool waits,
                                   tutti_work_t *work)
{
    if (tt_group_is_forked(group)) {
        return refuse_forked(group, start);
    }
    touch_outputs(group, start);
    group->calls += start->message == NULL;
    work->profiled.begin_ns = 0;
    if (tt_profile_is_on()) {
        begin_profile(group, start, &work->profiled);
    }
    start->call.tag = tt_group_tag(group);
    start->call.is_awaited = waits;
    return ((uintptr_t)start->message | (uintptr_t)start->call.custom) != 0
               ? begin_other(group, start, work)
               : group->backend->start(group->state, &start->call, tt_run_of(work->op));
}

static tutti_status_t refuse(tutti_group_t *group, const tt_start_t *start, tutti_status_t status)
{
    if (start->pack != NULL) {
        tt_pack_give_back(group, start->pack);
    }
    return status;
}

static inline tutti_work_t *take_work_for(tutti_group_t *group, const tt_start_t *start)
{
    return tt_work_take(group, start->message != NULL ? TT_WORK_MESSAGE : TT_WORK_CALL);
}

/* Of a start or a call that has failed, and that no caller has a work of. While the engine may
 * touch its memory, it stays in the group's list, with pack and tensors. */
__attribute__((noinline)) static tutti_status_t fail(tutti_group_t *group, const tt_start_t *start,
                                                     tutti_work_t *work, tutti_status_t status)
{
    if (tt_group_is_held(group, work->op)) {
        hold(group, work, start);
        tutti_work_release(work);
        return status;
    }
    tt_work_give_back(group, work);
    return refuse(group, start, status);
}

/* Its caller holds everything, so the work is no more than the place of the operation. */
static tutti_status_t call_and_wait(tutti_group_t *group, tt_start_t *start)
{
    tutti_work_t *work = take_work_for(group, start);
    if (work == NULL) {
        return refuse(group, start, TUTTI_ERR_NOMEM);
    }
    const bool is_profiled = tt_profile_begin(TT_PROFILE_WAIT, name_of(start), 0);
    tutti_status_t status = begin(group, start, true, work);
    if (status >= 0 && work->op->status != TUTTI_OK) {
        status = tt_group_wait(group, work->op, TT_NEVER);
    }
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
        tt_work_end_profile(work, status);
    }
    if (status < 0) {
        (void)fail(group, start, work, status);
    } else {
        if (start->pack != NULL) {
            tt_pack_give_back(group, start->pack);
        }
        tt_work_give_back(group, work);
    }
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
    const tutti_status_t status = begin(group, start, false, work);
    if (status < 0) {
        (void)fail(group, start, work, status);
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

/* For the end of what is coalesced, which gives one work for all. */
static tutti_status_t keep_work(tt_coalesced_t *all, tutti_work_t *work)
{
    enum { ROOM = 16 };
    const tutti_status_t status =
        all->bundle == NULL ? tt_bundle_open(work->group, ROOM, &all->bundle) : TUTTI_OK;
    if (status < 0) {
        tutti_work_release(work);
        return status;
    }
    return tt_bundle_add(all->bundle, work);
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
    if (all->status < 0) {
        return tt_fail_again(all->status, all->error);
    }
    if (all->fused == NULL) {
        return TUTTI_OK;
    }
    const tutti_status_t status = start_fused(group, all);
    tt_coalesced_drop_fused(all, group);
    if (status < 0) {
        all->status = status;
        snprintf(all->error, sizeof all->error, "%s", tutti_last_error());
    }
    return status;
}

/* Between coalesce_begin and _end. */
static tutti_status_t check_coalesced(tutti_group_t *group, tutti_work_t **out)
{
    if (out != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "group %s: calls are coalesced: pass NULL for the work, tutti_coalesce_end "
                       "gives one for all",
                       group->name);
    }
    if (group->coalesce->streamed != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "group %s: a call without a tensor of the device among coalesced ones that "
                       "have some: tensors of the host and of a device in one batch",
                       group->name);
    }
    return tt_coalesce_flush(group);
}

static tutti_status_t start_coalesced(tutti_group_t *group, tt_start_t *start, tutti_work_t **out)
{
    tutti_work_t *work;
    const tutti_status_t status = check_coalesced(group, out);
    if (status < 0) {
        return refuse(group, start, status);
    }
    TT_TRY(start_work(group, start, &work));
    return keep_work(group->coalesce, work);
}

/* ---- all of them ---- */

/* Two threads in one family's engine take each other's messages, and wait for ever. */
static inline tutti_status_t check_thread(const tutti_group_t *group)
{
    const uintptr_t other = atomic_load_explicit(&group->family->waits_in, memory_order_relaxed);
    return __builtin_expect(other == 0, 1) || other == (uintptr_t)pthread_self()
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "group %s: another thread waits in a call of this group, or of one that "
                         "comes from the same world: they belong to one thread at a time",
                         group->name);
}

tutti_status_t tt_group_start(tutti_group_t *group, tt_start_t *start, tutti_work_t **out)
{
    TT_TRY(tt_group_settle(group));
    TT_TRY(check_thread(group));
    if (group->coalesce != NULL) {
        return start_coalesced(group, start, out);
    }
    return out == NULL ? call_and_wait(group, start) : start_work(group, start, out);
}

/* The copy of what is read stands behind the copy of what is written. */
static tutti_status_t call_on_copies(tutti_group_t *group, tt_start_t *start, tutti_bytes_t piece,
                                     tutti_buffer_t out)
{
    tutti_tensor_t *copies;
    const size_t begin = piece.data != out.data ? (out.bytes + 63) / 64 * 64 : 0;
    if (tutti_group_tensor(group, TUTTI_U8, TUTTI_SHAPE((int64_t)(begin + piece.bytes)), &copies) <
        0) {
        /* the others are on their way into the call */
        return tt_group_give_up(
            group, TT_FAIL(TUTTI_ERR_NOMEM, "%s: no memory for copies of %zu bytes",
                           tt_collective_name(start->call.collective), begin + piece.bytes));
    }
    char *memory = tutti_tensor_data(copies);
    if (piece.bytes > 0) {
        memcpy(memory + begin, piece.data, piece.bytes);
    }
    start->call.pieces = (const void *const[]){memory + begin};
    start->call.out = memory;
    start->tensors = &copies;
    start->tensor_count = 1;
    const tutti_status_t status = tt_group_start(group, start, NULL);
    if (status >= 0 && out.bytes > 0) {
        memcpy(out.data, memory, out.bytes);
    }
    tutti_tensor_release(copies);
    return status;
}

tutti_status_t tt_group_call_plain(tutti_group_t *group, const tt_call_t *like, tutti_bytes_t piece,
                                   tutti_buffer_t out)
{
    tt_start_t start = {.call = *like};
    start.call.out_dtype = like->dtype;
    start.call.pieces = &piece.data;
    start.call.piece_count = 1;
    start.call.out = out.data;
    return group->backend->holds != NULL ? call_on_copies(group, &start, piece, out)
                                         : tt_group_start(group, &start, NULL);
}

tutti_status_t tt_group_check_callable(const tutti_group_t *group, const char *call)
{
    TT_TRY(tt_group_check_forked(call, group));
    return group->is_coalescing
               ? TT_FAIL(TUTTI_ERR_STATE,
                         "%s: calls of group %s are coalesced; call tutti_coalesce_end first", call,
                         group->name)
               : TUTTI_OK;
}

tutti_status_t tt_group_check_free(tutti_group_t *group, const char *call)
{
    TT_TRY(tt_group_check_callable(group, call));
    return tt_group_settle(group);
}
