/* Files. Writing goes to "<path>.tmp-<pid>-<n>" in the same folder; the end is fsync, rename, and
 * fsync of the folder, so that after a crash `path` is the old file or the whole new one. Of a link
 * to a file the target is written so, and the link stays.
 *
 * Source: the rules for durable renames in Pillai et al., "All File Systems Are Not Created
 * Equal", OSDI 2014.
 */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/folder.h"
#include "core/base/link_target.h"

enum { NAMES_TRIED = 64, IO_BYTES_MAX = 1 << 30, FLUSH_BYTES = 16 << 20 };

/* Of what goes past the page cache: addresses, places and lengths are multiples of the first, which
 * is that of pages and of all usual disks' sectors. */
enum { DIRECT_ALIGN = 4096, DIRECT_BYTES = 1 << 20 };

static tutti_status_t check_regular(const char *path, int fd, uint64_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot look at it", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return TT_FAIL(TUTTI_ERR_IO, "%s: not a regular file", path);
    }
    *bytes = (uint64_t)info.st_size;
    return TUTTI_OK;
}

tutti_status_t tt_file_open(const char *path, tt_file_t *out)
{
    /* O_NONBLOCK: opening a pipe by mistake is an error, not a wait. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot open it", path);
    }
    tt_file_t file = {.fd = fd};
    tutti_status_t status = check_regular(path, fd, &file.bytes);
    if (status >= 0) {
        file.path = tt_strdup(path, "path");
        status = file.path == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    *out = file;
    return TUTTI_OK;
}

size_t tt_file_text(const char *path, char *text, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = fd < 0 ? 0 : 1;
    while (got > 0 && length < bytes - 1) {
        got = read(fd, text + length, bytes - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    text[length] = 0;
    if (fd >= 0) {
        close(fd);
    }
    return length;
}

tutti_status_t tt_file_open_memory(const char *name, const void *data, size_t bytes, tt_file_t *out)
{
    char *path = tt_strdup(name, "path");
    TT_TRY_ALLOC(path);
    *out = (tt_file_t){.fd = -1, .memory = data, .path = path, .bytes = bytes};
    return TUTTI_OK;
}

void tt_file_close(tt_file_t *file)
{
    if (file->fd >= 0 && file->path != NULL) {
        close(file->fd);
    }
    tt_free(file->path);
    *file = (tt_file_t){.fd = -1};
}

static tutti_status_t fail_cut(const tt_file_t *file, uint64_t offset, size_t bytes, uint64_t found)
{
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "%s: truncated: expected %zu bytes at offset %llu, the file ends at %llu",
                   file->path, bytes, (unsigned long long)offset, (unsigned long long)found);
}

static tutti_status_t read_disk(const tt_file_t *file, uint64_t offset, void *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const size_t left = bytes - done;
        const ssize_t n = pread(file->fd, (char *)to + done,
                                left < IO_BYTES_MAX ? left : IO_BYTES_MAX, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: reading at offset %llu failed", file->path,
                                 (unsigned long long)(offset + done));
        }
        if (n == 0) {
            return fail_cut(file, offset, bytes, offset + done);
        }
        done += (size_t)n;
    }
    return TUTTI_OK;
}

tutti_status_t tt_file_read_at(const tt_file_t *file, uint64_t offset, void *to, size_t bytes)
{
    if (offset > file->bytes || bytes > file->bytes - offset) {
        return fail_cut(file, offset, bytes, file->bytes);
    }
    if (file->fd >= 0) {
        return read_disk(file, offset, to, bytes);
    }
    if (bytes > 0) {
        memcpy(to, file->memory + offset, bytes);
    }
    return TUTTI_OK;
}

/* Creates a file that did not exist, under a name derived from path. */
static int create_beside(const char *path, char *name, size_t name_bytes)
{
    for (int n = 0; n < NAMES_TRIED; n++) {
        snprintf(name, name_bytes, "%s.tmp-%ld-%d", path, (long)getpid(), n);
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

/* A new file takes the place of what has its name: a device, a pipe, or a link to one, such as
 * /dev/stdout, would be gone, for everybody on the machine. */
static tutti_status_t check_replaced(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 || S_ISREG(info.st_mode)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_IO, "%s: not a regular file: what is there is not replaced",
                         path);
}

tutti_status_t tt_new_file_begin(const char *path, tt_new_file_t *out)
{
    char target[PATH_MAX];
    TT_TRY(check_replaced(path));
    TT_TRY(tt_link_target(path, target));
    const size_t bytes = strlen(target) + 48;
    tt_new_file_t file = {.path = tt_strdup(target, "path"), .temporary = tt_alloc(bytes, "path")};
    tutti_status_t status = TUTTI_ERR_NOMEM;
    if (file.path != NULL && file.temporary != NULL) {
        file.fd = create_beside(target, file.temporary, bytes);
        status = file.fd >= 0
                     ? TUTTI_OK
                     : TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot create %s", path, file.temporary);
    }
    if (status < 0) {
        tt_free(file.path);
        tt_free(file.temporary);
        return status;
    }
    *out = file;
    return TUTTI_OK;
}

tutti_status_t tt_new_file_begin_direct(const char *path, tt_new_file_t *out)
{
    tt_new_file_t file;
    TT_TRY(tt_new_file_begin(path, &file));
    const int flags = fcntl(file.fd, F_GETFL);
    file.is_direct = flags >= 0 && fcntl(file.fd, F_SETFL, flags | O_DIRECT) == 0;
    if (file.is_direct) {
        file.room = tt_alloc_raw(DIRECT_BYTES + DIRECT_ALIGN, "file");
        if (file.room == NULL) {
            return tt_new_file_end(&file, TUTTI_ERR_NOMEM);
        }
        file.block = file.room + (DIRECT_ALIGN - (uintptr_t)file.room % DIRECT_ALIGN);
    }
    *out = file;
    return TUTTI_OK;
}

/* From now on through the cache. */
static tutti_status_t leave_direct(tt_new_file_t *file)
{
    const int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot write it through the cache",
                             file->temporary);
    }
    file->is_direct = false;
    return TUTTI_OK;
}

