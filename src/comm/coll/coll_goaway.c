/* Telling ranks of other hosts why this one leaves a group: ranks of this host see it in the flag
 * block. */
#include "comm/coll/coll.h"
#include "comm/coll/coll_fail.h"
#include "comm/p2p/p2p.h"

/* For a rank with which no message was exchanged, and which may want to receive one. */
static void say_goaway_to_p2p(tt_coll_t *coll, int rank, uint64_t reason)
{
    tt_wire_t wire = {0};
    if ((coll->p2p == NULL || !tt_p2p_has_wire(coll->p2p, rank)) &&
        tt_coll_open_wire(coll, rank, TT_LANE_P2P, &wire) >= 0) {
        wire.ops->goaway(wire.state, reason);
        tt_wire_close(&wire);
    }
}

/* Ranks of other hosts learn why from their connections; also those that have none yet, when they
 * make one to see what is the matter. */
void tt_coll_say_goaway(tt_coll_t *coll, uint64_t reason)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (coll->node_peer_ranks[rank] >= 0) {
            continue;
        }
        if (tt_coll_open_link(coll, rank) >= 0) {
            const tt_wire_t *wire = &coll->links.all[rank].endpoint.wire;
            wire->ops->goaway(wire->state, reason);
        }
        say_goaway_to_p2p(coll, rank, reason);
    }
    if (coll->p2p != NULL) {
        tt_p2p_say_goaway(coll->p2p, reason);
    }
}
