/* What comes through the socket of a rank of this host: descriptors that nobody wants are closed,
 * and one that cannot be had is waited for. The test is the other rank. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "comm/wire/node_peers_impl.h"
#include "core/base/log.h"
#include "core/base/testing.h"

enum { OTHER = 1, PLENTY = 1000 };

/* Rank 0 of two, as it is when they have met. */
typedef struct {
    tt_node_peers_t node_peers;
    tt_node_peer_t list[2];
    struct pollfd polls[4];
    tt_device_t *heap; /* of the other */
    int fd;            /* the other's end */
} pair_t;

static void open_pair(pair_t *pair)
{
    int fds[2];
    *pair = (pair_t){.node_peers = {.size = 2, .starved = -1, .node_peers = pair->list}};
    pair->node_peers.polls = pair->polls;
    pthread_mutex_init(&pair->node_peers.telling, NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &pair->heap), TUTTI_OK);
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &pair->node_peers.heap), TUTTI_OK);
    pair->list[0].fd = pair->list[0].pidfd = pair->list[OTHER].pidfd = -1;
    pair->list[OTHER].fd = fds[0];
    pair->fd = fds[1];
}

static void close_pair(pair_t *pair)
{
    if (pair->list[OTHER].fd >= 0) {
        tt_socket_close(pair->list[OTHER].fd);
    }
    tt_heap_peer_close(&pair->list[OTHER].view);
    close(pair->fd);
    tutti_device_release(pair->heap);
    tutti_device_release(pair->node_peers.heap);
    pthread_mutex_destroy(&pair->node_peers.telling);
}

static void send_with(int socket, const tt_node_peer_message_t *message, size_t bytes,
                      const int *fds, size_t count)
{
    tt_node_peer_message_t copy = *message;
    struct iovec part = {.iov_base = &copy, .iov_len = bytes};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {.bytes = {0}};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &header, MSG_NOSIGNAL), bytes);
}

static tt_node_peer_message_t say(tt_node_peer_message_kind_t kind)
{
    return (tt_node_peer_message_t){.magic = TT_NODE_PEER_MAGIC, .kind = kind, .rank = OTHER};
}

static void send_segment(const pair_t *pair)
{
    int fd;
    size_t bytes;
    tt_node_peer_message_t message = say(TT_NODE_PEER_SEGMENT);
    tt_heap_segment(pair->heap, 0, &fd, &bytes);
    message.bytes = bytes;
    send_with(pair->fd, &message, sizeof message, &fd, 1);
}

/* One message with `count` descriptors; the rank hangs up, and keeps none of them. */
static void expect_refused(const tt_node_peer_message_t *message, size_t bytes, size_t count)
{
    pair_t pair;
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int fds[] = {null, null, null, null};
    open_pair(&pair);
    const int before = tt_count_descriptors();
    send_with(pair.fd, message, bytes, fds, count);
    tt_node_peers_receive(&pair.node_peers, OTHER);
    assert_int_equal(pair.list[OTHER].fd, -1);
    assert_int_equal(tt_count_descriptors(), before - 1);
    close_pair(&pair);
    close(null);
}

static void descriptors_that_nobody_wants_are_closed(void **state)
{
    (void)state;
    const tt_node_peer_message_t hello = say(TT_NODE_PEER_HELLO), bye = say(TT_NODE_PEER_BYE),
                                 wake = say(TT_NODE_PEER_WAKE), segment = say(TT_NODE_PEER_SEGMENT);
    tt_node_peer_message_t strange = say(99), other = say(TT_NODE_PEER_SEGMENT), noise = say(1);
    other.rank = 0;
    noise.magic = 7;
    for (size_t count = 1; count <= 4; count++) {
        expect_refused(&hello, sizeof hello, count);
        expect_refused(&bye, sizeof bye, count);
        expect_refused(&wake, sizeof wake, count);
        expect_refused(&strange, sizeof strange, count);
        expect_refused(&other, sizeof other, count);
        expect_refused(&noise, sizeof noise, count);
        expect_refused(&segment, 10, count);             /* too short */
        expect_refused(&segment, sizeof segment, count); /* /dev/null is no segment */
    }
    expect_refused(&segment, sizeof segment, 0);
}

