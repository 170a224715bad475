/* Channels: sockets, credentials, clear records.
 *
 * A record is 8 bytes of header (how many bytes follow, their CRC-32C) and the bytes, sent by one
 * sendmsg straight from the caller's memory. A read takes headers and bytes of several records with
 * one recvmsg, the bytes straight to where they belong, on the guess that records are as long as
 * can be, which those of a long message are.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "comm/net/address.h"
#include "comm/net/channel_impl.h"
#include "comm/net/socket.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/crc32c.h"
#include "core/base/little_endian.h"
#include "core/base/log.h"

enum { SILENT_MS = 5000, SILENT_PROBES = 3, AHEAD_MAX = 4 };

/* ---- credentials ----------------------------------------------------------------------------- */

static const char *const protections[] = {"auto", "encrypt", "auth", "off"};

tutti_status_t tt_credentials_create(const tt_job_key_t *key, uint32_t epoch, tt_protect_t protect,
                                     tt_credentials_t **out)
{
    if (protect == TT_PROTECT_AUTO || (key == NULL && protect != TT_PROTECT_OFF)) {
        return TT_FAIL(TUTTI_ERR_ARG, "credentials: a protection must be chosen, and has a key");
    }
    tt_credentials_t *credentials = tt_alloc(sizeof *credentials, "credentials");
    TT_TRY_ALLOC(credentials);
    tt_ref_init(&credentials->ref);
    credentials->protect = protect;
    credentials->epoch = epoch;
    credentials->records_per_key = TT_RECORDS_PER_KEY;
    snprintf(credentials->identity, sizeof credentials->identity, "tutti1|%u|%s", epoch,
             protections[protect]);
    tutti_status_t status = TUTTI_OK;
    if (key != NULL) {
        credentials->job = *key;
        credentials->has_key = true;
    }
    if (protect != TT_PROTECT_OFF) {
        status = tt_job_key_of_epoch(key, epoch, &credentials->key);
        status = status < 0 ? status : tt_tls_open(credentials);
    }
    if (status < 0) {
        tt_credentials_release(credentials);
        return status;
    }
    *out = credentials;
    return TUTTI_OK;
}

static tutti_status_t read_protect(const char *address, tt_protect_t *out)
{
    const char *text = tt_config_text(TT_CONFIG_PROTECT);
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, protections[i]) == 0) {
            *out = (tt_protect_t)i;
            if (*out == TT_PROTECT_AUTO) {
                *out = address == NULL || tt_address_is_loopback(address) ? TT_PROTECT_AUTH
                                                                          : TT_PROTECT_ENCRYPT;
            }
            return TUTTI_OK;
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_PROTECT is \"%s\"; want auto, encrypt, auth or off", text);
}

tutti_status_t tt_credentials_choose(const tt_job_key_t *key, const char *address, uint32_t epoch,
                                     tt_credentials_t **out)
{
    tt_protect_t protect;
    TT_TRY(read_protect(address, &protect));
    if (protect == TT_PROTECT_OFF) {
        tt_log(TT_LOG_WARN, "TUTTI_PROTECT is off: connections at %s are open to anybody",
               address != NULL ? address : "127.0.0.1");
        return tt_credentials_create(NULL, epoch, protect, out);
    }
    if (key == NULL) {
        return TT_FAIL(TUTTI_ERR_AUTH,
                       "there is no job key, so strangers could connect: set TUTTI_KEY_FILE to a "
                       "file that `tutti key` made (the same on all hosts), start with `tutti "
                       "run`, or set TUTTI_PROTECT=off");
    }
    return tt_credentials_create(key, epoch, protect, out);
}

tutti_status_t tt_credentials_find(const char *address, uint32_t epoch, tt_credentials_t **out)
{
    tt_job_key_t key;
    bool found;
    TT_TRY(tt_job_key_find(&key, &found));
    const tutti_status_t status = tt_credentials_choose(found ? &key : NULL, address, epoch, out);
    explicit_bzero(&key, sizeof key);
    return status;
}

tutti_status_t tt_credentials_derive(const tt_credentials_t *from, const char *address,
                                     uint32_t epoch, tt_credentials_t **out)
{
    return tt_credentials_choose(from->has_key ? &from->job : NULL, address, epoch, out);
}

