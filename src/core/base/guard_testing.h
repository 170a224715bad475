/* Memory that ends where a page without access begins: the program ends if a vector or a tile is
 * read or written as a whole where less of it is left. For *_test.c only.
 *
 *     const tt_guarded_t x = tt_guard(values, bytes); // its data are a copy of them
 *     tt_unguard(x);
 */
#ifndef TT_GUARD_TESTING_H
#define TT_GUARD_TESTING_H

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/testing.h"

typedef struct {
    char *pages, *data;
    size_t bytes; /* of the pages */
} tt_guarded_t;

static inline tt_guarded_t tt_guard(const void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    const int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *pages = mmap(NULL, room + page, access, flags, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + room, page, PROT_NONE), 0);
    const tt_guarded_t guarded = {pages, pages + room - bytes, room + page};
    memcpy(guarded.data, from, bytes);
    return guarded;
}

static inline void tt_unguard(tt_guarded_t guarded)
{
    assert_int_equal(munmap(guarded.pages, guarded.bytes), 0);
}

#endif