/* Writing above the process's limit (ulimit -f) sends a signal that ends the program. It goes to
 * the thread that writes: held back around the write and then taken away, it leaves an error. */
typedef struct {
    sigset_t above_limit, mask;
    bool was_pending;
} held_signal_t;

static void hold_signal(held_signal_t *held)
{
    sigset_t pending;
    sigemptyset(&pending);
    (void)sigpending(&pending);
    held->was_pending = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&held->above_limit);
    sigaddset(&held->above_limit, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &held->above_limit, &held->mask);
}

static void drop_signal(const held_signal_t *held)
{
    const int error = errno;
    const struct timespec now = {0};
    if (!held->was_pending) {
        (void)sigtimedwait(&held->above_limit, NULL, &now);
    }
    (void)pthread_sigmask(SIG_SETMASK, &held->mask, NULL);
    errno = error;
}

static ssize_t write_within_limit(int fd, const void *data, size_t bytes)
{
    held_signal_t held;
    hold_signal(&held);
    const ssize_t n = write(fd, data, bytes);
    drop_signal(&held);
    return n;
}

int tt_file_lift(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    const int lifted = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), code = errno;
    close(fd);
    errno = code;
    return lifted;
}

int tt_file_resize(int fd, size_t bytes)
{
    held_signal_t held;
    hold_signal(&held);
    const int result = ftruncate(fd, (off_t)bytes);
    drop_signal(&held);
    return result;
}

int tt_file_reserve(int fd, uint64_t from, uint64_t to)
{
    held_signal_t held;
    int result;
    hold_signal(&held);
    do {
        result = fallocate(fd, 0, (off_t)from, (off_t)(to - from));
    } while (result != 0 && errno == EINTR);
    drop_signal(&held);
    return result;
}

/* The disk writes what it has while the next is copied to the system: else all would wait for it at
 * the end. Where it cannot, it does then. */
