/* The training loop. Its length is given in steps, in seconds, or both; rank 0's clock decides, so
 * that all ranks agree, and the learning rate follows what is nearer to its end. */
#include "gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    session_t *session;
    tutti_dataset_t *train, *validation;
    tutti_dataloader_t *loader;
    trainer_t trainer;
    tutti_optim_t *opt;
    tutti_averaged_t *average; /* NULL: none */
    tutti_module_t *whole; /* the model at the end, with all weights on rank 0; NULL: not wanted */
    report_t *report;
    tutti_tensor_t *clock;  /* [1] f64, rank 0's */
    tutti_tensor_t *word;   /* [2] f64: rank 0's clock, and the signal to stop */
    tutti_tensor_t *losses; /* [V] f64, a shard each */
    double begin;           /* when training began */
    double seconds;         /* trained so far, by rank 0's clock */
    double loss, lr;
    double norm; /* of all gradients of a step that has been validated */
    int64_t step;
    bool is_continued; /* from a checkpoint */
    tutti_slice_t extra[2];
    tutti_checkpoint_t checkpoint;
    tutti_saver_t *saver; /* NULL: none is written */
} training_t;

enum { VALIDATION_WINDOWS = 64 }; /* while training; all of them at the end */

static const double lr_end = 0.1;      /* of the highest rate */
static const double train_part = 0.95; /* of the text; the rest is held out */

/* ---- a step -------------------------------------------------------------------------------- */

static void windows(void *user, tutti_scope_t *s, int64_t micro_batch, tutti_tensor_t **tokens,
                    tutti_tensor_t **targets)
{
    const training_t *t = user;
    const tutti_batch_place_t place = {
        .step = t->step, .shard = tutti_context_shard(t->session->ctx), .micro_batch = micro_batch};
    tutti_batch_t batch;
    (void)tutti_dataloader_at(t->loader, s, place, &batch); /* a failure is the scope's, too */
    *tokens = batch.input;
    *targets = batch.target;
}

/* Over all shards, summed in their order on every rank. */
static double mean_loss(const training_t *t)
{
    double sum = 0;
    for (int64_t v = 0; v < tutti_tensor_numel(t->losses); v++) {
        sum += tutti_tensor_at(t->losses, v);
    }
    return sum / (double)tutti_tensor_numel(t->losses);
}

static tutti_status_t share_loss(training_t *t)
{
    TUTTI_CHECK(tutti_all_reduce(t->session->data, t->losses, TUTTI_SUM, NULL));
    t->loss = mean_loss(t);
    return TUTTI_OK;
}

static tutti_status_t train_shards(training_t *t)
{
    const gpt_source_t source = {windows, t};
    TUTTI_CHECK(tutti_tensor_fill(t->losses, 0));
    double *losses = tutti_tensor_data(t->losses);
    TUTTI_CHECK(gpt_step_shards(t->session, &t->trainer, &source, losses));
    return t->session->settings.post_validate ? gpt_take_verdict(&t->trainer, losses, &t->norm)
                                              : TUTTI_OK;
}

/* Clipped, if that is asked for; in any case measured. */
static tutti_status_t clip(training_t *t, double *norm)
{
    const double most = gpt_clip(&t->session->settings);
    return tutti_clip_grad_norm(t->opt, most > 0 ? most : INFINITY, 2, norm);
}

static tutti_status_t train_step(training_t *t)
{
    session_t *session = t->session;
    double norm = 0;
    bool skips = false;
    const bool has_stepped = gpt_steps_itself(&session->settings);
    tutti_context_set_step(session->ctx, t->step);
    tutti_optim_set_lr(t->opt, t->lr);
    TUTTI_CHECK(train_shards(t));
    TUTTI_CHECK(share_loss(t));
    TUTTI_CHECK(has_stepped ? TUTTI_OK : clip(t, &norm));
    norm = session->settings.post_validate ? t->norm : norm;
    TUTTI_CHECK(gpt_judge(session, t->step, t->loss, norm, &skips));
    if (!has_stepped && !skips) {
        const int64_t begin = tutti_trace_now();
        TUTTI_CHECK(tutti_optim_step(t->opt));
        tutti_trace_event(session->trace, "compute", "optimizer", begin, tutti_trace_now());
    }
    return t->average == NULL || skips ? TUTTI_OK : tutti_averaged_update(t->average);
}

/* ---- when ---------------------------------------------------------------------------------- */

/* How much of the training is over, in [0, 1]. */
static double part_done(const training_t *t)
{
    const settings_t *settings = &t->session->settings;
    const double by_steps = settings->steps > 0 ? (double)t->step / (double)settings->steps : 0;
    const double by_seconds = settings->seconds > 0 ? t->seconds / settings->seconds : 0;
    return fmin(1, fmax(by_steps, by_seconds));
}

