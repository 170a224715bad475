/* The books of a shared heap: which extents of its segments are handed out, populated, or free.
 *
 * An extent is a piece of one segment, a multiple of 128 bytes. Extents of a segment lie side by
 * side, in order:
 *
 *     | used | idle |   bare   | reserved | used | (retired: in no book) | bare |
 *
 * - bare: free, holes; whole pages that the system has back.
 * - idle: free, populated.
 * - used: a block; its pages are populated.
 * - reserved: a block that its owner populates in pieces; its pages are not counted here.
 * - busy: whole pages on their way from a block or idle to bare.
 * - retired: never handed out again; it stays in the books only while it shares a page with a block
 *   that lives.
 *
 * A free extent never lies beside one of its own kind. An idle page is a page that lies in an idle
 * extent as a whole: these are the populated pages that nobody uses.
 *
 * Nothing here makes a system call, and nothing locks. Only tt_extents_make_ready() allocates.
 *
 * Cost: taking is linear in the number of free extents, giving back is constant.
 */
#ifndef TT_HEAP_EXTENTS_H
#define TT_HEAP_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/fail.h"

typedef enum {
    TT_EXTENT_BARE,
    TT_EXTENT_IDLE,
    TT_EXTENT_USED,
    TT_EXTENT_RESERVED,
    TT_EXTENT_BUSY,
    TT_EXTENT_RETIRED
} tt_extent_kind_t;

typedef struct tt_extent {
    struct tt_extent *next, *previous;           /* in order of segment and offset */
    struct tt_extent *next_free, *previous_free; /* lists of free, spare, and to be punched */
    struct tt_extent *next_same;                 /* of the same bucket of the table of blocks */
    tt_extent_kind_t kind;
    int segment;
    bool is_queued; /* retired: in the list of those to punch */
    size_t offset, bytes;
    size_t punched; /* retired: bytes of whole pages that the system has back */
} tt_extent_t;

typedef struct {
    size_t page_bytes;
    tt_extent_t *first, *last, *first_free, *spare, *to_punch;
    tt_extent_t **blocks; /* [bucket_count]: used and reserved ones by place */
    size_t bucket_count, block_count, spare_count;
    size_t idle_bytes;      /* of idle pages */
    size_t populated_bytes; /* of all pages but those of reserved blocks */
} tt_extents_t;

/* Where a block fits: at `offset` of a run of free extents that starts with `extent`. */
typedef struct {
    tt_extent_t *extent;
    size_t offset;
    size_t bare_bytes; /* how many of its bytes are bare */
} tt_extent_fit_t;

void tt_extents_init(tt_extents_t *extents, size_t page_bytes);
void tt_extents_fini(tt_extents_t *extents);

/* Allocate what the books need for one change; NOMEM. The other functions never fail. */
tutti_status_t tt_extents_make_ready(tt_extents_t *extents);

/* A new segment, bare. Segments come in order. */
void tt_extents_add_segment(tt_extents_t *extents, int segment, size_t bytes);

/* The best place for a block: the smallest idle extent that holds it, or else the run with the
 * fewest bare bytes to populate. `align`: 128, or a page. False: there is none. */
bool tt_extents_find(const tt_extents_t *extents, size_t bytes, size_t align, tt_extent_fit_t *out);

/* The same in a bare extent alone: the smallest that holds it. */
bool tt_extents_find_bare(const tt_extents_t *extents, size_t bytes, tt_extent_fit_t *out);

/* The first bare extent that the block at a fit covers. */
tt_extent_t *tt_extents_first_bare(const tt_extent_fit_t *fit, size_t bytes);

/* The first `bytes` of a bare extent, whole pages, have been populated: they are idle now. */
void tt_extents_mark_populated(tt_extents_t *extents, tt_extent_t *bare, size_t bytes);

/* Take a block at a fit. Its bare pages count as populated from now on unless it is reserved. */
tt_extent_t *tt_extents_take(tt_extents_t *extents, const tt_extent_fit_t *fit, size_t bytes,
                             tt_extent_kind_t kind);

/* The block that starts at a place; NULL: none. */
tt_extent_t *tt_extents_block_at(const tt_extents_t *extents, int segment, size_t offset);

/* A used block becomes idle, a busy extent bare. */
void tt_extents_free(tt_extents_t *extents, tt_extent_t *extent);

/* Take at most `bytes` of whole pages out of the largest idle extent; they are busy until they
 * have been punched and freed. NULL: there is nothing to take. */
tt_extent_t *tt_extents_cut_idle(tt_extents_t *extents, size_t bytes);

/* A block of whole pages is about to be punched as a whole: it is busy. */
void tt_extents_empty(tt_extents_t *extents, tt_extent_t *block);

/* A block is never to be handed out again. */
void tt_extents_retire(tt_extents_t *extents, tt_extent_t *block);

/* After freeing or retiring: the next whole pages of retired extents that are to be punched.
 * False: there are none. */
bool tt_extents_next_punch(tt_extents_t *extents, int *segment, size_t *offset, size_t *bytes);

#endif
