/* Prepared calls: what is found out about a call is found again by the next one that is like it,
 * and calls that differ do not drive each other out.
 */
#include <string.h>

#include <tutti/prepared.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_exec.h"
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
        found += coll->prepared.entries[i / TT_PREPARED_WAYS][i % TT_PREPARED_WAYS] != NULL;
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
        TT_EXPECT(m, tt_native_coll(m->group->state)->prepared.evicted == 0);
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
    TT_EXPECT(m, tt_native_coll(m->group->state)->prepared.evicted > 0);
}

static void more_descriptors_than_there_is_room_for_make_room(void **state)
{
    (void)state;
    tt_team_expect(2, 0, overflow, NULL);
}

/* ---- those of callers ------------------------------------------------------------------------ */

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

static void set(tutti_tensor_t *x, float value)
{
    TT_ASSERT(tutti_tensor_fill(x, (double)value) == TUTTI_OK);
}

static float first_of(const tutti_tensor_t *x)
{
    return ((const float *)tutti_tensor_data(x))[0];
}

static tutti_status_t start_and_wait(tutti_prepared_t *prepared)
{
    tutti_work_t *work;
    TT_TRY(tutti_prepared_start(prepared, &work));
    const tutti_status_t status = tutti_work_wait(work, 0);
    tutti_work_release(work);
    return status;
}

static void rebind(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4), *y = make(m, 4), *longer = make(m, 5), *whole = NULL;
    tutti_tensor_t *flat = make(m, 8);
    tutti_prepared_t *sum = NULL, *gather = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_I32, TUTTI_SHAPE(4), &whole) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &sum) == TUTTI_OK);
    set(x, 1);
    set(y, 2);
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK && first_of(x) == 2);
    TT_EXPECT(m, tutti_prepared_rebind(sum, longer) == TUTTI_ERR_SHAPE);
    TT_EXPECT(m, says("prepared all_reduce of group world: x f32[5] is not as it was prepared, "
                      "f32[4]; prepare another call for it"));
    TT_EXPECT(m, tutti_prepared_rebind(sum, whole) == TUTTI_ERR_DTYPE);
    TT_EXPECT(m, says("x i32[4] is not as it was prepared, f32[4]"));
    TT_EXPECT(m, tutti_prepared_rebind(sum, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_prepared_rebind(sum, y) == TUTTI_OK);
    tutti_tensor_release(y); /* the prepared call holds it */
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK && first_of(y) == 4 && first_of(x) == 2);
    TT_EXPECT(m, tutti_prepared_rebind_pair(sum, x, x) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared all_reduce of group world has one tensor; use "
                      "tutti_prepared_rebind"));
    TT_EXPECT(m, tutti_prepare_all_gather(m->group, flat, x, &gather) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_rebind(gather, x) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared all_gather of group world has an output and an input; use "
                      "tutti_prepared_rebind_pair"));
    TT_EXPECT(m, tutti_prepared_rebind_pair(gather, flat, y) == TUTTI_OK);
    TT_EXPECT(m, start_and_wait(gather) == TUTTI_OK && first_of(flat) == 4);
    tutti_prepared_release(gather);
    tutti_prepared_release(sum);
    tutti_tensor_release(flat);
    tutti_tensor_release(whole);
    tutti_tensor_release(longer);
    tutti_tensor_release(x);
}

static void other_tensors_of_the_same_kind_can_be_bound(void **state)
{
    (void)state;
    tt_team_expect(2, 0, rebind, NULL);
}

/* A prepared call holds the tensors that it was bound to last, and no others. */
static void rebind_pairs(tt_member_t *m, bool is_uneven)
{
    const int64_t counts[] = {4, 4};
    tutti_tensor_t *from = make(m, 4), *to = make(m, 8), *next = make(m, 4), *out = make(m, 8);
    tutti_prepared_t *gather = NULL;
    set(from, 1);
    set(next, 5);
    TT_EXPECT(m, (is_uneven ? tutti_prepare_all_gather_uneven(m->group, to, from, counts, &gather)
                            : tutti_prepare_all_gather(m->group, to, from, &gather)) == TUTTI_OK);
    TT_EXPECT(m, start_and_wait(gather) == TUTTI_OK && first_of(to) == 1);
    TT_EXPECT(m, tutti_prepared_rebind_pair(gather, out, next) == TUTTI_OK);
    const size_t before = tt_alloc_stats().blocks;
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK); /* nobody allocates meanwhile */
    tutti_tensor_release(next);
    tutti_tensor_release(out);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tt_alloc_stats().blocks == before);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, start_and_wait(gather) == TUTTI_OK);
    TT_EXPECT(m, first_of(out) == 5 && tutti_tensor_at(out, 7) == 5 && first_of(to) == 1);
    tutti_tensor_release(from);
    tutti_tensor_release(to);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tt_alloc_stats().blocks < before);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_prepared_release(gather);
}

static void rebind_even_and_uneven_pairs(tt_member_t *m)
{
    rebind_pairs(m, false);
    rebind_pairs(m, true);
}

