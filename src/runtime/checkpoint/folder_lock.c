/* Locks of folders, by fcntl. FOLDER/.lock has one line:
 *
 *     run 3f2a, … attempt 0 at 127.0.0.1:29500 of a, host a, process 812, since …
 *
 * They are POSIX's locks, of a process, and not those of an open file description (flock,
 * F_OFD_SETLK): a child made by fork() inherits those with its descriptors, and would hold the
 * folder after its parent's death, while POSIX's are the process's alone. Their price: whoever
 * closes any descriptor of the file drops the process's lock. So a process opens each .lock once,
 * and keeps it open: a table, by device and inode, says what it has. In a forked child the table
 * says what its parent had, which the child closes, and locks for itself.
 */
#include "runtime/checkpoint/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "comm/net/address.h"
#include "comm/rendezvous/rendezvous.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/file.h"
#include "core/base/folder.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "runtime/checkpoint/step_folders.h"

enum {
    HELD_MAX = 64,
    LINE_BYTES = 1024,
    JOB_BYTES = 768,
    HOST_BYTES = 64,
    PAUSE_NS_MAX = 50000000,
    TURNS = 4 /* in a group's timeout */
};

/* A lock of this process; forks: when it was taken. */
typedef struct {
    bool is_held;
    int fd;
    unsigned forks;
    struct stat file;
} held_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static held_t held[HELD_MAX];

/* What one try needs, and finds. */
typedef struct {
    const char *folder;
    tt_path_t path;
    bool is_root, is_saving;
    int64_t wait_ms;        /* for others, at most … */
    tt_deadline_t deadline; /* … that is until then */
    bool is_busy;           /* another process has it … */
    pid_t holder;           /* … perhaps this one; */
    char line[LINE_BYTES];  /* what it says of itself */
    int error;              /* why there is no lock and there will be none; 0: none */
} try_t;

/* ---- what this process has ------------------------------------------------------------------- */

/* Locks of files that are gone, and a parent's, are none. */
static void sweep(void)
{
    for (int i = 0; i < HELD_MAX; i++) {
        struct stat now;
        if (held[i].is_held &&
            (held[i].forks != tt_forks || fstat(held[i].fd, &now) != 0 || now.st_nlink == 0)) {
            close(held[i].fd);
            held[i].is_held = false;
        }
    }
}

static bool has(const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0) {
        return false;
    }
    for (int i = 0; i < HELD_MAX; i++) {
        if (held[i].is_held && held[i].file.st_dev == file.st_dev &&
            held[i].file.st_ino == file.st_ino) {
            return true;
        }
    }
    return false;
}

static bool keep(int fd)
{
    for (int i = 0; i < HELD_MAX; i++) {
        if (!held[i].is_held && fstat(fd, &held[i].file) == 0) {
            held[i].is_held = true;
            held[i].fd = fd;
            held[i].forks = tt_forks;
            return true;
        }
    }
    return false;
}

/* ---- who has it ------------------------------------------------------------------------------ */

/* The same text in all processes that a launcher has started together; "" without one. A loopback
 * address is one of this host, and the folder may be on others, too. */
static void name_job(char job[JOB_BYTES])
{
    tt_rendezvous_t r;
    char host[HOST_BYTES] = "";
    job[0] = 0;
    if (tt_rendezvous_from_environment(-1, -1, &r) >= 0 && r.size > 1) {
        const bool is_local = tt_address_is_loopback(r.host);
        (void)gethostname(host, sizeof host - 1);
        snprintf(job, JOB_BYTES, "run %.100s, %s attempt %.20s at %s:%d%s%s",
                 tt_config_text(TT_CONFIG_RUN_ID), r.job[0] == 0 ? r.launcher : r.job,
                 tt_config_text(TT_CONFIG_RESTART_COUNT), r.host, r.port, is_local ? " of " : "",
                 is_local ? host : "");
    }
}

/* The lock holds without the line: it is for those that wait. */
static void sign(int fd)
{
    char job[JOB_BYTES], host[HOST_BYTES] = "", since[32], line[LINE_BYTES];
    struct tm utc;
    const time_t now = time(NULL);
    name_job(job);
    (void)gethostname(host, sizeof host - 1);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    const int bytes = snprintf(line, sizeof line, "%s, host %s, process %ld, since %s\n",
                               job[0] == 0 ? "no launcher" : job, host, (long)getpid(), since);
    if (tt_file_resize(fd, 0) != 0 || pwrite(fd, line, (size_t)bytes, 0) != bytes) {
        (void)tt_file_resize(fd, 0);
    }
}

static bool is_own_job(const try_t *try)
{
    char job[JOB_BYTES];
    name_job(job);
    const size_t bytes = strlen(job);
    return bytes > 0 && strncmp(try->line, job, bytes) == 0 &&
           strncmp(try->line + bytes, ", host ", 7) == 0;
}

static void find_holder(int fd, try_t *try)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    try->holder = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
    const ssize_t bytes = pread(fd, try->line, sizeof try->line - 1, 0);
    try->line[bytes > 0 ? bytes : 0] = 0;
    try->line[strcspn(try->line, "\n")] = 0;
}

