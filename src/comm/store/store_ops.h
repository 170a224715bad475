/* The contract of a store. A new kind of store is one file with such a table and one line in
 * stores.def; tests/conform/store_conform_test.c then walks it.
 */
#ifndef TT_STORE_OPS_H
#define TT_STORE_OPS_H

#include <sys/types.h>

#include "comm/net/address.h"
#include "comm/net/channel.h"
#include "comm/store/store_message.h"
#include "core/base/clock.h"
#include "core/base/fail.h"
#include "core/base/ref.h"

typedef struct tt_store_ops {
    const char *name, *about;
    size_t state_bytes; /* the core allocates the state, zeroed, and frees it after close */

    /* Perform one request, which has been checked against the limits, atomically. GET and WAIT
     * wait until all their keys exist, at most until the deadline (never TT_NEVER); TIMEOUT then
     * names the missing keys. Called from any thread, also while other calls wait. The reply's
     * values are owned by the caller after success, empty after a failure. */
    tutti_status_t (*perform)(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply);

    /* Make calls under way and later ones return ABORTED, soon. Any thread; does not wait. */
    void (*abort)(void *state);

    /* End. No call is under way. May wait for threads of the store's own. */
    void (*close)(void *state);
} tt_store_ops_t;

struct tutti_store {
    tt_ref_t ref;
    pid_t owner; /* a forked child has neither its threads nor its connections */
    const tt_store_ops_t *ops;
    void *state;
    _Atomic int64_t timeout_ms;

    /* Of a store with connections, and of views of one; else 0, "" and NULL. */
    int port;                            /* that it listens on or is connected to */
    char address[TT_ADDRESS_TEXT_BYTES]; /* tt_store_local_address() */
    const tt_credentials_t *credentials; /* borrowed from the state */
};

/* A handle with a zeroed state. When filling the state fails, the caller frees both with
 * tt_store_discard(). */
tutti_status_t tt_store_create(const tt_store_ops_t *ops, tutti_store_t **out);
void tt_store_discard(tutti_store_t *store);

/* Shortens the timeout of requests to timeout_ms; returns the timeout before, for
 * tutti_store_set_timeout() afterwards. For a caller with a deadline and a view of its own. */
int64_t tt_store_bound(tutti_store_t *store, int64_t timeout_ms);

/* A client's last will: when the client's connection ends, however it ends, the server appends the
 * value to the key; a later will of the same handle takes its place. The connection serves nothing
 * else, and no call that times out closes it: neither another call of the handle, nor this one,
 * whose will may then come into force later. One thread at a time leaves wills through a handle.
 * Errors: UNSUPPORTED (no tcp client), ARG (more than 1 KiB), TIMEOUT, and those of a connection.
 */
tutti_status_t tt_store_will(tutti_store_t *store, tutti_bytes_t key, tutti_bytes_t value);

/* Every kind, from stores.def. */
#define X(name) extern const tt_store_ops_t tt_store_##name##_ops;
#include "comm/store/stores.def"
#undef X

extern const tt_store_ops_t *const tt_store_kinds[];
extern const size_t tt_store_kind_count;

#endif
