/* The wire between two ranks of a host: a ring in each direction, in the sender's shared heap. */
#ifndef TT_SHM_WIRE_H
#define TT_SHM_WIRE_H

#include <stdatomic.h>

#include "comm/wire/mates.h"
#include "comm/wire/wire.h"

/* `outbox` lies in memory that the peer maps, `inbox` is the peer's outbox for us: each holds the
 * place of the ring its owner sends through, 0 until the first send. Both stay valid as long as the
 * wire. `peer` is a rank of `mates`. */
tutti_status_t tt_wire_open_shm(tt_mates_t *mates, int peer, _Atomic tt_place_t *outbox,
                                _Atomic tt_place_t *inbox, tt_wire_t *out);

#endif