static double learning_rate(const training_t *t)
{
    enum { RESOLUTION = 1000000 };
    const settings_t *settings = &t->session->settings;
    const tutti_schedule_t cosine = {.kind = TUTTI_SCHEDULE_COSINE,
                                     .lr = settings->lr,
                                     .total_steps = RESOLUTION,
                                     .min_ratio = lr_end};
    if (t->step < settings->warmup) {
        return settings->lr * (double)(t->step + 1) / (double)settings->warmup;
    }
    return settings->schedule == SCHEDULE_CONSTANT
               ? settings->lr
               : tutti_schedule_lr(&cosine, (int64_t)(part_done(t) * RESOLUTION));
}

/* Everybody takes rank 0's time, without --seconds nothing depends on it; and a signal that any
 * rank has got, so that all end behind the same step. */
static tutti_status_t share_clock(training_t *t)
{
    session_t *session = t->session;
    double *word = tutti_tensor_data(t->word);
    word[0] = session->rank == 0 ? seconds_now() - t->begin : 0;
    word[1] = stopping_noted();
    TUTTI_CHECK(tutti_all_reduce(session->world, t->word, TUTTI_MAX, NULL));
    t->seconds = tutti_tensor_at(t->word, 0);
    session->stop_signal = (int)tutti_tensor_at(t->word, 1);
    return tutti_tensor_fill(t->clock, t->seconds);
}

/* ---- reports ------------------------------------------------------------------------------- */

static double tokens_per_second(const training_t *t)
{
    const settings_t *settings = &t->session->settings;
    const double tokens = (double)t->step * (double)tutti_tensor_numel(t->losses) *
                          (double)(settings->batch * settings->context * settings->accumulate);
    return t->seconds > 0 ? tokens / t->seconds : 0;
}

static void report_progress(const training_t *t)
{
    const double done = part_done(t);
    const progress_t progress = {.step = t->step,
                                 .loss = t->loss,
                                 .lr = t->lr,
                                 .seconds = t->seconds,
                                 .tokens_per_second = tokens_per_second(t),
                                 .seconds_left = done > 0 ? t->seconds * (1 - done) / done : 0};
    if (t->session->rank == 0) {
        report_step(t->report, &progress);
    }
}

/* The averages, if there are any: until use_own(). */
static tutti_status_t use_average(training_t *t)
{
    return tutti_averaged_count(t->average) > 0 ? tutti_averaged_swap_in(t->average) : TUTTI_OK;
}

static tutti_status_t use_own(training_t *t)
{
    return tutti_averaged_count(t->average) > 0 ? tutti_averaged_swap_out(t->average) : TUTTI_OK;
}

