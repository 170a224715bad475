/* The books: one list of all extents in order of place, a list of the free ones, and a table of
 * blocks by place. An extent that is cut or joined keeps these and the counts true by leaving the
 * free list before it changes and entering it afterwards.
 */
#include "core/device/heap_extents.h"

#include <stdint.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/device/heap_extents_impl.h"

/* The extents that one change may need: two cuts to populate and two to take, or to cut idle
 * pages out after that. */
enum { SPARE_COUNT = 6, BUCKETS_MIN = 64 };

void tt_extents_init(tt_extents_t *extents, size_t page_bytes)
{
    *extents = (tt_extents_t){.page_bytes = page_bytes};
}

static void free_list(tt_extent_t *extent, bool is_spare)
{
    while (extent != NULL) {
        tt_extent_t *next = is_spare ? extent->next_free : extent->next;
        tt_free(extent);
        extent = next;
    }
}

void tt_extents_fini(tt_extents_t *extents)
{
    free_list(extents->first, false);
    free_list(extents->spare, true);
    tt_free(extents->blocks);
}

/* ---- the table of blocks */

static tt_extent_t **bucket_of(const tt_extents_t *extents, int segment, size_t offset)
{
    const uint64_t place = (uint64_t)segment << 48 | offset;
    const uint64_t mixed = (place / 128) * UINT64_C(0x9e3779b97f4a7c15);
    return &extents->blocks[(mixed >> 32) % extents->bucket_count];
}

static void enter_block(tt_extents_t *extents, tt_extent_t *block)
{
    tt_extent_t **bucket = bucket_of(extents, block->segment, block->offset);
    block->next_same = *bucket;
    *bucket = block;
    extents->block_count++;
}

void tt_extents_forget_block(tt_extents_t *extents, tt_extent_t *block)
{
    tt_extent_t **link = bucket_of(extents, block->segment, block->offset);
    while (*link != block) {
        link = &(*link)->next_same;
    }
    *link = block->next_same;
    extents->block_count--;
}

tt_extent_t *tt_extents_block_at(const tt_extents_t *extents, int segment, size_t offset)
{
    tt_extent_t *block = *bucket_of(extents, segment, offset);
    while (block != NULL && (block->segment != segment || block->offset != offset)) {
        block = block->next_same;
    }
    return block;
}

static tutti_status_t grow_table(tt_extents_t *extents)
{
    const size_t count = extents->bucket_count == 0 ? BUCKETS_MIN : 2 * extents->bucket_count;
    tt_extent_t **blocks = tt_alloc_array(count, sizeof *blocks, "heap extents");
    TT_TRY_ALLOC(blocks);
    tt_extent_t **old = extents->blocks;
    const size_t old_count = extents->bucket_count;
    extents->blocks = blocks;
    extents->bucket_count = count;
    extents->block_count = 0;
    for (size_t i = 0; i < old_count; i++) {
        for (tt_extent_t *block = old[i], *next; block != NULL; block = next) {
            next = block->next_same;
            enter_block(extents, block);
        }
    }
    tt_free(old);
    return TUTTI_OK;
}

/* ---- extents that stand for nothing yet */

static void give_spare(tt_extents_t *extents, tt_extent_t *extent)
{
    extent->next_free = extents->spare;
    extents->spare = extent;
    extents->spare_count++;
}

static tt_extent_t *take_spare(tt_extents_t *extents)
{
    tt_extent_t *extent = extents->spare;
    TT_ASSERT(extent != NULL); /* tt_extents_make_ready() was called */
    extents->spare = extent->next_free;
    extents->spare_count--;
    return extent;
}

tutti_status_t tt_extents_make_ready(tt_extents_t *extents)
{
    if (extents->block_count >= extents->bucket_count) {
        TT_TRY(grow_table(extents));
    }
    while (extents->spare_count < SPARE_COUNT) {
        tt_extent_t *extent = tt_alloc(sizeof *extent, "heap extents");
        TT_TRY_ALLOC(extent);
        give_spare(extents, extent);
    }
    return TUTTI_OK;
}

/* ---- free extents */

size_t tt_extent_inside(const tt_extents_t *extents, const tt_extent_t *extent)
{
    const size_t first = tt_page_ceil(extents, extent->offset);
    const size_t end = tt_page_floor(extents, tt_extent_end(extent));
    return end > first ? end - first : 0;
}

void tt_extents_leave_free(tt_extents_t *extents, tt_extent_t *extent)
{
    tt_extent_t **link =
        extent->previous_free != NULL ? &extent->previous_free->next_free : &extents->first_free;
    *link = extent->next_free;
    if (extent->next_free != NULL) {
        extent->next_free->previous_free = extent->previous_free;
    }
    if (extent->kind == TT_EXTENT_IDLE) {
        extents->idle_bytes -= tt_extent_inside(extents, extent);
    }
}

void tt_extents_enter_free(tt_extents_t *extents, tt_extent_t *extent)
{
    extent->previous_free = NULL;
    extent->next_free = extents->first_free;
    if (extents->first_free != NULL) {
        extents->first_free->previous_free = extent;
    }
    extents->first_free = extent;
    if (extent->kind == TT_EXTENT_IDLE) {
        extents->idle_bytes += tt_extent_inside(extents, extent);
    }
}

/* ---- the list of all */

static void insert_after(tt_extents_t *extents, tt_extent_t *before, tt_extent_t *extent)
{
    extent->previous = before;
    extent->next = before != NULL ? before->next : NULL;
    *(before != NULL ? &before->next : &extents->first) = extent;
    *(extent->next != NULL ? &extent->next->previous : &extents->last) = extent;
}

