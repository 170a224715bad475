/* The inside of tutti_spawn(): ranks as processes (spawn_processes.c) or threads
 * (spawn_threads.c), and what both share (spawn.c).
 */
#ifndef TT_SPAWN_IMPL_H
#define TT_SPAWN_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "core/base/clock.h"
#include "runtime/elastic/spawn_block.h"

typedef struct {
    tutti_spawn_t *spawn;
    pthread_t thread;
    int rank;
} tt_spawn_thread_t;

struct tutti_spawned_ranks {
    pid_t owner; /* the ranks are not a forked child's to end */
    tt_spawn_block_t *block;
    tutti_spawn_fn_t run;
    tt_deadline_t deadline; /* the options' */
    bool has_ended;         /* `status` is the final one */
    tutti_status_t status;
    char text[TT_ERROR_TEXT_BYTES];
    int failed_rank;

    /* Processes. */
    pid_t launcher;
    int pidfd;    /* -1: none */
    int lifeline; /* its closing ends the ranks; -1: closed */

    /* Threads. */
    bool is_threads;
    tt_spawn_thread_t *threads;
    int started;          /* threads */
    tutti_store_t *store; /* where they meet */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int running; /* threads, under the mutex */
};

/* Starts the launcher, which starts the ranks. */
tutti_status_t tt_spawn_processes(tutti_spawn_t *spawn, int block_fd,
                                  const char *const *environment);

/* OK: all have ended; PENDING: not by the deadline. */
tutti_status_t tt_spawn_processes_wait(tutti_spawn_t *spawn, tt_deadline_t deadline);
tutti_status_t tt_spawn_processes_signal(tutti_spawn_t *spawn, int signal);

/* Kill what still runs, and forget it. */
void tt_spawn_processes_end(tutti_spawn_t *spawn);

/* The same of threads. */
tutti_status_t tt_spawn_threads(tutti_spawn_t *spawn);
tutti_status_t tt_spawn_threads_wait(tutti_spawn_t *spawn, tt_deadline_t deadline);
void tt_spawn_threads_end(tutti_spawn_t *spawn);

/* The entry of this program with a function or a name; NULL. *is_known (out): whether
 * tutti_spawned() was called. */
const tutti_spawn_entry_t *tt_spawn_entry(tutti_spawn_fn_t run, const char *name, bool *is_known);

#endif
