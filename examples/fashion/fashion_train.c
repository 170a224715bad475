/* Epochs and steps. A step's samples are dealt to V shards; the last step of an epoch has what is
 * left, perhaps nothing for some shards, and each sample counts once. */
#include "fashion.h"

#include <math.h>
#include <stdio.h>

typedef struct {
    session_t *session;
    tutti_dataset_t *pictures, *test;
    tutti_dataloader_t *loader;
    tutti_ddp_t *ddp;
    tutti_ddp_memory_t memory;
    tutti_optim_t *opt;
    tutti_averaged_t *average; /* NULL: none */
    report_t *report;          /* NULL: not on this rank */
    tutti_tensor_t *losses;    /* [V] f64: of each shard, summed over its samples */
    tutti_tensor_t *word;      /* [1] f64: the signal to stop */
    progress_t now;
    int64_t samples;
    bool has_warned;    /* of a loss that is no number */
    int64_t first_step; /* not 0 where a checkpoint was loaded */
    double begin, seconds_in_tests, accuracy;
} training_t;

static tutti_status_t train_shard(training_t *t)
{
    const session_t *session = t->session;
    double *losses = tutti_tensor_data(t->losses);
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    if (tutti_dataloader_next(t->loader, s, &batch) == TUTTI_OK && batch.size > 0) {
        (void)tutti_ddp_set_weight(t->ddp, batch.size);
        tutti_tensor_t *mean =
            tutti_cross_entropy(s, tutti_forward(s, session->net, batch.input), batch.target);
        losses[tutti_context_shard(session->ctx)] = tutti_tensor_item(mean) * (double)batch.size;
        (void)tutti_backward(s, mean);
    } else {
        (void)tutti_ddp_set_weight(t->ddp, 0);
    }
    return tutti_scope_close(s); /* failures are the scope's */
}

/* Summed over the shards in their order, on every rank. */
static tutti_status_t share_loss(training_t *t)
{
    const int64_t samples = tutti_ddp_weight(t->ddp, -1);
    double sum = 0;
    TUTTI_CHECK(tutti_all_reduce(t->session->world, t->losses, TUTTI_SUM, NULL));
    for (int64_t v = 0; v < tutti_tensor_numel(t->losses); v++) {
        sum += tutti_tensor_at(t->losses, v);
    }
    t->samples += samples;
    t->now.loss = sum / (double)samples;
    return TUTTI_OK;
}

/* A NaN's sign says nothing. */
static double without_sign(double number)
{
    return isnan(number) ? (double)NAN : number;
}

/* --on-nan: whether the step is left out, on all ranks alike. */
static tutti_status_t judge(training_t *t, double norm, bool *skips)
{
    const int policy = t->session->settings.on_nan;
    *skips = false;
    if (isfinite(t->now.loss) && isfinite(norm)) {
        return TUTTI_OK;
    }
    if (policy == ON_NAN_STOP) {
        return tutti_fail(TUTTI_ERR_NUMERIC,
                          "step %lld: its loss is %g, the norm of its gradient %g, so training "
                          "stops; checkpoints of before stay, and nothing else is saved. A lower "
                          "--lr may help; TUTTI_DETECT_ANOMALY=1 names the operation that began "
                          "it, --on-nan skip goes on",
                          (long long)t->now.step, without_sign(t->now.loss), without_sign(norm));
    }
    *skips = policy == ON_NAN_SKIP;
    if (t->session->rank == 0 && (*skips || !t->has_warned)) {
        fprintf(stderr, "fashion: step %lld%s: its loss is %g, the norm of its gradient %g\n",
                (long long)t->now.step, *skips ? " is skipped" : "", without_sign(t->now.loss),
                without_sign(norm));
    }
    t->has_warned = true;
    return TUTTI_OK;
}

static double learning_rate(const training_t *t)
{
    const settings_t *settings = &t->session->settings;
    const tutti_schedule_t schedule = {.kind = TUTTI_SCHEDULE_WARMUP_COSINE,
                                       .lr = settings->lr,
                                       .warmup_steps = t->now.steps / 20,
                                       .total_steps = t->now.steps,
                                       .min_ratio = 0.01};
    const tutti_swa_schedule_t swa = {.before = schedule,
                                      .start = settings->swa,
                                      .anneal_steps = t->now.steps / 20,
                                      .lr = settings->swa_lr > 0 ? settings->swa_lr
                                                                 : settings->lr / 2};
    return settings->swa > 0 ? tutti_swa_lr(&swa, t->now.step)
                             : tutti_schedule_lr(&schedule, t->now.step);
}

