/* The inside of tt_extents_t: heap_extents_lists.c, which heap_extents_retire.c uses, and
 * heap_extents.c uses both. */
#ifndef TT_HEAP_EXTENTS_IMPL_H
#define TT_HEAP_EXTENTS_IMPL_H

#include "core/device/heap_extents.h"

static inline size_t tt_extent_end(const tt_extent_t *extent)
{
    return extent->offset + extent->bytes;
}

static inline bool tt_extent_is_free(const tt_extent_t *extent)
{
    return extent->kind == TT_EXTENT_BARE || extent->kind == TT_EXTENT_IDLE;
}

/* Whether b begins where a ends. Retired memory may lie between two extents in the list. */
static inline bool tt_extent_meets(const tt_extent_t *a, const tt_extent_t *b)
{
    return a != NULL && b != NULL && a->segment == b->segment && tt_extent_end(a) == b->offset;
}

static inline size_t tt_page_floor(const tt_extents_t *extents, size_t offset)
{
    return offset / extents->page_bytes * extents->page_bytes;
}

static inline size_t tt_page_ceil(const tt_extents_t *extents, size_t offset)
{
    return tt_page_floor(extents, offset + extents->page_bytes - 1);
}

/* The bytes of the whole pages in an extent. */
static inline size_t tt_extent_inside(const tt_extents_t *extents, const tt_extent_t *extent)
{
    const size_t first = tt_page_ceil(extents, extent->offset);
    const size_t end = tt_page_floor(extents, tt_extent_end(extent));
    return end > first ? end - first : 0;
}

/* ---- heap_extents_lists.c ---- */

/* One of those that stand for nothing; tt_extents_make_ready() was called. */
tt_extent_t *tt_extents_take_spare(tt_extents_t *extents);

/* Into the list of all; before NULL: at its beginning. */
void tt_extents_insert(tt_extents_t *extents, tt_extent_t *before, tt_extent_t *extent);

/* A free extent leaves the list of free ones, and the count of idle pages, before it changes. */
void tt_extents_leave_free(tt_extents_t *extents, tt_extent_t *extent);
void tt_extents_enter_free(tt_extents_t *extents, tt_extent_t *extent);

/* Take an extent that is in no other list out of the books. */
void tt_extents_drop(tt_extents_t *extents, tt_extent_t *extent);

/* A block can be found by its place; and is none any more. */
void tt_extents_enter_block(tt_extents_t *extents, tt_extent_t *block);
void tt_extents_forget_block(tt_extents_t *extents, tt_extent_t *block);

/* ---- heap_extents_retire.c ---- */

/* An idle extent gives the parts of the pages that it shares with retired neighbours to them. */
void tt_extents_give_edges(tt_extents_t *extents, tt_extent_t *idle);

#endif
