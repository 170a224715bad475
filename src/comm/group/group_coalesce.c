/* Coalesced calls: several calls that become one work; the caller's side.
 *
 * Calls on tensors of a device are collected until the end, and handed to the family's stream as
 * one; coalesce_take.c has what becomes of them there, and of those on the host's memory here.
 */
#include "comm/group/coalesced.h"

tutti_status_t tutti_coalesce_begin(tutti_group_t *group)
{
    TT_WANT("coalesce_begin", group);
    TT_TRY(tt_group_check_free(group, "coalesce_begin"));
    TT_TRY(tt_coalesce_open(group));
    group->is_coalescing = true;
    return TUTTI_OK;
}

tutti_status_t tutti_coalesce_end(tutti_group_t *group, tutti_work_t **work)
{
    TT_WANT("coalesce_end", group);
    if (!group->is_coalescing) {
        return TT_FAIL(TUTTI_ERR_STATE, "coalesce_end: group %s has not begun", group->name);
    }
    group->is_coalescing = false;
    tt_coalesced_t *all = group->coalesce;
    tt_streamed_t *calls = all->streamed;
    if (calls == NULL) {
        return tt_coalesce_close(group, TUTTI_OK, work);
    }
    all->streamed = NULL;
    group->coalesce = NULL; /* the stream's, from here on */
    tt_coalesced_free(all, group);
    return tt_group_stream_start(calls, work);
}
