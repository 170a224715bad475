/* The compute threads: one job at a time, its pieces handed out by an atomic counter.
 *
 * A worker spins for a few µs after a job (the next one is usually near: spin.h), then sleeps on a
 * futex word that counts jobs. The caller posts a job, takes pieces like everyone else, and waits
 * until no worker is inside. Cost of an empty job: about 1 µs while the workers spin. More threads
 * than cores sleep at once: a thread that spins there keeps the core from the one that it
 * waits for.
 */
#include "core/base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/core_set.h"
#include "core/base/futex.h"
#include "core/base/spin.h"
#include "core/base/thread.h"

enum { SPINS_MAX = 4000, THREADS_MAX = 256, IDLE_EVERY_NS = 100000 };

struct tt_threads {
    int count;   /* with the caller */
    int spins;   /* looks at a word before sleeping on it */
    pid_t owner; /* a forked child has no workers */
    tt_piece_fn_t fn;
    void *arg;
    size_t pieces;
    tt_spin_t caller_spin;
    bool is_running; /* a job: a piece that begins another runs it by itself */
    atomic_size_t next;
    _Alignas(64) _Atomic uint32_t job;  /* counts jobs posted; workers wait for it to move */
    _Alignas(64) _Atomic uint32_t busy; /* workers that have not finished the current job */
    atomic_bool stop;
    void (*idle)(void *user); /* NULL: none */
    void *idle_user;
    int64_t idle_ns; /* when it was called last */
    void *scratch;   /* lent to one borrower at a time */
    size_t scratch_bytes;
    bool is_lent;
    pthread_t workers[THREADS_MAX];
};

static bool take_piece(tt_threads_t *threads)
{
    const size_t piece = atomic_fetch_add_explicit(&threads->next, 1, memory_order_relaxed);
    if (piece < threads->pieces) {
        threads->fn(threads->arg, piece);
    }
    return piece < threads->pieces;
}

/* In the caller's thread. Not in a forked child: what is under way elsewhere is its parent's. */
static void idle(tt_threads_t *threads)
{
    if (threads->idle == NULL) {
        return;
    }
    const int64_t now = tt_clock_ns();
    if (now - threads->idle_ns >= IDLE_EVERY_NS && threads->owner == getpid()) {
        threads->idle(threads->idle_user);
        threads->idle_ns = tt_clock_ns();
    }
}

static void wait_until_changed(tt_spin_t *spin, int spins, _Atomic uint32_t *word, uint32_t old)
{
    if (tt_spin_sees_move(spin, spins, word, old)) {
        return;
    }
    while (atomic_load_explicit(word, memory_order_acquire) == old) {
        tt_futex_wait(word, old, TT_NEVER);
    }
}

static void *work(void *user)
{
    tt_threads_t *threads = user;
    tt_spin_t spin = {0};
    for (uint32_t seen = 0;; seen++) {
        wait_until_changed(&spin, threads->spins, &threads->job, seen);
        if (atomic_load(&threads->stop)) {
            return NULL;
        }
        while (take_piece(threads)) {
        }
        if (atomic_fetch_sub_explicit(&threads->busy, 1, memory_order_acq_rel) == 1) {
            tt_futex_wake_all(&threads->busy);
        }
    }
}

/* Worker i goes to the i-th core that the caller may use, where there are enough of them. */
static void bind_worker(pthread_t thread, int index)
{
    tt_core_set_t allowed;
    if (tt_core_set_of(0, &allowed) > index) {
        const tt_core_set_t one = tt_core_set_part(&allowed, index, 1);
        pthread_setaffinity_np(thread, sizeof one, one.words);
    }
}

tutti_status_t tt_threads_create(int count, tt_threads_t **out)
{
    if (count < 1 || count > THREADS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "a context computes with 1 to %d threads, not %d",
                       THREADS_MAX, count);
    }
    tt_threads_t *threads = tt_alloc(sizeof *threads, "compute threads");
    TT_TRY_ALLOC(threads);
    threads->owner = getpid();
    tt_core_set_t allowed;
    threads->spins = count <= tt_core_set_of(0, &allowed) ? SPINS_MAX : 0;
    for (threads->count = 1; threads->count < count; threads->count++) {
        pthread_t *worker = &threads->workers[threads->count];
        const tutti_status_t status = tt_thread_start(work, threads, "compute threads", worker);
        if (status < 0) {
            tt_threads_release(threads);
            return status;
        }
        bind_worker(*worker, threads->count);
    }
    *out = threads;
    return TUTTI_OK;
}

void tt_threads_release(tt_threads_t *threads)
{
    if (threads == NULL) {
        return;
    }
    if (threads->owner == getpid()) {
        atomic_store(&threads->stop, true);
        atomic_fetch_add(&threads->job, 1);
        tt_futex_wake_all(&threads->job);
        for (int i = 1; i < threads->count; i++) {
            pthread_join(threads->workers[i], NULL);
        }
    }
    tt_free(threads->scratch);
    tt_free(threads);
}

int tt_threads_count(const tt_threads_t *threads)
{
    return threads == NULL ? 1 : threads->count;
}

void tt_threads_run(tt_threads_t *threads, size_t pieces, tt_piece_fn_t fn, void *arg)
{
    const bool alone = threads == NULL || threads->count == 1 || pieces < 2 ||
                       threads->is_running || threads->owner != getpid();
    if (alone) {
        for (size_t piece = 0; piece < pieces; piece++) {
            fn(arg, piece);
            if (threads != NULL && !threads->is_running) {
                idle(threads);
            }
        }
        return;
    }
    threads->is_running = true;
    threads->fn = fn;
    threads->arg = arg;
    threads->pieces = pieces;
    atomic_store_explicit(&threads->next, 0, memory_order_relaxed);
    atomic_store_explicit(&threads->busy, (uint32_t)threads->count - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&threads->job, 1, memory_order_release);
    tt_futex_wake_all(&threads->job);
    while (take_piece(threads)) {
        idle(threads);
    }
    for (uint32_t busy; (busy = atomic_load_explicit(&threads->busy, memory_order_acquire)) > 0;) {
        wait_until_changed(&threads->caller_spin, threads->spins, &threads->busy, busy);
    }
    threads->is_running = false;
}

void tt_threads_set_idle(tt_threads_t *threads, void (*fn)(void *user), void *user)
{
    threads->idle = fn;
    threads->idle_user = user;
}

void *tt_threads_borrow(tt_threads_t *threads, size_t bytes)
{
    if (threads == NULL || threads->is_lent) {
        return tt_alloc_raw(bytes, "kernel scratch");
    }
    if (threads->scratch == NULL || threads->scratch_bytes < bytes) {
        tt_free(threads->scratch);
        threads->scratch = tt_alloc_raw(bytes, "kernel scratch");
        threads->scratch_bytes = threads->scratch == NULL ? 0 : bytes;
    }
    threads->is_lent = threads->scratch != NULL;
    return threads->scratch;
}

void tt_threads_give_back(tt_threads_t *threads, void *block)
{
    if (threads == NULL || block != threads->scratch) {
        tt_free(block);
        return;
    }
    threads->is_lent = false;
}
