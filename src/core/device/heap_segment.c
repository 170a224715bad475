/* Segments: memfd_create, pages allocated at once, seals, map.
 *
 * Huge pages are advised before the pages are touched; where the kernel's shmem_enabled does not
 * allow them, nothing changes. MADV_POPULATE_WRITE (Linux 5.14) touches the pages without SIGBUS;
 * fallocate then finds them there, and on older kernels allocates them.
 */
#include "core/device/heap_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096 };

static tutti_status_t fill(const tt_heap_segment_t *segment)
{
    (void)madvise(segment->base, segment->bytes, MADV_HUGEPAGE);
    (void)madvise(segment->base, segment->bytes, MADV_POPULATE_WRITE);
    if (fallocate(segment->fd, 0, 0, (off_t)segment->bytes) < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot get %zu bytes of shared memory",
                             segment->bytes);
    }
    if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot seal a segment of the shared heap");
    }
    return TUTTI_OK;
}

static tutti_status_t map(int fd, size_t bytes, unsigned char **out)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot map %zu bytes of shared memory", bytes);
    }
    *out = base;
    return TUTTI_OK;
}

tutti_status_t tt_heap_segment_create(size_t bytes, tt_heap_segment_t *out)
{
    if (bytes > (UINT64_C(1) << 47)) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "cannot get %zu bytes of shared memory", bytes);
    }
    tt_heap_segment_t segment = {.bytes = (bytes + PAGE - 1) / PAGE * PAGE};
    segment.fd = memfd_create("tutti-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment.fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot make a memory file for the shared heap");
    }
    tutti_status_t status;
    if (tt_file_resize(segment.fd, segment.bytes) < 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "cannot get %zu bytes of shared memory", bytes);
        goto close_file;
    }
    TT_TRY_GOTO(status, map(segment.fd, segment.bytes, &segment.base), close_file);
    TT_TRY_GOTO(status, fill(&segment), unmap);
    *out = segment;
    return TUTTI_OK;
unmap:
    munmap(segment.base, segment.bytes);
close_file:
    close(segment.fd);
    return status;
}

void tt_heap_segment_release(tt_heap_segment_t *segment)
{
    munmap(segment->base, segment->bytes);
    close(segment->fd);
}

void tt_heap_segment_punch(const tt_heap_segment_t *segment, size_t offset, size_t bytes)
{
    const size_t first = (offset + PAGE - 1) / PAGE * PAGE;
    const size_t end = (offset + bytes) / PAGE * PAGE;
    if (end > first && fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 (off_t)first, (off_t)(end - first)) < 0) {
        tt_log(TT_LOG_WARN, "the shared heap cannot give back %zu bytes: %s", end - first,
               strerror(errno));
    }
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
    TT_TRY(map(fd, bytes, out));
    /* the pages exist; entering them now keeps faults out of the first collective */
    (void)madvise(*out, bytes, MADV_POPULATE_WRITE);
    return TUTTI_OK;
}
