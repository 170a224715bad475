/* What goes wrong is an error that names rank and call, on every rank, and nothing hangs: ranks in
 * different calls, late ranks, aborts, ranks that leave, processes that are killed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/messages.h>

#include "comm/group/group_team.h"
#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

static void run_team(int size, int64_t timeout_ms, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect(size, timeout_ms, body, user);
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_tensor_t *make(tt_member_t *m, tutti_dtype_t dtype, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, dtype, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

/* Over tcp, a rank to which the other had nothing to send hears only that it gave up. */
static bool says_calls(const char *mine, const char *other)
{
    return (says(mine) && says(other)) || says("gave the group up (ranks are in different calls)");
}

/* ---- mismatches ----------------------------------------------------------------------------- */

static void different_counts(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, m->rank == 2 ? 1024 : 2048);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_MISMATCH);
    /* local ranks compare with the lowest rank; over tcp, a rank that meets rank 2 first */
    TT_EXPECT(m, says("all_reduce #2: rank 2 passed f32[1024], rank 0 passed f32[2048]") ||
                     says("rank 2 passed f32[1024], rank 1 passed f32[2048]") ||
                     says("passed f32[2048], rank 2 passed f32[1024]") ||
                     says("gave the group up (ranks are in different calls)"));
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_MISMATCH); /* it stays so */
    TT_EXPECT(m, says("all_reduce #2"));
    tutti_tensor_release(x);
}

static void different_calls(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    const tutti_status_t status = m->rank == 1 ? tutti_barrier(m->group, NULL)
                                               : tutti_all_reduce(m->group, x, TUTTI_SUM, NULL);
    TT_EXPECT(m, status == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, says_calls("rank 1 called barrier", "rank 0 called all_reduce f32[4]") ||
                     says_calls("rank 1 called barrier", "rank 2 called all_reduce f32[4]"));
    tutti_tensor_release(x);
}

static void different_details(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    switch (*(const int *)m->user) {
    case 0:
        TT_EXPECT(m, tutti_all_reduce(m->group, x, m->rank ? TUTTI_MAX : TUTTI_SUM, NULL) ==
                         TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, says_calls("rank 1 passed f32[4] max", "rank 0 passed f32[4] sum"));
        break;
    case 1:
        /* over tcp a root only sends: it hears of it in its next call */
        TT_EXPECT(m, tutti_broadcast(m->group, x, m->rank, NULL) == TUTTI_ERR_MISMATCH ||
                         tutti_barrier(m->group, NULL) == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, says_calls("with root 1", "with root 0") ||
                         (says("called broadcast") && says("called barrier")));
        break;
    default:
        tutti_group_set_tag(m->group, 70 + (uint64_t)m->rank);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, says_calls("with tag 71", "with tag 70"));
    }
    tutti_tensor_release(x);
}

static void ranks_in_different_calls_hear_of_both(void **state)
{
    (void)state;
    run_team(3, 10000, different_counts, NULL);
    run_team(3, 10000, different_calls, NULL);
    for (int detail = 0; detail < 3; detail++) {
        run_team(2, 10000, different_details, &detail);
    }
}

/* ---- late ranks, aborts, leaving ------------------------------------------------------------- */

static void come_late(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    if (m->rank == 1) {
        tt_member_await(m, 2);
    }
    const int64_t start_ns = tt_clock_ns();
    tutti_status_t status = tutti_all_reduce(m->group, x, TUTTI_SUM, NULL);
    if (m->rank == 1 && status == TUTTI_OK) { /* the others' numbers were there: its next fails */
        status = tutti_all_reduce(m->group, x, TUTTI_SUM, NULL);
    }
    TT_EXPECT(m, status == TUTTI_ERR_TIMEOUT);
    if (m->rank == 0) {
        TT_EXPECT(m, says("all_reduce #2 f32[4] of group world"));
        const bool by_itself =
            says("rank 1 never entered it: it is in no call that waits; its last "
                 "here is barrier #1") ||
            says("rank 1 never entered it: it has made no call that is known "
                 "of since barrier #1");
        TT_EXPECT(m, by_itself || says("rank 2 gave up waiting for rank 1"));
    }
    TT_EXPECT(m, tt_clock_ns() - start_ns < 5 * TT_NS_PER_S);
    tt_member_tell(m);
    tutti_tensor_release(x);
}

static void a_late_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    run_team(3, 500, come_late, NULL);
}

static void abort_in_a_call(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    if (m->rank == 1) {
        usleep(50000);
        tutti_group_abort(m->group);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, says(m->rank == 1 ? "rank 1 aborted" : "rank 1 gave the group up"));
    tutti_tensor_release(x);
}

static void an_abort_ends_every_ranks_call(void **state)
{
    (void)state;
    run_team(3, 10000, abort_in_a_call, NULL);
}

static void leave_early(tt_member_t *m)
{
    if (m->rank == 1) {
        return; /* released by the team */
    }
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_PEER);
    TT_EXPECT(m, says("rank 1 has left the group"));
    tutti_tensor_release(x);
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    run_team(3, 10000, leave_early, NULL);
}

static void leave_after_the_last_call(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 3000);
    for (int i = 0; i < 5; i++) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    }
    if (m->rank == 2) {
        usleep(20000);
    }
    tutti_tensor_release(x);
}

