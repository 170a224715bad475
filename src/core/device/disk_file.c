/* A file without a name. Which way in? O_TMPFILE with O_DIRECT, then without O_DIRECT, then a name
 * that is taken away at once. A file system may take O_DIRECT and refuse the first transfer
 * (EINVAL): the file then goes through the page cache from there on.
 */
#include "core/device/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/folder.h"

enum { PATH_BYTES = 4096, ZERO_BYTES = 1 << 20 };

static int open_named(const char *folder)
{
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/.tutti-offload-XXXXXX", folder);
    if (n < 0 || n >= PATH_BYTES) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0 && unlink(path) != 0) {
        const int code = errno;
        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

static int open_any(const char *folder, bool *is_direct)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    *is_direct = fd >= 0;
    if (fd < 0 && errno == EINVAL) {
        fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        fd = open_named(folder);
    }
    return tt_file_lift(fd);
}

tutti_status_t tt_disk_file_open(const char *folder, tt_disk_file_t *out)
{
    TT_TRY(tt_folder_make(folder));
    char *copy = tt_strdup(folder, "offload");
    TT_TRY_ALLOC(copy);
    bool is_direct;
    const int fd = open_any(folder, &is_direct);
    if (fd < 0) {
        tt_free(copy);
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "offload: cannot make a file in %s", folder);
    }
    *out = (tt_disk_file_t){.fd = fd, .folder = copy, .was_direct = is_direct};
    atomic_init(&out->is_direct, is_direct);
    return TUTTI_OK;
}

void tt_disk_file_close(tt_disk_file_t *file)
{
    close(file->fd);
    tt_free(file->folder);
}

/* ---- transfers ------------------------------------------------------------------------------- */

typedef struct {
    tt_disk_file_t *file;
    bool is_writing;
    uint64_t at;
    char *data;
    size_t bytes;
} transfer_t;

static ssize_t transfer_some(const transfer_t *t)
{
    return t->is_writing ? pwrite(t->file->fd, t->data, t->bytes, (off_t)t->at)
                         : pread(t->file->fd, t->data, t->bytes, (off_t)t->at);
}

/* It was tried with O_DIRECT, or perhaps so: another try goes without. */
static bool leave_direct(tt_disk_file_t *file)
{
    const int flags = fcntl(file->fd, F_GETFL);
    const bool has_left = flags >= 0 && fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) == 0;
    if (has_left) {
        atomic_store(&file->is_direct, false);
    }
    return has_left;
}

/* `n`: what the last try gave, no whole block; -1: errno says why. */
static tutti_status_t fail_transfer(const transfer_t *t, ssize_t n)
{
    char what[128];
    snprintf(what, sizeof what, "offload: %s %zu bytes at offset %llu of the file in",
             t->is_writing ? "writing" : "reading", t->bytes, (unsigned long long)t->at);
    if (n < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s %s", what, t->file->folder);
    }
    return t->is_writing
               ? TT_FAIL(TUTTI_ERR_IO, "%s %s: the system has taken %zd of them, and no more", what,
                         t->file->folder, n)
               : TT_FAIL(TUTTI_ERR_IO, "%s %s: it ends there, at %llu bytes", what, t->file->folder,
                         (unsigned long long)t->at + (unsigned long long)n);
}

/* Where less comes than asked for, the rest begins at a block: else the next try would be refused.
 * Where no whole block comes, the next try goes on, or says why it cannot. */
static tutti_status_t transfer(transfer_t t)
{
    bool may_be_direct = t.file->was_direct; /* another thread may leave it at any time */
    bool has_stopped = false;
    while (t.bytes > 0) {
        const ssize_t n = transfer_some(&t);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EINVAL && may_be_direct && leave_direct(t.file)) {
            may_be_direct = false;
            continue;
        }
        const size_t got = n < 0 ? 0 : (size_t)n;
        const size_t done = got == t.bytes ? got : got / TT_DISK_BLOCK * TT_DISK_BLOCK;
        if (n < 0 || (done == 0 && has_stopped)) {
            return fail_transfer(&t, n);
        }
        has_stopped = done == 0;
        t.at += done;
        t.data += done;
        t.bytes -= done;
    }
    return TUTTI_OK;
}

tutti_status_t tt_disk_file_read(tt_disk_file_t *file, uint64_t at, void *to, size_t bytes)
{
    return transfer((transfer_t){file, false, at, to, bytes});
}

tutti_status_t tt_disk_file_write(tt_disk_file_t *file, uint64_t at, const void *from, size_t bytes)
{
    union {
        const void *borrowed;
        void *data;
    } source = {.borrowed = from};
    return transfer((transfer_t){file, true, at, source.data, bytes});
}

/* ---- room ------------------------------------------------------------------------------------ */

/* For a file system that cannot reserve. The C library would write a byte of each block in its
 * place, which O_DIRECT refuses. */
static tutti_status_t write_zeros(tt_disk_file_t *file, uint64_t at, uint64_t bytes)
{
    char *memory = tt_alloc(ZERO_BYTES + TT_DISK_BLOCK, "offload");
    TT_TRY_ALLOC(memory);
    const char *zeros =
        memory + (TT_DISK_BLOCK - (uintptr_t)memory % TT_DISK_BLOCK) % TT_DISK_BLOCK;
    tutti_status_t status = TUTTI_OK;
    for (uint64_t done = 0; done < bytes && status >= 0; done += ZERO_BYTES) {
        const uint64_t left = bytes - done;
        status = tt_disk_file_write(file, at + done, zeros,
                                    left < ZERO_BYTES ? (size_t)left : (size_t)ZERO_BYTES);
    }
    tt_free(memory);
    return status;
}

/* Of a size above the process's limit the signal would come with the first byte behind it. */
static tutti_status_t reserve(tt_disk_file_t *file, uint64_t bytes)
{
    const uint64_t end = file->bytes + bytes;
    int result = tt_file_reserve(file->fd, file->bytes, end);
    if (result != 0 && errno == EOPNOTSUPP) {
        result = tt_file_resize(file->fd, end);
        if (result == 0) {
            return write_zeros(file, file->bytes, bytes);
        }
    }
    return result == 0 ? TUTTI_OK
                       : TT_FAIL_ERRNO(TUTTI_ERR_IO,
                                       "offload: %s has no room for %llu bytes beside the %llu "
                                       "that are there",
                                       file->folder, (unsigned long long)bytes,
                                       (unsigned long long)file->bytes);
}

tutti_status_t tt_disk_file_grow(tt_disk_file_t *file, uint64_t bytes)
{
    const tutti_status_t status = reserve(file, bytes);
    if (status < 0) {
        (void)tt_file_resize(file->fd, file->bytes);
        return status;
    }
    file->bytes += bytes;
    return TUTTI_OK;
}

bool tt_disk_file_clear(tt_disk_file_t *file, uint64_t at, uint64_t bytes)
{
    return fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                     (off_t)bytes) == 0 &&
           tt_file_reserve(file->fd, at, at + bytes) == 0;
}
