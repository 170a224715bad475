/* For tests of schedules that step inside a batch: what they should give, by a plain loop in one
 * process that has the whole module, a list of copies of its weights, and the definition:
 *
 *     update t of stage s (from 1) of p uses gradients taken at weights of version
 *         t - p + s        pipedream
 *         t - p + 1        pipedream with vertical sync
 *         t - 1            2bw
 *     and no version below 0
 *
 * Nothing here calls the pipeline, its schedules or its plans. */
#ifndef TT_PIPELINE_VERSIONS_TESTING_H
#define TT_PIPELINE_VERSIONS_TESTING_H

#include "parallel/pipeline/pipeline_testing.h"

enum { TT_UPDATES_MAX = 16, TT_WEIGHTS_MAX = 64 };

typedef enum { TT_STASHING, TT_VERTICAL_SYNC, TT_2BW } tt_delay_t;

/* A training with updates inside a batch. */
typedef struct {
    const char *model; /* "mlp", "norm", "skip" */
    const char *optimizer;
    tt_delay_t delay;
    int ranks, micro_batches;
    int per_update; /* micro-batches of an update; 0: 1, of 2bw: the ranks */
    int64_t rows;   /* of a batch */
    bool sums, recompute, on_devices, is_bf16;
    const tutti_pipeline_schedule_t *own; /* instead of the schedule's name */
} tt_async_t;

static inline int tt_per_update(const tt_async_t *a)
{
    return a->per_update > 0 ? a->per_update : a->delay == TT_2BW ? a->ranks : 1;
}

