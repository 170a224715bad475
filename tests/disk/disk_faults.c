/* System calls, some of which fail. */
#include "disk_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);
ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __real_pread(int fd, void *data, size_t bytes, off_t at);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __real_fcntl(int fd, int command, ...);
int __real_mkdir(const char *path, mode_t mode);
int __real_unlink(const char *path);
int __real_rmdir(const char *path);
DIR *__real_opendir(const char *path);
struct dirent *__real_readdir(DIR *folder);

int __wrap_open(const char *path, int flags, ...);
int __wrap_close(int fd);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_unlink(const char *path);
int __wrap_rmdir(const char *path);
DIR *__wrap_opendir(const char *path);
struct dirent *__wrap_readdir(DIR *folder);

static _Thread_local disk_plan_t plan;
static _Thread_local int64_t calls;
static _Thread_local const char *failed;
static _Atomic bool plain;

void disk_fail(const disk_plan_t *wanted)
{
    plan = *wanted;
    calls = 0;
    failed = NULL;
}

void disk_heal(void)
{
    plan = (disk_plan_t){0};
}

void disk_set_plain(bool is_plain)
{
    plain = is_plain;
}

const char *disk_failed(void)
{
    return failed;
}

/* ---- which calls fail ------------------------------------------------------------------------ */

static bool is_reading(const char *call)
{
    return strcmp(call, "open") == 0 || strcmp(call, "pread") == 0 || strcmp(call, "close") == 0 ||
           strcmp(call, "opendir") == 0 || strcmp(call, "readdir") == 0;
}

static bool fails_now(const char *call)
{
    char away[128];
    const bool is_once = plan.fault == DISK_ONCE || plan.fault == DISK_VANISHED;
    calls++;
    if (calls < plan.at || (calls > plan.at && is_once) ||
        (plan.fault == DISK_READ_ONLY && is_reading(call))) {
        return false;
    }
    failed = failed == NULL ? call : failed;
    if (plan.fault == DISK_VANISHED) {
        snprintf(away, sizeof away, "%s.away", plan.folder);
        (void)__real_rename(plan.folder, away);
        return false;
    }
    errno = plan.code;
    return true;
}

static bool fails(const char *call, const char *path)
{
    return plan.at > 0 && strncmp(path, plan.folder, strlen(plan.folder)) == 0 && fails_now(call);
}

static bool fails_of(const char *call, int fd)
{
    char link[64], path[512];
    const int code = errno;
    if (plan.at == 0) {
        return false;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    errno = code;
    return fails(call, path);
}

/* ---- calls ----------------------------------------------------------------------------------- */

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    const char *call = (flags & (O_CREAT | O_RDWR | O_WRONLY)) != 0 ? "open to write" : "open";
    return fails(call, path) ? -1 : __real_open(path, flags, mode);
}

/* Closed it is all the same, as Linux does. */
int __wrap_close(int fd)
{
    const bool fails_too = fails_of("close", fd);
    const int result = __real_close(fd);
    if (fails_too) {
        errno = plan.code;
    }
    return fails_too ? -1 : result;
}

/* Half of it is written before the disk fails. */
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    if (fails_of("write", fd)) {
        (void)!__real_write(fd, data, bytes / 2);
        errno = plan.code;
        return -1;
    }
    return __real_write(fd, data, bytes);
}

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at)
{
    return fails_of("pread", fd) ? -1 : __real_pread(fd, data, bytes, at);
}

int __wrap_fsync(int fd)
{
    return fails_of("fsync", fd) ? -1 : 0;
}

int __wrap_rename(const char *from, const char *to)
{
    return fails("rename", from) ? -1 : __real_rename(from, to);
}

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (plain) {
        errno = EINVAL;
        return -1;
    }
    return fails("renameat2", from) ? -1 : __real_renameat2(from_fd, from, to_fd, to, flags);
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (plain && command == F_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", path) ? -1 : __real_mkdir(path, mode);
}

int __wrap_unlink(const char *path)
{
    return fails("unlink", path) ? -1 : __real_unlink(path);
}

int __wrap_rmdir(const char *path)
{
    return fails("rmdir", path) ? -1 : __real_rmdir(path);
}

DIR *__wrap_opendir(const char *path)
{
    return fails("opendir", path) ? NULL : __real_opendir(path);
}

struct dirent *__wrap_readdir(DIR *folder)
{
    return fails_of("readdir", dirfd(folder)) ? NULL : __real_readdir(folder);
}