/* Of a program without standard input, 0 is a descriptor like another. */
static void descriptor_0_is_one_like_others(void **state)
{
    (void)state;
    pair_t pair;
    int fd;
    size_t bytes;
    const int kept = fcntl(0, F_DUPFD_CLOEXEC, 10);
    open_pair(&pair);
    void *there = tt_device_alloc(pair.heap, 64, "test");
    tt_node_peer_message_t message = say(TT_NODE_PEER_SEGMENT);
    tt_heap_segment(pair.heap, 0, &fd, &bytes);
    message.bytes = bytes;
    assert_int_equal(dup2(fd, 0), 0);
    assert_int_equal(tt_node_peers_send(pair.fd, &message, 0, 0), 0);
    tt_node_peers_receive(&pair.node_peers, OTHER);
    assert_int_equal(pair.list[OTHER].segments_seen, 1);
    message = say(TT_NODE_PEER_WAKE);
    send_with(pair.fd, &message, sizeof message, &kept, 1);
    close(0); /* what comes next gets its number */
    tt_node_peers_receive(&pair.node_peers, OTHER);
    assert_int_equal(pair.list[OTHER].fd, -1);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    tt_device_free(pair.heap, there, 64);
    close_pair(&pair);
    if (kept >= 0) {
        assert_int_equal(dup2(kept, 0), 0);
        close(kept);
    }
}

/* No descriptor is left: the local rank is well, and its segment is mapped as soon as there is one.
 */
static void a_segment_waits_for_a_descriptor(void **state)
{
    (void)state;
    pair_t pair;
    struct rlimit before, none;
    open_pair(&pair);
    void *there = tt_device_alloc(pair.heap, 64, "test");
    const tt_heap_address_t place = tt_heap_address(pair.heap, there, 64);
    send_segment(&pair);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 5; /* more are open; poll wants at least as many as it polls */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    tt_node_peers_check(&pair.node_peers);
    tt_node_peers_check(&pair.node_peers);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(tt_node_peers_state(&pair.node_peers, OTHER), TT_NODE_PEER_HERE);
    assert_int_equal(tt_node_peers_status(&pair.node_peers), TUTTI_ERR_IO);
    tt_expect_error("rank 0 cannot map memory of rank 1: this process is out of file descriptors");
    tt_expect_error("ulimit -n");
    tt_node_peers_check(&pair.node_peers);
    assert_int_equal(tt_node_peers_status(&pair.node_peers), TUTTI_OK);
    assert_non_null(tt_node_peers_at(&pair.node_peers, OTHER, place, 64));
    tt_device_free(pair.heap, there, 64);
    close_pair(&pair);
}

/* A file that no try can map is no segment: one of 0 bytes, one that may not be written. */
static void what_is_no_segment_is_not_tried_again(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 4096};
    for (size_t i = 0; i < 2; i++) {
        pair_t pair;
        tt_node_peer_message_t message = say(TT_NODE_PEER_SEGMENT);
        const int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(file, (off_t)sizes[i]), 0);
        assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
        message.bytes = sizes[i];
        open_pair(&pair);
        send_with(pair.fd, &message, sizeof message, &file, 1);
        tt_node_peers_check(&pair.node_peers);
        assert_int_equal(tt_node_peers_state(&pair.node_peers, OTHER), TT_NODE_PEER_DEAD);
        assert_int_equal(tt_node_peers_status(&pair.node_peers), TUTTI_OK);
        assert_non_null(strstr(tt_node_peers_how(&pair.node_peers, OTHER), "no message of ours"));
        tt_expect_error(i == 0 ? "cannot map 0 bytes of shared memory: Invalid argument"
                               : "cannot map 4096 bytes of shared memory: Operation not permitted");
        close_pair(&pair);
        close(file);
    }
}

/* There is no room to map it: the same, with another reason. */
static void a_segment_waits_for_memory(void **state)
{
    (void)state;
    pair_t pair;
    open_pair(&pair);
    void *there = tt_device_alloc(pair.heap, 64, "test");
    const tt_heap_address_t place = tt_heap_address(pair.heap, there, 64);
    send_segment(&pair);
    const int count = tt_count_descriptors();
    tt_alloc_fail_at(1);
    tt_node_peers_check(&pair.node_peers);
    assert_true(tt_alloc_has_failed());
    tt_alloc_fail_at(0);
    assert_int_equal(tt_node_peers_state(&pair.node_peers, OTHER), TT_NODE_PEER_HERE);
    assert_int_equal(tt_node_peers_status(&pair.node_peers), TUTTI_ERR_NOMEM);
    tt_expect_error("rank 0 cannot map memory of rank 1: cannot allocate ");
    assert_null(tt_node_peers_at(&pair.node_peers, OTHER, place, 64));
    assert_int_equal(tt_count_descriptors(), count);
    tt_node_peers_check(&pair.node_peers);
    assert_int_equal(tt_node_peers_status(&pair.node_peers), TUTTI_OK);
    assert_non_null(tt_node_peers_at(&pair.node_peers, OTHER, place, 64));
    tt_device_free(pair.heap, there, 64);
    close_pair(&pair);
}

