/* Optimistic steps on a mesh: replicas, slices of ZeRO and parts of layers have the bits of one
 * rank that unscales, clips and steps one after the other, whether steps are undone never,
 * sometimes or always. A random share of the cases is quick, all of them are full
 * (TUTTI_TEST_SHARE, TUTTI_SEED).
 */
#include "parallel/pipeline/pipeline_mesh_testing.h"

#include <stddef.h>

#include "compute/optim/optimizer.h"

/* What became of it. */
typedef struct {
    char digest[TUTTI_DIGEST_BYTES], collected[TUTTI_DIGEST_BYTES];
    double losses[TT_MESH_STEPS][TT_MESH_SHARDS_MAX], evaluated, scale;
    double norms[TT_MESH_STEPS];
    int clipped, skipped;
    bool was_clipped[TT_MESH_STEPS], was_skipped[TT_MESH_STEPS];
} result_t;

typedef struct {
    tt_mesh_training_t training;
    result_t wanted;
} case_t;

/* ---- training -------------------------------------------------------------------------------- */

/* One after the other. */
static tutti_status_t step_plainly(tt_mesh_trainer_t *t, int step, result_t *out)
{
    const double most = tt_mesh_max_norm(t->training);
    TT_TRY(t->scaler != NULL ? tutti_scaler_unscale(t->scaler, t->opt) : TUTTI_OK);
    TT_TRY(tutti_clip_grad_norm(t->opt, most, 2, &out->norms[step]));
    TT_TRY(t->scaler != NULL ? tutti_scaler_step(t->scaler, t->opt, &out->was_skipped[step])
                             : tutti_optim_step(t->opt));
    out->was_clipped[step] = !out->was_skipped[step] && out->norms[step] + 1e-6 > most;
    out->norms[step] = out->was_skipped[step] ? INFINITY : out->norms[step];
    return t->scaler != NULL ? tutti_scaler_update(t->scaler) : TUTTI_OK;
}

/* The last one of each shard, as tt_mesh_average() leaves it. */
static void read_losses(const tt_mesh_trainer_t *t, const tutti_pipeline_verdict_t *verdict,
                        int step, double *losses)
{
    int first, count, at = 0;
    tutti_ddp_local_shards(t->ddp, &first, &count);
    for (int i = 0; i < count; i++) {
        const int shard = first + i * tutti_ddp_shard_stride(t->ddp);
        const bool is_empty = tt_mesh_is_empty(t, step, shard);
        if (!is_empty || t->training->at_once) {
            at += t->training->accumulates && !t->training->at_once ? 2 : 1;
            losses[shard] = is_empty ? 0 : verdict->losses[at - 1];
        }
    }
    TT_ASSERT(at == verdict->loss_count);
}

static tutti_status_t take_verdict(tt_mesh_trainer_t *t, int step, result_t *out)
{
    tutti_pipeline_verdict_t verdict;
    TT_TRY(tutti_pipeline_validate(t->pipeline, &verdict));
    read_losses(t, &verdict, step, out->losses[step]);
    out->norms[step] = verdict.norm;
    out->was_clipped[step] = verdict.was_clipped;
    out->was_skipped[step] = verdict.was_skipped;
    return TUTTI_OK;
}

/* On every rank, whatever it has of the weights; at stage 3 some may be away. */
static tutti_status_t ask_too_early(const tt_mesh_trainer_t *t)
{
    char digest[TUTTI_DIGEST_BYTES];
    const tutti_status_t status = tutti_module_digest(t->net, digest);
    TT_ASSERT(status == TUTTI_ERR_STATE);
    TT_ASSERT(t->training->stage == 3 ||
              strstr(tutti_last_error(), "tutti_pipeline_validate() comes first") != NULL);
    return TUTTI_OK;
}

