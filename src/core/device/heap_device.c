/* The owner's side of the shared heap: a device whose memory lies in segments.
 *
 * The books (heap_extents.h) say what is free, and heap_pages.c makes it true. Large blocks are
 * taken first and populated then, outside the lock. Small blocks share pages, so these are
 * populated under it, some more at once than a block needs.
 *
 * Cost: linear in the number of free extents, and a getpid(). No other system call, and no
 * allocation, where a block of the same size was freed before, as far as idle pages are kept.
 */
#include "core/device/heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/device/heap_impl.h"
#include "core/device/heap_memory.h"

enum { FIRST_BYTES = 64 << 20, IDLE_MIN = 1 << 20, LARGE_BYTES = 256 << 10 };

#define SEGMENT_MAX (UINT64_C(1) << 40)
#define BLOCK_MAX (UINT64_C(1) << 47)

typedef struct {
    size_t bytes, align;
    tt_extent_kind_t kind;
    const char *what;
} request_t;

typedef struct {
    tt_extent_t *block;
    tt_heap_range_t range; /* to populate */
    int added;             /* a segment that peers have not been told of; -1: none */
} taken_t;

static void set_defaults(tt_heap_options_t *options)
{
    options->first_bytes = options->first_bytes > 0 ? options->first_bytes : FIRST_BYTES;
    options->segment_max = options->segment_max > 0 ? options->segment_max : SEGMENT_MAX;
    options->idle_min = options->idle_min > 0 ? options->idle_min : IDLE_MIN;
}

static void close_heap(void *state)
{
    tt_heap_t *heap = state;
    tt_extents_fini(&heap->extents);
    for (int i = 0; i < heap->segment_count; i++) {
        tt_heap_segment_release(tt_heap_segment_at(heap, i));
    }
    for (int i = 0; i < TT_HEAP_CHUNKS; i++) {
        tt_free(heap->chunks[i]);
    }
    pthread_mutex_destroy(&heap->lock);
    tt_heap_aliases_fini(&heap->aliases);
}

static tutti_status_t open_heap(void *state, const void *options)
{
    tt_heap_t *heap = state;
    if (options != NULL) {
        heap->options = *(const tt_heap_options_t *)options;
    }
    set_defaults(&heap->options);
    heap->owner = getpid();
    heap->page_bytes = tt_heap_page_bytes();
    tt_extents_init(&heap->extents, heap->page_bytes);
    pthread_mutex_init(&heap->lock, NULL);
    tt_heap_aliases_init(&heap->aliases);
    const size_t first = heap->options.first_bytes;
    const tutti_status_t status = tt_heap_add_segment(heap, first, tt_min_size(first, IDLE_MIN));
    if (status < 0) {
        close_heap(heap);
    }
    return status;
}

/* ---- taking */

static tutti_status_t grow(tt_heap_t *heap, const request_t *request, int *added)
{
    if (heap->options.is_fixed) {
        const size_t room = heap->address_bytes - heap->stats.live_bytes;
        return TT_FAIL(TUTTI_ERR_NOMEM, "%zu bytes for %s: %zu of %zu are free%s", request->bytes,
                       request->what, room, heap->address_bytes,
                       request->bytes <= room ? ", but in pieces" : "");
    }
    if (request->kind == TT_EXTENT_USED) { /* no address space is spent on what cannot be had */
        TT_TRY(tt_memory_check(heap->options.root, request->bytes, request->what));
    }
    const size_t needed = tt_round_up(request->bytes, heap->page_bytes);
    const size_t doubled = tt_min_size(heap->address_bytes, heap->options.segment_max);
    TT_TRY(tt_heap_add_segment(heap, needed > doubled ? needed : doubled, needed));
    *added = heap->segment_count - 1;
    return TUTTI_OK;
}

static bool find(const tt_heap_t *heap, const request_t *request, tt_extent_fit_t *fit)
{
    return request->kind == TT_EXTENT_RESERVED
               ? tt_extents_find_bare(&heap->extents, request->bytes, fit)
               : tt_extents_find(&heap->extents, request->bytes, request->align, fit);
}

