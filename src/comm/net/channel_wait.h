/* Channels without an event loop: blocking calls with deadlines. */
#ifndef TT_CHANNEL_WAIT_H
#define TT_CHANNEL_WAIT_H

#include "comm/net/channel.h"

/* Until the channel is open; the deadline takes the place of the handshake's own. Errors: as
 * tt_channel_handshake(). */
tutti_status_t tt_channel_wait_open(tt_channel_t *channel, tt_deadline_t deadline);

/* All bytes. Errors: PEER (closed), FORMAT, IO, TIMEOUT. */
tutti_status_t tt_channel_send_all(tt_channel_t *channel, const void *data, size_t bytes,
                                   tt_deadline_t deadline);
tutti_status_t tt_channel_recv_all(tt_channel_t *channel, void *data, size_t bytes,
                                   tt_deadline_t deadline);

/* The same from *done on, which says afterwards how many bytes there are: after a TIMEOUT the next
 * call goes on. */
tutti_status_t tt_channel_recv_more(tt_channel_t *channel, void *data, size_t bytes,
                                    tt_deadline_t deadline, size_t *done);

#endif
