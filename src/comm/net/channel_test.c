/* Channels: both ends in one thread. Keys, epochs and protections that fit and that do not,
 * strangers, silence, replay, bytes that are changed on the way, long streams in odd pieces. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "comm/net/channel.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/base/testing.h"

static const tt_job_key_t KEY = {{1, 2, 3}}, OTHER_KEY = {{1, 2, 4}};

typedef struct {
    int listener;
    struct sockaddr_in address;
} listen_info_t;

static listen_info_t open_listener(void)
{
    listen_info_t listen_info = {
        .address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof listen_info.address;
    listen_info.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(
        bind(listen_info.listener, (const struct sockaddr *)&listen_info.address, bytes), 0);
    assert_int_equal(listen(listen_info.listener, 8), 0);
    getsockname(listen_info.listener, (struct sockaddr *)&listen_info.address, &bytes);
    return listen_info;
}

static int enter(const listen_info_t *listen_info)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)&listen_info->address, sizeof listen_info->address),
        0);
    return fd;
}

static int answer(const listen_info_t *listen_info)
{
    const int fd = accept4(listen_info->listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

typedef struct {
    tt_channel_t *client, *server;
    tutti_status_t client_status, server_status;
} pair_t;

static tt_credentials_t *credentials(const tt_job_key_t *key, uint32_t epoch, tt_protect_t protect)
{
    tt_credentials_t *out;
    assert_int_equal(tt_credentials_create(key, epoch, protect, &out), TUTTI_OK);
    return out;
}

/* Both sides until neither is pending, or one has failed and the other had its chance to see it. */
static void shake(pair_t *pair)
{
    for (int i = 0; i < 2000; i++) {
        if (pair->client_status == TUTTI_PENDING) {
            pair->client_status = tt_channel_handshake(pair->client);
        }
        if (pair->server_status == TUTTI_PENDING) {
            pair->server_status = tt_channel_handshake(pair->server);
        }
        if (pair->client_status != TUTTI_PENDING && pair->server_status != TUTTI_PENDING) {
            return;
        }
        if (pair->server_status < 0 || pair->client_status < 0) {
            tt_channel_close(pair->server_status < 0 ? pair->server : pair->client);
            *(pair->server_status < 0 ? &pair->server : &pair->client) = NULL;
        }
        usleep(500);
    }
    fail_msg("no end");
}

static pair_t open_pair(tt_credentials_t *client, tt_credentials_t *server)
{
    const listen_info_t listen_info = open_listener();
    pair_t pair = {.client_status = TUTTI_PENDING, .server_status = TUTTI_PENDING};
    assert_int_equal(tt_channel_connect((const struct sockaddr *)&listen_info.address,
                                        sizeof listen_info.address, client, &pair.client),
                     TUTTI_OK);
    assert_int_equal(tt_channel_accept(answer(&listen_info), server, &pair.server), TUTTI_OK);
    close(listen_info.listener);
    shake(&pair);
    tt_credentials_release(client);
    tt_credentials_release(server);
    return pair;
}

static void close_pair(pair_t *pair)
{
    tt_channel_close(pair->client);
    tt_channel_close(pair->server);
}

static int option_of(const tt_channel_t *channel, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    assert_int_equal(getsockopt(tt_channel_fd(channel), IPPROTO_TCP, name, &value, &bytes), 0);
    return value;
}

static void a_silent_host_is_found_within_five_seconds_by_both_ends(void **state)
{
    (void)state;
    pair_t pair = open_pair(credentials(&KEY, 7, TT_PROTECT_ENCRYPT),
                            credentials(&KEY, 7, TT_PROTECT_ENCRYPT));
    const tt_channel_t *ends[] = {pair.client, pair.server};
    for (int i = 0; i < 2; i++) {
        int is_on = 0;
        socklen_t bytes = sizeof is_on;
        const int fd = tt_channel_fd(ends[i]);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &is_on, &bytes), 0);
        assert_true(is_on);
        assert_int_equal(option_of(ends[i], TCP_KEEPIDLE), 1);
        assert_int_equal(option_of(ends[i], TCP_KEEPINTVL), 1);
        assert_int_equal(option_of(ends[i], TCP_KEEPCNT), 4);
        assert_int_equal(option_of(ends[i], TCP_NODELAY), 1);
    }
    close_pair(&pair);
}