static void take_fit(tt_heap_t *heap, const request_t *request, const tt_extent_fit_t *fit,
                     taken_t *out)
{
    out->block = tt_extents_take(&heap->extents, fit, request->bytes, request->kind);
    out->range = (tt_heap_range_t){
        .segment = out->block->segment, .offset = out->block->offset, .bytes = out->block->bytes};
    if (request->kind == TT_EXTENT_USED) {
        out->range.missing = fit->bare_bytes;
    }
    heap->stats.misses += out->range.missing > 0;
    heap->stats.live_bytes += request->bytes;
    if (heap->stats.live_bytes > heap->stats.peak_bytes) {
        heap->stats.peak_bytes = heap->stats.live_bytes;
    }
}

static tutti_status_t take(tt_heap_t *heap, const request_t *request, taken_t *out)
{
    for (;;) {
        tt_extent_fit_t fit;
        TT_TRY(tt_extents_make_ready(&heap->extents));
        if (!find(heap, request, &fit)) {
            TT_TRY(grow(heap, request, &out->added));
        } else if (fit.bare_bytes > 0 && request->bytes < LARGE_BYTES &&
                   request->kind == TT_EXTENT_USED) {
            TT_TRY(tt_heap_fill_small(heap, &fit, request->bytes, request->what));
        } else {
            take_fit(heap, request, &fit, out);
            return TUTTI_OK;
        }
    }
}

/* The pages of a large block are its own, so it is populated outside the lock. */
static tutti_status_t fill(tt_heap_t *heap, const taken_t *taken, const char *what)
{
    const tutti_status_t status = tt_heap_fill(heap, &taken->range, what);
    if (status < 0) {
        pthread_mutex_lock(&heap->lock);
        heap->stats.live_bytes -= taken->block->bytes;
        tt_heap_empty(heap, taken->block);
        pthread_mutex_unlock(&heap->lock);
    }
    return status;
}

static tutti_status_t get(tt_heap_t *heap, const request_t *request, void **out)
{
    taken_t taken = {.added = -1};
    if (heap->owner != getpid()) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "cannot allocate %zu shared bytes for %s: this process was forked, and the "
                       "shared heap is its parent's",
                       request->bytes, request->what);
    }
    pthread_mutex_lock(&heap->lock);
    heap->stats.requests++;
    tutti_status_t status = take(heap, request, &taken);
    const tt_heap_options_t options = heap->options;
    pthread_mutex_unlock(&heap->lock);
    if (taken.added >= 0 && options.on_segment != NULL) {
        const tt_heap_segment_t *added = tt_heap_segment_at(heap, taken.added);
        options.on_segment(options.user, taken.added, added->fd, added->bytes);
    }
    if (status >= 0 && taken.range.missing > 0) {
        status = fill(heap, &taken, request->what);
    }
    if (status >= 0) {
        *out = tt_heap_segment_at(heap, taken.range.segment)->base + taken.range.offset;
    }
    return status;
}

static request_t request_of(const tt_heap_t *heap, size_t bytes, const char *what)
{
    const size_t align = bytes >= heap->page_bytes ? heap->page_bytes : TT_HEAP_ALIGN;
    return (request_t){.bytes = tt_round_up(bytes > 0 ? bytes : 1, align),
                       .align = align,
                       .kind = TT_EXTENT_USED,
                       .what = what};
}

static tutti_status_t check_bytes(size_t bytes, const char *what)
{
    if (bytes > BLOCK_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "cannot allocate %zu shared bytes for %s", bytes, what);
    }
    return TUTTI_OK;
}

static void *alloc_heap(void *state, size_t bytes, const char *what)
{
    tt_heap_t *heap = state;
    void *memory = NULL;
    if (check_bytes(bytes, what) >= 0) {
        const request_t request = request_of(heap, bytes, what);
        (void)get(heap, &request, &memory);
    }
    return memory;
}

tutti_status_t tt_heap_reserve(tt_device_t *device, size_t bytes, const char *what, void **memory)
{
    tt_heap_t *heap = tt_device_state(device);
    TT_TRY(check_bytes(bytes, what));
    const request_t request = {.bytes = tt_round_up(bytes > 0 ? bytes : 1, heap->page_bytes),
                               .align = heap->page_bytes,
                               .kind = TT_EXTENT_RESERVED,
                               .what = what};
    TT_TRY(get(heap, &request, memory));
    (void)tutti_device_retain(device);
    return TUTTI_OK;
}

/* ---- places */

