/* Optimistic steps: weights, scale and norms have the bits of unscaling, clipping and stepping one
 * after the other, whether steps are undone always, sometimes or never; and what is refused. */
#include "parallel/pipeline/pipeline_testing.h"

#include <stdio.h>
#include <unistd.h>

#include <math.h>
#include <tutti/averaged.h>
#include <tutti/checkpoint.h>
#include <tutti/ddp.h>
#include <tutti/offload.h>

#include "compute/optim/optimizer.h"
#include "core/base/place_testing.h"

enum { STEPS = 6 };

typedef struct {
    const char *model, *schedule;
    const tutti_optim_ops_t *kind;
    double max_norm, norm_type;
    bool scales;
    double scale;     /* in the beginning */
    bool is_disabled; /* the scaler is */
    bool is_optimistic;
    bool is_blind; /* nothing is looked at until the end: each step begins before a verdict */
    /* what came of it */
    char digest[TUTTI_DIGEST_BYTES], first[TUTTI_DIGEST_BYTES]; /* at the end; of step 0 */
    tutti_pipeline_verdict_t verdicts[STEPS];
    double evaluated, evaluated_early, last_scale; /* early: behind step 2 */
    int clipped, skipped;
} job_t;

typedef struct {
    tt_training_t training;
    tt_trainer_t t;
    tutti_scaler_t *scaler;
} set_t;

static tutti_status_t open_set(set_t *set, const job_t *job, tutti_group_t *group)
{
    const tutti_scaler_options_t scaling = {.group = group,
                                            .init_scale = job->scale,
                                            .growth_interval = 2,
                                            .growth_factor = 4,
                                            .disabled = job->is_disabled};
    *set =
        (set_t){.training = {.model = job->model, .schedule = job->schedule, .micro_batches = 4}};
    tt_trainer_t *t = &set->t;
    TT_TRY(job->scales ? tutti_scaler_create(&scaling, &set->scaler) : TUTTI_OK);
    set->training.scaler = set->scaler;
    const tutti_pipeline_run_options_t run = tt_run_options(&set->training);
    TT_TRY(tt_open_contexts(t, &set->training, 0));
    TT_TRY(tt_make_model(t->maker, job->model, &t->net));
    TT_TRY(tutti_pipeline_create(t->ctx, t->net, group, &run, &t->pipeline));
    TT_TRY(tutti_optim_create(t->ctx, job->kind, NULL, &t->opt));
    TT_TRY(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    const tutti_pipeline_validation_t o = {
        .max_norm = job->max_norm, .norm_type = job->norm_type, .scaler = set->scaler};
    return job->is_optimistic ? tutti_pipeline_post_validate(t->pipeline, t->opt, &o) : TUTTI_OK;
}

static void close_set(set_t *set)
{
    tt_trainer_close(&set->t);
    tutti_scaler_release(set->scaler);
}

/* One after the other. */
static tutti_status_t step_plainly(set_t *set, const job_t *job, tutti_pipeline_verdict_t *verdict)
{
    tutti_optim_t *opt = set->t.opt;
    const double most = job->max_norm > 0 ? job->max_norm : INFINITY;
    TT_TRY(set->scaler != NULL ? tutti_scaler_unscale(set->scaler, opt) : TUTTI_OK);
    TT_TRY(tutti_clip_grad_norm(opt, most, job->norm_type, &verdict->norm));
    TT_TRY(set->scaler != NULL ? tutti_scaler_step(set->scaler, opt, &verdict->was_skipped)
                               : tutti_optim_step(opt));
    verdict->was_clipped = !verdict->was_skipped && verdict->norm + 1e-6 > most;
    verdict->norm = verdict->was_skipped ? INFINITY : verdict->norm;
    tutti_optim_zero_grad(opt);
    return set->scaler != NULL ? tutti_scaler_update(set->scaler) : TUTTI_OK;
}

static tutti_status_t step(set_t *set, const job_t *job, int number,
                           tutti_pipeline_verdict_t verdicts[STEPS])
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    double *loss = job->is_optimistic ? NULL : &verdicts[number].loss;
    TT_TRY(tutti_scope_open(set->t.ctx, &s));
    tt_make_batch(s, &set->training, number, &x, &y);
    tutti_optim_set_lr(set->t.opt, 1e-2 / (number + 1)); /* a step is made again by its own rate */
    tutti_status_t status =
        tutti_pipeline_step(set->t.pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, loss);
    status = status < 0 || job->is_optimistic ? status : step_plainly(set, job, &verdicts[number]);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static tutti_status_t train(set_t *set, job_t *job)
{
    for (int i = 0; i < STEPS; i++) {
        TT_TRY(step(set, job, i, job->verdicts));
        const bool looks = !job->is_blind, is_told = i == STEPS - 1 || (looks && i % 2 == 1);
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
    set_t set;
    TT_EXPECT(m, open_set(&set, m->user, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&set, m->user) == TUTTI_OK);
    close_set(&set);
}

static void train_member(tt_member_t *m)
{
    set_t set;
    const job_t *want = m->user;
    job_t got = {.model = want->model,
                 .schedule = want->schedule,
                 .kind = want->kind,
                 .max_norm = want->max_norm,
                 .norm_type = want->norm_type,
                 .scales = want->scales,
                 .scale = want->scale,
                 .is_blind = want->is_blind,
                 .is_optimistic = true};
    TT_EXPECT(m, open_set(&set, &got, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&set, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, want->digest) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &want->evaluated, sizeof got.evaluated) == 0);
    TT_EXPECT(m, strcmp(got.first, want->first) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated_early, &want->evaluated_early, sizeof(double)) == 0);
    TT_EXPECT(m, got.last_scale == want->last_scale);
    for (int i = want->is_blind ? STEPS - 1 : 1; i < STEPS; i += 2) {
        TT_EXPECT(m, got.verdicts[i].loss == want->verdicts[i].loss);
        TT_EXPECT(m, got.verdicts[i].norm == want->verdicts[i].norm);
        TT_EXPECT(m, got.verdicts[i].was_clipped == want->verdicts[i].was_clipped);
        TT_EXPECT(m, got.verdicts[i].was_skipped == want->verdicts[i].was_skipped);
    }
    close_set(&set);
}