/* The verdict on the first step comes with the second. */
static tutti_status_t train_on(tt_mesh_trainer_t *t, result_t *out)
{
    for (int i = 0; i < TT_MESH_STEPS; i++) {
        tutti_optim_set_lr(t->opt, 1e-2 / (i + 1)); /* a step is made again by its own rate */
        TT_TRY(tt_mesh_average(t, i, out->losses[i]));
        TT_TRY(!t->training->validates ? step_plainly(t, i, out)
               : i > 0                 ? take_verdict(t, i, out)
                                       : ask_too_early(t));
        out->clipped += out->was_clipped[i];
        out->skipped += out->was_skipped[i];
    }
    tutti_context_set_step(t->ctx, 77);
    TT_TRY(tt_mesh_run(t, false, &out->evaluated));
    tt_mesh_trained_t all = {0}; /* all replicas are there; behind it one may be gone */
    memcpy(all.losses, out->losses, sizeof all.losses);
    TT_TRY(tt_mesh_gather(t, &all));
    memcpy(out->losses, all.losses, sizeof all.losses);
    out->scale = t->scaler == NULL ? 0 : tutti_scaler_get_state(t->scaler).scale;
    TT_TRY(tutti_pipeline_digest(t->pipeline, out->digest));
    return tt_mesh_collect(t, out->collected);
}

static tutti_status_t train(const tt_mesh_training_t *training, tutti_group_t *world, result_t *out)
{
    tt_mesh_trainer_t t;
    *out = (result_t){0};
    tutti_status_t status = tt_mesh_open(&t, training, world);
    status = status < 0 ? status : train_on(&t, out);
    tt_mesh_close(&t);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void train_alone(tt_member_t *m)
{
    case_t *c = m->user;
    TT_EXPECT(m, train(&c->training, m->group, &c->wanted) == TUTTI_OK);
}

static void train_member(tt_member_t *m)
{
    const case_t *c = m->user;
    const result_t *want = &c->wanted;
    result_t got;
    TT_EXPECT(m, train(&c->training, m->group, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, want->digest) == 0);
    TT_EXPECT(m, got.collected[0] == 0 || strcmp(got.collected, want->digest) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &want->evaluated, sizeof got.evaluated) == 0);
    TT_EXPECT(m, got.scale == want->scale);
    for (int i = 1; i < TT_MESH_STEPS; i++) {
        TT_EXPECT(m, memcmp(got.losses[i], want->losses[i], sizeof got.losses[i]) == 0);
        TT_EXPECT(m, got.norms[i] == want->norms[i]);
        TT_EXPECT(m, got.was_clipped[i] == want->was_clipped[i]);
        TT_EXPECT(m, got.was_skipped[i] == want->was_skipped[i]);
    }
}

static result_t expect_plain_bits(tt_mesh_training_t training)
{
    case_t c = {.training = training};
    memset(&c.training.dp, 0, sizeof c.training - offsetof(tt_mesh_training_t, dp));
    tt_team_expect(1, 0, train_alone, &c);
    c.training = training;
    c.training.validates = true;
    const tt_team_result_t result = tt_team_run(tt_mesh_ranks(&training), 0, train_member, &c);
    if (result.text[0] != 0) {
        fail_msg("dp %d tp %d pp %d, %d shards, %d of layers, %s, stage %d, %s, clips %d at %g, "
                 "scales %d, tied %d, frozen %d, accumulates %d, uneven %d, at once %d: %s",
                 training.dp, training.tp, training.pp, training.shards, training.tp_shards,
                 training.schedule, training.stage,
                 training.kind == NULL ? "adamw" : training.kind->name, training.clips,
                 training.max_norm, training.scales, training.is_tied, training.is_frozen,
                 training.accumulates, training.is_uneven, training.at_once, result.text);
    }
    return c.wanted;
}

/* Between the norms of two steps. */
static double middle_of(const result_t *r, int first)
{
    double most = 0, least = INFINITY;
    for (int i = first; i < TT_MESH_STEPS; i++) {
        most = fmax(most, r->norms[i]);
        least = fmin(least, r->norms[i]);
    }
    return (most + least) / 2;
}

