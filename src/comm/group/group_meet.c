/* Meeting in the store: ranks come, and all that came hear the same verdict on who was there.
 *
 *     came/<rank>   this rank has come (how often: it may have to come again when its store fails)
 *     count         how many have
 *     verdict       a letter for each rank: '1' it was there, '0' it was late, 'x' it is gone; or
 *                   "!<rank> <status> <text>", a rank has failed. Written once, by compare_set
 *
 * The last to come writes a verdict of ones. When the time is up first, or when all that have not
 * come are known to be gone, a rank that notices writes who is there; the first to write decides
 * for all, also for those that come later. So ranks never disagree on whether a meeting took place.
 * A rank that fails before it comes, or here, writes that as the verdict. When one stands already,
 * it takes that one: it may be that the others have met, and that it has nothing to do any more.
 *
 * Cost: three to four requests for each rank when all come; one more for each when some do not.
 * Source: the agreement of ULFM (MPI_Comm_agree), with the store as the arbiter.
 */
#include <stdio.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "comm/plan/plan_text.h"
#include "comm/store/store_ops.h"
#include "core/base/alloc.h"
#include "core/base/printable.h"

enum {
    KEY_BYTES = 40,
    BUSY_SLICE_MS = 2,
    WATCH_SLICE_MS = 10,
    HEED_SLICE_MS = 50,
    FAILURE_BYTES = TT_ERROR_TEXT_BYTES + 32
};

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
static tutti_status_t put_forward(const tt_meet_t *meet, tutti_bytes_t verdict, tutti_buffer_t *now)
{
    return tutti_store_compare_set(meet->store, tutti_text(TT_MEET_VERDICT), tutti_text(""),
                                   verdict, now);
}

static tutti_status_t decide(const tt_meet_t *meet, const bool *came, char missing)
{
    const size_t size = (size_t)meet->size;
    char *verdict = tt_alloc_raw(size, "verdict of a meeting");
    TT_TRY_ALLOC(verdict);
    for (size_t i = 0; i < size; i++) {
        verdict[i] = came[i] ? '1' : missing;
    }
    tutti_buffer_t now;
    const tutti_status_t status = put_forward(meet, tutti_bytes_of(verdict, size), &now);
    tt_free(verdict);
    if (status >= 0) {
        tutti_buffer_release(&now);
    }
    return status;
}

static bool take_letters(tt_meet_t *meet, tutti_bytes_t verdict, bool *came)
{
    if (verdict.bytes != (size_t)meet->size) {
        return false;
    }
    meet->is_complete = true;
    for (int i = 0; i < meet->size; i++) {
        const char letter = ((const char *)verdict.data)[i];
        if (came != NULL) {
            came[i] = letter == '1';
        }
        meet->is_complete = meet->is_complete && letter == '1';
        meet->has_lost = meet->has_lost || letter == 'x';
        meet->is_late = meet->is_late || (i == meet->rank && letter != '1');
    }
    return true;
}

static bool take_failure(tt_meet_t *meet, tutti_bytes_t verdict, bool *came)
{
    char text[FAILURE_BYTES];
    int status = 0, at = 0;
    if (verdict.bytes >= sizeof text) {
        return false;
    }
    memcpy(text, verdict.data, verdict.bytes);
    text[verdict.bytes] = 0;
    if (sscanf(text, "!%d %d %n", &meet->failed, &status, &at) != 2 || at == 0 || status >= 0 ||
        meet->failed < 0 || meet->failed >= meet->size) {
        return false;
    }
    meet->failure = (tutti_status_t)status;
    snprintf(meet->cause, sizeof meet->cause, "%s", text + at);
    tt_make_printable(meet->cause);
    if (came != NULL) {
        memset(came, false, (size_t)meet->size * sizeof *came);
    }
    return true;
}

static tutti_status_t take_verdict(tt_meet_t *meet, const tutti_buffer_t *got, bool *came)
{
    const tutti_bytes_t verdict = {got->data, got->bytes};
    const bool is_failure = verdict.bytes > 0 && *(const char *)verdict.data == '!';
    const bool is_good =
        is_failure ? take_failure(meet, verdict, came) : take_letters(meet, verdict, came);
    return is_good
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT, "store: a verdict that is none on %d ranks", meet->size);
}

static tutti_status_t read_verdict(tt_meet_t *meet, int64_t wait_ms, bool *came)
{
    tutti_buffer_t verdict;
    TT_TRY(tutti_store_get(meet->store, tutti_text(TT_MEET_VERDICT), wait_ms, &verdict));
    const tutti_status_t status = take_verdict(meet, &verdict, came);
    tutti_buffer_release(&verdict);
    return status;
}

