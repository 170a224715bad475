/* A rank that gives a group up says why, and the others say it on: in shared memory, over tcp, in a
 * group of some ranks, on the family's stream. What it says is bounded, and a line. */
#include "core/base/testing.h"

#include <tutti/messages.h>

#include "comm/backend/native_backend.h"
#include "comm/coll/coll_fail.h"
#include "comm/exec/coll_impl.h"
#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

enum { TIMEOUT_MS = 60000, CAUSE_MAX = 511 };

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

/* Members warn; no memory is left. */
static void run(int ranks, void (*body)(tt_member_t *m))
{
    char report[1024];
    tt_team_expect_quietly(ranks, TIMEOUT_MS, body, NULL);
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
}

/* ---- over any wires -------------------------------------------------------------------------- */

static void give_up_for(tt_member_t *m, tutti_group_t *group, const char *cause)
{
    const tutti_status_t status = TT_FAIL(TUTTI_ERR_NOMEM, "%s", cause);
    TT_EXPECT(m, tt_group_give_up(group, status) == TUTTI_ERR_NOMEM);
    TT_EXPECT(m, strcmp(tutti_last_error(), cause) == 0);
    TT_EXPECT(m, tutti_barrier(group, NULL) == TUTTI_ERR_ABORTED);
}

static void give_up_in_a_call(tt_member_t *m)
{
    if (m->rank == 1) {
        give_up_for(m, m->group, "bucket 3: no memory for 4 numbers");
        TT_EXPECT(m, says("rank 1 gave group world up: bucket 3: no memory for 4 numbers"));
        return;
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, says("barrier #2 of group world"));
    TT_EXPECT(m, says(": rank 1 gave the group up: bucket 3: no memory for 4 numbers"));
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED); /* it stays so */
    TT_EXPECT(m, says("rank 1 gave the group up: bucket 3: no memory for 4 numbers"));
}

static void the_cause_is_told_with_the_end_of_calls(void **state)
{
    (void)state;
    run(3, give_up_in_a_call);
}

/* One that computes before it waits. */
static void look_before_calling(tt_member_t *m)
{
    const tt_deadline_t guard = tt_deadline_in_ms(20000);
    tutti_status_t status = TUTTI_OK;
    if (m->rank == 1) {
        give_up_for(m, m->group, "no memory");
        tt_member_await(m, 1);
        return;
    }
    while (status >= 0 && !tt_deadline_is_past(guard)) {
        status = tt_group_check(m->group);
    }
    TT_EXPECT(m, status == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, strcmp(tutti_last_error(), "group world: rank 1 gave it up: no memory") == 0);
    tt_member_tell(m);
}

static void a_rank_that_looks_hears_the_cause(void **state)
{
    (void)state;
    run(2, look_before_calling);
}

static void in_a_group_of_some(tt_member_t *m)
{
    tutti_group_t *some;
    const int ranks[] = {2, 1};
    if (m->rank == 0) {
        return;
    }
    TT_EXPECT(m, tutti_group_new(m->group, ranks, 2, NULL, &some) == TUTTI_OK);
    if (m->rank == 2) {
        give_up_for(m, some, "no memory for it");
    } else {
        TT_EXPECT(m, tutti_barrier(some, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, says("rank 0 gave the group up: no memory for it"));
    }
    tutti_group_release(some);
}

static void a_group_of_some_has_causes_of_its_own(void **state)
{
    (void)state;
    run(3, in_a_group_of_some);
}

/* Without a connection to the others, and without a look at what they want. */
static void give_up_and_do_nothing(tt_member_t *m)
{
    tutti_group_t *all;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &all) == TUTTI_OK);
    if (m->rank == 1) {
        give_up_for(m, all, "no memory for the first call");
        tt_member_await(m, (uint32_t)m->size - 1);
    } else {
        TT_EXPECT(m, tutti_barrier(all, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, says("rank 1 gave the group up: no memory for the first call"));
        tt_member_tell(m);
    }
    tutti_group_release(all);
}

