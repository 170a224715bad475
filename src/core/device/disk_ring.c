/* Buffers, and threads that fill and empty them.
 *
 *              ┌────────── read ahead ───────────┐
 *     EMPTY ──> READING ──> THERE ──use──> USED ──next use──> DIRTY ──> WRITING ──> THERE
 *                  │          │                                  │
 *                  └> FAILED  └─ another unit is wanted ─> EMPTY └─use─> USED
 *
 * What is wanted are the unit that is waited for, then those that follow the last one used in the
 * order of the round before, as many as there are buffers beside the one in use. A thread takes
 * what it finds first: the unit that is waited for; a dirty buffer; a wanted unit, where a buffer
 * is empty or holds what is not wanted.
 */
#include "core/device/disk_ring.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/fork.h"
#include "core/base/integers.h"
#include "core/base/thread.h"

enum { BUFFERS = TT_DISK_BUFFERS, THREADS = 2 };

#define NONE SIZE_MAX

typedef enum { EMPTY, READING, THERE, USED, DIRTY, WRITING, FAILED } state_t;

typedef struct {
    state_t state;
    size_t unit; /* NONE: EMPTY */
    char *memory;
    tutti_status_t status; /* of FAILED */
    char text[TT_ERROR_TEXT_BYTES];
} buffer_t;

typedef struct {
    size_t *units;
    size_t count, capacity;
} order_t;

struct tt_disk_ring {
    tt_disk_file_t *file;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* for the threads; for the user */
    pthread_t threads[THREADS];
    int thread_count;
    unsigned forks;
    bool is_closing;

    tt_disk_unit_t *units;
    size_t unit_count, unit_bytes; /* of the largest */
    const void *owner;             /* of the units; compared alone */
    void *room;
    buffer_t buffers[BUFFERS];

    order_t order, now; /* of the round before; of this one */
    size_t at;          /* in the order: what is used next, if all goes as before */
    size_t waited_for;  /* a unit; NONE */
    int used;           /* a buffer; -1: none */
    bool is_asleep;     /* nothing is read ahead */

    tutti_status_t failed; /* a write */
    char text[TT_ERROR_TEXT_BYTES];
    tt_disk_ring_stats_t stats;
};

/* ---- under the lock: who has what ------------------------------------------------------------ */

static int buffer_of(const tt_disk_ring_t *ring, size_t unit)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (ring->buffers[i].unit == unit) {
            return i;
        }
    }
    return -1;
}

/* The k-th unit that is wanted next; NONE behind the last. */
static size_t wanted_at(const tt_disk_ring_t *ring, size_t k)
{
    const size_t ahead = tt_min_size(BUFFERS - 1, ring->order.count);
    return ring->is_asleep || k >= ahead ? NONE
                                         : ring->order.units[(ring->at + k) % ring->order.count];
}

static bool is_wanted(const tt_disk_ring_t *ring, size_t unit)
{
    for (size_t k = 0; wanted_at(ring, k) != NONE; k++) {
        if (wanted_at(ring, k) == unit) {
            return true;
        }
    }
    return unit == ring->waited_for;
}

/* For another unit: an empty one, or one whose bytes are in the file. -1: none. `is_urgent`: also
 * one that is wanted. */
static int free_buffer(const tt_disk_ring_t *ring, bool is_urgent)
{
    int found = -1;
    for (int i = 0; i < BUFFERS; i++) {
        const buffer_t *b = &ring->buffers[i];
        if (b->state == EMPTY) {
            return i;
        }
        const bool is_free = b->state == THERE || b->state == FAILED;
        if (is_free && (!is_wanted(ring, b->unit) || (is_urgent && found < 0))) {
            found = i;
        }
    }
    return found;
}

typedef struct {
    int buffer; /* -1: there is nothing to do */
    size_t unit;
    bool is_writing;
} task_t;

static int find_state(const tt_disk_ring_t *ring, state_t state)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (ring->buffers[i].state == state) {
            return i;
        }
    }
    return -1;
}