void tt_credentials_set_records_per_key(tt_credentials_t *credentials, uint64_t records)
{
    credentials->records_per_key = records;
}

tt_credentials_t *tt_credentials_retain(tt_credentials_t *credentials)
{
    tt_ref_retain(&credentials->ref);
    return credentials;
}

void tt_credentials_release(tt_credentials_t *credentials)
{
    if (credentials == NULL || !tt_ref_release(&credentials->ref)) {
        return;
    }
    tt_tls_fini(credentials);
    explicit_bzero(&credentials->job, sizeof credentials->job);
    explicit_bzero(&credentials->key, sizeof credentials->key);
    tt_free(credentials);
}

tt_protect_t tt_credentials_protect(const tt_credentials_t *credentials)
{
    return credentials->protect;
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* A host that falls silent while nothing is sent is found by keep-alives: 1 s of rest, then one a
 * second, dead after 4. (TCP_USER_TIMEOUT would also end connections to ranks that merely compute
 * for long and read nothing.) */
static void set_options(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){4}, sizeof(int));
}

static void name_peer(tt_channel_t *channel, const struct sockaddr *address, socklen_t bytes)
{
    char host[48], port[8];
    if (getnameinfo(address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(channel->peer, sizeof channel->peer, "?");
        return;
    }
    snprintf(channel->peer, sizeof channel->peer, "%s:%s", host, port);
}

static tutti_status_t make_channel(int fd, tt_credentials_t *credentials, bool is_server,
                                   tt_channel_t **out)
{
    tt_channel_t *channel = tt_alloc(sizeof *channel, "channel");
    TT_TRY_ALLOC(channel);
    channel->fd = fd;
    channel->is_server = is_server;
    channel->credentials = tt_credentials_retain(credentials);
    channel->deadline = tt_deadline_in_ms(TT_HANDSHAKE_MS);
    set_options(fd);
    *out = channel;
    return TUTTI_OK;
}

/* Connected: what comes next. */
static tutti_status_t start_proving(tt_channel_t *channel)
{
    if (channel->credentials->protect == TT_PROTECT_OFF) {
        channel->state = TT_CHANNEL_OPEN;
        return TUTTI_OK;
    }
    if (channel->is_server) {
        channel->state = TT_CHANNEL_AWAITED;
        return TUTTI_OK;
    }
    channel->state = TT_CHANNEL_PROVING;
    return tt_tls_start(channel);
}

/* Ports or memory of this host: nothing is known of the other one. */
static bool is_own_lack(int code)
{
    return code == EADDRNOTAVAIL || code == EAGAIN || code == ENOBUFS || code == ENOMEM;
}

tutti_status_t tt_channel_connect(const struct sockaddr *address, socklen_t address_bytes,
                                  tt_credentials_t *credentials, tt_channel_t **out)
{
    const int fd = tt_socket_open(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd < 0) {
        return tt_is_out_of_descriptors(errno)
                   ? tt_fail_out_of_descriptors("cannot connect")
                   : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot open a socket");
    }
    tt_channel_t *channel;
    if (make_channel(fd, credentials, false, &channel) < 0) {
        tt_socket_close(fd);
        return TUTTI_ERR_NOMEM;
    }
    name_peer(channel, address, address_bytes);
    tutti_status_t status = TUTTI_OK;
    if (connect(fd, address, address_bytes) == 0) {
        status = start_proving(channel);
    } else if (errno != EINPROGRESS) {
        status = TT_FAIL_ERRNO(is_own_lack(errno) ? TUTTI_ERR_IO : TUTTI_ERR_PEER,
                               "cannot connect to %s", channel->peer);
    }
    if (status < 0) {
        tt_channel_close(channel);
        return status;
    }
    *out = channel;
    return TUTTI_OK;
}

tutti_status_t tt_channel_accept(int fd, tt_credentials_t *credentials, tt_channel_t **out)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    tt_channel_t *channel;
    TT_TRY(make_channel(fd, credentials, true, &channel));
    if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0) {
        name_peer(channel, (const struct sockaddr *)&address, bytes);
    }
    *out = channel;
    return start_proving(channel); /* which only begins to wait */
}