/* Something that this rank sent lies unread when the other leaves: the kernel says ECONNRESET
 * before it gives what the other said last. */
static void a_rank_leaves_with_something_unread(void **state)
{
    (void)state;
    pair_t pair;
    const tt_node_peer_message_t wake = say(TT_NODE_PEER_WAKE), bye = say(TT_NODE_PEER_BYE);
    open_pair(&pair);
    void *there = tt_device_alloc(pair.heap, 64, "test");
    const tt_heap_address_t place = tt_heap_address(pair.heap, there, 64);
    assert_int_equal(tt_node_peers_send(pair.list[OTHER].fd, &wake, -1, MSG_DONTWAIT), 0);
    send_segment(&pair);
    send_with(pair.fd, &bye, sizeof bye, NULL, 0);
    close(pair.fd);
    tt_node_peers_check(&pair.node_peers);
    assert_int_equal(tt_node_peers_state(&pair.node_peers, OTHER), TT_NODE_PEER_LEFT);
    assert_non_null(tt_node_peers_at(&pair.node_peers, OTHER, place, 64));
    pair.fd = -1;
    tt_device_free(pair.heap, there, 64);
    close_pair(&pair);
}

/* A rank that does not read: nobody waits for it, and all segments are reported to it later. */
static void a_rank_that_reads_nothing_holds_nobody(void **state)
{
    (void)state;
    pair_t pair;
    const tt_node_peer_message_t wake = say(TT_NODE_PEER_WAKE);
    open_pair(&pair);
    int count = 0;
    while (tt_node_peers_send(pair.list[OTHER].fd, &wake, -1, MSG_DONTWAIT) == 0) {
        count++;
    }
    assert_in_range(count, 1, 100 * PLENTY);
    tt_node_peers_on_segment(&pair.node_peers, 0, -1, 0);
    assert_int_equal(pair.list[OTHER].told, 0);
    for (tt_node_peer_message_t message; count > 0; count--) {
        assert_int_equal(recv(pair.fd, &message, sizeof message, 0), sizeof message);
    }
    tt_node_peers_check(&pair.node_peers);
    assert_int_equal(pair.list[OTHER].told, tt_heap_segment_count(pair.node_peers.heap));
    tt_node_peer_message_t message;
    assert_int_equal(recv(pair.fd, &message, sizeof message, MSG_DONTWAIT), sizeof message);
    assert_int_equal(message.kind, TT_NODE_PEER_SEGMENT);
    close_pair(&pair);
}

static void *receive_in_thread(void *user)
{
    tt_node_peers_receive(user, OTHER);
    return NULL;
}

static void *leave_in_thread(void *user)
{
    tt_node_peers_say_goodbye(user, OTHER);
    return NULL;
}

/* The rank that announces a segment holds `telling`: until then the socket is not closed, for its
 * number might become another's. Neither when the other hangs up nor when this rank leaves. */
static void a_socket_is_not_closed_while_somebody_tells(void **state)
{
    enum { CLOSE_MS = 200 };
    void *(*const closing[])(void *) = {receive_in_thread, leave_in_thread};
    (void)state;
    for (int i = 0; i < 2; i++) {
        pair_t pair;
        pthread_t thread;
        open_pair(&pair);
        struct pollfd hung_up = {.fd = pair.fd};
        assert_int_equal(shutdown(pair.fd, SHUT_WR), 0);
        pthread_mutex_lock(&pair.node_peers.telling);
        assert_int_equal(pthread_create(&thread, NULL, closing[i], &pair.node_peers), 0);
        const int closed = poll(&hung_up, 1, CLOSE_MS);
        pthread_mutex_unlock(&pair.node_peers.telling);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(closed, 0);
        assert_int_equal(pair.list[OTHER].fd, -1);
        tt_node_peers_on_segment(&pair.node_peers, 0, -1, 0); /* nothing is reported any more */
        close_pair(&pair);
    }
}

/* ---- the process at the other end ------------------------------------------------------------ */

