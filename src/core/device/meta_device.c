/* The meta device: shapes and dtypes without memory. Its addresses are numbers that no program can
 * use: not canonical on x86-64, and the kernel's on arm64 (bit 55), so that who touches one crashes
 * there.
 *
 *     0x1080000000000000 | used | next … | 2^55 bytes of addresses, then from the begin again
 *
 * A launch runs the kernel's check alone; copies to it do nothing; copies from it fail.
 * Cost: of an allocation two atomic additions. Source: torch.device("meta").
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/device/device.h"

#define FIRST (UINT64_C(0x1080) << 48)
#define ADDRESSES (UINT64_C(1) << 55)

typedef struct {
    tt_exec_t exec;
    _Atomic uint64_t used; /* addresses, ever */
    _Atomic uint64_t live, peak, requests, launches;
} meta_t;

static bool is_inside(const void *pointer)
{
    return (uintptr_t)pointer - FIRST < ADDRESSES;
}

static tutti_status_t launch_meta(tt_exec_t *exec, const tt_kernel_t *kernel, const void *arguments)
{
    meta_t *meta = exec->device;
    for (const tt_pointer_t *p = kernel->pointers; p->name != NULL; p++) {
        void *pointer;
        memcpy(&pointer, (const char *)arguments + p->offset, sizeof pointer);
        if (pointer != NULL && !is_inside(pointer)) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: %s, %p, is not memory of meta", kernel->name,
                           p->name, pointer);
        }
    }
    atomic_fetch_add_explicit(&meta->launches, 1, memory_order_relaxed);
    return TUTTI_OK;
}

static void *alloc_meta(void *state, size_t bytes, const char *what)
{
    meta_t *meta = state;
    if (bytes > ADDRESSES / 2) {
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "meta: %s: %zu bytes: it has addresses for %" PRIu64, what,
                      bytes, ADDRESSES / 2);
        return NULL;
    }
    const uint64_t room = tt_round_up(bytes == 0 ? 1 : bytes, TT_ALIGN);
    uint64_t used = atomic_load(&meta->used), at;
    do {
        at = ADDRESSES - used % ADDRESSES < room ? tt_round_up(used, ADDRESSES) : used;
    } while (!atomic_compare_exchange_weak(&meta->used, &used, at + room));
    const uint64_t live = atomic_fetch_add(&meta->live, bytes) + bytes;
    for (uint64_t peak = atomic_load(&meta->peak);
         live > peak && !atomic_compare_exchange_weak(&meta->peak, &peak, live);) {
    }
    atomic_fetch_add_explicit(&meta->requests, 1, memory_order_relaxed);
    return (void *)(uintptr_t)(FIRST + at % ADDRESSES);
}

static void free_meta(void *state, void *memory, size_t bytes)
{
    meta_t *meta = state;
    (void)memory;
    atomic_fetch_sub(&meta->live, bytes);
}

static tt_device_stats_t stats_of_meta(void *state)
{
    meta_t *meta = state;
    return (tt_device_stats_t){.live_bytes = atomic_load(&meta->live),
                               .peak_bytes = atomic_load(&meta->peak),
                               .requests = atomic_load(&meta->requests),
                               .launches = atomic_load(&meta->launches)};
}

static tutti_status_t copy_in(void *state, void *to, const void *host, size_t bytes)
{
    (void)state;
    (void)to;
    (void)host;
    (void)bytes;
    return TUTTI_OK;
}

static tutti_status_t copy_out(void *state, void *host, const void *from, size_t bytes)
{
    (void)state;
    (void)host;
    (void)from;
    return TT_FAIL(TUTTI_ERR_STATE,
                   "a tensor of %zu bytes is read that lies on meta: it has no values", bytes);
}

static tutti_status_t open_meta(void *state, const void *options)
{
    meta_t *meta = state;
    (void)options;
    meta->exec = (tt_exec_t){.launch = launch_meta, .device = meta};
    return TUTTI_OK;
}

static void close_meta(void *state)
{
    (void)state;
}

static tt_exec_t *exec_of(void *state)
{
    meta_t *meta = state;
    return &meta->exec;
}

static tutti_status_t open_named(int index, const tutti_device_options_t *options,
                                 tt_device_t **out)
{
    (void)index;
    (void)options;
    return tt_device_open(&tt_device_meta, NULL, out);
}

static const tt_accelerator_ops_t accelerator = {
    .exec = exec_of,
    .copy_in = copy_in,
    .copy_out = copy_out,
};

const tt_device_ops_t tt_device_meta = {
    .name = "meta",
    .about = "no memory: shapes and dtypes of whatever is computed",
    .state_bytes = sizeof(meta_t),
    .open = open_meta,
    .close = close_meta,
    .alloc = alloc_meta,
    .free = free_meta,
    .stats = stats_of_meta,
    .accelerator = &accelerator,
    .open_named = open_named,
};
