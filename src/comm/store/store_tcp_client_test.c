/* The deadlines of a tcp store's client: a server that answers nothing costs no more than the time
 * that the call was given. The server is a process that is stopped. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/net/job_key_test.h"
#include "comm/net/strangers_test.h"
#include "comm/store/store_ops.h"
#include "core/base/clock.h"

enum { TIMEOUT_MS = 300, GUARD_MS = 1500, PATIENCE_MS = 10000 };

typedef struct {
    pid_t process;
    int port;
} server_t;

static server_t start_server(void)
{
    int told[2];
    server_t server;
    assert_int_equal(pipe(told), 0);
    server.process = fork();
    if (server.process == 0) {
        tutti_store_t *store;
        alarm(60);
        if (tutti_store_tcp_listen(NULL, 0, &store) == TUTTI_OK) {
            const int port = tutti_store_port(store);
            (void)!write(told[1], &port, sizeof port);
        }
        pause();
        _exit(0);
    }
    assert_int_equal(read(told[0], &server.port, sizeof server.port), sizeof server.port);
    close(told[0]);
    close(told[1]);
    return server;
}

static void end_server(const server_t *server)
{
    kill(server->process, SIGKILL);
    assert_int_equal(waitpid(server->process, NULL, 0), server->process);
}

static void stop_server(const server_t *server)
{
    int status;
    kill(server->process, SIGSTOP);
    assert_int_equal(waitpid(server->process, &status, WUNTRACED), server->process);
}

static void a_server_that_does_not_answer_costs_the_timeout_only(void **state)
{
    (void)state;
    const server_t server = start_server();
    tutti_store_t *store;
    tutti_buffer_t value;
    bool is_there;
    const tutti_bytes_t key = tutti_text("k");
    assert_int_equal(tutti_store_tcp_connect("localhost", server.port, PATIENCE_MS, &store),
                     TUTTI_OK);
    assert_int_equal(tutti_store_set(store, key, key), TUTTI_OK);
    assert_int_equal(tutti_store_set_timeout(store, TIMEOUT_MS), TUTTI_OK);
    stop_server(&server);
    int64_t start_ns = tt_clock_ns();
    assert_int_equal(tutti_store_get(store, key, 0, &value), TUTTI_ERR_TIMEOUT);
    assert_in_range((tt_clock_ns() - start_ns) / TT_NS_PER_MS, TIMEOUT_MS, GUARD_MS);
    tt_expect_error("does not answer");
    start_ns = tt_clock_ns(); /* that answer would come first */
    assert_int_equal(tutti_store_check(store, &key, 1, &is_there), TUTTI_ERR_TIMEOUT);
    assert_in_range((tt_clock_ns() - start_ns) / TT_NS_PER_MS, TIMEOUT_MS, GUARD_MS);
    kill(server.process, SIGCONT);
    assert_int_equal(tutti_store_get(store, key, PATIENCE_MS, &value), TUTTI_OK);
    tutti_buffer_release(&value);
    tutti_store_release(store);
    end_server(&server);
}

static bool is_connected_to(int fd, int port)
{
    struct sockaddr_in peer = {0};
    return getpeername(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof peer}) == 0 &&
           ntohs(peer.sin_port) == port;
}

/* This end's port of the one connection to a server. */
static int own_port(int port)
{
    struct sockaddr_in own = {0};
    int count = 0;
    for (int fd = 3; fd < 256; fd++) {
        if (is_connected_to(fd, port)) {
            count++;
            assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &(socklen_t){sizeof own}), 0);
        }
    }
    assert_int_equal(count, 1);
    return ntohs(own.sin_port);
}

/* A client that waits in slices asks again and again while a server has much to do: on one
 * connection. */
static void late_answers_are_left_to_the_next_call(void **state)
{
    enum { SLICE_MS = 5, CALLS = 5 };
    (void)state;
    const server_t server = start_server();
    tutti_store_t *store;
    tutti_buffer_t value;
    const tutti_bytes_t key = tutti_text("k"), text = tutti_text("value");
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &store), 0);
    assert_int_equal(tutti_store_set(store, key, text), TUTTI_OK);
    const int connected_from = own_port(server.port);
    stop_server(&server);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(tutti_store_get(store, tutti_text("missing"), SLICE_MS, &value),
                         TUTTI_ERR_TIMEOUT);
    }
    kill(server.process, SIGCONT);
    assert_int_equal(tutti_store_get(store, key, PATIENCE_MS, &value), TUTTI_OK);
    assert_int_equal(value.bytes, text.bytes);
    assert_memory_equal(value.data, text.data, text.bytes);
    tutti_buffer_release(&value);
    assert_int_equal(own_port(server.port), connected_from);
    tutti_store_release(store);
    end_server(&server);
}

