/* The clock and its deadlines, and futexes, which sleep until one. */
#include "core/base/testing.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/futex.h"

static void the_clock_goes_forward(void **state)
{
    (void)state;
    int64_t before = tt_clock_ns();
    for (int i = 0; i < 1000; i++) {
        const int64_t now = tt_clock_ns();
        assert_true(now >= before);
        before = now;
    }
}

static void a_deadline_passes_when_its_time_has_come(void **state)
{
    (void)state;
    assert_true(tt_deadline_is_past(tt_deadline_in_ms(0)));
    assert_int_equal(tt_deadline_left_ms(tt_deadline_in_ms(0)), 0);
    const tt_deadline_t later = tt_deadline_in_ms(60000);
    assert_false(tt_deadline_is_past(later));
    assert_in_range(tt_deadline_left_ms(later), 59000, 60000);
    assert_int_equal(tt_deadline_left_ms(tt_clock_ns() - TT_NS_PER_S), 0);
}

static void what_is_left_is_rounded_up(void **state)
{
    (void)state;
    /* A poll(2) of the remaining time must not return before the deadline. */
    for (int i = 0; i < 100; i++) {
        const tt_deadline_t deadline = tt_clock_ns() + 10 * TT_NS_PER_MS + i * TT_NS_PER_MS / 100;
        const int left = tt_deadline_left_ms(deadline);
        assert_true(left * TT_NS_PER_MS >= deadline - tt_clock_ns());
        assert_true(left <= 11);
    }
    assert_int_equal(tt_deadline_left_ms(tt_deadline_in_ms(INT64_C(1) << 40)), INT_MAX);
}

static void never_does_not_come(void **state)
{
    (void)state;
    assert_true(tt_deadline_in_ms(-1) == TT_NEVER);
    assert_true(tt_deadline_in_ms(INT64_MAX) == TT_NEVER);
    assert_true(tt_deadline_in_ms(INT64_MAX / TT_NS_PER_MS) == TT_NEVER);
    assert_true(tt_deadline_after(7, INT64_MAX) == TT_NEVER);
    assert_true(tt_deadline_after(7, 2) == 7 + 2 * TT_NS_PER_MS);
    assert_true(tt_ms_in_ns(-1) == INT64_MAX && tt_ms_in_ns(INT64_MAX) == INT64_MAX);
    assert_false(tt_deadline_is_past(TT_NEVER));
    assert_int_equal(tt_deadline_left_ms(TT_NEVER), -1);
    assert_true(tt_deadline_timeout_ms(TT_NEVER) == INT64_MAX);
    assert_true(tt_deadline_timeout_ms(tt_clock_ns() - 1) == 1);
}

static void a_futex_returns_at_once_where_the_word_has_changed(void **state)
{
    (void)state;
    _Atomic uint32_t word = 1;
    const int64_t start = tt_clock_ns();
    tt_futex_wait(&word, 0, tt_deadline_in_ms(10000));
    assert_true(tt_clock_ns() - start < 5 * TT_NS_PER_S);
}

static void a_futex_keeps_its_deadline(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    const tt_deadline_t deadline = tt_deadline_in_ms(20);
    while (!tt_deadline_is_past(deadline)) {
        tt_futex_wait(&word, 0, deadline);
    }
    assert_true(tt_clock_ns() - deadline < 5 * TT_NS_PER_S);
}

/* Long enough that those who wait have gone to sleep. */
static void let_them_sleep(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static void *wait_for_one(void *user)
{
    _Atomic uint32_t *word = user;
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    while (*word == 0 && !tt_deadline_is_past(deadline)) {
        tt_futex_wait(word, 0, deadline);
    }
    return *word == 1 ? user : NULL;
}

static void a_thread_is_woken(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_one, &word), 0);
    }
    let_them_sleep();
    const int64_t start = tt_clock_ns();
    word = 1;
    tt_futex_wake_all(&word);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, &word);
    }
    assert_true(tt_clock_ns() - start < 10 * TT_NS_PER_S);
}

static void another_process_is_woken(void **state)
{
    (void)state;
    _Atomic uint32_t *word =
        mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(word != MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) {
        _exit(wait_for_one(word) == NULL);
    }
    let_them_sleep();
    const int64_t start = tt_clock_ns();
    *word = 1;
    tt_futex_wake_all(word);
    int exit_status = -1;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
    assert_true(tt_clock_ns() - start < 10 * TT_NS_PER_S);
    munmap(word, sizeof *word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(a_deadline_passes_when_its_time_has_come),
        cmocka_unit_test(what_is_left_is_rounded_up),
        cmocka_unit_test(never_does_not_come),
        cmocka_unit_test(a_futex_returns_at_once_where_the_word_has_changed),
        cmocka_unit_test(a_futex_keeps_its_deadline),
        cmocka_unit_test(a_thread_is_woken),
        cmocka_unit_test(another_process_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
