/* The TLS side of channels: OpenSSL's TLS 1.3 with an external pre-shared key.
 *
 * The key's identity says version, epoch and protection ("tutti1|3|auth"), so that a process that
 * differs in one of them has no key to offer. Sockets are read and written by a BIO of our own,
 * since OpenSSL's would raise SIGPIPE. OpenSSL reads no further than the record it needs
 * (read-ahead is off), so that after the handshake of `auth` the socket stands exactly at the first
 * clear byte.
 *
 * Source: RFC 8446 (TLS 1.3), RFC 9257 (guidance for external keys).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>

#include "comm/net/channel_impl.h"
#include "core/base/alloc.h"

/* TLS_AES_128_GCM_SHA256: its hash is the one that external keys are bound to by default. */
static const unsigned char CIPHER[] = {0x13, 0x01};

static tutti_status_t fail_tls(tutti_status_t status, const char *what)
{
    char text[160] = "";
    const unsigned long code = ERR_get_error();
    if (code != 0) {
        ERR_error_string_n(code, text, sizeof text);
    }
    ERR_clear_error();
    return TT_FAIL(status, "%s: %s", what, code != 0 ? text : "no reason given");
}

/* ---- the BIO --------------------------------------------------------------------------------- */

static int write_socket(BIO *bio, const char *data, int bytes)
{
    tt_channel_t *channel = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t n = send(channel->fd, data, (size_t)bytes, MSG_NOSIGNAL);
    if (n < 0 && tt_channel_is_later()) {
        BIO_set_retry_write(bio);
    } else if (n < 0) {
        tt_channel_note_failure(channel);
    }
    return (int)n;
}

static int read_socket(BIO *bio, char *data, int bytes)
{
    tt_channel_t *channel = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t n = recv(channel->fd, data, (size_t)bytes, 0);
    if (n < 0 && tt_channel_is_later()) {
        BIO_set_retry_read(bio);
    } else if (n < 0) {
        tt_channel_note_failure(channel);
    }
    return (int)n;
}

static long control_socket(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *make_method(void)
{
    /* Not BIO_get_new_index(): there are 127 of them. Ours is never searched for by its type. */
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_START | BIO_TYPE_SOURCE_SINK, "tutti socket");
    if (method != NULL) {
        BIO_meth_set_write(method, write_socket);
        BIO_meth_set_read(method, read_socket);
        BIO_meth_set_ctrl(method, control_socket);
    }
    return method;
}

/* ---- the key --------------------------------------------------------------------------------- */

/* An external key is a session that was never had. NULL without memory. */
static SSL_SESSION *make_session(SSL *tls, const tt_credentials_t *credentials)
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(tls, CIPHER);
    SSL_SESSION *session = cipher != NULL ? SSL_SESSION_new() : NULL;
    if (session == NULL ||
        SSL_SESSION_set1_master_key(session, credentials->key.bytes,
                                    sizeof credentials->key.bytes) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static const tt_credentials_t *credentials_of(SSL *tls)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(tls));
}

/* The client's offer. */
static int offer_key(SSL *tls, const EVP_MD *digest, const unsigned char **identity,
                     size_t *identity_bytes, SSL_SESSION **session)
{
    (void)digest;
    const tt_credentials_t *credentials = credentials_of(tls);
    *identity = (const unsigned char *)credentials->identity;
    *identity_bytes = strlen(credentials->identity);
    *session = make_session(tls, credentials);
    return *session != NULL;
}

/* The server's look-up; no session means that the offer is of no use. */
static int find_key(SSL *tls, const unsigned char *identity, size_t identity_bytes,
                    SSL_SESSION **session)
{
    const tt_credentials_t *credentials = credentials_of(tls);
    const bool is_ours = identity_bytes == strlen(credentials->identity) &&
                         memcmp(identity, credentials->identity, identity_bytes) == 0;
    *session = is_ours ? make_session(tls, credentials) : NULL;
    return 1;
}

