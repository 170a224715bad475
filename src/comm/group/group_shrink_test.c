/* Going on without ranks that left, were killed, or came too late. */
#include "core/base/testing.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/net/free_port_test.h"
#include "core/base/clock.h"

static void run_team(int size, int64_t timeout_ms, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect(size, timeout_ms, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

static tutti_status_t sum_ones(tutti_group_t *group, tutti_tensor_t *x)
{
    TUTTI_CHECK(tutti_tensor_fill(x, 1));
    TUTTI_CHECK(tutti_all_reduce(group, x, TUTTI_SUM, NULL));
    return tutti_tensor_at(x, 4999) == tutti_group_size(group) ? TUTTI_OK : TUTTI_ERR_MISMATCH;
}

static void lose_two(tt_member_t *m)
{
    tutti_tensor_t *x; /* of the first group; used in all of them */
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(5000), &x) == TUTTI_OK);
    TT_EXPECT(m, sum_ones(m->group, x) == TUTTI_OK);
    if (m->rank == 2) {
        tutti_tensor_release(x);
        return; /* released by the team */
    }
    TT_EXPECT(m, sum_ones(m->group, x) == TUTTI_ERR_PEER);
    tutti_group_t *four, *three = NULL;
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &four) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_size(four) == 4 && tutti_group_epoch(four) == 1);
    TT_EXPECT(m, strcmp(tutti_group_name(four), "world@1") == 0);
    TT_EXPECT(m, tutti_group_translate(four, 2, m->group) == 3);
    TT_EXPECT(m, sum_ones(four, x) == TUTTI_OK);
    if (m->rank != 0) {
        TT_EXPECT(m, sum_ones(four, x) == TUTTI_ERR_PEER);
        TT_EXPECT(m, tutti_group_shrink(four, &(tutti_shrink_options_t){0}, &three) == TUTTI_OK);
        TT_EXPECT(m, tutti_group_epoch(three) == 2 && tutti_group_size(three) == 3);
        TT_EXPECT(m, strcmp(tutti_group_name(three), "world@2") == 0);
        TT_EXPECT(m, sum_ones(three, x) == TUTTI_OK);
        tutti_group_release(three);
    }
    tutti_tensor_release(x);
    tutti_group_release(four);
}

static void survivors_go_on_twice(void **state)
{
    (void)state;
    const int64_t start_ns = tt_clock_ns();
    run_team(5, 20000, lose_two, NULL);
    assert_true(tt_clock_ns() - start_ns < 5 * TT_NS_PER_S); /* nobody sat a deadline out */
}

static void come_late(tt_member_t *m)
{
    const tutti_shrink_options_t options = {.timeout_ms = 500};
    tutti_group_t *rest;
    if (m->rank == 1) {
        tt_member_await(m, 2); /* alive, but nobody knows */
        TT_EXPECT(m, tutti_group_shrink(m->group, &options, &rest) == TUTTI_ERR_PEER);
        TT_EXPECT(m, says("rank 1 came too late; ranks 0, 2 went on without it"));
        tt_member_tell(m);
        return;
    }
    tutti_group_abort(m->group);
    TT_EXPECT(m, tutti_group_shrink(m->group, &options, &rest) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_size(rest) == 2);
    TT_EXPECT(m, tutti_barrier(rest, NULL) == TUTTI_OK);
    tt_member_tell(m);
    tt_member_await(m, 3); /* the store is there until the late one has asked */
    tutti_group_release(rest);
}

static void a_rank_that_comes_too_late_is_left_behind(void **state)
{
    (void)state;
    run_team(3, 10000, come_late, NULL);
}

static void shrink_early(tt_member_t *m)
{
    tutti_group_t *again;
    if (m->rank == 0) { /* the others are in a call that this one never makes */
        usleep(50000);
        TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &again) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &again) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_group_size(again) == 3 && tutti_barrier(again, NULL) == TUTTI_OK);
    tutti_group_release(again);
}

static void shrinking_revokes_the_calls_of_the_others(void **state)
{
    (void)state;
    run_team(3, 10000, shrink_early, NULL);
}

/* Groups of a group that has shrunk: what is left of each is a group of its own. */
static void shrink_two(tt_member_t *m)
{
    tutti_tensor_t *x;
    tutti_group_t *world, *groups[2], *rest[2];
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(5000), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &world) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_group_new(world, NULL, 0, NULL, &groups[i]) == TUTTI_OK);
    }
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_group_shrink(groups[i], NULL, &rest[i]) == TUTTI_OK);
    }
    TT_EXPECT(m, strcmp(tutti_group_name(rest[0]), "world@1[0-2]@2") == 0);
    TT_EXPECT(m, strcmp(tutti_group_name(rest[1]), "world@1[0-2]#2@2") == 0);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, sum_ones(rest[i], x) == TUTTI_OK);
    }
    for (int i = 0; i < 2; i++) {
        tutti_group_release(rest[i]);
        tutti_group_release(groups[i]);
    }
    tutti_group_release(world);
    tutti_tensor_release(x);
}

