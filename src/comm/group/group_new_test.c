/* Groups of some of the ranks: who is in them, under which names and ranks; made by their members
 * alone, while calls are under way; missing members; monitored barriers. */
#include "core/base/testing.h"

#include <unistd.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/clock.h"

static void run_team(int size, int64_t timeout_ms, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect(size, timeout_ms, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

/* The sum of (rank in the world + 1) over the group's ranks. */
static void expect_sum(tt_member_t *m, tutti_group_t *group, double want)
{
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE(3000), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, m->rank + 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(x, 0) == want && tutti_tensor_at(x, 2999) == want);
    tutti_tensor_release(x);
}

static void some_ranks(tt_member_t *m)
{
    const int ranks[] = {3, 1, 4};
    tutti_group_t *some = m->group;
    const tutti_status_t status = tutti_group_new(m->group, ranks, 3, NULL, &some);
    if (m->rank == 0 || m->rank == 2) {
        TT_EXPECT(m, status == TUTTI_NONMEMBER && some == NULL);
        return;
    }
    TT_EXPECT(m, status == TUTTI_OK && tutti_group_size(some) == 3);
    TT_EXPECT(m, ranks[tutti_group_rank(some)] == m->rank);
    TT_EXPECT(m, strcmp(tutti_group_name(some), "world[3,1,4]") == 0);
    TT_EXPECT(m, tutti_group_translate(some, 2, m->group) == 4);
    TT_EXPECT(m, tutti_group_translate(m->group, 3, some) == 0);
    TT_EXPECT(m, tutti_group_translate(m->group, 2, some) == -1);
    expect_sum(m, some, 4 + 2 + 5);
    if (m->rank != 1) { /* a group of a group: world ranks 4 and 3 */
        tutti_group_t *inner;
        TT_EXPECT(m, tutti_group_new(some, (const int[]){2, 0}, 2,
                                     &(tutti_group_options_t){.name = "tp"}, &inner) == TUTTI_OK);
        TT_EXPECT(m, strcmp(tutti_group_name(inner), "world[3,1,4]/tp[2,0]") == 0);
        TT_EXPECT(m, tutti_group_translate(inner, 0, m->group) == 4);
        tutti_group_release(some); /* the inner one goes on */
        expect_sum(m, inner, 5 + 4);
        tutti_group_release(inner);
    } else {
        tutti_group_release(some);
    }
}

static void members_alone_make_a_group_and_keep_their_order(void **state)
{
    (void)state;
    run_team(5, 10000, some_ranks, NULL);
}

static void same_list(tt_member_t *m)
{
    tutti_group_t *groups[4];
    for (int i = 0; i < 4; i++) {
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &groups[i]) == TUTTI_OK);
    }
    TT_EXPECT(m, strcmp(tutti_group_name(groups[0]), "world[0-2]") == 0);
    TT_EXPECT(m, strcmp(tutti_group_name(groups[3]), "world[0-2]#4") == 0);
    for (int i = 3; i >= 0; i--) {
        expect_sum(m, groups[i], 6);
        tutti_group_release(groups[i]);
    }
    expect_sum(m, m->group, 6);
}

static void groups_of_one_list_stand_side_by_side(void **state)
{
    (void)state;
    run_team(3, 10000, same_list, NULL);
}

/* What a group needed to be made goes when its members make the next one of their list. */
static void same_list_again(tt_member_t *m)
{
    size_t keys[6] = {0};
    for (int i = 0; i < 6; i++) {
        tutti_group_t *group;
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
        expect_sum(m, group, 6);
        tutti_group_release(group);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_store_num_keys(m->store, &keys[i]) == TUTTI_OK);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, keys[1] == keys[0] && keys[5] == keys[0]);
}

static void a_list_that_comes_again_leaves_no_keys(void **state)
{
    (void)state;
    run_team(3, 10000, same_list_again, NULL);
}

