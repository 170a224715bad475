/* Meeting in the store: ranks come, and all that came hear the same verdict on who was there.
 *
 *     came/<rank>   this rank has come (how often: it may have to come again when its store fails)
 *     count         how many have
 *     verdict       a letter for each rank: '1' it was there, '0' it was late, 'x' it is gone;
 *                   written once, by compare_set
 *
 * The last to come writes a verdict of ones. When the time is up first, or when all that have not
 * come are known to be gone, a rank that notices writes who is there; the first to write decides
 * for all, also for those that come later. So ranks never disagree on whether a meeting took place.
 *
 * Cost: three requests for each rank when all come; one more for each rank when some do not.
 * Source: the agreement of ULFM (MPI_Comm_agree), with the store as the arbiter.
 */
#include <stdio.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "comm/plan/plan_text.h"
#include "comm/store/store_ops.h"
#include "core/base/alloc.h"

enum { KEY_BYTES = 40, BUSY_SLICE_MS = 2, WATCH_SLICE_MS = 10, HEED_SLICE_MS = 50 };

static tutti_bytes_t key_of(char key[KEY_BYTES], int rank)
{
    snprintf(key, KEY_BYTES, "came/%d", rank);
    return tutti_text(key);
}

static tutti_status_t has_come(const tt_meet_t *meet, int rank, bool *come)
{
    char key[KEY_BYTES];
    const tutti_bytes_t wanted = key_of(key, rank);
    return tutti_store_check(meet->store, &wanted, 1, come);
}

static tutti_status_t look_who_came(const tt_meet_t *meet, bool *came)
{
    for (int rank = 0; rank < meet->size; rank++) {
        TT_TRY(has_come(meet, rank, &came[rank]));
    }
    return TUTTI_OK;
}

/* Put a verdict forward: `missing` is the letter of those that have not come. */
static tutti_status_t decide(const tt_meet_t *meet, const bool *came, char missing)
{
    const size_t size = (size_t)meet->size;
    char *verdict = tt_alloc_raw(size, "verdict of a meeting");
    TT_TRY_ALLOC(verdict);
    for (size_t i = 0; i < size; i++) {
        verdict[i] = came[i] ? '1' : missing;
    }
    tutti_buffer_t now;
    const tutti_status_t status = tutti_store_compare_set(
        meet->store, tutti_text("verdict"), tutti_text(""), tutti_bytes_of(verdict, size), &now);
    tt_free(verdict);
    if (status >= 0) {
        tutti_buffer_release(&now);
    }
    return status;
}

static tutti_status_t read_verdict(tt_meet_t *meet, int64_t wait_ms, bool *came)
{
    tutti_buffer_t verdict;
    TT_TRY(tutti_store_get(meet->store, tutti_text("verdict"), wait_ms, &verdict));
    const bool fits = verdict.bytes == (size_t)meet->size;
    meet->is_complete = fits;
    for (int i = 0; fits && i < meet->size; i++) {
        const char letter = ((const char *)verdict.data)[i];
        came[i] = letter == '1';
        meet->is_complete = meet->is_complete && came[i];
        meet->has_lost = meet->has_lost || letter == 'x';
    }
    tutti_buffer_release(&verdict);
    return fits ? TUTTI_OK
                : TT_FAIL(TUTTI_ERR_FORMAT, "store: a verdict on other than %d ranks", meet->size);
}

/* The number in the group of a rank of the meeting. */
static int rank_in_group(const tt_meet_t *meet, int rank)
{
    return meet->ranks != NULL ? meet->ranks[rank] : rank;
}

static bool is_gone(const tt_meet_t *meet, int rank)
{
    const tt_backend_ops_t *backend = meet->group->backend;
    return backend->is_gone != NULL &&
           backend->is_gone(meet->group->state, rank_in_group(meet, rank));
}

/* All that have not come are gone. */
static tutti_status_t check_gone(const tt_meet_t *meet, bool *came, bool *is_over)
{
    bool some_gone = false;
    *is_over = false;
    for (int rank = 0; rank < meet->size; rank++) {
        if (!came[rank]) {
            TT_TRY(has_come(meet, rank, &came[rank]));
        }
        if (!came[rank] && !is_gone(meet, rank)) {
            return TUTTI_OK;
        }
        some_gone = some_gone || !came[rank];
    }
    *is_over = some_gone;
    return TUTTI_OK;
}

static tutti_status_t enter(const tt_meet_t *meet, bool *came)
{
    char key[KEY_BYTES];
    int64_t count;
    TT_TRY(tutti_store_add(meet->store, key_of(key, meet->rank), 1, &count));
    if (count > 1) { /* whether it was counted the first time is not known */
        return TUTTI_OK;
    }
    TT_TRY(tutti_store_add(meet->store, tutti_text("count"), 1, &count));
    if (count < meet->size) {
        return TUTTI_OK;
    }
    memset(came, true, (size_t)meet->size * sizeof *came);
    return decide(meet, came, '0');
}

/* How long to wait before looking around. */
static int64_t slice_of(const tt_meet_t *meet, tt_deadline_t deadline)
{
    int64_t slice_ms = tt_deadline_timeout_ms(deadline);
    const int64_t watch_ms = meet->heeds ? HEED_SLICE_MS : WATCH_SLICE_MS;
    if (slice_ms > watch_ms) {
        slice_ms = watch_ms;
    }
    if (tt_group_is_family_busy(meet->group) && slice_ms > BUSY_SLICE_MS) {
        slice_ms = BUSY_SLICE_MS;
    }
    return slice_ms;
}

