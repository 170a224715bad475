/* Overlapping memory. Calls under way on it are carried out in order, whichever rank is late, and
 * however their pieces travel (in the flags, read in place, packed); a list may be written over
 * itself.
 */
#include "comm/group/group_team.h"
#include "core/base/testing.h"

enum { RANKS = 2, SMALL = 4, LARGE = 16384, LOOKS = 1000, TIMEOUT_MS = 20000 };

/* A tensor in the heap, of ones, and its last elements, which rank 1 adds up in the large sum. */
typedef struct {
    tutti_tensor_t *large, *small;
} pair_t;

static pair_t make(tt_member_t *m)
{
    pair_t pair = {0};
    TT_EXPECT(m,
              tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(LARGE), &pair.large) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(pair.large, 1) == TUTTI_OK);
    float *data = tutti_tensor_data(pair.large);
    TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(SMALL), data + LARGE - SMALL,
                                   &pair.small) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    return pair;
}

static void release(pair_t pair)
{
    tutti_tensor_release(pair.small);
    tutti_tensor_release(pair.large);
}

/* ---- what a call makes of x, which is the same on both ranks ---- */

typedef tutti_status_t (*call_t)(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work);

static tutti_status_t sum(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    return tutti_all_reduce(group, x, TUTTI_SUM, work);
}

static tutti_status_t sum_scaled(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    const double factor = 3;
    const tutti_reduce_options_t options = {.factor = &factor};
    return tutti_all_reduce_with(group, x, TUTTI_PREMUL_SUM, &options, work);
}

static tutti_status_t sum_coalesced(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    TUTTI_CHECK(tutti_coalesce_begin(group));
    const tutti_status_t status = tutti_all_reduce(group, x, TUTTI_SUM, NULL);
    const tutti_status_t end = tutti_coalesce_end(group, work);
    return status < 0 ? status : end;
}

static tutti_status_t gather_list(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    tutti_tensor_t *other;
    TUTTI_CHECK(tutti_group_tensor(group, TUTTI_F32, tutti_tensor_shape(x), &other));
    const tutti_status_t status =
        tutti_all_gather_list(group, (tutti_tensor_t *[]){x, other}, x, work);
    tutti_tensor_release(other);
    return status;
}

static const struct {
    call_t call;
    float becomes; /* so many times what it was */
} calls[] = {{sum, 2}, {sum_scaled, 6}, {sum_coalesced, 2}, {gather_list, 1}};

enum { CALLS = sizeof calls / sizeof *calls };

/* Rank 0 makes both calls, and waits when rank 1 has done what it can do alone. */
static void make_both(tt_member_t *m, call_t first, tutti_tensor_t *x, call_t second,
                      tutti_tensor_t *y)
{
    tutti_work_t *works[2] = {NULL};
    if (m->rank == 1) {
        tt_member_await(m, 1);
    }
    TT_EXPECT(m, first(m->group, x, &works[0]) == TUTTI_OK);
    TT_EXPECT(m, second(m->group, y, &works[1]) == TUTTI_OK);
    for (int i = 0; m->rank == 1 && i < LOOKS; i++) {
        TT_EXPECT(m, tutti_work_test(works[1]) >= 0);
    }
    tt_member_tell(m);
    if (m->rank == 0) {
        tt_member_await(m, 2);
    }
    TT_EXPECT(m, tutti_work_wait_all(works, 2) == TUTTI_OK);
    tutti_work_release(works[0]);
    tutti_work_release(works[1]);
}

static void expect(tt_member_t *m, const tutti_tensor_t *x, int64_t count, float want)
{
    const float *data = tutti_tensor_data(x);
    int64_t i = 0;
    while (i < count && data[i] == want) {
        i++;
    }
    TT_EXPECT(m, i == count);
}

/* Which of the two tensors the calls are on. */
typedef struct {
    bool is_first_large, is_second_large;
} order_t;

static void sum_in_order(tt_member_t *m)
{
    const order_t *order = m->user;
    const pair_t x = make(m);
    make_both(m, sum, order->is_first_large ? x.large : x.small, sum,
              order->is_second_large ? x.large : x.small);
    expect(m, x.small, SMALL, RANKS * RANKS);
    const bool has_large = order->is_first_large || order->is_second_large;
    expect(m, x.large, LARGE - SMALL, has_large ? RANKS : 1);
    release(x);
}

static void a_small_sum_waits_for_the_one_before_it(void **state)
{
    (void)state;
    tt_team_expect(RANKS, TIMEOUT_MS, sum_in_order, &(order_t){false, false});
}

static void a_small_sum_waits_for_a_large_one(void **state)
{
    (void)state;
    tt_team_expect(RANKS, TIMEOUT_MS, sum_in_order, &(order_t){true, false});
}

