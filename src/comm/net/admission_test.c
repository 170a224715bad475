/* Connections that come in: what their network says of them, and proofs that are not theirs. */
#include "core/base/testing.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/net/admission.h"
#include "core/base/alloc.h"
#include "core/base/log.h"

/* The C library's, which hands a connection's failure on when that is wanted. */
static int failure, failures;

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict bytes, int flags)
{
    if (failures > 0) {
        failures--;
        errno = failure;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, address.__sockaddr__, bytes, flags);
}

static int call(const tt_admission_t *admission)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &admission->where.any, sizeof admission->where.four), 0);
    return fd;
}

/* What a connection brings arrives when the kernel comes to it. */
static void look_until(tt_admission_t *admission, bool (*is_there)(const tt_admission_t *, int64_t),
                       int64_t wanted)
{
    char first[TT_FIRST_BYTES_MAX];
    tt_channel_t *channel;
    const tt_deadline_t guard = tt_deadline_in_ms(20000);
    while (!is_there(admission, wanted) && !tt_deadline_is_past(guard)) {
        assert_int_equal(tt_admission_next(admission, first, &channel), TUTTI_PENDING);
    }
    assert_true(is_there(admission, wanted));
}

static bool have_come(const tt_admission_t *admission, int64_t callers)
{
    return admission->count >= callers && failures == 0;
}

static bool have_been_refused(const tt_admission_t *admission, int64_t strangers)
{
    return admission->strangers >= strangers && admission->proved > 0;
}

static bool is_held(const tt_admission_t *admission, int64_t count)
{
    return (admission->held >= 0) == (count > 0);
}

/* A silent caller is there, and another one comes behind one that failed. */
static void admit_behind(int code)
{
    tt_admission_t admission = {.name = "test", .first_bytes = 4, .most = 8};
    assert_int_equal(tt_credentials_create(NULL, 0, TT_PROTECT_OFF, &admission.credentials),
                     TUTTI_OK);
    assert_int_equal(tt_admission_open(&admission, "127.0.0.1", 0), TUTTI_OK);
    const int silent = call(&admission);
    look_until(&admission, have_come, 1);

    const int next = call(&admission);
    failure = code;
    failures = 1;
    look_until(&admission, have_come, 2); /* nobody made room */
    assert_int_equal(admission.strangers, 0);
    assert_false(admission.is_resting);
    assert_false(admission.has_warned);
    close(silent);
    close(next);
    tt_admission_close(&admission);
    tt_credentials_release(admission.credentials);
}

static void a_connection_that_failed_costs_no_other(void **state)
{
    (void)state;
    const int codes[] = {ECONNABORTED, ENETDOWN,   EPROTO,       ENOPROTOOPT, EHOSTDOWN,
                         ENONET,       EOPNOTSUPP, EHOSTUNREACH, ENETUNREACH, EPERM};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        admit_behind(codes[i]);
    }
}

/* The client's side of a connection says four bytes; until the other one has them. */
static tutti_status_t talk(tt_admission_t *admission, tt_channel_t *client, char *first)
{
    size_t said = 0;
    tt_channel_t *channel;
    const tt_deadline_t guard = tt_deadline_in_ms(20000);
    tutti_status_t status = TUTTI_PENDING;
    while (status == TUTTI_PENDING && !tt_deadline_is_past(guard)) {
        if (tt_channel_handshake(client) == TUTTI_OK) {
            assert_true(tt_channel_push(client, "abcd", 4, &said) >= 0);
        }
        status = tt_admission_next(admission, first, &channel);
    }
    if (status == TUTTI_OK) {
        tt_channel_close(channel);
    }
    return status;
}

/* The C library's, which has no memory for one more that is watched. */
static bool has_no_room;

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
    errno = ENOMEM;
    return has_no_room && operation == EPOLL_CTL_ADD
               ? -1
               : (int)syscall(SYS_epoll_ctl, set, operation, fd, event);
}

/* A connection is there, and no memory for it at first: not for the nth allocation, or 0: not in
 * the system. */