static void what_is_bound_is_held_and_what_was_is_not(void **state)
{
    (void)state;
    tt_team_expect(2, 0, rebind_even_and_uneven_pairs, NULL);
}

/* Calls that have no tensor, or none that can be replaced. */
static void rebind_others(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4), *y = make(m, 4), *z = make(m, 4);
    tutti_prepared_t *barrier = NULL, *list = NULL, *leaves = NULL;
    const tutti_contributions_t one_each = {.count = 2, .pieces = &x, .piece_count = 1};
    TT_EXPECT(m, tutti_prepare_barrier(m->group, &barrier) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_gather_list(m->group, (tutti_tensor_t *const[]){x, y}, z,
                                               &list) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_rebind(barrier, x) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared barrier of group world has no tensor"));
    TT_EXPECT(m, tutti_prepared_rebind_pair(barrier, x, y) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared barrier of group world has no tensor"));
    TT_EXPECT(m, tutti_prepared_rebind_pair(list, x, y) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared all_gather of group world has tensors of which none can be "
                      "replaced; prepare another call"));
    TT_EXPECT(m, tutti_prepare_all_reduce_contributions(m->group, &one_each, y, TUTTI_SUM,
                                                        &leaves) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_rebind(leaves, z) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared all_reduce of group world has tensors of which none"));
    tutti_prepared_release(leaves);
    tutti_prepared_release(list);
    tutti_prepared_release(barrier);
    tutti_tensor_release(z);
    tutti_tensor_release(y);
    tutti_tensor_release(x);
}

static void what_cannot_be_rebound_says_what_it_has(void **state)
{
    (void)state;
    tt_team_expect(2, 0, rebind_others, NULL);
}

/* Rank 1 comes late, so that rank 0's call is under way for sure. */
static void start_twice(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4);
    tutti_prepared_t *sum = NULL;
    tutti_work_t *work = NULL, *other = NULL;
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &sum) == TUTTI_OK);
    if (m->rank == 1) {
        tt_member_await(m, 1);
    }
    TT_EXPECT(m, tutti_prepared_start(sum, &work) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_prepared_start(sum, &other) == TUTTI_ERR_STATE);
        TT_EXPECT(m, says("prepared all_reduce of group world is under way; wait for the work of "
                          "its last start before it is started again"));
        TT_EXPECT(m, tutti_prepared_start(sum, NULL) == TUTTI_ERR_STATE);
        TT_EXPECT(m, tutti_prepared_start_all(&sum, 1, NULL) == TUTTI_ERR_STATE);
        tt_member_tell(m);
    }
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK); /* though the first work is still there */
    tutti_work_release(work);
    tutti_prepared_release(sum);
    tutti_tensor_release(x);
}

static void a_call_under_way_cannot_be_started_again(void **state)
{
    (void)state;
    tt_team_expect(2, 0, start_twice, NULL);
}

static void outlive(tt_member_t *m)
{
    tutti_group_t *other = NULL;
    tutti_tensor_t *x = make(m, 4);
    tutti_prepared_t *sum = NULL, *send = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 1}, 2, NULL, &other) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_reduce(other, x, TUTTI_SUM, &sum) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_send(other, x, 1 - m->rank, 0, &send) == TUTTI_OK);
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK);
    tutti_group_release(other);
    TT_EXPECT(m, tutti_prepared_start(sum, NULL) == TUTTI_ERR_STATE);
    TT_EXPECT(m, says("prepared all_reduce: group ") && says(" has been released"));
    TT_EXPECT(m, tutti_prepared_start(send, NULL) == TUTTI_ERR_STATE);
    TT_EXPECT(m, tutti_prepared_rebind(sum, x) == TUTTI_ERR_STATE);
    tutti_prepared_release(sum);
    tutti_prepared_release(send);
    tutti_tensor_release(x);
}

static void a_call_ends_with_its_group(void **state)
{
    (void)state;
    tt_team_expect(2, 0, outlive, NULL);
}

/* The call goes on, with the tensor and the plan that it was started with. */
static void release_early(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4), *y = make(m, 4), *large = make(m, 100000);
    tutti_prepared_t *sum = NULL, *long_sum = NULL;
    tutti_work_t *works[2] = {NULL};
    set(x, 1);
    set(y, 1);
    set(large, 1);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &sum) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, large, TUTTI_SUM, &long_sum) == TUTTI_OK);
    if (m->rank == 1) {
        tt_member_await(m, 1);
    }
    TT_EXPECT(m, tutti_prepared_start(sum, &works[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(long_sum, &works[1]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_rebind(sum, y) == TUTTI_OK);
    tutti_prepared_release(sum);
    tutti_prepared_release(long_sum);
    tutti_group_progress(m->group);
    if (m->rank == 0) {
        tt_member_tell(m);
    }
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_work_wait(works[i], 0) == TUTTI_OK);
        tutti_work_release(works[i]);
    }
    TT_EXPECT(m, first_of(x) == 2 && first_of(y) == 1 && first_of(large) == 2);
    tutti_tensor_release(large);
    tutti_tensor_release(y);
    tutti_tensor_release(x);
}

