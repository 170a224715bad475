/* Framed messages over a wire: how far header and payload have come in each direction. */
#include "comm/wire/endpoint.h"

#include "core/base/integers.h"

tutti_status_t tt_endpoint_send(tt_endpoint_t *endpoint, const void *header, const void *payload,
                                size_t payload_bytes)
{
    const size_t all = endpoint->header_bytes + payload_bytes;
    while (endpoint->sent < all) {
        const size_t head = tt_min_size(endpoint->sent, endpoint->header_bytes);
        const size_t body = endpoint->sent - head;
        const tt_span_t spans[] = {
            {(const char *)header + head, endpoint->header_bytes - head},
            {payload_bytes > 0 ? (const char *)payload + body : NULL, payload_bytes - body},
        };
        const int skip = head == endpoint->header_bytes;
        const int count = payload_bytes > 0 ? 2 - skip : 1;
        size_t part;
        TT_TRY(endpoint->wire.ops->send(endpoint->wire.state, spans + skip, count, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        endpoint->sent += part;
    }
    endpoint->sent = 0;
    return TUTTI_OK;
}

/* Bytes [begin, end) of the message that is coming. */
static tutti_status_t pull(tt_endpoint_t *endpoint, void *base, size_t begin, size_t end)
{
    while (endpoint->received < end) {
        size_t part;
        TT_TRY(endpoint->wire.ops->recv(endpoint->wire.state,
                                        (char *)base + (endpoint->received - begin),
                                        end - endpoint->received, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        endpoint->received += part;
    }
    return TUTTI_OK;
}

tutti_status_t tt_endpoint_recv_header(tt_endpoint_t *endpoint, void *header)
{
    return pull(endpoint, header, 0, endpoint->header_bytes);
}

tutti_status_t tt_endpoint_recv_payload(tt_endpoint_t *endpoint, void *payload, size_t bytes)
{
    const size_t begin = endpoint->header_bytes;
    const tutti_status_t status = pull(endpoint, payload, begin, begin + bytes);
    if (status == TUTTI_OK) {
        endpoint->received = 0;
    }
    return status;
}
