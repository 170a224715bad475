/* The owner's side of the shared heap: a device whose memory lies in segments.
 *
 * Books: one list of spans over all segments, in order of place; a span is free or used. A request
 * takes the smallest free span that fits (best fit) and splits it; freeing joins neighbours. When
 * nothing fits, a segment is added: as large as the request, but at least as large as all before
 * it together (up to 32 MiB), so that a heap has few segments.
 *
 * Cost: linear in the number of spans, which is the number of buckets and flag blocks, not of
 * tensors. Nothing here is called in the steady state of a collective.
 */
#include "core/device/heap.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/alloc.h"
#include "core/device/heap_alias.h"
#include "core/device/heap_segment.h"

enum { FIRST_BYTES = 1 << 20, STEP_BYTES = 2 << 20, GROW_BYTES_MAX = 32 << 20 };

typedef struct span {
    struct span *next, *previous;
    int segment;
    bool is_used;
    size_t offset, bytes;
} span_t;

typedef struct {
    pthread_mutex_t lock;
    tt_heap_options_t options;
    tt_heap_segment_t segments[TT_HEAP_SEGMENTS_MAX];
    atomic_int segment_count; /* only grows, so that places are found without the lock */
    span_t *first, *last;
    size_t total_bytes;
    tt_device_stats_t stats;
    tt_heap_aliases_t aliases;
} heap_t;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static tutti_status_t add_segment(heap_t *heap, size_t bytes)
{
    if (heap->segment_count == TT_HEAP_SEGMENTS_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "the shared heap already has %d segments",
                       TT_HEAP_SEGMENTS_MAX);
    }
    span_t *span = tt_alloc(sizeof *span, "heap span");
    TT_TRY_ALLOC(span);
    tt_heap_segment_t *segment = &heap->segments[heap->segment_count];
    const tutti_status_t status = tt_heap_segment_create(bytes, segment);
    if (status < 0) {
        tt_free(span);
        return status;
    }
    *span =
        (span_t){.previous = heap->last, .segment = heap->segment_count++, .bytes = segment->bytes};
    if (heap->last != NULL) {
        heap->last->next = span;
    } else {
        heap->first = span;
    }
    heap->last = span;
    atomic_store_explicit(&heap->segment_count, span->segment + 1, memory_order_release);
    heap->total_bytes += segment->bytes;
    heap->stats.misses++;
    return TUTTI_OK;
}

static tutti_status_t open_heap(void *state, const void *options)
{
    heap_t *heap = state;
    if (options != NULL) {
        heap->options = *(const tt_heap_options_t *)options;
    }
    const size_t wanted = heap->options.first_bytes;
    TT_TRY(add_segment(heap, wanted > 0 ? wanted : FIRST_BYTES));
    pthread_mutex_init(&heap->lock, NULL);
    tt_heap_aliases_init(&heap->aliases);
    return TUTTI_OK;
}

static void close_heap(void *state)
{
    heap_t *heap = state;
    for (span_t *span = heap->first, *next; span != NULL; span = next) {
        next = span->next;
        tt_free(span);
    }
    for (int i = 0; i < heap->segment_count; i++) {
        tt_heap_segment_release(&heap->segments[i]);
    }
    pthread_mutex_destroy(&heap->lock);
    tt_heap_aliases_fini(&heap->aliases);
}

static size_t align_of(size_t bytes)
{
    return bytes >= TT_HEAP_PAGE ? TT_HEAP_PAGE : TT_HEAP_ALIGN;
}

/* So many bytes of a span lie before the first that is aligned. */
static size_t pad_of(const span_t *span, size_t bytes)
{
    return round_up(span->offset, align_of(bytes)) - span->offset;
}

static span_t *find_free(heap_t *heap, size_t bytes)
{
    span_t *best = NULL;
    for (span_t *span = heap->first; span != NULL; span = span->next) {
        if (!span->is_used && span->bytes >= bytes + pad_of(span, bytes) &&
            (best == NULL || span->bytes < best->bytes)) {
            best = span;
        }
    }
    return best;
}

