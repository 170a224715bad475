/* Host-mates: the ranks of one host, each with its shared heap mapped by all the others.
 *
 * Two ranks are on the same host when one can hand the other a descriptor over an abstract Unix
 * socket (network namespaces count as hosts), and SO_PEERCRED shows the same user. The socket stays
 * open: new heap segments are pushed through it. When a process dies, the others see it within
 * milliseconds: by a pidfd, whatever children it leaves; where the system gives none, by the end
 * of its socket. docs/formats/shm.md has the bytes.
 *
 * An object belongs to one rank and is used by one thread at a time; several ranks may live in one
 * process, each with its own.
 */
#ifndef TT_MATES_H
#define TT_MATES_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/device/heap.h"

typedef struct tt_mates tt_mates_t;

/* How ranks find each other: a small card per rank, put once and got by the others. */
enum { TT_CARD_BYTES = 32 };

typedef struct {
    tutti_status_t (*put)(void *user, int rank, const void *card);
    /* Waits until the rank has put its card, at most until the deadline. */
    tutti_status_t (*get)(void *user, int rank, tt_deadline_t deadline, void *card);
    void *user;
    const int *ranks; /* what error texts call them; borrowed; NULL: by their numbers here */
} tt_directory_t;

typedef enum {
    TT_MATE_HERE,
    TT_MATE_LEFT, /* said goodbye */
    TT_MATE_DEAD, /* its process ended, or its socket closed, without a word */
} tt_mate_state_t;

/* Blocks until all ranks have joined. A world of one opens no socket.
 * Errors: TIMEOUT (names the missing ranks), UNSUPPORTED (a rank on another host), AUTH, IO. */
tutti_status_t tt_mates_join(int rank, int size, const tt_directory_t *directory,
                             tt_deadline_t deadline, tt_mates_t **out);
tt_mates_t *tt_mates_retain(tt_mates_t *mates);

/* The last one says goodbye to the others. */
void tt_mates_release(tt_mates_t *mates);

int tt_mates_rank(const tt_mates_t *mates);
int tt_mates_size(const tt_mates_t *mates);

/* This rank's heap; borrowed. */
tt_device_t *tt_mates_heap(tt_mates_t *mates);

/* The memory at a place of a rank's heap (one's own too), NULL while it is not mapped. */
void *tt_mates_at(const tt_mates_t *mates, int rank, tt_place_t place, size_t bytes);

/* More ranks than cores: spinning would keep the awaited rank from running. */
bool tt_mates_is_crowded(const tt_mates_t *mates);

/* Read what has come through the sockets: new segments, goodbyes, deaths. Does not block. */
void tt_mates_check(tt_mates_t *mates);

/* Whether all that has come could be taken in. Errors: IO (this process has no descriptor left for
 * a segment of a rank) and NOMEM (it has no room in its address space); both name the rank. The
 * segment waits until there is one. */
tutti_status_t tt_mates_status(const tt_mates_t *mates);
tt_mate_state_t tt_mates_state(const tt_mates_t *mates, int rank);
int64_t tt_mates_pid(const tt_mates_t *mates, int rank);

/* Wake a rank if it sleeps, after something it may wait for was published. It need not be called
 * while the rank's bell is 0. */
void tt_mates_wake(tt_mates_t *mates, int rank);
const _Atomic uint32_t *tt_mates_bell(const tt_mates_t *mates, int rank);

/* A wait: spins a few µs, then gives the core away, then sleeps until woken (10 ms at most, then
 * the sockets are checked). Call it again and again while what is awaited is not there. */
typedef struct {
    unsigned polls;
    bool is_armed;
    int64_t start_ns, armed_ns;
} tt_idle_t;

void tt_mates_idle(tt_mates_t *mates, tt_idle_t *idle, tt_deadline_t deadline);

/* For whoever also waits for descriptors: the same up to the sleep. True when it is time to sleep,
 * in a poll that includes tt_mates_polls(); mates then wake it through their sockets. */
bool tt_mates_idle_for_poll(tt_mates_t *mates, tt_idle_t *idle);

/* At most two for each rank. */
int tt_mates_polls(const tt_mates_t *mates, struct pollfd *polls);

/* More ranks than cores, as somebody who knows of other ranks on this machine found out. */
void tt_mates_set_crowded(tt_mates_t *mates, bool is_crowded);
void tt_mates_idle_end(tt_mates_t *mates, tt_idle_t *idle);

#endif
