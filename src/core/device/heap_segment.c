/* Segments: memfd_create, size, seals, map; then pages come and go by extents.
 *
 * MADV_POPULATE_WRITE (Linux 5.14) makes pages and enters them in the page table without SIGBUS.
 * fallocate then finds them there, and reports what is missing; on older kernels it makes them.
 *
 * Huge pages are advised only where a whole one lies inside what is populated: otherwise touching
 * one byte would populate 2 MiB. Where the kernel's shmem_enabled does not allow them, nothing
 * changes.
 */
#include "core/device/heap_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/integers.h"
#include "core/base/log.h"
#include "core/base/memory_limit.h"
#include "core/device/heap.h"
#include "core/device/huge_pages.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

size_t tt_heap_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static tutti_status_t map(int fd, size_t bytes, unsigned char **out)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        return TT_FAIL_ERRNO(errno == ENOMEM ? TUTTI_ERR_NOMEM : TUTTI_ERR_IO,
                             "cannot map %zu bytes of shared memory", bytes);
    }
    *out = base;
    return TUTTI_OK;
}

static tutti_status_t seal(int fd)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot seal a segment of the shared heap");
    }
    return TUTTI_OK;
}

tutti_status_t tt_heap_segment_create(size_t bytes, tt_heap_segment_t *out)
{
    if (bytes > (UINT64_C(1) << 47)) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "cannot get %zu bytes of shared memory", bytes);
    }
    tt_heap_segment_t segment = {.bytes = tt_round_up(bytes, tt_heap_page_bytes())};
    segment.fd = memfd_create("tutti-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment.fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot make a memory file for the shared heap");
    }
    tutti_status_t status;
    if (tt_file_resize(segment.fd, segment.bytes) < 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot get %zu bytes of shared memory", bytes);
        goto close_file;
    }
    TT_TRY_GOTO(status, seal(segment.fd), close_file);
    TT_TRY_GOTO(status, map(segment.fd, segment.bytes, &segment.base), close_file);
    (void)madvise(segment.base, segment.bytes, MADV_NOHUGEPAGE);
    *out = segment;
    return TUTTI_OK;
close_file:
    close(segment.fd);
    return status;
}

/* Pages that go count no longer. */
static void give_pages(const tt_heap_segment_t *segment, size_t offset, size_t bytes)
{
    if (tt_memory_limit() != 0) {
        tt_alloc_give(bytes - tt_heap_segment_holes(segment, offset, bytes));
    }
}

void tt_heap_segment_release(tt_heap_segment_t *segment)
{
    give_pages(segment, 0, segment->bytes);
    munmap(segment->base, segment->bytes);
    close(segment->fd);
}

tutti_status_t tt_heap_segment_populate(const tt_heap_segment_t *segment, size_t offset,
                                        size_t bytes)
{
    tt_advise_huge(segment->base + offset, bytes, MADV_HUGEPAGE);
    (void)madvise(segment->base + offset, bytes, MADV_POPULATE_WRITE);
    int result;
    do {
        result = fallocate(segment->fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
    } while (result < 0 && errno == EINTR);
    if (result < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot get %zu bytes of shared memory", bytes);
    }
    return TUTTI_OK;
}

size_t tt_heap_segment_holes(const tt_heap_segment_t *segment, size_t offset, size_t bytes)
{
    const off_t end = (off_t)(offset + bytes);
    size_t sum = 0;
    for (off_t at = (off_t)offset; at < end;) {
        const off_t hole = lseek(segment->fd, at, SEEK_HOLE);
        if (hole < 0 || hole >= end) {
            break;
        }
        const off_t data = lseek(segment->fd, hole, SEEK_DATA); /* none: the rest is a hole */
        at = data < 0 || data > end ? end : data;
        sum += (size_t)(at - hole);
    }
    return sum;
}

void tt_heap_segment_punch(const tt_heap_segment_t *segment, size_t offset, size_t bytes)
{
    const size_t page = tt_heap_page_bytes();
    const size_t first = tt_round_up(offset, page), end = (offset + bytes) / page * page;
    if (end <= first) {
        return;
    }
    give_pages(segment, first, end - first);
    int result;
    do {
        result = fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first,
                           (off_t)(end - first));
    } while (result < 0 && errno == EINTR);
    if (result < 0) {
        tt_log(TT_LOG_WARN, "the shared heap cannot give back %zu bytes: %s", end - first,
               strerror(errno));
    }
    tt_advise_huge(segment->base + first, end - first, MADV_NOHUGEPAGE);
}

tutti_status_t tt_heap_segment_map(int fd, size_t bytes, unsigned char **out)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return TT_FAIL(TUTTI_ERR_AUTH, "a peer sent a descriptor that is not a sealed memory file");
    }
    struct stat info;
    if (fstat(fd, &info) < 0 || info.st_size < 0 || (uint64_t)info.st_size != bytes) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "a peer announced %zu bytes of shared memory and sent %lld", bytes,
                       (long long)info.st_size);
    }
    /* not populated: that would make pages where the owner has none */
    return map(fd, bytes, out);
}