/* The segment that holds memory[0, bytes), or -1. */
static int find_segment(const tt_heap_t *heap, const void *memory, size_t bytes)
{
    const uintptr_t address = (uintptr_t)memory;
    const int count = atomic_load_explicit(&heap->segment_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        const tt_heap_segment_t *segment = tt_heap_segment_at(heap, i);
        const uintptr_t base = (uintptr_t)segment->base;
        if (address >= base && address - base <= segment->bytes &&
            bytes <= segment->bytes - (address - base)) {
            return i;
        }
    }
    return -1;
}

static size_t offset_of(const tt_heap_t *heap, int segment, const void *memory)
{
    return (size_t)((const unsigned char *)memory - tt_heap_segment_at(heap, segment)->base);
}

tt_heap_address_t tt_heap_address(tt_device_t *device, const void *memory, size_t bytes)
{
    tt_heap_t *heap = tt_device_state(device);
    const void *pages = tt_heap_aliases_find(&heap->aliases, memory, bytes);
    const int segment = pages != NULL ? find_segment(heap, pages, bytes) : -1;
    return segment < 0 ? 0
                       : (tt_heap_address_t)(segment + 1) << 48 | offset_of(heap, segment, pages);
}

void *tt_heap_at(tt_device_t *device, tt_heap_address_t place, size_t bytes)
{
    const tt_heap_t *heap = tt_device_state(device);
    const int segment = tt_heap_address_segment(place);
    const size_t offset = tt_heap_address_offset(place);
    if (segment < 0 ||
        segment >= atomic_load_explicit(&heap->segment_count, memory_order_acquire)) {
        return NULL;
    }
    const tt_heap_segment_t *found = tt_heap_segment_at(heap, segment);
    const bool fits = offset <= found->bytes && bytes <= found->bytes - offset;
    return fits ? found->base + offset : NULL;
}

/* ---- giving back */

/* The block at an address; the lock is held. */
static tt_extent_t *find_block(tt_heap_t *heap, const void *memory, size_t bytes)
{
    const int segment = find_segment(heap, memory, bytes);
    TT_ASSERT(segment >= 0);
    tt_extent_t *block =
        tt_extents_block_at(&heap->extents, segment, offset_of(heap, segment, memory));
    TT_ASSERT(block != NULL && block->bytes >= bytes);
    return block;
}

static void free_block(tt_heap_t *heap, void *memory, size_t bytes)
{
    pthread_mutex_lock(&heap->lock);
    tt_extent_t *block = find_block(heap, memory, bytes);
    heap->stats.live_bytes -= block->bytes;
    if (block->kind == TT_EXTENT_RESERVED) {
        tt_heap_empty(heap, block);
    } else {
        tt_extents_free(&heap->extents, block);
    }
    tt_heap_trim(heap);
    pthread_mutex_unlock(&heap->lock);
}

static void retire(tt_heap_t *heap, void *memory, size_t bytes)
{
    pthread_mutex_lock(&heap->lock);
    tt_extent_t *block = find_block(heap, memory, bytes);
    heap->stats.live_bytes -= block->bytes;
    tt_extents_retire(&heap->extents, block);
    tt_heap_trim(heap);
    pthread_mutex_unlock(&heap->lock);
}

/* Their addresses are left without memory: nobody is handed these again, and a stray access is to
 * be noticed. Their blocks go back, but for those that were replaced in turn. */
