/* Going on without the ranks that are gone: revoke, agree, shrink.
 *
 *     revoke   the group is aborted, so that no rank stays in a call of it
 *     agree    the survivors meet in the store (group_meet.c): those that come by the deadline, or
 *              by the time that all others are known to be dead, are the new group, on all of them
 *     shrink   a group of these ranks, at the next epoch: what is left of the old one, on the
 *              wires or in a rank that was only slow, does not match it
 *     stand    they meet again when they have it: all of them use it, or none
 *
 * When another rank dies before the new group stands, the survivors agree again, at one epoch more.
 * An attempt counts as made when its last verdict is known here: a rank whose store failed it in
 * between repeats the attempt, and hears what the others did. So one epoch has one set of members.
 * A group that has shrunk does not shrink again: the new one's next epoch would be the same.
 * The store must outlive the dead: the launcher's does. Source: ULFM (Bland et al., 2013).
 */
#include <stdio.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"

enum { TIMEOUT_MS_DEFAULT = 10000, ATTEMPTS_MAX = 4, NAME_BYTES = 240 };

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

/* "world@2" of "world" or "world@1"; but "world@1[0-3]@2" of "world@1[0-3]": it is not the group of
 * that name that "world@1" shrinks to. */
static void write_name(const tutti_group_t *group, uint32_t epoch, char name[NAME_BYTES])
{
    const char *at = strrchr(group->name, '@');
    const bool is_shrunk = at != NULL && at[1 + strspn(at + 1, "0123456789")] == 0;
    const int length = is_shrunk ? (int)(at - group->name) : (int)strlen(group->name);
    snprintf(name, NAME_BYTES, "%.*s@%u", length < 200 ? length : 200, group->name, epoch);
}

/* The ranks that came; this one is among them, or has come too late. */
static tutti_status_t list_ranks(const tutti_group_t *group, const bool *came, int *ranks,
                                 tt_group_options_t *plan)
{
    char text[256];
    plan->rank = -1;
    for (int i = 0; i < group->size; i++) {
        if (came[i]) {
            plan->rank = i == group->rank ? plan->size : plan->rank;
            ranks[plan->size++] = i;
        }
    }
    if (plan->rank < 0) {
        tt_ranks_print(came, true, group->size, text, sizeof text);
        return TT_FAIL(TUTTI_ERR_PEER,
                       "group_shrink of %s: rank %d came too late; ranks %s went on without it",
                       group->name, group->rank, text);
    }
    return TUTTI_OK;
}

/* Whether all have the new group: the same on all ranks, and what the meeting finds. A rank that
 * has not (`made` is its failure) says so. Errors: those of the store; and `made`, when the others
 * went on before it failed here. */
static tutti_status_t stand(tt_meet_t *meet, tutti_status_t made, bool *came)
{
    char cause[TT_ERROR_TEXT_BYTES];
    snprintf(cause, sizeof cause, "%s", made < 0 ? tutti_last_error() : "");
    meet->mine = made;
    TT_TRY(tt_group_meet(meet, TT_MEET_STAND, came));
    return made < 0 && meet->is_complete ? tt_fail_again(made, cause) : TUTTI_OK;
}

/* The survivors have agreed on who they are. PENDING: not all have the new group, so none has. */
static tutti_status_t form(const tt_group_options_t *plan, int64_t timeout_ms, bool *came,
                           tutti_group_t **out)
{
    tutti_group_t *made = NULL;
    tt_meet_t meet = {.group = plan->parent,
                      .store = plan->store,
                      .ranks = plan->ranks,
                      .rank = plan->rank,
                      .size = plan->size,
                      .timeout_ms = timeout_ms};
    const tutti_status_t status = stand(&meet, tt_group_create(plan, &made), came);
    if (status < 0 || !meet.is_complete) {
        tutti_group_release(made);
        return status < 0 ? status : TUTTI_PENDING;
    }
    *out = made;
    return TUTTI_OK;
}

/* One attempt: agree, and form the group. PENDING: it does not stand; the next attempt may. */
static tutti_status_t attempt(tutti_group_t *group, int64_t timeout_ms, bool *came, int *ranks,
                              tutti_group_t **out)
{
    char place[40], name[NAME_BYTES];
    const uint64_t number = group->shrinks + 1;
    tt_meet_t meet = {.group = group,
                      .store = group->store,
                      .rank = group->rank,
                      .size = group->size,
                      .timeout_ms = timeout_ms};
    tt_group_options_t plan = {.parent = group,
                               .name = name,
                               .ranks = ranks,
                               .epoch = group->epoch + (uint32_t)number,
                               .outlives = true,
                               .timeout_ms = group->timeout_ms};
    write_name(group, plan.epoch, name);
    snprintf(place, sizeof place, "shrink/%llu", (unsigned long long)number);
    TT_TRY(tutti_store_prefix(group->store, tutti_text(place), &plan.store));
    tutti_status_t status = tt_group_meet(&meet, place, came);
    if (status >= 0) {
        status = list_ranks(group, came, ranks, &plan);
        status = status < 0 ? status : form(&plan, timeout_ms, came, out);
        group->shrinks += status >= 0;
        group->shrunk_to = status == TUTTI_OK ? plan.epoch : 0;
    } else {
        status = explain(group, status);
    }
    tutti_store_release(plan.store);
    return status;
}

static tutti_status_t check_shrink(const tutti_group_t *group, int64_t timeout_ms)
{
    TT_TRY(tt_group_check_callable(group, "group_shrink"));
    TT_TRY(tt_group_check_timeout("group_shrink", timeout_ms, "0 means 10 s"));
    if (group->shrunk_to > 0) {
        char name[NAME_BYTES];
        write_name(group, group->shrunk_to, name);
        return TT_FAIL(TUTTI_ERR_STATE,
                       "group_shrink of %s: rank %d has shrunk it to %s already; shrink that group",
                       group->name, group->rank, name);
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
    TT_WANT("group_shrink", group);
    TT_WANT("group_shrink", out);
    const int64_t wanted_ms = options != NULL ? options->timeout_ms : 0;
    const int64_t timeout_ms = wanted_ms > 0 ? wanted_ms : TIMEOUT_MS_DEFAULT;
    TT_TRY(check_shrink(group, wanted_ms));
    tutti_group_abort(group); /* calls on devices end, too */
    TT_TRY(tt_group_settle(group));
    bool *came = tt_alloc_array((size_t)group->size, sizeof *came, "ranks that came");
    int *ranks = tt_alloc_array((size_t)group->size, sizeof *ranks, "ranks");
    tutti_status_t status = came != NULL && ranks != NULL ? TUTTI_PENDING : TUTTI_ERR_NOMEM;
    for (int i = 0; status == TUTTI_PENDING && i < ATTEMPTS_MAX; i++) {
        status = attempt(group, timeout_ms, came, ranks, out);
    }
    tt_free(came);
    tt_free(ranks);
    return status != TUTTI_PENDING
               ? status
               : TT_FAIL(TUTTI_ERR_PEER,
                         "group_shrink of %s: in each of %d attempts a rank was lost before the "
                         "new group stood",
                         group->name, ATTEMPTS_MAX);
}