/* Whether somebody has executed a will: the server has done all that it was asked before. */
static void expect_will(tutti_store_t *other, const char *key, bool is_executed)
{
    tutti_buffer_t value;
    const tutti_status_t status =
        tutti_store_get(other, tutti_text(key), is_executed ? PATIENCE_MS : TIMEOUT_MS, &value);
    assert_int_equal(status, is_executed ? TUTTI_OK : TUTTI_ERR_TIMEOUT);
    tutti_buffer_release(is_executed ? &value : &(tutti_buffer_t){0});
}

/* The server's host stands still at the deadline: the client is alive, and its will knows. */
static void a_late_answer_executes_no_will(void **state)
{
    (void)state;
    const server_t server = start_server();
    tutti_store_t *store, *other;
    tutti_buffer_t value;
    const tutti_bytes_t missing = tutti_text("missing"), text = tutti_text("lost");
    assert_int_equal(tutti_store_tcp_connect("localhost", server.port, PATIENCE_MS, &store), 0);
    assert_int_equal(tutti_store_tcp_connect("localhost", server.port, PATIENCE_MS, &other), 0);
    assert_int_equal(tt_store_will(store, tutti_text("first"), text), TUTTI_OK);
    assert_int_equal(tutti_store_set(store, text, text),
                     TUTTI_OK); /* connected for the next call */
    stop_server(&server);
    assert_int_equal(tutti_store_get(store, missing, TIMEOUT_MS, &value), TUTTI_ERR_TIMEOUT);
    tt_expect_error("does not answer");
    kill(server.process, SIGCONT);
    expect_will(other, "first", false);
    assert_int_equal(tutti_store_set_timeout(store, TIMEOUT_MS), TUTTI_OK);
    stop_server(&server);
    const int64_t start_ns = tt_clock_ns();
    for (int i = 0; i < 2; i++) { /* the second waits for the first one's answer */
        assert_int_equal(tt_store_will(store, tutti_text("late"), text), TUTTI_ERR_TIMEOUT);
    }
    assert_in_range((tt_clock_ns() - start_ns) / TT_NS_PER_MS, TIMEOUT_MS, 2 * GUARD_MS);
    kill(server.process, SIGCONT);
    assert_int_equal(tutti_store_set_timeout(store, PATIENCE_MS), TUTTI_OK);
    assert_int_equal(tt_store_will(store, tutti_text("last"), text), TUTTI_OK);
    tutti_store_release(store);
    expect_will(other, "last", true);
    expect_will(other, "first", false);
    expect_will(other, "late", false);
    tutti_store_release(other);
    end_server(&server);
}

/* From now on no data reach this process from the server; it acknowledges nothing of them, and its
 * kernel still answers keep-alives. */
static void cut_connections(int port)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12), /* the length of the tcp header, in words */
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
        BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 2),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const struct sock_fprog filter = {sizeof program / sizeof *program, program};
    int count = 0;
    for (int fd = 3; fd < 256; fd++) {
        if (is_connected_to(fd, port)) {
            count++;
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter),
                             0);
        }
    }
    assert_true(count > 0);
}

/* The cable is pulled while an answer is on its way: as long as it is, no keep-alive is sent. */
static void a_client_that_is_cut_off_before_its_answer_is_lost(void **state)
{
    (void)state;
    const server_t server = start_server();
    tutti_store_t *store, *other;
    const tutti_bytes_t text = tutti_text("lost");
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &store), 0);
    assert_int_equal(tt_store_will(store, tutti_text("before"), text), TUTTI_OK);
    assert_int_equal(tutti_store_set_timeout(store, TIMEOUT_MS), TUTTI_OK);
    cut_connections(server.port);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &other), 0);
    assert_int_equal(tt_store_will(store, tutti_text("cut"), text), TUTTI_ERR_TIMEOUT);
    expect_will(other, "cut", true);
    tutti_store_release(store);
    tutti_store_release(other);
    end_server(&server);
}

enum { HALF_BYTES = 1 << 20 };

typedef struct {
    int listener, server_port;
} half_proxy_t;

