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
    report_t *report;       /* NULL: not on this rank */
    tutti_tensor_t *losses; /* [V] f64: of each shard, summed over its samples */
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

static tutti_status_t train_step(training_t *t)
{
    const tutti_schedule_t schedule = {.kind = TUTTI_SCHEDULE_WARMUP_COSINE,
                                       .lr = t->session->settings.lr,
                                       .warmup_steps = t->now.steps / 20,
                                       .total_steps = t->now.steps,
                                       .min_ratio = 0.01};
    double norm;
    bool skips;
    tutti_context_set_step(t->session->ctx, t->now.step);
    (void)tutti_tensor_fill(t->losses, 0);
    while (tutti_ddp_next_shard(t->ddp, t->session->ctx)) {
        TUTTI_CHECK(train_shard(t));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    t->now.lr = tutti_schedule_lr(&schedule, t->now.step);
    tutti_optim_set_lr(t->opt, t->now.lr);
    TUTTI_CHECK(share_loss(t));
    TUTTI_CHECK(tutti_clip_grad_norm(t->opt, INFINITY, 2, &norm));
    TUTTI_CHECK(judge(t, norm, &skips));
    return skips ? TUTTI_OK : tutti_optim_step(t->opt);
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

static tutti_status_t test(training_t *t)
{
    const double begin = seconds_now();
    TUTTI_CHECK(tutti_ddp_unshard(t->ddp, NULL)); /* ranks have not all as many pictures */
    TUTTI_CHECK(fashion_test(t->session, t->test, &t->accuracy));
    TUTTI_CHECK(tutti_ddp_reshard(t->ddp, NULL));
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
    return every > 0 && (t->now.step % every == 0 || t->now.step == t->now.steps)
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
    while (t->now.step < end && t->now.step < t->now.steps) {
        TUTTI_CHECK(train_step(t));
        note_progress(t);
        TUTTI_CHECK(save_checkpoint(t));
    }
    return test(t);
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
    while (t->now.step < t->now.steps) {
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
                                                .rank = session->rank};
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

static tutti_status_t open_training(training_t *t)
{
    session_t *session = t->session;
    const tutti_ddp_options_t options = {
        .shards = (int)session->settings.shards,
        .stage = (int)session->settings.stage,
        .units = {.kind = session->settings.stage == 3 ? session->settings.unit : NULL},
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
    TUTTI_CHECK(tutti_group_tensor(session->world, TUTTI_F64, TUTTI_SHAPE(tutti_ddp_shards(t->ddp)),
                                   &t->losses));
    TUTTI_CHECK(load_checkpoint(t));
    return session->rank == 0 ? report_open(session, t->first_step, &t->report) : TUTTI_OK;
}

/* First the weights: nothing that goes wrong behind them may cost the training. */
static tutti_status_t finish(training_t *t)
{
    const session_t *session = t->session;
    t->memory = tutti_ddp_memory(t->ddp, t->opt);
    TUTTI_CHECK(tutti_ddp_unshard(t->ddp, NULL)); /* the module keeps what is whole */
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
    return report_close(report);
}

static void close_training(training_t *t)
{
    (void)report_close(t->report); /* still there after a failure only, which is reported */
    tutti_tensor_release(t->losses);
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
        status = train_all(&t);
    }
    if (status >= 0) {
        status = finish(&t);
    }
    *result = (result_t){.accuracy = t.accuracy,
                         .seconds = seconds_now() - t.begin,
                         .samples_per_second = t.now.samples_per_second,
                         .memory = t.memory};
    close_training(&t);
    return status;
}
