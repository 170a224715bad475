/* The works of a group: the free ones of each kind, and the list of those under way.
 *
 * A work under way is in its group's list and holds its tensors; when it is found done it lets go
 * of them, and goes back to the group's free works if its caller has released it. One that has
 * failed stays in the list, with its memory, while the engine may touch that. Nothing here starts,
 * waits or knows what a group is to its users, so that groups (group.c) and works (work.c) both
 * stand on it.
 */
#include "comm/group/group_works.h"

#include <stddef.h>

#include "core/base/alloc.h"

/* A work of each kind, with the memory that this kind needs. */
typedef struct {
    tutti_work_t work;
    tt_run_t run;
    tutti_tensor_t *tensors[TUTTI_CONTRIBUTION_PIECES_MAX + 1];
} call_work_t;

typedef struct {
    tutti_work_t work;
    tt_message_op_t op;
    tutti_tensor_t *tensors[1];
} message_work_t;

typedef struct {
    tutti_work_t work;
    tt_op_t op;
} streamed_work_t;

/* Where a kind's operation and tensors are in its memory. */
static const struct {
    size_t bytes, op, tensors;
    tt_op_kind_t op_kind;
} KINDS[] = {
    [TT_WORK_CALL] = {sizeof(call_work_t), offsetof(call_work_t, run.op),
                      offsetof(call_work_t, tensors), TT_OP_CALL},
    [TT_WORK_MESSAGE] = {sizeof(message_work_t), offsetof(message_work_t, op.op),
                         offsetof(message_work_t, tensors), TT_OP_MESSAGE},
    [TT_WORK_STREAMED] = {sizeof(streamed_work_t), offsetof(streamed_work_t, op),
                          sizeof(streamed_work_t), TT_OP_CALL}, /* no tensors: the call has them */
};

tutti_work_t *tt_work_new(tt_work_kind_t kind)
{
    const bool is_bundle = kind == TT_WORK_BUNDLE;
    char *memory = tt_alloc(is_bundle ? sizeof(tutti_work_t) : KINDS[kind].bytes, "work");
    if (memory == NULL) {
        return NULL;
    }
    tutti_work_t *work = (void *)memory;
    work->kind = kind;
    if (!is_bundle) {
        work->op = (void *)(memory + KINDS[kind].op);
        work->op->kind = KINDS[kind].op_kind;
        work->tensors = (void *)(memory + KINDS[kind].tensors);
        work->self = work;
        work->parts = &work->self;
        work->part_count = 1;
    }
    return work;
}

void tt_group_free_works(tutti_group_t *group)
{
    for (int kind = 0; kind < TT_WORK_KINDS; kind++) {
        while (group->free_works[kind] != NULL) {
            tutti_work_t *work = group->free_works[kind];
            group->free_works[kind] = work->next;
            tt_free(kind == TT_WORK_BUNDLE ? work->parts : NULL);
            tt_free(work);
        }
    }
}

/* Asked after failures only, and not inlined, so that calls that go well do not pay for it. */
__attribute__((noinline)) bool tt_group_is_held(tutti_group_t *group, const tt_op_t *op)
{
    return group->backend->holds != NULL && group->backend->holds(group->state, op);
}

/* A receive from anybody, or with any tag, is told as that of the message which it got, or as
 * nobody's. Who fails may not have waited for the others. */
__attribute__((noinline)) void tt_work_tell_profile(tutti_work_t *work, tutti_status_t outcome)
{
    tt_profile_call_t *call = &work->profiled;
    const tt_message_op_t *op = tt_message_of(work->op);
    call->is_symmetric = call->is_symmetric && outcome >= 0;
    if (op != NULL && op->message.kind != TT_MESSAGE_SEND) {
        const bool is_open = op->message.peer == TT_ANY_RANK || op->message.tag == TT_ANY_TAG;
        const bool is_known = !is_open || outcome >= 0;
        call->peer = !is_known ? -1 : is_open ? op->source : op->message.peer;
        call->number = !is_known ? 0 : (uint64_t)(is_open ? op->tag : op->message.tag);
    }
    tt_profile_end_call(call);
    call->begin_ns = 0;
}

/* Its outcome is known, and its caller may ask for it. */
static void note_end(tutti_group_t *group, tutti_work_t *work)
{
    tt_work_end_profile(work, work->op->status);
    if (work->prepared != NULL) {
        work->prepared->work = NULL;
        work->prepared = NULL;
    }
    if (work->op->status < 0 && work->error == NULL) {
        /* test gives the text of a failed operation */
        (void)group->backend->test(group->state, work->op);
        work->error = tt_strdup(tutti_last_error(), "work error");
    }
}

/* Its memory is not touched any more. */
static void let_go(tutti_group_t *group, tutti_work_t *work)
{
    if (work->pack != NULL) {
        tt_pack_give_back(group, work->pack);
        work->pack = NULL;
    }
    for (int i = 0; i < work->tensor_count; i++) {
        tutti_tensor_release(work->tensors[i]);
    }
    work->tensor_count = 0;
    work->is_under_way = false;
    if (work->is_released) {
        tt_work_drop(group, work);
    }
}

static bool is_over(tutti_group_t *group, tutti_work_t *work)
{
    if (work->op->status == TUTTI_PENDING) {
        return false;
    }
    note_end(group, work);
    return work->op->status >= 0 || !tt_group_is_held(group, work->op);
}

/* Collectives end in order, messages in any. */
void tt_group_reap(tutti_group_t *group)
{
    tutti_work_t **at = &group->first, *last = NULL;
    while (*at != NULL) {
        tutti_work_t *work = *at;
        if (is_over(group, work)) {
            *at = work->next;
            let_go(group, work);
        } else {
            last = work;
            at = &work->next;
        }
    }
    group->last = last;
}
