/* The wire between two ranks of a host: a ring in each direction, in the sender's shared heap. A
 * rank has one to itself, too: a ring that is both. */
#ifndef TT_SHM_WIRE_H
#define TT_SHM_WIRE_H

#include <stdatomic.h>

#include "comm/wire/node_peers.h"
#include "comm/wire/quarantine.h"
#include "comm/wire/wire.h"

/* `outbox` lies in memory that the peer maps, `inbox` is the peer's outbox for us: each holds the
 * place of the ring its owner sends through, 0 until the first send. All stay valid as long as the
 * wire. The peer may look at the ring, and write its counter, after the wire has been closed here:
 * the ring goes to `quarantine`, which has room for it; NULL: it
 * stays until the heap closes. */
typedef struct {
    tt_node_peers_t *node_peers;
    int peer; /* of local ranks, this one included: then outbox and inbox are one */
    _Atomic tt_heap_address_t *outbox, *inbox;
    tt_quarantine_t *quarantine;
} tt_shm_pair_t;

tutti_status_t tt_wire_open_shm(const tt_shm_pair_t *pair, tt_wire_t *out);

#endif
