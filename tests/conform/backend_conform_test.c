/* Conformance of the backends, small: a few numbers of ranks, and equal digests over shared memory
 * and tcp. With --world this program is one rank of a job (backend_conform.h). */
#include "core/base/testing.h"

#include <stdlib.h>

#include "backend_conform.h"
#include "comm/group/group_team.h"
#include "core/tensor/device_testing.h"

static tt_conform_t results[TT_TEAM_MAX];
static int flags;

static void run_member(tt_member_t *m)
{
    tt_conform_run(m->group, flags, &results[m->rank]);
}

static uint64_t run_ranks(int size)
{
    const tt_team_result_t team = tt_team_run(size, 60000, run_member, NULL);
    if (team.text[0] != 0) {
        fail_msg("%s", team.text);
    }
    uint64_t digest = 0;
    for (int rank = 0; rank < size; rank++) {
        if (results[rank].wrong != 0) {
            fail_msg("%ld wrong: %s", results[rank].wrong, results[rank].text);
        }
        assert_true(results[rank].checks > (flags == 0 ? 500 : 50));
        assert_false(results[rank].no_messages);
        digest = digest * UINT64_C(0x100000001b3) ^ results[rank].digest;
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return digest;
}

/* One case of TUTTI_TEST_SHARE. */
static void devices_have_the_bits_of_the_host(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3};
    flags = TT_CONFORM_DEVICE;
    for (int i = 0; i < 3; i++) {
        (void)run_ranks(sizes[i]);
    }
}

static void one_to_five_ranks_agree_with_the_reference(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        (void)run_ranks(sizes[i]);
    }
}

static void tcp_gives_the_digest_of_shared_memory(void **state)
{
    (void)state;
    const uint64_t shm = run_ranks(3);
    setenv("TUTTI_WIRES", "tcp", 1);
    setenv("TUTTI_PROTECT", "off", 1);
    const uint64_t tcp = run_ranks(3);
    unsetenv("TUTTI_WIRES");
    assert_true(shm == tcp);
}

int main(int argc, char **argv)
{
    const int ended = tt_conform_main(argc, argv, 0);
    if (ended >= 0) {
        return ended;
    }
    tt_conform_choose();
    const struct CMUnitTest on_devices[] = {
        cmocka_unit_test(devices_have_the_bits_of_the_host),
    };
    if (tt_test_device() != NULL) {
        return cmocka_run_group_tests(on_devices, NULL, tt_nothing_is_left);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_five_ranks_agree_with_the_reference),
        cmocka_unit_test(tcp_gives_the_digest_of_shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
