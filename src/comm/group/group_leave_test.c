/* A rank that leaves or aborts a group tells those who come to it later: over shared memory and
 * over tcp, in a group that nobody has used yet, in calls, messages and meetings. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/clock.h"

enum { TIMEOUT_MS = 20000, SOON_MS = 3000 };

static void run_everywhere(int size, void (*body)(tt_member_t *))
{
    static const char *const wires[] = {"auto", "tcp"};
    for (int i = 0; i < 2; i++) {
        setenv("TUTTI_WIRES", wires[i], 1);
        setenv("TUTTI_PROTECT", "off", 1); /* no launcher has made a key */
        const int64_t start_ns = tt_clock_ns();
        const tt_team_result_t result = tt_team_run(size, TIMEOUT_MS, body, NULL);
        if (result.text[0] != 0) {
            fail_msg("%s: %s", wires[i], result.text);
        }
        assert_int_equal(tt_alloc_stats().blocks, 0);
        assert_true(tt_clock_ns() - start_ns < SOON_MS * TT_NS_PER_MS);
    }
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

/* A group of all, which rank 0 leaves at once; then `use` what is left of it. */
static void leave_unused(tt_member_t *m, void (*use)(tt_member_t *m, tutti_group_t *group))
{
    tutti_group_t *group = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    if (m->rank == 0) {
        tutti_group_release(group);
    } else {
        use(m, group);
        tutti_group_release(group);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
}

static void use_call(tt_member_t *m, tutti_group_t *group)
{
    TT_EXPECT(m, tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
    TT_EXPECT(m, says("rank 0 has left the group"));
}

static void call_after_leave(tt_member_t *m)
{
    leave_unused(m, use_call);
}

static void a_call_in_a_group_that_a_rank_left_unused_fails_soon(void **state)
{
    (void)state;
    run_everywhere(3, call_after_leave);
}

static void use_message(tt_member_t *m, tutti_group_t *group)
{
    float value = 0;
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(1), &value, &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_recv(group, x, 0, 7, NULL) == TUTTI_ERR_PEER);
    TT_EXPECT(m, says("rank 0 has left the group"));
    tutti_tensor_release(x);
}

static void receive_after_leave(tt_member_t *m)
{
    leave_unused(m, use_message);
}

static void a_message_from_a_rank_that_left_unused_fails_soon(void **state)
{
    (void)state;
    run_everywhere(2, receive_after_leave);
}

/* What it has sent before stays there, and can be looked at as often as one likes. */
static void look_after_leave(tt_member_t *m)
{
    float value = 5;
    tutti_group_t *group = NULL;
    tutti_tensor_t *x = NULL;
    tutti_message_info_t info;
    tutti_status_t status = TUTTI_PENDING;
    const tt_deadline_t deadline = tt_deadline_in_ms(TIMEOUT_MS);
    TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(1), &value, &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_send(group, x, 0, 7, NULL) == TUTTI_OK);
        tutti_group_release(group);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        while (status == TUTTI_PENDING && !tt_deadline_is_past(deadline)) {
            status = tutti_iprobe(group, 1, 7, &info);
        }
        TT_EXPECT(m, status == TUTTI_OK);
        TT_EXPECT(m, tutti_iprobe(group, 1, 7, &info) == TUTTI_OK);
        TT_EXPECT(m, tutti_recv(group, x, 1, 7, NULL) == TUTTI_OK);
        tutti_group_release(group);
    }
    tutti_tensor_release(x);
}

static void a_message_from_a_rank_that_left_later_is_seen(void **state)
{
    (void)state;
    run_everywhere(2, look_after_leave);
}

static void make_without_one(tt_member_t *m)
{
    tutti_group_t *group = NULL;
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        return; /* the team releases its world */
    }
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_ERR_PEER);
    TT_EXPECT(m, says("died or left") && says(": 1"));
}

static void a_group_is_not_made_with_a_rank_that_left(void **state)
{
    (void)state;
    run_everywhere(3, make_without_one);
}

static void abort_a_meeting(tt_member_t *m)
{
    tutti_group_t *group = NULL;
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m,
                  tutti_group_new(m->group, (int[]){0, 1}, 2, NULL, &group) == TUTTI_ERR_ABORTED);
    } else if (m->rank == 1) {
        tutti_group_abort(m->group);
    } else {
        TT_EXPECT(m, tutti_monitored_barrier(m->group, TIMEOUT_MS) == TUTTI_ERR_ABORTED);
    }
}

static void an_abort_ends_meetings(void **state)
{
    (void)state;
    run_everywhere(3, abort_a_meeting);
}

static void shrink_without_one(tt_member_t *m)
{
    tutti_group_t *rest = NULL;
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        return;
    }
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &rest) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_size(rest) == 3 && tutti_barrier(rest, NULL) == TUTTI_OK);
    tutti_group_release(rest);
}

static void survivors_do_not_wait_for_one_that_left(void **state)
{
    (void)state;
    run_everywhere(4, shrink_without_one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_in_a_group_that_a_rank_left_unused_fails_soon),
        cmocka_unit_test(a_message_from_a_rank_that_left_unused_fails_soon),
        cmocka_unit_test(a_message_from_a_rank_that_left_later_is_seen),
        cmocka_unit_test(a_group_is_not_made_with_a_rank_that_left),
        cmocka_unit_test(an_abort_ends_meetings),
        cmocka_unit_test(survivors_do_not_wait_for_one_that_left),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
