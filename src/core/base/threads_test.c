/* The compute threads: every piece once, results visible to the caller, asleep or awake, after
 * fork. Counters are plain memory on purpose: ThreadSanitizer sees a missing hand-over. */
#include "core/base/testing.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/threads.h"

enum { PIECES_MAX = 1000 };

typedef struct {
    int runs[PIECES_MAX];
} job_t;

static void count_piece(void *arg, size_t piece)
{
    job_t *job = arg;
    job->runs[piece]++;
}

static void expect_runs(const job_t *job, size_t pieces, int runs)
{
    for (size_t i = 0; i < PIECES_MAX; i++) {
        assert_int_equal(job->runs[i], i < pieces ? runs : 0);
    }
}

static void every_piece_runs_once(void **state)
{
    (void)state;
    static const int thread_counts[] = {1, 2, 3, 8};
    static const size_t piece_counts[] = {0, 1, 2, 7, PIECES_MAX};
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(thread_counts[t], &threads), TUTTI_OK);
        assert_int_equal(tt_threads_count(threads), thread_counts[t]);
        for (size_t p = 0; p < sizeof piece_counts / sizeof piece_counts[0]; p++) {
            job_t job = {0};
            tt_threads_run(threads, piece_counts[p], count_piece, &job);
            expect_runs(&job, piece_counts[p], 1);
        }
        tt_threads_release(threads);
    }
}

static void jobs_follow_each_other_without_mixing(void **state)
{
    (void)state;
    enum { JOBS = 3000 };
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    job_t even = {0}, odd = {0};
    for (int i = 0; i < JOBS; i++) {
        tt_threads_run(threads, i % 2 ? 5 : 9, count_piece, i % 2 ? &odd : &even);
        assert_int_equal((i % 2 ? odd : even).runs[4], i / 2 + 1);
    }
    expect_runs(&odd, 5, JOBS / 2);
    expect_runs(&even, 9, JOBS / 2);
    tt_threads_release(threads);
}

static void sleeping_workers_are_woken(void **state)
{
    (void)state;
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(4, &threads), TUTTI_OK);
    job_t job = {0};
    for (int i = 0; i < 5; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); /* beyond any spinning */
        tt_threads_run(threads, 100, count_piece, &job);
    }
    expect_runs(&job, 100, 5);
    tt_threads_release(threads);
}

typedef struct {
    pthread_barrier_t barrier;
} meeting_t;

static void meet(void *arg, size_t piece)
{
    (void)piece;
    meeting_t *meeting = arg;
    pthread_barrier_wait(&meeting->barrier);
}

static void pieces_run_at_the_same_time(void **state)
{
    (void)state;
    /* Ends only if three threads are inside a piece together. */
    meeting_t meeting;
    pthread_barrier_init(&meeting.barrier, NULL, 3);
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    tt_threads_run(threads, 3, meet, &meeting);
    tt_threads_release(threads);
    pthread_barrier_destroy(&meeting.barrier);
}

static void no_pool_and_an_unused_pool_are_fine(void **state)
{
    (void)state;
    job_t job = {0};
    tt_threads_run(NULL, 6, count_piece, &job);
    expect_runs(&job, 6, 1);
    assert_int_equal(tt_threads_count(NULL), 1);
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(2, &threads), TUTTI_OK);
    tt_threads_release(threads);
    tt_threads_release(NULL);
}

typedef struct {
    pthread_t caller;
    int calls, strange; /* from other threads */
} idle_t;

static void count_idle(void *user)
{
    idle_t *idle = user;
    idle->calls++;
    idle->strange += !pthread_equal(pthread_self(), idle->caller);
}

static void sleep_in_piece(void *arg, size_t piece)
{
    (void)arg, (void)piece;
    usleep(500);
}

static void the_caller_looks_around_between_pieces(void **state)
{
    (void)state;
    for (int count = 1; count <= 3; count++) {
        tt_threads_t *threads;
        idle_t idle = {.caller = pthread_self()};
        assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
        tt_threads_set_idle(threads, count_idle, &idle);
        tt_threads_run(threads, 30, sleep_in_piece, NULL);
        assert_in_range(idle.calls, 1, 30);
        assert_true(count > 1 || idle.calls == 30);
        assert_int_equal(idle.strange, 0);
        tt_threads_set_idle(threads, NULL, NULL);
        tt_threads_run(threads, 10, sleep_in_piece, NULL);
        assert_in_range(idle.calls, 1, 30);
        tt_threads_release(threads);
    }
}

static void a_forked_child_runs_everything_itself(void **state)
{
    (void)state;
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    job_t job = {0};
    tt_threads_run(threads, 10, count_piece, &job);
    idle_t idle = {.caller = pthread_self()};
    tt_threads_set_idle(threads, count_idle,
                        &idle); /* what is under way elsewhere is the parent's */
    const pid_t child = fork();
    if (child == 0) {
        tt_threads_run(threads, 10, count_piece, &job);
        tt_threads_run(threads, 3, sleep_in_piece, NULL);
        tt_threads_release(threads);
        _exit(job.runs[9] == 2 && idle.calls == 0 ? 0 : 1);
    }
    int exit_status = -1;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
    tt_threads_run(threads, 10, count_piece, &job);
    expect_runs(&job, 10, 2);
    tt_threads_release(threads);
}

static void look_at_signals(void *arg, size_t piece)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    ((int *)arg)[piece] = sigismember(&blocked, SIGTERM) + 2 * sigismember(&blocked, SIGSEGV);
    if (piece == 0) {
        usleep(20000); /* the other piece is the other thread's */
    }
}

/* But those that a thread's own fault raises: a program's handler tells where it was. */
static void signals_are_for_the_callers_threads(void **state)
{
    (void)state;
    tt_threads_t *threads;
    int blocked[2] = {-1, -1};
    assert_int_equal(tt_threads_create(2, &threads), TUTTI_OK);
    for (int i = 0; i < 100 && blocked[0] + blocked[1] != 1; i++) {
        tt_threads_run(threads, 2, look_at_signals, blocked);
    }
    assert_int_equal(blocked[0] + blocked[1], 1); /* SIGTERM, in one of them */
    tt_threads_release(threads);
}

static void a_bad_count_and_no_memory_are_refused(void **state)
{
    (void)state;
    tt_threads_t *threads = NULL;
    assert_int_equal(tt_threads_create(0, &threads), TUTTI_ERR_ARG);
    tt_expect_error("not 0");
    assert_int_equal(tt_threads_create(257, &threads), TUTTI_ERR_ARG);
    tt_expect_error("1 to 256 threads, not 257");
    tt_alloc_fail_at(1);
    assert_int_equal(tt_threads_create(2, &threads), TUTTI_ERR_NOMEM);
    tt_alloc_fail_at(0);
    assert_null(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_runs_once),
        cmocka_unit_test(jobs_follow_each_other_without_mixing),
        cmocka_unit_test(sleeping_workers_are_woken),
        cmocka_unit_test(pieces_run_at_the_same_time),
        cmocka_unit_test(no_pool_and_an_unused_pool_are_fine),
        cmocka_unit_test(the_caller_looks_around_between_pieces),
        cmocka_unit_test(a_forked_child_runs_everything_itself),
        cmocka_unit_test(signals_are_for_the_callers_threads),
        cmocka_unit_test(a_bad_count_and_no_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
