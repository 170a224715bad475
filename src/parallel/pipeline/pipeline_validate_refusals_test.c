/* Optimistic steps: what is refused, before the verdict and at the beginning, and who is told. */
#include "parallel/pipeline/pipeline_validate_testing.h"

#include <stdio.h>
#include <unistd.h>

#include <tutti/averaged.h>
#include <tutti/checkpoint.h>
#include <tutti/ddp.h>
#include <tutti/offload.h>

#include "core/base/place_testing.h"

#define EXPECT_TEXT(m, status, want, says)                                                         \
    do {                                                                                           \
        TT_EXPECT(m, (status) == (want));                                                          \
        TT_EXPECT(m, strstr(tutti_last_error(), (says)) != NULL);                                  \
    } while (0)

static void be_refused(tt_member_t *m)
{
    tt_validate_set_t set;
    double loss;
    tutti_ddp_t *ddp;
    tutti_pipeline_verdict_t verdict;
    tutti_tensor_t *none = NULL;
    const tutti_pipeline_batch_t batch = {&none, 1, &none, 1};
    tt_validate_job_t job = {.model = "mlp", .kind = &tutti_sgd, .norm_type = 2};
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
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
    tt_validate_close(&set);
    job.schedule = "pipedream";
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_pipeline_post_validate(set.t.pipeline, set.t.opt, NULL),
                TUTTI_ERR_UNSUPPORTED, "stages of this schedule step inside a batch");
    tt_validate_close(&set);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    tt_team_expect(1, 0, be_refused, NULL);
}

/* Gradients that the caller forgets cannot be stepped again. */
static void forget(tt_member_t *m)
{
    tt_validate_set_t set;
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    const tt_validate_job_t job = {.model = "mlp",
                                   .kind = &tutti_sgd,
                                   .max_norm = 1e-3,
                                   .norm_type = 2,
                                   .is_optimistic = true};
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_validate_step(&set, &job, 0, verdicts) == TUTTI_OK);
    tutti_optim_zero_grad(set.t.opt);
    EXPECT_TEXT(m, tutti_pipeline_validate(set.t.pipeline, verdicts), TUTTI_ERR_STATE,
                "was forgotten before its step was validated");
    tt_validate_close(&set);
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

static const tt_validate_job_t always_clipped = {
    .model = "mlp", .kind = &tutti_adamw, .max_norm = 1e-3, .norm_type = 2, .is_optimistic = true};

/* What is read or written meanwhile would be undone, or not be. */
static void read_too_early(tt_member_t *m)
{
    tt_validate_set_t set;
    tutti_averaged_t *average;
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    static const char text[] = "undone yet: tutti_pipeline_validate() comes first";
    char path[64];
    snprintf(path, sizeof path, "/tmp/tutti_validate_%d_%d", (int)getpid(), m->rank);
    const tt_validate_job_t job = always_clipped;
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
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
    TT_EXPECT(m, tt_validate_step(&set, &job, 0, verdicts) == TUTTI_OK);
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
    tt_validate_close(&set);
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
    tt_validate_set_t set;
    char path[96], digest[TUTTI_DIGEST_BYTES];
    int64_t at = 0;
    tutti_saver_t *saver;
    tutti_averaged_t *average;
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    const char *folder = m->user;
    static const char text[] = "0.weight: the last step may be undone yet: "
                               "tutti_pipeline_validate() comes first";
    TT_EXPECT(m, tt_validate_open(&set, &always_clipped, m->group) == TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .group = m->group, .module = set.t.net};
    snprintf(path, sizeof path, "%s/weights-%d", folder, m->rank);
    const bool has_file = tutti_group_size(m->group) == 1;
    TT_EXPECT(m, tutti_averaged_create(set.t.ctx, set.t.net, NULL, &average) == TUTTI_OK);
    TT_EXPECT(m, tutti_saver_create(&checkpoint, &saver) == TUTTI_OK);
    TT_EXPECT(m, tutti_checkpoint_save(&checkpoint, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_digest(set.t.pipeline, digest) == TUTTI_OK);
    TT_EXPECT(m, !has_file || tutti_module_save(set.t.net, path, NULL, 0) == TUTTI_OK);
    TT_EXPECT(m, tt_validate_step(&set, &always_clipped, 0, verdicts) == TUTTI_OK);
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
    tt_validate_close(&set);
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
    tt_validate_set_t set;
    char digest[TUTTI_DIGEST_BYTES];
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    TT_EXPECT(m, tt_validate_open(&set, &always_clipped, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_validate_step(&set, &always_clipped, 0, verdicts) == TUTTI_OK);
    tutti_optim_release(set.t.opt);
    set.t.opt = NULL;
    tutti_pipeline_release(set.t.pipeline);
    set.t.pipeline = NULL;
    TT_EXPECT(m, tutti_module_digest(set.t.net, digest) == TUTTI_OK);
    tt_validate_close(&set);
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
    tt_validate_set_t set;
    tutti_scaler_t *scaler, *other;
    tutti_pipeline_verdict_t verdict, verdicts[TT_VALIDATE_STEPS];
    const difference_t *d = m->user;
    char text[64];
    tt_validate_job_t job = always_clipped;
    job.is_optimistic = false;
    const int odd = d->odd == m->rank ? d->what : DIFFERENCES;
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
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
        TT_EXPECT(m, tt_validate_step(&set, &job, i, verdicts) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_pipeline_post_validate(set.t.pipeline, NULL, NULL) == TUTTI_OK);
    tutti_scaler_release(scaler);
    tutti_scaler_release(other);
    tt_validate_close(&set);
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
    tt_validate_set_t set;
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    const tt_validate_job_t job = {.model = "mlp",
                                   .kind = &tutti_adamw,
                                   .norm_type = 2,
                                   .max_norm = 1e-3,
                                   .is_optimistic = true};
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_validate_step(&set, &job, 0, verdicts) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_cast(set.t.net, TUTTI_BF16) == TUTTI_OK);
    tutti_status_t status = tt_validate_step(&set, &job, 1, verdicts);
    status = status < 0 ? status : tutti_pipeline_validate(set.t.pipeline, NULL);
    EXPECT_TEXT(m, status, TUTTI_ERR_UNSUPPORTED, "is of 16 bits");
    tt_validate_close(&set);
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
    tt_validate_set_t set;
    char name[] = "zb-h2";
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    const tt_validate_job_t job = {
        .model = "mlp", .schedule = name, .kind = &tutti_sgd, .norm_type = 2};
    TT_EXPECT(m, tt_validate_open(&set, &job, m->group) == TUTTI_OK);
    memset(name, 'x', sizeof name - 1);
    TT_EXPECT(m, tutti_pipeline_post_validate(set.t.pipeline, set.t.opt, NULL) == TUTTI_OK);
    const tt_validate_job_t optimistic = {
        .kind = &tutti_sgd, .norm_type = 2, .is_optimistic = true};
    TT_EXPECT(m, tt_validate_step(&set, &optimistic, 0, verdicts) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    tt_validate_close(&set);
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
