/* The wires of a group: to oneself, to a rank of this host, to a rank elsewhere; one for each lane.
 */
#include "comm/exec/coll_exec.h"
#include "comm/wire/shm_wire.h"

/* What tells the wires of two groups and lanes between the same processes apart. */
static uint64_t channel_of(const tt_coll_t *coll, int lane)
{
    return (coll->options.group ^ (uint64_t)coll->options.epoch << 32) * TT_LANES + (uint64_t)lane;
}

tutti_status_t tt_coll_open_wire(tt_coll_t *coll, int rank, int lane, tt_wire_t *wire)
{
    if (rank == coll->rank) {
        return tt_wire_open_self(wire);
    }
    if (coll->node_peer_ranks[rank] < 0) {
        return tt_peers_open_wire(coll->peers, coll->peer_ranks[rank], channel_of(coll, lane),
                                  wire);
    }
    const int size = coll->size;
    const tt_shm_pair_t pair = {.node_peers = coll->node_peers,
                                .peer = coll->node_peer_ranks[rank],
                                .outbox = &coll->block->outbox[lane * size + rank],
                                .inbox = &coll->blocks[rank]->outbox[lane * size + coll->rank],
                                .quarantine = coll->lease.quarantine};
    return tt_wire_open_shm(&pair, wire);
}

tutti_status_t tt_coll_open_link(tt_coll_t *coll, int rank)
{
    tt_link_t *link = &coll->links.all[rank];
    link->endpoint.header_bytes = sizeof(tt_frame_t);
    return tt_endpoint_is_open(&link->endpoint)
               ? TUTTI_OK
               : tt_coll_open_wire(coll, rank, TT_LANE_CALLS, &link->endpoint.wire);
}
