/* The books of a heap's extents: one list of all in order of place, a list of the free ones, a
 * table of blocks by place, and spare extents, so that no change of the books allocates. What an
 * extent becomes is decided above (heap_extents.c, heap_extents_retire.c).
 */
#include <stdint.h>

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

void tt_extents_enter_block(tt_extents_t *extents, tt_extent_t *block)
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
            tt_extents_enter_block(extents, block);
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

tt_extent_t *tt_extents_take_spare(tt_extents_t *extents)
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

void tt_extents_insert(tt_extents_t *extents, tt_extent_t *before, tt_extent_t *extent)
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