static job_t expect_plain_bits(job_t job, int ranks)
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
            const job_t base = {.model = models[i],
                                .kind = kinds[(i + ranks) % 3],
                                .schedule = ranks == 3 && i == 2 ? "gpipe" : schedules[i],
                                .norm_type = ranks == 2 ? INFINITY : 2};
            job_t job = base;
            job = expect_plain_bits(job, ranks == 3 && i == 2 ? 2 : ranks);
            assert_int_equal(job.clipped, 0);
            double most = 0, least = INFINITY;
            for (int k = 0; k < STEPS; k++) {
                most = fmax(most, job.verdicts[k].norm);
                least = fmin(least, job.verdicts[k].norm);
            }
            job = base;
            job.max_norm = least / 8;
            assert_int_equal(expect_plain_bits(job, ranks == 3 && i == 2 ? 2 : ranks).clipped,
                             STEPS);
            job.max_norm = (most + least) / 2;
            const int some = expect_plain_bits(job, ranks == 3 && i == 2 ? 2 : ranks).clipped;
            has_some |= some > 0 && some < STEPS;
        }
    }
    assert_true(has_some);
}

static void every_optimizer_is_undone(void **state)
{
    (void)state;
    for (size_t i = 0; i < tt_optimizer_count; i++) {
        job_t job = {.model = "mlp",
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
            job_t job = {.model = models[i],
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
        const job_t job = {.model = "mlp",
                           .schedule = number % 2 == 0 ? "zb-h1" : "zb-h2",
                           .is_blind = number % 2 == 1,
                           .kind = &tutti_adamw,
                           .norm_type = 2,
                           .max_norm = 100,
                           .scales = true,
                           .scale = 0x1p120};
        const job_t got = expect_plain_bits(job, ranks);
        assert_in_range(got.skipped, 1, STEPS - 1);
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
    set_t set;
    tutti_pipeline_verdict_t verdict, verdicts[STEPS];
    const job_t *job = m->user;
    TT_EXPECT(m, open_set(&set, job, m->group) == TUTTI_OK);
    tutti_tensor_t *bias = tutti_module_find(set.t.net, "0.bias");
    TT_EXPECT(m, m->rank > 0 || tutti_tensor_on_grad(bias, spoil, NULL) == TUTTI_OK);
    TT_EXPECT(m, step(&set, job, 0, verdicts) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, &verdict) == TUTTI_OK);
    TT_EXPECT(m, verdict.was_skipped == !job->is_disabled);
    TT_EXPECT(m, m->rank > 0 || isfinite(*(float *)tutti_tensor_data(bias)) == !job->is_disabled);
    close_set(&set);
}

/* It looks for no overflow, as without optimistic steps. */
static void a_disabled_scaler_skips_nothing(void **state)
{
    (void)state;
    for (int number = 0; number < 4; number++) {
        job_t job = {.model = "mlp",
                     .schedule = "1f1b",
                     .kind = &tutti_adamw,
                     .scales = true,
                     .is_disabled = number % 2 == 1,
                     .is_optimistic = true};
        tt_team_expect(1 + number / 2, 0, step_spoiled, &job);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define EXPECT_TEXT(m, status, want, says)                                                         \
    do {                                                                                           \
        TT_EXPECT(m, (status) == (want));                                                          \
        TT_EXPECT(m, strstr(tutti_last_error(), (says)) != NULL);                                  \
    } while (0)

static void be_refused(tt_member_t *m)
{
    set_t set;
    double loss;
    tutti_ddp_t *ddp;
    tutti_pipeline_verdict_t verdict;
    tutti_tensor_t *none = NULL;
    const tutti_pipeline_batch_t batch = {&none, 1, &none, 1};
    job_t job = {.model = "mlp", .kind = &tutti_sgd, .norm_type = 2};
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    tutti_pipeline_t *p = set.t.pipeline;
    EXPECT_TEXT(m, tutti_pipeline_validate(p, &verdict), TUTTI_ERR_STATE, "steps are the caller's");
    const tutti_pipeline_validation_t bad = {.max_norm = -1}, odd = {.norm_type = 3};
    EXPECT_TEXT(m, tutti_pipeline_post_validate(p, set.t.opt, &bad), TUTTI_ERR_ARG,
                "max_norm is -1");
    EXPECT_TEXT(m, tutti_pipeline_post_validate(p, set.t.opt, &odd), TUTTI_ERR_ARG, "norm_type 3");
    TT_EXPECT(m, tutti_pipeline_post_validate(p, set.t.opt, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(p, &verdict) == TUTTI_OK && verdict.loss == 0);
    EXPECT_TEXT(m, tutti_pipeline_post_validate(p, set.t.opt, NULL), TUTTI_ERR_STATE,
                "take it away first");
    EXPECT_TEXT(m, tutti_optim_step(set.t.opt), TUTTI_ERR_STATE, "validates its steps behind them");
    EXPECT_TEXT(m, tutti_pipeline_step(p, &batch, &loss), TUTTI_ERR_ARG,
                "the loss is known when the step has been validated");
    TT_EXPECT(m, tutti_ddp_create(set.t.ctx, set.t.net, m->group, NULL, &ddp) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_pipeline_set_ddp(p, ddp), TUTTI_ERR_STATE,
                "take tutti_pipeline_post_validate() away, and call it behind this");
    TT_EXPECT(m, tutti_pipeline_post_validate(p, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_set_ddp(p, ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_post_validate(p, set.t.opt, NULL) == TUTTI_OK);
    const tutti_pipeline_shard_t shard = {.batch = batch};
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, &shard, 1, &loss), TUTTI_ERR_ARG,
                "pipeline_step_shards: the loss is known when");
    tutti_ddp_release(ddp);
    close_set(&set);
    job.schedule = "pipedream";
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_pipeline_post_validate(set.t.pipeline, set.t.opt, NULL),
                TUTTI_ERR_UNSUPPORTED, "stages of this schedule step inside a batch");
    close_set(&set);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    tt_team_expect(1, 0, be_refused, NULL);
}

/* Gradients that the caller forgets cannot be stepped again. */
static void forget(tt_member_t *m)
{
    set_t set;
    tutti_pipeline_verdict_t verdicts[STEPS];
    const job_t job = {.model = "mlp",
                       .kind = &tutti_sgd,
                       .max_norm = 1e-3,
                       .norm_type = 2,
                       .is_optimistic = true};
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &job, 0, verdicts) == TUTTI_OK);
    tutti_optim_zero_grad(set.t.opt);
    EXPECT_TEXT(m, tutti_pipeline_validate(set.t.pipeline, verdicts), TUTTI_ERR_STATE,
                "was forgotten before its step was validated");
    close_set(&set);
}

static void forgotten_gradients_are_told(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 8000, forget, NULL);
}

static tutti_status_t see(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name, (void)x;
    return TUTTI_OK;
}

static const job_t always_clipped = {
    .model = "mlp", .kind = &tutti_adamw, .max_norm = 1e-3, .norm_type = 2, .is_optimistic = true};

/* What is read or written meanwhile would be undone, or not be. */
static void read_too_early(tt_member_t *m)
{
    set_t set;
    tutti_averaged_t *average;
    tutti_pipeline_verdict_t verdicts[STEPS];
    static const char text[] = "undone yet: tutti_pipeline_validate() comes first";
    char path[64];
    snprintf(path, sizeof path, "/tmp/tutti_validate_%d_%d", (int)getpid(), m->rank);
    const job_t job = always_clipped;
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_create(set.t.ctx, set.t.net, NULL, &average) == TUTTI_OK);
    TT_EXPECT(m, m->rank > 0 || tutti_averaged_update(average) == TUTTI_OK);
    if (tutti_group_size(m->group) > 1) { /* all ranks hear of the one without averages */
        EXPECT_TEXT(m, tutti_averaged_swap_in(average), TUTTI_ERR_STATE, "there is no average yet");
    }
    TT_EXPECT(m, m->rank == 0 || tutti_averaged_update(average) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_optim_offload(set.t.opt, "/tmp"), TUTTI_ERR_UNSUPPORTED,
                "take it away first");
    const bool has_file = tutti_group_size(m->group) == 1; /* of slices there is none */
    TT_EXPECT(m, !has_file || tutti_optim_save(set.t.opt, path) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &job, 0, verdicts) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_optim_each_state(set.t.opt, see, NULL), TUTTI_ERR_STATE, text);
    if (has_file) {
        EXPECT_TEXT(m, tutti_optim_load(set.t.opt, path), TUTTI_ERR_STATE, text);
    }
    EXPECT_TEXT(m, tutti_averaged_swap_in(average), TUTTI_ERR_STATE, text);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, verdicts) == TUTTI_OK);
    TT_EXPECT(m, verdicts[0].was_clipped);
    TT_EXPECT(m, tutti_optim_each_state(set.t.opt, see, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_swap_in(average) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_swap_out(average) == TUTTI_OK);
    TT_EXPECT(m, !has_file || tutti_optim_load(set.t.opt, path) == TUTTI_OK);
    (void)unlink(path);
    tutti_averaged_release(average);
    close_set(&set);
}

