/* A store's server among strangers, and among members that break the rules: those who have not the
 * key get nothing and cost next to nothing, the others lose their connection; the job goes on.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/net/channel_wait.h"
#include "comm/net/job_key_test.h"
#include "comm/store/store_message.h"
#include "comm/store/store_tcp.h"
#include "core/base/little_endian.h"
#include "core/base/rng.h"

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) < 0) {                                                                          \
            fail_msg("%s: %s", #call, tutti_last_error());                                         \
        }                                                                                          \
    } while (0)

enum { FLOOD = 1000, PATIENCE_MS = 10000 };

static const tt_job_key_t KEY = {{7}}, OTHER_KEY = {{8}};

static tt_deadline_t soon(void)
{
    return tt_deadline_in_ms(PATIENCE_MS);
}

static void expect_no_leaks(void)
{
    char report[400];
    if (tt_alloc_report(report, sizeof report) > 0) {
        fail_msg("leaks:\n%s", report);
    }
}

/* ---- a store with one member, whose value must outlive what happens ---- */

typedef struct {
    tt_credentials_t *credentials;
    tutti_store_t *server, *member;
    int port;
} job_t;

static job_t open_job(void)
{
    job_t job;
    CHECK_OK(tt_credentials_create(&KEY, 0, TT_PROTECT_AUTH, &job.credentials));
    CHECK_OK(tt_store_tcp_listen(NULL, 0, job.credentials, &job.server));
    job.port = tutti_store_port(job.server);
    CHECK_OK(tt_store_tcp_connect("127.0.0.1", job.port, job.credentials, 5000, &job.member));
    CHECK_OK(tutti_store_set(job.member, tutti_text("k"), tutti_text("mine")));
    return job;
}

static void expect_unharmed(const job_t *job)
{
    tutti_buffer_t value;
    CHECK_OK(tutti_store_get(job->member, tutti_text("k"), PATIENCE_MS, &value));
    assert_string_equal(value.data, "mine");
    tutti_buffer_release(&value);
}

static void close_job(job_t *job)
{
    tutti_store_release(job->member);
    tutti_store_release(job->server);
    tt_credentials_release(job->credentials);
    expect_no_leaks();
}

/* ---- raw connections ---- */

static int dial(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Whether the server ends the connection in time, whatever it says before. */
static bool is_dropped(int fd)
{
    char bytes[64];
    const tt_deadline_t deadline = soon();
    for (;;) {
        struct pollfd item = {.fd = fd, .events = POLLIN};
        if (poll(&item, 1, tt_deadline_left_ms(deadline)) != 1) {
            return false;
        }
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
            return true;
        }
    }
}

static void a_strangers_bytes_are_refused(void **state)
{
    (void)state;
    job_t job = open_job();
    const struct {
        const char *bytes;
        size_t count;
    } said[] = {{"GET / HTTP/1.1\r\n\r\n", 18},
                {"tutti store 1\n\0\0", 16},
                {"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10},
                {"\0\0\0\0\0\0\0\0", 8}};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        const int fd = dial(job.port);
        assert_int_equal(send(fd, said[i].bytes, said[i].count, 0), said[i].count);
        assert_true(is_dropped(fd));
        close(fd);
    }
    const tt_rng_t rng = tt_rng_stream(1, 2, 3, 4, 5);
    for (uint64_t round = 0; round < 200; round++) {
        uint8_t noise[300];
        for (size_t i = 0; i < sizeof noise; i++) {
            noise[i] = (uint8_t)tt_rng_u32(rng, round * sizeof noise + i);
        }
        const int fd = dial(job.port);
        (void)send(fd, noise, 1 + tt_rng_u32(rng, round) % sizeof noise, MSG_NOSIGNAL);
        close(fd);
    }
    expect_unharmed(&job);
    close_job(&job);
}

static void expect_refused(const job_t *job, const tt_job_key_t *key, uint32_t epoch,
                           tt_protect_t protect)
{
    tt_credentials_t *credentials;
    tutti_store_t *store;
    CHECK_OK(tt_credentials_create(key, epoch, protect, &credentials));
    const tutti_status_t status =
        tt_store_tcp_connect("127.0.0.1", job->port, credentials, 3000, &store);
    assert_true(status == TUTTI_ERR_AUTH || status == TUTTI_ERR_PEER ||
                status == TUTTI_ERR_MISMATCH);
    tt_credentials_release(credentials);
}

