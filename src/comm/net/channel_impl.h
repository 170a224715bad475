/* The inside of channels, shared by channel.c (sockets and records) and channel_tls.c. */
#ifndef TT_CHANNEL_IMPL_H
#define TT_CHANNEL_IMPL_H

#include <errno.h>

#include <openssl/ssl.h>

#include "comm/net/channel.h"
#include "core/base/ref.h"

enum { TT_TLS_RECORD_BYTES = 16384 }; /* the most that TLS allows */

struct tt_credentials {
    tt_ref_t ref;
    tt_protect_t protect;
    uint32_t epoch;
    tt_job_key_t job, key; /* of the job, of the epoch */
    bool has_key;
    char identity[48];
    SSL_CTX *tls; /* NULL: off */
    BIO_METHOD *bio_method;
    uint64_t records_per_key;
};

/* A record under way: its header, and what is left of its bytes. */
typedef struct {
    unsigned char header[8]; /* bytes, CRC-32C; little-endian */
    size_t header_done, left;
    uint32_t crc; /* receiving: of the bytes so far */
    enum { TT_RECORD_GOOD, TT_RECORD_LENGTH, TT_RECORD_SUM } fault; /* receiving */
} tt_record_t;

typedef enum {
    TT_CHANNEL_CONNECTING,
    TT_CHANNEL_AWAITED, /* accepted, and the other side has said nothing */
    TT_CHANNEL_PROVING,
    TT_CHANNEL_OPEN
} tt_channel_state_t;

struct tt_channel {
    int fd;
    bool is_server, wants_write;
    bool is_unanswered; /* the kernel has given the other side up */
    tt_channel_state_t state;
    tt_credentials_t *credentials;
    tt_deadline_t deadline; /* of the handshake */
    SSL *tls;               /* while proving; in `encrypt` as long as the channel */
    unsigned char *stage;   /* of `encrypt`: TT_TLS_RECORD_BYTES */
    uint64_t proof;         /* of a server: see tt_channel_proof() */
    uint64_t key_records;   /* of `encrypt`: sent under the key of this direction */
    uint64_t renewals;      /* of that key */
    bool is_held_back; /* OpenSSL has taken a record, or part of one, that is to be offered again */
    tt_record_t out, in;
    char peer[64];
};

/* After a system call on the socket has failed, with errno as it left it: keep-alives end in a
 * timeout, or in what the kernel heard meanwhile: that the host cannot be reached. */
static inline void tt_channel_note_failure(tt_channel_t *channel)
{
    channel->is_unanswered = channel->is_unanswered || errno == ETIMEDOUT ||
                             errno == EHOSTUNREACH || errno == ENETUNREACH;
}

/* The last system call would have had to wait. */
static inline bool tt_channel_is_later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* channel_hello.c: OK when the whole first message of a handshake is there; it is not taken.
 * PENDING. Errors: PEER, AUTH. */
tutti_status_t tt_channel_await_hello(const tt_channel_t *channel);

/* channel_tls.c */
tutti_status_t tt_tls_open(tt_credentials_t *credentials);
tutti_status_t tt_tls_start(tt_channel_t *channel);
void tt_tls_close(tt_channel_t *channel);
void tt_tls_fini(tt_credentials_t *credentials);
bool tt_tls_has_proof(const tt_channel_t *channel);
tutti_status_t tt_tls_handshake(tt_channel_t *channel);
tutti_status_t tt_tls_send(tt_channel_t *channel, const struct iovec *parts, int part_count,
                           size_t *done);
tutti_status_t tt_tls_recv(tt_channel_t *channel, void *data, size_t bytes, size_t *done);

#endif
