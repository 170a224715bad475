/* The compute pool: one job at a time, its pieces handed out by an atomic counter.
 *
 * A worker spins for a few µs after a job (the next one is usually near), then sleeps on a futex
 * word that counts jobs. The caller posts a job, takes pieces like everyone else, and waits until
 * no worker is inside. Cost of an empty job: about 1 µs while the workers spin. A pool with more
 * threads than cores sleeps at once: a thread that spins there keeps the core from the one that it
 * waits for.
 */
#include "core/base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/core_set.h"
#include "core/base/futex.h"

enum { SPINS_MAX = 4000, THREADS_MAX = 256, IDLE_EVERY_NS = 100000 };

struct tt_pool {
    int threads; /* with the caller */
    int spins;   /* looks at a word before sleeping on it */
    pid_t owner; /* a forked child has no workers */
    tt_piece_fn_t fn;
    void *arg;
    size_t pieces;
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

static bool take_piece(tt_pool_t *pool)
{
    const size_t piece = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    if (piece < pool->pieces) {
        pool->fn(pool->arg, piece);
    }
    return piece < pool->pieces;
}

/* In the caller's thread. Not in a forked child: what is under way elsewhere is its parent's. */
static void idle(tt_pool_t *pool)
{
    if (pool->idle == NULL) {
        return;
    }
    const int64_t now = tt_clock_ns();
    if (now - pool->idle_ns >= IDLE_EVERY_NS && pool->owner == getpid()) {
        pool->idle(pool->idle_user);
        pool->idle_ns = tt_clock_ns();
    }
}

static void wait_until_changed(int spins, _Atomic uint32_t *word, uint32_t old)
{
    for (int spin = 0; spin < spins; spin++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) {
            return;
        }
        tt_cpu_pause();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == old) {
        tt_futex_wait(word, old, TT_NEVER);
    }
}

static void *work(void *user)
{
    tt_pool_t *pool = user;
    for (uint32_t seen = 0;; seen++) {
        wait_until_changed(pool->spins, &pool->job, seen);
        if (atomic_load(&pool->stop)) {
            return NULL;
        }
        while (take_piece(pool)) {
        }
        if (atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_acq_rel) == 1) {
            tt_futex_wake_all(&pool->busy);
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

tutti_status_t tt_pool_create(int threads, tt_pool_t **out)
{
    if (threads < 1 || threads > THREADS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "a thread pool takes 1 to %d threads, not %d", THREADS_MAX,
                       threads);
    }
    tt_pool_t *pool = tt_alloc(sizeof *pool, "thread pool");
    TT_TRY_ALLOC(pool);
    pool->owner = getpid();
    tt_core_set_t allowed;
    pool->spins = threads <= tt_core_set_of(0, &allowed) ? SPINS_MAX : 0;
    for (pool->threads = 1; pool->threads < threads; pool->threads++) {
        pthread_t *worker = &pool->workers[pool->threads];
        if (pthread_create(worker, NULL, work, pool) != 0) {
            tt_pool_release(pool);
            return TT_FAIL(TUTTI_ERR_NOMEM, "cannot start compute thread %d of %d", pool->threads,
                           threads);
        }
        bind_worker(*worker, pool->threads);
    }
    *out = pool;
    return TUTTI_OK;
}

void tt_pool_release(tt_pool_t *pool)
{
    if (pool == NULL) {
        return;
    }
    if (pool->owner == getpid()) {
        atomic_store(&pool->stop, true);
        atomic_fetch_add(&pool->job, 1);
        tt_futex_wake_all(&pool->job);
        for (int i = 1; i < pool->threads; i++) {
            pthread_join(pool->workers[i], NULL);
        }
    }
    tt_free(pool->scratch);
    tt_free(pool);
}

int tt_pool_threads(const tt_pool_t *pool)
{
    return pool == NULL ? 1 : pool->threads;
}

void tt_pool_run(tt_pool_t *pool, size_t pieces, tt_piece_fn_t fn, void *arg)
{
    const bool alone = pool == NULL || pool->threads == 1 || pieces < 2 || pool->is_running ||
                       pool->owner != getpid();
    if (alone) {
        for (size_t piece = 0; piece < pieces; piece++) {
            fn(arg, piece);
            if (pool != NULL && !pool->is_running) {
                idle(pool);
            }
        }
        return;
    }
    pool->is_running = true;
    pool->fn = fn;
    pool->arg = arg;
    pool->pieces = pieces;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->busy, (uint32_t)pool->threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->job, 1, memory_order_release);
    tt_futex_wake_all(&pool->job);
    while (take_piece(pool)) {
        idle(pool);
    }
    for (uint32_t busy; (busy = atomic_load_explicit(&pool->busy, memory_order_acquire)) > 0;) {
        wait_until_changed(pool->spins, &pool->busy, busy);
    }
    pool->is_running = false;
}

void tt_pool_set_idle(tt_pool_t *pool, void (*fn)(void *user), void *user)
{
    pool->idle = fn;
    pool->idle_user = user;
}

void *tt_pool_borrow(tt_pool_t *pool, size_t bytes)
{
    if (pool == NULL || pool->is_lent) {
        return tt_alloc_raw(bytes, "kernel scratch");
    }
    if (pool->scratch == NULL || pool->scratch_bytes < bytes) {
        tt_free(pool->scratch);
        pool->scratch = tt_alloc_raw(bytes, "kernel scratch");
        pool->scratch_bytes = pool->scratch == NULL ? 0 : bytes;
    }
    pool->is_lent = pool->scratch != NULL;
    return pool->scratch;
}

void tt_pool_give_back(tt_pool_t *pool, void *block)
{
    if (pool == NULL || block != pool->scratch) {
        tt_free(block);
        return;
    }
    pool->is_lent = false;
}