static void another_key_epoch_or_protection_is_refused(void **state)
{
    (void)state;
    job_t job = open_job();
    expect_refused(&job, &OTHER_KEY, 0, TT_PROTECT_AUTH);
    tt_expect_error("key");
    expect_refused(&job, &KEY, 1, TT_PROTECT_AUTH);
    expect_refused(&job, &KEY, 0, TT_PROTECT_ENCRYPT);
    expect_refused(&job, NULL, 0, TT_PROTECT_OFF);
    expect_unharmed(&job);
    close_job(&job);
}

static void without_a_key_there_is_no_store(void **state)
{
    (void)state;
    tutti_store_t *store;
    char *fd = strdup(getenv("TUTTI_KEY_FD"));
    unsetenv("TUTTI_KEY_FD");
    assert_int_equal(tutti_store_tcp_listen(NULL, 0, &store), TUTTI_ERR_AUTH);
    tt_expect_error("TUTTI_KEY_FILE");
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", 1, 10, &store), TUTTI_ERR_AUTH);
    setenv("TUTTI_PROTECT", "off", 1);
    CHECK_OK(tutti_store_tcp_listen(NULL, 0, &store));
    tutti_store_release(store);
    assert_int_equal(tutti_store_tcp_listen("192.0.2.1", 0, &store), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("TUTTI_PROTECT");
    setenv("TUTTI_PROTECT", "perhaps", 1);
    assert_int_equal(tutti_store_tcp_listen(NULL, 0, &store), TUTTI_ERR_ARG);
    unsetenv("TUTTI_PROTECT");
    setenv("TUTTI_KEY_FD", fd, 1);
    free(fd);
    assert_int_equal(tutti_store_tcp_listen("0.0.0.0", 0, &store), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_store_tcp_listen("::", 0, &store), TUTTI_ERR_UNSUPPORTED);
    expect_no_leaks();
}

/* What a member once said to get in, said again by somebody who listened. */
static void a_replayed_handshake_is_refused(void **state)
{
    (void)state;
    job_t job = open_job();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int ear = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(ear, (const struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(ear, 1), 0);
    getsockname(ear, (struct sockaddr *)&address, &bytes);
    tt_channel_t *channel;
    CHECK_OK(
        tt_channel_connect((const struct sockaddr *)&address, bytes, job.credentials, &channel));
    const int client = accept(ear, NULL, NULL), server = dial(job.port);
    uint8_t tape[16384], back[4096];
    size_t length = 0;
    tutti_status_t status = TUTTI_PENDING;
    for (const tt_deadline_t deadline = soon(); !tt_deadline_is_past(deadline);) {
        status = status == TUTTI_PENDING ? tt_channel_handshake(channel) : status;
        ssize_t n = recv(client, tape + length, sizeof tape - length, MSG_DONTWAIT);
        if (n > 0) {
            assert_int_equal(send(server, tape + length, (size_t)n, 0), n);
            length += (size_t)n;
        } else if (status == TUTTI_OK) {
            break;
        }
        n = recv(server, back, sizeof back, MSG_DONTWAIT);
        if (n > 0) {
            assert_int_equal(send(client, back, (size_t)n, 0), n);
        }
    }
    assert_int_equal(status, TUTTI_OK);
    const int again = dial(job.port);
    assert_int_equal(send(again, tape, length, 0), length);
    assert_true(is_dropped(again));
    expect_unharmed(&job);
    tt_channel_close(channel);
    close(again);
    close(client);
    close(server);
    close(ear);
    close_job(&job);
}

/* ---- a flood ---- */

static bool may_open(rlim_t files)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max > files ? files : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < files) {
        print_message("skipped: a process may open %llu files, this test wants %llu\n",
                      (unsigned long long)limit.rlim_cur, (unsigned long long)files);
    }
    return limit.rlim_cur >= files;
}

