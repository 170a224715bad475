/* Wires: ordered bytes between two ranks, one wire for each pair of a group. A wire never blocks:
 * it takes or gives what it can and says how much. Opening is each wire's own affair (its header);
 * what is opened is used through the table.
 *
 * Adding a wire: one file with a tt_wire_ops_t, one line in wires.def.
 */
#ifndef TT_WIRE_H
#define TT_WIRE_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct {
    const char *name, *about;

    /* Take up to `bytes`; *done (out) says how many. Errors: PEER, IO, NOMEM. */
    tutti_status_t (*send)(void *state, const void *data, size_t bytes, size_t *done);

    /* Give up to `bytes` of what the peer sent; *done (out) says how many. Errors: PEER, IO. */
    tutti_status_t (*recv)(void *state, void *data, size_t bytes, size_t *done);

    /* Frees the state. What the peer has not read yet may still be read by it (shm), or is lost. */
    void (*close)(void *state);
} tt_wire_ops_t;

typedef struct {
    const tt_wire_ops_t *ops;
    void *state;
} tt_wire_t;

/* Every wire there is; the end is NULL. */
extern const tt_wire_ops_t *const tt_wires[];

#define X(name) extern const tt_wire_ops_t tt_wire_##name;
#include "comm/wire/wires.def"
#undef X

/* A wire from a rank to itself. */
tutti_status_t tt_wire_open_self(tt_wire_t *out);

static inline void tt_wire_close(tt_wire_t *wire)
{
    if (wire->ops != NULL) {
        wire->ops->close(wire->state);
        *wire = (tt_wire_t){0};
    }
}

#endif