tutti_status_t tt_tls_open(tt_credentials_t *credentials)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_method());
    if (tls == NULL) {
        return fail_tls(TUTTI_ERR_IO, "OpenSSL");
    }
    credentials->tls = tls;
    credentials->bio_method = make_method();
    if (credentials->bio_method == NULL) {
        return fail_tls(TUTTI_ERR_NOMEM, "OpenSSL");
    }
    SSL_CTX_set_app_data(tls, credentials);
    SSL_CTX_set_psk_use_session_callback(tls, offer_key);
    SSL_CTX_set_psk_find_session_callback(tls, find_key);
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(tls, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    char groups[] = "X25519"; /* the macro of OpenSSL casts const away */
    if (SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256") != 1 ||
        SSL_CTX_set1_groups_list(tls, groups) != 1 || SSL_CTX_set_num_tickets(tls, 0) != 1) {
        return fail_tls(TUTTI_ERR_IO, "OpenSSL refuses TLS 1.3 with X25519 and AES-128-GCM");
    }
    return TUTTI_OK;
}

/* ---- the handshake and what follows ---------------------------------------------------------- */

tutti_status_t tt_tls_start(tt_channel_t *channel)
{
    BIO *bio = BIO_new(channel->credentials->bio_method);
    SSL *tls = SSL_new(channel->credentials->tls);
    if (bio == NULL || tls == NULL) {
        BIO_free(bio);
        SSL_free(tls);
        return fail_tls(TUTTI_ERR_NOMEM, "OpenSSL");
    }
    BIO_set_data(bio, channel);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls, bio, bio);
    channel->tls = tls;
    if (channel->is_server) {
        SSL_set_accept_state(tls);
    } else {
        SSL_set_connect_state(tls);
    }
    return TUTTI_OK;
}

void tt_tls_close(tt_channel_t *channel)
{
    SSL_free(channel->tls);
    tt_free(channel->stage);
    channel->tls = NULL;
    channel->stage = NULL;
}

void tt_tls_fini(tt_credentials_t *credentials)
{
    SSL_CTX_free(credentials->tls);
    BIO_meth_free(credentials->bio_method);
}

/* The client's first message carries a binder (RFC 8446, 4.2.11.2), which only the key can make;
 * the server checks it before it answers. */
bool tt_tls_has_proof(const tt_channel_t *channel)
{
    return SSL_session_reused(channel->tls) == 1;
}

static tutti_status_t fail_handshake(tt_channel_t *channel, int reason)
{
    if (reason == SSL_ERROR_SYSCALL && ERR_peek_error() == 0) {
        return TT_FAIL(TUTTI_ERR_PEER,
                       "%s closed the connection during the handshake: it has another key or "
                       "epoch, or is no process of this job",
                       channel->peer);
    }
    char what[240];
    snprintf(what, sizeof what,
             "%s does not have this job's key (or is in another epoch, or protects otherwise than "
             "%s)",
             channel->peer, channel->credentials->identity);
    return fail_tls(TUTTI_ERR_AUTH, what);
}

tutti_status_t tt_tls_handshake(tt_channel_t *channel)
{
    ERR_clear_error();
    const int result = SSL_do_handshake(channel->tls);
    if (channel->is_server && tt_tls_has_proof(channel)) {
        (void)SSL_get_client_random(channel->tls, (unsigned char *)&channel->proof,
                                    sizeof channel->proof);
    }
    if (result != 1) {
        const int reason = SSL_get_error(channel->tls, result);
        channel->wants_write = reason == SSL_ERROR_WANT_WRITE;
        return reason == SSL_ERROR_WANT_READ || channel->wants_write
                   ? TUTTI_PENDING
                   : fail_handshake(channel, reason);
    }
    if (SSL_session_reused(channel->tls) != 1) { /* whatever it was, it was not by our key */
        return TT_FAIL(TUTTI_ERR_AUTH, "%s connected without the job's key", channel->peer);
    }
    channel->wants_write = false;
    if (channel->credentials->protect == TT_PROTECT_AUTH) {
        tt_tls_close(channel);
    } else {
        channel->stage = tt_alloc_raw(TT_TLS_RECORD_BYTES, "channel record");
        TT_TRY_ALLOC(channel->stage);
    }
    channel->state = TT_CHANNEL_OPEN;
    return TUTTI_OK;
}