/* Never, sometimes and always. */
static void expect_all_clippings(tt_mesh_training_t training)
{
    training.clips = false;
    const result_t never = expect_plain_bits(training);
    assert_int_equal(never.clipped, 0);
    training.clips = true;
    training.max_norm = middle_of(&never, never.skipped);
    const result_t some = expect_plain_bits(training);
    assert_in_range(some.clipped, 1, TT_MESH_STEPS - 1);
    training.max_norm = 1e-3;
    const result_t always = expect_plain_bits(training);
    assert_int_equal(always.clipped, TT_MESH_STEPS - always.skipped);
    assert_int_equal(always.skipped, training.scales ? 1 : 0);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void replicas_step_optimistically(void **state)
{
    (void)state;
    const tt_mesh_training_t base = {
        .shards = 2, .micro_batches = 3, .dp = 2, .pp = 2, .schedule = "zb-h1"};
    tt_mesh_training_t training = base;
    expect_all_clippings(training);
    training.scales = training.is_tied = true;
    training.at_once = true;
    training.shards = 4;
    expect_all_clippings(training);
}

static void parts_of_layers_step_optimistically(void **state)
{
    (void)state;
    tt_mesh_training_t training = {.shards = 1,
                                   .tp_shards = 2,
                                   .micro_batches = 3,
                                   .tp = 2,
                                   .pp = 2,
                                   .sequence = true,
                                   .schedule = "zb-h2"};
    expect_all_clippings(training);
    training.scales = training.is_tied = true;
    expect_all_clippings(training);
}

static void slices_step_optimistically(void **state)
{
    (void)state;
    for (int stage = 1; stage < 4; stage++) {
        expect_all_clippings((tt_mesh_training_t){.shards = 2,
                                                  .micro_batches = 3,
                                                  .dp = 2,
                                                  .pp = 2,
                                                  .stage = stage,
                                                  .scales = stage == 2,
                                                  .is_tied = stage != 1,
                                                  .is_frozen = stage == 1,
                                                  .schedule = "1f1b"});
    }
}

/* The first stage has stepped by then, and undoes it. */
static void an_overflow_of_the_other_stage_is_undone(void **state)
{
    (void)state;
    for (int number = 0; number < 5; number++) {
        const result_t got = expect_plain_bits((tt_mesh_training_t){.shards = 2,
                                                                    .tp_shards = 2,
                                                                    .micro_batches = 2,
                                                                    .dp = number < 4 ? 2 : 1,
                                                                    .tp = number < 4 ? 1 : 2,
                                                                    .pp = 2,
                                                                    .stage = number % 4,
                                                                    .clips = true,
                                                                    .scales = true,
                                                                    .is_spoiled = true,
                                                                    .schedule = "zb-h1"});
        assert_int_equal(got.skipped, 1);
        assert_true(got.was_skipped[1]);
    }
}

static void all_of_them_step_optimistically(void **state)
{
    (void)state;
    expect_all_clippings((tt_mesh_training_t){.shards = 2,
                                              .tp_shards = 2,
                                              .micro_batches = 2,
                                              .dp = 2,
                                              .tp = 2,
                                              .pp = 2,
                                              .stage = 1,
                                              .scales = true,
                                              .schedule = "zb-h1"});
}

/* Of slices, and of whole parameters of a rank; undone always. */
static void every_optimizer_is_undone(void **state)
{
    (void)state;
    for (size_t i = 0; i < tt_optimizer_count; i++) {
        for (int stage = 0; stage < 4; stage++) {
            if (tt_test_takes(5000 + 4 * i + (uint64_t)stage)) {
                const result_t got =
                    expect_plain_bits((tt_mesh_training_t){.shards = 2,
                                                           .micro_batches = 2,
                                                           .clips = true,
                                                           .max_norm = 1e-3,
                                                           .scales = i % 2 == 0,
                                                           .dp = 2,
                                                           .pp = 2,
                                                           .stage = stage,
                                                           .kind = tt_optimizers[i],
                                                           .schedule = "1f1b"});
                assert_true(got.clipped > 0);
            }
        }
    }
}

static void every_mesh_has_plain_bits(void **state)
{
    (void)state;
    static const int meshes[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 4}, {2, 2, 1},
                                    {2, 1, 2}, {1, 2, 2}, {2, 2, 2}, {3, 1, 2}, {1, 4, 2}};
    static const char *const schedules[] = {"1f1b", "zb-h1", "zb-h2", "gpipe"};
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        for (int stage = 0; stage < 4; stage++) {
            for (int k = 0; k < 4; k++, number++) {
                if (tt_test_takes(number)) {
                    (void)expect_plain_bits(
                        (tt_mesh_training_t){.shards = 4,
                                             .tp_shards = 4,
                                             .micro_batches = 4,
                                             .is_tied = k % 2 == 1,
                                             .is_frozen = number % 3 == 0,
                                             .clips = k > 0,
                                             .max_norm = k == 1 ? 1e-3 : 0,
                                             .scales = (k + stage) % 2 == 1,
                                             .is_spoiled = (k + stage) % 4 == 1,
                                             .accumulates = number % 7 == 0,
                                             .is_uneven = number % 5 == 2,
                                             .dp = meshes[i][0],
                                             .tp = meshes[i][1],
                                             .pp = meshes[i][2],
                                             .schedule = schedules[(number / 3) % 4],
                                             .stage = stage,
                                             .at_once = number % 7 != 0 && number % 2 == 1,
                                             .sequence = number % 4 == 0});
                }
            }
        }
    }
}

