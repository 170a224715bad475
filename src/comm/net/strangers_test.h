/* For tests: a thousand strangers at a socket, tcp or Unix. A thread keeps so many connections; one
 * that is closed is made again. Header only, so that it is no part of the library.
 *
 *     tt_strangers_t strangers = {.kind = TT_STRANGERS_IDLE, .type = SOCK_STREAM, …};
 *     tt_strangers_start(&strangers);
 *     … what must go on …
 *     tt_strangers_stop(&strangers);
 */
#ifndef TT_STRANGERS_TEST_H
#define TT_STRANGERS_TEST_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/base/testing.h"

enum { TT_STRANGERS = 1000 };

typedef enum {
    TT_STRANGERS_IDLE,  /* say nothing */
    TT_STRANGERS_DRIP,  /* a byte a second, of what could be a handshake */
    TT_STRANGERS_NOISE, /* random bytes */
    TT_STRANGERS_AGAIN, /* hang up, and connect again, as fast as they can */
    TT_STRANGERS_KINDS
} tt_strangers_kind_t;

typedef struct {
    tt_strangers_kind_t kind;
    int type; /* SOCK_STREAM, SOCK_SEQPACKET */
    struct sockaddr_storage where;
    socklen_t bytes;
    pthread_t thread;
    _Atomic bool is_over;
    _Atomic int connected; /* connections made so far */
    int fds[TT_STRANGERS];
    int64_t next_ns[TT_STRANGERS]; /* when it drips next */
    unsigned char said[TT_STRANGERS];
} tt_strangers_t;

static inline const char *tt_strangers_name(tt_strangers_kind_t kind)
{
    static const char *const names[] = {"idle", "dripping", "noisy", "connecting again"};
    return names[kind];
}

static inline void tt_stranger_connect(tt_strangers_t *all, int i)
{
    const int fd = socket(all->where.ss_family, all->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)&all->where, all->bytes) != 0 &&
        errno != EINPROGRESS) {
        close(fd);
        return;
    }
    all->fds[i] = fd;
    all->said[i] = 0;
    all->next_ns[i] = tt_clock_ns();
    all->connected++;
}

static inline void tt_stranger_hang_up(tt_strangers_t *all, int i)
{
    close(all->fds[i]);
    all->fds[i] = -1;
}

/* Whether it is still there. */
static inline bool tt_stranger_say(tt_strangers_t *all, int i, tt_rng_t rng)
{
    static const unsigned char hello[] = {0x16, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3};
    unsigned char noise[300];
    char back[64];
    const int fd = all->fds[i];
    if (all->kind == TT_STRANGERS_AGAIN) {
        return false;
    }
    if (all->kind == TT_STRANGERS_DRIP && tt_clock_ns() >= all->next_ns[i]) {
        all->next_ns[i] += TT_NS_PER_S;
        (void)!send(fd, &hello[all->said[i]++ % sizeof hello], 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (all->kind == TT_STRANGERS_NOISE && all->said[i]++ == 0) {
        for (size_t at = 0; at < sizeof noise; at++) {
            noise[at] = (unsigned char)tt_rng_u32(rng, (uint64_t)all->connected * 300 + at);
        }
        (void)!send(fd, noise, 1 + noise[0], MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    const ssize_t got = recv(fd, back, sizeof back, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == ENOTCONN));
}

static inline void *tt_strangers_run(void *user)
{
    tt_strangers_t *all = user;
    const tt_rng_t rng = tt_rng_stream(7, 7, 7, 7, 7);
    for (int i = 0; !all->is_over; i = (i + 1) % TT_STRANGERS) {
        if (all->fds[i] < 0) {
            tt_stranger_connect(all, i);
        } else if (!tt_stranger_say(all, i, rng)) {
            tt_stranger_hang_up(all, i);
        }
    }
    return NULL;
}

/* False, with a word why, where a process may not open so many files. */
static inline bool tt_strangers_may_come(void)
{
    struct rlimit limit;
    const rlim_t files = 2 * TT_STRANGERS + 1024;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < files && limit.rlim_max >= files) {
        limit.rlim_cur = files;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < files) {
        print_message("skipped: a process may open %llu files, this test wants %llu\n",
                      (unsigned long long)limit.rlim_cur, (unsigned long long)files);
    }
    return limit.rlim_cur >= files;
}

/* Returns when they crowd the listener: as many as its queue takes, or a moment later. */
static inline void tt_strangers_start(tt_strangers_t *all)
{
    for (int i = 0; i < TT_STRANGERS; i++) {
        all->fds[i] = -1;
    }
    all->connected = 0;
    all->is_over = false;
    TT_ASSERT(pthread_create(&all->thread, NULL, tt_strangers_run, all) == 0);
    const tt_deadline_t deadline = tt_deadline_in_ms(300);
    while (all->connected < TT_STRANGERS && !tt_deadline_is_past(deadline)) {
        sched_yield();
    }
}

static inline void tt_strangers_stop(tt_strangers_t *all)
{
    all->is_over = true;
    pthread_join(all->thread, NULL);
    for (int i = 0; i < TT_STRANGERS; i++) {
        if (all->fds[i] >= 0) {
            close(all->fds[i]);
        }
    }
}

#endif
