/* Ranks as threads of this process, which meet in a store in memory. A thread cannot be ended from
 * outside: when a rank fails, the store is aborted, so that no other waits there, and those that
 * share a group with it notice that it has left.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "runtime/elastic/spawn_impl.h"

static void *be_rank(void *user)
{
    const tt_spawn_thread_t *thread = user;
    tutti_spawn_t *spawn = thread->spawn;
    tutti_spawned_t self = {.rank = thread->rank,
                            .size = spawn->block->rank_count,
                            .store = tutti_store_retain(spawn->store)};
    if (tt_spawn_run(spawn->block, spawn->run, &self) < 0) {
        tutti_store_abort(spawn->store);
    }
    tutti_store_release(self.store);
    pthread_mutex_lock(&spawn->mutex);
    spawn->running--;
    pthread_cond_broadcast(&spawn->changed);
    pthread_mutex_unlock(&spawn->mutex);
    return NULL;
}

static tutti_status_t start_thread(tutti_spawn_t *spawn, int rank)
{
    tt_spawn_thread_t *thread = &spawn->threads[rank];
    *thread = (tt_spawn_thread_t){.spawn = spawn, .rank = rank};
    pthread_mutex_lock(&spawn->mutex);
    spawn->running++;
    pthread_mutex_unlock(&spawn->mutex);
    const int code = pthread_create(&thread->thread, NULL, be_rank, thread);
    if (code != 0) {
        pthread_mutex_lock(&spawn->mutex);
        spawn->running--;
        pthread_mutex_unlock(&spawn->mutex);
        return TT_FAIL(TUTTI_ERR_IO, "spawn: cannot start rank %d as a thread: %s", rank,
                       strerror(code));
    }
    spawn->started++;
    return TUTTI_OK;
}

tutti_status_t tt_spawn_threads(tutti_spawn_t *spawn)
{
    const int n = spawn->block->rank_count;
    TT_TRY(tutti_store_hash_create(&spawn->store));
    spawn->threads = tt_alloc_array((size_t)n, sizeof *spawn->threads, "spawned threads");
    TT_TRY_ALLOC(spawn->threads);
    for (int i = 0; i < n; i++) {
        TT_TRY(start_thread(spawn, i));
    }
    return TUTTI_OK;
}

tutti_status_t tt_spawn_threads_wait(tutti_spawn_t *spawn, tt_deadline_t deadline)
{
    const struct timespec until = {.tv_sec = deadline / TT_NS_PER_S,
                                   .tv_nsec = deadline % TT_NS_PER_S};
    int code = 0;
    pthread_mutex_lock(&spawn->mutex);
    while (spawn->running > 0 && code != ETIMEDOUT) {
        code = deadline == TT_NEVER ? pthread_cond_wait(&spawn->changed, &spawn->mutex)
                                    : pthread_cond_clockwait(&spawn->changed, &spawn->mutex,
                                                             CLOCK_MONOTONIC, &until);
    }
    const bool has_ended = spawn->running == 0;
    pthread_mutex_unlock(&spawn->mutex);
    return has_ended ? TUTTI_OK : TUTTI_PENDING;
}

void tt_spawn_threads_end(tutti_spawn_t *spawn)
{
    if (spawn->store != NULL && tt_spawn_threads_wait(spawn, tt_clock_ns()) == TUTTI_PENDING) {
        tutti_store_abort(spawn->store);
    }
    for (int i = 0; i < spawn->started; i++) {
        pthread_join(spawn->threads[i].thread, NULL);
    }
    spawn->started = 0;
    tt_free(spawn->threads);
    spawn->threads = NULL;
    tutti_store_release(spawn->store);
    spawn->store = NULL;
}
