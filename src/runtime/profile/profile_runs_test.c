/* Several profiles of one process, and what outlives one of them: graphs that name its modules,
 * calls that were begun before it; and messages of anybody, groups with long names. */
#include "runtime/profile/profile_file_testing.h"

#include <jansson.h>

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/profile.h>

#include "comm/group/group_team.h"
#include "core/base/profiler.h"
#include "runtime/profile/profile_parts.h"

static void start(void)
{
    assert_int_equal(tutti_profile_start(path), TUTTI_OK);
}

static tutti_profile_t *stop(void)
{
    tutti_profile_t *profile;
    assert_int_equal(tutti_profile_stop(), TUTTI_OK);
    const char *const paths[] = {path};
    if (tutti_profile_load(paths, 1, &profile) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return profile;
}

static const tt_told_lane_t *lane_of(const tutti_profile_t *profile, const char *row, uint32_t *at)
{
    const tt_told_process_t *process = &profile->processes[0];
    for (size_t i = 0; i < process->lane_count; i++) {
        for (size_t k = 0; k < process->lanes[i].row_count; k++) {
            if (strcmp(process->lanes[i].rows[k].name, row) == 0) {
                *at = (uint32_t)k;
                return &process->lanes[i];
            }
        }
    }
    fail_msg("there is no row %s", row);
    return NULL;
}

/* The only call of a name, in all lanes. */
static const tt_told_call_t *call_of(const tutti_profile_t *profile, const char *name)
{
    const tt_told_process_t *process = &profile->processes[0];
    const tt_told_call_t *found = NULL;
    for (size_t i = 0; i < process->lane_count; i++) {
        const tt_told_lane_t *lane = &process->lanes[i];
        for (size_t k = 0; k < lane->call_count; k++) {
            const bool is_it = strcmp(lane->rows[lane->calls[k].row].name, name) == 0;
            assert_true(!is_it || found == NULL);
            found = is_it ? &lane->calls[k] : found;
        }
    }
    assert_non_null(found);
    return found;
}

static const char *module_of(const tutti_profile_t *profile, const char *row)
{
    uint32_t at = 0;
    const tt_told_lane_t *lane = lane_of(profile, row, &at);
    return tt_told_module(&profile->processes[0], lane->rows[at].module);
}

static void run(const char *name, uint32_t module)
{
    assert_true(tt_profile_begin(TT_PROFILE_BACKWARD, name, module));
    tt_profile_end((tt_profile_end_t){0});
}

/* A graph keeps the number of its module from its forward to its backward. */
static void a_module_of_an_earlier_run_is_none(void **state)
{
    (void)state;
    start();
    const uint32_t head = tt_profile_module("gpt.head");
    run("matmul", head);
    tutti_profile_t *profile = stop();
    assert_string_equal(module_of(profile, "matmul"), "gpt.head");
    tutti_profile_release(profile);
    start();
    run("add", head); /* there is no module yet */
    const uint32_t embedding = tt_profile_module("gpt.embedding");
    run("matmul", head); /* and another one at its place */
    run("gather", embedding);
    profile = stop();
    assert_string_equal(module_of(profile, "add"), "");
    assert_string_equal(module_of(profile, "matmul"), "");
    assert_string_equal(module_of(profile, "gather"), "gpt.embedding");
    tutti_profile_release(profile);
}

/* Of a call that is waited for in a later run, the part that lies in it. */
static void a_call_begins_with_its_run_at_the_earliest(void **state)
{
    (void)state;
    const tt_profile_call_t call = {
        .name = "all_reduce", .begin_ns = 1, .number = 3, .size = 2, .peer = -1, .group = "world"};
    start();
    tt_profile_end_call(&call);
    tutti_profile_t *profile = stop();
    uint32_t at = 0;
    const tt_told_lane_t *lane = lane_of(profile, "all_reduce", &at);
    assert_int_equal(lane->call_count, 1);
    assert_int_equal(lane->calls[0].begin_ns, 0);
    assert_int_equal(lane->rows[at].amount.total_ns, lane->calls[0].end_ns);
    tutti_profile_release(profile);
}

/* Calls of two ranks that belong together, and no third one to them. */
static size_t count_pairs(const tutti_profile_t *profile, const char *one, const char *other)
{
    tt_joints_t all;
    size_t pairs = 0;
    assert_int_equal(tt_joints_find(profile, &all), TUTTI_OK);
    for (size_t i = 0, end; i < all.count; i = end) {
        const tt_joint_t *joint = &all.joints[i];
        end = tt_joints_end(&all, i);
        pairs += end - i == 2 &&
                 ((strcmp(joint[0].name, one) == 0 && strcmp(joint[1].name, other) == 0) ||
                  (strcmp(joint[0].name, other) == 0 && strcmp(joint[1].name, one) == 0));
    }
    tt_joints_free(&all);
    return pairs;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void pass_a_message(tt_member_t *m)
{
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(2), &x) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_send(m->group, x, 1, 7, NULL) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_recv(m->group, x, TUTTI_ANY_RANK, TUTTI_ANY_TAG, NULL) == TUTTI_OK);
    }
    tutti_tensor_release(x);
}