/* The same of one that began it for the sake of another. */
static void lose_a_peer_and_do_nothing(tt_member_t *m)
{
    tutti_group_t *all;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &all) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_barrier(all, NULL) == TUTTI_ERR_PEER);
        TT_EXPECT(m, says("rank 2") && !says("rank 1"));
        tt_member_tell(m);
    } else if (m->rank == 1) {
        const tutti_status_t status = TT_FAIL(TUTTI_ERR_PEER, "rank 2 is gone");
        tt_coll_fail(tt_native_coll(all->state), (tt_verdict_t){status, 2, false});
    }
    tt_member_await(m, 1);
    tutti_group_release(all);
}

static void receive_of_one_that_does_nothing(tt_member_t *m)
{
    tutti_group_t *all;
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &all) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == TUTTI_OK);
    if (m->rank == 1) {
        give_up_for(m, all, "no memory to send");
        tt_member_await(m, (uint32_t)m->size - 1);
    } else {
        TT_EXPECT(m, tutti_recv(all, x, 1, 3, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, says("no memory to send"));
        tt_member_tell(m);
    }
    tutti_tensor_release(x);
    tutti_group_release(all);
}

static void one_that_does_nothing_more_is_heard(void **state)
{
    (void)state;
    run(3, give_up_and_do_nothing);
    run(3, lose_a_peer_and_do_nothing);
    run(2, receive_of_one_that_does_nothing);
}

static void abort_for_no_cause(tt_member_t *m)
{
    (void)TT_FAIL(TUTTI_ERR_ARG, "an old failure");
    if (m->rank == 1) {
        tutti_group_abort(m->group);
        TT_EXPECT(m, strcmp(tutti_last_error(), "an old failure") == 0);
        return;
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, says("rank 1 gave the group up (aborted)") && !says("an old failure"));
}

static void an_abort_by_the_program_has_no_cause(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, abort_for_no_cause, NULL);
}

/* ---- what may be said ------------------------------------------------------------------------ */

static void give_up_at_length(tt_member_t *m)
{
    char cause[TT_ERROR_TEXT_BYTES];
    memset(cause, 'x', sizeof cause);
    cause[sizeof cause - 1] = 0;
    if (m->rank == 1) {
        give_up_for(m, m->group, cause);
        return;
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
    const char *said = strchr(tutti_last_error(), 'x');
    TT_EXPECT(m, said != NULL && strlen(said) == CAUSE_MAX && strspn(said, "x") == CAUSE_MAX);
}

static void give_up_with_controls(tt_member_t *m)
{
    if (m->rank == 1) {
        give_up_for(m, m->group,
                    "one\ntwo\x1b[31m\x7f Gr\xc3\xb6\xc3\x9f"
                    "e");
        return;
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, says("rank 1 gave the group up: one?two?[31m? Gr\xc3\xb6\xc3\x9f"
                      "e"));
}

static void what_is_said_is_cut_and_a_line(void **state)
{
    (void)state;
    run(2, give_up_at_length);
    run(2, give_up_with_controls);
}

/* A rank that writes what it likes: no end. */
static void write_without_end(tt_member_t *m)
{
    tt_coll_t *coll = tt_native_coll(m->group->state);
    if (m->rank == 1) {
        memset(coll->block->cause, 'x', sizeof coll->block->cause);
        atomic_store(&coll->block->failure, tt_failure_pack(TUTTI_ERR_NOMEM, 1));
        tt_member_await(m, 1);
        return;
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_NOMEM);
    const char *said = strchr(tutti_last_error(), 'x');
    TT_EXPECT(m, said != NULL && strlen(said) == CAUSE_MAX);
    tt_member_tell(m);
}

static void a_cause_without_an_end_is_cut(void **state)
{
    (void)state;
    tt_needs_shared_memory("a rank writes into its flag block");
    tt_team_expect_quietly(2, TIMEOUT_MS, write_without_end, NULL);
}

/* ---- a call that fails by itself ------------------------------------------------------------- */

static void fail_a_call(const tt_member_t *m)
{
    static const tt_run_t run;
    tt_coll_t *coll = tt_native_coll(m->group->state);
    tt_coll_fail_call(coll, &run, TT_FAIL(TUTTI_ERR_NOMEM, "no memory for 4 numbers"));
}

/* The last one hears two that have given up. */
static void follow_one_behind_another(tt_member_t *m)
{
    if (m->rank == 0) {
        fail_a_call(m);
    } else {
        tt_member_await(m, (uint32_t)m->rank);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_NOMEM);
        TT_EXPECT(m, says("rank 0 gave the group up (") && says("): no memory for 4 numbers"));
    }
    tt_member_tell(m);
    tt_member_await(m, (uint32_t)m->size);
}

