/* The works of a group: the free ones of each kind, and the list of those under way.
 *
 * A work under way is in its group's list and holds its tensors; when it is found done it lets go
 * of them, and goes back to the group's free works if its caller has released it. One that has
 * failed stays in the list, with its memory, while the engine may touch that. Nothing here starts,
 * waits or knows what a group is to its users, so that groups (group.c) and works (work.c) both
 * stand on it.
 */
#include "comm/group/group_works.h"

#include "core/base/alloc.h"

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

static tutti_work_t *alloc_work(tt_work_kind_t kind)
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

tutti_work_t *tt_work_new(tt_work_kind_t kind)
{
    tutti_work_t *work = alloc_work(kind);
    if (work != NULL && kind != TT_WORK_BUNDLE) {
        work->self = work;
        work->parts = &work->self;
        work->part_count = 1;
    }
    if (work != NULL) {
        work->kind = kind;
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

/* Its outcome is known, and its caller may ask for it. */
static void note_end(tutti_group_t *group, tutti_work_t *work)
{
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
        tt_pack_settle(group, work->pack, work->op->status == TUTTI_OK);
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