/* Two groups whose long names differ at the end alone, and a group of each. */
static void long_names(tt_member_t *m)
{
    static const char *const names[] = {"one_a", "one_b"};
    tutti_group_t *outer, *parents[2], *groups[2];
    const tutti_group_options_t thirty = {.name = "a_name_of_just_thirty_letters_"};
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &thirty, &groups[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_new(groups[0], NULL, 0, &thirty, &outer) == TUTTI_OK);
    tutti_group_release(groups[0]);
    for (int i = 0; i < 2; i++) {
        const tutti_group_options_t options = {.name = names[i]};
        TT_EXPECT(m, tutti_group_new(outer, NULL, 0, &options, &parents[i]) == TUTTI_OK);
        TT_EXPECT(m, tutti_group_new(parents[i], NULL, 0, NULL, &groups[i]) == TUTTI_OK);
    }
    TT_EXPECT(m, strcmp(tutti_group_name(groups[0]), tutti_group_name(groups[1])) != 0);
    expect_sum(m, groups[0], 6);
    expect_sum(m, groups[1], 6);
    for (int i = 0; i < 2; i++) {
        tutti_group_release(groups[i]);
        tutti_group_release(parents[i]);
    }
    tutti_group_release(outer);
}

static void groups_of_parents_with_long_names_are_apart(void **state)
{
    (void)state;
    run_team(3, 10000, long_names, NULL);
}

static void split(tt_member_t *m)
{
    tutti_group_t *mine = m->group;
    const int colour = m->rank == 4 ? -1 : m->rank % 2;
    const tutti_status_t status = tutti_group_split(m->group, colour, -m->rank, &mine);
    if (colour < 0) {
        TT_EXPECT(m, status == TUTTI_NONMEMBER && mine == NULL);
        return;
    }
    TT_EXPECT(m, status == TUTTI_OK && tutti_group_size(mine) == (colour == 0 ? 3 : 3));
    /* keys fall with the rank: the last rank of a colour is the first */
    TT_EXPECT(m, tutti_group_translate(mine, 0, m->group) == (colour == 0 ? 6 : 5));
    expect_sum(m, mine, colour == 0 ? 1 + 3 + 7 : 2 + 4 + 6);
    tutti_group_release(mine);
}

static void a_split_goes_by_colour_and_key(void **state)
{
    (void)state;
    run_team(7, 10000, split, NULL);
}

static void subgroups(tt_member_t *m)
{
    tutti_group_t *mine;
    TT_EXPECT(m, tutti_group_subgroups(m->group, 3, &mine) == TUTTI_OK);
    expect_sum(m, mine, m->rank < 3 ? 6 : 15);
    tutti_group_release(mine);
    TT_EXPECT(m, tutti_group_subgroups(m->group, 4, &mine) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("4 ranks do not divide group world of 6"));
}

static void subgroups_are_consecutive_and_of_equal_size(void **state)
{
    (void)state;
    run_team(6, 10000, subgroups, NULL);
}

static void one_stays_away(tt_member_t *m)
{
    tutti_group_t *group;
    const tutti_group_options_t hasty = {.timeout_ms = 500};
    if (m->rank != 1) {
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &hasty, &group) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says("these ranks of group world did not come within 500 ms: 1"));
        tt_member_tell(m);
    } else { /* comes too late, and hears the same */
        tt_member_await(m, 2);
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &hasty, &group) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says("did not come within 500 ms: 1"));
    }
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    expect_sum(m, group, 6);
    tutti_group_release(group);
}

static void a_missing_member_is_named_and_the_parent_stays_usable(void **state)
{
    (void)state;
    run_team(3, 10000, one_stays_away, NULL);
}