static void free_aliases(tt_heap_alias_t *alias)
{
    while (alias != NULL) {
        tt_heap_alias_t *next = alias->next;
        (void)mmap(alias->begin, alias->bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        (alias->is_replaced ? tt_heap_retire : tt_device_free)(alias->heap, alias->block,
                                                               alias->bytes);
        tt_free(alias);
        alias = next;
    }
}

static void free_heap(void *state, void *memory, size_t bytes)
{
    tt_heap_t *heap = state;
    if (heap->owner != getpid()) {
        return;
    }
    tt_heap_alias_t *alias = tt_heap_aliases_take(&heap->aliases, memory, bytes);
    if (alias == NULL) {
        free_block(heap, memory, bytes);
        return;
    }
    retire(heap, memory, bytes);
    free_aliases(alias);
}

tt_heap_aliases_t *tt_heap_aliases(tt_device_t *heap)
{
    return &((tt_heap_t *)tt_device_state(heap))->aliases;
}

void tt_heap_retire(tt_device_t *heap, void *memory, size_t bytes)
{
    if (memory != NULL) {
        retire(tt_device_state(heap), memory, bytes);
        tutti_device_release(heap); /* the reference that the block held */
    }
}

void tt_heap_abandon(tt_device_t *heap)
{
    tutti_device_release(heap); /* the reference that the block held */
}

/* ---- pages of reserved blocks */

/* The whole pages that hold a piece of a reserved block. */
static tt_heap_range_t pages_of(const tt_heap_t *heap, const void *memory, size_t bytes)
{
    const int segment = find_segment(heap, memory, bytes);
    TT_ASSERT(segment >= 0);
    const size_t offset = offset_of(heap, segment, memory);
    const size_t first = offset / heap->page_bytes * heap->page_bytes;
    return (tt_heap_range_t){.segment = segment,
                             .offset = first,
                             .bytes = tt_round_up(offset + bytes, heap->page_bytes) - first};
}

tutti_status_t tt_heap_populate(tt_device_t *device, void *memory, size_t bytes)
{
    tt_heap_t *heap = tt_device_state(device);
    tt_heap_range_t range = pages_of(heap, memory, bytes);
    range.missing =
        tt_heap_segment_holes(tt_heap_segment_at(heap, range.segment), range.offset, range.bytes);
    return range.missing > 0 ? tt_heap_fill(heap, &range, "a reserved block") : TUTTI_OK;
}

void tt_heap_discard(tt_device_t *device, void *memory, size_t bytes)
{
    const tt_heap_t *heap = tt_device_state(device);
    const int segment = find_segment(heap, memory, bytes);
    TT_ASSERT(segment >= 0);
    tt_heap_segment_punch(tt_heap_segment_at(heap, segment), offset_of(heap, segment, memory),
                          bytes);
}

static void keep_heap(void *state, int64_t bytes)
{
    tt_heap_t *heap = state;
    pthread_mutex_lock(&heap->lock);
    heap->kept_bytes += (size_t)bytes; /* a negative one comes back to what it was */
    tt_heap_trim(heap);
    pthread_mutex_unlock(&heap->lock);
}

/* ---- looking */

static tt_device_stats_t stats_heap(void *state)
{
    tt_heap_t *heap = state;
    pthread_mutex_lock(&heap->lock);
    tt_device_stats_t stats = heap->stats;
    stats.cached_bytes = heap->extents.idle_bytes;
    pthread_mutex_unlock(&heap->lock);
    return stats;
}

tt_heap_usage_t tt_heap_usage(tt_device_t *device)
{
    tt_heap_t *heap = tt_device_state(device);
    pthread_mutex_lock(&heap->lock);
    const tt_heap_usage_t usage = {.address_bytes = heap->address_bytes,
                                   .populated_bytes = heap->extents.populated_bytes,
                                   .idle_bytes = heap->extents.idle_bytes};
    pthread_mutex_unlock(&heap->lock);
    return usage;
}

void tt_heap_set_on_segment(tt_device_t *device,
                            void (*on_segment)(void *user, int segment, int fd, size_t bytes),
                            void *user)
{
    tt_heap_t *heap = tt_device_state(device);
    pthread_mutex_lock(&heap->lock);
    heap->options.on_segment = on_segment;
    heap->options.user = user;
    pthread_mutex_unlock(&heap->lock);
}

int tt_heap_segment_count(tt_device_t *device)
{
    const tt_heap_t *heap = tt_device_state(device);
    return atomic_load_explicit(&heap->segment_count, memory_order_acquire);
}

void tt_heap_segment(tt_device_t *device, int segment, int *fd, size_t *bytes)
{
    const tt_heap_t *heap = tt_device_state(device);
    *fd = tt_heap_segment_at(heap, segment)->fd;
    *bytes = tt_heap_segment_at(heap, segment)->bytes;
}

const tt_device_ops_t tt_device_heap = {
    .name = "heap",
    .about = "memory shared with the ranks of the same host",
    .state_bytes = sizeof(tt_heap_t),
    .open = open_heap,
    .close = close_heap,
    .alloc = alloc_heap,
    .free = free_heap,
    .stats = stats_heap,
    .keep = keep_heap,
};
