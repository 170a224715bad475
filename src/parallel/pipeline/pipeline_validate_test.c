/* Optimistic steps: weights, scale and norms have the bits of unscaling, clipping and stepping one
 * after the other, whether steps are undone always, sometimes or never. */
#include "parallel/pipeline/pipeline_validate_testing.h"

#include "compute/optim/optimizer.h"

static tutti_status_t train(tt_validate_set_t *set, tt_validate_job_t *job)
{
    for (int i = 0; i < TT_VALIDATE_STEPS; i++) {
        TT_TRY(tt_validate_step(set, job, i, job->verdicts));
        const bool looks = !job->is_blind,
                   is_told = i == TT_VALIDATE_STEPS - 1 || (looks && i % 2 == 1);
        TT_TRY(looks && i == 0 ? tutti_pipeline_digest(set->t.pipeline, job->first) : TUTTI_OK);
        TT_TRY(looks && i == 2 ? tt_evaluate(&set->t, &set->training, &job->evaluated_early)
                               : TUTTI_OK);
        if (job->is_optimistic && is_told) { /* the verdict of others comes with the next step */
            TT_TRY(tutti_pipeline_validate(set->t.pipeline, &job->verdicts[i]));
        }
        job->clipped += job->verdicts[i].was_clipped;
        job->skipped += job->verdicts[i].was_skipped;
    }
    TT_TRY(tt_evaluate(&set->t, &set->training, &job->evaluated));
    job->last_scale = set->scaler == NULL ? 0 : tutti_scaler_get_state(set->scaler).scale;
    return tutti_pipeline_digest(set->t.pipeline, job->digest);
}

static void train_alone(tt_member_t *m)
{
    tt_validate_set_t set;
    TT_EXPECT(m, tt_validate_open(&set, m->user, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&set, m->user) == TUTTI_OK);
    tt_validate_close(&set);
}

static void train_member(tt_member_t *m)
{
    tt_validate_set_t set;
    const tt_validate_job_t *want = m->user;
    tt_validate_job_t got = {.model = want->model,
                             .schedule = want->schedule,
                             .kind = want->kind,
                             .max_norm = want->max_norm,
                             .norm_type = want->norm_type,
                             .scales = want->scales,
                             .scale = want->scale,
                             .is_blind = want->is_blind,
                             .is_optimistic = true};
    TT_EXPECT(m, tt_validate_open(&set, &got, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&set, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, want->digest) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &want->evaluated, sizeof got.evaluated) == 0);
    TT_EXPECT(m, strcmp(got.first, want->first) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated_early, &want->evaluated_early, sizeof(double)) == 0);
    TT_EXPECT(m, got.last_scale == want->last_scale);
    for (int i = want->is_blind ? TT_VALIDATE_STEPS - 1 : 1; i < TT_VALIDATE_STEPS; i += 2) {
        TT_EXPECT(m, got.verdicts[i].loss == want->verdicts[i].loss);
        TT_EXPECT(m, got.verdicts[i].norm == want->verdicts[i].norm);
        TT_EXPECT(m, got.verdicts[i].was_clipped == want->verdicts[i].was_clipped);
        TT_EXPECT(m, got.verdicts[i].was_skipped == want->verdicts[i].was_skipped);
    }
    tt_validate_close(&set);
}

static tt_validate_job_t expect_plain_bits(tt_validate_job_t job, int ranks)
{
    tt_team_expect(1, 0, train_alone, &job);
    tt_team_expect(ranks, 0, train_member, &job);
    return job;
}

static void steps_are_undone_never_sometimes_and_always(void **state)
{
    (void)state;
    const tutti_optim_ops_t *const kinds[] = {&tutti_sgd, &tutti_adamw, &tutti_lamb};
    static const char *const models[] = {"mlp", "tied", "skip"};
    static const char *const schedules[] = {"1f1b", "zb-h1", "zb-v"};
    bool has_some = false;
    for (int i = 0; i < 3; i++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            const tt_validate_job_t base = {.model = models[i],
                                            .kind = kinds[(i + ranks) % 3],
                                            .schedule =
                                                ranks == 3 && i == 2 ? "gpipe" : schedules[i],
                                            .norm_type = ranks == 2 ? INFINITY : 2};
            tt_validate_job_t job = base;
            job = expect_plain_bits(job, ranks == 3 && i == 2 ? 2 : ranks);
            assert_int_equal(job.clipped, 0);
            double most = 0, least = INFINITY;
            for (int k = 0; k < TT_VALIDATE_STEPS; k++) {
                most = fmax(most, job.verdicts[k].norm);
                least = fmin(least, job.verdicts[k].norm);
            }
            job = base;
            job.max_norm = least / 8;
            assert_int_equal(expect_plain_bits(job, ranks == 3 && i == 2 ? 2 : ranks).clipped,
                             TT_VALIDATE_STEPS);
            job.max_norm = (most + least) / 2;
            const int some = expect_plain_bits(job, ranks == 3 && i == 2 ? 2 : ranks).clipped;
            has_some |= some > 0 && some < TT_VALIDATE_STEPS;
        }
    }
    assert_true(has_some);
}