/* Whom errors name: the other end's address and port. */
static void each_end_names_the_other(void **state)
{
    (void)state;
    pair_t pair = open_pair(credentials(&KEY, 7, TT_PROTECT_ENCRYPT),
                            credentials(&KEY, 7, TT_PROTECT_ENCRYPT));
    const tt_channel_t *ends[] = {pair.client, pair.server};
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in own;
        socklen_t bytes = sizeof own;
        char name[40];
        assert_int_equal(getsockname(tt_channel_fd(ends[!i]), (struct sockaddr *)&own, &bytes), 0);
        snprintf(name, sizeof name, "127.0.0.1:%d", ntohs(own.sin_port));
        assert_string_equal(tt_channel_peer(ends[i]), name);
    }
    close_pair(&pair);
}

/* `bytes` from one to the other, in pieces of odd lengths. */
static void stream(tt_channel_t *from, tt_channel_t *to, size_t bytes)
{
    unsigned char *sent = tt_alloc(bytes, "test"), *got = tt_alloc(bytes, "test");
    const tt_rng_t rng = tt_rng_stream(5, 0, 0, 0, 0);
    for (size_t i = 0; i < bytes; i++) {
        sent[i] = (unsigned char)(i * 7 + i / 251);
    }
    size_t out = 0, in = 0;
    for (uint64_t turn = 0; in < bytes; turn++) {
        const size_t left = bytes - out;
        const size_t head = left < 100 ? left : 100;
        const struct iovec parts[] = {{sent + out, head}, {sent + out + head, left - head}};
        size_t done = 0;
        if (left > 0) {
            assert_int_equal(tt_channel_send(from, parts, left > head ? 2 : 1, &done), TUTTI_OK);
        }
        out += done;
        size_t want = 1 + tt_rng_below(rng, turn, 300000);
        want = want < bytes - in ? want : bytes - in;
        assert_int_equal(tt_channel_recv(to, got + in, want, &done), TUTTI_OK);
        in += done;
    }
    assert_memory_equal(sent, got, bytes);
    tt_free(sent);
    tt_free(got);
}

static void data_passes_both_ways_under_every_protection(void **state)
{
    (void)state;
    const tt_protect_t all[] = {TT_PROTECT_ENCRYPT, TT_PROTECT_AUTH, TT_PROTECT_OFF};
    for (int i = 0; i < 3; i++) {
        pair_t pair = open_pair(credentials(&KEY, 3, all[i]), credentials(&KEY, 3, all[i]));
        assert_int_equal(pair.client_status, TUTTI_OK);
        assert_int_equal(pair.server_status, TUTTI_OK);
        stream(pair.client, pair.server, 3000001);
        stream(pair.server, pair.client, 1);
        stream(pair.server, pair.client, 500000);
        stream(pair.client, pair.server, 17);
        close_pair(&pair);
    }
}

static void limit_buffers(const tt_channel_t *channel)
{
    const int fd = tt_channel_fd(channel);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){4608}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){32768}, sizeof(int));
}

static void long_streams_fit_through_small_buffers(void **state)
{
    (void)state;
    const tt_protect_t all[] = {TT_PROTECT_ENCRYPT, TT_PROTECT_AUTH, TT_PROTECT_OFF};
    for (int i = 0; i < 3; i++) {
        pair_t pair = open_pair(credentials(&KEY, 3, all[i]), credentials(&KEY, 3, all[i]));
        limit_buffers(pair.client);
        limit_buffers(pair.server);
        stream(pair.client, pair.server, TT_RECORD_BYTES_MAX + 70003);
        stream(pair.server, pair.client, 100001);
        close_pair(&pair);
    }
}

/* Reads take several records at once and guess how long they are: short ones among long ones, read
 * in pieces that end anywhere. */