static tutti_status_t validate(training_t *t, int64_t windows_max, double *loss)
{
    TUTTI_CHECK(gpt_evaluate(t->session, t->trainer.pipeline, t->validation, windows_max, loss));
    if (t->session->rank == 0) {
        report_validation(t->report, t->step, t->seconds, *loss);
    }
    return TUTTI_OK;
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/* All else follows from the step. */
static void describe_checkpoint(training_t *t)
{
    const settings_t *settings = &t->session->settings;
    t->extra[0] = tutti_slice_whole("seconds", t->clock);
    t->extra[1] = tutti_slice_whole("losses", t->losses);
    t->checkpoint = (tutti_checkpoint_t){.folder = settings->checkpoint,
                                         .group = t->session->world,
                                         .module = t->session->model,
                                         .optim = t->opt,
                                         .averaged = t->average,
                                         .slices = t->extra,
                                         .slice_count = 2,
                                         .keep = (int)settings->keep,
                                         .shards = gpt_shards_of(&t->trainer),
                                         .whole = settings->whole,
                                         .per_host = settings->per_host,
                                         .host_copies = (int)settings->copies};
}

/* In the background, while steps go on. */
static tutti_status_t save_checkpoint(training_t *t)
{
    const bool is_due = t->saver != NULL && (t->step % t->session->settings.every == 0 ||
                                             part_done(t) >= 1 || t->session->stop_signal != 0);
    return is_due ? tutti_saver_save(t->saver, t->step) : TUTTI_OK;
}

/* Ranks that were started again go on, too. */
static tutti_status_t load_checkpoint(training_t *t)
{
    const settings_t *settings = &t->session->settings;
    if (settings->checkpoint == NULL) {
        return TUTTI_OK;
    }
    const bool resume = settings->resume || tutti_restart_count() > 0;
    const tutti_status_t status = tutti_checkpoint_begin(&t->checkpoint, resume, &t->step);
    TUTTI_CHECK(status);
    t->is_continued = status == TUTTI_OK;
    if (t->is_continued) {
        t->seconds = tutti_tensor_item(t->clock);
        t->loss = mean_loss(t);
    }
    if (t->session->rank == 0) {
        printf("begins at step %lld\n", (long long)t->step);
        if (t->is_continued && part_done(t) >= 1) {
            printf("step %lld  loss %.4f  all is done\n", (long long)t->step, t->loss);
        }
        fflush(stdout);
    }
    return TUTTI_OK;
}

static tutti_status_t train_all(training_t *t)
{
    const int64_t every = t->session->settings.validate_every;
    double loss;
    t->begin = seconds_now() - t->seconds;
    while (part_done(t) < 1 && t->session->stop_signal == 0) {
        t->lr = learning_rate(t);
        TUTTI_CHECK(train_step(t));
        t->step++;
        TUTTI_CHECK(share_clock(t));
        report_progress(t);
        TUTTI_CHECK(save_checkpoint(t));
        if (every > 0 && t->step % every == 0 && t->session->stop_signal == 0) {
            TUTTI_CHECK(use_average(t));
            TUTTI_CHECK(validate(t, VALIDATION_WINDOWS, &loss));
            TUTTI_CHECK(use_own(t));
        }
    }
    return t->saver != NULL ? tutti_saver_wait(t->saver) : TUTTI_OK;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* The last line of each rank that is asked for a digest. */
static tutti_status_t print_memory(const training_t *t, const tutti_ddp_memory_t *m)
{
    const session_t *session = t->session;
    const tutti_mesh_t *mesh = session->mesh;
    if (session->settings.digest && t->trainer.ddp != NULL) {
        printf("rank %d stage %d parameter_bytes %zu gradient_bytes %zu optimizer_bytes %zu "
               "sent_bytes %lld local_traffic %lld sharded_traffic %lld dp %d tp %d pp %d\n",
               session->rank, m->stage, m->parameter_bytes, m->gradient_bytes, m->optimizer_bytes,
               (long long)m->sent_bytes, (long long)m->local_traffic, (long long)m->sharded_traffic,
               tutti_mesh_coordinate(mesh, "dp"), tutti_mesh_coordinate(mesh, "tp"),
               tutti_mesh_coordinate(mesh, "pp"));
    }
    return TUTTI_OK;
}

static tutti_status_t make_digest(const training_t *t, char digest[TUTTI_DIGEST_BYTES])
{
    if (t->trainer.pipeline != NULL) {
        return tutti_pipeline_digest(t->trainer.pipeline, digest);
    }
    if (!t->session->is_cut) {
        return tutti_ddp_digest(t->trainer.ddp, digest);
    }
    TUTTI_CHECK(tutti_ddp_summon(t->trainer.ddp, NULL, false)); /* of stage 3 */
    TUTTI_CHECK(tutti_parallel_digest(t->session->model, digest));
    return tutti_ddp_dismiss(t->trainer.ddp);
}

/* A training that was stopped saves, and leaves out what else comes at the end. */
static void tell_stop(const training_t *t)
{
    if (t->session->rank == 0) {
        fprintf(stderr, "gpt: stopped by %s behind step %lld%s\n",
                stopping_name(t->session->stop_signal), (long long)t->step,
                t->saver != NULL ? "; --resume goes on from there" : "");
    }
}

static tutti_status_t finish(training_t *t)
{
    session_t *session = t->session;
    const settings_t *settings = &session->settings;
    const bool is_stopped = session->stop_signal != 0;
    const char *summary_path = is_stopped ? NULL : settings->summary;
    const int64_t sample = is_stopped ? 0 : settings->sample;
    char digest[TUTTI_DIGEST_BYTES];
    summary_t summary = {.steps = t->step,
                         .seconds = t->seconds,
                         .tokens_per_second = tokens_per_second(t),
                         .train_loss = t->loss,
                         .digest = digest};
    TUTTI_CHECK(use_average(t)); /* they are the result */
    TUTTI_CHECK(make_digest(t, digest));
    if (summary_path != NULL) {
        TUTTI_CHECK(validate(t, 0, &summary.val_loss));
    }
    const tutti_ddp_memory_t memory =
        t->trainer.ddp == NULL ? (tutti_ddp_memory_t){0} : tutti_ddp_memory(t->trainer.ddp, t->opt);
    if (settings->save != NULL || sample > 0) {
        TUTTI_CHECK(gpt_gather(session, t->trainer.pipeline, t->trainer.ddp, &t->whole));
    }
    /* First the weights: nothing that goes wrong below may cost the training. */
    if (session->rank == 0 && settings->save != NULL) {
        TUTTI_CHECK(tutti_module_save(t->whole, settings->save, NULL, 0));
    }
    report_t *report = t->report;
    t->report = NULL;
    report_digest(report, t->step, digest);
    TUTTI_CHECK(report_close(report));
    if (is_stopped) {
        tell_stop(t);
    }
    if (session->rank != 0) {
        return print_memory(t, &memory);
    }
    if (summary_path != NULL) {
        printf("validation loss %.4f nats per byte\n", summary.val_loss);
        TUTTI_CHECK(report_summary(session, &summary));
    }
    if (settings->digest) {
        printf("digest %s dp %d tp %d pp %d\n", digest, tutti_mesh_size(session->mesh, "dp"),
               tutti_mesh_size(session->mesh, "tp"), tutti_mesh_size(session->mesh, "pp"));
    }
    TUTTI_CHECK(sample > 0 ? gpt_sample(session, t->whole, sample) : TUTTI_OK);
    return print_memory(t, &memory);
}

/* ---- the beginning ------------------------------------------------------------------------- */

/* Weight decay is for matrices: group 1 holds what has one dimension. */
static int choose_group(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)user, (void)name;
    return tutti_tensor_rank(x) < 2;
}

static tutti_status_t open_optimizer(training_t *t)
{
    const settings_t *settings = &t->session->settings;
    tutti_adamw_options_t options = {.lr = settings->lr,
                                     .beta2 = 0.99,
                                     .weight_decay = settings->weight_decay,
                                     .no_weight_decay = settings->weight_decay == 0};
    int group;
    TUTTI_CHECK(tutti_optim_create(t->session->ctx, &tutti_adamw, &options, &t->opt));
    options.no_weight_decay = true;
    TUTTI_CHECK(tutti_optim_add_group(t->opt, &options, &group));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->session->model, choose_group, NULL));
    TUTTI_CHECK(gpt_offload(t->session, t->opt));
    const tutti_averaged_options_t average = {.decay = settings->ema};
    return settings->ema == 0
               ? TUTTI_OK
               : tutti_averaged_create(t->session->ctx, t->session->model, &average, &t->average);
}