static void groups_of_a_shrunk_group_shrink_apart(void **state)
{
    (void)state;
    run_team(3, 10000, shrink_two, NULL);
}

/* Rank 1 says that it has survived, and is gone before the new group stands. */
static void die_while_shrinking(tt_member_t *m)
{
    tutti_group_t *rest;
    if (m->rank == 1) {
        bool came[4];
        tt_meet_t meet = {.group = m->group,
                          .store = tutti_group_store(m->group),
                          .rank = 1,
                          .size = 4,
                          .timeout_ms = 5000};
        TT_EXPECT(m, tt_group_meet(&meet, "shrink/1", came) == TUTTI_OK && meet.is_complete);
        return;
    }
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &rest) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_size(rest) == 3 && tutti_group_epoch(rest) == 2);
    TT_EXPECT(m, tutti_barrier(rest, NULL) == TUTTI_OK);
    tutti_group_release(rest);
}

static void a_rank_that_dies_while_they_shrink_is_left_out_too(void **state)
{
    (void)state;
    const int64_t start_ns = tt_clock_ns();
    run_team(4, 20000, die_while_shrinking, NULL);
    assert_true(tt_clock_ns() - start_ns < 5 * TT_NS_PER_S);
}

/* The second group would have the name and the epoch of what the first one shrinks to. */
static void shrink_again(tt_member_t *m)
{
    tutti_tensor_t *x;
    tutti_group_t *one, *two, *again = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(5000), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &one) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &again) == TUTTI_ERR_STATE && again == NULL);
    TT_EXPECT(m, says("has shrunk it to world@1 already; shrink that group"));
    TT_EXPECT(m, sum_ones(one, x) == TUTTI_OK);
    pthread_barrier_wait(m->start); /* who shrinks revokes what others are in still */
    TT_EXPECT(m, tutti_group_shrink(one, NULL, &two) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &again) == TUTTI_ERR_STATE && again == NULL);
    TT_EXPECT(m, tutti_group_epoch(two) == 2 && sum_ones(two, x) == TUTTI_OK);
    tutti_group_release(two);
    tutti_group_release(one);
    tutti_tensor_release(x);
}

static void a_group_shrinks_once(void **state)
{
    (void)state;
    run_team(3, 10000, shrink_again, NULL);
}

static void a_group_without_a_store_cannot_agree(void **state)
{
    (void)state;
    tutti_group_t *world, *out;
    assert_int_equal(tutti_init(NULL, &world), TUTTI_OK);
    assert_int_equal(tutti_group_shrink(world, NULL, &out), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("it has no store");
    tutti_group_release(world);
}

/* ---- killed processes ---- */

enum { RANKS = 4, STEPS = 20 };

typedef struct {
    int idler;      /* it does not shrink when it has given up, but waits for its end; -1: none */
    bool is_forced; /* the others leave it alone in the call that it gives up */
    _Atomic bool is_idle;
    _Atomic int steps[RANKS];
    tutti_status_t statuses[RANKS];
    int sizes[RANKS];
    int64_t shrink_ms[RANKS];
    char errors[RANKS][512];
} report_t;

static tutti_status_t train(int rank, tutti_group_t *world, report_t *report)
{
    tutti_tensor_t *x;
    tutti_group_t *rest;
    TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(5000), &x));
    while ((rank == report->idler || !report->is_forced || report->steps[rank] < STEPS) &&
           sum_ones(world, x) == TUTTI_OK) {
        atomic_fetch_add(&report->steps[rank], 1);
    }
    if (rank == report->idler) {
        atomic_store(&report->is_idle, true);
        pause();
    }
    const int64_t start_ns = tt_clock_ns();
    TUTTI_CHECK(tutti_group_shrink(world, NULL, &rest));
    report->shrink_ms[rank] = (tt_clock_ns() - start_ns) / TT_NS_PER_MS;
    report->sizes[rank] = tutti_group_size(rest);
    for (int i = 0; i < 50; i++) {
        TUTTI_CHECK(sum_ones(rest, x));
    }
    tutti_tensor_release(x);
    tutti_group_release(rest);
    return TUTTI_OK;
}