/* Connects, says `kind` if it is one, and ends; its child, of which no library hears, holds the
 * socket until the other end is closed. */
static pid_t start_caller(const tt_unix_address_t *address, uint32_t kind, pid_t test)
{
    const pid_t caller = fork();
    if (caller != 0) {
        return caller;
    }
    int fd;
    const tt_node_peer_message_t message = say(kind);
    if (tt_unix_connect(address, tt_deadline_in_ms(10000), &fd) != TUTTI_OK ||
        send(fd, &message, kind != 0 ? sizeof message : 1, 0) < 0 ||
        syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) < 0) {
        _exit(1);
    }
    char byte;
    if (getppid() != test) {
        (void)!recv(fd, &byte, 1, 0);
    }
    _exit(0);
}

static void expect_end(uint32_t kind, tt_node_peer_state_t expected)
{
    pair_t pair;
    char name[40], message[sizeof(tt_node_peer_message_t)];
    tt_unix_listener_t listener;
    open_pair(&pair);
    close(pair.fd);
    tt_socket_close(pair.list[OTHER].fd);
    snprintf(name, sizeof name, "tutti-test-%d-%u", (int)getpid(), kind);
    const tt_unix_address_t address = tt_unix_address(name);
    assert_int_equal(tt_unix_listen(&address, &listener), TUTTI_OK);
    const pid_t caller = start_caller(&address, kind, getpid());
    int fd = -1;
    struct pollfd polls[1 + TT_UNIX_CALLERS_MAX];
    const tt_deadline_t deadline = tt_deadline_in_ms(10000);
    while (fd < 0 && !tt_deadline_is_past(deadline)) {
        poll(polls, (nfds_t)tt_unix_listener_polls(&listener, polls), 1000);
        assert_int_equal(
            tt_unix_listener_next(&listener, message, kind != 0 ? sizeof message : 1, &fd),
            TUTTI_OK);
    }
    assert_true(fd >= 0);
    pair.list[OTHER].fd = fd;
    pair.list[OTHER].pidfd = tt_unix_peer_process(fd);
    assert_true(pair.list[OTHER].pidfd >= 0);
    if (kind == 0) {
        (void)recv(fd, message, 1, 0);
    }
    assert_int_equal(waitpid(caller, NULL, 0), caller);
    tt_node_peers_check(&pair.node_peers);
    assert_int_equal(tt_node_peers_state(&pair.node_peers, OTHER), expected);
    assert_int_equal(pair.list[OTHER].pidfd, -1);
    pair.fd = -1;
    tt_unix_listener_close(&listener);
    close_pair(&pair);
}

static void a_process_that_ended_is_dead_although_others_hold_its_socket(void **state)
{
    (void)state;
    expect_end(0, TT_NODE_PEER_DEAD);
    expect_end(TT_NODE_PEER_BYE, TT_NODE_PEER_LEFT); /* what it said before counts */
}

/* ---- a process that is hung up on, and lives ---- */

/* The process at the other end, whose socket the test keeps. */
static pid_t start_other(pair_t *pair)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(30); /* however the test ends */
        pause();
        _exit(1);
    }
    pair->list[OTHER].pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    assert_true(pair->list[OTHER].pidfd >= 0);
    pair->list[OTHER].has_greeted = true;
    return child;
}

static void send_noise(const pair_t *pair)
{
    const tt_node_peer_message_t noise = say(99);
    send_with(pair->fd, &noise, sizeof noise, NULL, 0);
}

static void close_its_end(const pair_t *pair)
{
    assert_int_equal(shutdown(pair->fd, SHUT_WR), 0);
}

/* Whatever happens to its socket, it has the memory mapped, and may be writing: the memory is not
 * used again before it has ended. */