static void leaving_after_the_last_call_is_no_error(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        run_team(3, 10000, leave_after_the_last_call, NULL);
    }
}

/* ---- works of a failed group ----------------------------------------------------------------- */

static void fail_a_work(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    tutti_work_t *work = NULL;
    if (m->rank == 1) {
        usleep(200000);
    }
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_test(work) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_work_wait(work, 20) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_work_error(work)[0] == 0);
        tutti_work_abort(work);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, strstr(tutti_work_error(work), "rank 0 aborted group world") != NULL);
        tutti_work_release(work);
    } else {
        TT_EXPECT(m, tutti_barrier(m->group, NULL) != TUTTI_OK);
    }
    tutti_tensor_release(x);
}

static void a_work_keeps_its_failure(void **state)
{
    (void)state;
    run_team(2, 10000, fail_a_work, NULL);
}

static void forget_a_work(tt_member_t *m)
{
    if (m->rank == 0) {
        tutti_tensor_t *x = make(m, TUTTI_F32, 4);
        tutti_work_t *work;
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
        tutti_work_release(work);
        tutti_tensor_release(x);
    }
}

static void a_group_released_with_a_call_under_way_leaks_nothing(void **state)
{
    (void)state;
    run_team(2, 10000, forget_a_work, NULL);
}

/* ---- killed processes ------------------------------------------------------------------------ */

typedef struct {
    _Atomic int steps[3]; /* that each rank has made */
    _Atomic int64_t ended_ns[3];
    char errors[3][512];
    tutti_status_t statuses[3];
} report_t;

/* One process started by hand: steps until an error ends it. */
static void train(int rank, int port, report_t *report, int64_t count)
{
    tt_be_rank(rank, 3, port);
    tutti_group_t *world;
    tutti_tensor_t *x = NULL;
    tutti_status_t status = tutti_init(NULL, &world);
    if (status == TUTTI_OK) {
        status = tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(count), &x);
    }
    while (status == TUTTI_OK) {
        status = tutti_all_reduce(world, x, TUTTI_AVG, NULL);
        atomic_fetch_add(&report->steps[rank], status == TUTTI_OK);
    }
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    report->statuses[rank] = status;
    atomic_store(&report->ended_ns[rank], tt_clock_ns());
    _exit(1); /* as a failing program would, without a goodbye */
}

static void kill_one(int victim, int64_t count)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    const int port = tt_free_port();
    pid_t children[3];
    for (int rank = 0; rank < 3; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            train(rank, port, report, count);
        }
    }
    for (int i = 0; i < 5000 && atomic_load(&report->steps[victim]) < 20; i++) {
        usleep(1000);
    }
    kill(children[victim], SIGKILL);
    const int64_t killed_ns = tt_clock_ns();
    char blame[64], blame_from_afar[64];
    snprintf(blame, sizeof blame, "rank %d (process %d) died", victim, (int)children[victim]);
    snprintf(blame_from_afar, sizeof blame_from_afar, "rank %d is gone", victim);
    for (int rank = 0; rank < 3; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_true(rank == victim ? WIFSIGNALED(ended) : WEXITSTATUS(ended) == 1);
    }
    for (int rank = 0; rank < 3; rank++) {
        if (rank != victim) {
            assert_int_equal(report->statuses[rank], TUTTI_ERR_PEER);
            if (strstr(report->errors[rank], blame) == NULL &&
                strstr(report->errors[rank], blame_from_afar) == NULL) {
                fail_msg("rank %d says: %s", rank, report->errors[rank]);
            }
            assert_true(report->ended_ns[rank] - killed_ns < TT_NS_PER_S);
        }
    }
    munmap(report, sizeof *report);
}

static void a_killed_rank_is_named_by_the_others_within_a_second(void **state)
{
    (void)state;
    kill_one(0, 100);    /* flag; the one with the store */
    kill_one(1, 100000); /* direct */
    kill_one(2, 1);
}

/* Sums, a message and a meeting, in each of which somebody waits for a rank that comes later. */
static void wait_without_a_deadline(tt_member_t *m)
{
    tutti_tensor_t *x;
    tutti_group_t *part = NULL;
    const int both[] = {0, 1};
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == TUTTI_OK);
    if (m->rank == 1) {
        usleep(30000);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        usleep(30000);
        TT_EXPECT(m, tutti_send(m->group, x, 0, 3, NULL) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_recv(m->group, x, 1, 3, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_group_new(m->group, both, 2, NULL, &part) == TUTTI_OK);
    TT_EXPECT(m, tutti_monitored_barrier(m->group, INT64_MAX) == TUTTI_OK);
    tutti_group_release(part);
    tutti_tensor_release(x);
}

static void the_longest_timeout_is_for_ever(void **state)
{
    (void)state;
    run_team(2, INT64_MAX, wait_without_a_deadline, NULL);
    run_team(2, INT64_MAX / 1000000, wait_without_a_deadline, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_by_the_others_within_a_second),
        cmocka_unit_test(ranks_in_different_calls_hear_of_both),
        cmocka_unit_test(a_late_rank_is_named_at_the_deadline),
        cmocka_unit_test(an_abort_ends_every_ranks_call),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(leaving_after_the_last_call_is_no_error),
        cmocka_unit_test(a_work_keeps_its_failure),
        cmocka_unit_test(a_group_released_with_a_call_under_way_leaks_nothing),
        cmocka_unit_test(the_longest_timeout_is_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
