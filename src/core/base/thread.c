/* A new thread inherits the mask of signals of the one that starts it. */
#include "core/base/thread.h"

#include <signal.h>
#include <string.h>

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
