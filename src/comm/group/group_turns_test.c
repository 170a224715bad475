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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_slow_to_open_a_group_does_not_skip_the_next_turn),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
