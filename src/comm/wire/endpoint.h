/* An endpoint: framed messages over a wire. A message is a header of a fixed size and the bytes
 * that it announces. One message is under way in each direction; what the wire does not take or
 * give at once goes on with the next call.
 *
 *     tt_endpoint_recv_header     OK: the header is whole, look at it once
 *     tt_endpoint_recv_payload    OK: the message is whole, the next one may begin
 */
#ifndef TT_ENDPOINT_H
#define TT_ENDPOINT_H

#include "comm/wire/wire.h"

typedef struct {
    tt_wire_t wire;
    size_t header_bytes;
    size_t sent, received; /* of the message under way, its header included; 0: none is */
} tt_endpoint_t;

static inline bool tt_endpoint_is_open(const tt_endpoint_t *endpoint)
{
    return endpoint->wire.ops != NULL;
}

/* Whether the header of the message that is coming is whole. */
static inline bool tt_endpoint_has_header(const tt_endpoint_t *endpoint)
{
    return endpoint->received >= endpoint->header_bytes;
}

/* OK when header and payload have gone. PENDING: call again with the same. Errors: the wire's. */
tutti_status_t tt_endpoint_send(tt_endpoint_t *endpoint, const void *header, const void *payload,
                                size_t payload_bytes);

/* OK when the header is whole, as often as asked; else PENDING. Errors: the wire's. */
tutti_status_t tt_endpoint_recv_header(tt_endpoint_t *endpoint, void *header);

/* OK when the payload is whole; its header must be. Else PENDING: call again with the same. Errors:
 * the wire's. */
tutti_status_t tt_endpoint_recv_payload(tt_endpoint_t *endpoint, void *payload, size_t bytes);

#endif
