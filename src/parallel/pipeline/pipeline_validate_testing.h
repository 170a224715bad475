/* A pipeline whose steps are optimistic, and one whose caller steps: pipeline_validate_test.c,
 * pipeline_validate_refusals_test.c. */
#ifndef TT_PIPELINE_VALIDATE_TESTING_H
#define TT_PIPELINE_VALIDATE_TESTING_H

#include "parallel/pipeline/pipeline_testing.h"

#include <math.h>

enum { TT_VALIDATE_STEPS = 6 };

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
    tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS];
    double evaluated, evaluated_early, last_scale; /* early: behind step 2 */
    int clipped, skipped;
} tt_validate_job_t;

typedef struct {
    tt_training_t training;
    tt_trainer_t t;
    tutti_scaler_t *scaler;
} tt_validate_set_t;

static inline tutti_status_t tt_validate_open(tt_validate_set_t *set, const tt_validate_job_t *job,
                                              tutti_group_t *group)
{
    const tutti_scaler_options_t scaling = {.group = group,
                                            .init_scale = job->scale,
                                            .growth_interval = 2,
                                            .growth_factor = 4,
                                            .disabled = job->is_disabled};
    *set = (tt_validate_set_t){
        .training = {.model = job->model, .schedule = job->schedule, .micro_batches = 4}};
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

static inline void tt_validate_close(tt_validate_set_t *set)
{
    tt_trainer_close(&set->t);
    tutti_scaler_release(set->scaler);
}

/* One after the other. */
static inline tutti_status_t tt_validate_step_plainly(tt_validate_set_t *set,
                                                      const tt_validate_job_t *job,
                                                      tutti_pipeline_verdict_t *verdict)
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

static inline tutti_status_t tt_validate_step(tt_validate_set_t *set, const tt_validate_job_t *job,
                                              int number,
                                              tutti_pipeline_verdict_t verdicts[TT_VALIDATE_STEPS])
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    double *loss = job->is_optimistic ? NULL : &verdicts[number].loss;
    TT_TRY(tutti_scope_open(set->t.ctx, &s));
    tt_make_batch(s, &set->training, number, &x, &y);
    tutti_optim_set_lr(set->t.opt, 1e-2 / (number + 1)); /* a step is made again by its own rate */
    tutti_status_t status =
        tutti_pipeline_step(set->t.pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, loss);
    status = status < 0 || job->is_optimistic
                 ? status
                 : tt_validate_step_plainly(set, job, &verdicts[number]);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

#endif
