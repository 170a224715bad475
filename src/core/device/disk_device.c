/* The disk device. Memory is whole blocks of the file, so that no two tensors share one:
 *
 *     file   | block | block | block | block | …       free extents are listed, in order, joined
 *            | a tensor      | free  | another |       where they touch; the first that is large
 *                                                      enough is taken, else the file grows
 *
 * What goes back is cleared by the file system, so that it is zeros when it is given out again;
 * where that cannot be done it stays unused.
 *
 * Cost: of an allocation a walk over the free extents, a lock; of a copy the transfer, through a
 * buffer of at most 1 MiB.
 */
#include "core/device/disk_device.h"

#include <pthread.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"

#define FIRST (UINT64_C(0x1280) << 48)
#define ADDRESSES (UINT64_C(1) << 55)

enum { BLOCK = TT_DISK_BLOCK, COPY_BYTES = 1 << 20 };

typedef struct {
    uint64_t at, bytes;
} extent_t;

typedef struct {
    tt_exec_t exec;
    tt_disk_file_t file;
    tt_disk_ring_t *ring;
    pthread_mutex_t lock; /* of what follows */
    extent_t *free;       /* by place */
    size_t free_count, free_capacity;
    bool is_left;
    tt_device_stats_t stats;
} disk_t;

static size_t blocks_bytes(size_t bytes)
{
    return tt_round_up(bytes == 0 ? 1 : bytes, BLOCK);
}

/* ---- extents; the lock is held --------------------------------------------------------------- */

static void remove_extent(disk_t *disk, size_t i)
{
    memmove(&disk->free[i], &disk->free[i + 1], (disk->free_count - i - 1) * sizeof disk->free[0]);
    disk->free_count--;
}

static bool take_free(disk_t *disk, uint64_t bytes, uint64_t *at)
{
    for (size_t i = 0; i < disk->free_count; i++) {
        extent_t *extent = &disk->free[i];
        if (extent->bytes >= bytes) {
            *at = extent->at;
            extent->at += bytes;
            extent->bytes -= bytes;
            if (extent->bytes == 0) {
                remove_extent(disk, i);
            }
            return true;
        }
    }
    return false;
}

static void join_extents(disk_t *disk, size_t i)
{
    extent_t *extent = &disk->free[i];
    if (i + 1 < disk->free_count && extent->at + extent->bytes == extent[1].at) {
        extent->bytes += extent[1].bytes;
        remove_extent(disk, i + 1);
    }
}

/* Without memory for the list it stays unused. */
static void add_free(disk_t *disk, extent_t extent)
{
    if (disk->free_count == disk->free_capacity) {
        const size_t capacity = 2 * disk->free_capacity + 16;
        extent_t *grown = tt_realloc(disk->free, capacity * sizeof *grown, "offload");
        if (grown == NULL) {
            return;
        }
        disk->free = grown;
        disk->free_capacity = capacity;
    }
    size_t i = disk->free_count++;
    for (; i > 0 && disk->free[i - 1].at > extent.at; i--) {
        disk->free[i] = disk->free[i - 1];
    }
    disk->free[i] = extent;
    join_extents(disk, i);
    if (i > 0) {
        join_extents(disk, i - 1);
    }
}

/* ---- the contract ---------------------------------------------------------------------------- */

static void *alloc_disk(void *state, size_t bytes, const char *what)
{
    disk_t *disk = state;
    if (bytes > ADDRESSES / 2) {
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "disk: %s: %zu bytes: there are addresses for %llu", what,
                      bytes, (unsigned long long)ADDRESSES / 2);
        return NULL;
    }
    uint64_t at;
    const uint64_t whole = blocks_bytes(bytes);
    pthread_mutex_lock(&disk->lock);
    bool is_there = take_free(disk, whole, &at);
    if (!is_there) {
        at = disk->file.bytes;
        is_there = tt_disk_file_grow(&disk->file, whole) >= 0;
    }
    disk->stats.requests++;
    disk->stats.live_bytes += is_there ? whole : 0;
    if (disk->stats.live_bytes > disk->stats.peak_bytes) {
        disk->stats.peak_bytes = disk->stats.live_bytes;
    }
    pthread_mutex_unlock(&disk->lock);
    return is_there ? (void *)(uintptr_t)(FIRST + at) : NULL;
}

static uint64_t place_of(const void *memory)
{
    return (uintptr_t)memory - FIRST;
}

/* Where the ring cannot settle, somebody may write there still. */
static void free_disk(void *state, void *memory, size_t bytes)
{
    disk_t *disk = state;
    const extent_t extent = {place_of(memory), blocks_bytes(bytes)};
    const bool is_still = !disk->is_left && tt_disk_ring_settle(disk->ring) != TUTTI_ERR_TIMEOUT;
    pthread_mutex_lock(&disk->lock);
    disk->stats.live_bytes -= extent.bytes;
    if (is_still && tt_disk_file_clear(&disk->file, extent.at, extent.bytes)) {
        add_free(disk, extent);
    }
    pthread_mutex_unlock(&disk->lock);
}

static tt_device_stats_t stats_of_disk(void *state)
{
    disk_t *disk = state;
    pthread_mutex_lock(&disk->lock);
    const tt_device_stats_t stats = disk->stats;
    pthread_mutex_unlock(&disk->lock);
    return stats;
}