/* So that an arrow leads to it. */
static void a_receive_of_anybodys_is_told_by_whose_it_was(void **state)
{
    (void)state;
    start();
    tt_team_expect(2, 20000, pass_a_message, NULL);
    tutti_profile_t *profile = stop();
    assert_int_equal(call_of(profile, "recv")->number, 7);
    assert_int_equal(call_of(profile, "recv")->peer, 0);
    assert_int_equal(count_pairs(profile, "send", "recv"), 1);
    tutti_profile_release(profile);
}

/* Nobody sends: what is not known is not told. */
static void receive_in_vain(tt_member_t *m)
{
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(2), &x) == TUTTI_OK);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_recv(m->group, x, 0, TUTTI_ANY_TAG, NULL) < 0);
    }
    tutti_tensor_release(x);
}

static void a_receive_in_vain_can_be_read(void **state)
{
    (void)state;
    start();
    tt_team_expect(2, 20000, receive_in_vain, NULL);
    tutti_profile_t *profile = stop();
    assert_int_equal(call_of(profile, "recv")->number, 0);
    assert_int_equal(call_of(profile, "recv")->peer, -1);
    tutti_profile_release(profile);
}

/* ---- ranks that are threads ------------------------------------------------------------------ */

static void begin_in_turn(tt_member_t *m)
{
    (void)m;
    tutti_profile_begin("mine");
    tutti_profile_end();
}

/* Their file is called after the first of them, whoever was there before. */
static void a_profile_of_several_ranks_is_the_firsts(void **state)
{
    (void)state;
    tutti_buffer_t text;
    tt_profile_set_rank(1, 2);
    start();
    tt_team_expect(2, 20000, begin_in_turn, NULL);
    tutti_profile_t *profile = stop();
    assert_int_equal(tutti_profile_table(profile, &text), TUTTI_OK);
    assert_non_null(strstr(text.data, ": 2 ranks of 2, "));
    tutti_buffer_release(&text);
    tutti_profile_release(profile);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void call_in_a_row(tt_member_t *m)
{
    tutti_group_t *row;
    const int ranks[2][2] = {{0, 1}, {2, 3}};
    const tutti_group_options_t named = {.name = "replicas of the experts"};
    TT_EXPECT(m, tutti_group_new(m->group, ranks[m->rank / 2], 2, &named, &row) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(row, NULL) == TUTTI_OK);
    tutti_group_release(row);
}

/* Names of which the begins are alike. */
static void calls_of_two_groups_do_not_belong_together(void **state)
{
    (void)state;
    start();
    tt_team_expect(4, 20000, call_in_a_row, NULL);
    tutti_profile_t *profile = stop();
    assert_int_equal(count_pairs(profile, "barrier", "barrier"), 2);
    tutti_profile_release(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_PROFILE_TEST(
            a_profile_of_several_ranks_is_the_firsts), /* a process knows its rank from then on */
        TT_PROFILE_TEST(a_module_of_an_earlier_run_is_none),
        TT_PROFILE_TEST(a_call_begins_with_its_run_at_the_earliest),
        TT_PROFILE_TEST(a_receive_of_anybodys_is_told_by_whose_it_was),
        TT_PROFILE_TEST(a_receive_in_vain_can_be_read),
        TT_PROFILE_TEST(calls_of_two_groups_do_not_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
