/* Threads that stay, each with cores of its own, for work that is done by all at once.
 *
 *     static void hello(void *user, int index) { … }
 *     tt_thread_team_t *team;
 *     TT_TRY(tt_thread_team_start(2, 4, &team));        // two members, four cores each
 *     tt_thread_team_run(team, 2, &(tt_thread_team_job_t){.run = hello});
 *     tt_thread_team_stop(team);
 *
 * Member i runs index i, always: what it made is in its caches and on its cores. A team is used by
 * one caller at a time. After fork() the child's copy runs everything in the caller.
 */
#ifndef TT_THREAD_TEAM_H
#define TT_THREAD_TEAM_H

#include "core/base/fail.h"

enum { TT_THREAD_TEAM_MAX = 63 };

typedef struct tt_thread_team tt_thread_team_t;

typedef struct {
    void (*run)(void *user, int index);
    void (*meanwhile)(void *user); /* called now and then by the waiting caller; may be NULL */
    void *user;
} tt_thread_team_job_t;

/* Members are bound to `cores` each if the caller may use count * cores, else to none. */
tutti_status_t tt_thread_team_start(int count, int cores, tt_thread_team_t **out);

/* NULL does nothing. */
void tt_thread_team_stop(tt_thread_team_t *team);

/* Members 0 to count - 1 run the job; returns when all are done. */
void tt_thread_team_run(tt_thread_team_t *team, int count, const tt_thread_team_job_t *job);

#endif