static tutti_status_t await_verdict(tt_meet_t *meet, tt_deadline_t deadline, bool *came)
{
    tutti_group_t *group = meet->group;
    memset(came, false, (size_t)meet->size * sizeof *came);
    for (;;) {
        const tutti_status_t status = read_verdict(meet, slice_of(meet, deadline), came);
        if (status != TUTTI_ERR_TIMEOUT) {
            return status;
        }
        tutti_group_progress(group);
        if (meet->heeds && group->backend->status != NULL) {
            TT_TRY(group->backend->status(group->state));
        }
        const bool is_late = tt_deadline_is_past(deadline);
        bool is_over = is_late;
        if (is_late) {
            TT_TRY(look_who_came(meet, came));
        } else {
            TT_TRY(check_gone(meet, came, &is_over));
        }
        if (is_over) {
            TT_TRY(decide(meet, came, is_late ? '0' : 'x'));
            deadline = tt_deadline_in_ms(WATCH_SLICE_MS); /* it stands there now */
        }
    }
}

static tutti_status_t meet_others(tt_meet_t *meet, bool *came)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(meet->timeout_ms);
    TT_TRY(enter(meet, came));
    TT_TRY(await_verdict(meet, deadline, came));
    if (meet->is_complete) { /* it is not asked any more who came */
        char key[KEY_BYTES];
        TT_TRY(tutti_store_delete(meet->store, key_of(key, meet->rank), NULL));
    }
    return TUTTI_OK;
}

static tutti_status_t stay_away(tt_meet_t *meet, bool *came)
{
    memset(came, false, (size_t)meet->size * sizeof *came);
    TT_TRY(decide(meet, came, '0'));
    return read_verdict(meet, meet->timeout_ms, came);
}

/* A store that does not answer does not hold the meeting up for longer than the ranks may. */
tutti_status_t tt_group_meet(tt_meet_t *meet, const char *place, bool *came)
{
    tutti_store_t *const store = meet->store;
    meet->is_complete = meet->has_lost = false;
    TT_TRY(tutti_store_prefix(store, tutti_text(place), &meet->store));
    (void)tt_store_bound(meet->store, meet->timeout_ms);
    const tutti_status_t status = meet->is_away ? stay_away(meet, came) : meet_others(meet, came);
    tutti_store_release(meet->store);
    meet->store = store;
    return status;
}

void tt_ranks_print(const bool *chosen, bool value, int size, char *text, size_t bytes)
{
    enum { NAMED_MAX = 16 };
    tt_plan_text_t out = {text, bytes, 0};
    int count = 0;
    text[0] = 0;
    for (int i = 0; i < size; i++) {
        if (chosen[i] == value && count++ < NAMED_MAX) {
            tt_plan_put(&out, "%s%d", count > 1 ? ", " : "", i);
        }
    }
    if (count > NAMED_MAX) {
        tt_plan_put(&out, " and %d more", count - NAMED_MAX);
    }
}

/* ---- all of them, or an error ---- */

/* TIMEOUT, or PEER if they are gone: who has not come. */
static tutti_status_t name_missing(const tt_meet_t *meet, const char *what, const bool *came)
{
    const tutti_group_t *group = meet->group;
    char text[256];
    bool *is_here = tt_alloc_array((size_t)group->size, sizeof *is_here, "ranks");
    TT_TRY_ALLOC(is_here);
    memset(is_here, true, (size_t)group->size * sizeof *is_here);
    for (int i = 0; i < meet->size; i++) {
        is_here[rank_in_group(meet, i)] = came[i];
    }
    tt_ranks_print(is_here, false, group->size, text, sizeof text);
    tt_free(is_here);
    return meet->has_lost ? TT_FAIL(TUTTI_ERR_PEER, "%s: these ranks of group %s died or left: %s",
                                    what, group->name, text)
                          : TT_FAIL(TUTTI_ERR_TIMEOUT,
                                    "%s: these ranks of group %s did not come within %lld ms: %s",
                                    what, group->name, (long long)meet->timeout_ms, text);
}

tutti_status_t tt_group_meet_all(tt_meet_t *meet, const char *place, const char *what)
{
    bool *came = tt_alloc_array((size_t)meet->size, sizeof *came, "ranks that came");
    TT_TRY_ALLOC(came);
    tutti_status_t status = tt_group_meet(meet, place, came);
    if (status >= 0 && !meet->is_complete) {
        status = name_missing(meet, what, came);
    }
    tt_free(came);
    return status;
}

/* ---- the monitored barrier ---- */

static tutti_status_t meet_at_barrier(tutti_group_t *group, int64_t timeout_ms)
{
    char place[KEY_BYTES], what[40];
    tt_meet_t meet = {.group = group,
                      .store = group->store,
                      .rank = group->rank,
                      .size = group->size,
                      .timeout_ms = timeout_ms,
                      .heeds = true};
    const unsigned long long number = ++group->barriers;
    snprintf(place, sizeof place, "barrier/%llu", number);
    snprintf(what, sizeof what, "monitored_barrier #%llu", number);
    return tt_group_meet_all(&meet, place, what);
}

tutti_status_t tutti_monitored_barrier(tutti_group_t *group, int64_t timeout_ms)
{
    TT_WANT("monitored_barrier", group);
    TT_TRY(tt_group_check_free(group, "monitored_barrier"));
    TT_TRY(tt_group_check_timeout("monitored_barrier", timeout_ms, "0 means the group's"));
    if (group->size > 1 && group->store == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "monitored_barrier: group %s has no store, where ranks could meet",
                       group->name);
    }
    if (group->size > 1) {
        TT_TRY(meet_at_barrier(group, timeout_ms > 0 ? timeout_ms : group->timeout_ms));
    }
    /* No rank goes on, and takes the store away, before all have read the verdict. */
    return tutti_barrier(group, NULL);
}
