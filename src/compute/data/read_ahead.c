/* The ring and its workers. A lock guards which slots are posted and taken; a slot's state says
 * whose its content is, so nobody reads under the lock. Idle workers sleep on a word that counts
 * posts, the owner on the state of the slot that it needs. Cost: two system calls for a batch.
 */
#include "compute/data/read_ahead.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/futex.h"
#include "core/base/thread.h"

enum { NAME_BYTES = 64 };

typedef struct {
    pthread_t thread;
    struct tt_read_ahead *ahead;
    int index;
} worker_t;

struct tt_read_ahead {
    const tt_batch_reader_t *reader;
    pid_t owner; /* a forked child has no workers */
    tt_job_t *jobs;
    worker_t *workers;
    int64_t *samples; /* of all jobs */
    int slot_count, worker_count;
    uint64_t first; /* slots are numbered on and on; slot n is jobs[n % slot_count] */
    pthread_mutex_t lock;
    uint64_t posted, taken; /* under the lock */
    _Atomic uint32_t posts;
    atomic_bool is_ending;
};

static tt_job_t *job_at(tt_read_ahead_t *ahead, uint64_t slot)
{
    return &ahead->jobs[slot % (uint64_t)ahead->slot_count];
}

static void set_state(tt_job_t *job, tt_job_state_t state)
{
    atomic_store_explicit(&job->state, state, memory_order_release);
}