static void nothing_is_read_before_the_verdict(void **state)
{
    (void)state;
    tt_team_expect(1, 0, read_too_early, NULL);
    tt_team_expect(2, 0, read_too_early, NULL);
}

/* ---- the module alone ------------------------------------------------------------------------ */

static void keep_module_too_early(tt_member_t *m)
{
    set_t set;
    char path[96], digest[TUTTI_DIGEST_BYTES];
    int64_t at = 0;
    tutti_saver_t *saver;
    tutti_averaged_t *average;
    tutti_pipeline_verdict_t verdicts[STEPS];
    const char *folder = m->user;
    static const char text[] = "0.weight: the last step may be undone yet: "
                               "tutti_pipeline_validate() comes first";
    TT_EXPECT(m, open_set(&set, &always_clipped, m->group) == TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .group = m->group, .module = set.t.net};
    snprintf(path, sizeof path, "%s/weights-%d", folder, m->rank);
    const bool has_file = tutti_group_size(m->group) == 1;
    TT_EXPECT(m, tutti_averaged_create(set.t.ctx, set.t.net, NULL, &average) == TUTTI_OK);
    TT_EXPECT(m, tutti_saver_create(&checkpoint, &saver) == TUTTI_OK);
    TT_EXPECT(m, tutti_checkpoint_save(&checkpoint, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_digest(set.t.pipeline, digest) == TUTTI_OK);
    TT_EXPECT(m, !has_file || tutti_module_save(set.t.net, path, NULL, 0) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &always_clipped, 0, verdicts) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_averaged_update(average), TUTTI_ERR_STATE, text);
    TT_EXPECT(m, tutti_averaged_count(average) == 0);
    EXPECT_TEXT(m, tutti_checkpoint_save(&checkpoint, 2), TUTTI_ERR_STATE, text);
    EXPECT_TEXT(m, tutti_saver_save(saver, 2), TUTTI_ERR_STATE, text);
    EXPECT_TEXT(m, tutti_checkpoint_load(&checkpoint, &at), TUTTI_ERR_STATE, text);
    EXPECT_TEXT(m, tutti_module_save(set.t.net, path, NULL, 0), TUTTI_ERR_STATE, text);
    if (has_file) {
        char mine[TUTTI_DIGEST_BYTES];
        EXPECT_TEXT(m, tutti_module_load(set.t.net, path), TUTTI_ERR_STATE, text);
        EXPECT_TEXT(m, tutti_module_digest(set.t.net, mine), TUTTI_ERR_STATE, text);
    }
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, verdicts) == TUTTI_OK);
    TT_EXPECT(m, verdicts[0].was_clipped && at == 0);
    TT_EXPECT(m, tutti_averaged_update(average) == TUTTI_OK);
    TT_EXPECT(m, tutti_saver_save(saver, 2) == TUTTI_OK && tutti_saver_wait(saver) == TUTTI_OK);
    char after[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tutti_pipeline_digest(set.t.pipeline, after) == TUTTI_OK);
    TT_EXPECT(m, strcmp(after, digest) != 0);
    if (has_file) {
        TT_EXPECT(m, tutti_module_load(set.t.net, path) == TUTTI_OK);
        TT_EXPECT(m, tutti_pipeline_digest(set.t.pipeline, after) == TUTTI_OK);
        TT_EXPECT(m, strcmp(after, digest) == 0); /* nothing else has been written there */
    }
    tutti_saver_release(saver);
    tutti_averaged_release(average);
    close_set(&set);
}

