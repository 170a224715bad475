/* The shared heap: memory of one rank that the other ranks of its host can map.
 *
 * A heap is a list of segments. Each is a memfd, sealed against shrinking and growing. A segment is
 * address space: its pages are holes until they are populated, by extents, as blocks are handed
 * out. So lack of memory is a status, never SIGBUS. A block that is freed stays populated for the
 * next one as far as the bound below allows; the rest is punched out, and the system has it back.
 *
 *     bound: populated pages that no block lies in are at most 5 % of all populated pages, or
 *            1 MiB and what is wanted again and again (tt_device_keep())
 *
 * A place in a heap is (segment, offset), which means the same in every process;
 * docs/formats/shm.md has the bytes.
 *
 * The owner allocates (tt_device_alloc on tt_device_heap), its books lie in private memory. A peer
 * holds a view: the segments it was sent descriptors of, mapped.
 */
#ifndef TT_HEAP_H
#define TT_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/device/device.h"

enum { TT_HEAP_SEGMENTS_MAX = 32767, TT_HEAP_ALIGN = 128 };

/* A page of this system. A block of at least so many bytes begins at a page, and shares none of its
 * pages. Smaller ones are for memory of which the pages are never replaced. */
size_t tt_heap_page_bytes(void);

/* (segment + 1) << 48 | offset; 0 is no place. */
typedef uint64_t tt_heap_address_t;

static inline int tt_heap_address_segment(tt_heap_address_t place)
{
    return (int)(place >> 48) - 1;
}

static inline size_t tt_heap_address_offset(tt_heap_address_t place)
{
    return (size_t)(place & ((UINT64_C(1) << 48) - 1));
}

typedef struct {
    size_t first_bytes; /* of segment 0; 0 means 64 MiB */
    size_t segment_max; /* bytes, unless a block needs more; 0 means 1 TiB */
    size_t idle_min;    /* bytes of idle pages that are always kept; 0 means 1 MiB */
    bool is_fixed;      /* it has segment 0 alone: what finds no room there is NOMEM */
    const char *root;   /* put before /proc and /sys, for tests; borrowed; NULL means nothing */

    /* Called by the owner's alloc after a segment was added, outside the lock. May be NULL. */
    void (*on_segment)(void *user, int segment, int fd, size_t bytes);
    void *user;
} tt_heap_options_t;

/* Set, or with NULL clear, the callback of a heap that is open. */
void tt_heap_set_on_segment(tt_device_t *heap,
                            void (*on_segment)(void *user, int segment, int fd, size_t bytes),
                            void *user);

int tt_heap_segment_count(tt_device_t *heap);

/* The descriptor stays the heap's. */
void tt_heap_segment(tt_device_t *heap, int segment, int *fd, size_t *bytes);

/* The place of memory[0, bytes) in the owner's heap; 0 if it does not lie in it (entirely). */
tt_heap_address_t tt_heap_address(tt_device_t *heap, const void *memory, size_t bytes);

/* The memory at a place of the owner's heap; NULL if there is no such place. */
void *tt_heap_at(tt_device_t *heap, tt_heap_address_t place, size_t bytes);

/* Address space for a block that is populated in pieces: [memory, memory + bytes) is holes. Blocks
 * begin at pages. NOMEM when there is no room for it in the address space. Freed with
 * tt_device_free(), which punches it. */
tutti_status_t tt_heap_reserve(tt_device_t *heap, size_t bytes, const char *what, void **memory);

/* Populate the pages that hold [memory, memory + bytes) of a reserved block; those that are there
 * keep their content, new ones are zero. NOMEM says how much was asked and what there is; then as
 * before. Until this has been called, nobody may touch them. */
tutti_status_t tt_heap_populate(tt_device_t *heap, void *memory, size_t bytes);

/* Punch the whole pages inside [memory, memory + bytes) of a reserved block: as if never populated.
 */
void tt_heap_discard(tt_device_t *heap, void *memory, size_t bytes);

/* What a heap holds. */
typedef struct {
    size_t address_bytes;   /* of all segments */
    size_t populated_bytes; /* but those of reserved blocks */
    size_t idle_bytes;      /* populated pages that no block lies in */
} tt_heap_usage_t;

tt_heap_usage_t tt_heap_usage(tt_device_t *heap);

/* Give up a block that peers may still look at: it stays as it is until the heap closes. */
void tt_heap_abandon(tt_device_t *heap);

/* Free a block whose addresses are never handed out again, for a peer may still write to them.
 * The whole pages inside are given back to the system, so that what is kept is address space, not
 * memory. What a peer writes there later is lost, and harms nobody. `bytes` as given to alloc. */
void tt_heap_retire(tt_device_t *heap, void *memory, size_t bytes);

/* Fresh pages take the place of those in which memory[0, bytes) lies, because a peer may write into
 * them at any time: at the same addresses, with the same contents, so that every pointer stays
 * good. tt_heap_address tells the new place. What the peer writes goes to the old pages, which are
 * retired when the block is freed. The memory is of a block of a page or more. Errors: NOMEM. */
tutti_status_t tt_heap_replace(tt_device_t *heap, void *memory, size_t bytes);

/* Whole pages inside [memory, memory + bytes), of any rank's heap as this process has mapped it,
 * may be written by this process, or read only. A block is writable again when it is freed. Errors:
 * NOMEM (the process has too many mappings). */
tutti_status_t tt_heap_set_writable(void *memory, size_t bytes, bool is_writable);

typedef struct {
    unsigned char *base; /* NULL: not sent yet */
    size_t bytes;
} tt_heap_mapping_t;

/* A peer's heap, mapped. Begins as zeros. */
typedef struct {
    tt_heap_mapping_t *segments; /* [count] */
    int count;
} tt_heap_peer_t;

/* Map a descriptor that a peer sent; checks its seals and size. Closes fd in any case.
 * Errors: NOMEM, which another try may not meet; AUTH, FORMAT, IO: it is no segment. */
tutti_status_t tt_heap_peer_map(tt_heap_peer_t *view, int segment, int fd, size_t bytes);
void tt_heap_peer_close(tt_heap_peer_t *view);

/* The memory at a place, or NULL when it is not (or not yet) mapped or leaves its segment. */
static inline void *tt_heap_peer_at(const tt_heap_peer_t *view, tt_heap_address_t place,
                                    size_t bytes)
{
    const int segment = tt_heap_address_segment(place);
    const size_t offset = tt_heap_address_offset(place);
    if (segment < 0 || segment >= view->count) {
        return NULL;
    }
    const tt_heap_mapping_t *found = &view->segments[segment];
    const bool fits = offset <= found->bytes && bytes <= found->bytes - offset;
    return fits && found->base != NULL ? found->base + offset : NULL;
}

#endif