static void check_flood(int connections)
{
    job_t job = open_job();
    static int fds[3 * FLOOD];
    int64_t slowest = 0, sum = 0;
    for (int i = 0; i < connections; i++) {
        fds[i] = dial(job.port);
        if (i % 2 == 0) { /* half of them begin as if they were to go on */
            (void)send(fds[i], "\x16\x03\x01\x02\x00", 5, MSG_NOSIGNAL);
        }
        if (i % 10 == 0) {
            const int64_t start = tt_clock_ns();
            CHECK_OK(tutti_store_add(job.member, tutti_text("sum"), 1, &sum));
            const int64_t took = tt_clock_ns() - start;
            slowest = took > slowest ? took : slowest;
        }
    }
    assert_int_equal(sum, connections / 10);
    assert_true(slowest < 2 * TT_NS_PER_S);
    tutti_store_t *late; /* one more can join */
    CHECK_OK(tt_store_tcp_connect("127.0.0.1", job.port, job.credentials, PATIENCE_MS, &late));
    CHECK_OK(tutti_store_add(late, tutti_text("sum"), 0, &sum));
    tutti_store_release(late);
    expect_unharmed(&job);
    assert_true(is_dropped(fds[0])); /* at the latest after the handshake's 5 s */
    for (int i = 0; i < connections; i++) {
        close(fds[i]);
    }
    close_job(&job);
}

static void a_flood_of_half_open_connections_does_no_harm(void **state)
{
    (void)state;
    if (may_open(2 * FLOOD + 100)) {
        check_flood(FLOOD);
    }
}

/* More than the server keeps: the oldest are pushed out at once. */
static void a_larger_flood_does_no_harm(void **state)
{
    (void)state;
    if (may_open(3 * FLOOD + FLOOD + 100 + 200)) {
        const int64_t start = tt_clock_ns();
        check_flood(2 * FLOOD);
        assert_true(tt_clock_ns() - start < 20 * TT_NS_PER_S);
    }
}

/* The server has no descriptor left: strangers are pushed out, members stay, a member can join. */
static void a_server_out_of_descriptors_goes_on(void **state)
{
    (void)state;
    job_t job = open_job();
    struct rlimit before, limit;
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    int fds[200], count = 0;
    const int top = dial(job.port);
    limit.rlim_cur = (rlim_t)top + 60; /* server and strangers live in one process here */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (count < 200) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0) {
            break;
        }
        const struct sockaddr_in address = {.sin_family = AF_INET,
                                            .sin_port = htons((uint16_t)job.port),
                                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
        fds[count++] = fd;
    }
    expect_unharmed(&job);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    tutti_store_t *late;
    CHECK_OK(tt_store_tcp_connect("127.0.0.1", job.port, job.credentials, PATIENCE_MS, &late));
    tutti_store_release(late);
    for (int i = 0; i < count; i++) {
        close(fds[i]);
    }
    close(top);
    close_job(&job);
}

/* The C library's, counted. */
static _Atomic int accepts;

int accept4(int listener, __SOCKADDR_ARG address, socklen_t *bytes, int flags)
{
    accepts++;
    return (int)syscall(SYS_accept4, listener, address.__sockaddr__, bytes, flags);
}

/* Nobody can be pushed out: a connection waits until there is a descriptor, and nothing spins. */
static void a_server_without_descriptors_waits_for_one(void **state)
{
    enum { WAIT_MS = 300, OFTEN = 50 };
    (void)state;
    job_t job = open_job();
    struct rlimit before;
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)job.port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, before.rlim_max}), 0);
    const int first = accepts;
    assert_int_equal(connect(stranger, (const struct sockaddr *)&address, sizeof address), 0);
    tt_clock_sleep(WAIT_MS * TT_NS_PER_MS, TT_NEVER);
    assert_in_range(accepts - first, 1, OFTEN); /* thousands where it spins */
    expect_unharmed(&job);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    tutti_store_t *late;
    CHECK_OK(tt_store_tcp_connect("127.0.0.1", job.port, job.credentials, PATIENCE_MS, &late));
    tutti_store_release(late);
    close(stranger);
    close_job(&job);
}

/* ---- members that break the rules ---- */

static tt_channel_t *prove(const job_t *job)
{
    tt_addresses_t list;
    tt_channel_t *channel;
    CHECK_OK(tt_addresses_find("127.0.0.1", job->port, soon(), &list));
    CHECK_OK(tt_channel_connect((const struct sockaddr *)&list.address[0], list.bytes[0],
                                job->credentials, &channel));
    CHECK_OK(tt_channel_wait_open(channel, soon()));
    return channel;
}