static void a_module_alone_is_not_kept_before_the_verdict(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        char folder[TT_PLACE_BYTES];
        tt_place_make_quick(folder);
        tt_team_expect(ranks, 0, keep_module_too_early, folder);
        tt_place_remove(folder);
    }
}

/* A pipeline that goes before the verdict leaves the step as it is, and the module to be used. */
static void leave_early(tt_member_t *m)
{
    set_t set;
    char digest[TUTTI_DIGEST_BYTES];
    tutti_pipeline_verdict_t verdicts[STEPS];
    TT_EXPECT(m, open_set(&set, &always_clipped, m->group) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &always_clipped, 0, verdicts) == TUTTI_OK);
    tutti_optim_release(set.t.opt);
    set.t.opt = NULL;
    tutti_pipeline_release(set.t.pipeline);
    set.t.pipeline = NULL;
    TT_EXPECT(m, tutti_module_digest(set.t.net, digest) == TUTTI_OK);
    close_set(&set);
}

static void a_pipeline_that_goes_leaves_the_module(void **state)
{
    (void)state;
    tt_team_expect(1, 0, leave_early, NULL);
}

/* ---- ranks that ask for different things ----------------------------------------------------- */

enum { NO_OPTIMIZER, NO_OPTIONS, OTHER_NORM, OTHER_TYPE, NO_SCALER, OTHER_SCALER, DIFFERENCES };

