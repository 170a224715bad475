/* Threads of the library's own: what a thread gives up is its own alone. */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/testing.h"
#include "core/base/thread.h"

static int nice_of_this_thread(void)
{
    return getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

static void *stand_back(void *user)
{
    int *found = user;
    found[0] = nice_of_this_thread();
    tt_thread_stand_back();
    found[1] = nice_of_this_thread();
    return NULL;
}

static void a_thread_stands_back_alone(void **state)
{
    (void)state;
    pthread_t thread;
    int found[2];
    const int before = nice_of_this_thread();
    assert_int_equal(tt_thread_start(stand_back, found, "test", &thread), TUTTI_OK);
    pthread_join(thread, NULL);
    assert_int_equal(found[0], before);
    assert_int_equal(found[1], before + 17 > 19 ? 19 : before + 17);
    assert_int_equal(nice_of_this_thread(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_stands_back_alone),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