static void wait_in_circles(tt_member_t *m)
{
    tutti_group_t *group;
    tutti_tensor_t *x, *y;
    tutti_work_t *in_world, *in_group;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(50000), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(50000), &y) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &in_world) == TUTTI_OK);
    if (m->rank == 0) { /* the others wait for it before they come */
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(in_world, 0) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_work_wait(in_world, 0) == TUTTI_OK);
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    }
    tutti_work_release(in_world);
    for (int i = 0; i < 20; i++) { /* two groups, waited for in different order */
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_MAX, &in_world) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(group, y, TUTTI_MAX, &in_group) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(m->rank == 0 ? in_world : in_group, 0) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(m->rank == 0 ? in_group : in_world, 0) == TUTTI_OK);
        tutti_work_release(in_world);
        tutti_work_release(in_group);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_group_release(group);
}

static void waiting_in_one_group_moves_the_others_forward(void **state)
{
    (void)state;
    const int64_t start_ns = tt_clock_ns();
    run_team(3, 10000, wait_in_circles, NULL);
    assert_true(tt_clock_ns() - start_ns < 5 * TT_NS_PER_S);
}

static void bad_lists(tt_member_t *m)
{
    tutti_group_t *group = m->group;
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 2}, 2, NULL, &group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("ranks[1] is 2, outside group world of 2"));
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){1, 1}, 2, NULL, &group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("rank 1 is there twice"));
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){1}, 0, NULL, &group) == TUTTI_ERR_ARG);
    const tutti_group_options_t negative = {.timeout_ms = -1};
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &negative, &group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, group == m->group);
    TT_EXPECT(m, tutti_group_translate(m->group, 7, m->group) == -1);
    expect_sum(m, m->group, 3);
}

static void bad_lists_are_refused(void **state)
{
    (void)state;
    run_team(2, 10000, bad_lists, NULL);
}

/* On one rank alone: the others hear of it, and whose it is. */
static void wrong_on_rank_1(tt_member_t *m)
{
    tutti_group_t *group = m->group;
    const tutti_group_options_t negative = {.timeout_ms = -1};
    const bool is_wrong = m->rank == 1;
    const char *const whose = is_wrong
                                  ? "group_new: timeout_ms is -1"
                                  : "group_new world[0-2]: rank 1: group_new: timeout_ms is -1";
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, is_wrong ? &negative : NULL, &group) ==
                     TUTTI_ERR_ARG);
    TT_EXPECT(m, says(whose) && group == m->group);
    TT_EXPECT(m,
              tutti_group_new(m->group, NULL, 0, NULL, is_wrong ? NULL : &group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says(is_wrong ? "group_new: out is NULL" : "rank 1: group_new: out is NULL"));
    TT_EXPECT(m, tutti_group_subgroups(m->group, 3, is_wrong ? NULL : &group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says(is_wrong ? "out is NULL" : "rank 1: group_new: out is NULL"));
    TT_EXPECT(m, tutti_group_split(m->group, 1, 0, is_wrong ? NULL : &group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says(is_wrong ? "group_split: out is NULL" : "rank 1: group_split: out is NULL"));
    TT_EXPECT(m, group == m->group);
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    expect_sum(m, group, 6);
    tutti_group_release(group);
}

static void what_one_member_has_wrong_is_told_to_all(void **state)
{
    (void)state;
    run_team(3, 60000, wrong_on_rank_1, NULL);
}

/* The others have waited for it in vain when it comes with the right one; from then on all count
 * alike. One that is late without that hears so. */
static void wrong_list_on_rank_1(tt_member_t *m)
{
    static const int wrong[] = {0, 1, 1};
    const tutti_group_options_t soon = {.timeout_ms = 300};
    tutti_group_t *group;
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_group_new(m->group, wrong, 3, NULL, &group) == TUTTI_ERR_ARG);
        tt_member_await(m, 2);
    } else {
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &soon, &group) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says("these ranks of group world did not come within 300 ms: 1"));
        tt_member_tell(m);
    }
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
        expect_sum(m, group, 6);
        tutti_group_release(group);
    }
    if (m->rank == 1) {
        tt_member_await(m, 4);
    }
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, &soon, &group) == TUTTI_ERR_TIMEOUT);
    TT_EXPECT(m, says("did not come within 300 ms: 1"));
    if (m->rank != 1) {
        tt_member_tell(m);
    }
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    tutti_group_release(group);
}

