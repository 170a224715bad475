/* The inside of tt_peers_t, shared by peers.c (who is where), peers_tcp.c (connections that come
 * in), tcp_wire.c (the wires, above them) and peers_wait.c (waiting, above both). */
#ifndef TT_PEERS_IMPL_H
#define TT_PEERS_IMPL_H

#include <poll.h>

#include "comm/net/admission.h"
#include "comm/wire/peers.h"
#include "core/base/ref.h"

enum {
    TT_PEER_INFO_MAGIC = 0x43545454,
    TT_OPENING_MAGIC = 0x4f545454,
    TT_GOAWAY_MAGIC = 0x42545454,
    TT_STREAMS_MAX = 4,
    TT_STRIPE_BYTES = 256 << 10, /* so much goes through one stream, then the next one's turn */
    TT_HALF_OPEN_MAX = 64, /* of each lot of an admission; one more for each rank and stream */
    TT_PARKED_MAX = 4096,  /* proved connections that no wire has asked for */
    TT_CALLS_PER_LOOK = 16 /* of tt_peers_progress(), for each look at the listener */
};

typedef struct {
    uint32_t magic;
    uint16_t family, port; /* where it listens; family 4, 6, or 0: nowhere */
    uint64_t host;         /* a hash of boot id and network namespace */
    uint64_t machine;      /* of the boot id alone */
    uint64_t token;        /* random; rank 0's names the world */
    uint8_t address[16];
    uint8_t cpus[72]; /* affinity mask: the cores this rank may use */
    uint16_t door;    /* where its host refuses: a port that is taken, and not listened at */
    uint16_t reserved[3];
} tt_peer_info_t;

_Static_assert(sizeof(tt_peer_info_t) == TT_PEER_INFO_BYTES, "docs/formats/frame.md says 128");

/* The first message of a connection. */
typedef struct {
    uint32_t magic, epoch;
    int32_t from, to;
    uint32_t stream, stream_count;
    uint64_t channel, world;
    uint8_t reserved[8];
} tt_opening_t;

_Static_assert(sizeof(tt_opening_t) == 48, "docs/formats/frame.md says 48");

/* The only message against a connection's direction. */
typedef struct {
    uint32_t magic, reserved;
    uint64_t reason;
} tt_goaway_t;

_Static_assert(sizeof(tt_opening_t) <= TT_FIRST_BYTES_MAX, "it is a first message");

/* A connection that has come in and said what it is for, until a wire takes it. */
typedef struct tt_parked {
    struct tt_parked *next;
    tt_channel_t *channel;
    tt_opening_t opening;
} tt_parked_t;

typedef struct tt_tcp_wire {
    struct tt_tcp_wire *next;
    tt_peers_t *peers; /* not retained: a wire does not outlive its group */
    int rank;
    int streams, in_streams; /* this side's, and the peer's */
    uint64_t channel;

    tt_channel_t *out[TT_STREAMS_MAX], *in[TT_STREAMS_MAX];
    size_t opened[TT_STREAMS_MAX]; /* bytes of the opening that have gone */
    uint64_t sent, received;       /* bytes in all; they say which stream is next */
    tt_goaway_t word;              /* the peer's */
    size_t word_done;
    uint64_t said;              /* this side's reason */
    bool is_out_cut, is_in_cut; /* the connection broke */
    bool is_silent;             /* because there was no answer */
    int64_t broken_ns, retry_ns;
    int64_t unheard_ns;                /* since then nothing came from its host; 0: it does */
    int64_t knocked_ns;                /* since then it was asked at its door; 0: it was not */
    int knock;                         /* what asks; -1: none */
    int64_t dialed_ns[TT_STREAMS_MAX]; /* when it was tried last */
    int redials;
    int retries;                  /* of handshakes that the peer hung up on */
    unsigned asked_in, asked_out; /* the turn in which this direction was last waited for */
} tt_tcp_wire_t;

typedef struct {
    uint64_t channel, reason; /* reason 0: a free place */
} tt_said_t;

struct tt_peers {
    tt_ref_t ref;
    int rank, size;
    uint32_t epoch;
    tt_node_peers_t *node_peers;
    tt_peer_info_t *infos;                   /* [size] */
    int *hosts;                              /* [size] numbered by their lowest rank */
    int *node_peer_of;                       /* [size] -1: elsewhere */
    int *peer_of;                            /* [local ranks] the other way round */
    const tt_peers_simulation_t *simulation; /* NULL in life */

    /* Of tcp; the admission is not open when all ranks are local ranks. */
    tt_admission_t admission;
    int door;      /* bound, and no more: to connect to it shows that this host is there */
    char name[16]; /* of this rank, for the log */
    int streams;
    tt_credentials_t *credentials;
    tt_parked_t *parked; /* the newest first */
    tt_parked_t *spare;  /* for the next one that comes in; NULL: there is no memory for it yet */
    int parked_count;
    int sweep_at;    /* so many parked ones are looked through for those that have ended */
    bool has_warned; /* that this process has too little for a connection */
    tt_tcp_wire_t *wires;
    tt_said_t *said; /* to those who connect when the wire is closed; a hash table by channel */
    size_t said_count, said_capacity;
    unsigned turn, calls; /* waits so far; looks at the listener */
    unsigned wakeups;     /* sleeps that something has ended before their time */
    struct pollfd *polls;
    int poll_capacity;
};

/* peers_tcp.c */
/* A port of a rank's host. */
socklen_t tt_peer_address(const tt_peer_info_t *info, uint16_t port, tt_inet_t *out);
tutti_status_t tt_peers_listen(tt_peers_t *peers, const tt_peers_options_t *options,
                               tt_peer_info_t *info);
tutti_status_t tt_peers_reserve_polls(tt_peers_t *peers);
void tt_peers_stop_listening(tt_peers_t *peers);
tt_channel_t *tt_peers_take(tt_peers_t *peers, int from, uint64_t channel, uint32_t stream,
                            tt_opening_t *opening);
void tt_peers_forget(tt_peers_t *peers, int from, uint64_t channel);
void tt_peers_remember_goaway(tt_peers_t *peers, uint64_t channel, uint64_t reason);
void tt_send_goaway(tt_channel_t *channel, uint64_t reason);

/* tcp_wire.c */
int tt_tcp_wire_polls(const tt_tcp_wire_t *wire, unsigned turn, struct pollfd *polls);

#endif