static tt_job_state_t state_of(tt_job_t *job)
{
    return (tt_job_state_t)atomic_load_explicit(&job->state, memory_order_acquire);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Who reads, for messages: "worker 1: ", or nothing. */
static const char *name_worker(int worker, char *text, size_t text_bytes)
{
    text[0] = 0;
    if (worker >= 0) {
        snprintf(text, text_bytes, "worker %d: ", worker);
    }
    return text;
}

/* The sample that is being read, and a word behind it, for messages: "sample 17, in "; nothing
 * behind the last. */
static const char *name_sample(const tt_job_t *job, const char *word, char text[NAME_BYTES])
{
    const int64_t at = atomic_load_explicit(&job->at, memory_order_relaxed);
    text[0] = 0;
    if (at >= 0) {
        snprintf(text, NAME_BYTES, "sample %lld%s", (long long)job->samples[at], word);
    }
    return text;
}

static void describe_failure(tt_job_t *job, int worker)
{
    char who[NAME_BYTES], what[NAME_BYTES];
    const char *text = tutti_last_error();
    snprintf(job->error, sizeof job->error, "dataloader: %s%sbatch %lld of epoch %lld: %s",
             name_worker(worker, who, sizeof who), name_sample(job, ", in ", what),
             (long long)job->number, (long long)job->batch.epoch,
             *text != 0 ? text : tutti_status_text(job->status));
}

tutti_status_t tt_read_job(const tt_batch_reader_t *reader, tt_job_t *job)
{
    char before[TT_ERROR_TEXT_BYTES]; /* of a former failure of this thread, not of this one */
    snprintf(before, sizeof before, "%s", tutti_last_error());
    (void)tt_fail_again(TUTTI_OK, "");
    job->status = tt_batch_reader_read(reader, job);
    if (job->status >= 0) {
        (void)tt_fail_again(TUTTI_OK, before);
        return TUTTI_OK;
    }
    describe_failure(job, -1);
    return tt_fail_again(job->status, job->error);
}

static void run(tt_read_ahead_t *ahead, tt_job_t *job, int worker)
{
    (void)tt_fail_again(TUTTI_OK, ""); /* a thread of our own: forget former failures */
    job->status = tt_batch_reader_read(ahead->reader, job);
    if (job->status < 0) {
        describe_failure(job, worker);
    }
    set_state(job, TT_JOB_DONE);
    tt_futex_wake_all(&job->state);
}

static tt_job_t *take(tt_read_ahead_t *ahead, int worker)
{
    tt_job_t *job = NULL;
    pthread_mutex_lock(&ahead->lock);
    while (job == NULL && ahead->taken < ahead->posted) {
        job = job_at(ahead, ahead->taken++);
        job = state_of(job) == TT_JOB_POSTED ? job : NULL; /* done: it failed early */
    }
    if (job != NULL) {
        atomic_store_explicit(&job->worker, worker, memory_order_relaxed);
        set_state(job, TT_JOB_READING);
    }
    pthread_mutex_unlock(&ahead->lock);
    return job;
}

static void *work(void *user)
{
    const worker_t *worker = user;
    tt_read_ahead_t *ahead = worker->ahead;
    for (;;) {
        const uint32_t seen = atomic_load(&ahead->posts);
        if (atomic_load(&ahead->is_ending)) {
            return NULL;
        }
        tt_job_t *job = take(ahead, worker->index);
        if (job != NULL) {
            run(ahead, job, worker->index);
        } else {
            tt_futex_wait(&ahead->posts, seen, TT_NEVER);
        }
    }
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static tutti_status_t allocate(tt_read_ahead_t *ahead, int workers, int64_t width)
{
    const size_t slots = (size_t)ahead->slot_count;
    ahead->jobs = tt_alloc_array(slots, sizeof *ahead->jobs, "data loader");
    TT_TRY_ALLOC(ahead->jobs);
    ahead->workers = tt_alloc_array((size_t)workers, sizeof *ahead->workers, "data loader");
    TT_TRY_ALLOC(ahead->workers);
    ahead->samples = tt_alloc_array(slots * (size_t)width, sizeof(int64_t), "data loader");
    TT_TRY_ALLOC(ahead->samples);
    for (size_t i = 0; i < slots; i++) {
        ahead->jobs[i].samples = ahead->samples + i * (size_t)width;
    }
    return TUTTI_OK;
}

static tutti_status_t start(tt_read_ahead_t *ahead, int workers)
{
    for (; ahead->worker_count < workers; ahead->worker_count++) {
        worker_t *worker = &ahead->workers[ahead->worker_count];
        *worker = (worker_t){.ahead = ahead, .index = ahead->worker_count};
        TT_TRY(tt_thread_start(work, worker, "dataloader", &worker->thread));
    }
    return TUTTI_OK;
}

tutti_status_t tt_read_ahead_create(const tt_batch_reader_t *reader, int workers, int slots,
                                    int64_t width, tt_read_ahead_t **out)
{
    tt_read_ahead_t *ahead = tt_alloc(sizeof *ahead, "data loader");
    TT_TRY_ALLOC(ahead);
    pthread_mutex_init(&ahead->lock, NULL);
    ahead->reader = reader;
    ahead->owner = getpid();
    ahead->slot_count = slots;
    tutti_status_t status = allocate(ahead, workers, width);
    if (status >= 0) {
        status = start(ahead, workers);
    }
    if (status < 0) {
        tt_read_ahead_release(ahead);
        return status;
    }
    *out = ahead;
    return TUTTI_OK;
}

static void forget(tt_job_t *job)
{
    tt_batch_release(&job->batch);
    set_state(job, TT_JOB_FREE);
}

static void cancel_all(tt_read_ahead_t *ahead)
{
    for (int i = 0; i < ahead->slot_count; i++) {
        atomic_store_explicit(&ahead->jobs[i].is_cancelled, true, memory_order_relaxed);
    }
}

void tt_read_ahead_release(tt_read_ahead_t *ahead)
{
    if (ahead == NULL) {
        return;
    }
    if (ahead->owner == getpid() && ahead->worker_count > 0) {
        cancel_all(ahead);
        atomic_store(&ahead->is_ending, true);
        atomic_fetch_add(&ahead->posts, 1);
        tt_futex_wake_all(&ahead->posts);
        for (int i = 0; i < ahead->worker_count; i++) {
            pthread_join(ahead->workers[i].thread, NULL);
        }
    }
    for (int i = 0; ahead->jobs != NULL && i < ahead->slot_count; i++) {
        forget(&ahead->jobs[i]);
    }
    pthread_mutex_destroy(&ahead->lock);
    tt_free(ahead->samples);
    tt_free(ahead->workers);
    tt_free(ahead->jobs);
    tt_free(ahead);
}

/* ---- the owner's side ------------------------------------------------------------------------ */

tutti_status_t tt_read_ahead_check(const tt_read_ahead_t *ahead)
{
    return ahead->owner == getpid()
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "dataloader: its workers are in the process that made "
                                          "it, not in this child: make one here");
}

tt_job_t *tt_read_ahead_free_slot(tt_read_ahead_t *ahead)
{
    const bool is_full = ahead->posted - ahead->first == (uint64_t)ahead->slot_count;
    return is_full ? NULL : job_at(ahead, ahead->posted);
}

void tt_read_ahead_post(tt_read_ahead_t *ahead, tutti_status_t status)
{
    tt_job_t *job = job_at(ahead, ahead->posted);
    job->status = status;
    atomic_store_explicit(&job->is_cancelled, false, memory_order_relaxed);
    atomic_store_explicit(&job->at, 0, memory_order_relaxed);
    if (status < 0) {
        snprintf(job->error, sizeof job->error, "%s", tutti_last_error());
    }
    pthread_mutex_lock(&ahead->lock);
    set_state(job, status < 0 ? TT_JOB_DONE : TT_JOB_POSTED);
    ahead->posted++;
    pthread_mutex_unlock(&ahead->lock);
    atomic_fetch_add(&ahead->posts, 1);
    tt_futex_wake_all(&ahead->posts);
}

/* Someone is late with `job`; it may be waiting behind others. */
static tutti_status_t fail_stragglers(tt_read_ahead_t *ahead, const tt_job_t *job)
{
    for (uint64_t slot = ahead->first; slot < ahead->posted; slot++) {
        tt_job_t *late = job_at(ahead, slot);
        if (state_of(late) == TT_JOB_READING) {
            char what[NAME_BYTES];
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "dataloader: batch %lld of epoch %lld is not there in time: worker %d "
                           "is reading %sdata set %s; if it may take so long, raise timeout_ms",
                           (long long)job->number, (long long)job->batch.epoch,
                           atomic_load_explicit(&late->worker, memory_order_relaxed),
                           name_sample(late, " of ", what), ahead->reader->dataset->ops->name);
        }
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT,
                   "dataloader: batch %lld of epoch %lld is not there in time, no worker runs; if "
                   "the machine is that busy, raise timeout_ms",
                   (long long)job->number, (long long)job->batch.epoch);
}