/* The same between calls. */
static void look_one_behind_another(tt_member_t *m)
{
    const tt_deadline_t guard = tt_deadline_in_ms(20000);
    tutti_status_t status = TUTTI_OK;
    if (m->rank == 0) {
        fail_a_call(m);
    } else {
        tt_member_await(m, (uint32_t)m->rank);
        while (status >= 0 && !tt_deadline_is_past(guard)) {
            status = tt_group_check(m->group);
        }
        TT_EXPECT(m, status == TUTTI_ERR_NOMEM);
        TT_EXPECT(m, says("rank 0 gave it up (") && says("): no memory for 4 numbers"));
    }
    tt_member_tell(m);
    tt_member_await(m, (uint32_t)m->size);
}

/* Who looks for a message alone hears it, too. */
static void probe_one_behind_another(tt_member_t *m)
{
    static const tt_run_t run;
    const tt_deadline_t guard = tt_deadline_in_ms(20000);
    tutti_status_t status = TUTTI_OK;
    tutti_message_info_t info;
    if (m->rank == 0) {
        tt_coll_fail_call(tt_native_coll(m->group->state), &run,
                          TT_FAIL(TUTTI_ERR_IO, "no room for 4 numbers"));
    } else if (m->rank == 1) {
        tt_member_await(m, 1);
        while (status >= 0 && !tt_deadline_is_past(guard)) {
            status = tutti_iprobe(m->group, 0, 1, &info);
        }
        TT_EXPECT(m, status == TUTTI_ERR_IO && says("rank 0 gave it up ("));
    } else {
        tt_member_await(m, 2);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_IO);
        TT_EXPECT(m, says(": rank 0 gave the group up (") && says("): no room for 4 numbers"));
    }
    tt_member_tell(m);
    tt_member_await(m, (uint32_t)m->size);
}

static void who_follows_one_that_followed_hears_the_first(void **state)
{
    (void)state;
    run(3, follow_one_behind_another);
    run(3, look_one_behind_another);
    run(3, probe_one_behind_another);
}

/* A message that nobody waits for yet needs memory. */
static void have_none_for_a_message(tt_member_t *m)
{
    tutti_tensor_t *x;
    tutti_work_t *work = NULL;
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_send(m->group, x, 1, 1, NULL) == TUTTI_OK);
        tt_member_await(m, 1);
        TT_EXPECT(m, tutti_send(m->group, x, 1, 2, NULL) == TUTTI_OK);
    } else if (m->rank == 1) {
        TT_EXPECT(m, tutti_recv(m->group, x, 0, 1, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_recv(m->group, x, 0, 3, &work) == TUTTI_OK);
        tt_member_tell(m);
        tt_member_await(m, 2);
        tt_alloc_fail_at(1);
        tutti_group_progress(m->group);
        tt_alloc_fail_at(0);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_NOMEM);
    } else {
        tt_member_await(m, 3);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_NOMEM);
        TT_EXPECT(m, says("rank 1 gave the group up (out of memory): ") && says("message"));
    }
    tt_member_tell(m);
    tt_member_await(m, (uint32_t)m->size + 1);
    tutti_work_release(work);
    tutti_tensor_release(x);
}

static void what_a_message_fails_of_is_told(void **state)
{
    (void)state;
    run(3, have_none_for_a_message);
}

/* ---- memory that two groups have under way --------------------------------------------------- */

