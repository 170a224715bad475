/* Host-local ranks: the ranks of one host, each with its shared heap mapped by all the others.
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
#ifndef TT_NODE_PEERS_H
#define TT_NODE_PEERS_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/device/heap.h"

typedef struct tt_node_peers tt_node_peers_t;

/* How ranks find each other: small infos of each rank, put and got by the others. */
typedef enum {
    TT_INFO_PEER,      /* which host a rank is on (peers.h) */
    TT_INFO_LISTEN,    /* the same with where it listens, for ranks of other hosts */
    TT_INFO_NODE_PEER, /* its socket, for ranks of the same host */
    TT_INFO_REFUSAL,   /* why it does not join; there is none as long as all is well */
    TT_INFO_KINDS
} tt_info_kind_t;

enum { TT_PEER_INFO_BYTES = 128, TT_NODE_PEER_INFO_BYTES = 32 };

static inline size_t tt_info_bytes(tt_info_kind_t kind)
{
    return kind == TT_INFO_NODE_PEER ? TT_NODE_PEER_INFO_BYTES : TT_PEER_INFO_BYTES;
}

typedef struct {
    tutti_status_t (*put)(void *user, tt_info_kind_t kind, int rank, const void *info);
    /* Waits until the rank has put its info, at most until the deadline. */
    tutti_status_t (*get)(void *user, tt_info_kind_t kind, int rank, tt_deadline_t deadline,
                          void *info);
    void *user;
    const int
        *ranks;      /* what they are called here and in error texts; borrowed; NULL: as they are */
    bool *has_shown; /* [TT_INFO_KINDS] what this rank has put, once each; NULL: nobody asks */
} tt_directory_t;

static inline tutti_status_t tt_directory_put(const tt_directory_t *directory, tt_info_kind_t kind,
                                              int rank, const void *info)
{
    if (directory->has_shown != NULL) {
        directory->has_shown[kind] = true;
    }
    return directory->put(directory->user, kind, rank, info);
}

/* A refusal. It also stands where a peer info would. */
typedef struct {
    uint32_t magic;
    int32_t status;
    char text[TT_PEER_INFO_BYTES - 8];
} tt_refusal_t;

enum { TT_REFUSAL_MAGIC = 0x52545454 };

_Static_assert(sizeof(tt_refusal_t) == TT_PEER_INFO_BYTES, "it stands where a peer info would");

/* PEER and its text, if it is one. */
tutti_status_t tt_refusal_check(const tt_refusal_t *refusal, int rank);

typedef enum {
    TT_NODE_PEER_HERE,
    TT_NODE_PEER_LEFT, /* said goodbye */
    TT_NODE_PEER_DEAD, /* without a word its process ended, or its socket was closed, by either */
} tt_node_peer_state_t;

/* Blocks until all ranks have joined. A world of one opens no socket.
 * Errors: TIMEOUT (names the missing ranks), UNSUPPORTED (a rank on another host), AUTH, IO. */
tutti_status_t tt_node_peers_join(int rank, int size, const tt_directory_t *directory,
                                  tt_deadline_t deadline, tt_node_peers_t **out);
tt_node_peers_t *tt_node_peers_retain(tt_node_peers_t *node_peers);

/* The last one says goodbye to the others. */
void tt_node_peers_release(tt_node_peers_t *node_peers);

int tt_node_peers_size(const tt_node_peers_t *node_peers);

/* This rank's heap; borrowed. */
tt_device_t *tt_node_peers_heap(tt_node_peers_t *node_peers);

/* The memory at a place of a rank's heap (one's own too); NULL: it is not mapped, or there is none.
 */
void *tt_node_peers_at(const tt_node_peers_t *node_peers, int rank, tt_heap_address_t place,
                       size_t bytes);

/* Memory that a rank has announced, as its user needs it. */
typedef struct {
    tt_heap_address_t place; /* 0 is no place: an error */
    size_t bytes, alignment; /* a power of 2 */
} tt_heap_span_t;

/* The same, checked: nothing that another process writes is taken for a good address. OK; PENDING:
 * the segment has not come yet. Errors: FORMAT (names the rank: there is no such place, or it is
 * not aligned), and those of tt_node_peers_status(). */
tutti_status_t tt_node_peers_find(tt_node_peers_t *node_peers, int rank, tt_heap_span_t span,
                                  void **out);

/* More ranks than cores: spinning would keep the awaited rank from running. */
bool tt_node_peers_is_oversubscribed(const tt_node_peers_t *node_peers);

/* Read what has come through the sockets: new segments, goodbyes, deaths. Does not block. */
void tt_node_peers_check(tt_node_peers_t *node_peers);

/* Whether all that has come could be taken in. Errors: IO (this process has no descriptor left for
 * a segment of a rank) and NOMEM (it has no room in its address space); both name the rank. The
 * segment waits until there is one. */
tutti_status_t tt_node_peers_status(const tt_node_peers_t *node_peers);
tt_node_peer_state_t tt_node_peers_state(const tt_node_peers_t *node_peers, int rank);

/* It touches no memory of this host any more: it has left, or its process has ended. A rank that
 * was hung up on is DEAD to all calls, but its process may live, and be inside somebody's memory.
 * Without a pidfd the end of its socket counts. */
bool tt_node_peers_is_gone(const tt_node_peers_t *node_peers, int rank);

/* How a rank is DEAD: "died", or "is cut off: …" while its process lives. */
const char *tt_node_peers_how(const tt_node_peers_t *node_peers, int rank);
int64_t tt_node_peers_pid(const tt_node_peers_t *node_peers, int rank);

/* Wake a rank if it sleeps, after something it may wait for was published. It need not be called
 * while the rank's doorbell is 0. */
void tt_node_peers_wake(tt_node_peers_t *node_peers, int rank);
const _Atomic uint32_t *tt_node_peers_doorbell(const tt_node_peers_t *node_peers, int rank);

/* A wait: spins a few µs, then gives the core away, then sleeps until woken (10 ms at most, then
 * the sockets are checked). Call it again and again while what is awaited is not there. */
typedef struct {
    unsigned polls;
    bool is_armed;
    int64_t start_ns, armed_ns;
} tt_idle_t;

void tt_node_peers_idle(tt_node_peers_t *node_peers, tt_idle_t *idle, tt_deadline_t deadline);

/* For a caller that also waits for descriptors: the same up to the sleep. True when it is time to
 * sleep, in a poll that includes tt_node_peers_polls(); local ranks then wake it through their
 * sockets. */
bool tt_node_peers_idle_for_poll(tt_node_peers_t *node_peers, tt_idle_t *idle);

/* Two for each rank; poll() passes over those with descriptor -1. */
int tt_node_peers_polls(const tt_node_peers_t *node_peers, struct pollfd *polls);

/* More ranks than cores, as a caller that knows of other ranks on this machine found out. */
void tt_node_peers_set_oversubscribed(tt_node_peers_t *node_peers, bool is_oversubscribed);
void tt_node_peers_idle_end(tt_node_peers_t *node_peers, tt_idle_t *idle);

#endif
