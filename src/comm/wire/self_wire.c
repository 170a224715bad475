/* The wire to oneself: a ring in private memory. */
#include "comm/wire/ring.h"
#include "comm/wire/wire.h"
#include "core/base/alloc.h"

const tt_wire_ops_t *const tt_wires[] = {
#define X(name) &tt_wire_##name,
#include "comm/wire/wires.def"
#undef X
    NULL,
};

typedef struct {
    unsigned char *block;
    tt_ring_t *ring; /* inside the block, at a multiple of its alignment */
} self_wire_t;

static tutti_status_t send_self(void *state, const tt_span_t *spans, int span_count, size_t *done)
{
    self_wire_t *wire = state;
    *done = tt_ring_write_spans(wire->ring, spans, span_count);
    return TUTTI_OK;
}

static tutti_status_t recv_self(void *state, void *data, size_t bytes, size_t *done)
{
    self_wire_t *wire = state;
    *done = tt_ring_read(wire->ring, data, bytes);
    return TUTTI_OK;
}

static void close_self(void *state)
{
    self_wire_t *wire = state;
    tt_free(wire->block);
    tt_free(wire);
}

tutti_status_t tt_wire_open_self(tt_wire_t *out)
{
    const size_t alignment = _Alignof(tt_ring_t);
    self_wire_t *wire = tt_alloc(sizeof *wire, "self wire");
    TT_TRY_ALLOC(wire);
    wire->block = tt_alloc(sizeof(tt_ring_t) + alignment, "self wire");
    if (wire->block == NULL) {
        tt_free(wire);
        return TUTTI_ERR_NOMEM;
    }
    const size_t shift = alignment - (uintptr_t)wire->block % alignment;
    wire->ring = (tt_ring_t *)(void *)(wire->block + shift);
    *out = (tt_wire_t){&tt_wire_self, wire};
    return TUTTI_OK;
}

const tt_wire_ops_t tt_wire_self = {
    .name = "self",
    .about = "a rank to itself, through private memory",
    .send = send_self,
    .recv = recv_self,
    .close = close_self,
};