/* ---- ranks that ask for different things ----------------------------------------------------- */

/* Those at `odd` along a dimension of the mesh ask for more, or take the optimizer away. */
typedef struct {
    tt_mesh_training_t training;
    const char *along, *first;
    int odd;
    bool takes_away;
} apart_t;

static tutti_status_t ask_apart(const apart_t *a, const tt_mesh_trainer_t *t)
{
    const bool is_odd = tutti_mesh_coordinate(t->mesh, a->along) == a->odd;
    const tutti_pipeline_validation_t o = {.max_norm = is_odd ? 2 : 1};
    return tutti_pipeline_post_validate(t->pipeline, is_odd && a->takes_away ? NULL : t->opt, &o);
}

/* The second along the dimension is the one that is not as the first. */
static bool is_told(const apart_t *a, const tt_mesh_trainer_t *t)
{
    static const char same[] = "gives max_norm 1, norm_type 2 and no scaler";
    const char *other = a->takes_away ? "takes the optimizer away (NULL)"
                                      : "gives max_norm 2, norm_type 2 and no scaler";
    char text[256];
    snprintf(text, sizeof text, "%spipeline_post_validate: this rank %s, and %s %s: all ask",
             tutti_mesh_coordinate(t->mesh, a->along) == 1 ? "" : "rank 1: ",
             a->odd == 1 ? other : same, a->first, a->odd == 1 ? same : other);
    return strncmp(tutti_last_error(), text, strlen(text)) == 0;
}

static void expect_told(tt_member_t *m)
{
    const apart_t *a = m->user;
    tt_mesh_trainer_t t;
    double losses[TT_MESH_SHARDS_MAX];
    tutti_pipeline_verdict_t verdict;
    TT_EXPECT(m, tt_mesh_open(&t, &a->training, m->group) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tt_mesh_average(&t, i, losses) == TUTTI_OK); /* a step is under way */
        TT_EXPECT(m, ask_apart(a, &t) == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, is_told(a, &t));
        TT_EXPECT(m, tutti_pipeline_validate(t.pipeline, &verdict) == TUTTI_ERR_STATE);
        TT_EXPECT(m, tt_mesh_post_validate(&t) == TUTTI_OK);
    }
    tt_mesh_close(&t);
}

static void ranks_of_a_mesh_ask_for_the_same(void **state)
{
    (void)state;
    apart_t a = {.training = {.shards = 2,
                              .tp_shards = 2,
                              .micro_batches = 2,
                              .pp = 2,
                              .schedule = "1f1b",
                              .validates = true}};
    for (int i = 0; i < 8; i++) {
        const bool of_replicas = i % 2 == 0;
        a.training.dp = i < 4 || of_replicas ? 2 : 1;
        a.training.tp = i < 4 || !of_replicas ? 2 : 1;
        a.training.stage = i / 2 % 4;
        a.along = of_replicas ? "dp" : "tp";
        a.first = of_replicas ? "the first of its replicas" : "the first with parts of its layers";
        a.odd = i / 2 % 2;
        a.takes_away = i / 2 % 4 >= 2;
        tt_team_expect(tt_mesh_ranks(&a.training), 0, expect_told, &a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_step_optimistically),
        cmocka_unit_test(parts_of_layers_step_optimistically),
        cmocka_unit_test(slices_step_optimistically),
        cmocka_unit_test(an_overflow_of_the_other_stage_is_undone),
        cmocka_unit_test(all_of_them_step_optimistically),
        cmocka_unit_test(every_optimizer_is_undone),
        cmocka_unit_test(every_mesh_has_plain_bits),
        cmocka_unit_test(ranks_of_a_mesh_ask_for_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
