/* Shards of a row in one schedule: the bits are those of one rank that takes them one after the
 * other, for every schedule, and what waits is what the simulation says. A random share of the
 * cases is quick, all of them are full (TUTTI_TEST_SHARE, TUTTI_SEED). */
#include "parallel/pipeline/pipeline_mesh_testing.h"

#include <stddef.h>

typedef struct {
    tt_mesh_training_t training;
    tt_mesh_trained_t wanted;
    tutti_pipeline_stats_t stats[8];
} case_t;

static void train_alone(tt_member_t *m)
{
    case_t *c = m->user;
    TT_EXPECT(m, tt_mesh_train(&c->training, m->group, &c->wanted) == TUTTI_OK);
}

static void train_member(tt_member_t *m)
{
    case_t *c = m->user;
    tt_mesh_trainer_t t;
    tt_mesh_trained_t got = {0};
    const tutti_status_t opened = tt_mesh_open(&t, &c->training, m->group);
    TT_EXPECT(m, opened == TUTTI_OK);
    TT_EXPECT(m, opened < 0 || tt_mesh_train_on(&t, &got) == TUTTI_OK);
    if (t.pipeline != NULL) {
        c->stats[m->rank] = tutti_pipeline_stats(t.pipeline);
    }
    tt_mesh_close(&t);
    TT_EXPECT(m, strcmp(got.digest, c->wanted.digest) == 0);
    TT_EXPECT(m, memcmp(got.losses, c->wanted.losses, sizeof got.losses) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &c->wanted.evaluated, sizeof got.evaluated) == 0);
    TT_EXPECT(m, strcmp(got.averages, c->wanted.averages) == 0);
    TT_EXPECT(m, got.evaluated_by_averages == c->wanted.evaluated_by_averages);
}

/* Takes the case's training, and leaves what its ranks say of themselves. */
static void expect_one_ranks_bits(case_t *c)
{
    const tt_mesh_training_t training = c->training;
    memset(&c->training.dp, 0, sizeof c->training - offsetof(tt_mesh_training_t, dp));
    tt_team_expect(1, 0, train_alone, c);
    c->training = training;
    c->training.at_once = true;
    const tt_team_result_t result = tt_team_run(tt_mesh_ranks(&training), 0, train_member, c);
    if (result.text[0] != 0) {
        fail_msg("dp %d tp %d pp %d, %d shards, %d micro-batches, %s, stage %d, in turn %d, tied "
                 "%d, clips %d, scales %d, uneven %d, recompute %d: %s",
                 training.dp, training.tp, training.pp, training.shards, training.micro_batches,
                 training.schedule, training.stage, training.accumulate == TUTTI_DDP_SHARDED,
                 training.is_tied, training.clips, training.scales, training.is_uneven,
                 training.recompute, result.text);
    }
}

static void every_schedule_has_one_ranks_bits(void **state)
{
    (void)state;
    static const char *const schedules[] = {"1f1b",        "gpipe", "zb-h1",      "zb-h2",
                                            "interleaved", "zb-v",  "looped-bfs", "dualpipe-v"};
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        for (int stage = 0; stage < 4; stage++) {
            for (int k = 0; k < 4; k++, number++) {
                if (tt_test_takes(number)) {
                    case_t c = {.training = {.shards = 4 - k % 2,
                                             .tp_shards = k == 3 ? 2 : 0,
                                             .micro_batches = 4,
                                             .is_tied = k >= 2,
                                             .clips = number % 2 == 0,
                                             .scales = number % 3 == 1,
                                             .is_uneven = number % 5 == 2,
                                             .dp = 1 + k % 2,
                                             .tp = k == 3 ? 2 : 1,
                                             .pp = 2,
                                             .stage = stage,
                                             .recompute = number % 5 == 1,
                                             .schedule = schedules[i]}};
                    expect_one_ranks_bits(&c);
                }
            }
        }
    }
}