typedef struct {
    int what, odd; /* the rank that asks for something else */
} difference_t;

static const char *const differences[] = {
    [NO_OPTIMIZER] = "takes the optimizer away (NULL)",
    [NO_OPTIONS] = "gives max_norm inf, norm_type 2 and no scaler",
    [OTHER_NORM] = "gives max_norm 2, norm_type inf and a scaler of 8",
    [OTHER_TYPE] = "gives max_norm 1, norm_type 2 and a scaler of 8",
    [NO_SCALER] = "gives max_norm 1, norm_type inf and no scaler",
    [OTHER_SCALER] = "a scaler of 8 (growth 2, backoff 0.25, interval 2000, 0 fine)"};

static tutti_status_t ask_for(tt_trainer_t *t, tutti_scaler_t *scaler, tutti_scaler_t *other,
                              int what)
{
    const tutti_pipeline_validation_t o = {.max_norm = what == OTHER_NORM ? 2 : 1,
                                           .norm_type = what == OTHER_TYPE ? 2 : INFINITY,
                                           .scaler = what == NO_SCALER      ? NULL
                                                     : what == OTHER_SCALER ? other
                                                                            : scaler};
    return tutti_pipeline_post_validate(t->pipeline, what == NO_OPTIMIZER ? NULL : t->opt,
                                        what == NO_OPTIONS ? NULL : &o);
}

static tutti_status_t open_scalers(tutti_group_t *group, tutti_scaler_t **one,
                                   tutti_scaler_t **other)
{
    tutti_scaler_options_t o = {.group = group, .init_scale = 8};
    TT_TRY(tutti_scaler_create(&o, one));
    o.backoff_factor = 0.25;
    return tutti_scaler_create(&o, other);
}