static tutti_status_t fail_busy(const try_t *try)
{
    char holder[48] = "";
    if (try->holder > 0) {
        snprintf(holder, sizeof holder, "; process %ld holds it", (long)try->holder);
    }
    return TT_FAIL(TUTTI_ERR_STATE,
                   "checkpoint: folder %s: another job has used it for all of %" PRId64
                   " ms (TUTTI_CHECKPOINT_WAIT_MS): %s%s; wait for its end, or take another folder",
                   try->folder, try->wait_ms, try->line[0] == 0 ? "it has not said who" : try->line,
                   holder);
}

/* ---- taking it ------------------------------------------------------------------------------- */

/* 0, or errno: EAGAIN where another process has one that does not go with it. */
static int set_lock(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    const int code = fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno;
    return code == EACCES ? EAGAIN : code;
}

static bool is_there(const char *path, int fd)
{
    struct stat named, open;
    return stat(path, &named) == 0 && fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

/* As set_lock(). Where the exclusive one can be had, nobody else has any. */
static int take(int fd, try_t *try)
{
    int code = set_lock(fd, try->is_root ? F_WRLCK : F_RDLCK);
    if (code == 0 && try->is_root) {
        sign(fd);
        code = set_lock(fd, F_RDLCK);
    } else if (code == EAGAIN) {
        find_holder(fd, try);
        code = try->is_root && is_own_job(try) ? set_lock(fd, F_RDLCK) : EAGAIN;
    }
    return code;
}

/* Without a wait. */
static tutti_status_t try_lock(try_t *try)
{
    try->is_busy = false;
    sweep();
    if (has(try->path)) {
        return TUTTI_OK;
    }
    /* In a folder of strangers a link may lead to any file, which would be written over. */
    const int fd =
        tt_file_lift(open(try->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666));
    if (fd < 0) {
        return try->is_saving ? TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot open it", try->path)
                              : TUTTI_OK;
    }
    const int code = take(fd, try);
    /* One that was removed meanwhile locks nobody out. */
    try->is_busy = code == EAGAIN || (code == 0 && !is_there(try->path, fd));
    /* Of a file system without locks; kept as if it were one, to say so once. */
    try->error = try->is_busy ? 0 : code;
    if (try->is_busy) {
        close(fd);
    } else if (!keep(fd)) {
        close(fd);
        try->error = EMFILE;
    }
    return TUTTI_OK;
}

static void warn(const try_t *try)
{
    if (try->error != 0) {
        tt_log(TT_LOG_WARN,
               "checkpoint: %s: cannot lock it: %s; whether another job uses the folder is not "
               "checked",
               try->path, strerror(try->error));
    }
}

/* The wait begins. */
static tutti_status_t begin(try_t *try)
{
    TT_TRY(tt_config_int(TT_CONFIG_CHECKPOINT_WAIT_MS, 0, INT32_MAX, &try->wait_ms));
    try->deadline = tt_deadline_in_ms(try->wait_ms);
    return try->is_saving ? tt_folder_make(try->folder) : TUTTI_OK;
}

/* Until the turn is over, at most; *again: another process has it still. */
static tutti_status_t lock(try_t *try, tt_deadline_t turn, bool *again)
{
    const tt_deadline_t until = turn < try->deadline ? turn : try->deadline;
    tt_forks_count();
    for (int64_t ns = TT_NS_PER_MS;; ns = 2 * ns < PAUSE_NS_MAX ? 2 * ns : PAUSE_NS_MAX) {
        pthread_mutex_lock(&mutex);
        const tutti_status_t status = try_lock(try);
        pthread_mutex_unlock(&mutex);
        if (status < 0 || !try->is_busy) {
            warn(try);
            return status;
        }
        if (tt_deadline_is_past(until)) {
            *again = !tt_deadline_is_past(try->deadline);
            return *again ? TUTTI_OK : fail_busy(try);
        }
        tt_clock_sleep(ns, until);
    }
}

/* Those that take it, while the others wait: these are told before they give the group up. */
static tutti_status_t lock_together(try_t *try, tutti_group_t *group, bool takes)
{
    const int64_t turn_ms = group == NULL ? INT64_MAX : group->timeout_ms / TURNS + 1;
    tutti_status_t status = takes ? begin(try) : TUTTI_OK;
    for (bool again = true; again;) {
        again = false;
        if (takes && status >= 0) {
            status = lock(try, tt_deadline_in_ms(turn_ms), &again);
        }
        TT_TRY(tt_group_agree_again(group, status, &again));
    }
    return TUTTI_OK;
}

tutti_status_t tt_folder_lock(const char *folder, tutti_group_t *group, bool is_saving)
{
    return tt_folder_lock_each(folder, group, group == NULL || tutti_group_rank(group) == 0,
                               is_saving);
}

tutti_status_t tt_folder_lock_each(const char *folder, tutti_group_t *group, bool is_first,
                                   bool is_saving)
{
    try_t try = {.folder = folder, .is_root = is_first, .is_saving = is_saving};
    tt_steps_file(folder, ".lock", try.path);
    TT_TRY(lock_together(&try, group, is_first));
    return lock_together(&try, group, !is_first);
}