static tutti_status_t launch_disk(tt_exec_t *exec, const tt_kernel_t *kernel, const void *arguments)
{
    const disk_t *disk = exec->device;
    (void)arguments;
    return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "%s: a tensor lies in a file in %s, where nothing is computed: "
                   "tutti_tensor_copy() copies it into one of the host",
                   kernel->name, disk->file.folder);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static tutti_status_t check_memory(disk_t *disk, const void *memory, size_t bytes)
{
    const uint64_t at = place_of(memory);
    return at <= disk->file.bytes && bytes <= disk->file.bytes - at
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "copy: %zu bytes at %p are not memory of disk", bytes,
                         memory);
}

typedef struct {
    disk_t *disk;
    uint64_t at; /* of the bytes */
    size_t bytes;
    char *blocks; /* of the blocks that they are in: the first begins at `at`, rounded down */
} window_t;

static uint64_t first_block(const window_t *w)
{
    return w->at / BLOCK * BLOCK;
}

static size_t window_bytes(const window_t *w)
{
    return tt_round_up(w->at + w->bytes, BLOCK) - first_block(w);
}

static tutti_status_t copy_window(const window_t *w, void *to, const void *from)
{
    char *inside = w->blocks + (w->at - first_block(w));
    const bool is_partial = w->at % BLOCK != 0 || w->bytes % BLOCK != 0;
    if (to != NULL || is_partial) {
        TT_TRY(tt_disk_file_read(&w->disk->file, first_block(w), w->blocks, window_bytes(w)));
    }
    if (to != NULL) {
        memcpy(to, inside, w->bytes);
        return TUTTI_OK;
    }
    memcpy(inside, from, w->bytes);
    return tt_disk_file_write(&w->disk->file, first_block(w), w->blocks, window_bytes(w));
}

/* One of to and from is NULL: the file, at `at`. */
static tutti_status_t copy_all(disk_t *disk, uint64_t at, size_t bytes, char *to, const char *from)
{
    const size_t room = tt_min_size(bytes, COPY_BYTES) + 3 * (size_t)BLOCK;
    char *memory = tt_alloc_raw(room, "offload");
    TT_TRY_ALLOC(memory);
    window_t w = {.disk = disk, .at = at};
    w.blocks = memory + (BLOCK - (uintptr_t)memory % BLOCK) % BLOCK;
    tutti_status_t status = TUTTI_OK;
    for (size_t done = 0; done < bytes && status >= 0; done += w.bytes) {
        w.at = at + done;
        w.bytes = tt_min_size(bytes - done, COPY_BYTES);
        status = copy_window(&w, to == NULL ? NULL : to + done, from == NULL ? NULL : from + done);
    }
    tt_free(memory);
    return status;
}

static tutti_status_t copy_in(void *state, void *to, const void *host, size_t bytes)
{
    disk_t *disk = state;
    TT_TRY(check_memory(disk, to, bytes));
    const tutti_status_t settled = tt_disk_ring_settle(disk->ring);
    if (settled == TUTTI_ERR_TIMEOUT || settled == TUTTI_ERR_STATE) {
        return settled; /* a failed write is no matter: these are new bytes */
    }
    return copy_all(disk, place_of(to), bytes, NULL, host);
}

static tutti_status_t copy_out(void *state, void *host, const void *from, size_t bytes)
{
    disk_t *disk = state;
    TT_TRY(check_memory(disk, from, bytes));
    TT_TRY(tt_disk_ring_settle(disk->ring));
    return copy_all(disk, place_of(from), bytes, host, NULL);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static tutti_status_t open_disk(void *state, const void *options)
{
    disk_t *disk = state;
    const tt_disk_options_t *wanted = options;
    TT_TRY(tt_disk_file_open(wanted == NULL ? "." : wanted->folder, &disk->file));
    const tutti_status_t status = tt_disk_ring_open(&disk->file, &disk->ring);
    if (status < 0) {
        tt_disk_file_close(&disk->file);
        return status;
    }
    pthread_mutex_init(&disk->lock, NULL);
    disk->exec = (tt_exec_t){.launch = launch_disk, .device = disk};
    return TUTTI_OK;
}

static void close_disk(void *state)
{
    disk_t *disk = state;
    tt_disk_ring_close(disk->ring);
    tt_disk_file_close(&disk->file);
    pthread_mutex_destroy(&disk->lock);
    tt_free(disk->free);
}

static tt_exec_t *exec_of(void *state)
{
    disk_t *disk = state;
    return &disk->exec;
}

static const tt_accelerator_ops_t accelerator = {
    .exec = exec_of,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .is_store = true,
};

const tt_device_ops_t tt_device_disk = {
    .name = "disk",
    .about = "a file without a name: what is used once a step",
    .state_bytes = sizeof(disk_t),
    .open = open_disk,
    .close = close_disk,
    .alloc = alloc_disk,
    .free = free_disk,
    .stats = stats_of_disk,
    .accelerator = &accelerator,
};

tt_disk_ring_t *tt_disk_ring_of(tt_device_t *disk)
{
    return ((disk_t *)tt_device_state(disk))->ring;
}

tutti_status_t tt_disk_open_ring(tt_device_t *disk, tt_disk_ring_t **out)
{
    return tt_disk_ring_open(&((disk_t *)tt_device_state(disk))->file, out);
}

const tt_disk_file_t *tt_disk_file_of(tt_device_t *disk)
{
    return &((disk_t *)tt_device_state(disk))->file;
}

void tt_disk_leave(tt_device_t *disk)
{
    ((disk_t *)tt_device_state(disk))->is_left = true;
}

uint64_t tt_disk_place(const void *memory)
{
    return place_of(memory);
}