void tt_extents_drop(tt_extents_t *extents, tt_extent_t *extent)
{
    *(extent->previous != NULL ? &extent->previous->next : &extents->first) = extent->next;
    *(extent->next != NULL ? &extent->next->previous : &extents->last) = extent->previous;
    give_spare(extents, extent);
}

void tt_extents_add_segment(tt_extents_t *extents, int segment, size_t bytes)
{
    tt_extent_t *extent = take_spare(extents);
    *extent = (tt_extent_t){.kind = TT_EXTENT_BARE, .segment = segment, .bytes = bytes};
    insert_after(extents, extents->last, extent);
    tt_extents_enter_free(extents, extent);
}

/* Cut a free extent in two; the right one is returned, both are free. */
static tt_extent_t *cut(tt_extents_t *extents, tt_extent_t *extent, size_t offset)
{
    tt_extent_t *right = take_spare(extents);
    tt_extents_leave_free(extents, extent);
    *right = (tt_extent_t){.kind = extent->kind,
                           .segment = extent->segment,
                           .offset = offset,
                           .bytes = tt_extent_end(extent) - offset};
    extent->bytes = offset - extent->offset;
    insert_after(extents, extent, right);
    tt_extents_enter_free(extents, extent);
    tt_extents_enter_free(extents, right);
    return right;
}

/* Join an extent that has just become free, and is in no list of free ones, with its neighbours. */
static tt_extent_t *join(tt_extents_t *extents, tt_extent_t *extent)
{
    tt_extent_t *left = extent->previous, *right = extent->next;
    if (tt_extent_meets(extent, right) && right->kind == extent->kind) {
        tt_extents_leave_free(extents, right);
        extent->bytes += right->bytes;
        tt_extents_drop(extents, right);
    }
    if (tt_extent_meets(left, extent) && left->kind == extent->kind) {
        tt_extents_leave_free(extents, left);
        left->bytes += extent->bytes;
        tt_extents_drop(extents, extent);
        extent = left;
    }
    tt_extents_enter_free(extents, extent);
    return extent;
}

void tt_extents_mark_populated(tt_extents_t *extents, tt_extent_t *bare, size_t bytes)
{
    TT_ASSERT(bare->kind == TT_EXTENT_BARE && bytes <= bare->bytes);
    if (bytes < bare->bytes) {
        (void)cut(extents, bare, bare->offset + bytes);
    }
    tt_extents_leave_free(extents, bare);
    bare->kind = TT_EXTENT_IDLE;
    extents->populated_bytes += bytes;
    (void)join(extents, bare);
}

/* ---- taking and giving back */

static size_t bare_bytes(const tt_extent_t *extent)
{
    return extent->kind == TT_EXTENT_BARE ? extent->bytes : 0;
}

tt_extent_t *tt_extents_take(tt_extents_t *extents, const tt_extent_fit_t *fit, size_t bytes,
                             tt_extent_kind_t kind)
{
    const size_t end = fit->offset + bytes;
    tt_extent_t *block = fit->extent;
    if (fit->offset > block->offset) {
        block = cut(extents, block, fit->offset);
    }
    if (tt_extent_end(block) > end) {
        (void)cut(extents, block, end);
    }
    tt_extents_leave_free(extents, block);
    size_t bare = bare_bytes(block);
    while (tt_extent_end(block) < end) {
        tt_extent_t *next = block->next;
        if (tt_extent_end(next) > end) {
            (void)cut(extents, next, end);
        }
        tt_extents_leave_free(extents, next);
        bare += bare_bytes(next);
        block->bytes += next->bytes;
        tt_extents_drop(extents, next);
    }
    block->kind = kind;
    extents->populated_bytes += kind == TT_EXTENT_USED ? bare : 0;
    enter_block(extents, block);
    return block;
}

void tt_extents_free(tt_extents_t *extents, tt_extent_t *extent)
{
    if (extent->kind == TT_EXTENT_BUSY) {
        extent->kind = TT_EXTENT_BARE;
        (void)join(extents, extent);
        return;
    }
    TT_ASSERT(extent->kind == TT_EXTENT_USED);
    tt_extents_forget_block(extents, extent);
    extent->kind = TT_EXTENT_IDLE;
    tt_extents_give_edges(extents, join(extents, extent));
}

void tt_extents_empty(tt_extents_t *extents, tt_extent_t *block)
{
    TT_ASSERT(tt_extent_inside(extents, block) == block->bytes);
    tt_extents_forget_block(extents, block);
    extents->populated_bytes -= block->kind == TT_EXTENT_USED ? block->bytes : 0;
    block->kind = TT_EXTENT_BUSY;
}

tt_extent_t *tt_extents_cut_idle(tt_extents_t *extents, size_t bytes)
{
    tt_extent_t *largest = NULL;
    size_t most = 0;
    for (tt_extent_t *extent = extents->first_free; extent != NULL; extent = extent->next_free) {
        const size_t inside = tt_extent_inside(extents, extent);
        if (extent->kind == TT_EXTENT_IDLE && inside > most) {
            largest = extent;
            most = inside;
        }
    }
    if (largest == NULL || tt_extents_make_ready(extents) < 0) {
        return NULL;
    }
    const size_t end = tt_page_floor(extents, tt_extent_end(largest));
    const size_t first = end - (most < bytes ? most : bytes);
    if (end < tt_extent_end(largest)) {
        (void)cut(extents, largest, end);
    }
    if (first > largest->offset) {
        largest = cut(extents, largest, first);
    }
    tt_extents_leave_free(extents, largest);
    largest->kind = TT_EXTENT_BUSY;
    extents->populated_bytes -= largest->bytes;
    return largest;
}
