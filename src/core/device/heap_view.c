/* A peer's heap as this rank sees it: the segments it was sent, each mapped once, as a whole. The
 * pages that its owner populates later appear by themselves. */
#include "core/device/heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/device/heap_segment.h"

enum { SEGMENTS_FIRST = 16 };

static tutti_status_t make_room(tt_heap_peer_t *view, int segment)
{
    int count = view->count > 0 ? view->count : SEGMENTS_FIRST;
    while (count <= segment) {
        count *= 2;
    }
    if (count > view->count) {
        tt_heap_mapping_t *grown =
            tt_realloc(view->segments, (size_t)count * sizeof *grown, "heap view");
        TT_TRY_ALLOC(grown);
        view->segments = grown;
        view->count = count;
    }
    return TUTTI_OK;
}

static tutti_status_t add(tt_heap_peer_t *view, int segment, int fd, size_t bytes)
{
    if (segment < 0 || segment >= TT_HEAP_SEGMENTS_MAX) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "a peer sent segment %d of its heap: want 0 to %d",
                       segment, TT_HEAP_SEGMENTS_MAX - 1);
    }
    if (segment < view->count && view->segments[segment].base != NULL) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "a peer sent segment %d of its heap twice", segment);
    }
    tt_heap_mapping_t mapping = {.bytes = bytes};
    TT_TRY(tt_heap_segment_map(fd, bytes, &mapping.base));
    const tutti_status_t status = make_room(view, segment);
    if (status < 0) {
        munmap(mapping.base, bytes);
        return status;
    }
    view->segments[segment] = mapping;
    return TUTTI_OK;
}

tutti_status_t tt_heap_peer_map(tt_heap_peer_t *view, int segment, int fd, size_t bytes)
{
    const tutti_status_t status = add(view, segment, fd, bytes);
    close(fd);
    return status;
}

void tt_heap_peer_close(tt_heap_peer_t *view)
{
    for (int i = 0; i < view->count; i++) {
        if (view->segments[i].base != NULL) {
            munmap(view->segments[i].base, view->segments[i].bytes);
        }
    }
    tt_free(view->segments);
    *view = (tt_heap_peer_t){0};
}