/* Cut a free span after `bytes`; what is left stays free. */
static tutti_status_t split(heap_t *heap, span_t *span, size_t bytes)
{
    if (span->bytes == bytes) {
        return TUTTI_OK;
    }
    span_t *rest = tt_alloc(sizeof *rest, "heap span");
    TT_TRY_ALLOC(rest);
    *rest = *span;
    rest->offset += bytes;
    rest->bytes -= bytes;
    rest->previous = span;
    if (rest->next != NULL) {
        rest->next->previous = rest;
    } else {
        heap->last = rest;
    }
    span->next = rest;
    span->bytes = bytes;
    return TUTTI_OK;
}

/* Join a free span with the one behind it if that is free and of the same segment. */
static void join_next(heap_t *heap, span_t *span)
{
    span_t *next = span->next;
    if (next == NULL || next->is_used || span->is_used || next->segment != span->segment ||
        next->offset != span->offset + span->bytes) { /* retired memory lies between */
        return;
    }
    span->bytes += next->bytes;
    span->next = next->next;
    if (next->next != NULL) {
        next->next->previous = span;
    } else {
        heap->last = span;
    }
    tt_free(next);
}

static tutti_status_t grow(heap_t *heap, size_t bytes)
{
    const size_t like_before =
        heap->total_bytes < GROW_BYTES_MAX ? heap->total_bytes : GROW_BYTES_MAX;
    return add_segment(heap, round_up(bytes > like_before ? bytes : like_before, STEP_BYTES));
}

static tutti_status_t take(heap_t *heap, size_t bytes, bool *has_grown, void **out)
{
    span_t *span = find_free(heap, bytes);
    if (span == NULL) {
        TT_TRY(grow(heap, bytes));
        *has_grown = true;
        span = heap->last;
    }
    const size_t pad = pad_of(span, bytes);
    if (pad > 0) {
        TT_TRY(split(heap, span, pad));
        span = span->next;
    }
    TT_TRY(split(heap, span, bytes));
    span->is_used = true;
    heap->stats.live_bytes += bytes;
    if (heap->stats.live_bytes > heap->stats.peak_bytes) {
        heap->stats.peak_bytes = heap->stats.live_bytes;
    }
    *out = heap->segments[span->segment].base + span->offset;
    return TUTTI_OK;
}

static void *alloc_heap(void *state, size_t bytes, const char *what)
{
    heap_t *heap = state;
    if (bytes > (UINT64_C(1) << 47)) {
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "cannot allocate %zu shared bytes for %s", bytes, what);
        return NULL;
    }
    void *memory = NULL;
    bool has_grown = false;
    pthread_mutex_lock(&heap->lock);
    heap->stats.requests++;
    const size_t rounded = round_up(bytes > 0 ? bytes : 1, align_of(bytes));
    (void)take(heap, rounded, &has_grown, &memory);
    const int segment = heap->segment_count - 1;
    const tt_heap_segment_t added = heap->segments[segment];
    const tt_heap_options_t options = heap->options;
    pthread_mutex_unlock(&heap->lock);
    if (has_grown && options.on_segment != NULL) {
        options.on_segment(options.user, segment, added.fd, added.bytes);
    }
    return memory;
}

/* The segment that holds memory[0, bytes), or -1. */
static int find_segment(const heap_t *heap, const void *memory, size_t bytes)
{
    const uintptr_t address = (uintptr_t)memory;
    const int count = atomic_load_explicit(&heap->segment_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        const uintptr_t base = (uintptr_t)heap->segments[i].base;
        const size_t segment_bytes = heap->segments[i].bytes;
        if (address >= base && address - base <= segment_bytes &&
            bytes <= segment_bytes - (address - base)) {
            return i;
        }
    }
    return -1;
}

/* The span of a block that was handed out; the lock is held. */
static span_t *find_used(heap_t *heap, const void *memory, size_t bytes)
{
    const int segment = find_segment(heap, memory, bytes);
    TT_ASSERT(segment >= 0);
    const size_t offset = (size_t)((const unsigned char *)memory - heap->segments[segment].base);
    span_t *span = heap->first;
    while (span != NULL && (span->segment != segment || span->offset != offset)) {
        span = span->next;
    }
    TT_ASSERT(span != NULL && span->is_used);
    return span;
}

static void free_span(heap_t *heap, void *memory, size_t bytes)
{
    pthread_mutex_lock(&heap->lock);
    span_t *span = find_used(heap, memory, bytes);
    span->is_used = false;
    heap->stats.live_bytes -= span->bytes;
    join_next(heap, span);
    if (span->previous != NULL) {
        join_next(heap, span->previous);
    }
    pthread_mutex_unlock(&heap->lock);
}

