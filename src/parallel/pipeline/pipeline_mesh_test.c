/* Replicas, layers that are cut and stages together: a training has the bits of one rank on any
 * mesh, at any stage of ZeRO. A random share of the cases is quick, all of them are full
 * (TUTTI_TEST_SHARE, TUTTI_SEED). */
#include "parallel/pipeline/pipeline_mesh_testing.h"

#include <math.h>
#include <stddef.h>

typedef struct {
    tt_mesh_training_t training;
    tt_mesh_trained_t wanted;
} case_t;

static void train_alone(tt_member_t *m)
{
    case_t *c = m->user;
    TT_EXPECT(m, tt_mesh_train(&c->training, m->group, &c->wanted) == TUTTI_OK);
}

static void train_member(tt_member_t *m)
{
    const case_t *c = m->user;
    tt_mesh_trained_t got;
    TT_EXPECT(m, tt_mesh_train(&c->training, m->group, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, c->wanted.digest) == 0);
    TT_EXPECT(m, got.collected[0] == 0 || strcmp(got.collected, c->wanted.digest) == 0);
    TT_EXPECT(m, memcmp(got.losses, c->wanted.losses, sizeof got.losses) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &c->wanted.evaluated, sizeof got.evaluated) == 0);
    TT_EXPECT(m, strcmp(got.averages, c->wanted.averages) == 0);
    TT_EXPECT(m, got.evaluated_by_averages == c->wanted.evaluated_by_averages);
}

static void expect_one_ranks_bits(tt_mesh_training_t training)
{
    case_t c = {.training = training};
    memset(&c.training.dp, 0, sizeof c.training - offsetof(tt_mesh_training_t, dp));
    tt_team_expect(1, 0, train_alone, &c);
    assert_string_equal(c.wanted.collected, c.wanted.digest);
    assert_true(isfinite(c.wanted.losses[TT_MESH_STEPS - 1][0]));
    c.training = training;
    assert_true(memcmp(c.wanted.losses[0], c.wanted.losses[2], sizeof c.wanted.losses[0]) != 0);
    const tt_team_result_t result = tt_team_run(tt_mesh_ranks(&training), 0, train_member, &c);
    if (result.text[0] != 0) {
        fail_msg("dp %d tp %d pp %d, %d shards, %d of layers, %d micro-batches, %s, stage %d, "
                 "sequence %d, tied %d, clips %d, scales %d, accumulates %d, uneven %d: %s",
                 training.dp, training.tp, training.pp, training.shards, training.tp_shards,
                 training.micro_batches, training.schedule, training.stage, training.sequence,
                 training.is_tied, training.clips, training.scales, training.accumulates,
                 training.is_uneven, result.text);
    }
}

static void every_mesh_has_one_ranks_bits(void **state)
{
    (void)state;
    static const int meshes[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1}, {1, 4, 1},
                                    {1, 1, 4}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2},
                                    {1, 3, 1}, {1, 1, 3}, {3, 1, 2}, {1, 3, 2}};
    static const char *const schedules[] = {"1f1b", "zb-h1", "gpipe"};
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        for (int stage = 0; stage < 4; stage++) {
            for (int k = 0; k < 2; k++, number++) {
                if (tt_test_takes(number)) {
                    expect_one_ranks_bits((tt_mesh_training_t){.shards = 4,
                                                               .tp_shards = 4,
                                                               .micro_batches = 4,
                                                               .is_tied = k == 1,
                                                               .clips = number % 4 != 0,
                                                               .scales = number % 3 == 1,
                                                               .accumulates = number % 7 == 0,
                                                               .is_uneven = number % 5 == 2,
                                                               .dp = meshes[i][0],
                                                               .tp = meshes[i][1],
                                                               .pp = meshes[i][2],
                                                               .schedule = schedules[number % 3],
                                                               .stage = stage,
                                                               .sequence = (number / 2) % 2 == 0,
                                                               .recompute = number % 5 == 0});
                }
            }
        }
    }
}

