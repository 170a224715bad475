/* Peers: the other ranks of a job as one rank reaches them. Host-local ranks share memory
 * (node_peers.h); ranks elsewhere are reached over tcp, by connections that are made when first
 * needed.
 *
 * The ranks meet once, through a directory (the store): each puts a peer info that says which host
 * it is on (a hash of boot id and network namespace), its Unix socket, and the address and port it
 * listens on; the address is that of the route to the store. That two ranks are local ranks is then
 * proved by passing descriptors (node_peers_join.c). TUTTI_WIRES=tcp makes every rank a host of its
 * own.
 *
 * Connections carry data one way: a rank that sends to another connects to it, proves the job's key
 * (net/channel.h), and says in a first message which epoch, channel, rank and stream it is. A
 * listener of this process takes them in whenever someone waits. Against the data's direction, a
 * connection carries one goaway: why the other side left. It is kept for those who connect later:
 * 32 to 64 bytes for each channel that was left, as long as the object lives.
 *
 * An object belongs to one rank and is used by one thread at a time; several ranks may live in one
 * process, each with its own.
 */
#ifndef TT_PEERS_H
#define TT_PEERS_H

#include "comm/wire/node_peers.h"
#include "comm/wire/wire.h"

typedef struct tt_peers tt_peers_t;

typedef struct {
    int rank, size;
    tt_directory_t directory;
    uint32_t epoch;
    /* Where to listen for ranks of other hosts: the local address of the route to the store, as
     * text; NULL: 127.0.0.1. */
    const char *address;
    /* Whose job's key the connections prove; NULL: the settings'. Borrowed during the call. */
    const struct tt_credentials *credentials;
    const char *wires; /* "auto", or a comma-separated list of names in wires.def */
    const char *host;  /* for tests: ranks with other names are on other hosts; NULL: this one */
} tt_peers_options_t;

/* Blocks until all ranks have shown their peer infos and all local ranks have joined. A rank that
 * cannot join shows why, so that the others need not wait for it. Errors: TIMEOUT (names the
 * missing ranks), PEER (a rank did not join, and why), UNSUPPORTED (a rank elsewhere and no tcp
 * allowed), AUTH, IO. */
tutti_status_t tt_peers_join(const tt_peers_options_t *options, tt_deadline_t deadline,
                             tt_peers_t **out);

/* A network that a simulator makes up: every rank is a host of its own. */
typedef struct {
    void *user;
    tutti_status_t (*open_wire)(void *user, int rank, uint64_t channel, tt_wire_t *out);
    void (*idle)(void *user, tt_deadline_t deadline);
} tt_peers_simulation_t;

/* `simulation` is borrowed as long as the peers live. Errors: NOMEM. */
tutti_status_t tt_peers_simulate(int rank, int size, const tt_peers_simulation_t *simulation,
                                 tt_peers_t **out);
tt_peers_t *tt_peers_retain(tt_peers_t *peers);
void tt_peers_release(tt_peers_t *peers);

/* This rank's local ranks, itself included; borrowed. Their ranks count the ranks of this host. */
tt_node_peers_t *tt_peers_node_peers(const tt_peers_t *peers);

/* The number of a rank in local ranks; -1: it is on another host. */
int tt_peers_node_peer(const tt_peers_t *peers, int rank);

/* This rank's number among those of its machine, and how many they are; several hosts, such as
 * network namespaces, may be on one machine. */
void tt_peers_locate(const tt_peers_t *peers, int *number, int *count);

/* Hosts are numbered by their lowest rank. */
int tt_peers_host(const tt_peers_t *peers, int rank);

/* A tcp wire to a rank elsewhere. `channel` names its user (a group and what it is for); both sides
 * say the same. Does not block: the connection is made when something is sent, and awaited when
 * something is received. */
tutti_status_t tt_peers_open_wire(tt_peers_t *peers, int rank, uint64_t channel, tt_wire_t *out);

/* Take in connections and move handshakes forward. Does not block; cheap when nothing happens. */
void tt_peers_progress(tt_peers_t *peers);

/* A wait, as tt_node_peers_idle; when wires to other hosts are open, it also wakes for them. */
void tt_peers_idle(tt_peers_t *peers, tt_idle_t *idle, tt_deadline_t deadline);
void tt_peers_idle_end(tt_peers_t *peers, tt_idle_t *idle);

#endif