static void unlink_span(heap_t *heap, span_t *span)
{
    *(span->previous != NULL ? &span->previous->next : &heap->first) = span->next;
    *(span->next != NULL ? &span->next->previous : &heap->last) = span->previous;
}

/* The span leaves the books, so that nothing is ever handed out there. */
static void retire(heap_t *heap, void *memory, size_t bytes)
{
    pthread_mutex_lock(&heap->lock);
    span_t *span = find_used(heap, memory, bytes);
    unlink_span(heap, span);
    heap->stats.live_bytes -= span->bytes;
    heap->total_bytes -= span->bytes;
    tt_heap_segment_punch(&heap->segments[span->segment], span->offset, span->bytes);
    pthread_mutex_unlock(&heap->lock);
    tt_free(span);
}

static void free_heap(void *state, void *memory, size_t bytes)
{
    heap_t *heap = state;
    tt_heap_alias_t *alias = tt_heap_aliases_take(&heap->aliases, memory, bytes);
    if (alias == NULL) {
        free_span(heap, memory, bytes);
        return;
    }
    retire(heap, memory, bytes);
    tt_heap_free_aliases(alias);
}

static tt_device_stats_t stats_heap(void *state)
{
    heap_t *heap = state;
    pthread_mutex_lock(&heap->lock);
    tt_device_stats_t stats = heap->stats;
    stats.cached_bytes = heap->total_bytes - stats.live_bytes;
    pthread_mutex_unlock(&heap->lock);
    return stats;
}

void tt_heap_set_on_segment(tt_device_t *device,
                            void (*on_segment)(void *user, int segment, int fd, size_t bytes),
                            void *user)
{
    heap_t *heap = tt_device_state(device);
    pthread_mutex_lock(&heap->lock);
    heap->options.on_segment = on_segment;
    heap->options.user = user;
    pthread_mutex_unlock(&heap->lock);
}

int tt_heap_segment_count(tt_device_t *device)
{
    const heap_t *heap = tt_device_state(device);
    return heap->segment_count;
}

void tt_heap_segment(tt_device_t *device, int segment, int *fd, size_t *bytes)
{
    const heap_t *heap = tt_device_state(device);
    *fd = heap->segments[segment].fd;
    *bytes = heap->segments[segment].bytes;
}

tt_place_t tt_heap_place(tt_device_t *device, const void *memory, size_t bytes)
{
    heap_t *heap = tt_device_state(device);
    const void *pages = tt_heap_aliases_find(&heap->aliases, memory, bytes);
    const int segment = pages != NULL ? find_segment(heap, pages, bytes) : -1;
    if (segment < 0) {
        return 0;
    }
    const size_t offset = (size_t)((const unsigned char *)pages - heap->segments[segment].base);
    return (tt_place_t)(segment + 1) << 48 | offset;
}

void *tt_heap_at(tt_device_t *device, tt_place_t place, size_t bytes)
{
    const heap_t *heap = tt_device_state(device);
    const int segment = tt_place_segment(place);
    const size_t offset = tt_place_offset(place);
    if (segment < 0 || segment >= heap->segment_count) {
        return NULL;
    }
    const tt_heap_segment_t *found = &heap->segments[segment];
    const bool fits = offset <= found->bytes && bytes <= found->bytes - offset;
    return fits ? found->base + offset : NULL;
}

tt_heap_aliases_t *tt_heap_aliases(tt_device_t *heap)
{
    return &((heap_t *)tt_device_state(heap))->aliases;
}

void tt_heap_abandon(tt_device_t *heap)
{
    tt_device_release(heap); /* the reference that the block held */
}

void tt_heap_retire(tt_device_t *heap, void *memory, size_t bytes)
{
    if (memory != NULL) {
        retire(tt_device_state(heap), memory, bytes);
        tt_device_release(heap); /* the reference that the block held */
    }
}

const tt_device_ops_t tt_device_heap = {
    .name = "heap",
    .about = "memory shared with the ranks of the same host",
    .state_bytes = sizeof(heap_t),
    .open = open_heap,
    .close = close_heap,
    .alloc = alloc_heap,
    .free = free_heap,
    .stats = stats_heap,
};
