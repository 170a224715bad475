/* Unix sockets that ranks of a host meet at: one listener per name, silent callers, send deadlines.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "core/base/testing.h"

enum { PATIENCE_MS = 10000 };

static tt_unix_address_t address_of(const char *what)
{
    char name[80];
    snprintf(name, sizeof name, "tutti-unix-socket-test-%d-%s", (int)getpid(), what);
    return tt_unix_address(name);
}

static int connect_to(const tt_unix_address_t *address)
{
    int fd = -1;
    assert_int_equal(tt_unix_connect(address, tt_deadline_in_ms(PATIENCE_MS), &fd), TUTTI_OK);
    assert_true(fd >= 0);
    return fd;
}

/* ECONNRESET: closed with something unread. */
static bool was_closed(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

static void a_name_has_one_listener(void **state)
{
    (void)state;
    const tt_unix_address_t address = address_of("name");
    tt_unix_listener_t one, other = {.fd = 77};
    assert_int_equal(tt_unix_listen(&address, &one), TUTTI_OK);
    assert_int_equal(tt_unix_listen(&address, &other), TUTTI_PENDING);
    assert_int_equal(other.fd, 77);
    tt_unix_listener_close(&one);
    assert_int_equal(one.fd, -1);
    assert_int_equal(tt_unix_listen(&address, &other), TUTTI_OK);
    tt_unix_listener_close(&other);
}

static void what_cannot_be_bound_or_reached_says_so(void **state)
{
    (void)state;
    int fd = 77;
    const tt_unix_address_t nobody = address_of("nobody");
    assert_int_equal(tt_unix_connect(&nobody, tt_deadline_in_ms(PATIENCE_MS), &fd), TUTTI_PENDING);
    tt_unix_address_t missing = {.where = {AF_UNIX, "/no/such/folder"},
                                 .bytes = sizeof missing.where};
    tt_unix_listener_t listener = {.fd = 78};
    assert_int_equal(tt_unix_listen(&missing, &listener), TUTTI_ERR_IO);
    tt_expect_error("cannot bind a Unix socket: No such file");
    assert_int_equal(tt_unix_connect(&missing, tt_deadline_in_ms(PATIENCE_MS), &fd), TUTTI_ERR_IO);
    tt_expect_error("cannot connect to a Unix socket: No such file");
    assert_int_equal(fd, 77);
    assert_int_equal(listener.fd, 78);
}

static void callers_are_taken_in_the_order_in_which_they_speak(void **state)
{
    (void)state;
    const tt_unix_address_t address = address_of("order");
    tt_unix_listener_t listener;
    assert_int_equal(tt_unix_listen(&address, &listener), TUTTI_OK);
    const int callers[] = {connect_to(&address), connect_to(&address), connect_to(&address)};
    char message[2] = "", again[4] = "";
    int fd = 77;
    assert_int_equal(tt_unix_listener_next(&listener, message, 2, &fd), TUTTI_OK);
    assert_int_equal(fd, -1); /* nobody has spoken */
    assert_int_equal(listener.count, 3);
    assert_int_equal(send(callers[1], "bb", 2, 0), 2);
    assert_int_equal(tt_unix_listener_next(&listener, message, 2, &fd), TUTTI_OK);
    assert_memory_equal(message, "bb", 2);
    assert_int_equal(recv(fd, again, sizeof again, MSG_DONTWAIT), 2); /* it was looked at only */
    assert_string_equal(again, "bb");
    tt_socket_close(fd);
    assert_int_equal(send(callers[0], "aaa", 3, 0), 3); /* no message of ours */
    assert_int_equal(send(callers[2], "cc", 2, 0), 2);
    assert_int_equal(tt_unix_listener_next(&listener, message, 2, &fd), TUTTI_OK);
    assert_memory_equal(message, "cc", 2);
    assert_int_equal(listener.count, 0);
    assert_true(was_closed(callers[0]));
    tt_socket_close(fd);
    for (int i = 0; i < 3; i++) {
        tt_socket_close(callers[i]);
    }
    tt_unix_listener_close(&listener);
}

static void the_oldest_of_too_many_silent_callers_goes(void **state)
{
    (void)state;
    enum { CALLERS = TT_UNIX_CALLERS_MAX + 2 };
    const tt_unix_address_t address = address_of("silent");
    tt_unix_listener_t listener;
    assert_int_equal(tt_unix_listen(&address, &listener), TUTTI_OK);
    int callers[CALLERS], fd;
    char message[2];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = connect_to(&address);
        assert_int_equal(tt_unix_listener_next(&listener, message, 2, &fd), TUTTI_OK);
        assert_int_equal(fd, -1);
    }
    assert_int_equal(listener.count, TT_UNIX_CALLERS_MAX);
    struct pollfd polls[1 + TT_UNIX_CALLERS_MAX];
    assert_int_equal(tt_unix_listener_polls(&listener, polls), 1 + TT_UNIX_CALLERS_MAX);
    assert_int_equal(polls[0].fd, listener.fd);
    for (int i = 0; i < TT_UNIX_CALLERS_MAX; i++) {
        assert_int_equal(polls[1 + i].fd, listener.callers[i]);
        assert_int_equal(polls[1 + i].events, POLLIN);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(was_closed(callers[i]), i < CALLERS - TT_UNIX_CALLERS_MAX);
    }
    tt_unix_listener_close(&listener);
    for (int i = 0; i < CALLERS; i++) {
        assert_true(was_closed(callers[i]));
        tt_socket_close(callers[i]);
    }
}

static int64_t send_timeout_us(int fd)
{
    struct timeval time;
    socklen_t bytes = sizeof time;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, &bytes), 0);
    return (int64_t)time.tv_sec * 1000000 + time.tv_usec;
}

static void sends_have_what_is_left_until_the_deadline(void **state)
{
    (void)state;
    const int fd = tt_socket_open(AF_UNIX, SOCK_SEQPACKET);
    tt_unix_set_send_deadline(fd, tt_deadline_in_ms(3600500));
    assert_in_range(send_timeout_us(fd), INT64_C(3590000000), INT64_C(3601000000));
    tt_unix_set_send_deadline(fd, tt_deadline_in_ms(0)); /* past; 0 would be for ever */
    assert_in_range(send_timeout_us(fd), 1, 20000);
    tt_unix_set_send_deadline(fd, TT_NEVER);
    assert_int_equal(send_timeout_us(fd), 0);
    tt_socket_close(fd);
}

static void a_process_does_not_watch_itself(void **state)
{
    (void)state;
    int pair[2];
    uid_t uid = (uid_t)-1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_true(tt_unix_is_same_user(pair[0], &uid));
    assert_int_equal(uid, geteuid());
    assert_int_equal(tt_unix_peer_process(pair[0]), -1);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_has_one_listener),
        cmocka_unit_test(what_cannot_be_bound_or_reached_says_so),
        cmocka_unit_test(callers_are_taken_in_the_order_in_which_they_speak),
        cmocka_unit_test(the_oldest_of_too_many_silent_callers_goes),
        cmocka_unit_test(sends_have_what_is_left_until_the_deadline),
        cmocka_unit_test(a_process_does_not_watch_itself),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
