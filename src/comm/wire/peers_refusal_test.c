/* Ranks that cannot join: which one says why, and that the others learn it. */
#include "core/base/testing.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_cannot_join_says_why),
        cmocka_unit_test(shm_alone_does_not_reach_other_hosts),
        cmocka_unit_test(streams_that_are_no_number_are_refused),
        cmocka_unit_test(a_rank_without_random_numbers_does_not_join),
        cmocka_unit_test(copies_of_a_machine_do_not_believe_that_they_share_memory),
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
