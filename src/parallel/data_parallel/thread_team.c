/* The team: each member sleeps on a word of its own that counts its jobs.
 *
 * Nobody spins: the caller's core is probably a member's, and what members do takes milliseconds,
 * a thousand times as long as to wake one.
 */
#include "parallel/data_parallel/thread_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/core_set.h"
#include "core/base/futex.h"
#include "core/base/thread.h"

enum { MEANWHILE_MS = 1 };

typedef struct {
    _Alignas(64) _Atomic uint32_t jobs; /* given so far; the member waits for it to move */
    tt_thread_team_t *team;
    pthread_t thread;
    int index;
} member_t;

struct tt_thread_team {
    int count;
    pid_t owner; /* a forked child has no members */
    const tt_thread_team_job_t *job;
    atomic_bool stop;
    _Alignas(64) _Atomic uint32_t busy; /* members that have not finished */
    member_t members[TT_THREAD_TEAM_MAX];
};

static void *work(void *user)
{
    member_t *member = user;
    tt_thread_team_t *team = member->team;
    for (uint32_t seen = 0;; seen++) {
        while (atomic_load_explicit(&member->jobs, memory_order_acquire) == seen) {
            tt_futex_wait(&member->jobs, seen, TT_NEVER);
        }
        if (atomic_load(&team->stop)) {
            return NULL;
        }
        team->job->run(team->job->user, member->index);
        if (atomic_fetch_sub_explicit(&team->busy, 1, memory_order_acq_rel) == 1) {
            tt_futex_wake_all(&team->busy);
        }
    }
}

tutti_status_t tt_thread_team_start(int count, int cores, tt_thread_team_t **out)
{
    TT_ASSERT(count >= 1 && count <= TT_THREAD_TEAM_MAX);
    tt_thread_team_t *team = tt_alloc(sizeof *team, "team");
    TT_TRY_ALLOC(team);
    tt_core_set_t allowed;
    const bool has_cores = (int64_t)count * cores <= tt_core_set_of(0, &allowed);
    team->owner = getpid();
    for (team->count = 0; team->count < count; team->count++) {
        member_t *member = &team->members[team->count];
        member->team = team;
        member->index = team->count;
        const tutti_status_t status = tt_thread_start(work, member, "replicas", &member->thread);
        if (status < 0) {
            tt_thread_team_stop(team);
            return status;
        }
        if (has_cores) {
            const tt_core_set_t own = tt_core_set_part(&allowed, team->count * cores, cores);
            pthread_setaffinity_np(member->thread, sizeof own, own.words);
        }
    }
    *out = team;
    return TUTTI_OK;
}

static void give_job(member_t *member)
{
    atomic_fetch_add_explicit(&member->jobs, 1, memory_order_release);
    tt_futex_wake_all(&member->jobs);
}

void tt_thread_team_stop(tt_thread_team_t *team)
{
    if (team == NULL) {
        return;
    }
    atomic_store(&team->stop, true);
    for (int i = 0; i < team->count && team->owner == getpid(); i++) {
        give_job(&team->members[i]);
        pthread_join(team->members[i].thread, NULL);
    }
    tt_free(team);
}

static void wait_for_all(tt_thread_team_t *team, const tt_thread_team_job_t *job)
{
    for (uint32_t busy; (busy = atomic_load_explicit(&team->busy, memory_order_acquire)) > 0;) {
        tt_futex_wait(&team->busy, busy,
                      job->meanwhile == NULL ? TT_NEVER : tt_deadline_in_ms(MEANWHILE_MS));
        if (job->meanwhile != NULL) {
            job->meanwhile(job->user);
        }
    }
}

void tt_thread_team_run(tt_thread_team_t *team, int count, const tt_thread_team_job_t *job)
{
    TT_ASSERT(count <= team->count);
    if (team->owner != getpid()) {
        for (int i = 0; i < count; i++) {
            job->run(job->user, i);
        }
        return;
    }
    team->job = job;
    atomic_store_explicit(&team->busy, (uint32_t)count, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        give_job(&team->members[i]);
    }
    wait_for_all(team, job);
}