/* The number in the group of a rank of the meeting. */
static int rank_in_group(const tt_meet_t *meet, int rank)
{
    return meet->ranks != NULL ? meet->ranks[rank] : meet->first + rank;
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

static tutti_status_t tell_failure(tt_meet_t *meet, tutti_status_t failure, const char *cause,
                                   bool *came)
{
    char text[FAILURE_BYTES];
    tutti_buffer_t now;
    snprintf(text, sizeof text, "!%d %d %s", meet->rank, (int)failure, cause);
    TT_TRY(put_forward(meet, tutti_text(text), &now));
    const tutti_status_t status = take_verdict(meet, &now, came);
    tutti_buffer_release(&now);
    return status;
}

/* With a `failure`: says so, and hears the verdict. A store that does not answer does not hold the
 * meeting up for longer than the ranks may. */
static tutti_status_t meet_at(tt_meet_t *meet, const char *place, tutti_status_t failure,
                              const char *cause, bool *came)
{
    tutti_store_t *const store = meet->store;
    TT_TRY(tutti_store_prefix(store, tutti_text(place), &meet->store));
    (void)tt_store_bound(meet->store, meet->timeout_ms);
    const tutti_status_t status =
        failure < 0 ? tell_failure(meet, failure, cause, came) : meet_others(meet, came);
    tutti_store_release(meet->store);
    meet->store = store;
    return status;
}

/* It may have been the lack of memory for a moment, after which the failure can be told. */
tutti_status_t tt_group_meet(tt_meet_t *meet, const char *place, bool *came)
{
    char cause[TT_ERROR_TEXT_BYTES];
    const tt_deadline_t deadline = tt_deadline_in_ms(meet->timeout_ms);
    meet->is_complete = meet->has_lost = meet->is_late = false;
    meet->failure = TUTTI_OK;
    snprintf(cause, sizeof cause, "%s", meet->mine < 0 ? tutti_last_error() : "");
    tutti_status_t status = meet_at(meet, place, meet->mine, cause, came);
    if (status >= 0 || !meet->heeds) {
        return status;
    }
    const tutti_status_t failure = meet->mine < 0 ? meet->mine : status;
    if (meet->mine >= 0) {
        snprintf(cause, sizeof cause, "%s", tutti_last_error());
    }
    if (!tt_deadline_is_past(deadline)) {
        status = meet_at(meet, place, failure, cause, came);
    }
    if (status < 0) {
        (void)tt_fail_again(failure, cause);
        tt_group_fail(meet->group, failure);
        return tt_fail_again(failure, cause);
    }
    return TUTTI_OK;
}

/* A rank has come, or has failed before it came. */
static tutti_status_t has_begun(tutti_store_t *store, bool *begun)
{
    const tutti_bytes_t count = tutti_text("count"), verdict = tutti_text(TT_MEET_VERDICT);
    TT_TRY(tutti_store_check(store, &count, 1, begun));
    return *begun ? TUTTI_OK : tutti_store_check(store, &verdict, 1, begun);
}

static tutti_status_t await_beginning(const tt_meet_t *meet, tutti_store_t *store, bool *begun)
{
    const tutti_bytes_t count = tutti_text("count");
    const tt_backend_ops_t *backend = meet->group->backend;
    const tt_deadline_t deadline = tt_deadline_in_ms(meet->timeout_ms);
    for (;;) {
        TT_TRY(has_begun(store, begun));
        if (*begun || meet->mine < 0 || tt_deadline_is_past(deadline)) {
            return TUTTI_OK;
        }
        tutti_group_progress(meet->group);
        TT_TRY(backend->status != NULL ? backend->status(meet->group->state) : TUTTI_OK);
        const tutti_status_t status = tutti_store_wait(store, &count, 1, slice_of(meet, deadline));
        TT_TRY(status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status);
    }
}

tutti_status_t tt_group_meet_has_begun(const tt_meet_t *meet, const char *place, bool *begun)
{
    tutti_store_t *store;
    TT_TRY(tutti_store_prefix(meet->store, tutti_text(place), &store));
    (void)tt_store_bound(store, meet->timeout_ms);
    const tutti_status_t status = await_beginning(meet, store, begun);
    tutti_store_release(store);
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
    if (meet->failure < 0) {
        return meet->failed == meet->rank ? tt_fail_again(meet->failure, meet->cause)
                                          : TT_FAIL(meet->failure, "%s: rank %d: %s", what,
                                                    rank_in_group(meet, meet->failed), meet->cause);
    }
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
    char cause[TT_ERROR_TEXT_BYTES];
    bool *came = tt_alloc_array((size_t)meet->size, sizeof *came, "ranks that came");
    meet->mine = meet->mine < 0 ? meet->mine : came == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    snprintf(cause, sizeof cause, "%s", meet->mine < 0 ? tutti_last_error() : "");
    tutti_status_t status = tt_group_meet(meet, place, came);
    if (status >= 0 && meet->failure >= 0 && meet->mine < 0) {
        status = tt_fail_again(meet->mine, cause); /* the verdict stood before that */
    } else if (status >= 0 && !meet->is_complete) {
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
