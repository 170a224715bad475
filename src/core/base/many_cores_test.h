/* A machine with more than 1,024 cores, for tests: the C library's sched_getaffinity() as such a
 * system answers it. This process may use tt_many_usable of the cores; with 0 the call fails. For
 * *_test.c only. */
#ifndef TT_MANY_CORES_TEST_H
#define TT_MANY_CORES_TEST_H

#include <errno.h>
#include <sched.h>
#include <string.h>

enum { TT_MANY_CORES = 2048, TT_MANY_FIRST = 1500, TT_MANY_USABLE = 8 };

static size_t tt_many_usable = TT_MANY_USABLE;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (bytes < TT_MANY_CORES / 8 || tt_many_usable == 0) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (size_t core = TT_MANY_FIRST; core < TT_MANY_FIRST + tt_many_usable; core++) {
        CPU_SET_S(core, bytes, set);
    }
    return 0;
}

#endif