static void a_call_under_way_outlives_its_prepared_call(void **state)
{
    (void)state;
    tt_team_expect(2, 0, release_early, NULL);
}

static void start_several(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4), *y = make(m, 4);
    tutti_prepared_t *calls[3] = {NULL};
    tutti_work_t *work = NULL;
    set(x, 1);
    set(y, (float)m->rank);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &calls[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_broadcast(m->group, y, 1, &calls[1]) == TUTTI_OK);
    calls[2] = calls[0];
    TT_EXPECT(m, tutti_prepared_start_all(calls, 3, &work) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("prepared_start_all: call 2, all_reduce, is there twice"));
    TT_EXPECT(m, tutti_prepared_start_all(calls, 0, &work) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(calls[0], NULL) == TUTTI_ERR_STATE);
    TT_EXPECT(m, tutti_coalesce_end(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) { /* the other ranks make the plain calls */
        TT_EXPECT(m, tutti_prepared_start_all(calls, 2, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        tutti_work_release(work);
    } else {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_broadcast(m->group, y, 1, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, first_of(x) == 2 && first_of(y) == 1);
    TT_EXPECT(m, tutti_prepared_start_all(calls, 2, NULL) == TUTTI_OK);
    TT_EXPECT(m, first_of(x) == 4);
    tutti_prepared_release(calls[1]);
    tutti_prepared_release(calls[0]);
    tutti_tensor_release(y);
    tutti_tensor_release(x);
}

static void several_start_as_one(void **state)
{
    (void)state;
    tt_team_expect(2, 0, start_several, NULL);
}

/* The tag is that of the start. */
static void differ_in_tag(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4);
    tutti_prepared_t *sum = NULL;
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &sum) == TUTTI_OK);
    for (uint64_t tag = 5; tag < 8; tag++) {
        tutti_group_set_tag(m->group, tag);
        TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK);
    }
    tutti_group_set_tag(m->group, 70 + (uint64_t)m->rank);
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, says("with tag 71") || says("gave the group up"));
    TT_EXPECT(m, says("group_prepared_test.c:") || says("gave the group up"));
    TT_EXPECT(m, tutti_prepared_start(sum, NULL) == TUTTI_ERR_MISMATCH); /* as any call */
    tutti_prepared_release(sum);
    tutti_tensor_release(x);
}

static void tag_and_line_are_those_of_the_start(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 0, differ_in_tag, NULL);
}

static void prepare_nonsense(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 5), *y = make(m, 4);
    tutti_prepared_t *none = NULL;
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, NULL, TUTTI_SUM, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_prepare_broadcast(m->group, x, 2, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_prepare_all_gather(m->group, x, y, &none) == TUTTI_ERR_SHAPE);
    TT_EXPECT(m, tutti_prepare_send(m->group, x, m->rank, 0, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_prepare_all_to_all_list(m->group, NULL, NULL, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, none == NULL);
    tutti_prepared_release(NULL);
    tutti_tensor_release(y);
    tutti_tensor_release(x);
}

static void what_no_call_can_be_is_not_prepared(void **state)
{
    (void)state;
    tt_team_expect(2, 0, prepare_nonsense, NULL);
}

/* What chooses algorithms changes after a call has been prepared. */
static void change_rules(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 4096);
    tutti_prepared_t *sum = NULL;
    tt_coll_t *coll = tt_native_coll(m->group->state);
    set(x, 1);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &sum) == TUTTI_OK);
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK);
    TT_EXPECT(m, strcmp(tt_coll_last_algorithm(coll)->name, "direct") == 0);
    TT_EXPECT(m, tt_coll_rules_add(tt_coll_change_rules(coll), "pairwise", "test") >= 0);
    TT_EXPECT(m, start_and_wait(sum) == TUTTI_OK && first_of(x) == 4);
    TT_EXPECT(m, strcmp(tt_coll_last_algorithm(coll)->name, "pairwise") == 0);
    tutti_prepared_release(sum);
    tutti_tensor_release(x);
}

static void new_rules_hold_for_what_was_prepared_before(void **state)
{
    (void)state;
    tt_team_expect(2, 0, change_rules, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotating_roots_do_not_drive_each_other_out),
        cmocka_unit_test(calls_with_counts_are_found_again),
        cmocka_unit_test(calls_that_differ_in_their_tag_are_prepared_once),
        cmocka_unit_test(more_descriptors_than_there_is_room_for_make_room),
        cmocka_unit_test(other_tensors_of_the_same_kind_can_be_bound),
        cmocka_unit_test(what_is_bound_is_held_and_what_was_is_not),
        cmocka_unit_test(what_cannot_be_rebound_says_what_it_has),
        cmocka_unit_test(a_call_under_way_cannot_be_started_again),
        cmocka_unit_test(a_call_ends_with_its_group),
        cmocka_unit_test(a_call_under_way_outlives_its_prepared_call),
        cmocka_unit_test(several_start_as_one),
        cmocka_unit_test(tag_and_line_are_those_of_the_start),
        cmocka_unit_test(what_no_call_can_be_is_not_prepared),
        cmocka_unit_test(new_rules_hold_for_what_was_prepared_before),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
