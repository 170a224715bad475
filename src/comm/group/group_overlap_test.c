/* Overlapping memory. Calls under way on it are carried out in order, whichever rank is late, and
 * however their pieces travel (in the flags, or read in place); a list may be written over itself.
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

/* Rank 0 makes both calls, and waits when rank 1 has done what it can do alone. */
static void sum_both(tt_member_t *m, tutti_tensor_t *first, tutti_tensor_t *second)
{
    tutti_work_t *works[2] = {NULL};
    if (m->rank == 1) {
        tt_member_await(m, 1);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, first, TUTTI_SUM, &works[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, second, TUTTI_SUM, &works[1]) == TUTTI_OK);
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
    sum_both(m, order->is_first_large ? x.large : x.small,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_sum_waits_for_the_one_before_it),
        cmocka_unit_test(a_small_sum_waits_for_a_large_one),
        cmocka_unit_test(nobody_touches_memory_of_a_small_sum_that_is_under_way),
        cmocka_unit_test(lists_in_place_are_copied_first),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