/* Up to `most` bytes of the parts, from `skip` on, in one piece: where they lie if they are, else
 * copied into `stage`. *bytes (out) says how many. */
static const void *gather(const struct iovec *parts, int part_count, size_t skip, size_t most,
                          unsigned char *stage, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < part_count && *bytes < most; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        const char *from = (const char *)parts[i].iov_base + skip;
        const size_t left = parts[i].iov_len - skip, room = most - *bytes;
        skip = 0;
        if (*bytes == 0 && (left >= most || i == part_count - 1)) {
            *bytes = left < most ? left : most;
            return from;
        }
        memcpy(stage + *bytes, from, left < room ? left : room);
        *bytes += left < room ? left : room;
    }
    return stage;
}

/* A new key for what this side sends, before AES-GCM's limit for one key. OpenSSL sends the message
 * that says so with the next record, without a round trip; the other side reads it with its data,
 * and renews the key of its own direction by itself. Never while a record is held back: that one is
 * under the old key. Source: RFC 8446, 4.6.3 and 5.5. */
static tutti_status_t renew_key(tt_channel_t *channel)
{
    if (channel->key_records < channel->credentials->records_per_key || channel->is_held_back) {
        return TUTTI_OK;
    }
    if (SSL_key_update(channel->tls, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
        return fail_tls(TUTTI_ERR_IO, "renewing the key of a connection");
    }
    channel->key_records = 0;
    channel->renewals++;
    return TUTTI_OK;
}

/* One record; *n (out) 0: it is to be offered again. */
static tutti_status_t send_record(tt_channel_t *channel, const void *data, size_t bytes, size_t *n)
{
    *n = 0;
    ERR_clear_error();
    TT_TRY(renew_key(channel));
    const int result = SSL_write_ex(channel->tls, data, bytes, n);
    channel->is_held_back = result != 1;
    if (result == 1) {
        channel->key_records++;
        return TUTTI_OK;
    }
    *n = 0;
    const int reason = SSL_get_error(channel->tls, result);
    return reason == SSL_ERROR_WANT_WRITE || reason == SSL_ERROR_WANT_READ
               ? TUTTI_OK
               : fail_tls(TUTTI_ERR_PEER, "sending over TLS");
}

/* OpenSSL wants what it could not write offered again, in one piece and not less of it; callers may
 * cut the same bytes into other parts meanwhile. */
tutti_status_t tt_tls_send(tt_channel_t *channel, const struct iovec *parts, int part_count,
                           size_t *done)
{
    *done = 0;
    for (;;) {
        size_t bytes, n;
        const void *data =
            gather(parts, part_count, *done, TT_TLS_RECORD_BYTES, channel->stage, &bytes);
        if (bytes == 0) {
            return TUTTI_OK;
        }
        TT_TRY(send_record(channel, data, bytes, &n));
        if (n == 0) {
            return TUTTI_OK;
        }
        *done += n;
    }
}

tutti_status_t tt_tls_recv(tt_channel_t *channel, void *data, size_t bytes, size_t *done)
{
    *done = 0;
    while (*done < bytes) {
        size_t n = 0;
        ERR_clear_error();
        const int result = SSL_read_ex(channel->tls, (char *)data + *done, bytes - *done, &n);
        if (result != 1) {
            const int reason = SSL_get_error(channel->tls, result);
            if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE || *done > 0) {
                return TUTTI_OK;
            }
            return reason == SSL_ERROR_ZERO_RETURN ||
                           (reason == SSL_ERROR_SYSCALL && ERR_peek_error() == 0)
                       ? TT_FAIL(TUTTI_ERR_PEER, "%s closed the connection", channel->peer)
                       : fail_tls(TUTTI_ERR_PEER, "receiving over TLS");
        }
        *done += n;
    }
    return TUTTI_OK;
}
