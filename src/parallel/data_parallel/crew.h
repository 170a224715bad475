/* Threads that stay, each with cores of its own, for work that is done by all at once.
 *
 *     static void hello(void *user, int index) { … }
 *     tt_crew_t *crew;
 *     TT_TRY(tt_crew_start(2, 4, &crew));        // two members, four cores each
 *     tt_crew_run(crew, 2, &(tt_crew_job_t){.run = hello});
 *     tt_crew_stop(crew);
 *
 * Member i runs index i, always: what it made is in its caches and on its cores. A crew is used by
 * one caller at a time. After fork() the child's copy runs everything in the caller.
 */
#ifndef TT_CREW_H
#define TT_CREW_H

#include "core/base/fail.h"

enum { TT_CREW_MAX = 63 };

typedef struct tt_crew tt_crew_t;

typedef struct {
    void (*run)(void *user, int index);
    void (*meanwhile)(void *user); /* called now and then by the waiting caller; may be NULL */
    void *user;
} tt_crew_job_t;

/* Members are bound to `cores` each if the caller may use count * cores, else to none. */
tutti_status_t tt_crew_start(int count, int cores, tt_crew_t **out);

/* NULL does nothing. */
void tt_crew_stop(tt_crew_t *crew);

/* Members 0 to count - 1 run the job; returns when all are done. */
void tt_crew_run(tt_crew_t *crew, int count, const tt_crew_job_t *job);

#endif
