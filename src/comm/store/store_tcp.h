/* Stores over tcp: what both ends say first, and how they are opened with a key of one's own. */
#ifndef TT_STORE_TCP_H
#define TT_STORE_TCP_H

#include <tutti/store.h>

#include "comm/net/address.h"
#include "comm/net/channel.h"
#include "comm/net/lookup.h"

enum { TT_STORE_HELLO_BYTES = 16 };

/* docs/formats/store.md. */
static const char tt_store_hello[TT_STORE_HELLO_BYTES] = "tutti store 1\n";

/* As tutti_store_tcp_listen() and tutti_store_tcp_connect(), which take the credentials out of the
 * settings; these are retained. A store belongs to a job, not to an epoch: its epoch is 0. */
tutti_status_t tt_store_tcp_listen(const char *host, int port, tt_credentials_t *credentials,
                                   tutti_store_t **out);
tutti_status_t tt_store_tcp_connect(const char *host, int port, tt_credentials_t *credentials,
                                    int64_t timeout_ms, tutti_store_t **out);

/* Where a store listens: the name that was given, for texts and for the protection that both ends
 * derive from it, and the addresses that it stands for. */
typedef struct {
    const char *host; /* borrowed */
    int port;
    tt_addresses_t addresses;
} tt_store_endpoint_t;

/* Errors: ARG (no such host, with what the resolver said), TIMEOUT, IO. */
tutti_status_t tt_store_endpoint_find(const char *host, int port, tt_deadline_t deadline,
                                      tt_store_endpoint_t *out);

/* tt_store_tcp_connect() to addresses that are known already. */
tutti_status_t tt_store_tcp_connect_to(const tt_store_endpoint_t *endpoint,
                                       tt_credentials_t *credentials, tt_deadline_t deadline,
                                       tutti_store_t **out);

/* The address of this process as the other end of a tcp store sees it: of a client's connection, or
 * the one that a server listens on. A view has its base's; UNSUPPORTED for other kinds. */
tutti_status_t tt_store_local_address(const tutti_store_t *store, char out[TT_ADDRESS_TEXT_BYTES]);

/* What its connections prove, borrowed from the store; NULL for stores without connections. */
const tt_credentials_t *tt_store_credentials(const tutti_store_t *store);

#endif
