/* Pages of shared memory that this process must not write. */
#include "core/device/heap.h"

#include <stdint.h>
#include <sys/mman.h>

#include "core/base/integers.h"

tutti_status_t tt_heap_set_writable(void *memory, size_t bytes, bool is_writable)
{
    const size_t page = tt_heap_page_bytes();
    const uintptr_t begin = (uintptr_t)memory, first = tt_round_up(begin, page);
    const uintptr_t end = (begin + bytes) / page * page;
    if (end <= first) {
        return TUTTI_OK;
    }
    if (mprotect((char *)memory + (first - begin), end - first,
                 is_writable ? PROT_READ | PROT_WRITE : PROT_READ) < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot make %zu bytes of shared memory %s",
                             (size_t)(end - first), is_writable ? "writable" : "read-only");
    }
    return TUTTI_OK;
}
