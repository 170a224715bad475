/* Fresh pages at old addresses. A peer that was stopped while it wrote into this rank's memory goes
 * on when it likes; its mapping cannot be taken from it. So the owner moves: a new block of the
 * heap gets the contents, and its pages are mapped over the old addresses. Who held a pointer
 * there still does.
 *
 * Cost: a copy, and the memory twice until the old block is freed.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/alloc.h"
#include "core/device/heap.h"
#include "core/device/heap_alias.h"

/* Map the pages of a block a second time. */
static tutti_status_t map_over(tt_device_t *heap, const tt_heap_alias_t *alias)
{
    const tt_heap_address_t place = tt_heap_address(heap, alias->block, alias->bytes);
    int fd;
    size_t segment_bytes;
    tt_heap_segment(heap, tt_heap_address_segment(place), &fd, &segment_bytes);
    void *mapped =
        mmap(alias->begin, alias->bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, (off_t)tt_heap_address_offset(place));
    if (mapped == MAP_FAILED) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot map %zu bytes of shared memory again",
                             alias->bytes);
    }
    return TUTTI_OK;
}

tutti_status_t tt_heap_replace(tt_device_t *heap, void *memory, size_t bytes)
{
    const size_t page = tt_heap_page_bytes();
    const size_t before = (uintptr_t)memory % page;
    const size_t pages = (before + bytes + page - 1) / page * page;
    tt_heap_alias_t *alias = tt_alloc(sizeof *alias, "replaced memory");
    TT_TRY_ALLOC(alias);
    *alias =
        (tt_heap_alias_t){.begin = (unsigned char *)memory - before, .bytes = pages, .heap = heap};
    tutti_status_t status = TUTTI_ERR_NOMEM;
    alias->block = tt_device_alloc(heap, pages, "replaced memory");
    if (alias->block == NULL) {
        goto free_alias;
    }
    memcpy(alias->block, alias->begin, pages);
    TT_TRY_GOTO(status, map_over(heap, alias), free_block);
    tt_heap_aliases_add(tt_heap_aliases(heap), alias);
    return TUTTI_OK;
free_block:
    tt_device_free(heap, alias->block, pages);
free_alias:
    tt_free(alias);
    return status;
}
