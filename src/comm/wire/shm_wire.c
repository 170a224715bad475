/* The shared-memory wire. A ring is made when the first byte is sent, so that a pair that never
 * talks costs nothing. Cost: one copy in and one copy out, both in cache. */
#include "comm/wire/shm_wire.h"

#include <string.h>

#include "comm/wire/ring.h"
#include "core/base/alloc.h"

const tt_wire_ops_t *const tt_wires[] = {
#define X(name) &tt_wire_##name,
#include "comm/wire/wires.def"
#undef X
    NULL,
};

typedef struct {
    tt_shm_pair_t at;
    tt_ring_t *out, *in;
} shm_wire_t;

static tutti_status_t open_out(shm_wire_t *wire)
{
    tt_device_t *heap = tt_node_peers_heap(wire->at.node_peers);
    wire->out = tt_device_alloc(heap, sizeof *wire->out, "ring");
    TT_TRY_ALLOC(wire->out);
    atomic_store_explicit(&wire->out->written, 0, memory_order_relaxed);
    atomic_store_explicit(&wire->out->read, 0, memory_order_relaxed);
    const tt_heap_address_t place = tt_heap_address(heap, wire->out, sizeof *wire->out);
    atomic_store_explicit(wire->at.outbox, place, memory_order_release);
    return TUTTI_OK;
}

static tutti_status_t send_shm(void *state, const tt_span_t *spans, int span_count, size_t *done)
{
    shm_wire_t *wire = state;
    if (wire->out == NULL) {
        TT_TRY(open_out(wire));
    }
    *done = tt_ring_write_spans(wire->out, spans, span_count);
    if (*done > 0) {
        tt_node_peers_wake(wire->at.node_peers, wire->at.peer);
    }
    return TUTTI_OK;
}

/* The peer's ring for us, if it has one; NULL while its segment is on its way. */
static tutti_status_t find_in(shm_wire_t *wire)
{
    const tt_heap_span_t span = {atomic_load_explicit(wire->at.inbox, memory_order_acquire),
                                 sizeof(tt_ring_t), _Alignof(tt_ring_t)};
    void *ring = NULL;
    if (span.place != 0) {
        TT_TRY(tt_node_peers_find(wire->at.node_peers, wire->at.peer, span, &ring));
    }
    wire->in = ring;
    return TUTTI_OK;
}

static tutti_status_t recv_shm(void *state, void *data, size_t bytes, size_t *done)
{
    shm_wire_t *wire = state;
    *done = 0;
    if (wire->in == NULL) {
        TT_TRY(find_in(wire));
    }
    if (wire->in != NULL) {
        *done = tt_ring_read(wire->in, data, bytes);
    }
    if (*done > 0) {
        tt_node_peers_wake(wire->at.node_peers, wire->at.peer);
    }
    return TUTTI_OK;
}

static void close_shm(void *state)
{
    shm_wire_t *wire = state;
    if (wire->at.quarantine != NULL) {
        tt_quarantine_add(wire->at.quarantine, wire->out, sizeof *wire->out);
    } else if (wire->out != NULL) {
        tt_heap_abandon(tt_node_peers_heap(wire->at.node_peers));
    }
    tt_node_peers_release(wire->at.node_peers);
    tt_free(wire);
}

tutti_status_t tt_wire_open_shm(const tt_shm_pair_t *pair, tt_wire_t *out)
{
    shm_wire_t *wire = tt_alloc(sizeof *wire, "shm wire");
    TT_TRY_ALLOC(wire);
    *wire = (shm_wire_t){.at = *pair};
    tt_node_peers_retain(pair->node_peers);
    *out = (tt_wire_t){&tt_wire_shm, wire};
    return TUTTI_OK;
}

const tt_wire_ops_t tt_wire_shm = {
    .name = "shm",
    .about = "ranks of one host, through a ring in the shared heap that stays in cache",
    .send = send_shm,
    .recv = recv_shm,
    .close = close_shm,
};