/* Windows begin at any byte, in an order that is a permutation for each epoch. */
static tutti_status_t open_data(training_t *t)
{
    const settings_t *settings = &t->session->settings;
    const tutti_dataloader_options_t options = {.batch = settings->batch,
                                                .micro_batches = settings->accumulate,
                                                .shards = gpt_shards_of(&t->trainer),
                                                .shuffle = true,
                                                .seed = (uint64_t)settings->seed,
                                                .endless = true};
    TUTTI_CHECK(gpt_open_text(t->session, 0, train_part, 1, &t->train));
    TUTTI_CHECK(gpt_open_text(t->session, train_part, 1, settings->context, &t->validation));
    return tutti_dataloader_create(t->train, &options, &t->loader);
}

static tutti_status_t open_training(training_t *t)
{
    session_t *session = t->session;
    TUTTI_CHECK(gpt_open_trainer(session, &t->trainer));
    TUTTI_CHECK(open_data(t));
    TUTTI_CHECK(open_optimizer(t));
    TUTTI_CHECK(gpt_set_optimizer(session, &t->trainer, t->opt));
    TUTTI_CHECK(tutti_group_tensor(session->world, TUTTI_F64, TUTTI_SHAPE(1), &t->clock));
    TUTTI_CHECK(tutti_group_tensor(session->world, TUTTI_F64,
                                   TUTTI_SHAPE(gpt_shards_of(&t->trainer)), &t->losses));
    TUTTI_CHECK(tutti_group_tensor(session->world, TUTTI_F64, TUTTI_SHAPE(2), &t->word));
    describe_checkpoint(t);
    TUTTI_CHECK(load_checkpoint(t));
    if (session->settings.every > 0) {
        TUTTI_CHECK(tutti_saver_create(&t->checkpoint, &t->saver));
    }
    return report_open(session, t->is_continued, t->step, &t->report);
}

static void close_training(training_t *t)
{
    (void)report_close(t->report); /* still there after a failure only, which is reported */
    tutti_saver_release(t->saver);
    tutti_module_release(t->whole);
    tutti_tensor_release(t->losses);
    tutti_tensor_release(t->word);
    tutti_tensor_release(t->clock);
    tutti_averaged_release(t->average);
    tutti_optim_release(t->opt);
    tutti_dataloader_release(t->loader);
    tutti_dataset_release(t->train);
    tutti_dataset_release(t->validation);
    gpt_close_trainer(&t->trainer);
}

tutti_status_t gpt_train(session_t *session)
{
    training_t t = {.session = session};
    tutti_status_t status = open_training(&t);
    if (status >= 0) {
        stopping_begin();
        status = train_all(&t);
    }
    if (status >= 0 && session->stop_signal == 0) {
        stopping_end(); /* nothing asks for signals any more */
    }
    if (status >= 0) {
        status = finish(&t);
    }
    close_training(&t);
    return status >= 0 && session->stop_signal != 0 ? stopping_leave(session->world) : status;
}
