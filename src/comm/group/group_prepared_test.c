/* Prepared calls: what is found out about a call is found again by the next one that is like it,
 * and calls that differ do not drive each other out.
 */
#include <string.h>

#include "comm/backend/native_backend.h"
#include "comm/coll/coll_impl.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/testing.h"

enum { TURNS = 3 };

static tutti_tensor_t *make(tt_member_t *m, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static int count_entries(const tt_member_t *m)
{
    const tt_coll_t *coll = tt_native_coll(m->group->state);
    int found = 0;
    for (int i = 0; i < TT_PREPARED_SETS * TT_PREPARED_WAYS; i++) {
        found += coll->prepared[i / TT_PREPARED_WAYS][i % TT_PREPARED_WAYS] != NULL;
    }
    return found;
}

static void rotate(tt_member_t *m)
{
    static const int64_t counts[] = {1, 100, 4096};
    const int before = count_entries(m);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < 3 * m->size; i++) {
            tutti_tensor_t *x = make(m, counts[i / m->size]);
            TT_EXPECT(m, tutti_broadcast(m->group, x, i % m->size, NULL) == TUTTI_OK);
            tutti_tensor_release(x);
        }
        TT_EXPECT(m, count_entries(m) == before + 3 * m->size);
        TT_EXPECT(m, tt_native_coll(m->group->state)->evicted == 0);
    }
}

static void rotating_roots_do_not_drive_each_other_out(void **state)
{
    (void)state;
    tt_team_expect(5, 0, rotate, NULL);
}

static void exchange(tt_member_t *m, int64_t more)
{
    const int64_t counts[] = {1 + more, 2, 3};
    int64_t gives[3], takes[3], given = 0, taken = 0;
    for (int i = 0; i < 3; i++) {
        gives[i] = counts[(m->rank + i) % 3];
        takes[i] = counts[(m->rank + i) % 3];
        given += gives[i];
        taken += takes[i];
    }
    tutti_tensor_t *in = make(m, given), *out = make(m, taken);
    TT_EXPECT(m, tutti_all_to_all_uneven(m->group, out, takes, in, gives, NULL) == TUTTI_OK);
    tutti_tensor_release(out);
    tutti_tensor_release(in);
}

static void repeat_uneven(tt_member_t *m)
{
    const int before = count_entries(m);
    for (int turn = 0; turn < TURNS; turn++) {
        exchange(m, 0);
        TT_EXPECT(m, count_entries(m) == before + (turn > 0 ? 2 : 1));
        exchange(m, 7);
        TT_EXPECT(m, count_entries(m) == before + 2);
    }
}

static void calls_with_counts_are_found_again(void **state)
{
    (void)state;
    tt_team_expect(3, 0, repeat_uneven, NULL);
}

static void change_tags(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 3);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    const int before = count_entries(m);
    for (uint64_t tag = 1; tag < 10; tag++) {
        tutti_group_set_tag(m->group, tag);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, count_entries(m) == before);
    tutti_tensor_release(x);
}

static void calls_that_differ_in_their_tag_are_prepared_once(void **state)
{
    (void)state;
    tt_team_expect(2, 0, change_tags, NULL);
}

/* More descriptors than there is room for: the values are right, and all memory goes back. */
static void overflow(tt_member_t *m)
{
    for (int64_t count = 1; count <= 2 * TT_PREPARED_SETS * TT_PREPARED_WAYS; count++) {
        tutti_tensor_t *x = make(m, count);
        float *data = tutti_tensor_data(x);
        data[count - 1] = (float)(m->rank + 1);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, data[count - 1] == 3);
        tutti_tensor_release(x);
    }
    TT_EXPECT(m, tt_native_coll(m->group->state)->evicted > 0);
}

static void more_descriptors_than_there_is_room_for_make_room(void **state)
{
    (void)state;
    tt_team_expect(2, 0, overflow, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotating_roots_do_not_drive_each_other_out),
        cmocka_unit_test(calls_with_counts_are_found_again),
        cmocka_unit_test(calls_that_differ_in_their_tag_are_prepared_once),
        cmocka_unit_test(more_descriptors_than_there_is_room_for_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