/* Which version update t of a stage (from 1) takes its gradients at. */
static inline int tt_version_of(const tt_async_t *a, int update, int stage)
{
    const int version = a->delay == TT_STASHING        ? update - a->ranks + stage
                        : a->delay == TT_VERTICAL_SYNC ? update - a->ranks + 1
                                                       : update - 1;
    return version > 0 ? version : 0;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Names of the parts with which the stages behind the first begin. */
static inline const char *const *tt_cut_of(const tt_async_t *a)
{
    static const char *const mlp[][3] = {{"4"}, {"2", "6"}, {"2", "4", "6"}};
    static const char *const norm[][3] = {{"6"}, {"3", "9"}, {"3", "6", "9"}};
    static const char *const skip[][3] = {{"c"}, {"b", "d"}, {"b", "c", "d"}};
    const int i = a->ranks - 2;
    return i < 0                           ? NULL
           : strcmp(a->model, "mlp") == 0  ? mlp[i]
           : strcmp(a->model, "norm") == 0 ? norm[i]
                                           : skip[i];
}

static inline int tt_place_of_part(const char *name)
{
    return name[0] >= 'a' ? name[0] - 'a' : (int)strtol(name, NULL, 10);
}

/* From 1. */
static inline int tt_stage_of(const tt_async_t *a, const char *name)
{
    int stage = 1;
    for (int i = 0; i < a->ranks - 1; i++) {
        stage += tt_place_of_part(name) >= tt_place_of_part(tt_cut_of(a)[i]);
    }
    return stage;
}

static inline tt_training_t tt_training_of(const tt_async_t *a)
{
    return (tt_training_t){.model = a->model, .micro_batches = a->micro_batches, .rows = a->rows};
}

static inline tutti_status_t tt_make_async_model(tutti_context_t *ctx, const tt_async_t *a,
                                                 tutti_module_t **net)
{
    TT_TRY(tt_make_model(ctx, a->model, net));
    return a->is_bf16 ? tutti_module_cast(*net, TUTTI_BF16) : TUTTI_OK;
}

static inline tutti_status_t tt_make_optimizer(tutti_context_t *ctx, const tt_async_t *a,
                                               tutti_module_t *net, tutti_optim_t **opt)
{
    const tutti_sgd_options_t sgd = {.lr = 0.05, .momentum = 0.9};
    const tutti_adamw_options_t adamw = {.lr = 1e-2};
    const tutti_lamb_options_t lamb = {.lr = 1e-2};
    const bool is_sgd = strcmp(a->optimizer, "sgd") == 0,
               is_lamb = strcmp(a->optimizer, "lamb") == 0;
    TT_TRY(is_sgd    ? tutti_optim_create(ctx, &tutti_sgd, &sgd, opt)
           : is_lamb ? tutti_optim_create(ctx, &tutti_lamb, &lamb, opt)
                     : tutti_optim_create(ctx, &tutti_adamw, &adamw, opt));
    return tutti_optim_add_module(*opt, net, NULL, NULL);
}

/* ---- the plain loop -------------------------------------------------------------------------- */

typedef struct {
    const tt_async_t *async;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    int count;
    tutti_tensor_t *weights[TT_WEIGHTS_MAX];
    int stages[TT_WEIGHTS_MAX];
    tutti_tensor_t *history[TT_UPDATES_MAX + 1][TT_WEIGHTS_MAX]; /* in the batch's scope */
} tt_emulation_t;

static inline tutti_status_t tt_note_weight(void *user, const char *name, tutti_tensor_t *x)
{
    tt_emulation_t *e = user;
    assert_true(e->count < TT_WEIGHTS_MAX);
    e->stages[e->count] = tt_stage_of(e->async, name);
    e->weights[e->count++] = x;
    return TUTTI_OK;
}

static inline void tt_remember(tt_emulation_t *e, tutti_scope_t *s, int version)
{
    for (int i = 0; i < e->count; i++) {
        e->history[version][i] = tutti_clone(s, tutti_detach(s, e->weights[i]));
    }
}

static inline void tt_recall(tt_emulation_t *e, int update)
{
    for (int i = 0; i < e->count; i++) {
        const int version = tt_version_of(e->async, update, e->stages[i]);
        assert_int_equal(tutti_tensor_copy(e->weights[i], e->history[version][i]), 0);
    }
}

static inline int64_t tt_rows_of(const tt_async_t *a, int micro_batch)
{
    return a->rows / a->micro_batches + (micro_batch < a->rows % a->micro_batches);
}

/* Forward of rows from `first` on; the loss. */
static inline tutti_tensor_t *tt_forward_rows(const tt_emulation_t *e, tutti_scope_t *s,
                                              tutti_tensor_t *const batch[2], int64_t first,
                                              int64_t rows)
{
    tutti_tensor_t *outputs[3], *x = tutti_narrow(s, batch[0], 0, first, rows),
                                *target = tutti_narrow(s, batch[1], 0, first, rows);
    const tt_training_t training = tt_training_of(e->async);
    if (strcmp(e->async->model, "skip") ==
        0) { /* it is its parts, and the last one's first output */
        int count = 1;
        outputs[0] = x;
        tutti_chain_link_t link;
        for (int i = 0; tt_skip_chain(e->net, i, &link); i++, count = 3) {
            tutti_tensor_t *next[3];
            tutti_forward_many(s, link.module, outputs, count, next, 3);
            memcpy(outputs, next, sizeof next);
        }
    } else {
        outputs[0] = tutti_forward(s, e->net, x);
    }
    return tt_pipeline_loss(s, outputs, 1, &target, 1, (void *)(uintptr_t)&training);
}

static inline double tt_share(const tt_async_t *a, int64_t rows, int64_t total)
{
    return a->sums ? 1 : (double)rows / (double)total;
}

/* Gradients of micro-batches [begin, begin + count); returns their share of the batch's loss. */
static inline void tt_emulate_update(tt_emulation_t *e, tutti_scope_t *s,
                                     tutti_tensor_t *const batch[2], int begin, double *loss)
{
    const tt_async_t *a = e->async;
    const int count = tt_per_update(a);
    int64_t first = 0, total = 0;
    for (int b = 0; b < begin + count; b++) {
        first += b < begin ? tt_rows_of(a, b) : 0;
        total += b < begin ? 0 : tt_rows_of(a, b);
    }
    for (int b = begin; b < begin + count; b++) {
        const int64_t rows = tt_rows_of(a, b);
        tutti_tensor_t *mean = tt_forward_rows(e, s, batch, first, rows);
        const tutti_backward_options_t options = {
            .grad_output =
                tutti_full(s, tutti_tensor_dtype(mean), TUTTI_SCALAR, tt_share(a, rows, total))};
        assert_int_equal(tutti_backward_with(s, mean, &options), 0);
        *loss += tt_share(a, rows, a->rows) * tutti_tensor_item(mean);
        first += rows;
    }
}

static inline void tt_emulate_batch(tt_emulation_t *e, int step, double *loss)
{
    tutti_scope_t *s;
    tutti_tensor_t *batch[2];
    const tt_async_t *a = e->async;
    const tt_training_t training = tt_training_of(a);
    assert_int_equal(tutti_scope_open(e->ctx, &s), 0);
    tt_make_batch(s, &training, step, &batch[0], &batch[1]);
    batch[0] = a->is_bf16 ? tutti_cast(s, batch[0], TUTTI_BF16) : batch[0];
    *loss = 0;
    tt_remember(e, s, 0);
    const int updates = a->micro_batches / tt_per_update(a);
    assert_true(updates <= TT_UPDATES_MAX && updates * tt_per_update(a) == a->micro_batches);
    for (int t = 0; t < updates; t++) {
        tt_recall(e, t);
        tt_emulate_update(e, s, batch, t * tt_per_update(a), loss);
        for (int i = 0; i < e->count; i++) { /* the newest are what is changed */
            assert_int_equal(tutti_tensor_copy(e->weights[i], e->history[t][i]), 0);
        }
        assert_int_equal(tutti_optim_step(e->opt), 0);
        tutti_optim_zero_grad(e->opt);
        tt_remember(e, s, t + 1);
    }
    assert_int_equal(tutti_scope_close(s), 0);
}

static inline double tt_emulate_evaluation(tt_emulation_t *e)
{
    tutti_scope_t *s;
    tutti_tensor_t *batch[2];
    double loss = 0;
    const tt_async_t *a = e->async;
    const tt_training_t training = tt_training_of(a);
    assert_int_equal(tutti_scope_open(e->ctx, &s), 0);
    tutti_context_set_training(e->ctx, false);
    tt_make_batch(s, &training, 77, &batch[0], &batch[1]);
    batch[0] = a->is_bf16 ? tutti_cast(s, batch[0], TUTTI_BF16) : batch[0];
    int64_t first = 0;
    for (int b = 0; b < a->micro_batches; b++) {
        const int64_t rows = tt_rows_of(a, b);
        loss += tt_share(a, rows, a->rows) *
                tutti_tensor_item(tt_forward_rows(e, s, batch, first, rows));
        first += rows;
    }
    tutti_context_set_training(e->ctx, true);
    assert_int_equal(tutti_scope_close(s), 0);
    return loss;
}

/* TT_PIPELINE_STEPS batches. */
static inline void tt_emulate(const tt_async_t *async, tt_trained_t *out)
{
    tt_emulation_t e = {.async = async};
    const tutti_context_options_t options = {.threads = 1, .seed = 5};
    assert_int_equal(tutti_context_create(&options, &e.ctx), 0);
    assert_int_equal(tt_make_async_model(e.ctx, async, &e.net), 0);
    assert_int_equal(tt_make_optimizer(e.ctx, async, e.net, &e.opt), 0);
    assert_int_equal(tutti_module_each_parameter(e.net, tt_note_weight, &e), 0);
    for (int i = 0; i < TT_PIPELINE_STEPS; i++) {
        tt_emulate_batch(&e, i, &out->losses[i]);
    }
    out->evaluated = tt_emulate_evaluation(&e);
    assert_int_equal(tutti_module_digest(e.net, out->digest), 0);
    tutti_optim_release(e.opt);
    tutti_module_release(e.net);
    tutti_context_release(e.ctx);
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static inline tutti_pipeline_run_options_t tt_async_options(const tt_async_t *a,
                                                            const tt_training_t *training)
{
    tutti_pipeline_run_options_t options = {.cut = tt_cut_of(a),
                                            .cut_count = a->ranks - 1,
                                            .loss = tt_pipeline_loss,
                                            .loss_user = (void *)(uintptr_t)training,
                                            .loss_is_sum = a->sums,
                                            .recompute = a->recompute};
    if (a->own != NULL) {
        options.plan.own = a->own;
        return options;
    }
    options.plan = (tutti_pipeline_options_t){.schedule = a->delay == TT_2BW ? "2bw" : "pipedream",
                                              .micro_batches = a->micro_batches,
                                              .accumulate = a->delay == TT_2BW ? a->per_update : 0,
                                              .vertical_sync = a->delay == TT_VERTICAL_SYNC};
    return options;
}

/* Contexts, module, pipeline and optimizer; closed by tt_trainer_close() whatever it returns. */
static inline tutti_status_t tt_async_open(tt_trainer_t *t, const tt_async_t *a,
                                           const tt_training_t *training, tutti_group_t *group)
{
    *t = (tt_trainer_t){0};
    tt_training_t place = *training;
    place.on_devices = a->on_devices;
    const tutti_pipeline_run_options_t options = tt_async_options(a, training);
    TT_TRY(tt_open_contexts(t, &place, group == NULL ? 0 : tutti_group_rank(group)));
    TT_TRY(tt_make_async_model(t->maker, a, &t->net));
    TT_TRY(tutti_pipeline_create(t->ctx, t->net, group, &options, &t->pipeline));
    TT_TRY(tt_make_optimizer(t->ctx, a, t->net, &t->opt));
    return tutti_pipeline_set_optimizer(t->pipeline, t->opt);
}

/* A batch, or its evaluation (step 77). */
static inline tutti_status_t tt_async_batch(tt_trainer_t *t, const tt_async_t *a, int step,
                                            double *loss)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    const tt_training_t training = tt_training_of(a);
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tt_make_batch(s, &training, step, &x, &y);
    x = a->is_bf16 ? tutti_cast(s, x, TUTTI_BF16) : x;
    const tutti_pipeline_batch_t batch = {&x, 1, &y, 1};
    const tutti_status_t status = step == 77 ? tutti_pipeline_evaluate(t->pipeline, &batch, loss)
                                             : tutti_pipeline_step(t->pipeline, &batch, loss);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static inline tutti_status_t tt_train_async(const tt_async_t *a, tutti_group_t *group,
                                            tt_trained_t *out)
{
    tt_trainer_t t;
    const tt_training_t training = tt_training_of(a);
    tutti_status_t status = tt_async_open(&t, a, &training, group);
    for (int i = 0; i < TT_PIPELINE_STEPS && status >= 0; i++) {
        status = tt_async_batch(&t, a, i, &out->losses[i]);
    }
    status = status < 0 ? status : tt_async_batch(&t, a, 77, &out->evaluated);
    status = status < 0 ? status : tutti_pipeline_digest(t.pipeline, out->digest);
    if (status >= 0) {
        out->stats = tutti_pipeline_stats(t.pipeline);
    }
    tt_trainer_close(&t);
    return status;
}

#endif