static tutti_status_t finish_connecting(tt_channel_t *channel)
{
    struct pollfd item = {.fd = channel->fd, .events = POLLOUT};
    if (poll(&item, 1, 0) <= 0) {
        return TUTTI_PENDING;
    }
    int code = 0;
    getsockopt(channel->fd, SOL_SOCKET, SO_ERROR, &code, &(socklen_t){sizeof code});
    if (code != 0) {
        errno = code;
        return TT_FAIL_ERRNO(TUTTI_ERR_PEER, "cannot connect to %s", channel->peer);
    }
    return start_proving(channel);
}

bool tt_channel_has_proof(const tt_channel_t *channel)
{
    if (channel->credentials->protect == TT_PROTECT_OFF) {
        return false;
    }
    return channel->state == TT_CHANNEL_OPEN || (channel->state == TT_CHANNEL_PROVING &&
                                                 channel->is_server && tt_tls_has_proof(channel));
}

tutti_status_t tt_channel_handshake(tt_channel_t *channel)
{
    tutti_status_t status = TUTTI_OK;
    if (channel->state == TT_CHANNEL_CONNECTING) {
        status = finish_connecting(channel);
    }
    if (channel->state == TT_CHANNEL_AWAITED) {
        status = tt_channel_await_hello(channel);
        channel->state = status == TUTTI_OK ? TT_CHANNEL_PROVING : channel->state;
        status = status == TUTTI_OK ? tt_tls_start(channel) : status;
    }
    if (status == TUTTI_OK && channel->state == TT_CHANNEL_PROVING) {
        status = tt_tls_handshake(channel);
    }
    if (status == TUTTI_PENDING && !tt_channel_has_proof(channel) &&
        tt_deadline_is_past(channel->deadline)) {
        return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s has not proved the job's key in time", channel->peer);
    }
    return status;
}

uint64_t tt_channel_proof(const tt_channel_t *channel)
{
    return channel->proof;
}

void tt_channel_set_deadline(tt_channel_t *channel, tt_deadline_t deadline)
{
    channel->deadline = deadline;
}

bool tt_channel_is_connected(const tt_channel_t *channel)
{
    return channel->state != TT_CHANNEL_CONNECTING;
}

int tt_channel_fd(const tt_channel_t *channel)
{
    return channel->fd;
}

short tt_channel_events(const tt_channel_t *channel)
{
    return channel->state == TT_CHANNEL_CONNECTING || channel->wants_write ? POLLOUT : POLLIN;
}

bool tt_channel_has_more(const tt_channel_t *channel)
{
    return channel->tls != NULL && SSL_has_pending(channel->tls) == 1;
}

const char *tt_channel_peer(const tt_channel_t *channel)
{
    return channel->peer;
}

