/* Which descriptors are ours alone: a bit each, in a table as large as Linux' default limit of
 * descriptors (fs.nr_open; its pages cost nothing until they are used). The lock is held from
 * before a descriptor is made until its bit is set, and by fork(), so that no child gets one
 * unseen.
 *
 * Cost: nothing beside the system calls; a fork takes two more for each socket.
 * Source: pthread_atfork(3).
 */
#include "comm/net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/log.h"

enum { DESCRIPTORS_MAX = 1 << 20, WORD_BITS = 64 };

static struct {
    pthread_mutex_t mutex;
    pthread_once_t once;
    uint64_t words[DESCRIPTORS_MAX / WORD_BITS];
    int end;        /* of the words that may hold a bit */
    unsigned forks; /* so far */
} ours = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static void before_fork(void)
{
    pthread_mutex_lock(&ours.mutex);
    ours.forks++;
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&ours.mutex);
}

/* Its number stays taken: objects of the parent's that the child still holds may close it. */
static void take_away(int fd, int null)
{
    if (null < 0 || dup3(null, fd, O_CLOEXEC) != fd) {
        close(fd);
    }
}

/* Between fork and exec: system calls only. */
static void after_fork_in_child(void)
{
    const int null = ours.end > 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    for (int i = 0; i < ours.end; i++) {
        for (; ours.words[i] != 0; ours.words[i] &= ours.words[i] - 1) {
            take_away(i * WORD_BITS + __builtin_ctzll(ours.words[i]), null);
        }
    }
    if (null >= 0) {
        close(null);
    }
    ours.end = 0;
    pthread_mutex_unlock(&ours.mutex);
}

static void watch_forks(void)
{
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        tt_log(TT_LOG_WARN, "no memory to watch for forks: children that live on will hide that "
                            "this process has died");
    }
}

/* Under the mutex. */
static int note(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS_MAX) {
        const int word = fd / WORD_BITS;
        ours.words[word] |= UINT64_C(1) << fd % WORD_BITS;
        ours.end = word < ours.end ? ours.end : word + 1;
    }
    return fd;
}

static void lock(void)
{
    pthread_once(&ours.once, watch_forks);
    pthread_mutex_lock(&ours.mutex);
}

/* Keeps errno. */
static int unlock(int fd)
{
    const int code = errno;
    pthread_mutex_unlock(&ours.mutex);
    errno = code;
    return fd;
}

int tt_socket_open(int domain, int type)
{
    lock();
    return unlock(note(socket(domain, type | SOCK_CLOEXEC, 0)));
}

int tt_socket_accept(int listener, int flags)
{
    lock();
    return unlock(note(accept4(listener, NULL, NULL, flags | SOCK_CLOEXEC)));
}

/* A file system may not answer: nobody who forks waits for it. A file that was opened while
 * somebody forked may be a child's, too, and is opened once more. */
int tt_socket_open_file(const char *path, int flags, unsigned mode)
{
    for (;;) {
        lock();
        const unsigned forks = ours.forks;
        unlock(-1);
        const int fd = open(path, flags | O_CLOEXEC, mode);
        lock();
        if (fd < 0 || forks == ours.forks) {
            return unlock(note(fd));
        }
        unlock(-1);
        close(fd);
    }
}

bool tt_socket_open_pipe(int ends[2])
{
    lock();
    bool is_open = pipe2(ends, O_CLOEXEC) == 0;
    for (int i = 0; i < 2 && is_open; i++) {
        ends[i] = tt_file_lift(ends[i]);
    }
    if (is_open && (ends[0] < 0 || ends[1] < 0)) {
        close(ends[0] < 0 ? ends[1] : ends[0]);
        is_open = false;
    }
    for (int i = 0; i < 2 && is_open; i++) {
        note(ends[i]);
    }
    unlock(-1);
    return is_open;
}

/* Under the mutex. */
static void forget(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS_MAX) {
        ours.words[fd / WORD_BITS] &= ~(UINT64_C(1) << fd % WORD_BITS);
    }
}

void tt_socket_close(int fd)
{
    lock();
    forget(fd);
    close(fd);
    unlock(fd);
}

void tt_socket_close_file(int fd)
{
    lock();
    forget(fd);
    unlock(fd);
    close(fd);
}

bool tt_socket_has_ended(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool tt_is_out_of_descriptors(int code)
{
    return code == EMFILE || code == ENFILE;
}

tutti_status_t tt_fail_out_of_descriptors(const char *what)
{
    struct rlimit limit = {0};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return TT_FAIL(TUTTI_ERR_IO,
                   "%s: this process is out of file descriptors (limit %llu); raise it with "
                   "ulimit -n",
                   what, (unsigned long long)limit.rlim_cur);
}