static void admit_without_memory(size_t nth)
{
    tt_admission_t admission = {.name = "test", .first_bytes = 4, .most = 8};
    char first[TT_FIRST_BYTES_MAX];
    tt_channel_t *client;
    assert_int_equal(tt_credentials_create(NULL, 0, TT_PROTECT_OFF, &admission.credentials),
                     TUTTI_OK);
    assert_int_equal(tt_admission_open(&admission, "127.0.0.1", 0), TUTTI_OK);
    assert_int_equal(tt_channel_connect(&admission.where.any, sizeof admission.where.four,
                                        admission.credentials, &client),
                     TUTTI_OK);
    tt_alloc_fail_at(nth);
    has_no_room = nth == 0;
    look_until(&admission, is_held, 1);
    tt_alloc_fail_at(0);
    has_no_room = false;
    assert_true(admission.is_resting && admission.has_warned && admission.is_ticking);
    assert_int_equal(admission.count, 0);
    assert_int_equal(admission.strangers, 0);
    assert_int_equal(talk(&admission, client, first), TUTTI_OK); /* nobody has hung up */
    assert_memory_equal(first, "abcd", 4);
    assert_int_equal(admission.held, -1);
    assert_false(admission.is_resting);
    tt_channel_close(client);
    tt_admission_close(&admission);
    tt_credentials_release(admission.credentials);
}

static void ignore_log(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    if (strstr(line, "connections of other processes cannot be taken: no memory") != NULL) {
        ++*(int *)user;
    }
}

static void a_connection_waits_for_memory(void **state)
{
    (void)state;
    int warnings = 0;
    tt_log_set_sink(ignore_log, &warnings);
    admit_without_memory(1); /* the caller */
    admit_without_memory(2); /* its channel */
    admit_without_memory(0); /* its place in the set */
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(warnings, 3);
}

/* What is held when its listener goes is hung up on. */
static void a_connection_that_is_held_ends_with_the_listener(void **state)
{
    (void)state;
    int warnings = 0;
    char byte;
    tt_admission_t admission = {.name = "test", .first_bytes = 4, .most = 8};
    assert_int_equal(tt_credentials_create(NULL, 0, TT_PROTECT_OFF, &admission.credentials),
                     TUTTI_OK);
    assert_int_equal(tt_admission_open(&admission, "127.0.0.1", 0), TUTTI_OK);
    const int fd = call(&admission);
    tt_log_set_sink(ignore_log, &warnings);
    tt_alloc_fail_at(1);
    look_until(&admission, is_held, 1);
    tt_alloc_fail_at(0);
    tt_log_set_sink(NULL, NULL);
    tt_admission_close(&admission);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
    tt_credentials_release(admission.credentials);
}

/* The first message of a real handshake, as somebody on its way hears it. */
static size_t record_hello(tt_credentials_t *credentials, unsigned char *hello, size_t room)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof where;
    tt_channel_t *client;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&where, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&where, &bytes), 0);
    assert_int_equal(
        tt_channel_connect((struct sockaddr *)&where, sizeof where, credentials, &client),
        TUTTI_OK);
    const int fd = accept(listener, NULL, NULL);
    const tt_deadline_t guard = tt_deadline_in_ms(20000);
    ssize_t got = -1;
    while (got < 0 && !tt_deadline_is_past(guard)) {
        assert_int_equal(tt_channel_handshake(client), TUTTI_PENDING);
        got = recv(fd, hello, room, MSG_DONTWAIT);
    }
    assert_true(got > 0);
    close(fd);
    close(listener);
    tt_channel_close(client);
    return (size_t)got;
}

/* As many as would fill the places of those who have proved the key. */
static void a_proof_that_is_sent_again_is_none(void **state)
{
    (void)state;
    enum { MOST = 4, CALLS = 2 * MOST };
    const tt_job_key_t key = {{7}};
    tt_admission_t admission = {.name = "test", .first_bytes = 4, .most = MOST};
    unsigned char hello[2048];
    int fds[CALLS];
    assert_int_equal(tt_credentials_create(&key, 0, TT_PROTECT_AUTH, &admission.credentials),
                     TUTTI_OK);
    const size_t bytes = record_hello(admission.credentials, hello, sizeof hello);
    assert_int_equal(tt_admission_open(&admission, "127.0.0.1", 0), TUTTI_OK);
    for (int i = 0; i < CALLS; i++) {
        fds[i] = call(&admission);
        assert_int_equal(send(fds[i], hello, bytes, 0), (ssize_t)bytes);
        look_until(&admission, have_been_refused, i);
        assert_int_equal(admission.proved, 1);
    }
    assert_int_equal(admission.count, 1);
    for (int i = 0; i < CALLS; i++) {
        close(fds[i]);
    }
    tt_admission_close(&admission);
    tt_credentials_release(admission.credentials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_that_failed_costs_no_other),
        cmocka_unit_test(a_connection_waits_for_memory),
        cmocka_unit_test(a_connection_that_is_held_ends_with_the_listener),
        cmocka_unit_test(a_proof_that_is_sent_again_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