static void records_of_all_lengths_are_read_together(void **state)
{
    (void)state;
    enum { BYTES = 4 * TT_RECORD_BYTES_MAX };
    unsigned char *data = tt_alloc(BYTES, "test"), *got = tt_alloc(BYTES, "test");
    const tt_rng_t rng = tt_rng_stream(9, 0, 0, 0, 0);
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)(i * 13 + i / 239);
    }
    pair_t pair =
        open_pair(credentials(NULL, 0, TT_PROTECT_OFF), credentials(NULL, 0, TT_PROTECT_OFF));
    size_t out = 0, in = 0, done;
    for (uint64_t turn = 0; in < BYTES; turn += 4) {
        for (uint64_t i = 0; i < 3 && out < BYTES; i++) { /* some, then a read of them all */
            const size_t most =
                tt_rng_below(rng, turn + i, 9) == 0 ? TT_RECORD_BYTES_MAX * 5 / 4 : 300;
            const size_t want = 1 + tt_rng_below(rng, turn + i, (uint32_t)most);
            const struct iovec part = {data + out, want < BYTES - out ? want : BYTES - out};
            assert_int_equal(tt_channel_send(pair.client, &part, 1, &done), TUTTI_OK);
            out += done;
            if (done < part.iov_len) {
                break;
            }
        }
        const size_t want = 1 + tt_rng_below(rng, turn + 3, 3 * TT_RECORD_BYTES_MAX);
        assert_int_equal(
            tt_channel_recv(pair.server, got + in, want < BYTES - in ? want : BYTES - in, &done),
            TUTTI_OK);
        in += done;
        assert_memory_equal(data, got, in);
    }
    close_pair(&pair);
    tt_free(data);
    tt_free(got);
}

/* Until the other side reads nothing goes any more; then the rest comes in other pieces. */
static void what_is_offered_again_may_be_cut_otherwise(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20, PIECE = 10000 };
    const tt_protect_t all[] = {TT_PROTECT_ENCRYPT, TT_PROTECT_AUTH, TT_PROTECT_OFF};
    unsigned char *data = tt_alloc(BYTES, "test"), *got = tt_alloc(BYTES, "test");
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)(i * 11 + i / 253);
    }
    for (int i = 0; i < 3; i++) {
        pair_t pair = open_pair(credentials(&KEY, 3, all[i]), credentials(&KEY, 3, all[i]));
        size_t sent = 0, in = 0, done = 1;
        while (done > 0) {
            const struct iovec piece = {data + sent, PIECE};
            assert_int_equal(tt_channel_send(pair.client, &piece, 1, &done), TUTTI_OK);
            sent += done;
            assert_true(sent < BYTES - 4 * PIECE);
        }
        const size_t end = sent + 3 * PIECE;
        while (in < end) {
            const struct iovec parts[] = {{data + sent, sent < end ? 1 : 0},
                                          {data + sent + 1, sent < end ? end - sent - 1 : 0}};
            assert_int_equal(tt_channel_send(pair.client, parts, 2, &done), TUTTI_OK);
            sent += done;
            assert_int_equal(tt_channel_recv(pair.server, got + in, end - in, &done), TUTTI_OK);
            in += done;
        }
        assert_int_equal(sent, end);
        assert_memory_equal(data, got, end);
        close_pair(&pair);
    }
    tt_free(data);
    tt_free(got);
}

/* In the middle of a record, and behind one. */
static void a_peer_that_goes_is_noticed(void **state)
{
    (void)state;
    const tt_protect_t all[] = {TT_PROTECT_ENCRYPT, TT_PROTECT_AUTH, TT_PROTECT_OFF};
    static char data[400000];
    for (int i = 0; i < 6; i++) {
        pair_t pair = open_pair(credentials(&KEY, 3, all[i / 2]), credentials(&KEY, 3, all[i / 2]));
        const size_t bytes = i % 2 == 0 ? sizeof data : 10;
        size_t sent = 0, got = 0, done;
        limit_buffers(pair.client);
        for (int tries = 0; tries < 3 && sent < bytes; tries++, sent += done) {
            const struct iovec part = {data, bytes - sent};
            assert_int_equal(tt_channel_send(pair.client, &part, 1, &done), TUTTI_OK);
        }
        tt_channel_close(pair.client);
        tutti_status_t status = TUTTI_OK;
        for (int turn = 0; status == TUTTI_OK && turn < 100000; turn++, got += done) {
            done = 0;
            status = tt_channel_recv(pair.server, data, sizeof data, &done);
        }
        assert_int_equal(status, TUTTI_ERR_PEER);
        assert_true(got <= sent && (sent < bytes || got == bytes));
        tt_channel_close(pair.server);
    }
}

