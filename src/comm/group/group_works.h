/* Taking works from a group's free ones, inline for the sake of small calls. */
#ifndef TT_GROUP_WORKS_H
#define TT_GROUP_WORKS_H

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"

/* Allocated; NULL without memory. Once for each call under way at a time. */
tutti_work_t *tt_work_new(tt_work_kind_t kind);

static inline tutti_work_t *tt_work_take(tutti_group_t *group, tt_work_kind_t kind)
{
    tutti_work_t *work = group->free_works[kind];
    if (work == NULL) {
        return tt_work_new(kind);
    }
    group->free_works[kind] = work->next;
    return work;
}

static inline void tt_work_give_back(tutti_group_t *group, tutti_work_t *work)
{
    work->next = group->free_works[work->kind];
    group->free_works[work->kind] = work;
}

/* Of a work that its caller has released and that is not under way. */
static inline void tt_work_drop(tutti_group_t *group, tutti_work_t *work)
{
    if (work->error != NULL) { /* as a rule there is none, and a call is saved */
        tt_free(work->error);
        work->error = NULL;
    }
    tt_work_give_back(group, work);
}

#endif
