/* Counting forks, in the child. */
#include "core/base/fork.h"

#include <pthread.h>

#include "core/base/log.h"

unsigned tt_forks;

static void count_fork(void)
{
    tt_forks++;
}

static void watch_forks(void)
{
    if (pthread_atfork(NULL, NULL, count_fork) != 0) {
        tt_log(TT_LOG_WARN, "no memory to watch for forks: a forked child that uses its parent's "
                            "groups will not be refused");
    }
}

void tt_forks_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}