static void without_a_key_there_are_no_credentials(void **state)
{
    (void)state;
    tt_credentials_t *out;
    unsetenv("TUTTI_KEY_FD");
    unsetenv("TUTTI_KEY_FILE");
    unsetenv("TUTTI_PROTECT");
    assert_int_equal(tt_credentials_find("127.0.0.1", 0, &out), TUTTI_ERR_AUTH);
    tt_expect_error("tutti key");
    const struct {
        const char *address;
        tt_protect_t want;
    } chosen[] = {{NULL, TT_PROTECT_AUTH},          {"localhost", TT_PROTECT_AUTH},
                  {"127.3.2.1", TT_PROTECT_AUTH},   {"::1", TT_PROTECT_AUTH},
                  {"10.0.0.1", TT_PROTECT_ENCRYPT}, {"node7", TT_PROTECT_ENCRYPT}};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        assert_int_equal(tt_credentials_choose(&KEY, chosen[i].address, 0, &out), TUTTI_OK);
        assert_int_equal(tt_credentials_protect(out), chosen[i].want);
        tt_credentials_release(out);
    }
}

/* ---- a server that has no key, but a certificate --------------------------------------------- */

static SSL_CTX *make_certified(void)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    assert_non_null(tls);
    assert_non_null(pair);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, pair);
    assert_true(X509_sign(certificate, pair, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(tls, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(tls, pair), 1);
    X509_free(certificate);
    EVP_PKEY_free(pair);
    return tls;
}

static void a_certificate_is_no_key(void **state)
{
    (void)state;
    SSL_CTX *context = make_certified();
    const listen_info_t listen_info = open_listener();
    tt_credentials_t *client = credentials(&KEY, 0, TT_PROTECT_AUTH);
    tt_channel_t *channel;
    assert_int_equal(tt_channel_connect((const struct sockaddr *)&listen_info.address,
                                        sizeof listen_info.address, client, &channel),
                     TUTTI_OK);
    const int fd = answer(&listen_info);
    SSL *server = SSL_new(context);
    SSL_set_fd(server, fd);
    tutti_status_t status = TUTTI_PENDING;
    for (int i = 0; i < 2000 && status == TUTTI_PENDING; i++) {
        SSL_accept(server);
        status = tt_channel_handshake(channel);
        usleep(200);
    }
    assert_int_equal(status, TUTTI_ERR_AUTH);
    tt_expect_error("without the job's key");
    tt_channel_close(channel);
    SSL_free(server);
    SSL_CTX_free(context);
    close(fd);
    close(listen_info.listener);
    tt_credentials_release(client);
}

static void expect_refused(tt_credentials_t *client, tt_credentials_t *server)
{
    pair_t pair = open_pair(client, server);
    assert_true(pair.client_status < 0 && pair.server_status < 0);
    assert_true(pair.server_status == TUTTI_ERR_AUTH || pair.client_status == TUTTI_ERR_AUTH);
    close_pair(&pair);
}

static void another_key_epoch_or_protection_is_refused(void **state)
{
    (void)state;
    expect_refused(credentials(&OTHER_KEY, 3, TT_PROTECT_AUTH),
                   credentials(&KEY, 3, TT_PROTECT_AUTH));
    expect_refused(credentials(&KEY, 2, TT_PROTECT_AUTH), credentials(&KEY, 3, TT_PROTECT_AUTH));
    expect_refused(credentials(&KEY, 3, TT_PROTECT_AUTH), credentials(&KEY, 3, TT_PROTECT_ENCRYPT));
    assert_int_equal(tt_credentials_create(NULL, 0, TT_PROTECT_AUTH, &(tt_credentials_t *){NULL}),
                     TUTTI_ERR_ARG);
}

static tutti_status_t shake_server(tt_channel_t *server)
{
    tutti_status_t status = TUTTI_PENDING;
    for (int i = 0; i < 2000 && status == TUTTI_PENDING; i++) {
        status = tt_channel_handshake(server);
        usleep(200);
    }
    return status;
}

static void strangers_bytes_are_refused(void **state)
{
    (void)state;
    const char *const texts[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff garbage",
                                 "\0\0\0\0\0\0\0\0\0\0\0\0"};
    tt_credentials_t *server = credentials(&KEY, 0, TT_PROTECT_AUTH);
    const listen_info_t listen_info = open_listener();
    for (int i = 0; i < 3; i++) {
        tt_channel_t *channel;
        const int fd = enter(&listen_info);
        assert_int_equal(write(fd, texts[i], i == 2 ? 12 : strlen(texts[i])),
                         i == 2 ? 12 : strlen(texts[i]));
        assert_int_equal(tt_channel_accept(answer(&listen_info), server, &channel), TUTTI_OK);
        tt_channel_set_deadline(channel, tt_deadline_in_ms(200));
        assert_true(shake_server(channel) < 0);
        tt_channel_close(channel);
        close(fd);
    }
    close(listen_info.listener);
    tt_credentials_release(server);
}

static void a_silent_connection_is_dropped_at_its_deadline(void **state)
{
    (void)state;
    tt_credentials_t *server = credentials(&KEY, 0, TT_PROTECT_AUTH);
    const listen_info_t listen_info = open_listener();
    tt_channel_t *channel;
    const int fd = enter(&listen_info);
    assert_int_equal(tt_channel_accept(answer(&listen_info), server, &channel), TUTTI_OK);
    tt_channel_set_deadline(channel, tt_deadline_in_ms(30));
    assert_int_equal(shake_server(channel), TUTTI_ERR_TIMEOUT);
    tt_channel_close(channel);
    close(fd);
    close(listen_info.listener);
    tt_credentials_release(server);
}

/* What a client once sent, sent again: the server's fresh keys do not fit it. */
static void a_replayed_handshake_is_refused(void **state)
{
    (void)state;
    tt_credentials_t *both = credentials(&KEY, 0, TT_PROTECT_AUTH);
    const listen_info_t listen_info = open_listener(), proxy = open_listener();
    unsigned char tape[65536];
    size_t length = 0;
    pair_t pair = {.client_status = TUTTI_PENDING, .server_status = TUTTI_PENDING};
    assert_int_equal(tt_channel_connect((const struct sockaddr *)&proxy.address,
                                        sizeof proxy.address, both, &pair.client),
                     TUTTI_OK);
    const int client_end = answer(&proxy), server_end = enter(&listen_info);
    assert_int_equal(tt_channel_accept(answer(&listen_info), both, &pair.server), TUTTI_OK);
    while (pair.client_status == TUTTI_PENDING || pair.server_status == TUTTI_PENDING) {
        unsigned char back[4096];
        ssize_t n = recv(client_end, tape + length, sizeof tape - length, MSG_DONTWAIT);
        if (n > 0) {
            assert_int_equal(send(server_end, tape + length, (size_t)n, 0), n);
            length += (size_t)n;
        }
        n = recv(server_end, back, sizeof back, MSG_DONTWAIT);
        if (n > 0) {
            assert_int_equal(send(client_end, back, (size_t)n, 0), n);
        }
        pair.client_status = pair.client_status == TUTTI_PENDING ? tt_channel_handshake(pair.client)
                                                                 : pair.client_status;
        pair.server_status = pair.server_status == TUTTI_PENDING ? tt_channel_handshake(pair.server)
                                                                 : pair.server_status;
    }
    assert_int_equal(pair.server_status, TUTTI_OK);
    close_pair(&pair);
    tt_channel_t *victim;
    const int replay = enter(&listen_info);
    assert_int_equal(send(replay, tape, length, 0), length);
    assert_int_equal(tt_channel_accept(answer(&listen_info), both, &victim), TUTTI_OK);
    assert_int_equal(shake_server(victim), TUTTI_ERR_AUTH);
    tt_channel_close(victim);
    close(replay);
    close(client_end);
    close(server_end);
    close(listen_info.listener);
    close(proxy.listener);
    tt_credentials_release(both);
}

/* Raw bytes into the server's end of an `off` channel. */
static tutti_status_t recv_raw(const void *raw, size_t bytes, void *data, size_t want)
{
    tt_credentials_t *server = credentials(NULL, 0, TT_PROTECT_OFF);
    const listen_info_t listen_info = open_listener();
    tt_channel_t *channel;
    const int fd = enter(&listen_info);
    assert_int_equal(write(fd, raw, bytes), bytes);
    close(fd);
    assert_int_equal(tt_channel_accept(answer(&listen_info), server, &channel), TUTTI_OK);
    assert_int_equal(tt_channel_handshake(channel), TUTTI_OK);
    tutti_status_t status = TUTTI_OK;
    for (size_t done = 0, part = 0; done < want && status == TUTTI_OK; done += part) {
        status = tt_channel_recv(channel, (char *)data + done, want - done, &part);
    }
    tt_channel_close(channel);
    close(listen_info.listener);
    tt_credentials_release(server);
    return status;
}

static void changed_bytes_are_found(void **state)
{
    (void)state;
    unsigned char raw[] = {9,   0,   0,   0,   0x83, 0x92, 0x06, 0xe3, '1',
                           '2', '3', '4', '5', '6',  '7',  '8',  '9'};
    char data[16] = "";
    assert_int_equal(recv_raw(raw, sizeof raw, data, 9), TUTTI_OK);
    assert_memory_equal(data, "123456789", 9);
    /* A bad record behind a good one: the good one comes, then the fault. */
    unsigned char twice[2 * sizeof raw];
    memcpy(twice, raw, sizeof raw);
    memcpy(twice + sizeof raw, raw, sizeof raw);
    twice[sizeof twice - 1] ^= 1;
    char both[18] = "";
    assert_int_equal(recv_raw(twice, sizeof twice, both, 9), TUTTI_OK);
    assert_int_equal(recv_raw(twice, sizeof twice, both, 18), TUTTI_ERR_FORMAT);
    assert_memory_equal(both, "123456789", 9);
    raw[10] ^= 1;
    assert_int_equal(recv_raw(raw, sizeof raw, data, 9), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "changed on the way"));
    raw[2] = 9; /* longer than any record */
    assert_int_equal(recv_raw(raw, sizeof raw, data, 9), TUTTI_ERR_FORMAT);
    assert_int_equal(recv_raw("\0\0\0\0\0\0\0\0", 8, data, 1), TUTTI_ERR_FORMAT);
    assert_int_equal(recv_raw("\5\0\0", 3, data, 1), TUTTI_ERR_PEER);
}

