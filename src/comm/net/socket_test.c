/* Sockets are not inherited by children that live on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "core/base/testing.h"

enum { PATIENCE_MS = 10000 };

/* A child that does what `act` does with fd, and waits to be killed. */
static pid_t make_child(int (*act)(int fd), int fd)
{
    int told[2];
    char word = 0;
    assert_int_equal(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(30); /* however the test ends */
        word = (char)act(fd);
        _exit(write(told[1], &word, 1) == 1 && pause() == 0);
    }
    close(told[1]);
    assert_int_equal(read(told[0], &word, 1), 1);
    assert_int_equal(word, 1);
    close(told[0]);
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static bool is_at_end(int fd)
{
    char byte;
    struct pollfd item = {.fd = fd, .events = POLLIN};
    return poll(&item, 1, PATIENCE_MS) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static int is_no_socket(int fd)
{
    return send(fd, "x", 1, MSG_NOSIGNAL) < 0 && errno == ENOTSOCK;
}

static int takes_a_byte(int fd)
{
    return write(fd, "x", 1) == 1;
}

static void a_child_that_lives_on_does_not_hold_a_pipe(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    assert_true(tt_socket_open_pipe(ends));
    const pid_t child = make_child(takes_a_byte, ends[1]); /* what it writes goes nowhere */
    assert_int_equal(write(ends[1], "y", 1), 1);           /* the parent's is as it was */
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    tt_socket_close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    tt_socket_close(ends[0]);
    end_child(child);
}

static void a_child_that_lives_on_does_not_hold_a_lock(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-socket-XXXXXX";
    const int other = mkstemp(path);
    assert_true(other >= 0);
    assert_int_equal(tt_socket_open_file("/nowhere/file", O_RDWR, 0), -1);
    assert_int_equal(errno, ENOENT);
    const int fd = tt_socket_open_file(path, O_RDWR, 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    const pid_t child = make_child(takes_a_byte, fd);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    tt_socket_close(fd);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    end_child(child);
    close(other);
    unlink(path);
}

/* An object of the parent's, of which the child has a copy, closes its number and no other. */
static int closes_its_own(int fd)
{
    tt_socket_close(fd);
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return next == fd;
}

static void the_number_stays_taken_in_the_child(void **state)
{
    (void)state;
    const int fd = tt_socket_open(AF_UNIX, SOCK_STREAM);
    assert_true(fd >= 0);
    end_child(make_child(closes_its_own, fd));
    tt_socket_close(fd);
}

static int is_socket(int fd)
{
    return send(fd, "x", 1, MSG_NOSIGNAL) == 1;
}

static void sockets_of_others_are_left_alone(void **state)
{
    (void)state;
    int pair[2];
    const int before = tt_socket_open(AF_UNIX, SOCK_STREAM);
    tt_socket_close(before);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(pair[0] == before || pair[1] == before); /* the number was ours a moment ago */
    end_child(make_child(is_socket, pair[0]));
    end_child(make_child(is_socket, pair[1]));
    close(pair[0]);
    close(pair[1]);
}

static void what_is_accepted_ends_too(void **state)
{
    (void)state;
    const struct sockaddr any = {.sa_family = AF_UNIX}; /* the system names it */
    const int listener = tt_socket_open(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
    struct sockaddr_storage where;
    socklen_t bytes = sizeof where;
    assert_int_equal(bind(listener, &any, sizeof any.sa_family), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&where, &bytes), 0);
    const int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(caller, (const struct sockaddr *)&where, bytes), 0);
    const int fd = tt_socket_accept(listener, 0);
    assert_true(fd >= 0);
    const pid_t child = make_child(is_no_socket, listener);
    tt_socket_close(listener);
    assert_int_not_equal(connect(caller, (const struct sockaddr *)&where, bytes), 0);
    tt_socket_close(fd);
    assert_true(is_at_end(caller));
    end_child(child);
    close(caller);
}

static void an_empty_table_of_descriptors_is_an_error_with_a_remedy(void **state)
{
    (void)state;
    assert_true(tt_is_out_of_descriptors(EMFILE) && tt_is_out_of_descriptors(ENFILE));
    assert_false(tt_is_out_of_descriptors(EAGAIN));
    struct rlimit limit;
    char text[160];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    snprintf(text, sizeof text,
             "rank 3 cannot listen: this process is out of file descriptors "
             "(limit %llu)",
             (unsigned long long)limit.rlim_cur);
    assert_int_equal(tt_fail_out_of_descriptors("rank 3 cannot listen"), TUTTI_ERR_IO);
    tt_expect_error(text);
    tt_expect_error("raise it with ulimit -n");
}

/* A thread that starts while a fork is under way. The handler is set before socket.c sets its own,
 * which therefore runs before this one and holds the lock. */
static struct {
    void (*act)(int fd);
    int fd, opened;
    pthread_t thread;
    sem_t is_done;
    bool has_waited;
} rival;

static void *run_rival(void *unused)
{
    rival.act(rival.fd);
    sem_post(&rival.is_done);
    return unused;
}

static void start_rival(void)
{
    struct timespec end;
    if (rival.act != NULL && pthread_create(&rival.thread, NULL, run_rival, NULL) == 0) {
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += (end.tv_nsec + 100000000) / 1000000000;
        end.tv_nsec = (end.tv_nsec + 100000000) % 1000000000;
        rival.has_waited = sem_timedwait(&rival.is_done, &end) != 0;
    }
}

static void open_another(int fd)
{
    (void)fd;
    rival.opened = tt_socket_open(AF_UNIX, SOCK_STREAM);
}

static void accept_nobody(int fd)
{
    tt_socket_accept(fd, 0);
}

static void open_null(int fd)
{
    (void)fd;
    rival.opened = tt_socket_open_file("/dev/null", O_RDWR, 0);
}

static void open_and_close_a_pipe(int fd)
{
    int ends[2];
    (void)fd;
    if (tt_socket_open_pipe(ends)) {
        tt_socket_close(ends[0]);
        tt_socket_close(ends[1]);
    }
}

static void each_call_waits_while_a_fork_is_under_way(void **state)
{
    (void)state;
    void (*const acts[])(int) = {open_another, accept_nobody, open_null, open_and_close_a_pipe,
                                 tt_socket_close};
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        /* a listener that nobody calls, of which the table knows */
        rival.fd = tt_socket_open(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
        rival.opened = -1;
        sem_init(&rival.is_done, 0, 0);
        rival.act = acts[i];
        const pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(pthread_join(rival.thread, NULL), 0);
        rival.act = NULL; /* the thread reads it when it comes to run */
        sem_destroy(&rival.is_done);
        assert_true(rival.has_waited);
        tt_socket_close(acts[i] == tt_socket_close ? -1 : rival.fd);
        tt_socket_close(rival.opened);
    }
}

/* ---- a file system that does not answer ---- */

static struct {
    sem_t is_called, may_answer;
    bool was_left;
    int calls;
} slow;

/* The C library's, but for two files of a slow system: nobody answers for the one, and while the
 * other is opened the process forks. */
int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(more, unsigned) : 0;
    va_end(more);
    if (strcmp(path, "/slow") == 0) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += PATIENCE_MS / 1000;
        sem_post(&slow.is_called);
        slow.was_left = sem_timedwait(&slow.may_answer, &end) != 0;
        errno = EIO;
        return -1;
    }
    if (strcmp(path, "/forked") == 0) {
        path = "/dev/null";
        if (slow.calls++ == 0) {
            const pid_t child = fork();
            if (child == 0) {
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void *open_slow(void *unused)
{
    (void)unused;
    return tt_socket_open_file("/slow", O_RDWR, 0) < 0 ? NULL : &slow;
}

static void a_file_that_does_not_open_holds_no_fork_up(void **state)
{
    (void)state;
    pthread_t thread;
    void *opened;
    sem_init(&slow.is_called, 0, 0);
    sem_init(&slow.may_answer, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, open_slow, NULL), 0);
    assert_int_equal(sem_wait(&slow.is_called), 0);
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    sem_post(&slow.may_answer);
    assert_int_equal(pthread_join(thread, &opened), 0);
    assert_null(opened);
    assert_false(slow.was_left);
}

/* The child may hold what was opened then. */
static void a_file_is_opened_again_after_a_fork(void **state)
{
    (void)state;
    const int fd = tt_socket_open_file("/forked", O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(slow.calls, 2);
    tt_socket_close_file(fd);
}

int main(void)
{
    pthread_atfork(start_rival, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_waits_while_a_fork_is_under_way),
        cmocka_unit_test(a_child_that_lives_on_does_not_hold_a_pipe),
        cmocka_unit_test(a_child_that_lives_on_does_not_hold_a_lock),
        cmocka_unit_test(the_number_stays_taken_in_the_child),
        cmocka_unit_test(sockets_of_others_are_left_alone),
        cmocka_unit_test(what_is_accepted_ends_too),
        cmocka_unit_test(an_empty_table_of_descriptors_is_an_error_with_a_remedy),
        cmocka_unit_test(a_file_that_does_not_open_holds_no_fork_up),
        cmocka_unit_test(a_file_is_opened_again_after_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