/* Passes a client on to the server, until it has got so many bytes; then the connection fails. */
static void *pass_half(void *user)
{
    static char bytes[1 << 16];
    const half_proxy_t *proxy = user;
    const struct sockaddr_in server = {.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)proxy->server_port),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int client = accept(proxy->listener, NULL, NULL);
    const int to_server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_open = connect(to_server, (const struct sockaddr *)&server, sizeof server) == 0;
    close(proxy->listener);
    for (ssize_t passed = 0; is_open && passed < HALF_BYTES;) {
        struct pollfd ends[] = {{client, POLLIN, 0}, {to_server, POLLIN, 0}};
        is_open = poll(ends, 2, PATIENCE_MS) > 0;
        for (int i = 0; i < 2 && is_open; i++) {
            const ssize_t count = ends[i].revents != 0 ? read(ends[i].fd, bytes, sizeof bytes) : 0;
            is_open = (ends[i].revents == 0 || count > 0) &&
                      write(ends[1 - i].fd, bytes, (size_t)count) == count;
            passed += i == 1 ? count : 0;
        }
    }
    close(client);
    close(to_server);
    return NULL;
}

/* The part that has come is freed: the group's teardown says if it is not. */
static void half_an_answer_is_an_error(void **state)
{
    (void)state;
    static char text[2 * HALF_BYTES];
    const server_t server = start_server();
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    half_proxy_t proxy = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), server.port};
    tutti_store_t *direct, *store;
    tutti_buffer_t value;
    pthread_t thread;
    assert_int_equal(bind(proxy.listener, (const struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(listen(proxy.listener, 1), 0);
    assert_int_equal(
        getsockname(proxy.listener, (struct sockaddr *)&where, &(socklen_t){sizeof where}), 0);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &direct), 0);
    assert_int_equal(tutti_store_set(direct, tutti_text("long"), tutti_bytes_of(text, sizeof text)),
                     TUTTI_OK);
    assert_int_equal(pthread_create(&thread, NULL, pass_half, &proxy), 0);
    assert_int_equal(
        tutti_store_tcp_connect("127.0.0.1", ntohs(where.sin_port), PATIENCE_MS, &store), TUTTI_OK);
    assert_true(tutti_store_get(store, tutti_text("long"), TIMEOUT_MS, &value) < 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tutti_store_release(store);
    tutti_store_release(direct);
    end_server(&server);
}

/* The store that is aborted when this thread next locks a mutex. */
static _Thread_local tutti_store_t *aborted_next;

/* A sanitizer's, where there is one: it has to see every lock. */
extern int __interceptor_pthread_mutex_lock(pthread_mutex_t *mutex) __attribute__((weak));

/* Takes the place of the C library's: another thread may run at every lock. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    int (*lock)(pthread_mutex_t *) = __interceptor_pthread_mutex_lock;
    if (lock == NULL) {
        void *found = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        memcpy(&lock, &found, sizeof lock);
    }
    tutti_store_t *store = aborted_next;
    aborted_next = NULL;
    if (store != NULL) {
        tutti_store_abort(store);
    }
    return lock(mutex);
}

static void an_abort_between_two_steps_of_a_call_ends_it(void **state)
{
    (void)state;
    const server_t server = start_server();
    tutti_store_t *store;
    tutti_buffer_t value;
    assert_int_equal(tutti_store_tcp_connect("localhost", server.port, PATIENCE_MS, &store), 0);
    const int64_t start_ns = tt_clock_ns();
    aborted_next = store;
    assert_int_equal(tutti_store_get(store, tutti_text("missing"), PATIENCE_MS, &value),
                     TUTTI_ERR_ABORTED);
    assert_null(aborted_next);
    assert_in_range((tt_clock_ns() - start_ns) / TT_NS_PER_MS, 0, PATIENCE_MS / 2);
    tutti_store_release(store);
    end_server(&server);
}

/* How many more connects find no free port. */
static atomic_int lacks_left;

typedef int connect_fn(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes);
extern connect_fn __interceptor_connect __attribute__((weak));

/* Takes the place of the C library's. */
int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes)
{
    connect_fn *next = __interceptor_connect;
    if (next == NULL) {
        void *found = dlsym(RTLD_NEXT, "connect");
        memcpy(&next, &found, sizeof next);
    }
    if (to.__sockaddr__->sa_family == AF_INET && atomic_fetch_sub(&lacks_left, 1) > 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    return next(fd, to, bytes);
}

static void a_client_waits_for_a_free_port(void **state)
{
    (void)state;
    const server_t server = start_server();
    tutti_store_t *store;
    atomic_store(&lacks_left, 3);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &store), 0);
    assert_in_range(-atomic_load(&lacks_left), 1, 1000);
    tutti_store_release(store);
    atomic_store(&lacks_left, INT_MAX);
    const int64_t start_ns = tt_clock_ns();
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, TIMEOUT_MS, &store),
                     TUTTI_ERR_TIMEOUT);
    assert_in_range((tt_clock_ns() - start_ns) / TT_NS_PER_MS, TIMEOUT_MS, GUARD_MS);
    tt_expect_error(strerror(EADDRNOTAVAIL));
    tt_expect_error("time is up");
    atomic_store(&lacks_left, 0);
    end_server(&server);
}

