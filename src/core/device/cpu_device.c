/* CPU memory with a cache of freed blocks.
 *
 * Sizes are rounded up to classes, eight to a doubling (512, 576, 640, … 1024, 1152, …), so at most
 * one eighth is wasted. A freed block goes to the list of its class and to a list by age; the links
 * lie in the free block itself. What is resident (live + cached) never exceeds the highest live sum
 * so far by more than one eighth and 4 MiB: before new memory is asked for, the oldest cached
 * blocks go back to the system until the new block fits below that line.
 *
 * Blocks of 4 MiB and more are advised to be huge pages.
 *
 * Cost: a lock and a few pointers per call; no system call when a block of the class is cached.
 */
#include "core/device/cpu_device.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/device/huge_pages.h"

enum { STEPS = 8, OCTAVES = 36, CLASSES = STEPS * OCTAVES, CLASS_MIN_SHIFT = 6 };
enum { SLACK_BYTES = 4 << 20, HUGE_FROM_BYTES = 4 << 20 };

typedef struct block {
    struct block *class_next, *class_previous;
    struct block *older, *newer;
    int size_class;
} block_t;

typedef struct {
    pthread_mutex_t lock;
    bool cache_off;
    tt_device_stats_t stats;
    block_t *classes[CLASSES];
    block_t *oldest, *newest;
} cache_t;

static size_t class_bytes(int size_class)
{
    return (size_t)(STEPS + size_class % STEPS) << (size_class / STEPS + CLASS_MIN_SHIFT);
}

/* The smallest class that holds bytes; CLASSES if none does. */
static int class_of(size_t bytes)
{
    if (bytes <= class_bytes(0)) {
        return 0;
    }
    const size_t units = (bytes - 1) >> CLASS_MIN_SHIFT; /* at least STEPS */
    const int octave = 63 - __builtin_clzll((unsigned long long)units) - 3;
    const int step = (int)(units >> octave) - STEPS;
    const int size_class = octave * STEPS + step + 1;
    return size_class < CLASSES ? size_class : CLASSES;
}

size_t tt_cpu_class_bytes(size_t bytes)
{
    const int size_class = class_of(bytes);
    return size_class < CLASSES ? class_bytes(size_class) : 0;
}

static tutti_status_t open_cpu(void *state, const void *options)
{
    cache_t *cache = state;
    const tt_cpu_options_t *wanted = options;
    cache->cache_off = wanted != NULL && wanted->cache_off;
    int64_t enabled;
    TT_TRY(tt_config_int(TT_CONFIG_CACHE, 0, 1, &enabled));
    cache->cache_off |= enabled == 0;
    pthread_mutex_init(&cache->lock, NULL);
    return TUTTI_OK;
}

static void put_in_cache(cache_t *cache, void *memory, int size_class)
{
    block_t *block = memory;
    *block = (block_t){
        .class_next = cache->classes[size_class], .older = cache->newest, .size_class = size_class};
    if (block->class_next != NULL) {
        block->class_next->class_previous = block;
    }
    cache->classes[size_class] = block;
    if (cache->newest != NULL) {
        cache->newest->newer = block;
    } else {
        cache->oldest = block;
    }
    cache->newest = block;
    cache->stats.cached_bytes += class_bytes(size_class);
}

static void take_from_cache(cache_t *cache, block_t *block)
{
    if (block->class_previous != NULL) {
        block->class_previous->class_next = block->class_next;
    } else {
        cache->classes[block->size_class] = block->class_next;
    }
    if (block->class_next != NULL) {
        block->class_next->class_previous = block->class_previous;
    }
    if (block->older != NULL) {
        block->older->newer = block->newer;
    } else {
        cache->oldest = block->newer;
    }
    if (block->newer != NULL) {
        block->newer->older = block->older;
    } else {
        cache->newest = block->older;
    }
    cache->stats.cached_bytes -= class_bytes(block->size_class);
}

static void trim(cache_t *cache, size_t cached_bytes_max)
{
    while (cache->stats.cached_bytes > cached_bytes_max) {
        block_t *block = cache->oldest;
        take_from_cache(cache, block);
        tt_free(block);
    }
}

static void close_cpu(void *state)
{
    cache_t *cache = state;
    trim(cache, 0);
    pthread_mutex_destroy(&cache->lock);
}

/* New memory, after the cache has made room for it. The lock is held. */
static void *ask_system(cache_t *cache, size_t bytes, const char *what)
{
    const size_t live = cache->stats.live_bytes + bytes;
    const size_t peak = live > cache->stats.peak_bytes ? live : cache->stats.peak_bytes;
    const size_t line = peak + peak / 8 + SLACK_BYTES;
    trim(cache, line - live);
    cache->stats.misses++;
    void *memory = tt_alloc_raw(bytes, what);
    if (memory == NULL && cache->stats.cached_bytes > 0) {
        trim(cache, 0);
        memory = tt_alloc_raw(bytes, what);
    }
    if (memory != NULL && bytes >= HUGE_FROM_BYTES) {
        tt_advise_huge(memory, bytes, MADV_HUGEPAGE);
    }
    return memory;
}

static void *alloc_cpu(void *state, size_t bytes, const char *what)
{
    cache_t *cache = state;
    const int size_class = class_of(bytes);
    if (size_class == CLASSES) {
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "cannot allocate %zu bytes for %s", bytes, what);
        return NULL;
    }
    const size_t rounded = class_bytes(size_class);
    pthread_mutex_lock(&cache->lock);
    cache->stats.requests++;
    void *memory = cache->classes[size_class];
    if (memory != NULL) {
        take_from_cache(cache, memory);
    } else {
        memory = ask_system(cache, rounded, what);
    }
    if (memory != NULL) {
        cache->stats.live_bytes += rounded;
        if (cache->stats.live_bytes > cache->stats.peak_bytes) {
            cache->stats.peak_bytes = cache->stats.live_bytes;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return memory;
}

static void free_cpu(void *state, void *memory, size_t bytes)
{
    cache_t *cache = state;
    const int size_class = class_of(bytes);
    pthread_mutex_lock(&cache->lock);
    cache->stats.live_bytes -= class_bytes(size_class);
    if (cache->cache_off) {
        tt_free(memory);
    } else {
        put_in_cache(cache, memory, size_class);
    }
    pthread_mutex_unlock(&cache->lock);
}

static tt_device_stats_t stats_cpu(void *state)
{
    cache_t *cache = state;
    pthread_mutex_lock(&cache->lock);
    const tt_device_stats_t stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
    return stats;
}

static tutti_status_t open_named(int index, const tutti_device_options_t *options,
                                 tt_device_t **out)
{
    (void)index, (void)options;
    return tt_device_open(&tt_device_cpu, NULL, out);
}

const tt_device_ops_t tt_device_cpu = {
    .open_named = open_named,
    .name = "cpu",
    .about = "main memory, freed blocks cached by size class",
    .state_bytes = sizeof(cache_t),
    .open = open_cpu,
    .close = close_cpu,
    .alloc = alloc_cpu,
    .free = free_cpu,
    .stats = stats_cpu,
};