static void a_wrong_list_on_one_rank_does_not_part_the_ranks(void **state)
{
    (void)state;
    run_team(3, 10000, wrong_list_on_rank_1, NULL);
}

/* ---- monitored barriers ---- */

static void monitored(tt_member_t *m)
{
    TT_EXPECT(m, tutti_monitored_barrier(m->group, 0) == TUTTI_OK);
    if (m->rank == 1 || m->rank == 3) {
        tt_member_await(m, 2);
    }
    TT_EXPECT(m, tutti_monitored_barrier(m->group, 500) == TUTTI_ERR_TIMEOUT);
    TT_EXPECT(m, says("monitored_barrier #2: these ranks of group world did not come within 500 "
                      "ms: 1, 3"));
    tt_member_tell(m);
    TT_EXPECT(m, tutti_monitored_barrier(m->group, 5000) == TUTTI_OK);
    TT_EXPECT(m, tutti_monitored_barrier(m->group, -1) == TUTTI_ERR_ARG);
    expect_sum(m, m->group, 10);
}

static void a_monitored_barrier_names_every_missing_rank_on_all(void **state)
{
    (void)state;
    run_team(4, 10000, monitored, NULL);
}

/* A rank writes what it likes. */
static void hear_controls(tt_member_t *m)
{
    static const char verdict[] = "!1 -4 one\ntwo\x1b[31m";
    const tutti_status_t status = (tutti_status_t)-4;
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_store_set(m->group->store, tutti_text("barrier/1/verdict"),
                                     tutti_text(verdict)) == TUTTI_OK);
        tt_member_tell(m);
        return;
    }
    tt_member_await(m, 1);
    TT_EXPECT(m, tutti_monitored_barrier(m->group, 5000) == status);
    TT_EXPECT(m, says("monitored_barrier #1: rank 1: one?two?[31m"));
}

static void what_a_rank_says_in_a_meeting_is_a_line(void **state)
{
    (void)state;
    run_team(2, 10000, hear_controls, NULL);
}

static void alone(tt_member_t *m)
{
    tutti_group_t *group;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    TT_EXPECT(m, tutti_monitored_barrier(group, 10) == TUTTI_OK);
    expect_sum(m, group, 1);
    tutti_group_release(group);
}

static void a_world_of_one_has_groups_too(void **state)
{
    (void)state;
    run_team(1, 1000, alone, NULL);
    tutti_group_t *world, *group; /* without a store */
    assert_int_equal(tutti_init(NULL, &world), TUTTI_OK);
    assert_int_equal(tutti_group_split(world, 3, 0, &group), TUTTI_OK);
    assert_int_equal(tutti_monitored_barrier(group, 0), TUTTI_OK);
    tutti_group_release(world);
    tutti_group_release(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_alone_make_a_group_and_keep_their_order),
        cmocka_unit_test(groups_of_one_list_stand_side_by_side),
        cmocka_unit_test(a_list_that_comes_again_leaves_no_keys),
        cmocka_unit_test(groups_of_parents_with_long_names_are_apart),
        cmocka_unit_test(a_split_goes_by_colour_and_key),
        cmocka_unit_test(subgroups_are_consecutive_and_of_equal_size),
        cmocka_unit_test(a_missing_member_is_named_and_the_parent_stays_usable),
        cmocka_unit_test(waiting_in_one_group_moves_the_others_forward),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(what_one_member_has_wrong_is_told_to_all),
        cmocka_unit_test(a_wrong_list_on_one_rank_does_not_part_the_ranks),
        cmocka_unit_test(a_monitored_barrier_names_every_missing_rank_on_all),
        cmocka_unit_test(what_a_rank_says_in_a_meeting_is_a_line),
        cmocka_unit_test(a_world_of_one_has_groups_too),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
