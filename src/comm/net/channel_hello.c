/* Channels before the handshake: what is known of the other side while nothing of it is trusted.
 *
 * A connection costs a little memory and a few system calls until a whole first message of a
 * handshake is there; TLS is begun only then.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "comm/net/channel_impl.h"

static tutti_status_t fail_early_end(const tt_channel_t *channel)
{
    return TT_FAIL(TUTTI_ERR_PEER, "%s closed the connection before it had proved the key",
                   channel->peer);
}

/* Polls stay silent until `want` bytes are there, or the end: bytes that are not taken would wake
 * each poll at once. */
static tutti_status_t await_bytes(const tt_channel_t *channel, int want)
{
    struct pollfd item = {.fd = channel->fd, .events = POLLRDHUP};
    setsockopt(channel->fd, SOL_SOCKET, SO_RCVLOWAT, &want, sizeof want);
    return poll(&item, 1, 0) > 0 ? fail_early_end(channel) : TUTTI_PENDING;
}

/* Our first message is one TLS record (0x16, version 3.x, u16 length) that holds a ClientHello (1),
 * of some 250 bytes. What costs memory and time begins when all of it is there. */
tutti_status_t tt_channel_await_hello(const tt_channel_t *channel)
{
    enum { HEAD_BYTES = 5, HELLO_BYTES_MAX = 2048 };
    unsigned char head[HEAD_BYTES + 1] = {0x16, 3, 1, 0, 1, 1};
    int waiting = 0;
    const ssize_t got = recv(channel->fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && tt_channel_is_later()) {
        return TUTTI_PENDING;
    }
    if (got <= 0) {
        return fail_early_end(channel);
    }
    const int bytes = head[3] << 8 | head[4];
    if (head[0] != 0x16 || head[1] != 3 || head[2] > 4 || bytes == 0 || bytes > HELLO_BYTES_MAX ||
        head[5] != 1) {
        return TT_FAIL(TUTTI_ERR_AUTH, "%s begins with bytes that are no handshake of this job",
                       channel->peer);
    }
    if (got < (ssize_t)sizeof head) {
        return await_bytes(channel, sizeof head);
    }
    if (ioctl(channel->fd, FIONREAD, &waiting) != 0 || waiting < HEAD_BYTES + bytes) {
        return await_bytes(channel, HEAD_BYTES + bytes);
    }
    setsockopt(channel->fd, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int));
    return TUTTI_OK;
}

bool tt_channel_has_spoken(const tt_channel_t *channel)
{
    char byte;
    return channel->state == TT_CHANNEL_PROVING || channel->tls != NULL ||
           recv(channel->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

bool tt_channel_is_unheard(const tt_channel_t *channel)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    return channel->state == TT_CHANNEL_CONNECTING ||
           (channel->state == TT_CHANNEL_PROVING &&
            getsockopt(channel->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
            info.tcpi_unacked > 0 && info.tcpi_retransmits > 0);
}