static tutti_status_t train_step(training_t *t)
{
    double norm;
    bool skips;
    tutti_context_set_step(t->session->ctx, t->now.step);
    (void)tutti_tensor_fill(t->losses, 0);
    while (tutti_ddp_next_shard(t->ddp, t->session->ctx)) {
        TUTTI_CHECK(train_shard(t));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    t->now.lr = learning_rate(t);
    tutti_optim_set_lr(t->opt, t->now.lr);
    TUTTI_CHECK(share_loss(t));
    TUTTI_CHECK(tutti_clip_grad_norm(t->opt, INFINITY, 2, &norm));
    TUTTI_CHECK(judge(t, norm, &skips));
    if (skips) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(tutti_optim_step(t->opt));
    return t->average == NULL || t->now.step < t->session->settings.swa
               ? TUTTI_OK
               : tutti_averaged_update(t->average);
}

/* ---- averages ------------------------------------------------------------------------------- */

/* Forward of the first pictures, on every rank the same: batch norm's statistics are all ranks'. */
static tutti_status_t renew_statistics(training_t *t)
{
    enum { BATCHES = 200 };
    session_t *session = t->session;
    const tutti_dataloader_options_t options = {.batch = session->settings.batch};
    tutti_dataloader_t *loader;
    TUTTI_CHECK(tutti_dataloader_create(t->pictures, &options, &loader));
    tutti_status_t status = tutti_norm_statistics_begin(session->net);
    for (int64_t i = 0; i < BATCHES && i < tutti_dataloader_steps(loader) && status >= 0; i++) {
        tutti_scope_t *s;
        tutti_batch_t batch;
        status = tutti_scope_open(session->ctx, &s);
        if (status >= 0) {
            (void)tutti_dataloader_at(loader, s, (tutti_batch_place_t){.step = i}, &batch);
            (void)tutti_forward(s, session->net, batch.input);
            status = tutti_scope_close(s);
        }
    }
    tutti_dataloader_release(loader);
    return status < 0 ? status : tutti_norm_statistics_end(session->net);
}

/* The net has all weights; those of the average, if there is one. */
static tutti_status_t use_average(training_t *t)
{
    session_t *session = t->session;
    const bool is_there = tutti_averaged_count(t->average) > 0;
    TUTTI_CHECK(is_there ? tutti_averaged_swap_in(t->average) : TUTTI_OK);
    TUTTI_CHECK(tutti_ddp_unshard(t->ddp, NULL)); /* ranks have not all as many pictures */
    if (!is_there || session->settings.swa == 0) {
        return TUTTI_OK;
    }
    const bool was_enabled = tutti_context_set_grad_enabled(session->ctx, false);
    const int64_t shard = tutti_context_shard(session->ctx);
    tutti_context_set_shard(session->ctx, 0);
    const tutti_status_t status = renew_statistics(t);
    tutti_context_set_shard(session->ctx, shard);
    (void)tutti_context_set_grad_enabled(session->ctx, was_enabled);
    return status;
}

static tutti_status_t use_own(training_t *t)
{
    TUTTI_CHECK(tutti_ddp_reshard(t->ddp, NULL));
    return tutti_averaged_count(t->average) > 0 ? tutti_averaged_swap_out(t->average) : TUTTI_OK;
}

static void note_progress(training_t *t)
{
    progress_t *now = &t->now;
    now->step++;
    now->seconds = seconds_now() - t->begin;
    const double training = now->seconds - t->seconds_in_tests;
    now->samples_per_second = (double)t->samples / training;
    now->seconds_left =
        training / (double)(now->step - t->first_step) * (double)(now->steps - now->step);
    if (t->report != NULL) {
        report_step(t->report, now);
    }
}

/* A signal that any rank has got: all end behind the same step. */
static tutti_status_t share_signal(training_t *t)
{
    *(double *)tutti_tensor_data(t->word) = stopping_noted();
    TUTTI_CHECK(tutti_all_reduce(t->session->world, t->word, TUTTI_MAX, NULL));
    t->session->stop_signal = (int)tutti_tensor_item(t->word);
    return TUTTI_OK;
}

static tutti_status_t test(training_t *t)
{
    const double begin = seconds_now();
    TUTTI_CHECK(use_average(t));
    TUTTI_CHECK(fashion_test(t->session, t->test, &t->accuracy));
    TUTTI_CHECK(use_own(t));
    t->seconds_in_tests += seconds_now() - begin;
    if (t->report != NULL) {
        report_test(t->report, &t->now, t->accuracy);
    }
    return TUTTI_OK;
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static tutti_checkpoint_t checkpoint_of(const training_t *t)
{
    const session_t *session = t->session;
    return (tutti_checkpoint_t){.folder = session->settings.checkpoint,
                                .group = session->world,
                                .module = session->net,
                                .optim = t->opt,
                                .averaged = t->average,
                                .loader = t->loader,
                                .keep = (int)session->settings.keep,
                                .shards = tutti_ddp_shards(t->ddp),
                                .whole = session->settings.whole,
                                .per_host = session->settings.per_host,
                                .host_copies = (int)session->settings.copies};
}

static tutti_status_t save_checkpoint(const training_t *t)
{
    const int64_t every = t->session->settings.every;
    const tutti_checkpoint_t checkpoint = checkpoint_of(t);
    const bool is_last = t->now.step == t->now.steps || t->session->stop_signal != 0;
    return every > 0 && (t->now.step % every == 0 || is_last)
               ? tutti_checkpoint_save(&checkpoint, t->now.step)
               : TUTTI_OK;
}

/* Ranks that were started again go on, too. */
static tutti_status_t load_checkpoint(training_t *t)
{
    const session_t *session = t->session;
    const tutti_checkpoint_t checkpoint = checkpoint_of(t);
    if (checkpoint.folder == NULL) {
        return TUTTI_OK;
    }
    const bool resume = session->settings.resume || tutti_restart_count() > 0;
    TUTTI_CHECK(tutti_checkpoint_begin(&checkpoint, resume, &t->first_step));
    t->now.step = t->first_step;
    if (session->rank == 0) {
        printf("begins at step %lld\n", (long long)t->first_step);
        fflush(stdout);
    }
    return TUTTI_OK;
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* From where the loader stands: after a checkpoint, that is in the middle or at the end. */
static tutti_status_t train_epoch(training_t *t)
{
    const int64_t steps = tutti_dataloader_steps(t->loader);
    if (tutti_dataloader_epoch(t->loader) != t->now.epoch) {
        TUTTI_CHECK(tutti_dataloader_set_epoch(t->loader, t->now.epoch));
    }
    const int64_t end = (t->now.epoch + 1) * steps;
    while (t->now.step < end && t->now.step < t->now.steps && t->session->stop_signal == 0) {
        TUTTI_CHECK(train_step(t));
        TUTTI_CHECK(share_signal(t));
        note_progress(t);
        TUTTI_CHECK(save_checkpoint(t));
    }
    return t->session->stop_signal == 0 ? test(t) : TUTTI_OK;
}

static tutti_status_t train_all(training_t *t)
{
    const settings_t *settings = &t->session->settings;
    const int64_t steps = tutti_dataloader_steps(t->loader);
    t->now.steps = settings->steps > 0 ? settings->steps : settings->epochs * steps;
    t->now.epochs = (t->now.steps + steps - 1) / steps;
    t->now.epoch = t->first_step == 0 ? 0 : (t->first_step - 1) / steps;
    t->begin = seconds_now();
    TUTTI_CHECK(train_epoch(t)); /* where all is trained, it tests */
    while (t->now.step < t->now.steps && t->session->stop_signal == 0) {
        t->now.epoch++;
        TUTTI_CHECK(train_epoch(t));
    }
    return TUTTI_OK;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static tutti_status_t open_loader(training_t *t)
{
    const session_t *session = t->session;
    const tutti_dataloader_options_t options = {.batch = session->settings.batch,
                                                .shuffle = true,
                                                .seed = (uint64_t)session->settings.seed,
                                                .shards = tutti_ddp_shards(t->ddp),
                                                .ranks = session->ranks,
                                                .rank = session->rank,
                                                .shards_in_turn =
                                                    tutti_ddp_shard_stride(t->ddp) > 1};
    TUTTI_CHECK(fashion_open_data(session, false, &t->pictures));
    TUTTI_CHECK(fashion_open_data(session, true, &t->test));
    return tutti_dataloader_create(t->pictures, &options, &t->loader);
}

static tutti_status_t open_optimizer(training_t *t)
{
    tutti_context_t *ctx = t->session->ctx;
    return t->session->settings.optimizer == OPTIMIZER_ADAMW
               ? tutti_optim_create(ctx, &tutti_adamw, NULL, &t->opt)
               : tutti_optim_create(ctx, &tutti_sgd, &(tutti_sgd_options_t){.momentum = 0.9},
                                    &t->opt);
}

/* The statistics of --swa are made again, those of --ema averaged. */
static tutti_status_t open_average(training_t *t)
{
    const settings_t *settings = &t->session->settings;
    const tutti_averaged_options_t options = {.decay = settings->ema,
                                              .buffers = settings->swa == 0};
    return settings->ema == 0 && settings->swa == 0
               ? TUTTI_OK
               : tutti_averaged_create(t->session->ctx, t->session->net, &options, &t->average);
}

static tutti_status_t open_training(training_t *t)
{
    session_t *session = t->session;
    const tutti_ddp_options_t options = {
        .shards = (int)session->settings.shards,
        .stage = (int)session->settings.stage,
        .units = {.kind = session->settings.stage == 3 ? session->settings.unit : NULL},
        .reshard_ranks = (int)session->settings.reshard_ranks,
        .accumulate = (tutti_ddp_accumulate_t)session->settings.accumulation,
        .mesh = session->rows,
        .offload = session->settings.offload_parameters,
        .uneven = TUTTI_DDP_WEIGHTED};
    TUTTI_CHECK(tutti_ddp_create(session->ctx, session->net, session->world, &options, &t->ddp));
    TUTTI_CHECK(open_loader(t));
    TUTTI_CHECK(open_optimizer(t));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, session->net, NULL, NULL));
    if (session->settings.offload != NULL) {
        TUTTI_CHECK(tutti_optim_offload(t->opt, session->settings.offload));
    }
    TUTTI_CHECK(open_average(t));
    TUTTI_CHECK(tutti_group_tensor(session->world, TUTTI_F64, TUTTI_SHAPE(tutti_ddp_shards(t->ddp)),
                                   &t->losses));
    TUTTI_CHECK(tutti_group_tensor(session->world, TUTTI_F64, TUTTI_SHAPE(1), &t->word));
    TUTTI_CHECK(load_checkpoint(t));
    return session->rank == 0 ? report_open(session, t->first_step, &t->report) : TUTTI_OK;
}

/* First the weights: nothing that goes wrong behind them may cost the training. */
static tutti_status_t finish(training_t *t)
{
    const session_t *session = t->session;
    t->memory = tutti_ddp_memory(t->ddp, t->opt);
    TUTTI_CHECK(use_average(t)); /* it is the result; the module keeps what is whole */
    if (session->rank == 0 && session->settings.save != NULL) {
        TUTTI_CHECK(tutti_module_save(session->net, session->settings.save, NULL, 0));
    }
    if (t->report != NULL) { /* rank 0 */
        char digest[TUTTI_DIGEST_BYTES];
        TUTTI_CHECK(tutti_module_digest(session->net, digest));
        report_digest(t->report, t->now.step, digest);
    }
    report_t *report = t->report;
    t->report = NULL;
    TUTTI_CHECK(report_close(report));
    if (session->stop_signal != 0 && session->rank == 0) {
        fprintf(stderr, "fashion: stopped by %s behind step %lld%s\n",
                stopping_name(session->stop_signal), (long long)t->now.step,
                session->settings.every > 0 ? "; --resume goes on from there" : "");
    }
    return TUTTI_OK;
}

static void close_training(training_t *t)
{
    (void)report_close(t->report); /* still there after a failure only, which is reported */
    tutti_tensor_release(t->word);
    tutti_tensor_release(t->losses);
    tutti_averaged_release(t->average);
    tutti_optim_release(t->opt);
    tutti_dataloader_release(t->loader);
    tutti_dataset_release(t->test);
    tutti_dataset_release(t->pictures);
    tutti_ddp_release(t->ddp);
}

tutti_status_t fashion_train(session_t *session, result_t *result)
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
    *result = (result_t){.accuracy = t.accuracy,
                         .seconds = seconds_now() - t.begin,
                         .samples_per_second = t.now.samples_per_second,
                         .memory = t.memory};
    close_training(&t);
    return status >= 0 && session->stop_signal != 0 ? stopping_leave(session->world) : status;
}