/* Nothing is known of the server then. */
static void who_has_no_port_does_not_say_that_the_server_is_gone(void **state)
{
    (void)state;
    enum { LONGER_THAN_REFUSED_MS = 2600 };
    const server_t server = start_server();
    const tutti_bytes_t key = tutti_text("k");
    tutti_store_t *store;
    bool is_there;
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &store), 0);
    assert_int_equal(tt_store_will(store, key, key), TUTTI_OK); /* has the connection from now on */
    assert_int_equal(tutti_store_set_timeout(store, LONGER_THAN_REFUSED_MS), TUTTI_OK);
    atomic_store(&lacks_left, INT_MAX);
    assert_int_equal(tutti_store_check(store, &key, 1, &is_there), TUTTI_ERR_TIMEOUT);
    tt_expect_error(strerror(EADDRNOTAVAIL));
    atomic_store(&lacks_left, 0);
    assert_int_equal(tutti_store_check(store, &key, 1, &is_there), TUTTI_OK);
    tutti_store_release(store);
    end_server(&server);
}

/* The call that it dies in sees it at once. */
static void a_server_that_has_died_is_gone_for_all_calls(void **state)
{
    (void)state;
    enum { LONG_MS = 60000 };
    const server_t server = start_server();
    tutti_store_t *store;
    tutti_buffer_t value;
    int64_t sum;
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", server.port, LONG_MS, &store), 0);
    assert_int_equal(tutti_store_add(store, tutti_text("sum"), 1, &sum), 0);
    end_server(&server);
    assert_int_equal(tutti_store_get(store, tutti_text("sum"), LONG_MS, &value), TUTTI_ERR_PEER);
    const int64_t start_ns = tt_clock_ns();
    assert_int_equal(tutti_store_get(store, tutti_text("sum"), LONG_MS, &value), TUTTI_ERR_PEER);
    tt_expect_error("the server is gone");
    assert_true(tt_clock_ns() - start_ns < LONG_MS / 2 * TT_NS_PER_MS);
    tutti_store_release(store);
}

static void a_store_is_used_among(tt_strangers_kind_t kind)
{
    enum { CALLS = 100, CLIENTS = 5, STRANGE_GUARD_MS = 10000 };
    static tt_strangers_t strangers;
    const server_t server = start_server();
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)server.port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    tutti_store_t *stores[CLIENTS];
    int64_t sum = 0;
    strangers =
        (tt_strangers_t){.kind = kind, .type = SOCK_STREAM, .bytes = (socklen_t)sizeof where};
    memcpy(&strangers.where, &where, sizeof where);
    tt_strangers_start(&strangers);
    const int64_t start_ns = tt_clock_ns();
    for (int i = 0; i < CLIENTS; i++) {
        if (tutti_store_tcp_connect("127.0.0.1", server.port, PATIENCE_MS, &stores[i]) < 0) {
            fail_msg("%s", tutti_last_error());
        }
    }
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(tutti_store_add(stores[i % CLIENTS], tutti_text("sum"), 1, &sum), 0);
    }
    const int64_t took_ms = (tt_clock_ns() - start_ns) / TT_NS_PER_MS;
    print_message("%d strangers, %s: %d clients and %d calls in %lld ms\n", TT_STRANGERS,
                  tt_strangers_name(kind), CLIENTS, CALLS, (long long)took_ms);
    assert_int_equal(sum, CALLS);
    assert_true(took_ms < STRANGE_GUARD_MS);
    for (int i = 0; i < CLIENTS; i++) {
        tutti_store_release(stores[i]);
    }
    tt_strangers_stop(&strangers);
    end_server(&server);
}

static void a_store_serves_its_clients_among_strangers(void **state)
{
    (void)state;
    for (int kind = 0; kind < TT_STRANGERS_KINDS && tt_strangers_may_come(); kind++) {
        a_store_is_used_among((tt_strangers_kind_t)kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_does_not_answer_costs_the_timeout_only),
        cmocka_unit_test(late_answers_are_left_to_the_next_call),
        cmocka_unit_test(a_late_answer_executes_no_will),
        cmocka_unit_test(a_client_that_is_cut_off_before_its_answer_is_lost),
        cmocka_unit_test(half_an_answer_is_an_error),
        cmocka_unit_test(an_abort_between_two_steps_of_a_call_ends_it),
        cmocka_unit_test(a_client_waits_for_a_free_port),
        cmocka_unit_test(who_has_no_port_does_not_say_that_the_server_is_gone),
        cmocka_unit_test(a_server_that_has_died_is_gone_for_all_calls),
        cmocka_unit_test(a_store_serves_its_clients_among_strangers),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