static void a_refused_connection_is_a_peer_error(void **state)
{
    (void)state;
    listen_info_t listen_info = open_listener();
    close(listen_info.listener);
    tt_credentials_t *client = credentials(&KEY, 0, TT_PROTECT_AUTH);
    tt_channel_t *channel;
    tutti_status_t status = tt_channel_connect((const struct sockaddr *)&listen_info.address,
                                               sizeof listen_info.address, client, &channel);
    for (int i = 0; i < 1000 && status >= 0; i++) {
        status = tt_channel_handshake(channel);
        if (status < 0) {
            tt_channel_close(channel);
        }
    }
    assert_int_equal(status, TUTTI_ERR_PEER);
    tt_credentials_release(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_end_names_the_other),
        cmocka_unit_test(a_silent_host_is_found_within_five_seconds_by_both_ends),
        cmocka_unit_test(data_passes_both_ways_under_every_protection),
        cmocka_unit_test(long_streams_fit_through_small_buffers),
        cmocka_unit_test(records_of_all_lengths_are_read_together),
        cmocka_unit_test(what_is_offered_again_may_be_cut_otherwise),
        cmocka_unit_test(a_peer_that_goes_is_noticed),
        cmocka_unit_test(without_a_key_there_are_no_credentials),
        cmocka_unit_test(a_certificate_is_no_key),
        cmocka_unit_test(another_key_epoch_or_protection_is_refused),
        cmocka_unit_test(strangers_bytes_are_refused),
        cmocka_unit_test(a_silent_connection_is_dropped_at_its_deadline),
        cmocka_unit_test(a_replayed_handshake_is_refused),
        cmocka_unit_test(changed_bytes_are_found),
        cmocka_unit_test(a_refused_connection_is_a_peer_error),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