static void ask_differently(tt_member_t *m)
{
    set_t set;
    tutti_scaler_t *scaler, *other;
    tutti_pipeline_verdict_t verdict, verdicts[STEPS];
    const difference_t *d = m->user;
    char text[64];
    job_t job = always_clipped;
    job.is_optimistic = false;
    const int odd = d->odd == m->rank ? d->what : DIFFERENCES;
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    TT_EXPECT(m, open_scalers(m->group, &scaler, &other) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {                   /* also while a step is under way */
        const int named = d->odd == 0 ? 1 : d->odd; /* the lowest that is not as rank 0 */
        snprintf(text, sizeof text, "rank %d: pipeline_post_validate: ", named);
        EXPECT_TEXT(m, ask_for(&set.t, scaler, other, odd), TUTTI_ERR_MISMATCH,
                    differences[d->what]);
        TT_EXPECT(m, (strncmp(tutti_last_error(), text, strlen(text)) == 0) == (m->rank != named));
        EXPECT_TEXT(m, tutti_pipeline_validate(set.t.pipeline, &verdict), TUTTI_ERR_STATE,
                    "steps are the caller's");
        TT_EXPECT(m, tutti_optim_each_state(set.t.opt, see, NULL) == TUTTI_OK);
        TT_EXPECT(m, ask_for(&set.t, scaler, other, DIFFERENCES) == TUTTI_OK);
        job.is_optimistic = true;
        TT_EXPECT(m, step(&set, &job, i, verdicts) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_pipeline_post_validate(set.t.pipeline, NULL, NULL) == TUTTI_OK);
    tutti_scaler_release(scaler);
    tutti_scaler_release(other);
    close_set(&set);
}

static void ranks_ask_for_the_same(void **state)
{
    (void)state;
    for (int what = 0; what < DIFFERENCES; what++) {
        for (int odd = 0; odd < 3; odd++) {
            difference_t d = {what, odd};
            tt_team_expect(3, 0, ask_differently, &d);
        }
    }
}

/* It would get a master, of which no copy is kept. */
static void cast_meanwhile(tt_member_t *m)
{
    set_t set;
    tutti_pipeline_verdict_t verdicts[STEPS];
    const job_t job = {.model = "mlp",
                       .kind = &tutti_adamw,
                       .norm_type = 2,
                       .max_norm = 1e-3,
                       .is_optimistic = true};
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &job, 0, verdicts) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_cast(set.t.net, TUTTI_BF16) == TUTTI_OK);
    tutti_status_t status = step(&set, &job, 1, verdicts);
    status = status < 0 ? status : tutti_pipeline_validate(set.t.pipeline, NULL);
    EXPECT_TEXT(m, status, TUTTI_ERR_UNSUPPORTED, "is of 16 bits");
    close_set(&set);
}

static void a_cast_behind_the_beginning_is_refused(void **state)
{
    (void)state;
    tt_team_expect(1, 0, cast_meanwhile, NULL);
    tt_team_expect(2, 0, cast_meanwhile, NULL);
}

/* ---- what the caller gave -------------------------------------------------------------------- */

static void begin_without_name(tt_member_t *m)
{
    set_t set;
    char name[] = "zb-h2";
    tutti_pipeline_verdict_t verdicts[STEPS];
    const job_t job = {.model = "mlp", .schedule = name, .kind = &tutti_sgd, .norm_type = 2};
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    memset(name, 'x', sizeof name - 1);
    TT_EXPECT(m, tutti_pipeline_post_validate(set.t.pipeline, set.t.opt, NULL) == TUTTI_OK);
    const job_t optimistic = {.kind = &tutti_sgd, .norm_type = 2, .is_optimistic = true};
    TT_EXPECT(m, step(&set, &optimistic, 0, verdicts) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    close_set(&set);
}

/* Rows of other ranks are planned again, by what the pipeline knows. */
static void options_are_copied_with_the_schedules_name(void **state)
{
    (void)state;
    tt_team_expect(2, 0, begin_without_name, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_undone_never_sometimes_and_always),
        cmocka_unit_test(every_optimizer_is_undone),
        cmocka_unit_test(forwards_ahead_leave_nothing_behind),
        cmocka_unit_test(overflows_are_undone),
        cmocka_unit_test(a_disabled_scaler_skips_nothing),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(forgotten_gradients_are_told),
        cmocka_unit_test(nothing_is_read_before_the_verdict),
        cmocka_unit_test(a_module_alone_is_not_kept_before_the_verdict),
        cmocka_unit_test(a_pipeline_that_goes_leaves_the_module),
        cmocka_unit_test(ranks_ask_for_the_same),
        cmocka_unit_test(a_cast_behind_the_beginning_is_refused),
        cmocka_unit_test(options_are_copied_with_the_schedules_name),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
