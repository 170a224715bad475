/* The team: each member runs its own index, on cores of its own, every time. */
#include "parallel/data_parallel/thread_team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/testing.h"

typedef struct {
    pthread_t threads[TT_THREAD_TEAM_MAX];
    cpu_set_t cores[TT_THREAD_TEAM_MAX];
    int runs[TT_THREAD_TEAM_MAX];
    int strangers[TT_THREAD_TEAM_MAX]; /* another thread than the first time */
    atomic_int looks;                  /* of the caller */
} visits_t;

static void visit(void *user, int index)
{
    visits_t *visits = user;
    const bool is_known = pthread_equal(visits->threads[index], pthread_self()) != 0;
    visits->strangers[index] += visits->runs[index] > 0 && !is_known;
    visits->threads[index] = pthread_self();
    visits->runs[index]++;
    sched_getaffinity(0, sizeof visits->cores[index], &visits->cores[index]);
}

static void members_run_their_index_and_no_other(void **state)
{
    (void)state;
    for (int count = 1; count <= TT_THREAD_TEAM_MAX; count += 31) {
        visits_t visits = {0};
        tt_thread_team_t *team;
        assert_int_equal(tt_thread_team_start(count, 1, &team), TUTTI_OK);
        for (int active = 1; active <= count; active++) {
            tt_thread_team_run(team, active,
                               &(tt_thread_team_job_t){.run = visit, .user = &visits});
        }
        for (int i = 0; i < TT_THREAD_TEAM_MAX; i++) {
            assert_int_equal(visits.runs[i], i < count ? count - i : 0);
            assert_int_equal(visits.strangers[i], 0);
        }
        tt_thread_team_stop(team);
    }
    tt_thread_team_stop(NULL);
}

static void members_have_cores_of_their_own_if_there_are_enough(void **state)
{
    (void)state;
    cpu_set_t allowed, both;
    visits_t visits = {0};
    tt_thread_team_t *team;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    const int cores = CPU_COUNT(&allowed) / 2;
    if (cores < 1) {
        skip();
    }
    assert_int_equal(tt_thread_team_start(2, cores, &team), TUTTI_OK);
    tt_thread_team_run(team, 2, &(tt_thread_team_job_t){.run = visit, .user = &visits});
    tt_thread_team_stop(team);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(CPU_COUNT(&visits.cores[i]), cores);
    }
    CPU_AND(&both, &visits.cores[0], &visits.cores[1]);
    assert_int_equal(CPU_COUNT(&both), 0);

    assert_int_equal(tt_thread_team_start(2, 2 * cores + 1, &team), TUTTI_OK);
    tt_thread_team_run(team, 2, &(tt_thread_team_job_t){.run = visit, .user = &visits});
    tt_thread_team_stop(team);
    assert_true(CPU_EQUAL(&visits.cores[1], &allowed));
}

static void wait_for_looks(void *user, int index)
{
    visits_t *visits = user;
    (void)index;
    while (atomic_load(&visits->looks) < 3) {
        sched_yield();
    }
}

static void look(void *user)
{
    visits_t *visits = user;
    atomic_fetch_add(&visits->looks, 1);
}

static void the_caller_looks_around_while_it_waits(void **state)
{
    (void)state;
    visits_t visits = {0};
    tt_thread_team_t *team;
    assert_int_equal(tt_thread_team_start(2, 1, &team), TUTTI_OK);
    const tt_thread_team_job_t job = {.run = wait_for_looks, .meanwhile = look, .user = &visits};
    tt_thread_team_run(team, 2, &job);
    assert_true(atomic_load(&visits.looks) >= 3);
    tt_thread_team_stop(team);
}

static void look_at_signals(void *user, int index)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    ((int *)user)[index] = sigismember(&blocked, SIGTERM);
}

static void signals_are_for_the_callers_thread(void **state)
{
    (void)state;
    int blocked[2] = {-1, -1};
    tt_thread_team_t *team;
    assert_int_equal(tt_thread_team_start(2, 1, &team), TUTTI_OK);
    tt_thread_team_run(team, 2, &(tt_thread_team_job_t){.run = look_at_signals, .user = blocked});
    tt_thread_team_stop(team);
    assert_true(blocked[0] == 1 && blocked[1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_run_their_index_and_no_other),
        cmocka_unit_test(members_have_cores_of_their_own_if_there_are_enough),
        cmocka_unit_test(the_caller_looks_around_while_it_waits),
        cmocka_unit_test(signals_are_for_the_callers_thread),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
