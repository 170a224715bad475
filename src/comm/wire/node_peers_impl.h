/* The inside of tt_node_peers_t, shared by node_peers.c (state, waiting) and node_peers_join.c
 * (meeting). */
#ifndef TT_NODE_PEERS_IMPL_H
#define TT_NODE_PEERS_IMPL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "comm/wire/node_peers.h"
#include "comm/wire/quarantine.h"
#include "core/base/ref.h"

enum { TT_NODE_PEER_MAGIC = 0x4d545454, TT_NODE_PEER_VERSION = 4, TT_TOKEN_BYTES = 16 };

/* At a place of each rank's heap that its HELLO names. Written by its owner, but for the doorbell.
 */
typedef struct {
    uint32_t magic, version;
    int32_t rank, pid;
    uint8_t cpus[112]; /* affinity mask: the cores this rank may use */

    /* What the owner sleeps in: 1 a futex wait on this word, 2 a poll of its sockets, to which a
     * WAKE is sent. A rank that publishes something sets it to 0 and wakes. */
    _Alignas(128) _Atomic uint32_t doorbell;
} tt_node_peer_block_t;

typedef enum {
    TT_NODE_PEER_HELLO = 1,
    TT_NODE_PEER_SEGMENT,
    TT_NODE_PEER_BYE,
    TT_NODE_PEER_WAKE
} tt_node_peer_message_kind_t;

enum { TT_DOORBELL_FUTEX = 1, TT_DOORBELL_POLL };

/* What travels through the sockets, one datagram each; a SEGMENT carries a descriptor. */
typedef struct {
    uint32_t magic, kind;
    int32_t rank, segment; /* of a HELLO: how many segments follow */
    uint64_t bytes;
    tt_heap_address_t block; /* of a HELLO: where the sender's tt_node_peer_block_t lies */
    uint8_t token[TT_TOKEN_BYTES];
    uint8_t reserved[16];
} tt_node_peer_message_t;

_Static_assert(sizeof(tt_node_peer_message_t) == 64, "docs/formats/shm.md says 64");

typedef struct {
    uint8_t name[16];  /* of the abstract socket, as "tutti-" and 32 hex digits */
    uint8_t token[16]; /* proves that a peer has read the peer info */
} tt_node_peer_info_t;

_Static_assert(sizeof(tt_node_peer_info_t) == TT_NODE_PEER_INFO_BYTES, "a card is a card");

typedef struct {
    _Atomic int fd; /* -1: none; of the owner's thread, which closes it under `telling` */
    int pidfd;      /* of its process, kept until that has ended; -1: none, or it is this process */
    bool has_greeted, has_left;
    bool has_ended;   /* its process */
    bool is_refused;  /* it sent what is no message of ours */
    int calls;        /* how often it was connected to again while joining */
    _Atomic int told; /* of this rank's segments, how many it knows of; stored under `telling` */
    tt_node_peer_state_t state;
    int segments_due; /* announced by its HELLO */
    int segments_seen;
    tt_heap_address_t block_address;
    tt_node_peer_block_t *block;
    tt_heap_peer_t view;
    tt_node_peer_info_t info;
} tt_node_peer_t;

struct tt_node_peers {
    tt_ref_t ref;
    int rank, size;
    bool is_oversubscribed;
    int starved;             /* the rank whose segment cannot be mapped yet; -1: none */
    char starved_text[200];  /* why; "": this process has no descriptor left */
    const int *names;        /* borrowed; see tt_directory_t */
    pthread_mutex_t telling; /* over sending segments, and closing what they are sent through */
    tt_device_t *heap;
    tt_node_peer_block_t *block; /* mine */
    tt_node_peer_info_t info;    /* mine */
    int64_t checked_ns;
    struct pollfd *polls;       /* [size] sockets, [size] pidfds, and while joining a listener's */
    tt_node_peer_t *node_peers; /* [size]; the one at rank is not used */
    STAILQ_HEAD(, tt_quarantine) quarantines; /* the closed ones */
    int quarantine_count;
};

/* See tt_node_peers_is_gone(). */
static inline bool tt_node_peer_is_gone(const tt_node_peer_t *node_peer)
{
    return node_peer->has_ended || node_peer->state == TT_NODE_PEER_LEFT ||
           (node_peer->state == TT_NODE_PEER_DEAD && node_peer->pidfd < 0 &&
            !node_peer->is_refused);
}

/* Send one message, with a descriptor unless fd is -1; flags 0 or MSG_DONTWAIT. Returns 0, or
 * errno: EAGAIN where the socket is full (until its own deadline, see tt_unix_set_send_deadline()),
 * EPIPE and others where no rank is there. Leaves tutti_last_error() as it is: most messages may be
 * lost, and are sent while another failure is told. */
int tt_node_peers_send(int socket, const tt_node_peer_message_t *message, int fd, int flags);

/* Wake a local rank that sleeps in a poll. Does not block, and may be lost. */
void tt_node_peers_send_wake(const tt_node_peers_t *node_peers, int rank);

/* Handle what has come from one local rank. */
void tt_node_peers_receive(tt_node_peers_t *node_peers, int rank);

/* Greet: HELLO and the segments there are. Errors, which name both ranks: PEER (it is not there any
 * more), TIMEOUT. */
tutti_status_t tt_node_peers_greet(tt_node_peers_t *node_peers, int rank);

/* Tell a local rank of segments that are new, as many as its socket takes. */
void tt_node_peers_tell(tt_node_peers_t *node_peers, int rank);

/* What a rank is called in error texts. */
int tt_node_peers_name(const tt_node_peers_t *node_peers, int rank);

/* What the first 2 * size of the polls gave. */
void tt_node_peers_look_at_polls(tt_node_peers_t *node_peers);

/* Its process has ended: take what it sent before, then hang up. */
void tt_node_peers_end(tt_node_peers_t *node_peers, int rank);

/* This rank leaves: tell a local rank so, and hang up. */
void tt_node_peers_say_goodbye(tt_node_peers_t *node_peers, int rank);

/* Push a new segment to everyone; the heap's callback. */
void tt_node_peers_on_segment(void *user, int segment, int fd, size_t bytes);

#endif
