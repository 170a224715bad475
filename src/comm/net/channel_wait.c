/* Blocking calls over non-blocking channels: try, then poll. */
#include "comm/net/channel_wait.h"

#include <errno.h>
#include <poll.h>

enum { LOOK_MS = 1000 };

static tutti_status_t wait_for(const tt_channel_t *channel, short events, tt_deadline_t deadline)
{
    struct pollfd item = {.fd = tt_channel_fd(channel), .events = events};
    for (;;) {
        const int left_ms = tt_deadline_left_ms(deadline);
        const bool is_short = left_ms >= 0 && left_ms < LOOK_MS;
        const int n = poll(&item, 1, is_short ? left_ms : LOOK_MS);
        if (n > 0) {
            return TUTTI_OK;
        }
        /* Keep-alives are not sent while data is in flight: then its age tells. */
        if (n == 0 && tt_channel_is_connected(channel) && tt_channel_is_silent(channel)) {
            return TT_FAIL(TUTTI_ERR_PEER, "%s has fallen silent", tt_channel_peer(channel));
        }
        if (n < 0 && errno != EINTR) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "poll");
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "time is up, %s does not answer",
                           tt_channel_peer(channel));
        }
    }
}

tutti_status_t tt_channel_wait_open(tt_channel_t *channel, tt_deadline_t deadline)
{
    tt_channel_set_deadline(channel, deadline);
    for (;;) {
        const tutti_status_t status = tt_channel_handshake(channel);
        if (status != TUTTI_PENDING) {
            return status;
        }
        TT_TRY(wait_for(channel, tt_channel_events(channel), deadline));
    }
}

tutti_status_t tt_channel_send_all(tt_channel_t *channel, const void *data, size_t bytes,
                                   tt_deadline_t deadline)
{
    for (size_t done = 0;;) {
        const tutti_status_t status = tt_channel_push(channel, data, bytes, &done);
        if (status != TUTTI_PENDING) {
            return status;
        }
        TT_TRY(wait_for(channel, POLLOUT, deadline));
    }
}

tutti_status_t tt_channel_recv_more(tt_channel_t *channel, void *data, size_t bytes,
                                    tt_deadline_t deadline, size_t *done)
{
    for (;;) {
        const tutti_status_t status = tt_channel_pull(channel, data, bytes, done);
        if (status != TUTTI_PENDING) {
            return status;
        }
        TT_TRY(wait_for(channel, POLLIN, deadline));
    }
}

tutti_status_t tt_channel_recv_all(tt_channel_t *channel, void *data, size_t bytes,
                                   tt_deadline_t deadline)
{
    size_t done = 0;
    return tt_channel_recv_more(channel, data, bytes, deadline, &done);
}
