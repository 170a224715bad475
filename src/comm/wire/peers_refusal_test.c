/* Ranks that cannot join: which one says why, and that the others learn it. */
#include "core/base/testing.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/wire/node_peers_impl.h"
#include "comm/wire/peers_impl.h"
#include "comm/wire/peers_team_test.h"

static void expect_refusal(tt_peer_t *self)
{
    TT_EXPECT_PEER(self, self->joined < 0);
    if (self->rank == 2) {
        TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_ARG);
        TT_EXPECT_PEER(self, strstr(tutti_last_error(), "smoke") != NULL);
    } else {
        TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_PEER);
        TT_EXPECT_PEER(self,
                       strstr(tutti_last_error(), "rank 2 did not join: TUTTI_WIRES is") != NULL);
    }
}

static void a_rank_that_cannot_join_says_why(void **state)
{
    (void)state;
    const int64_t start_ns = tt_clock_ns();
    tt_peers_team_t team = {.size = 3,
                            .body = expect_refusal,
                            .hosts = {"a", "a", "b"},
                            .wires = {NULL, NULL, "smoke"},
                            .timeout_ms = 15000};
    tt_run_peers(&team);
    assert_true(tt_clock_ns() - start_ns < 5 * TT_NS_PER_S);
}

static void expect_refused_streams(tt_peer_t *self)
{
    TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_ARG || self->joined == TUTTI_ERR_PEER);
    TT_EXPECT_PEER(self, strstr(tutti_last_error(), "TUTTI_TCP_STREAMS") != NULL);
}

static void streams_that_are_no_number_are_refused(void **state)
{
    (void)state;
    setenv("TUTTI_TCP_STREAMS", "x", 1);
    tt_peers_team_t team = {.size = 2, .body = expect_refused_streams, .timeout_ms = 15000};
    tt_run_peers(&team);
    unsetenv("TUTTI_TCP_STREAMS");
}

/* The C library's, out of order when that is wanted. */
static bool has_no_random_numbers;

ssize_t getrandom(void *out, size_t bytes, unsigned flags)
{
    errno = ENOSYS;
    return has_no_random_numbers ? -1 : syscall(SYS_getrandom, out, bytes, flags);
}

static void expect_no_random_numbers(tt_peer_t *self)
{
    TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_IO);
    TT_EXPECT_PEER(self, strstr(tutti_last_error(), "no random numbers from the system") != NULL);
}

static void a_rank_without_random_numbers_does_not_join(void **state)
{
    (void)state;
    has_no_random_numbers = true;
    tt_peers_team_t team = {
        .size = 2, .body = expect_no_random_numbers, .hosts = {"a", "a"}, .timeout_ms = 15000};
    tt_run_peers(&team);
    has_no_random_numbers = false;
}

static void expect_no_way(tt_peer_t *self)
{
    TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT_PEER(self, strstr(tutti_last_error(), "TUTTI_WIRES is \"shm\"") != NULL);
}

static void shm_alone_does_not_reach_other_hosts(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = 2,
                            .body = expect_no_way,
                            .hosts = {"a", "b"},
                            .wires = {"shm", "shm"},
                            .timeout_ms = 15000};
    tt_run_peers(&team);
}

/* Rank 1's thread has a network namespace of its own, while all that tells hosts apart is that of
 * the process: as in a copy of a virtual machine, where even the boot id is the same. */
static _Atomic bool is_copied;

static void move_to_a_copy(tt_peer_t *self)
{
    if (self->rank == 1) {
        is_copied = unshare(CLONE_NEWNET) == 0;
    }
}

static void be_told_apart(tt_peer_t *self)
{
    if (self->rank == 1 && is_copied) {
        TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_UNSUPPORTED);
        TT_EXPECT_PEER(self, strstr(tutti_last_error(), "rank 0 is gone, or on another host than "
                                                        "rank 1") != NULL);
        TT_EXPECT_PEER(self, strstr(tutti_last_error(), "boot id") != NULL);
    } else if (is_copied) {
        TT_EXPECT_PEER(self, self->joined == TUTTI_ERR_PEER);
        TT_EXPECT_PEER(self, strstr(tutti_last_error(), "rank 1 did not join: rank 0 is gone, or "
                                                        "on another host") != NULL);
    }
}

/* That the marks are the same proves nothing: memory comes by the socket alone. Rank 1 finds out
 * when it has shown where it is, and rank 0 may wait for its call by then. */
static void copies_of_a_machine_do_not_believe_that_they_share_memory(void **state)
{
    (void)state;
    const int64_t start_ns = tt_clock_ns();
    tt_peers_team_t team = {.size = 2,
                            .prepare = move_to_a_copy,
                            .body = be_told_apart,
                            .hosts = {"a", "a"},
                            .timeout_ms = 15000};
    tt_run_peers(&team);
    assert_true(tt_clock_ns() - start_ns < 5 * TT_NS_PER_S);
    if (!is_copied) {
        print_message("skipped: no network namespace can be made here\n");
        skip();
    }
}

