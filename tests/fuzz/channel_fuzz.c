/* Arbitrary bytes as what comes over a connection: as clear records, read in pieces whose lengths
 * the first bytes choose, and as the beginning of a handshake. What is taken as a stream of records
 * is the same when it is written as records again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/net/channel.h"
#include "core/base/alloc.h"
#include "core/base/crc32c.h"
#include "core/base/little_endian.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { PIECE_MAX = 4096, HEADER_BYTES = 8 };

/* The other end of a channel, which has said these bytes and gone. */
static tt_channel_t *hear(const uint8_t *data, size_t bytes, tt_credentials_t *credentials)
{
    int ends[2];
    tt_channel_t *channel;
    TT_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    const bool is_sent = bytes == 0 || write(ends[0], data, bytes) == (ssize_t)bytes;
    TT_ASSERT(is_sent);
    shutdown(ends[0], SHUT_WR);
    TT_ASSERT(tt_channel_accept(ends[1], credentials, &channel) == TUTTI_OK);
    close(ends[0]);
    return channel;
}

/* What a careful reader of the whole input would give: the bytes of its good records. */
static size_t parse(const uint8_t *data, size_t bytes, uint8_t *out)
{
    size_t given = 0;
    while (bytes >= HEADER_BYTES) {
        const size_t length = tt_get_u32(data);
        if (length == 0 || length > TT_RECORD_BYTES_MAX || length > bytes - HEADER_BYTES ||
            tt_crc32c(0, data + HEADER_BYTES, length) != tt_get_u32(data + 4)) {
            break;
        }
        memcpy(out + given, data + HEADER_BYTES, length);
        given += length;
        data += HEADER_BYTES + length;
        bytes -= HEADER_BYTES + length;
    }
    return given;
}

static void read_records(const uint8_t *data, size_t bytes, tt_credentials_t *off, size_t piece)
{
    uint8_t *want = malloc(bytes + 1), *got = malloc(bytes + PIECE_MAX);
    TT_ASSERT(want != NULL && got != NULL);
    const size_t expected = parse(data, bytes, want);
    tt_channel_t *channel = hear(data, bytes, off);
    TT_ASSERT(tt_channel_handshake(channel) == TUTTI_OK);
    tutti_status_t status = TUTTI_OK;
    size_t total = 0;
    for (size_t turn = 0; status == TUTTI_OK && turn < 2 * bytes + 16; turn++) {
        size_t done = 0;
        status = tt_channel_recv(channel, got + total, piece, &done);
        total += status == TUTTI_OK ? done : 0;
        TT_ASSERT(total <= bytes);
    }
    /* All good records come; of one that is cut or wrong, a part may. */
    TT_ASSERT(status == TUTTI_ERR_PEER || status == TUTTI_ERR_FORMAT);
    TT_ASSERT(total >= expected && memcmp(want, got, expected) == 0);
    tt_channel_close(channel);
    free(want);
    free(got);
}

static void read_handshake(const uint8_t *data, size_t bytes, tt_credentials_t *auth)
{
    tt_channel_t *channel = hear(data, bytes, auth);
    tutti_status_t status = TUTTI_PENDING;
    for (int i = 0; i < 8 && status == TUTTI_PENDING; i++) {
        status = tt_channel_handshake(channel);
    }
    TT_ASSERT(status < 0);
    tt_channel_close(channel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const tt_job_key_t key = {{3}};
    tt_credentials_t *off, *auth;
    if (bytes < 1 || bytes > 60000) {
        return 0;
    }
    TT_ASSERT(tt_credentials_create(NULL, 0, TT_PROTECT_OFF, &off) == TUTTI_OK);
    TT_ASSERT(tt_credentials_create(&key, 0, TT_PROTECT_AUTH, &auth) == TUTTI_OK);
    read_records(data + 1, bytes - 1, off, 1 + (size_t)data[0] * data[0] % PIECE_MAX);
    read_handshake(data + 1, bytes - 1, auth);
    tt_credentials_release(off);
    tt_credentials_release(auth);
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
