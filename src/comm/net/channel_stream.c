/* Streams: whatever can be done without waiting is done in one go when the descriptor is ready, so
 * that a request and its reply cost one turn of the loop. A callback may close its stream: the
 * memory of one that is being served goes when on_ready() returns.
 */
#include "comm/net/channel_stream.h"

#include <poll.h>

#include "core/base/alloc.h"
#include "core/base/log.h"

struct tt_stream {
    tt_channel_t *channel;
    tt_watch_t *watch;
    const tt_stream_events_t *events;
    void *user;
    bool is_open, has_failed;
    bool is_served, is_closed; /* on_ready() runs; closed meanwhile */
    char *in;
    size_t in_bytes; /* left of it; 0: nothing is wanted */
    const char *out;
    size_t out_bytes; /* left of it */
};

/* poll() does not report data in OpenSSL's buffers: a writable socket stands in for it. */
static void want(tt_stream_t *stream)
{
    if (stream->has_failed) {
        tt_watch_want(stream->watch, false, false);
    } else if (!stream->is_open) {
        const short events = tt_channel_events(stream->channel);
        tt_watch_want(stream->watch, (events & POLLIN) != 0, (events & POLLOUT) != 0);
    } else {
        const bool is_waiting = stream->in_bytes > 0;
        tt_watch_want(stream->watch, is_waiting,
                      stream->out_bytes > 0 ||
                          (is_waiting && tt_channel_has_more(stream->channel)));
    }
}

static void fail(tt_stream_t *stream)
{
    if (!stream->is_open) {
        tt_log(TT_LOG_DEBUG, "a connection is refused: %s", tutti_last_error());
    }
    stream->has_failed = true;
    stream->events->failed(stream->user);
}

static bool step_handshake(tt_stream_t *stream)
{
    const tutti_status_t status = tt_channel_handshake(stream->channel);
    if (status == TUTTI_PENDING) {
        return false;
    }
    if (status < 0) {
        fail(stream);
        return false;
    }
    stream->is_open = true;
    stream->events->opened(stream->user);
    return true;
}

static bool step_send(tt_stream_t *stream)
{
    size_t done;
    const struct iovec part = {(void *)(uintptr_t)stream->out, stream->out_bytes};
    if (tt_channel_send(stream->channel, &part, 1, &done) < 0) {
        fail(stream);
        return false;
    }
    stream->out += done;
    stream->out_bytes -= done;
    if (stream->out_bytes == 0) {
        stream->events->sent(stream->user);
    }
    return done > 0;
}

static bool step_receive(tt_stream_t *stream)
{
    size_t done;
    if (tt_channel_recv(stream->channel, stream->in, stream->in_bytes, &done) < 0) {
        fail(stream);
        return false;
    }
    stream->in += done;
    stream->in_bytes -= done;
    if (stream->in_bytes == 0) {
        stream->events->received(stream->user);
    }
    return done > 0;
}

/* Whether something happened, after which more may be possible. */
static bool step(tt_stream_t *stream)
{
    if (stream->has_failed || stream->is_closed) {
        return false;
    }
    if (!stream->is_open) {
        return step_handshake(stream);
    }
    if (stream->out_bytes > 0) {
        return step_send(stream);
    }
    return stream->in_bytes > 0 && step_receive(stream);
}

static void on_ready(void *user)
{
    tt_stream_t *stream = user;
    stream->is_served = true;
    while (step(stream)) {
    }
    stream->is_served = false;
    if (stream->is_closed) {
        tt_free(stream);
    } else {
        want(stream);
    }
}

tutti_status_t tt_stream_accept(tt_loop_t *loop, int fd, tt_credentials_t *credentials,
                                const tt_stream_events_t *events, void *user, tt_stream_t **out)
{
    tt_channel_t *channel;
    TT_TRY(tt_channel_accept(fd, credentials, &channel));
    tt_stream_t *stream = tt_alloc(sizeof *stream, "stream");
    tutti_status_t status = stream == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0) {
        *stream = (tt_stream_t){.channel = channel, .events = events, .user = user};
        status = tt_watch_create(loop, tt_channel_fd(channel), on_ready, stream, &stream->watch);
    }
    if (status < 0) {
        tt_channel_close(channel);
        tt_free(stream);
        return status;
    }
    /* `opened` comes from the loop also where there is nothing to prove. */
    tt_watch_want(stream->watch, true, tt_credentials_protect(credentials) == TT_PROTECT_OFF);
    *out = stream;
    return TUTTI_OK;
}

void tt_stream_receive(tt_stream_t *stream, void *buffer, size_t bytes)
{
    TT_ASSERT(bytes > 0 && stream->is_open);
    stream->in = buffer;
    stream->in_bytes = bytes;
    if (!stream->is_served) {
        want(stream);
    }
}

void tt_stream_send(tt_stream_t *stream, const void *data, size_t bytes)
{
    TT_ASSERT(bytes > 0 && stream->out_bytes == 0 && stream->is_open);
    stream->out = data;
    stream->out_bytes = bytes;
    if (!stream->is_served) {
        want(stream);
    }
}

const tt_channel_t *tt_stream_channel(const tt_stream_t *stream)
{
    return stream->channel;
}

void tt_stream_close(tt_stream_t *stream)
{
    if (stream == NULL) {
        return;
    }
    tt_watch_close(stream->watch);
    tt_channel_close(stream->channel);
    stream->is_closed = true;
    if (!stream->is_served) {
        tt_free(stream);
    }
}
