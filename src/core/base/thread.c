/* A new thread inherits the mask of signals of the one that starts it. */
#include "core/base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each step of nice is a factor of 1.25 (sched(7)). */
enum { STAND_BACK = 17 };

tutti_status_t tt_thread_start(void *(*run)(void *user), void *user, const char *what,
                               pthread_t *out)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&others, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &others, &before);
    const int code = pthread_create(out, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_IO, "%s: cannot start a thread: %s", what, strerror(code));
}

/* On Linux nice is a thread's, by its id. */
void tt_thread_stand_back(void)
{
    const id_t self = (id_t)syscall(SYS_gettid);
    errno = 0;
    const int nice = getpriority(PRIO_PROCESS, self);
    if (errno == 0) {
        (void)setpriority(PRIO_PROCESS, self, nice + STAND_BACK); /* the system cuts it to 19 */
    }
}