static tutti_status_t wait_until_done(tt_read_ahead_t *ahead, tt_job_t *job, tt_deadline_t deadline)
{
    for (;;) {
        const tt_job_state_t state = state_of(job);
        if (state == TT_JOB_DONE) {
            return TUTTI_OK;
        }
        if (tt_deadline_is_past(deadline)) {
            return fail_stragglers(ahead, job);
        }
        tt_futex_wait(&job->state, state, deadline);
    }
}

tutti_status_t tt_read_ahead_wait(tt_read_ahead_t *ahead, tt_deadline_t deadline, tt_job_t **out)
{
    tt_job_t *job = job_at(ahead, ahead->first);
    TT_TRY(wait_until_done(ahead, job, deadline));
    *out = job;
    return job->status < 0 ? tt_fail_again(job->status, job->error) : TUTTI_OK;
}

void tt_read_ahead_advance(tt_read_ahead_t *ahead)
{
    set_state(job_at(ahead, ahead->first), TT_JOB_FREE);
    ahead->first++;
}

tutti_status_t tt_read_ahead_reset(tt_read_ahead_t *ahead, tt_deadline_t deadline)
{
    pthread_mutex_lock(&ahead->lock);
    for (; ahead->taken < ahead->posted; ahead->taken++) {
        set_state(job_at(ahead, ahead->taken), TT_JOB_DONE); /* nobody has begun */
    }
    pthread_mutex_unlock(&ahead->lock);
    cancel_all(ahead);
    for (; ahead->first < ahead->posted; ahead->first++) {
        tt_job_t *job = job_at(ahead, ahead->first);
        TT_TRY(wait_until_done(ahead, job, deadline));
        forget(job);
    }
    return TUTTI_OK;
}