static void be_rank(int rank, int port, bool hosts, report_t *report)
{
    tutti_store_t *store;
    tutti_group_t *world;
    tutti_status_t status = hosts ? tutti_store_tcp_listen(NULL, port, &store)
                                  : tutti_store_tcp_connect("127.0.0.1", port, 10000, &store);
    if (status == TUTTI_OK) {
        status = tutti_init(
            &(tutti_init_options_t){
                .store = store, .rank = rank, .world_size = RANKS, .timeout_ms = 20000},
            &world);
    }
    if (status == TUTTI_OK) {
        status = train(rank, world, report);
    }
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    report->statuses[rank] = status;
    _exit(0);
}

static report_t *make_report(int idler)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    report->idler = idler;
    return report;
}

static void kill_ranks(report_t *report, unsigned victims, bool rank_0_hosts)
{
    const int port = tt_free_port();
    pid_t children[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            be_rank(rank, port, rank_0_hosts && rank == 0, report);
        }
    }
    tutti_store_t *store = NULL;
    if (!rank_0_hosts) { /* as a launcher does */
        assert_int_equal(tutti_store_tcp_listen(NULL, port, &store), TUTTI_OK);
    }
    for (int i = 0; i < 10000 && atomic_load(&report->steps[0]) < STEPS; i++) {
        usleep(1000);
    }
    for (int rank = 0; rank < RANKS; rank++) { /* so that none sees another one die */
        if ((victims >> rank & 1) != 0 && rank != report->idler) {
            kill(children[rank], SIGSTOP);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < 10000 && rank == report->idler && !atomic_load(&report->is_idle); i++) {
            usleep(1000);
        }
        if ((victims >> rank & 1) != 0) {
            kill(children[rank], SIGKILL);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
    }
    tutti_store_release(store);
}

/* The others go on without them, and soon. */
static void lose_ranks(report_t *report, unsigned victims)
{
    kill_ranks(report, victims, false);
    for (int rank = 0; rank < RANKS; rank++) {
        if ((victims >> rank & 1) == 0) {
            if (report->statuses[rank] != TUTTI_OK) {
                fail_msg("rank %d: %s", rank, report->errors[rank]);
            }
            assert_int_equal(report->sizes[rank], RANKS - __builtin_popcount(victims));
            assert_in_range(report->shrink_ms[rank], 0, 2000);
        }
    }
    munmap(report, sizeof *report);
}

static void survivors_of_killed_processes_go_on(void **state)
{
    (void)state;
    lose_ranks(make_report(-1), 1u << 1);
    lose_ranks(make_report(-1), 1u << 0 | 1u << 3);
}

/* Rank 3 has said that it gives the group up, because rank 0 is gone; and then it dies itself. */
static void who_is_killed_after_it_gave_up_is_noticed(void **state)
{
    (void)state;
    lose_ranks(make_report(3), 1u << 0 | 1u << 3);
}

/* The same, when nobody has read what it sent to the call that it gave up. */
static void who_is_killed_with_bytes_unread_is_noticed(void **state)
{
    (void)state;
    report_t *report = make_report(3);
    report->is_forced = true;
    lose_ranks(report, 1u << 3);
}

static void a_store_that_died_with_its_rank_is_told(void **state)
{
    (void)state;
    report_t *report = make_report(-1);
    kill_ranks(report, 1u << 0, true);
    for (int rank = 1; rank < RANKS; rank++) {
        assert_int_equal(report->statuses[rank], TUTTI_ERR_PEER);
        if (strstr(report->errors[rank], "its store is gone") == NULL) {
            fail_msg("rank %d: %s", rank, report->errors[rank]);
        }
    }
    munmap(report, sizeof *report);
}

int main(void)
{
    setenv("TUTTI_PROTECT", "off", 1); /* no launcher has made a key */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_killed_processes_go_on),
        cmocka_unit_test(who_is_killed_after_it_gave_up_is_noticed),
        cmocka_unit_test(who_is_killed_with_bytes_unread_is_noticed),
        cmocka_unit_test(a_store_that_died_with_its_rank_is_told),
        cmocka_unit_test(survivors_go_on_twice),
        cmocka_unit_test(a_rank_that_comes_too_late_is_left_behind),
        cmocka_unit_test(shrinking_revokes_the_calls_of_the_others),
        cmocka_unit_test(groups_of_a_shrunk_group_shrink_apart),
        cmocka_unit_test(a_group_shrinks_once),
        cmocka_unit_test(a_rank_that_dies_while_they_shrink_is_left_out_too),
        cmocka_unit_test(a_group_without_a_store_cannot_agree),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
