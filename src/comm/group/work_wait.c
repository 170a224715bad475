/* Waiting for one of several works, or for all of them, whatever groups they are of.
 *
 * A backend waits for the works of one group. While works of other groups are under way, or other
 * groups of the family have calls, this waits for a slice of time in each group in turn, and moves
 * the whole family forward in between: ranks may wait in different order.
 */
#include "comm/group/group_impl.h"

enum { SLICE_NS = 100000 };

typedef struct {
    tutti_work_t *const *works; /* with NULLs */
    int count;
    bool passes_devices; /* works on devices are not waited for here */
    int64_t since_ns;    /* when this wait began */
    int turn;            /* the work in whose group this waits */
    const tt_op_t *op;   /* of this work, under way when the wait began */
} list_t;

static bool is_pending(const list_t *list, int i)
{
    tutti_work_t *work = list->works[i];
    return work != NULL && !(list->passes_devices && work->streamed != NULL) &&
           tt_work_is_pending(work);
}

/* The first work that is done, or the first that is not; -1: there is none. */
static int find(const list_t *list, bool is_done)
{
    int i = 0;
    while (i < list->count && (list->works[i] == NULL || is_pending(list, i) == is_done)) {
        i++;
    }
    return i < list->count ? i : -1;
}

static bool is_any_done(void *user)
{
    return find(user, true) >= 0;
}

static bool are_all_done(const list_t *list)
{
    return find(list, false) < 0;
}

static bool is_this_done(void *user)
{
    const list_t *list = user;
    return list->op->status != TUTTI_PENDING;
}

/* The deadlines of all of them count from now; of those whose family's stream is in a call, from
 * when it is done. */
static void begin_wait(const list_t *list)
{
    const int64_t now = tt_clock_ns();
    for (int i = 0; i < list->count; i++) {
        if (list->works[i] != NULL && tt_group_has_family(list->works[i]->group, 0)) {
            tt_work_begin_wait(list->works[i], now);
        }
    }
}

static bool is_of_one_group(const list_t *list, const tutti_group_t *group)
{
    int i = 0;
    while (i < list->count && (list->works[i] == NULL || list->works[i]->group == group)) {
        i++;
    }
    return i == list->count;
}

/* For a slice, until the stream of the group's family is not in a call. */
static tutti_status_t wait_for_stream(list_t *list, tutti_group_t *group)
{
    const tt_deadline_t deadline = tt_deadline_after(list->since_ns, group->timeout_ms);
    if (tt_deadline_is_past(deadline)) {
        return tt_group_settle_by(group, deadline);
    }
    if (tt_group_has_family(group, tt_clock_ns() + SLICE_NS)) {
        begin_wait(list);
    }
    return TUTTI_OK;
}

static tutti_status_t wait_for_slice(list_t *list, bool (*is_over)(void *user))
{
    tutti_work_t *work = list->works[list->turn];
    tutti_group_t *group = work->group;
    if (work->streamed != NULL) {
        (void)tt_event_pass(work->streamed->end, tt_clock_ns() + SLICE_NS);
        return TUTTI_OK;
    }
    if (!tt_group_has_family(group, 0)) {
        return wait_for_stream(list, group);
    }
    const bool is_alone = is_of_one_group(list, group) && !tt_group_is_family_waiting(group);
    const tt_until_t until = {tt_work_pending(work), is_over, list};
    list->op = until.op;
    group->backend->wait_until(group->state, &until,
                               is_alone ? TT_NEVER : tt_clock_ns() + SLICE_NS);
    tutti_group_progress(group);
    return TUTTI_OK;
}

/* Waits for a slice in the group of the next work that is under way. Errors: TIMEOUT, of calls on
 * devices in front of it. */
static tutti_status_t wait_in_turn(list_t *list, bool (*is_over)(void *user))
{
    do {
        list->turn = (list->turn + 1) % list->count;
    } while (!is_pending(list, list->turn));
    const bool is_profiled = tt_work_profile_wait(list->works[list->turn]);
    const tutti_status_t status = wait_for_slice(list, is_over);
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
    }
    return status;
}

static tutti_status_t check_list(const char *call, tutti_work_t *const *works, int count)
{
    if (count < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %d works", call, count);
    }
    if (count > 0) {
        TT_WANT(call, works);
    }
    for (int i = 0; i < count; i++) {
        if (works[i] != NULL) {
            TT_TRY(tt_group_check_forked(call, works[i]->group));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_work_wait_any(tutti_work_t *const *works, int count, int *index)
{
    list_t list = {.works = works, .count = count, .since_ns = tt_clock_ns(), .turn = -1};
    TT_TRY(check_list("work_wait_any", works, count));
    TT_WANT("work_wait_any", index);
    if (!is_any_done(&list) && are_all_done(&list)) { /* no work at all */
        *index = -1;
        return TUTTI_END;
    }
    if (!is_any_done(&list)) {
        begin_wait(&list);
    }
    tutti_status_t status = TUTTI_OK;
    while (status >= 0 && !is_any_done(&list)) {
        status = wait_in_turn(&list, is_any_done);
    }
    *index = status < 0 ? list.turn : find(&list, true);
    return status < 0 ? status : tt_work_outcome(works[*index]);
}

tutti_status_t tutti_work_wait_all(tutti_work_t *const *works, int count)
{
    list_t list = {.works = works,
                   .count = count,
                   .passes_devices = true,
                   .since_ns = tt_clock_ns(),
                   .turn = -1};
    TT_TRY(check_list("work_wait_all", works, count));
    for (int i = 0; i < count; i++) {
        if (works[i] != NULL && works[i]->streamed != NULL) {
            TT_TRY(tt_streamed_join(works[i]->streamed));
        }
    }
    if (!are_all_done(&list)) {
        begin_wait(&list);
    }
    while (!are_all_done(&list)) {
        TT_TRY(wait_in_turn(&list, is_this_done));
    }
    tutti_work_t *failed = NULL;
    for (int i = 0; i < count; i++) {
        if (works[i] != NULL && tt_work_outcome(works[i]) < 0 && failed == NULL) {
            failed = works[i];
        }
    }
    return failed != NULL ? tt_work_outcome(failed) : TUTTI_OK;
}
