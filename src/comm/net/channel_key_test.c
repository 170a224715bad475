/* Keys of an encrypted channel are renewed under load: both ends send and receive at the same time,
 * through small buffers, so that records are held back everywhere. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "comm/net/channel_impl.h"
#include "comm/net/channel_wait.h"
#include "core/base/testing.h"

enum { PATIENCE_MS = 30000, BUFFER_BYTES = 65536 };

static const tt_job_key_t KEY = {{3, 1, 4}};

typedef struct {
    tt_channel_t *channel;
    size_t bytes; /* to send, and to receive */
    const char *failure;
} end_t;

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 7 + i / 251);
}

static bool open_end(end_t *end)
{
    const int small = BUFFER_BYTES;
    if (tt_channel_wait_open(end->channel, tt_deadline_in_ms(PATIENCE_MS)) < 0) {
        return false;
    }
    setsockopt(tt_channel_fd(end->channel), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(tt_channel_fd(end->channel), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    return true;
}

/* Never fewer than was offered before. */
static bool step_send(const end_t *end, size_t *at)
{
    static _Thread_local unsigned char data[70000];
    const size_t left = end->bytes - *at;
    const struct iovec part = {data, left < sizeof data ? left : sizeof data};
    size_t done = 0;
    for (size_t i = 0; i < part.iov_len; i++) {
        data[i] = byte_at(*at + i);
    }
    if (left > 0 && tt_channel_send(end->channel, &part, 1, &done) < 0) {
        return false;
    }
    *at += done;
    return true;
}

static bool step_receive(const end_t *end, size_t *at)
{
    static _Thread_local unsigned char data[50000];
    size_t done, left = end->bytes - *at;
    if (tt_channel_recv(end->channel, data, left < sizeof data ? left : sizeof data, &done) < 0) {
        return false;
    }
    for (size_t i = 0; i < done; i++) {
        if (data[i] != byte_at(*at + i)) {
            return false;
        }
    }
    *at += done;
    return true;
}

static void *exchange(void *user)
{
    end_t *end = user;
    const tt_deadline_t deadline = tt_deadline_in_ms(PATIENCE_MS);
    size_t sent = 0, got = 0;
    end->failure = open_end(end) ? NULL : "no handshake";
    while (end->failure == NULL && (sent < end->bytes || got < end->bytes)) {
        const size_t before = sent + got;
        if (!step_send(end, &sent) || !step_receive(end, &got)) {
            end->failure = "sending or receiving";
        }
        if (sent + got == before && !tt_channel_has_more(end->channel)) {
            struct pollfd item = {.fd = tt_channel_fd(end->channel),
                                  .events = (short)(POLLIN | (sent < end->bytes ? POLLOUT : 0))};
            poll(&item, 1, 100);
        }
        end->failure = tt_deadline_is_past(deadline) ? "no end" : end->failure;
    }
    return NULL;
}

static void connect_ends(tt_credentials_t *credentials, end_t ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    assert_int_equal(tt_channel_connect((const struct sockaddr *)&address, sizeof address,
                                        credentials, &ends[0].channel),
                     TUTTI_OK);
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_int_equal(tt_channel_accept(fd, credentials, &ends[1].channel), TUTTI_OK);
    close(listener);
}

/* Returns how often the first end's key was renewed. */
static uint64_t run_exchange(uint64_t records_per_key, size_t bytes)
{
    pthread_t threads[2];
    tt_credentials_t *credentials;
    end_t ends[2] = {{.bytes = bytes}, {.bytes = bytes}};
    assert_int_equal(tt_credentials_create(&KEY, 0, TT_PROTECT_ENCRYPT, &credentials), TUTTI_OK);
    if (records_per_key > 0) {
        tt_credentials_set_records_per_key(credentials, records_per_key);
    }
    connect_ends(credentials, ends);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, &ends[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_ptr_equal(ends[i].failure, NULL);
    }
    const uint64_t renewals = ends[0].channel->renewals;
    assert_int_equal(renewals > 0, ends[1].channel->renewals > 0);
    tt_channel_close(ends[0].channel);
    tt_channel_close(ends[1].channel);
    tt_credentials_release(credentials);
    return renewals;
}

static void keys_are_renewed_hundreds_of_times_under_load(void **state)
{
    (void)state;
    assert_true(run_exchange(5, 16 << 20) >= 200); /* 1,024 full records at least */
}

static void a_key_for_each_record_is_possible(void **state)
{
    (void)state;
    assert_true(run_exchange(1, 4 << 20) >= 256);
}

/* 2^23 records hold up to 128 GiB, a third of what AES-GCM allows. */
static void a_key_is_kept_for_long_otherwise(void **state)
{
    (void)state;
    assert_int_equal(TT_RECORDS_PER_KEY, 8388608);
    assert_int_equal(run_exchange(0, 1 << 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_renewed_hundreds_of_times_under_load),
        cmocka_unit_test(a_key_for_each_record_is_possible),
        cmocka_unit_test(a_key_is_kept_for_long_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