/* The key alone is not enough. */
static void who_says_no_hello_loses_its_connection(void **state)
{
    (void)state;
    job_t job = open_job();
    char byte, wrong[TT_STORE_HELLO_BYTES] = "tutti store 0\n";
    tt_channel_t *silent = prove(&job), *other = prove(&job);
    CHECK_OK(tt_channel_send_all(other, wrong, sizeof wrong, soon()));
    assert_int_equal(tt_channel_recv_all(other, &byte, 1, soon()), TUTTI_ERR_PEER);
    assert_int_equal(tt_channel_recv_all(silent, &byte, 1, soon()), TUTTI_ERR_PEER);
    tt_channel_close(silent);
    tt_channel_close(other);
    expect_unharmed(&job);
    close_job(&job);
}

static tt_channel_t *join(const job_t *job)
{
    char hello[16] = "tutti store 1\n";
    tt_channel_t *channel = prove(job);
    CHECK_OK(tt_channel_send_all(channel, hello, sizeof hello, soon()));
    CHECK_OK(tt_channel_recv_all(channel, hello, sizeof hello, soon()));
    return channel;
}

/* Send a request of "set k v" with one field changed. */
static void expect_dropped(const job_t *job, size_t offset, uint32_t value)
{
    uint8_t frame[TT_STORE_REQUEST_HEAD + 10] = {0};
    char byte;
    tt_put_u32(frame, 10);
    frame[4] = TT_STORE_SET;
    tt_put_u32(frame + 8, 1);
    memcpy(frame + TT_STORE_REQUEST_HEAD, "\1\0\0\0k\1\0\0\0v", 10);
    tt_put_u32(frame + offset, value);
    tt_channel_t *channel = join(job);
    CHECK_OK(tt_channel_send_all(channel, frame, sizeof frame, soon()));
    if (tt_channel_recv_all(channel, &byte, 1, soon()) != TUTTI_ERR_PEER) {
        fail_msg("%u at offset %zu was taken", value, offset);
    }
    tt_channel_close(channel);
}

static void send_noise(const job_t *job, tt_rng_t rng, uint64_t round)
{
    uint8_t noise[300];
    for (size_t i = 0; i < sizeof noise; i++) {
        noise[i] = (uint8_t)tt_rng_u32(rng, round * sizeof noise + i);
    }
    if (round % 2 == 1) { /* a believable head before the noise */
        tt_put_u32(noise, tt_rng_u32(rng, round) % sizeof noise);
        tt_put_u32(noise + 4, 1 + tt_rng_u32(rng, round + 1) % 12);
        tt_put_u32(noise + 8, tt_rng_u32(rng, round + 2) % 4);
        memset(noise + 24, 0, 8);
    }
    tt_channel_t *channel = join(job);
    (void)tt_channel_send_all(channel, noise, 1 + tt_rng_u32(rng, round) % sizeof noise, soon());
    tt_channel_close(channel);
}

static void requests_that_are_none_end_their_connection(void **state)
{
    (void)state;
    job_t job = open_job();
    const size_t before = tt_alloc_stats().bytes;
    expect_dropped(&job, 0, UINT32_MAX); /* a body of 4 GiB */
    expect_dropped(&job, 0, TT_STORE_BODY_MAX + 1);
    expect_dropped(&job, 0, 9);                  /* shorter than its keys and values */
    expect_dropped(&job, 4, 0);                  /* no operation */
    expect_dropped(&job, 4, 77);                 /* none either */
    expect_dropped(&job, 4, TT_STORE_SET | 256); /* padding */
    expect_dropped(&job, 8, 0);                  /* no keys */
    expect_dropped(&job, 8, UINT32_MAX);         /* too many keys */
    expect_dropped(&job, 24, 1);                 /* padding */
    expect_dropped(&job, 32, UINT32_MAX);        /* a key that is longer than the body */
    expect_dropped(&job, 32, 0);                 /* and one that is too short */
    expect_dropped(&job, 37, 2);                 /* the same of the value */
    tt_channel_t *half = join(&job);             /* a large body that never comes */
    uint8_t head[TT_STORE_REQUEST_HEAD] = {0};
    tt_put_u32(head, TT_STORE_BODY_MAX);
    tt_put_u32(head + 4, TT_STORE_SET);
    tt_put_u32(head + 8, 1);
    CHECK_OK(tt_channel_send_all(half, head, sizeof head, soon()));
    const tt_rng_t rng = tt_rng_stream(1, 2, 3, 4, 5);
    for (uint64_t round = 0; round < 100; round++) {
        send_noise(&job, rng, round);
    }
    expect_unharmed(&job);
    assert_true(tt_alloc_stats().bytes < before + (1 << 20));
    tt_channel_close(half);
    close_job(&job);
}