/* Data in flight that is not acknowledged, or probes of a closed window that are not answered. */
bool tt_channel_is_silent(const tt_channel_t *channel)
{
    if (channel->is_unanswered) {
        return true;
    }
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (getsockopt(channel->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
        return true;
    }
    return info.tcpi_last_ack_recv >= SILENT_MS &&
           (info.tcpi_unacked > 0 || info.tcpi_probes >= SILENT_PROBES);
}

bool tt_channel_awaits_ack(const tt_channel_t *channel)
{
    int bytes = 0;
    return ioctl(channel->fd, TIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void tt_channel_close(tt_channel_t *channel)
{
    if (channel != NULL) {
        tt_tls_close(channel);
        tt_socket_close(channel->fd);
        tt_credentials_release(channel->credentials);
        tt_free(channel);
    }
}

/* ---- clear records --------------------------------------------------------------------------- */

/* Begins a record over the first bytes of the parts. */
static void open_record(tt_record_t *record, const struct iovec *parts, int part_count)
{
    size_t bytes = 0;
    uint32_t crc = 0;
    for (int i = 0; i < part_count && bytes < TT_RECORD_BYTES_MAX; i++) {
        const size_t left = TT_RECORD_BYTES_MAX - bytes;
        const size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        crc = tt_crc32c(crc, parts[i].iov_base, part);
        bytes += part;
    }
    tt_put_u32(record->header, (uint32_t)bytes);
    tt_put_u32(record->header + 4, crc);
    record->header_done = 0;
    record->left = bytes;
}

/* Header and bytes of the record that have not gone yet, as one message. */
static ssize_t send_record(tt_channel_t *channel, const struct iovec *parts, int part_count)
{
    tt_record_t *record = &channel->out;
    struct iovec all[TT_CHANNEL_PARTS_MAX + 1];
    size_t left = record->left;
    int count = 0;
    if (record->header_done < sizeof record->header) {
        all[count++] = (struct iovec){record->header + record->header_done,
                                      sizeof record->header - record->header_done};
    }
    for (int i = 0; i < part_count && left > 0; i++) {
        const size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        all[count++] = (struct iovec){parts[i].iov_base, part};
        left -= part;
    }
    const struct msghdr message = {.msg_iov = all, .msg_iovlen = (size_t)count};
    return sendmsg(channel->fd, &message, MSG_NOSIGNAL);
}

static tutti_status_t send_clear(tt_channel_t *channel, const struct iovec *parts, int part_count,
                                 size_t *done)
{
    tt_record_t *record = &channel->out;
    *done = 0;
    if (record->left == 0) {
        open_record(record, parts, part_count);
        if (record->left == 0) {
            return TUTTI_OK;
        }
    }
    const ssize_t sent = send_record(channel, parts, part_count);
    if (sent < 0) {
        tt_channel_note_failure(channel);
        return tt_channel_is_later()
                   ? TUTTI_OK
                   : TT_FAIL_ERRNO(TUTTI_ERR_PEER, "sending to %s", channel->peer);
    }
    const size_t due = sizeof record->header - record->header_done;
    const size_t header = (size_t)sent < due ? (size_t)sent : due;
    record->header_done += header;
    *done = (size_t)sent - header;
    record->left -= *done;
    return TUTTI_OK;
}

static tutti_status_t fail_record(const tt_channel_t *channel)
{
    const tt_record_t *record = &channel->in;
    if (record->fault == TT_RECORD_LENGTH) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s sent bytes that are no record of ours", channel->peer);
    }
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "bytes from %s were changed on the way: their CRC-32C is "
                   "%08x, want %08x",
                   channel->peer, record->crc, tt_get_u32(record->header + 4));
}

/* Of a record's header; how many bytes it takes. */
static size_t take_header(tt_record_t *record, const char *from, size_t bytes)
{
    const size_t due = sizeof record->header - record->header_done;
    const size_t part = bytes < due ? bytes : due;
    memcpy(record->header + record->header_done, from, part);
    record->header_done += part;
    if (part == due) {
        record->left = tt_get_u32(record->header);
        record->crc = 0;
        record->fault = record->left == 0 || record->left > TT_RECORD_BYTES_MAX ? TT_RECORD_LENGTH
                                                                                : TT_RECORD_GOOD;
    }
    return part;
}

/* Of a record's bytes, which are where they belong. */
static void take_bytes(tt_record_t *record, const void *data, size_t bytes)
{
    record->crc = tt_crc32c(record->crc, data, bytes);
    record->left -= bytes;
    if (record->left == 0) {
        record->header_done = 0;
        record->fault =
            record->crc != tt_get_u32(record->header + 4) ? TT_RECORD_SUM : TT_RECORD_GOOD;
    }
}

/* What a read should put where: headers beside the data, as if every record were as long as can
 * be. Records that are shorter put headers among the data, which take_parts() moves together. */
typedef struct {
    struct iovec parts[2 * AHEAD_MAX + 1];
    int count;
    char headers[AHEAD_MAX][sizeof(((tt_record_t *)0)->header)];
} ahead_t;

static void plan_read(const tt_record_t *record, char *data, size_t bytes, ahead_t *ahead)
{
    size_t left = record->left;
    int headers = 0;
    ahead->count = 0;
    while (headers < AHEAD_MAX) {
        if (left > 0) {
            const size_t part = bytes < left ? bytes : left;
            ahead->parts[ahead->count++] = (struct iovec){data, part};
            data += part;
            bytes -= part;
            if (part < left) {
                return;
            }
        }
        const size_t due =
            sizeof record->header - (headers == 0 && record->left == 0 ? record->header_done : 0);
        ahead->parts[ahead->count++] = (struct iovec){ahead->headers[headers++], due};
        if (bytes == 0) {
            return;
        }
        left = TT_RECORD_BYTES_MAX;
    }
}

/* Moves the data of `got` bytes together, from `data` on; returns how many they are. It stops
 * before a piece that is wrong. No byte is overwritten before it is read: headers come at least as
 * often as planned. */
static size_t take_parts(tt_record_t *record, const ahead_t *ahead, size_t got, char *data)
{
    size_t filled = 0;
    for (int i = 0; i < ahead->count && got > 0; i++) {
        const char *from = ahead->parts[i].iov_base;
        size_t bytes = ahead->parts[i].iov_len < got ? ahead->parts[i].iov_len : got;
        got -= bytes;
        while (bytes > 0 && record->fault == TT_RECORD_GOOD) {
            size_t part = bytes < record->left ? bytes : record->left;
            if (record->left == 0) {
                part = take_header(record, from, bytes);
            } else {
                memmove(data + filled, from, data + filled != from ? part : 0);
                take_bytes(record, data + filled, part);
                filled += record->fault == TT_RECORD_GOOD ? part : 0;
            }
            from += part;
            bytes -= part;
        }
    }
    return filled;
}

static tutti_status_t fail_read(tt_channel_t *channel, ssize_t got)
{
    if (got == 0) {
        return TT_FAIL(TUTTI_ERR_PEER, "%s closed the connection", channel->peer);
    }
    tt_channel_note_failure(channel);
    return tt_channel_is_later()
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_PEER, "receiving from %s", channel->peer);
}

