/* Going on without the ranks that are gone: revoke, agree, shrink.
 *
 *     revoke   the group is aborted, so that nobody stays in a call of it
 *     agree    the survivors meet in the store (group_meet.c): those that come by the deadline, or
 *              by the time that all others are known to be dead, are the new group, on all of them
 *     shrink   a group of these ranks, at the next epoch: what is left of the old one, on the
 *              wires or in a rank that was only slow, does not match it
 *
 * When another rank dies before the new group stands, the survivors agree again, at one epoch more.
 * The store must outlive the dead: the launcher's does. Source: ULFM (Bland et al., 2013).
 */
#include <stdio.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"

enum { TIMEOUT_MS_DEFAULT = 10000, ATTEMPTS_MAX = 4, NAME_BYTES = 240 };

static bool is_gone(void *user, int rank)
{
    tutti_group_t *group = user;
    return group->backend->is_gone(group->state, rank);
}

static tutti_status_t explain(const tutti_group_t *group, tutti_status_t status)
{
    char cause[TT_ERROR_TEXT_BYTES / 2];
    if (status != TUTTI_ERR_PEER && status != TUTTI_ERR_IO) {
        return status;
    }
    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    return TT_FAIL(TUTTI_ERR_PEER,
                   "group_shrink of %s: its store is gone, maybe with the rank that served it; "
                   "under `tutti run` the launcher keeps it (%s)",
                   group->name, cause);
}

/* "world@2" of "world" or "world@1" */
static void write_name(const tutti_group_t *group, uint32_t epoch, char name[NAME_BYTES])
{
    const char *at = strrchr(group->name, '@');
    const int length = at != NULL ? (int)(at - group->name) : (int)strlen(group->name);
    snprintf(name, NAME_BYTES, "%.*s@%u", length < 200 ? length : 200, group->name, epoch);
}

static tutti_status_t form(tutti_group_t *group, tutti_store_t *store, const bool *came, int *ranks,
                           tutti_group_t **out)
{
    char name[NAME_BYTES], text[256];
    tt_group_plan_t plan = {.name = name,
                            .store = store,
                            .ranks = ranks,
                            .rank = -1,
                            .epoch = group->epoch + (uint32_t)group->shrinks,
                            .timeout_ms = group->timeout_ms};
    for (int i = 0; i < group->size; i++) {
        if (came[i]) {
            plan.rank = i == group->rank ? plan.count : plan.rank;
            ranks[plan.count++] = i;
        }
    }
    if (plan.rank < 0) {
        tt_ranks_print(came, true, group->size, text, sizeof text);
        return TT_FAIL(TUTTI_ERR_PEER,
                       "group_shrink of %s: rank %d came too late; ranks %s went on without it",
                       group->name, group->rank, text);
    }
    write_name(group, plan.epoch, name);
    return tt_group_make(group, &plan, out);
}

/* One attempt: agree, and form the group. *is_agreed tells how far it came. */
static tutti_status_t attempt(tutti_group_t *group, int64_t timeout_ms, bool *came, int *ranks,
                              bool *is_agreed, tutti_group_t **out)
{
    char prefix[40];
    tutti_store_t *store;
    bool all;
    *is_agreed = false;
    snprintf(prefix, sizeof prefix, "shrink/%llu", (unsigned long long)++group->shrinks);
    TT_TRY(tutti_store_prefix(group->store, tutti_text(prefix), &store));
    const tt_meet_t meet = {.family = group,
                            .store = store,
                            .rank = group->rank,
                            .size = group->size,
                            .timeout_ms = timeout_ms,
                            .is_gone = is_gone,
                            .user = group};
    tutti_status_t status = tt_group_meet(&meet, came, &all);
    if (status >= 0) {
        *is_agreed = came[group->rank];
        status = form(group, store, came, ranks, out);
    } else {
        status = explain(group, status);
    }
    tutti_store_release(store);
    return status;
}

static tutti_status_t check_shrink(const tutti_group_t *group,
                                   const tutti_shrink_options_t *options)
{
    TT_TRY(tt_group_check_free(group, "group_shrink"));
    if (options != NULL && options->timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "group_shrink: timeout_ms is %lld; 0 means 10 s",
                       (long long)options->timeout_ms);
    }
    if (group->backend->is_gone == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "group_shrink of %s: backend %s does not outlive its ranks", group->name,
                       group->backend->name);
    }
    if (group->store == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "group_shrink of %s: it has no store, where survivors could agree",
                       group->name);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_group_shrink(tutti_group_t *group, const tutti_shrink_options_t *options,
                                  tutti_group_t **out)
{
    TT_TRY(check_shrink(group, options));
    const int64_t timeout_ms =
        options != NULL && options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT;
    tutti_group_abort(group);
    bool *came = tt_alloc_array((size_t)group->size, sizeof *came, "ranks that came");
    int *ranks = tt_alloc_array((size_t)group->size, sizeof *ranks, "ranks");
    tutti_status_t status = TUTTI_ERR_NOMEM;
    bool is_agreed = came != NULL && ranks != NULL;
    for (int i = 0; is_agreed && status < 0 && i < ATTEMPTS_MAX; i++) {
        status = attempt(group, timeout_ms, came, ranks, &is_agreed, out);
    }
    tt_free(came);
    tt_free(ranks);
    return status;
}