static task_t read_task(const tt_disk_ring_t *ring, size_t unit, bool is_urgent)
{
    const int buffer = buffer_of(ring, unit) >= 0 ? -1 : free_buffer(ring, is_urgent);
    return (task_t){buffer, unit, false};
}

static task_t next_task(const tt_disk_ring_t *ring)
{
    if (ring->waited_for != NONE) {
        const task_t task = read_task(ring, ring->waited_for, true);
        if (task.buffer >= 0) {
            return task;
        }
    }
    const int dirty = ring->failed < 0 ? -1 : find_state(ring, DIRTY);
    if (dirty >= 0) {
        return (task_t){dirty, ring->buffers[dirty].unit, true};
    }
    for (size_t k = 0; wanted_at(ring, k) != NONE; k++) {
        const task_t task = read_task(ring, wanted_at(ring, k), false);
        if (task.buffer >= 0) {
            return task;
        }
    }
    return (task_t){.buffer = -1};
}

/* ---- the threads ----------------------------------------------------------------------------- */

static void note_end(tt_disk_ring_t *ring, const task_t *task, tutti_status_t status, size_t bytes)
{
    buffer_t *b = &ring->buffers[task->buffer];
    if (task->is_writing) {
        b->state = status < 0 ? DIRTY : THERE;
        ring->stats.written_bytes += bytes;
        if (status < 0 && ring->failed >= 0) {
            ring->failed = status;
            memcpy(ring->text, tutti_last_error(), strlen(tutti_last_error()) + 1);
        }
        return;
    }
    b->state = status < 0 ? FAILED : THERE;
    b->status = status;
    ring->stats.read_bytes += bytes;
    if (status < 0) {
        memcpy(b->text, tutti_last_error(), strlen(tutti_last_error()) + 1);
    }
}

/* The lock is held, but not while bytes move. */
static void do_task(tt_disk_ring_t *ring, const task_t *task)
{
    buffer_t *b = &ring->buffers[task->buffer];
    const tt_disk_unit_t unit = ring->units[task->unit];
    b->state = task->is_writing ? WRITING : READING;
    b->unit = task->unit;
    pthread_mutex_unlock(&ring->lock);
    const tutti_status_t status = tt_disk_unit_move(ring->file, &unit, b->memory, task->is_writing);
    pthread_mutex_lock(&ring->lock);
    note_end(ring, task, status,
             task->is_writing ? tt_disk_unit_written_bytes(&unit) : tt_disk_unit_bytes(&unit));
    pthread_cond_broadcast(&ring->done);
    pthread_cond_signal(&ring->work);
}

