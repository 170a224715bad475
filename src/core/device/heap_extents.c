/* Changes of the books: a segment is added, blocks are taken and given back, idle pages are cut
 * out. An extent that is cut or joined keeps the lists and counts of heap_extents_lists.c true by
 * leaving the free list before it changes and entering it afterwards.
 */
#include "core/device/heap_extents_impl.h"

void tt_extents_add_segment(tt_extents_t *extents, int segment, size_t bytes)
{
    tt_extent_t *extent = tt_extents_take_spare(extents);
    *extent = (tt_extent_t){.kind = TT_EXTENT_BARE, .segment = segment, .bytes = bytes};
    tt_extents_insert(extents, extents->last, extent);
    tt_extents_enter_free(extents, extent);
}

/* Cut a free extent in two; the right one is returned, both are free. */
static tt_extent_t *cut(tt_extents_t *extents, tt_extent_t *extent, size_t offset)
{
    tt_extent_t *right = tt_extents_take_spare(extents);
    tt_extents_leave_free(extents, extent);
    *right = (tt_extent_t){.kind = extent->kind,
                           .segment = extent->segment,
                           .offset = offset,
                           .bytes = tt_extent_end(extent) - offset};
    extent->bytes = offset - extent->offset;
    tt_extents_insert(extents, extent, right);
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
    tt_extents_enter_block(extents, block);
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
