/* Threads of the library's own. No signal is delivered to them, but those that a fault of theirs
 * raises: signals are for the threads of the program.
 */
#ifndef TT_THREAD_H
#define TT_THREAD_H

#include <pthread.h>

#include "core/base/fail.h"

/* The caller joins or detaches *out. Errors: IO ("WHAT: cannot start a thread: …"). */
tutti_status_t tt_thread_start(void *(*run)(void *user), void *user, const char *what,
                               pthread_t *out);

/* The calling thread stands back behind the others where all cores are busy, and gets a
 * fortieth of one there; where cores are idle nothing changes. */
void tt_thread_stand_back(void);

#endif
