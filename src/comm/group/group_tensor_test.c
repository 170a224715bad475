/* Tensors of a group: as many as the memory holds, on every rank's side. */
#include "core/base/testing.h"

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

/* Two of these never fitted into one segment of 32 MiB, and there were 64 segments. */
enum { COUNT = 80, TENSOR_BYTES = 17 << 20 };

static void many_large_ones(tt_member_t *m)
{
    static tutti_tensor_t *tensors[COUNT];
    for (int i = 0; i < COUNT; i++) {
        TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(TENSOR_BYTES / 4),
                                        &tensors[i]) == TUTTI_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        tutti_tensor_release(tensors[i]);
    }
}

static void there_are_more_large_tensors_than_sixty_four(void **state)
{
    (void)state;
    tt_team_expect(1, 60000, many_large_ones, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Peers read what lies in segments that were added after they had met. */
static void many_grow(tt_member_t *m)
{
    enum { ROUNDS = 70, ELEMENTS = 300000 };
    tutti_tensor_t *tensors[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(ELEMENTS), &tensors[i]) ==
                         TUTTI_OK);
        float *data = tutti_tensor_data(tensors[i]);
        data[ELEMENTS - 1] = (float)(m->rank + 1);
        TT_EXPECT(m, tutti_all_reduce(m->group, tensors[i], TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, data[ELEMENTS - 1] == 6.0F && data[0] == 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        tutti_tensor_release(tensors[i]);
    }
}

static void peers_see_tensors_of_later_segments(void **state)
{
    (void)state;
    tt_team_expect(3, 60000, many_grow, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void too_large(tt_member_t *m)
{
    tutti_tensor_t *x = NULL;
    const int64_t elements = (int64_t)1 << 42; /* 16 TiB: address space there is, memory not */
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(elements), &x) ==
                     TUTTI_ERR_NOMEM);
    TT_EXPECT(m, strstr(tutti_last_error(), "cannot get 17592186044416 bytes of shared memory for "
                                            "shared tensor: ") != NULL);
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(1000), &x) == TUTTI_OK);
    tutti_tensor_release(x);
}

static void a_tensor_larger_than_memory_is_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, too_large, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_more_large_tensors_than_sixty_four),
        cmocka_unit_test(peers_see_tensors_of_later_segments),
        cmocka_unit_test(a_tensor_larger_than_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