/* What waits is what the simulation says. */
static void expect_simulated(const case_t *c)
{
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_simulation_t s;
    const tutti_pipeline_options_t plan = {.schedule = c->training.schedule,
                                           .ranks = c->training.pp,
                                           .micro_batches = c->training.micro_batches,
                                           .shards = c->training.shards};
    assert_int_equal(tutti_pipeline_plan(&plan, &schedule), TUTTI_OK);
    assert_int_equal(tutti_pipeline_simulate(&schedule, NULL, 1, &s), TUTTI_OK);
    for (int rank = 0; rank < s.ranks; rank++) {
        assert_int_equal(c->stats[rank].accumulators_max, s.loads[rank].accumulators_max);
    }
    tutti_pipeline_simulation_release(&s);
    tutti_pipeline_schedule_release(&schedule);
}

/* A bucket travels in each shard, while gradients of the next one come, and wait. */
static void shards_that_are_hosted_in_turn_have_one_ranks_bits(void **state)
{
    (void)state;
    static const char *const schedules[] = {"1f1b", "zb-v", "looped-bfs", "interleaved", "zb-h2"};
    uint64_t number = 1000;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        for (int stage = 2; stage < 4; stage++) {
            for (int k = 0; k < 4; k++, number++) {
                if (tt_test_takes(number)) {
                    case_t c = {.training = {.shards = 4 - k % 2,
                                             .micro_batches = 4,
                                             .is_tied = k >= 2,
                                             .clips = number % 2 == 0,
                                             .is_uneven = number % 3 == 0,
                                             .dp = 2,
                                             .pp = 2,
                                             .stage = stage,
                                             .accumulate = TUTTI_DDP_SHARDED,
                                             .schedule = schedules[i]}};
                    expect_one_ranks_bits(&c);
                }
            }
        }
    }
}

/* These are always run. */
static void shards_of_uneven_rows_have_one_ranks_bits(void **state)
{
    (void)state;
    case_t c = {.training = {.shards = 3,
                             .micro_batches = 2,
                             .clips = true,
                             .is_uneven = true,
                             .dp = 2,
                             .pp = 2,
                             .stage = 2,
                             .schedule = "zb-h1"}};
    expect_one_ranks_bits(&c);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(c.stats[rank].accumulators_max, 1); /* and nothing waits */
        assert_int_equal(c.stats[rank].waiting_bytes_max, 0);
    }
    case_t v = {.training = {.shards = 3, .micro_batches = 2, .pp = 2, .schedule = "zb-v"}};
    expect_one_ranks_bits(&v);
    assert_true(v.stats[0].waiting_bytes_max > 0);
    expect_simulated(&v);
    case_t looped = {
        .training = {.shards = 4, .micro_batches = 2, .pp = 2, .schedule = "looped-bfs"}};
    expect_one_ranks_bits(&looped);
    expect_simulated(&looped);
    assert_int_equal(looped.stats[0].accumulators_max, 5);
}

/* What waits lies where its parameter does, and has its dtype. */
static void shards_in_16_bits_and_on_a_device_have_one_ranks_bits(void **state)
{
    (void)state;
    case_t c = {.training = {.shards = 4,
                             .micro_batches = 2,
                             .dtype = TUTTI_BF16,
                             .dp = 2,
                             .pp = 2,
                             .stage = 2,
                             .schedule = "zb-v"}};
    expect_one_ranks_bits(&c);
    c.training.accumulate = TUTTI_DDP_SHARDED;
    expect_one_ranks_bits(&c);
    c.training.accumulate = TUTTI_DDP_LOCAL;
    c.training.stage = 0;
    c.training.device = "strict:0";
    expect_one_ranks_bits(&c);
    c.training.dtype = TUTTI_F32;
    c.training.is_tied = true;
    expect_one_ranks_bits(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_of_uneven_rows_have_one_ranks_bits),
        cmocka_unit_test(shards_in_16_bits_and_on_a_device_have_one_ranks_bits),
        cmocka_unit_test(every_schedule_has_one_ranks_bits),
        cmocka_unit_test(shards_that_are_hosted_in_turn_have_one_ranks_bits),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