/* Rank 1 is done with the first call before rank 0 has looked for it. */
static void nobody_touches_memory_of_a_small_sum_that_is_under_way(void **state)
{
    (void)state;
    tt_team_expect(RANKS, TIMEOUT_MS, sum_in_order, &(order_t){false, true});
}

/* ---- calls that pack ---- */

typedef struct {
    int first, second;
    bool is_large;
} both_t;

static void call_in_order(tt_member_t *m)
{
    const both_t *both = m->user;
    const pair_t x = make(m);
    tutti_tensor_t *y = both->is_large ? x.large : x.small;
    make_both(m, calls[both->first].call, y, calls[both->second].call, y);
    expect(m, y, tutti_tensor_numel(y), calls[both->first].becomes * calls[both->second].becomes);
    release(x);
}

static void calls_that_pack_wait_for_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * CALLS * CALLS; i++) {
        both_t both = {i % CALLS, i / CALLS % CALLS, i / (CALLS * CALLS) == 1};
        tt_team_expect(RANKS, TIMEOUT_MS, call_in_order, &both);
    }
}

/* A third call finds what the first ones have left where they pack. */
static void call_three(tt_member_t *m)
{
    const pair_t x = make(m);
    tutti_work_t *works[4] = {NULL};
    TT_EXPECT(m, sum_scaled(m->group, x.small, &works[0]) == TUTTI_OK);
    TT_EXPECT(m, gather_list(m->group, x.small, &works[1]) == TUTTI_OK);
    TT_EXPECT(m, sum(m->group, x.large, &works[2]) == TUTTI_OK);
    TT_EXPECT(m, sum_coalesced(m->group, x.small, &works[3]) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait_all(works, 4) == TUTTI_OK);
    for (int i = 0; i < 4; i++) {
        tutti_work_release(works[i]);
    }
    expect(m, x.small, SMALL, 2 * 6 * RANKS);
    expect(m, x.large, LARGE - SMALL, RANKS);
    release(x);
}

static void packs_are_used_again_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        tt_team_expect(RANKS, TIMEOUT_MS, call_three, NULL);
    }
}

/* ---- lists whose tensors lie side by side, in place ---- */

static void swap_in_place(tt_member_t *m)
{
    tutti_tensor_t *whole, *parts[RANKS];
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(RANKS * LARGE), &whole) ==
                     TUTTI_OK);
    float *data = tutti_tensor_data(whole);
    for (int i = 0; i < RANKS; i++) {
        TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(LARGE), data + i * LARGE,
                                       &parts[i]) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_fill(parts[i], (float)(10 * m->rank + i)) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_all_to_all_list(m->group, parts, parts, NULL) == TUTTI_OK);
    for (int i = 0; i < RANKS; i++) {
        expect(m, parts[i], LARGE, (float)(10 * i + m->rank));
        tutti_tensor_release(parts[i]);
    }
    tutti_tensor_release(whole);
}

static void lists_in_place_are_copied_first(void **state)
{
    (void)state;
    tt_team_expect(RANKS, TIMEOUT_MS, swap_in_place, NULL);
}

/* After the pack could not be started, each call says why, whatever failed in between. */
static void a_failure_while_coalescing_keeps_its_text(void **state)
{
    (void)state;
    tutti_group_t *world;
    tutti_tensor_t *small, *large;
    assert_int_equal(tutti_init(NULL, &world), TUTTI_OK);
    assert_int_equal(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(4), &small), TUTTI_OK);
    assert_int_equal(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(1 << 16), &large), TUTTI_OK);
    assert_int_equal(tutti_coalesce_begin(world), TUTTI_OK);
    assert_int_equal(tutti_all_reduce(world, small, TUTTI_SUM, NULL), TUTTI_OK);
    tutti_group_abort(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_all_reduce(world, large, TUTTI_SUM, NULL), TUTTI_ERR_ABORTED);
        tt_expect_error("aborted");
        assert_int_equal(tutti_all_reduce(world, NULL, TUTTI_SUM, NULL), TUTTI_ERR_ARG);
    }
    assert_int_equal(tutti_coalesce_end(world, NULL), TUTTI_ERR_ABORTED);
    tutti_tensor_release(small);
    tutti_tensor_release(large);
    tutti_group_release(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_sum_waits_for_the_one_before_it),
        cmocka_unit_test(a_small_sum_waits_for_a_large_one),
        cmocka_unit_test(nobody_touches_memory_of_a_small_sum_that_is_under_way),
        cmocka_unit_test(calls_that_pack_wait_for_each_other),
        cmocka_unit_test(packs_are_used_again_in_order),
        cmocka_unit_test(lists_in_place_are_copied_first),
        cmocka_unit_test(a_failure_while_coalescing_keeps_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