/* These are always run. */
static void replicas_of_stages_have_one_ranks_bits(void **state)
{
    (void)state;
    const char *const cut[] = {"blocks.0", "ln"};
    expect_one_ranks_bits((tt_mesh_training_t){.shards = 3,
                                               .micro_batches = 3,
                                               .clips = true,
                                               .dp = 2,
                                               .pp = 3,
                                               .cut = cut,
                                               .cut_count = 2,
                                               .schedule = "zb-h1"});
    expect_one_ranks_bits((tt_mesh_training_t){.shards = 2,
                                               .micro_batches = 4,
                                               .is_tied = true,
                                               .scales = true,
                                               .accumulates = true,
                                               .dp = 2,
                                               .pp = 2,
                                               .schedule = "zb-v"});
}

static void all_of_them_have_one_ranks_bits(void **state)
{
    (void)state;
    expect_one_ranks_bits((tt_mesh_training_t){.shards = 2,
                                               .tp_shards = 4,
                                               .micro_batches = 2,
                                               .is_tied = true,
                                               .clips = true,
                                               .dp = 2,
                                               .tp = 2,
                                               .pp = 2,
                                               .stage = 1,
                                               .sequence = true,
                                               .schedule = "zb-h1"});
}

/* ---- what does not go together --------------------------------------------------------------- */

static void refuse_ddp(tt_member_t *m)
{
    const tt_mesh_training_t training = {
        .shards = 1, .micro_batches = 2, .schedule = "1f1b", .stage = 0};
    tt_mesh_trainer_t t, other;
    tutti_ddp_t *steps;
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_open(&other, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_set_ddp(t.pipeline, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_pipeline_set_ddp(t.pipeline, other.ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "of another module") != NULL);
    TT_EXPECT(m, tutti_pipeline_set_ddp(t.pipeline, t.ddp) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "it has one already") != NULL);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    const tutti_ddp_options_t options = {.optimizer = t.opt};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &steps) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_set_ddp(t.pipeline, steps) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "options.optimizer") != NULL);
    tutti_ddp_release(steps);
    tt_mesh_close(&other);
    tt_mesh_close(&t);
}

static void some_ddps_are_refused(void **state)
{
    (void)state;
    tt_team_expect(1, 0, refuse_ddp, NULL);
}

static tutti_status_t expect_no_slice(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    return x->slice == NULL ? TUTTI_OK : TT_FAIL(TUTTI_ERR_STATE, "%s has a slice", name);
}

/* user: ZeRO's stage, and 4 more if the pipeline goes first. */
static void release_both(tt_member_t *m)
{
    const int number = *(const int *)m->user;
    const tt_mesh_training_t training = {
        .shards = 2, .micro_batches = 2, .schedule = "1f1b", .dp = 2, .pp = 2, .stage = number % 4};
    tt_mesh_trainer_t t;
    double losses[TT_MESH_SHARDS_MAX];
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_step(&t, 0, losses) == TUTTI_OK);
    tutti_optim_release(t.opt);
    t.opt = NULL;
    if (number >= 4) {
        tutti_pipeline_release(t.pipeline);
        t.pipeline = NULL;
    }
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    tutti_pipeline_release(t.pipeline);
    t.pipeline = NULL;
    TT_EXPECT(m, tutti_module_each_tensor(t.net, expect_no_slice, NULL) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void either_may_go_first(void **state)
{
    (void)state;
    int numbers[] = {1, 3, 4, 5, 7};
    for (int i = 0; i < 5; i++) {
        tt_team_expect(4, 0, release_both, &numbers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_of_stages_have_one_ranks_bits),
        cmocka_unit_test(all_of_them_have_one_ranks_bits),
        cmocka_unit_test(some_ddps_are_refused),
        cmocka_unit_test(either_may_go_first),
        cmocka_unit_test(every_mesh_has_one_ranks_bits),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
