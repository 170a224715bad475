/* Conformance of the backends, whole: 1 to 9 ranks, every root, dtype, reduction and memory, over
 * shared memory and tcp, and with each algorithm by itself. With --world this program is one rank
 * of a job (backend_conform.h). */
#include "core/base/testing.h"

#include <stdlib.h>

#include "backend_conform.h"
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan.h"
#include "comm/group/group_team.h"
#include "core/tensor/device_testing.h"

static tt_conform_t results[TT_TEAM_MAX];
static int run_flags;

static void run_member(tt_member_t *m)
{
    tt_conform_run(m->group, run_flags, &results[m->rank]);
}

static uint64_t run_ranks(int size, int flags, const char *what)
{
    run_flags = flags;
    const tt_team_result_t team = tt_team_run(size, 120000, run_member, NULL);
    if (team.text[0] != 0) {
        fail_msg("%s: %s", what, team.text);
    }
    uint64_t digest = 0;
    for (int rank = 0; rank < size; rank++) {
        if (results[rank].wrong != 0) {
            fail_msg("%s: %ld wrong: %s", what, results[rank].wrong, results[rank].text);
        }
        digest = digest * UINT64_C(0x100000001b3) ^ results[rank].digest;
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return digest;
}

static void one_to_nine_ranks_agree_with_the_reference(void **state)
{
    (void)state;
    for (int size = 1; size <= 9; size++) {
        (void)run_ranks(size, size <= 5 ? TT_CONFORM_FULL : 0, "shm");
    }
}

static void tcp_gives_the_digest_of_shared_memory(void **state)
{
    (void)state;
    const int sizes[] = {2, 3, 4, 7};
    for (int i = 0; i < 4; i++) {
        const uint64_t shm = run_ranks(sizes[i], 0, "shm");
        setenv("TUTTI_WIRES", "tcp", 1);
        setenv("TUTTI_PROTECT", "off", 1);
        setenv("TUTTI_PROTECT", "off", 1);
        const uint64_t tcp = run_ranks(sizes[i], 0, "tcp");
        unsetenv("TUTTI_WIRES");
        assert_true(shm == tcp);
    }
}

static void canonical_algorithms_give_one_digest(void **state)
{
    (void)state;
    const uint64_t want = run_ranks(4, 0, "default");
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (tt_algorithms[i]->is_canonical) {
            setenv("TUTTI_ALGO", tt_algorithms[i]->name, 1);
            assert_true(run_ranks(4, 0, tt_algorithms[i]->name) == want);
        }
    }
    unsetenv("TUTTI_ALGO");
}

static void other_algorithms_are_right_on_whole_numbers(void **state)
{
    (void)state;
    const uint64_t want = run_ranks(4, TT_CONFORM_INTEGERS, "default");
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (!tt_algorithms[i]->is_canonical) {
            setenv("TUTTI_ALGO", tt_algorithms[i]->name, 1);
            assert_true(run_ranks(4, TT_CONFORM_INTEGERS, tt_algorithms[i]->name) == want);
        }
    }
    unsetenv("TUTTI_ALGO");
}

static void devices_have_the_bits_of_the_host(void **state)
{
    (void)state;
    tt_conform_choose();
    for (int size = 1; size <= 5; size++) {
        (void)run_ranks(size, TT_CONFORM_DEVICE | (size == 3 ? TT_CONFORM_FULL : 0), "devices");
    }
}

int main(int argc, char **argv)
{
    const int ended = tt_conform_main(argc, argv, TT_CONFORM_FULL);
    if (ended >= 0) {
        return ended;
    }
    const struct CMUnitTest on_devices[] = {
        cmocka_unit_test(devices_have_the_bits_of_the_host),
    };
    if (tt_test_device() != NULL) {
        return cmocka_run_group_tests(on_devices, NULL, tt_nothing_is_left);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_nine_ranks_agree_with_the_reference),
        cmocka_unit_test(tcp_gives_the_digest_of_shared_memory),
        cmocka_unit_test(canonical_algorithms_give_one_digest),
        cmocka_unit_test(other_algorithms_are_right_on_whole_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
