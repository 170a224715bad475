/* A peer's heap as this rank sees it: the segments it was sent, mapped. */
#include "core/device/heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/device/heap_segment.h"

tutti_status_t tt_heap_view_add(tt_heap_view_t *view, int segment, int fd, size_t bytes)
{
    tutti_status_t status = TUTTI_OK;
    if (segment < 0 || segment >= TT_HEAP_SEGMENTS_MAX || view->base[segment] != NULL) {
        status = TT_FAIL(TUTTI_ERR_FORMAT,
                         "a peer sent segment %d of its heap twice or out of "
                         "range (0 to %d)",
                         segment, TT_HEAP_SEGMENTS_MAX - 1);
    } else {
        status = tt_heap_segment_map(fd, bytes, &view->base[segment]);
    }
    if (status == TUTTI_OK) {
        view->bytes[segment] = bytes;
    }
    close(fd);
    return status;
}

void tt_heap_view_close(tt_heap_view_t *view)
{
    for (int i = 0; i < TT_HEAP_SEGMENTS_MAX; i++) {
        if (view->base[i] != NULL) {
            munmap(view->base[i], view->bytes[i]);
        }
    }
    *view = (tt_heap_view_t){0};
}