/* Clients that die while they wait are forgotten: the server is as it was. */
static void a_client_that_dies_waiting_is_forgotten(void **state)
{
    (void)state;
    job_t job = open_job();
    const size_t before = tt_alloc_stats().blocks;
    uint8_t frame[TT_STORE_REQUEST_HEAD + 9] = {0};
    tt_put_u32(frame, 9);
    frame[4] = TT_STORE_WAIT;
    tt_put_u32(frame + 8, 1);
    tt_put_u32(frame + 12, 600000);
    memcpy(frame + TT_STORE_REQUEST_HEAD, "\5\0\0\0never", 9);
    for (int i = 0; i < 20; i++) {
        tt_channel_t *channel = join(&job);
        CHECK_OK(tt_channel_send_all(channel, frame, sizeof frame, soon()));
        tt_channel_close(channel);
    }
    const tt_deadline_t deadline = soon();
    while (tt_alloc_stats().blocks > before && !tt_deadline_is_past(deadline)) {
        nanosleep(&(struct timespec){.tv_nsec = TT_NS_PER_MS}, NULL);
    }
    assert_true(tt_alloc_stats().blocks <= before); /* a reply may have been under way before */
    close_job(&job);
}

/* ---- clients among strangers ---- */

static void *answer_nonsense(void *arg)
{
    const int *listener = arg;
    const int fd = accept(*listener, NULL, NULL);
    (void)send(fd, "220 mail.example\r\n", 18, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static int listen_somewhere(int *port)
{
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* A stranger that answers; one that listens and says nothing; nobody at all. */
static void a_client_tells_a_store_from_something_else(void **state)
{
    (void)state;
    tutti_store_t *store;
    pthread_t thread;
    int port;
    int listener = listen_somewhere(&port);
    const tutti_status_t wants[] = {TUTTI_ERR_AUTH, TUTTI_ERR_MISMATCH};
    for (int i = 0; i < 2; i++) {
        setenv("TUTTI_PROTECT", i == 0 ? "auth" : "off", 1);
        assert_int_equal(pthread_create(&thread, NULL, answer_nonsense, &listener), 0);
        assert_int_equal(tutti_store_tcp_connect("127.0.0.1", port, 5000, &store), wants[i]);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    tt_expect_error("no tutti store");
    unsetenv("TUTTI_PROTECT");
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", port, 100, &store), TUTTI_ERR_TIMEOUT);
    close(listener);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", port, 100, &store), TUTTI_ERR_TIMEOUT);
    tt_expect_error("refused");
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", 0, 100, &store), TUTTI_ERR_ARG);
    expect_no_leaks();
}

static void a_client_knows_its_own_address(void **state)
{
    (void)state;
    job_t job = open_job();
    char text[TT_ADDRESS_TEXT_BYTES];
    tutti_store_t *view, *hash;
    CHECK_OK(tutti_store_prefix(job.member, tutti_text("p"), &view));
    CHECK_OK(tt_store_local_address(view, text));
    assert_string_equal(text, "127.0.0.1");
    CHECK_OK(tt_store_local_address(job.server, text));
    assert_string_equal(text, "127.0.0.1");
    CHECK_OK(tutti_store_hash_create(&hash));
    assert_int_equal(tt_store_local_address(hash, text), TUTTI_ERR_UNSUPPORTED);
    tutti_store_release(hash);
    tutti_store_release(view);
    close_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strangers_bytes_are_refused),
        cmocka_unit_test(another_key_epoch_or_protection_is_refused),
        cmocka_unit_test(without_a_key_there_is_no_store),
        cmocka_unit_test(a_replayed_handshake_is_refused),
        cmocka_unit_test(a_flood_of_half_open_connections_does_no_harm),
        cmocka_unit_test(a_larger_flood_does_no_harm),
        cmocka_unit_test(a_server_out_of_descriptors_goes_on),
        cmocka_unit_test(a_server_without_descriptors_waits_for_one),
        cmocka_unit_test(who_says_no_hello_loses_its_connection),
        cmocka_unit_test(requests_that_are_none_end_their_connection),
        cmocka_unit_test(a_client_that_dies_waiting_is_forgotten),
        cmocka_unit_test(a_client_tells_a_store_from_something_else),
        cmocka_unit_test(a_client_knows_its_own_address),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
