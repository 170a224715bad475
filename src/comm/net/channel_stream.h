/* A channel on an event loop: one buffer out, one buffer in, and what happens to them. */
#ifndef TT_CHANNEL_STREAM_H
#define TT_CHANNEL_STREAM_H

#include <stddef.h>

#include "comm/net/channel.h"
#include "comm/net/net.h"

typedef struct tt_stream tt_stream_t;

/* What happens to a stream; each may close it. */
typedef struct {
    /* The other side has proved the key: only now may it be sent to and received from. */
    void (*opened)(void *user);
    /* The buffer is full. */
    void (*received)(void *user);
    /* The stream is of no use any more: the other side has closed, has not proved the key, or
     * broke the rules; tutti_last_error() says it. */
    void (*failed)(void *user);
    /* Everything of the last send is on its way. */
    void (*sent)(void *user);
} tt_stream_events_t;

/* Of a connection that was accepted; owns fd in any case. Errors: NOMEM, IO. */
tutti_status_t tt_stream_accept(tt_loop_t *loop, int fd, tt_credentials_t *credentials,
                                const tt_stream_events_t *events, void *user, tt_stream_t **out);

/* Receive `bytes` into a buffer, once: `received` comes when all are there. */
void tt_stream_receive(tt_stream_t *stream, void *buffer, size_t bytes);

/* One at a time; the bytes stay until `sent`. */
void tt_stream_send(tt_stream_t *stream, const void *data, size_t bytes);
void tt_stream_close(tt_stream_t *stream);

/* Borrowed. */
const tt_channel_t *tt_stream_channel(const tt_stream_t *stream);

#endif