static void begin_flush(tt_new_file_t *file)
{
    if (file->written - file->begun >= FLUSH_BYTES) {
        (void)sync_file_range(file->fd, (off64_t)file->begun,
                              (off64_t)(file->written - file->begun), SYNC_FILE_RANGE_WRITE);
        file->begun = file->written;
    }
}

/* As many bytes as the system takes, perhaps none. */
static tutti_status_t write_some(tt_new_file_t *file, const char *data, size_t bytes, size_t *done)
{
    const ssize_t n =
        write_within_limit(file->fd, data, bytes < IO_BYTES_MAX ? bytes : IO_BYTES_MAX);
    *done = n > 0 ? (size_t)n : 0;
    if (n < 0 && errno == EINTR) {
        return TUTTI_OK;
    }
    if (file->is_direct && (n < 0 ? errno == EINVAL : *done % DIRECT_ALIGN != 0)) {
        return leave_direct(file); /* the next one is not where it must be */
    }
    if (n < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: writing %zu bytes failed", file->temporary, bytes);
    }
    return n > 0 ? TUTTI_OK
                 : TT_FAIL(TUTTI_ERR_IO, "%s: of %zu bytes the system has taken none",
                           file->temporary, bytes);
}

static tutti_status_t write_plain(tt_new_file_t *file, const char *data, size_t bytes)
{
    for (size_t at = 0, done; at < bytes; at += done) {
        TT_TRY(write_some(file, data + at, bytes - at, &done));
    }
    file->written += bytes;
    if (!file->is_direct) {
        begin_flush(file);
    }
    return TUTTI_OK;
}

/* Through the aligned block, whenever that is full. */
static tutti_status_t write_blocks(tt_new_file_t *file, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const size_t room = DIRECT_BYTES - file->filled, left = bytes - at;
        const size_t part = left < room ? left : room;
        memcpy(file->block + file->filled, data + at, part);
        file->filled += part;
        at += part;
        if (file->filled == DIRECT_BYTES) {
            file->filled = 0;
            TT_TRY(write_plain(file, file->block, DIRECT_BYTES));
        }
    }
    return TUTTI_OK;
}

/* What is left in the block: whole sectors, and a rest that cannot go past the cache. */
static tutti_status_t write_rest(tt_new_file_t *file)
{
    const size_t whole = file->filled / DIRECT_ALIGN * DIRECT_ALIGN;
    TT_TRY(write_plain(file, file->block, whole));
    TT_TRY(file->is_direct && whole < file->filled ? leave_direct(file) : TUTTI_OK);
    return write_plain(file, file->block + whole, file->filled - whole);
}

tutti_status_t tt_new_file_write(tt_new_file_t *file, const void *data, size_t bytes)
{
    return bytes == 0            ? TUTTI_OK
           : file->block != NULL ? write_blocks(file, data, bytes)
                                 : write_plain(file, data, bytes);
}

/* So that the rename itself survives a crash. */
static tutti_status_t flush_folder(char *path)
{
    char *slash = strrchr(path, '/');
    const char *folder = slash == NULL ? "." : slash == path ? "/" : path;
    if (slash != NULL && slash != path) {
        *slash = 0;
    }
    return tt_folder_flush(folder);
}

tutti_status_t tt_new_file_end(tt_new_file_t *file, tutti_status_t status)
{
    if (status >= 0 && file->filled > 0) {
        status = write_rest(file);
    }
    if (status >= 0 && fsync(file->fd) != 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot flush it to the disk", file->temporary);
    }
    if (close(file->fd) != 0 && status >= 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot close it", file->temporary);
    }
    if (status >= 0 && rename(file->temporary, file->path) != 0) {
        status =
            TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot replace it by %s", file->path, file->temporary);
    }
    if (status < 0) {
        (void)unlink(file->temporary);
    } else {
        status = flush_folder(file->path);
    }
    tt_free(file->path);
    tt_free(file->temporary);
    tt_free(file->room);
    *file = (tt_new_file_t){.fd = -1};
    return status;
}