static void *run_thread(void *user)
{
    tt_disk_ring_t *ring = user;
    pthread_mutex_lock(&ring->lock);
    while (!ring->is_closing) {
        const task_t task = next_task(ring);
        if (task.buffer >= 0) {
            do_task(ring, &task);
        } else {
            pthread_cond_wait(&ring->work, &ring->lock);
        }
    }
    pthread_mutex_unlock(&ring->lock);
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void init_conditions(tt_disk_ring_t *ring)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->work, &monotonic);
    pthread_cond_init(&ring->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

tutti_status_t tt_disk_ring_open(tt_disk_file_t *file, tt_disk_ring_t **out)
{
    tt_disk_ring_t *ring = tt_alloc(sizeof *ring, "offload");
    TT_TRY_ALLOC(ring);
    tt_forks_count();
    ring->file = file;
    ring->forks = tt_forks;
    ring->used = -1;
    ring->waited_for = NONE;
    ring->is_asleep = true;
    for (int i = 0; i < BUFFERS; i++) {
        ring->buffers[i].unit = NONE;
    }
    init_conditions(ring);
    for (; ring->thread_count < THREADS; ring->thread_count++) {
        const tutti_status_t status =
            tt_thread_start(run_thread, ring, "offload", &ring->threads[ring->thread_count]);
        if (status < 0) {
            tt_disk_ring_close(ring);
            return status;
        }
    }
    *out = ring;
    return TUTTI_OK;
}

/* A forked child has no threads. */
static void join_threads(tt_disk_ring_t *ring)
{
    if (ring->forks != tt_forks) {
        return;
    }
    pthread_mutex_lock(&ring->lock);
    ring->is_closing = true;
    pthread_cond_broadcast(&ring->work);
    pthread_mutex_unlock(&ring->lock);
    for (int i = 0; i < ring->thread_count; i++) {
        pthread_join(ring->threads[i], NULL);
    }
    pthread_cond_destroy(&ring->work);
    pthread_cond_destroy(&ring->done);
    pthread_mutex_destroy(&ring->lock);
}

void tt_disk_ring_close(tt_disk_ring_t *ring)
{
    if (ring == NULL) {
        return;
    }
    join_threads(ring);
    tt_free(ring->units);
    tt_free(ring->room);
    tt_free(ring->order.units);
    tt_free(ring->now.units);
    tt_free(ring);
}

/* ---- units ----------------------------------------------------------------------------------- */

static tutti_status_t make_room(size_t unit_bytes, void **room)
{
    *room = tt_alloc_raw(BUFFERS * unit_bytes + TT_DISK_BLOCK, "offload buffers");
    TT_TRY_ALLOC(*room);
    return TUTTI_OK;
}

/* Nothing is in memory, nobody reads or writes. */
static void place_buffers(tt_disk_ring_t *ring)
{
    char *first = (char *)ring->room;
    first += (TT_DISK_BLOCK - (uintptr_t)first % TT_DISK_BLOCK) % TT_DISK_BLOCK;
    for (size_t i = 0; i < BUFFERS; i++) {
        ring->buffers[i].memory = first + i * ring->unit_bytes;
    }
    ring->stats.buffer_bytes = BUFFERS * ring->unit_bytes;
}

static size_t largest_of(const tt_disk_unit_t *units, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = tt_disk_unit_bytes(&units[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static tutti_status_t reserve_order(order_t *order, size_t capacity)
{
    if (capacity > order->capacity) {
        size_t *units = tt_realloc(order->units, capacity * sizeof *units, "offload");
        TT_TRY_ALLOC(units);
        order->units = units;
        order->capacity = capacity;
    }
    return TUTTI_OK;
}

/* A round may use a unit more than once. */
static tutti_status_t reserve_orders(tt_disk_ring_t *ring, size_t count)
{
    TT_TRY(reserve_order(&ring->order, 2 * count + 1));
    return reserve_order(&ring->now, 2 * count + 1);
}

/* In the order of the file. Takes both, also where it fails. */
static tutti_status_t take_units(tt_disk_ring_t *ring, tt_disk_unit_t *units, size_t count,
                                 void *room, size_t bytes)
{
    const tutti_status_t status = reserve_orders(ring, count);
    if (status < 0) {
        tt_free(units);
        tt_free(room);
        return status;
    }
    tt_free(ring->units);
    ring->units = units;
    ring->unit_count = ring->order.count = count;
    ring->at = ring->now.count = 0;
    for (size_t i = 0; i < count; i++) {
        ring->order.units[i] = i;
    }
    if (room != NULL) {
        tt_free(ring->room);
        ring->room = room;
        ring->unit_bytes = bytes;
        place_buffers(ring);
    }
    return TUTTI_OK;
}

tutti_status_t tt_disk_ring_set_units(tt_disk_ring_t *ring, const tt_disk_unit_t *units,
                                      size_t count)
{
    void *room = NULL;
    const size_t bytes = largest_of(units, count);
    TT_TRY(tt_disk_ring_settle(ring));
    tt_disk_unit_t *copy = tt_alloc_array(count + 1, sizeof *copy, "offload");
    TT_TRY_ALLOC(copy);
    if (bytes > ring->unit_bytes && make_room(bytes, &room) < 0) {
        tt_free(copy);
        return TUTTI_ERR_NOMEM;
    }
    if (count > 0) {
        memcpy(copy, units, count * sizeof *units);
    }
    pthread_mutex_lock(&ring->lock);
    const tutti_status_t status = take_units(ring, copy, count, room, bytes);
    pthread_mutex_unlock(&ring->lock);
    return status;
}

bool tt_disk_ring_take(tt_disk_ring_t *ring, const void *who)
{
    const bool was_its = ring->owner == who;
    ring->owner = who;
    return was_its;
}

/* ---- using ----------------------------------------------------------------------------------- */

static tutti_status_t check_forks(const tt_disk_ring_t *ring)
{
    return ring->forks == tt_forks ? TUTTI_OK
                                   : TT_FAIL(TUTTI_ERR_STATE,
                                             "offload: the file in %s belongs to the process that "
                                             "forked this one",
                                             ring->file->folder);
}

static tutti_status_t check_writes(const tt_disk_ring_t *ring)
{
    return ring->failed < 0 ? tt_fail_again(ring->failed, ring->text) : TUTTI_OK;
}

/* The lock is held, but not while this sleeps. */
static tutti_status_t sleep_until(tt_disk_ring_t *ring, tt_deadline_t deadline)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline / TT_NS_PER_S),
                                   .tv_nsec = (long)(deadline % TT_NS_PER_S)};
    return pthread_cond_timedwait(&ring->done, &ring->lock, &until) == ETIMEDOUT
               ? TT_FAIL(TUTTI_ERR_TIMEOUT,
                         "offload: the disk of %s does not answer (TUTTI_"
                         "TIMEOUT_MS)",
                         ring->file->folder)
               : TUTTI_OK;
}

static tutti_status_t deadline_of(tt_deadline_t *out)
{
    int64_t limit;
    TT_TRY(tt_config_int(TT_CONFIG_TIMEOUT_MS, 1, INT32_MAX, &limit));
    *out = tt_clock_ns() + limit * TT_NS_PER_MS;
    return TUTTI_OK;
}

/* It is in a buffer that nobody moves, which may be dirty. */
static bool is_ready(const tt_disk_ring_t *ring, size_t unit)
{
    const int i = buffer_of(ring, unit);
    return i >= 0 && ring->buffers[i].state != READING && ring->buffers[i].state != WRITING;
}

static tutti_status_t take_failure(buffer_t *b)
{
    b->state = EMPTY;
    b->unit = NONE;
    return tt_fail_again(b->status, b->text);
}

/* A failed write may leave no buffer that could be read into. */
static tutti_status_t wait_for(tt_disk_ring_t *ring, size_t unit, int *buffer)
{
    tt_deadline_t deadline;
    tutti_status_t status = deadline_of(&deadline);
    const int64_t begin = tt_clock_ns();
    ring->waited_for = unit;
    ring->is_asleep = false;
    pthread_cond_broadcast(&ring->work);
    while (status >= 0 && !is_ready(ring, unit)) {
        status = ring->failed < 0 ? check_writes(ring) : sleep_until(ring, deadline);
    }
    ring->waited_for = NONE;
    ring->stats.waited_ns += tt_clock_ns() - begin;
    TT_TRY(status);
    *buffer = buffer_of(ring, unit);
    buffer_t *b = &ring->buffers[*buffer];
    return b->state == FAILED ? take_failure(b) : TUTTI_OK;
}

static void put_back(tt_disk_ring_t *ring)
{
    if (ring->used >= 0) {
        buffer_t *b = &ring->buffers[ring->used];
        b->state = tt_disk_unit_written_bytes(&ring->units[b->unit]) > 0 ? DIRTY : THERE;
        ring->used = -1;
        pthread_cond_broadcast(&ring->work);
    }
}

/* The place behind the unit in the order, from where it is on. */
static void follow_order(tt_disk_ring_t *ring, size_t unit)
{
    const size_t count = ring->order.count;
    for (size_t k = 0; k < count; k++) {
        const size_t at = (ring->at + k) % count;
        if (ring->order.units[at] == unit) {
            ring->at = (at + 1) % count;
            return;
        }
    }
}

static tutti_status_t use_unit(tt_disk_ring_t *ring, size_t unit, void **memory)
{
    int buffer;
    if (ring->used >= 0 && ring->buffers[ring->used].unit == unit) {
        *memory = ring->buffers[ring->used].memory;
        return TUTTI_OK;
    }
    put_back(ring);
    TT_TRY(check_writes(ring));
    const bool is_noted = ring->now.count < 16 * ring->unit_count + 64;
    TT_TRY(is_noted ? reserve_order(&ring->now, ring->now.count + 1) : TUTTI_OK);
    TT_TRY(wait_for(ring, unit, &buffer));
    ring->buffers[buffer].state = USED;
    ring->used = buffer;
    if (is_noted) { /* who never ends a round has no order */
        ring->now.units[ring->now.count++] = unit;
    }
    follow_order(ring, unit);
    pthread_cond_broadcast(&ring->work);
    *memory = ring->buffers[buffer].memory;
    return TUTTI_OK;
}

tutti_status_t tt_disk_ring_use(tt_disk_ring_t *ring, size_t unit, void **memory)
{
    TT_TRY(check_forks(ring));
    TT_ASSERT(unit < ring->unit_count);
    pthread_mutex_lock(&ring->lock);
    const tutti_status_t status = use_unit(ring, unit, memory);
    pthread_mutex_unlock(&ring->lock);
    return status;
}

tutti_status_t tt_disk_ring_begin(tt_disk_ring_t *ring)
{
    int buffer;
    TT_TRY(check_forks(ring));
    pthread_mutex_lock(&ring->lock);
    tutti_status_t status = check_writes(ring);
    ring->now.count = ring->at = 0;
    if (status >= 0 && ring->order.count > 0) {
        status = wait_for(ring, ring->order.units[0], &buffer);
    }
    pthread_mutex_unlock(&ring->lock);
    return status;
}

/* The order is this round's, unless nothing was used, or the round broke off. */
void tt_disk_ring_end(tt_disk_ring_t *ring)
{
    pthread_mutex_lock(&ring->lock);
    put_back(ring);
    if (ring->now.count > 0) {
        const order_t before = ring->order;
        ring->order = ring->now;
        ring->now = before;
    }
    ring->now.count = ring->at = 0;
    pthread_cond_broadcast(&ring->work);
    pthread_mutex_unlock(&ring->lock);
}

static bool is_moving(const tt_disk_ring_t *ring)
{
    return find_state(ring, READING) >= 0 || find_state(ring, WRITING) >= 0 ||
           (ring->failed >= 0 && find_state(ring, DIRTY) >= 0);
}

static tutti_status_t settle(tt_disk_ring_t *ring)
{
    tt_deadline_t deadline;
    tutti_status_t status = deadline_of(&deadline);
    put_back(ring);
    ring->is_asleep = true;
    while (status >= 0 && is_moving(ring)) {
        status = sleep_until(ring, deadline);
    }
    TT_TRY(status);
    for (int i = 0; i < BUFFERS; i++) {
        ring->buffers[i].state = EMPTY;
        ring->buffers[i].unit = NONE;
    }
    return check_writes(ring);
}

tutti_status_t tt_disk_ring_settle(tt_disk_ring_t *ring)
{
    TT_TRY(check_forks(ring));
    pthread_mutex_lock(&ring->lock);
    const tutti_status_t status = settle(ring);
    pthread_mutex_unlock(&ring->lock);
    return status;
}

void tt_disk_ring_forgive(tt_disk_ring_t *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->failed = TUTTI_OK;
    pthread_mutex_unlock(&ring->lock);
}

tt_disk_ring_stats_t tt_disk_ring_stats(tt_disk_ring_t *ring)
{
    pthread_mutex_lock(&ring->lock);
    const tt_disk_ring_stats_t stats = ring->stats;
    pthread_mutex_unlock(&ring->lock);
    return stats;
}
