/* Turns: what one rank has wrong, or does late, while it makes a group must not part it from the
 * others, which count the groups of a list as it does. */
#include "core/base/testing.h"

#include "comm/backend/backend.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

enum { RANKS = 3 };

static const tutti_group_options_t soon = {.timeout_ms = 300};

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

/* A list that is wrong here alone, or on all ranks: who gives it cannot know. */
static void refuse_list(tt_member_t *m)
{
    static const int wrong[] = {0, 1, 1};
    tutti_group_t *group;
    TT_EXPECT(m, tutti_group_new(m->group, wrong, 3, NULL, &group) == TUTTI_ERR_ARG);
}

static void expect_late(tt_member_t *m)
{
    tutti_group_t *group;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &soon, &group) == TUTTI_ERR_TIMEOUT);
    TT_EXPECT(m, says("these ranks of group world did not come within 300 ms: 1"));
}

/* All ranks make groups in the same turns. */
static void expect_together(tt_member_t *m)
{
    for (int i = 0; i < 2; i++) {
        tutti_group_t *group;
        const tutti_status_t status = tutti_group_new(m->group, NULL, 0, NULL, &group);
        TT_EXPECT(m, status == TUTTI_OK);
        if (status == TUTTI_OK) {
            TT_EXPECT(m, tutti_barrier(group, NULL) == TUTTI_OK);
            tutti_group_release(group);
        }
    }
}

/* ---- slow ------------------------------------------------------------------------------------ */

static _Thread_local tt_member_t *slow;
static const tt_backend_ops_t *slow_backend;

/* The others have waited for this rank in vain. */
static tutti_status_t open_slowly(void *state, const tt_backend_options_t *options)
{
    const tutti_status_t status = slow_backend->open(state, options);
    tt_member_await(slow, RANKS - 1);
    return status;
}

static void open_late(tt_member_t *m)
{
    static tt_backend_ops_t backend;
    if (m->rank == 1) {
        refuse_list(m);
        slow = m;
        slow_backend = m->group->backend;
        backend = *slow_backend;
        backend.open = open_slowly;
        m->group->backend = &backend;
    }
    pthread_barrier_wait(m->start); /* all come in time */
    expect_late(m);
    if (m->rank == 1) {
        m->group->backend = slow_backend;
    } else {
        tt_member_tell(m);
    }
    expect_together(m);
}

static void a_rank_that_is_slow_to_open_a_group_does_not_skip_the_next_turn(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 10000, open_late, NULL);
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* Rank 1 is late; nobody has waited for it because of its wrong list, and nobody comes. */
static void come_late(tt_member_t *m)
{
    if (m->rank == 1) {
        refuse_list(m);
        tt_member_await(m, RANKS - 1);
        expect_late(m);
        tt_member_tell(m);
    } else {
        expect_late(m);
        tt_member_tell(m);
        tt_member_await(m, RANKS);
    }
    expect_together(m);
}

static void a_rank_that_went_ahead_alone_does_not_part_the_ranks_for_ever(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 10000, come_late, NULL);
}

/* ---- what does not count --------------------------------------------------------------------- */

static void give_wrong_size(tt_member_t *m)
{
    tutti_group_t *group;
    TT_EXPECT(m, tutti_group_subgroups(m->group, 2, &group) == TUTTI_ERR_ARG);
}

static void call_inside(tt_member_t *m)
{
    tutti_group_t *group;
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_ERR_STATE);
    TT_EXPECT(m, tutti_group_subgroups(m->group, RANKS, &group) == TUTTI_ERR_STATE);
    TT_EXPECT(m, tutti_coalesce_end(m->group, NULL) == TUTTI_OK);
}

typedef struct {
    void (*refuse)(tt_member_t *m); /* as often as the others wait */
    int times;
} refusal_t;

static void refuse_alone(tt_member_t *m)
{
    const refusal_t *refusal = m->user;
    for (int i = 0; i < refusal->times && m->rank != 1; i++) {
        expect_late(m);
    }
    if (m->rank == 1) {
        refusal->refuse(m);
        tt_member_await(m, RANKS - 1);
    } else {
        tt_member_tell(m);
    }
    expect_together(m);
}

static void what_is_refused_on_one_rank_does_not_part_the_ranks(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 10000, refuse_alone, &(refusal_t){refuse_list, 1});
    tt_team_expect(RANKS, 10000, refuse_alone, &(refusal_t){give_wrong_size, 1});
    tt_team_expect(RANKS, 10000, refuse_alone, &(refusal_t){call_inside, 2});
}

/* Rank 1 has a wrong list where rank 0 has something wrong, too, and tells the others. It hears of
 * that in its next call, in which they wait for it; then all count alike. */
static void fail_beside(tt_member_t *m)
{
    tutti_group_t *group;
    const tutti_group_options_t negative = {.timeout_ms = -1};
    if (m->rank == 1) {
        refuse_list(m);
        tt_member_await(m, RANKS - 1);
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_ERR_ARG);
        TT_EXPECT(m, says("rank 0: group_new: timeout_ms is -1"));
        tt_member_await(m, 2 * (RANKS - 1));
    } else {
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, m->rank == 0 ? &negative : NULL, &group) ==
                         TUTTI_ERR_ARG);
        tt_member_tell(m);
        expect_late(m);
        tt_member_tell(m);
    }
    expect_together(m);
}

static void another_ranks_failure_does_not_make_turns_alike(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 10000, fail_beside, NULL);
}

/* ---- what following ends with ---------------------------------------------------------------- */

/* The others have waited for rank 1 so often, in calls that are behind them, and make the next. */
static void be_late(tt_member_t *m, int times)
{
    for (int i = 0; i < times && m->rank != 1; i++) {
        expect_late(m);
    }
    if (m->rank == 1) {
        tt_member_await(m, RANKS - 1);
        expect_late(m);
    } else {
        tt_member_tell(m);
    }
    expect_together(m);
}

/* It has not made one of two calls at all. */
static void follow_twice(tt_member_t *m)
{
    if (m->rank == 1) {
        refuse_list(m);
    }
    be_late(m, 2);
}

/* All count alike, so that it is just late. */
static void follow_behind_a_group(tt_member_t *m)
{
    if (m->rank == 1) {
        refuse_list(m);
    }
    expect_together(m);
    be_late(m, 1);
}

static void a_rank_follows_once_for_each_wrong_list_and_not_behind_a_group(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 10000, follow_twice, NULL);
    tt_team_expect(RANKS, 10000, follow_behind_a_group, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_slow_to_open_a_group_does_not_skip_the_next_turn),
        cmocka_unit_test(a_rank_that_went_ahead_alone_does_not_part_the_ranks_for_ever),
        cmocka_unit_test(what_is_refused_on_one_rank_does_not_part_the_ranks),
        cmocka_unit_test(another_ranks_failure_does_not_make_turns_alike),
        cmocka_unit_test(a_rank_follows_once_for_each_wrong_list_and_not_behind_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
