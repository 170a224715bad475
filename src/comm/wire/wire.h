/* Wires: ordered bytes between two ranks, one wire for each pair and channel of a group. A wire
 * never blocks: it takes or gives what it can and says how much. Opening is each wire's own affair
 * (its header); what is opened is used through the table.
 *
 * Adding a wire: one file with a tt_wire_ops_t, one line in wires.def.
 */
#ifndef TT_WIRE_H
#define TT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

/* Some bytes to send. */
typedef struct {
    const void *data;
    size_t bytes;
} tt_span_t;

enum { TT_WIRE_SPANS_MAX = 4 };

typedef struct {
    const char *name, *about;

    /* Take bytes of the spans, in order; *done (out) says how many of all. What was not taken is
     * offered again by the next call, the same bytes first. A connection that breaks takes and
     * gives nothing more, and `probe` says so. Errors: AUTH, FORMAT, IO, NOMEM. */
    tutti_status_t (*send)(void *state, const tt_span_t *spans, int span_count, size_t *done);

    /* Give up to `bytes` of what the peer sent; *done (out) says how many. The memory beyond may
     * have been written too: the next call passes data + done. Errors: AUTH, FORMAT, IO. */
    tutti_status_t (*recv)(void *state, void *data, size_t bytes, size_t *done);

    /* Say why this side leaves (any number but 0); the last thing before close. Does not block, and
     * may be lost. NULL: this wire has no goaways (local ranks have their flag blocks). */
    void (*goaway)(void *state, uint64_t reason);

    /* The peer's goaway; 0 as long as there is none. NULL as goaway. */
    uint64_t (*peer_reason)(void *state);

    /* Whether nothing more can come: the peer has closed, and all that it sent has been given. NULL
     * as goaway. */
    bool (*has_ended)(void *state);

    /* A call has waited long: make sure that the peer's death would be noticed, by connecting to
     * it if need be. OK also when this process has no descriptor or memory for that: the next call
     * tries again. Errors: PEER (it is gone; the text says how that is known, without the
     * rank). NULL: death is noticed anyway. */
    tutti_status_t (*probe)(void *state);

    /* Frees the state. What the peer has not read yet may still be read by it (shm), or is lost
     * after a while (tcp). */
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

/* Of a wire that may be closed, or have no goaways: the peer's, or 0; and saying one. */
static inline uint64_t tt_wire_peer_reason(const tt_wire_t *wire)
{
    return wire->ops != NULL && wire->ops->peer_reason != NULL ? wire->ops->peer_reason(wire->state)
                                                               : 0;
}

static inline void tt_wire_goaway(const tt_wire_t *wire, uint64_t reason)
{
    if (wire->ops != NULL && wire->ops->goaway != NULL) {
        wire->ops->goaway(wire->state, reason);
    }
}

static inline void tt_wire_close(tt_wire_t *wire)
{
    if (wire->ops != NULL) {
        wire->ops->close(wire->state);
        *wire = (tt_wire_t){0};
    }
}

#endif