static void memory_waits_for_a_process_that_was_hung_up_on(void **state)
{
    enum { BYTES = 1 << 20 };
    static const _Atomic uint64_t not_quiet;
    void (*const ways[])(const pair_t *pair) = {send_noise, close_its_end};
    const char *const texts[] = {"is cut off: what it sent", "is cut off: its socket was closed"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        pair_t pair;
        tt_quarantine_t *quarantine;
        open_pair(&pair);
        STAILQ_INIT(&pair.node_peers.quarantines);
        const pid_t child = start_other(&pair);
        tt_device_t *heap = pair.node_peers.heap;
        void *memory = tt_device_alloc(heap, BYTES, "test");
        ways[i](&pair);
        tt_node_peers_check(&pair.node_peers);
        assert_int_equal(tt_node_peers_state(&pair.node_peers, OTHER), TT_NODE_PEER_DEAD);
        assert_false(tt_node_peers_is_gone(&pair.node_peers, OTHER));
        assert_non_null(strstr(tt_node_peers_how(&pair.node_peers, OTHER), texts[i]));
        assert_int_equal(tt_quarantine_open(&pair.node_peers, 1, 1, &quarantine), TUTTI_OK);
        tt_quarantine_watch(quarantine, OTHER, &not_quiet);
        tt_quarantine_add(quarantine, memory, BYTES);
        tt_quarantine_close(quarantine);
        assert_int_equal(tt_device_stats(heap).live_bytes, BYTES);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        tt_node_peers_check(&pair.node_peers);
        assert_true(tt_node_peers_is_gone(&pair.node_peers, OTHER));
        assert_string_equal(tt_node_peers_how(&pair.node_peers, OTHER), "died");
        tt_quarantine_sweep(&pair.node_peers);
        assert_int_equal(tt_device_stats(heap).live_bytes, 0);
        assert_int_equal(pair.list[OTHER].pidfd, -1);
        close_pair(&pair);
    }
}

static void a_rank_of_this_process_is_not_judged_by_it(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    assert_int_equal(tt_unix_peer_process(fds[0]), -1);
    close(fds[0]);
    close(fds[1]);
}

/* ---- a rank that takes nothing any more ---- */

/* The failure of another call is under way, and is about to be told. */
static void what_is_sent_in_vain_leaves_the_last_error(void **state)
{
    (void)state;
    static const char failure[] = "all_reduce #4: rank 3 died";
    pair_t pair;
    open_pair(&pair);
    void *memory = tt_device_alloc(pair.node_peers.heap, 64, "test"); /* in a segment to tell of */
    assert_int_equal(tt_heap_segment_count(pair.node_peers.heap), 1);
    assert_int_equal(shutdown(pair.fd, SHUT_RDWR), 0);
    assert_int_equal(TT_FAIL(TUTTI_ERR_PEER, failure), TUTTI_ERR_PEER);
    tt_node_peers_send_wake(&pair.node_peers, OTHER);
    assert_string_equal(tutti_last_error(), failure);
    tt_node_peers_tell(&pair.node_peers, OTHER);
    assert_string_equal(tutti_last_error(), failure);
    tt_node_peers_say_goodbye(&pair.node_peers, OTHER);
    assert_string_equal(tutti_last_error(), failure);
    tt_device_free(pair.node_peers.heap, memory, 64);
    close_pair(&pair);
}

static void a_greeting_in_vain_names_both_ranks(void **state)
{
    (void)state;
    const int names[] = {4, 7};
    pair_t pair;
    open_pair(&pair);
    pair.node_peers.names = names;
    pair.node_peers.block =
        tt_device_alloc(pair.node_peers.heap, sizeof *pair.node_peers.block, "test");
    assert_non_null(pair.node_peers.block);
    assert_int_equal(shutdown(pair.fd, SHUT_RDWR), 0);
    assert_int_equal(tt_node_peers_greet(&pair.node_peers, OTHER), TUTTI_ERR_PEER);
    assert_string_equal(tutti_last_error(), "while joining: rank 4 greets rank 7: Broken pipe");
    tt_device_free(pair.node_peers.heap, pair.node_peers.block, sizeof *pair.node_peers.block);
    close_pair(&pair);
}

static void swallow(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_that_nobody_wants_are_closed),
        cmocka_unit_test(descriptor_0_is_one_like_others),
        cmocka_unit_test(a_segment_waits_for_a_descriptor),
        cmocka_unit_test(a_segment_waits_for_memory),
        cmocka_unit_test(what_is_no_segment_is_not_tried_again),
        cmocka_unit_test(a_rank_leaves_with_something_unread),
        cmocka_unit_test(a_rank_that_reads_nothing_holds_nobody),
        cmocka_unit_test(a_socket_is_not_closed_while_somebody_tells),
        cmocka_unit_test(a_process_that_ended_is_dead_although_others_hold_its_socket),
        cmocka_unit_test(memory_waits_for_a_process_that_was_hung_up_on),
        cmocka_unit_test(a_rank_of_this_process_is_not_judged_by_it),
        cmocka_unit_test(what_is_sent_in_vain_leaves_the_last_error),
        cmocka_unit_test(a_greeting_in_vain_names_both_ranks),
    };
    tt_log_set_sink(swallow, NULL);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
