/* The pages behind the books of a shared heap: segments are added, pages populated and punched.
 *
 * A segment that is added is as large as all before it together, so that a heap of any size has
 * few. Address space costs nothing, so it is not given back.
 *
 * Idle pages are punched after they have left the free ones, so that it needs no lock.
 */
#include "core/base/alloc.h"
#include "core/device/heap_impl.h"
#include "core/device/heap_memory.h"

enum {
    STEP_BYTES = 64 << 20, /* populated before available memory is looked at again */
    MORE_MAX = 1 << 20,    /* populated before small blocks need it */
    UNUSED_PARTS = 20      /* 5 % */
};

static tutti_status_t create_segment(size_t wished, size_t needed, tt_heap_segment_t *out)
{
    const tutti_status_t status = tt_heap_segment_create(wished, out);
    return status < 0 && needed < wished ? tt_heap_segment_create(needed, out) : status;
}

tutti_status_t tt_heap_add_segment(tt_heap_t *heap, size_t wished, size_t needed)
{
    const int count = heap->segment_count;
    if (count == TT_HEAP_SEGMENTS_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "the shared heap already has %d segments", count);
    }
    tt_heap_segment_t **chunk = &heap->chunks[count / TT_HEAP_CHUNK];
    if (*chunk == NULL) {
        *chunk = tt_alloc_array(TT_HEAP_CHUNK, sizeof **chunk, "heap segments");
        TT_TRY_ALLOC(*chunk);
    }
    TT_TRY(tt_extents_make_ready(&heap->extents));
    tt_heap_segment_t *segment = tt_heap_segment_at(heap, count);
    TT_TRY(create_segment(wished, needed, segment));
    tt_extents_add_segment(&heap->extents, count, segment->bytes);
    heap->address_bytes += segment->bytes;
    atomic_store_explicit(&heap->segment_count, count + 1, memory_order_release);
    return TUTTI_OK;
}

/* ---- populating */

static tutti_status_t populate(const tt_heap_t *heap, const tt_heap_segment_t *segment,
                               const tt_heap_range_t *range, const char *what)
{
    for (size_t done = 0; done < range->bytes; done += STEP_BYTES) {
        /* each time, for other processes take memory too */
        const size_t left = range->bytes - done;
        TT_TRY(tt_memory_check(heap->options.root, tt_min_size(range->missing, left), what));
        TT_TRY(
            tt_heap_segment_populate(segment, range->offset + done, tt_min_size(left, STEP_BYTES)));
    }
    return TUTTI_OK;
}

tutti_status_t tt_heap_fill(const tt_heap_t *heap, const tt_heap_range_t *range, const char *what)
{
    const tt_heap_segment_t *segment = tt_heap_segment_at(heap, range->segment);
    TT_TRY(tt_alloc_take(range->missing, what));
    const tutti_status_t status = populate(heap, segment, range, what);
    if (status < 0) { /* some pages may be there */
        tt_alloc_give(tt_min_size(range->missing,
                                  tt_heap_segment_holes(segment, range->offset, range->bytes)));
    }
    return status;
}

tutti_status_t tt_heap_fill_small(tt_heap_t *heap, const tt_extent_fit_t *fit, size_t bytes,
                                  const char *what)
{
    tt_extent_t *bare = tt_extents_first_bare(fit, bytes);
    const size_t needed = fit->offset + bytes - bare->offset;
    const size_t kept = heap->options.idle_min, idle = heap->extents.idle_bytes;
    const size_t more = idle < kept ? tt_min_size(kept - idle, tt_min_size(kept / 4, MORE_MAX)) : 0;
    tt_heap_range_t range = {.segment = bare->segment, .offset = bare->offset};
    range.bytes = tt_min_size(tt_round_up(needed + more, heap->page_bytes), bare->bytes);
    range.missing = range.bytes;
    TT_TRY(tt_heap_fill(heap, &range, what));
    heap->stats.misses++;
    tt_extents_mark_populated(&heap->extents, bare, range.bytes);
    return TUTTI_OK;
}

/* ---- punching */

/* Punch an extent that is neither free nor a block. */
static void punch_busy(tt_heap_t *heap, tt_extent_t *busy)
{
    pthread_mutex_unlock(&heap->lock);
    tt_heap_segment_punch(tt_heap_segment_at(heap, busy->segment), busy->offset, busy->bytes);
    pthread_mutex_lock(&heap->lock);
    tt_extents_free(&heap->extents, busy);
}

void tt_heap_empty(tt_heap_t *heap, tt_extent_t *block)
{
    tt_extents_empty(&heap->extents, block);
    punch_busy(heap, block);
}

static void punch_retired(tt_heap_t *heap)
{
    int segment;
    size_t offset, bytes;
    while (tt_extents_next_punch(&heap->extents, &segment, &offset, &bytes)) {
        tt_heap_segment_punch(tt_heap_segment_at(heap, segment), offset, bytes);
    }
}

/* How many bytes of idle pages are above the bound. */
static size_t excess_of(const tt_heap_t *heap)
{
    const size_t idle = heap->extents.idle_bytes, populated = heap->extents.populated_bytes;
    const size_t kept = heap->options.idle_min + heap->kept_bytes;
    if (idle <= kept || idle * UNUSED_PARTS <= populated) {
        return 0;
    }
    const size_t above = (idle * UNUSED_PARTS - populated) / (UNUSED_PARTS - 1) + 1;
    return tt_round_up(tt_min_size(above, idle - kept), heap->page_bytes);
}

void tt_heap_trim(tt_heap_t *heap)
{
    punch_retired(heap);
    for (size_t excess = excess_of(heap); excess > 0; excess = excess_of(heap)) {
        tt_extent_t *busy = tt_extents_cut_idle(&heap->extents, excess);
        if (busy == NULL) {
            return;
        }
        punch_busy(heap, busy);
    }
}
