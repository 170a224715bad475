/* How long a launcher waits for the address of node 0's store.
 *
 * This program has a getaddrinfo of its own, which the library calls in place of libc's.
 */
#include "core/base/testing.h"

#include <netdb.h>
#include <semaphore.h>
#include <time.h>

#include "core/base/clock.h"
#include "runtime/elastic/launch_host.h"

static sem_t is_released; /* the resolver answers */
static sem_t has_ended;   /* it has */

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    (void)host;
    (void)service;
    (void)out;
    if ((hints->ai_flags & AI_NUMERICHOST) == 0) {
        while (sem_wait(&is_released) != 0) {
        }
        sem_post(&has_ended);
    }
    return EAI_NONAME;
}

/* The thread of the lookup outlives its caller. */
static void await_resolver(void)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 20;
    assert_int_equal(sem_timedwait(&has_ended, &deadline), 0);
}

/* Asked before each step. The resolver answers in step *user; 0: it does not. */
static int steps;

static bool is_never_closing(const void *user)
{
    if (++steps == *(const int *)user) {
        sem_post(&is_released);
    }
    return false;
}

static bool is_closing_at_step_2(const void *user)
{
    (void)user;
    return ++steps == 2;
}

static tutti_status_t find(int64_t ms, bool (*is_closing)(const void *user), int answer_step)
{
    tt_store_endpoint_t endpoint = {.host = "silent.test", .port = 80};
    steps = 0;
    return tt_launch_host_find(&endpoint, tt_deadline_in_ms(ms), is_closing, &answer_step);
}

static void an_answer_is_waited_for_in_steps(void **state)
{
    (void)state;
    assert_int_equal(find(60000, is_never_closing, 2), TUTTI_ERR_ARG);
    tt_expect_error("--rdzv-endpoint or --master-addr: host silent.test cannot be resolved: ");
    assert_true(steps >= 2);
    await_resolver();
}

static void who_does_not_answer_in_time_is_named(void **state)
{
    (void)state;
    assert_int_equal(find(0, is_never_closing, 0), TUTTI_ERR_TIMEOUT);
    tt_expect_error("host silent.test: the resolver has not answered in time");
    assert_int_equal(steps, 1);
    sem_post(&is_released);
    await_resolver();
}

static void a_stop_is_seen_between_two_steps(void **state)
{
    (void)state;
    assert_int_equal(find(60000, is_closing_at_step_2, 0), TUTTI_ERR_ABORTED);
    tt_expect_error("stopped while host silent.test is looked up");
    sem_post(&is_released);
    await_resolver();
}

int main(void)
{
    sem_init(&is_released, 0, 0);
    sem_init(&has_ended, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_waited_for_in_steps),
        cmocka_unit_test(who_does_not_answer_in_time_is_named),
        cmocka_unit_test(a_stop_is_seen_between_two_steps),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
