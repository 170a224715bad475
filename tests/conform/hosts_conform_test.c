/* Conformance of collectives on hosts of any shape: ranks are threads of this process, which meet
 * as peers on made-up hosts (peers_team_test.h). Every collective in every memory: all in the heap,
 * all outside it, and host by host or rank by rank in one or the other. With --world this program
 * is one rank of a job (backend_conform.h). TUTTI_TEST_SHARE=3 draws a third of the calls; every
 * shape sees the same. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/store.h>

#include "backend_conform.h"
#include "comm/group/group_impl.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/draw_testing.h"

enum { RANKS_MAX = 8, TIMEOUT_MS = 60000 };

typedef struct {
    tutti_store_t *store;
    tt_conform_t results[RANKS_MAX];
} shared_t;

static void run_rank(tt_peer_t *self)
{
    shared_t *shared = self->team->user;
    const tt_group_options_t options = {.name = "world",
                                        .rank = self->rank,
                                        .size = self->size,
                                        .store = shared->store,
                                        .timeout_ms = TIMEOUT_MS,
                                        .peers = self->peers};
    tutti_group_t *group;
    const tutti_status_t status = tt_group_create(&options, &group);
    TT_EXPECT_PEER(self, status == TUTTI_OK);
    if (status == TUTTI_OK) {
        tt_conform_run(group, TT_CONFORM_HOSTS, &shared->results[self->rank]);
        tutti_group_release(group);
    }
}

/* Returns the digest of all results. `shape` names each rank's host by a letter. */
static uint64_t run_shape(const char *shape)
{
    char names[RANKS_MAX][2] = {{0}};
    shared_t shared = {0};
    tt_peers_team_t team = {.size = (int)strlen(shape), .body = run_rank, .user = &shared};
    for (int rank = 0; rank < team.size; rank++) {
        names[rank][0] = shape[rank];
        team.hosts[rank] = names[rank];
    }
    assert_int_equal(tutti_store_hash_create(&shared.store), TUTTI_OK);
    tt_run_peers(&team);
    tutti_store_release(shared.store);
    uint64_t digest = 0;
    for (int rank = 0; rank < team.size; rank++) {
        const tt_conform_t *result = &shared.results[rank];
        if (result->wrong != 0) {
            fail_msg("%s: %ld wrong: %s", shape, result->wrong, result->text);
        }
        assert_true(result->checks > 400 / (long)tt_test_number("TUTTI_TEST_SHARE", 1));
        digest = digest * UINT64_C(0x100000001b3) ^ result->digest;
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return digest;
}

/* All shapes of as many ranks give the same bits as one host does. */
static void expect_one_digest(const char *const *shapes)
{
    const uint64_t want = run_shape(shapes[0]);
    for (int i = 1; shapes[i] != NULL; i++) {
        if (run_shape(shapes[i]) != want) {
            fail_msg("%s and %s differ in bits", shapes[i], shapes[0]);
        }
    }
}

static void three_ranks_agree_on_hosts_of_any_shape(void **state)
{
    (void)state;
    expect_one_digest((const char *const[]){"aaa", "aab", "abb", NULL});
}

static void four_ranks_agree_on_hosts_of_any_shape(void **state)
{
    (void)state;
    expect_one_digest((const char *const[]){"aaaa", "aaab", "abcc", "aabb", NULL});
}

static void five_ranks_agree_on_hosts_of_any_shape(void **state)
{
    (void)state;
    expect_one_digest((const char *const[]){"aaaaa", "abbbb", "aaabb", NULL});
}

int main(int argc, char **argv)
{
    const int ended = tt_conform_main(argc, argv, TT_CONFORM_HOSTS);
    if (ended >= 0) {
        return ended;
    }
    tt_conform_choose();
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_ranks_agree_on_hosts_of_any_shape),
        cmocka_unit_test(four_ranks_agree_on_hosts_of_any_shape),
        cmocka_unit_test(five_ranks_agree_on_hosts_of_any_shape),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
