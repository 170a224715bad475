/* Children that are forked while a profile is recorded: it stays their parent's, and they compute.
 */
#include "runtime/profile/profile_file_testing.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/profile.h>

#include "core/base/profile_impl.h"

static void a_child_does_not_stop_its_parents(void **state)
{
    (void)state;
    int ended;
    assert_int_equal(tutti_profile_start(path), TUTTI_OK);
    const pid_t child = fork();
    if (child == 0) {
        _exit(tutti_profile_stop() == TUTTI_ERR_STATE && access(path, F_OK) != 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    assert_int_equal(tutti_profile_stop(), TUTTI_OK);
    assert_int_equal(access(path, F_OK), 0);
}

static sem_t is_held, has_forked;

/* Until the fork is over, or waits for the lock. */
static void *hold_the_lock(void *user)
{
    struct timespec until;
    (void)user;
    tt_profile_lock();
    sem_post(&is_held);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    (void)sem_timedwait(&has_forked, &until);
    tt_profile_unlock();
    return NULL;
}

/* What a child does that computes: SIGALRM ends one that waits for a thread it does not have. */
static int compute(void)
{
    alarm(20);
    const size_t live = tt_alloc_live();
    const uint32_t module = tt_profile_module("child");
    void *block = tt_alloc(64, "profile test child");
    const bool is_left_alone = tt_alloc_live() == live;
    tt_free(block);
    tt_profile_set_rank(0, 1);
    return module == 0 && is_left_alone ? 0 : 1;
}

static void a_child_does_not_wait_for_a_lock_of_its_parents(void **state)
{
    (void)state;
    int ended;
    pthread_t holder;
    assert_int_equal(tutti_profile_start(path), TUTTI_OK);
    assert_int_equal(sem_init(&is_held, 0, 0) + sem_init(&has_forked, 0, 0), 0);
    assert_int_equal(pthread_create(&holder, NULL, hold_the_lock, NULL), 0);
    assert_int_equal(sem_wait(&is_held), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)syscall(SYS_exit_group, compute()); /* TSan would miss the holder's end */
    }
    sem_post(&has_forked);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(pthread_join(holder, NULL), 0);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    assert_int_equal(tutti_profile_stop(), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_PROFILE_TEST(a_child_does_not_stop_its_parents),
        TT_PROFILE_TEST(a_child_does_not_wait_for_a_lock_of_its_parents),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