/* A fault behind good bytes is returned by the next call. */
static tutti_status_t recv_clear(tt_channel_t *channel, void *data, size_t bytes, size_t *done)
{
    tt_record_t *record = &channel->in;
    ahead_t ahead;
    *done = 0;
    if (record->fault != TT_RECORD_GOOD) {
        return fail_record(channel);
    }
    if (bytes == 0) {
        return TUTTI_OK;
    }
    plan_read(record, data, bytes, &ahead);
    struct msghdr message = {.msg_iov = ahead.parts, .msg_iovlen = (size_t)ahead.count};
    const ssize_t got = recvmsg(channel->fd, &message, 0);
    if (got <= 0) {
        return fail_read(channel, got);
    }
    *done = take_parts(record, &ahead, (size_t)got, data);
    return *done == 0 && record->fault != TT_RECORD_GOOD ? fail_record(channel) : TUTTI_OK;
}

tutti_status_t tt_channel_send(tt_channel_t *channel, const struct iovec *parts, int part_count,
                               size_t *done)
{
    TT_ASSERT(channel->state == TT_CHANNEL_OPEN && part_count <= TT_CHANNEL_PARTS_MAX);
    return channel->tls != NULL ? tt_tls_send(channel, parts, part_count, done)
                                : send_clear(channel, parts, part_count, done);
}

tutti_status_t tt_channel_recv(tt_channel_t *channel, void *data, size_t bytes, size_t *done)
{
    TT_ASSERT(channel->state == TT_CHANNEL_OPEN);
    return channel->tls != NULL ? tt_tls_recv(channel, data, bytes, done)
                                : recv_clear(channel, data, bytes, done);
}

tutti_status_t tt_channel_push(tt_channel_t *channel, const void *data, size_t bytes, size_t *done)
{
    for (size_t part; *done < bytes; *done += part) {
        const struct iovec rest = {(char *)(uintptr_t)data + *done, bytes - *done};
        TT_TRY(tt_channel_send(channel, &rest, 1, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_channel_pull(tt_channel_t *channel, void *data, size_t bytes, size_t *done)
{
    for (size_t part; *done < bytes; *done += part) {
        TT_TRY(tt_channel_recv(channel, (char *)data + *done, bytes - *done, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
    }
    return TUTTI_OK;
}