static void every_optimizer_is_undone(void **state)
{
    (void)state;
    for (size_t i = 0; i < tt_optimizer_count; i++) {
        tt_validate_job_t job = {.model = "mlp",
                                 .schedule = "zb-h1",
                                 .kind = tt_optimizers[i],
                                 .norm_type = 2,
                                 .max_norm = 0.5,
                                 .scales = i % 2 == 0,
                                 .scale = 0x1p120};
        job = expect_plain_bits(job, 2);
        assert_true(job.clipped > 0);
    }
}

/* Buffers, random numbers and the scale are what they would have been: forwards of a step come
 * before the verdict on the one before. */
static void forwards_ahead_leave_nothing_behind(void **state)
{
    (void)state;
    static const char *const models[] = {"norm", "dropout", "gpt"};
    static const char *const schedules[] = {"zb-h2", "zb-v", "gpipe", "interleaved"};
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++, number++) {
            tt_validate_job_t job = {.model = models[i],
                                     .schedule = schedules[k],
                                     .kind = &tutti_adamw,
                                     .norm_type = 2,
                                     .is_blind = true,
                                     .scales = number % 3 == 1 || number == 0,
                                     .scale = 0x1p100}; /* which grows */
            if (tt_test_takes(number) || number % 5 == 0) {
                job = expect_plain_bits(job, 2);
                assert_int_equal(job.clipped, 0);
                job.max_norm = 1e-3;
                assert_true(expect_plain_bits(job, 2).clipped > 0);
            }
        }
    }
}

static void overflows_are_undone(void **state)
{
    (void)state;
    for (int number = 0; number < 6; number++) {
        const int ranks = 1 + number / 2;
        const tt_validate_job_t job = {.model = "mlp",
                                       .schedule = number % 2 == 0 ? "zb-h1" : "zb-h2",
                                       .is_blind = number % 2 == 1,
                                       .kind = &tutti_adamw,
                                       .norm_type = 2,
                                       .max_norm = 100,
                                       .scales = true,
                                       .scale = 0x1p120};
        const tt_validate_job_t got = expect_plain_bits(job, ranks);
        assert_in_range(got.skipped, 1, TT_VALIDATE_STEPS - 1);
        assert_true(got.clipped > 0);
    }
}

static tutti_tensor_t *spoil(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)user;
    return tutti_mul_scalar(s, grad, INFINITY);
}

static void step_spoiled(tt_member_t *m)
{
    tt_validate_set_t set;
    tutti_pipeline_verdict_t verdict, verdicts[TT_VALIDATE_STEPS];
    const tt_validate_job_t *job = m->user;
    TT_EXPECT(m, tt_validate_open(&set, job, m->group) == TUTTI_OK);
    tutti_tensor_t *bias = tutti_module_find(set.t.net, "0.bias");
    TT_EXPECT(m, m->rank > 0 || tutti_tensor_on_grad(bias, spoil, NULL) == TUTTI_OK);
    TT_EXPECT(m, tt_validate_step(&set, job, 0, verdicts) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, &verdict) == TUTTI_OK);
    TT_EXPECT(m, verdict.was_skipped == !job->is_disabled);
    TT_EXPECT(m, m->rank > 0 || isfinite(*(float *)tutti_tensor_data(bias)) == !job->is_disabled);
    tt_validate_close(&set);
}

/* It looks for no overflow, as without optimistic steps. */
static void a_disabled_scaler_skips_nothing(void **state)
{
    (void)state;
    for (int number = 0; number < 4; number++) {
        tt_validate_job_t job = {.model = "mlp",
                                 .schedule = "1f1b",
                                 .kind = &tutti_adamw,
                                 .scales = true,
                                 .is_disabled = number % 2 == 1,
                                 .is_optimistic = true};
        tt_team_expect(1 + number / 2, 0, step_spoiled, &job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_undone_never_sometimes_and_always),
        cmocka_unit_test(every_optimizer_is_undone),
        cmocka_unit_test(forwards_ahead_leave_nothing_behind),
        cmocka_unit_test(overflows_are_undone),
        cmocka_unit_test(a_disabled_scaler_skips_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