/* ---- a rank that greets, and leaves ---------------------------------------------------------- */

enum { LOSER = 1, RANKS = 3 };

/* Rank 0 is slow to greet rank 1, which leaves meanwhile, before rank 2 comes; or it does not look
 * for callers before that. */
static _Atomic uint32_t greets, has_left;

static void await(_Atomic uint32_t *what)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(5000);
    while (!atomic_load(what) && !tt_deadline_is_past(deadline)) {
        tt_futex_wait(what, 0, deadline);
    }
}

static void note(_Atomic uint32_t *what)
{
    atomic_store(what, 1);
    tt_futex_wake_all(what);
}

/* The C library's, which a rank that greets may be slow to enter. */
static _Atomic bool is_slow;

ssize_t sendmsg(int socket, const struct msghdr *header, int flags)
{
    const tt_node_peer_message_t *message = header->msg_iov->iov_base;
    if (atomic_load(&is_slow) && message->kind == TT_NODE_PEER_HELLO && message->rank == 0) {
        note(&greets);
        await(&has_left);
    }
    return syscall(SYS_sendmsg, socket, header, flags);
}

typedef struct {
    pthread_t thread;
    int rank;
    tt_info_table_t *table;
    tutti_status_t joined;
    char error[TT_ERROR_TEXT_BYTES];
} joiner_t;

static tutti_status_t put_info(void *user, tt_info_kind_t kind, int rank, const void *info)
{
    return tt_table_put(((joiner_t *)user)->table, kind, rank, info);
}

static tutti_status_t get_info(void *user, tt_info_kind_t kind, int rank, tt_deadline_t deadline,
                               void *info)
{
    const joiner_t *self = user;
    if (kind == TT_INFO_NODE_PEER && self->rank == 0 && !atomic_load(&is_slow)) {
        await(&has_left);
    } else if (kind == TT_INFO_NODE_PEER && self->rank > 0 && rank != self->rank - 1) {
        await(&greets); /* rank 1 asks for rank 2, or rank 2 for rank 0 */
        if (self->rank == LOSER) {
            return TT_FAIL(TUTTI_ERR_IO, "the store is lost");
        }
    }
    return tt_table_get(self->table, kind, rank, deadline, info);
}

static void *join_in_thread(void *user)
{
    joiner_t *self = user;
    tt_peers_t *peers = NULL;
    const tt_peers_options_t options = {
        .rank = self->rank,
        .size = RANKS,
        .directory = {.put = put_info, .get = get_info, .user = self},
        .host = "a"};
    self->joined = tt_peers_join(&options, tt_deadline_in_ms(10000), &peers);
    snprintf(self->error, sizeof self->error, "%s", tutti_last_error());
    tt_peers_release(peers);
    if (self->rank == LOSER) {
        note(&has_left);
    }
    return NULL;
}

/* Whether it is called when it has gone, or calls and goes. */
static void expect_cause_of_one_that_left(bool greets_late)
{
    joiner_t ranks[RANKS];
    tt_info_table_t *table = tt_table_open();
    atomic_store(&is_slow, greets_late);
    atomic_store(&has_left, 0);
    atomic_store(&greets, !greets_late);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (joiner_t){.rank = i, .table = table};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, join_in_thread, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(ranks[i].thread, NULL);
    }
    atomic_store(&is_slow, false);
    tt_table_close(table);
    assert_int_equal(ranks[LOSER].joined, TUTTI_ERR_IO);
    assert_string_equal(ranks[LOSER].error, "the store is lost");
    for (int i = 0; i < RANKS; i += 2) {
        assert_int_equal(ranks[i].joined, TUTTI_ERR_PEER);
        if (strstr(ranks[i].error, "rank 1 did not join: the store is lost") == NULL) {
            fail_msg("rank %d: %s", i, ranks[i].error);
        }
    }
}

static void a_rank_that_leaves_while_it_is_greeted_says_why(void **state)
{
    (void)state;
    expect_cause_of_one_that_left(false);
    expect_cause_of_one_that_left(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_cannot_join_says_why),
        cmocka_unit_test(shm_alone_does_not_reach_other_hosts),
        cmocka_unit_test(streams_that_are_no_number_are_refused),
        cmocka_unit_test(a_rank_without_random_numbers_does_not_join),
        cmocka_unit_test(copies_of_a_machine_do_not_believe_that_they_share_memory),
        cmocka_unit_test(a_rank_that_leaves_while_it_is_greeted_says_why),
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
