/* The crew: each member sleeps on a word of its own that counts its jobs.
 *
 * Nobody spins: the caller's core is probably a member's, and what members do takes milliseconds,
 * a thousand times as long as to wake one.
 */
#include "parallel/data_parallel/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/futex.h"

enum { MEANWHILE_MS = 1 };

typedef struct {
    _Alignas(64) _Atomic uint32_t jobs; /* given so far; the member waits for it to move */
    tt_crew_t *crew;
    pthread_t thread;
    int index;
} member_t;

struct tt_crew {
    int count;
    pid_t owner; /* a forked child has no members */
    const tt_crew_job_t *job;
    atomic_bool stop;
    _Alignas(64) _Atomic uint32_t busy; /* members that have not finished */
    member_t members[TT_CREW_MAX];
};

static void *work(void *user)
{
    member_t *member = user;
    tt_crew_t *crew = member->crew;
    for (uint32_t seen = 0;; seen++) {
        while (atomic_load_explicit(&member->jobs, memory_order_acquire) == seen) {
            tt_futex_wait(&member->jobs, seen, TT_NEVER);
        }
        if (atomic_load(&crew->stop)) {
            return NULL;
        }
        crew->job->run(crew->job->user, member->index);
        if (atomic_fetch_sub_explicit(&crew->busy, 1, memory_order_acq_rel) == 1) {
            tt_futex_wake_all(&crew->busy);
        }
    }
}

/* Cores [first, first + count) of those that are allowed. */
static void bind_member(pthread_t thread, const cpu_set_t *allowed, int first, int count)
{
    cpu_set_t own;
    int seen = 0;
    CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, allowed)) {
            if (seen >= first && seen < first + count) {
                CPU_SET(cpu, &own);
            }
            seen++;
        }
    }
    pthread_setaffinity_np(thread, sizeof own, &own);
}

tutti_status_t tt_crew_start(int count, int cores, tt_crew_t **out)
{
    TT_ASSERT(count >= 1 && count <= TT_CREW_MAX);
    tt_crew_t *crew = tt_alloc(sizeof *crew, "crew");
    TT_TRY_ALLOC(crew);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const bool has_cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
                           (int64_t)count * cores <= CPU_COUNT(&allowed);
    crew->owner = getpid();
    for (crew->count = 0; crew->count < count; crew->count++) {
        member_t *member = &crew->members[crew->count];
        member->crew = crew;
        member->index = crew->count;
        if (pthread_create(&member->thread, NULL, work, member) != 0) {
            const int started = crew->count;
            tt_crew_stop(crew);
            return TT_FAIL(TUTTI_ERR_NOMEM, "cannot start thread %d of %d", started, count);
        }
        if (has_cores) {
            bind_member(member->thread, &allowed, crew->count * cores, cores);
        }
    }
    *out = crew;
    return TUTTI_OK;
}

static void give_job(member_t *member)
{
    atomic_fetch_add_explicit(&member->jobs, 1, memory_order_release);
    tt_futex_wake_all(&member->jobs);
}

void tt_crew_stop(tt_crew_t *crew)
{
    if (crew == NULL) {
        return;
    }
    atomic_store(&crew->stop, true);
    for (int i = 0; i < crew->count && crew->owner == getpid(); i++) {
        give_job(&crew->members[i]);
        pthread_join(crew->members[i].thread, NULL);
    }
    tt_free(crew);
}

static void wait_for_all(tt_crew_t *crew, const tt_crew_job_t *job)
{
    for (uint32_t busy; (busy = atomic_load_explicit(&crew->busy, memory_order_acquire)) > 0;) {
        tt_futex_wait(&crew->busy, busy,
                      job->meanwhile == NULL ? TT_NEVER : tt_deadline_in_ms(MEANWHILE_MS));
        if (job->meanwhile != NULL) {
            job->meanwhile(job->user);
        }
    }
}

void tt_crew_run(tt_crew_t *crew, int count, const tt_crew_job_t *job)
{
    TT_ASSERT(count <= crew->count);
    if (crew->owner != getpid()) {
        for (int i = 0; i < count; i++) {
            job->run(job->user, i);
        }
        return;
    }
    crew->job = job;
    atomic_store_explicit(&crew->busy, (uint32_t)count, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        give_job(&crew->members[i]);
    }
    wait_for_all(crew, job);
}
