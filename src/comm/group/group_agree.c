/* Agreeing on whether all ranks go on: the lowest rank that failed is found by a minimum, and says
 * why. Behind the ranks of the group there are two numbers more: one wants another turn, and all
 * is well.
 *
 * Cost: an all_reduce of 8 bytes; after a failure a broadcast of its text; hearing the first rank a
 * broadcast. Allocates nothing here, for memory may be what is short.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "core/base/printable.h"

typedef struct {
    int64_t status;
    char text[TT_ERROR_TEXT_BYTES];
} failure_t;

/* The lowest rank's, and whose it is; if none failed the size, or one more if none wants to come
 * again. */
static tutti_status_t share(tutti_group_t *group, failure_t *failure, bool again, const void *site,
                            int64_t *lowest)
{
    const tt_call_t find = {.collective = TT_ALL_REDUCE,
                            .reduction = TUTTI_MIN,
                            .dtype = TUTTI_I64,
                            .count = 1,
                            .site = site};
    *lowest = failure->status < 0 ? group->rank : (int64_t)group->size + !again;
    TT_TRY(tt_group_call_plain(group, &find, tutti_bytes_of(lowest, sizeof *lowest),
                               (tutti_buffer_t){lowest, sizeof *lowest}));
    if (*lowest >= group->size) {
        return TUTTI_OK;
    }
    const tt_call_t tell = {.collective = TT_BROADCAST,
                            .dtype = TUTTI_U8,
                            .count = sizeof *failure,
                            .root = (int)*lowest,
                            .site = site};
    return tt_group_call_plain(group, &tell, tutti_bytes_of(failure, sizeof *failure),
                               (tutti_buffer_t){failure, sizeof *failure});
}

/* What the lowest rank wrote is bytes to those who read it. */
static tutti_status_t fail_as(failure_t *heard, int64_t rank)
{
    const bool is_status = heard->status < 0 && heard->status >= INT_MIN;
    heard->text[sizeof heard->text - 1] = 0;
    tt_make_printable(heard->text);
    return is_status ? TT_FAIL((tutti_status_t)heard->status, "rank %lld: %s", (long long)rank,
                               heard->text)
                     : TT_FAIL(TUTTI_ERR_FORMAT, "rank %lld failed with status %lld, which is none",
                               (long long)rank, (long long)heard->status);
}

static tutti_status_t agree_at(tutti_group_t *group, tutti_status_t mine, bool *again,
                               const void *site)
{
    failure_t failure = {.status = mine};
    int64_t lowest;
    if (tutti_group_size(group) <= 1) {
        return mine;
    }
    snprintf(failure.text, sizeof failure.text, "%s", mine < 0 ? tutti_last_error() : "");
    const failure_t own = failure;
    const tutti_status_t status = share(group, &failure, *again, site, &lowest);
    if (status < 0) {
        (void)tt_group_give_up(group, status);
        return mine < 0 ? tt_fail_again(mine, own.text) : status;
    }
    if (lowest >= group->size) {
        *again = lowest == group->size;
        return TUTTI_OK;
    }
    return lowest == group->rank ? tt_fail_again(mine, own.text) : fail_as(&failure, lowest);
}

tutti_status_t tt_group_agree(tutti_group_t *group, tutti_status_t mine)
{
    bool again = false;
    return agree_at(group, mine, &again, __builtin_return_address(0));
}

tutti_status_t tt_group_agree_again(tutti_group_t *group, tutti_status_t mine, bool *again)
{
    return agree_at(group, mine, again, __builtin_return_address(0));
}

tutti_status_t tt_group_agree_at(tutti_group_t *group, tutti_status_t mine, const void *site)
{
    bool again = false;
    return agree_at(group, mine, &again, site);
}

tutti_status_t tt_group_hear_first(tutti_group_t *group, const void *mine, size_t bytes,
                                   void *first)
{
    memcpy(first, mine, bytes);
    if (tutti_group_size(group) <= 1) {
        return TUTTI_OK;
    }
    const tt_call_t tell = {.collective = TT_BROADCAST,
                            .dtype = TUTTI_U8,
                            .count = bytes,
                            .site = __builtin_return_address(0)};
    const tutti_status_t status = tt_group_call_plain(group, &tell, tutti_bytes_of(first, bytes),
                                                      (tutti_buffer_t){first, bytes});
    return status < 0 ? tt_group_give_up(group, status) : TUTTI_OK;
}

static bool is_one_gone(tutti_group_t *group)
{
    const tt_backend_ops_t *backend = group->backend;
    int rank = 0;
    while (backend->is_gone != NULL && rank < group->size &&
           (rank == group->rank || !backend->is_gone(group->state, rank))) {
        rank++;
    }
    return backend->is_gone != NULL && rank < group->size;
}

/* Nobody else can be gone from a group of one, or from one that is not of this process. */
static bool has_others(const tutti_group_t *group)
{
    return tutti_group_size(group) > 1 && !tt_group_is_forked(group) &&
           tt_group_has_family(group, 0);
}

tutti_status_t tt_group_check(tutti_group_t *group)
{
    if (!has_others(group)) {
        return TUTTI_OK;
    }
    const tt_backend_ops_t *backend = group->backend;
    tutti_group_progress(group);
    TT_TRY(backend->status != NULL ? backend->status(group->state) : TUTTI_OK);
    for (int rank = 0; rank < group->size && backend->is_gone != NULL; rank++) {
        if (rank != group->rank && backend->is_gone(group->state, rank)) {
            return TT_FAIL(TUTTI_ERR_PEER, "rank %d of group %s died", rank,
                           tutti_group_name(group));
        }
    }
    return TUTTI_OK;
}

bool tt_group_is_broken(tutti_group_t *group)
{
    if (!has_others(group)) {
        return false;
    }
    tutti_group_progress(group);
    return (group->backend->status != NULL && group->backend->status(group->state) < 0) ||
           is_one_gone(group);
}