/* A rank is stopped inside it when one of them fails: the other one fails, too, and says why. */
static void have_memory_replaced(tt_member_t *m)
{
    static const char why[] = "rank 0 gave it up: group world[0,1]: the memory of a call was "
                              "replaced, for a rank was stopped inside it";
    tutti_group_t *other;
    tutti_tensor_t *x;
    tutti_work_t *works[2] = {NULL};
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &other) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(1 << 16), &x) == TUTTI_OK);
    if (m->rank == 0) {
        tt_flag_block_t *block = tt_native_coll(m->group->state)->blocks[1];
        TT_EXPECT(m, tutti_all_reduce(other, x, TUTTI_SUM, &works[0]) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &works[1]) == TUTTI_OK);
        atomic_store(&block->inside, 1);
        give_up_for(m, m->group, "no memory");
        atomic_store(&block->inside, 0);
        TT_EXPECT(m, tutti_work_wait(works[0], 0) == TUTTI_ERR_ABORTED && says("was replaced"));
        TT_EXPECT(m, tutti_work_wait(works[1], 0) == TUTTI_ERR_ABORTED);
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1);
        TT_EXPECT(m, tt_group_check(other) == TUTTI_ERR_ABORTED && says(why));
    }
    tutti_work_release(works[0]);
    tutti_work_release(works[1]);
    tutti_tensor_release(x);
    tutti_group_release(other);
}

static void a_call_whose_memory_was_replaced_says_so(void **state)
{
    (void)state;
    tt_needs_shared_memory("a rank is inside the memory of another one");
    run(2, have_memory_replaced);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A message that is not what is received. The last rank hears two that have given up, and the one
 * that follows comes first when it looks from the end. */
static void receive_something_else(tt_member_t *m)
{
    static const char why[] = "message with tag 7 of group world: rank 1 sent f32[4], rank 0 "
                              "receives f32[8]";
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(m->rank == 0 ? 8 : 4), &x) == TUTTI_OK);
    if (m->rank == 1) {
        (void)tutti_send(m->group, x, 0, 7, NULL);
    } else if (m->rank == 0) {
        TT_EXPECT(m, tutti_recv(m->group, x, 1, 7, NULL) == TUTTI_ERR_MISMATCH && says(why));
        tt_member_tell(m);
    } else {
        tt_member_await(m, (uint32_t)m->rank - 1);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, says(": rank 0 gave the group up (") && says(why));
        tt_member_tell(m);
    }
    tt_member_await(m, (uint32_t)m->size - 1);
    tutti_tensor_release(x);
}

static void who_receives_something_else_says_what(void **state)
{
    (void)state;
    run(4, receive_something_else);
}

static tutti_status_t refuse_to_put(void *user, const char *what, int rank, const void *value,
                                    size_t bytes)
{
    (void)user, (void)what, (void)rank, (void)value, (void)bytes;
    return TT_FAIL(TUTTI_ERR_IO, "the store is gone");
}

static void fail_without_a_board(tt_member_t *m)
{
    tt_coll_t *coll = tt_native_coll(m->group->state);
    const int hosts = coll->host_count;
    if (m->rank == 0) {
        coll->options.wait_board.put = refuse_to_put;
        coll->host_count = 2;
        fail_a_call(m);
        coll->host_count = hosts;
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_NOMEM);
        TT_EXPECT(m, strcmp(tutti_last_error(), "no memory for 4 numbers") == 0);
    }
}

static void what_a_board_fails_of_is_not_the_cause(void **state)
{
    (void)state;
    run(2, fail_without_a_board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_follows_one_that_followed_hears_the_first),
        cmocka_unit_test(what_a_message_fails_of_is_told),
        cmocka_unit_test(who_receives_something_else_says_what),
        cmocka_unit_test(a_call_whose_memory_was_replaced_says_so),
        cmocka_unit_test(what_a_board_fails_of_is_not_the_cause),
        cmocka_unit_test(the_cause_is_told_with_the_end_of_calls),
        cmocka_unit_test(a_rank_that_looks_hears_the_cause),
        cmocka_unit_test(a_group_of_some_has_causes_of_its_own),
        cmocka_unit_test(one_that_does_nothing_more_is_heard),
        cmocka_unit_test(an_abort_by_the_program_has_no_cause),
        cmocka_unit_test(what_is_said_is_cut_and_a_line),
        cmocka_unit_test(a_cause_without_an_end_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
