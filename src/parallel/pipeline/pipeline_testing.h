/* For tests of pipelines: small models of many kinds, and a training of a few steps that ends with
 * a digest and the losses. */
#ifndef TT_PIPELINE_TESTING_H
#define TT_PIPELINE_TESTING_H

#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/pipeline_run.h>

#include "comm/group/group_team.h"
#include "core/tensor/device_testing.h"

enum { TT_PIPELINE_STEPS = 3, TT_PIPELINE_WIDTH = 8, TT_PIPELINE_CLASSES = 5 };

/* What a training is. */
typedef struct {
    const char *model;    /* "mlp", "dropout", "norm", "tied", "gpt", "skip", "short" */
    const char *schedule; /* NULL: 1f1b */
    int stages_per_rank, micro_batches;
    int64_t rows;                         /* of a batch; 0: 2 for each micro-batch, and one */
    const tutti_pipeline_schedule_t *own; /* instead of schedule */
    const char *const *cut;
    int cut_count;
    tutti_scaler_t *scaler; /* of losses; NULL: none */
    bool recompute, clips, accumulates, sums;
    bool on_meta;    /* made there */
    bool on_devices; /* each rank computes on one of its own */
} tt_training_t;

/* What comes of it. */
typedef struct {
    char digest[TUTTI_DIGEST_BYTES];
    double losses[TT_PIPELINE_STEPS], evaluated;
    tutti_pipeline_stats_t stats;
} tt_trained_t;

/* ---- a module of one's own: three tensors go from part to part ------------------------------- */

/* (x, y) -> (gelu(up x), y + x, x): x skips the linear. Nobody uses "idle", which so gets no
 * gradient, and must not be stepped. */
typedef struct {
    tutti_module_t *up;
} tt_skip_part_t;

static inline tutti_status_t tt_skip_part_init(tutti_module_t *m, const void *options)
{
    (void)options;
    tt_skip_part_t *state = tutti_module_state(m);
    const tutti_linear_options_t o = {.in = TT_PIPELINE_WIDTH, .out = TT_PIPELINE_WIDTH};
    TT_TRY(tutti_module_new_child(m, "idle", &tutti_linear_layer, &o, NULL));
    return tutti_module_new_child(m, "up", &tutti_linear_layer, &o, &state->up);
}

static inline void tt_skip_part_forward(tutti_scope_t *s, tutti_module_t *m,
                                        tutti_tensor_t *const *inputs, int input_count,
                                        tutti_tensor_t **outputs, int output_count)
{
    (void)output_count;
    const tt_skip_part_t *state = tutti_module_state(m);
    tutti_tensor_t *x = inputs[0], *y = input_count > 1 ? inputs[1] : x;
    outputs[0] = tutti_gelu(s, tutti_forward(s, state->up, x), TUTTI_GELU_ERF);
    outputs[1] = tutti_add(s, y, x);
    outputs[2] = input_count > 2 ? inputs[2] : x; /* as it came */
}

static const tutti_module_ops_t tt_skip_part = {.name = "skip_part",
                                                .state_bytes = sizeof(tt_skip_part_t),
                                                .init = tt_skip_part_init,
                                                .forward_many = tt_skip_part_forward};

enum { TT_SKIP_PARTS = 5 };

static inline tutti_status_t tt_skip_init(tutti_module_t *m, const void *options)
{
    (void)options;
    for (int i = 0; i < TT_SKIP_PARTS; i++) {
        const char name[2] = {(char)('a' + i), 0};
        TT_TRY(tutti_module_new_child(m, name, &tt_skip_part, NULL,
                                      (tutti_module_t **)tutti_module_state(m) + i));
    }
    return TUTTI_OK;
}

static inline bool tt_skip_chain(tutti_module_t *m, int place, tutti_chain_link_t *link)
{
    if (place >= TT_SKIP_PARTS) {
        return false;
    }
    tutti_module_t **parts = tutti_module_state(m);
    *link = (tutti_chain_link_t){.module = parts[place], .outputs = 3};
    return true;
}

/* Its outputs are those of the last part: three. */
static const tutti_module_ops_t tt_skip = {.name = "skip",
                                           .state_bytes = TT_SKIP_PARTS * sizeof(tutti_module_t *),
                                           .init = tt_skip_init,
                                           .chain = tt_skip_chain};

/* ---- models ---------------------------------------------------------------------------------- */

static inline tutti_status_t tt_add_linear(tutti_module_t *all, int64_t in, int64_t out)
{
    const tutti_linear_options_t o = {.in = in, .out = out};
    return tutti_sequential_add(all, &tutti_linear_layer, &o, NULL);
}

static inline tutti_status_t tt_fill_stack(tutti_module_t *all, const char *model)
{
    for (int i = 0; i < 4; i++) {
        TT_TRY(tt_add_linear(all, TT_PIPELINE_WIDTH, TT_PIPELINE_WIDTH));
        if (strcmp(model, "norm") == 0) {
            const tutti_batch_norm_layer_options_t o = {.width = TT_PIPELINE_WIDTH};
            TT_TRY(tutti_sequential_add(all, &tutti_batch_norm_layer, &o, NULL));
        }
        TT_TRY(tutti_sequential_add(all, &tutti_activation_layer, NULL, NULL));
        if (strcmp(model, "dropout") == 0) {
            const tutti_dropout_options_t o = {.p = 0.3F};
            TT_TRY(tutti_sequential_add(all, &tutti_dropout_layer, &o, NULL));
        }
    }
    return tt_add_linear(all, TT_PIPELINE_WIDTH, TT_PIPELINE_CLASSES);
}

/* One linear three times, the second time next to the first. */
static inline tutti_status_t tt_fill_tied(tutti_module_t *all)
{
    tutti_module_t *first;
    const tutti_linear_options_t o = {.in = TT_PIPELINE_WIDTH, .out = TT_PIPELINE_WIDTH};
    TT_TRY(tutti_sequential_add(all, &tutti_linear_layer, &o, &first));
    TT_TRY(tutti_module_add_child(all, "1", first));
    for (int i = 2; i < 7; i++) {
        char name[2] = {(char)('0' + i), 0};
        TT_TRY(i == 4       ? tutti_module_add_child(all, name, first)
               : i % 2 == 0 ? tutti_sequential_add(all, &tutti_activation_layer, NULL, NULL)
                            : tt_add_linear(all, TT_PIPELINE_WIDTH, TT_PIPELINE_WIDTH));
    }
    return tt_add_linear(all, TT_PIPELINE_WIDTH, TT_PIPELINE_CLASSES);
}

static inline tutti_status_t tt_make_model(tutti_context_t *ctx, const char *model,
                                           tutti_module_t **out)
{
    if (strcmp(model, "gpt") == 0) {
        const tutti_gpt_options_t o = {.layers = 4,
                                       .width = TT_PIPELINE_WIDTH,
                                       .heads = 2,
                                       .context = 6,
                                       .vocab = TT_PIPELINE_CLASSES,
                                       .dropout = 0.1F};
        return tutti_module_create(ctx, &tutti_gpt_layer, &o, out);
    }
    if (strcmp(model, "skip") == 0) {
        return tutti_module_create(ctx, &tt_skip, NULL, out);
    }
    TT_TRY(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    if (strcmp(model, "short") == 0) { /* two parts, the second without parameters */
        TT_TRY(tt_add_linear(*out, TT_PIPELINE_WIDTH, TT_PIPELINE_CLASSES));
        return tutti_sequential_add(*out, &tutti_activation_layer, NULL, NULL);
    }
    return strcmp(model, "tied") == 0 ? tt_fill_tied(*out) : tt_fill_stack(*out, model);
}

/* ---- batches --------------------------------------------------------------------------------- */

static inline tutti_tensor_t *tt_pipeline_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                               int output_count, tutti_tensor_t *const *targets,
                                               int target_count, void *user)
{
    (void)target_count;
    const tt_training_t *training = user;
    tutti_tensor_t *y = outputs[0], *loss;
    for (int i = 1; i < output_count; i++) {
        y = tutti_add(s, y, tutti_mul_scalar(s, outputs[i], 0.5));
    }
    if (strcmp(training->model, "gpt") == 0) {
        const int64_t rows = tutti_tensor_dim(y, 0) * tutti_tensor_dim(y, 1);
        loss = tutti_cross_entropy(s, tutti_reshape(s, y, TUTTI_SHAPE(rows, TT_PIPELINE_CLASSES)),
                                   tutti_reshape(s, targets[0], TUTTI_SHAPE(rows)));
    } else {
        loss = tutti_cross_entropy(s, y, targets[0]);
    }
    return training->scaler == NULL
               ? loss
               : tutti_scaler_scale(training->scaler, s, tutti_mul_scalar(s, loss, 256));
}

static inline int64_t tt_rows(const tt_training_t *training)
{
    return training->rows > 0 ? training->rows : 2 * training->micro_batches + 1;
}

/* Of step `step`; the same on all ranks. */
static inline void tt_make_batch(tutti_scope_t *s, const tt_training_t *training, int step,
                                 tutti_tensor_t **x, tutti_tensor_t **y)
{
    const int64_t rows = tt_rows(training);
    tutti_context_t *ctx = tutti_scope_context(s);
    tutti_context_set_step(ctx, 1000 + step); /* names the random numbers */
    if (strcmp(training->model, "gpt") == 0) {
        *x = tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(rows, 6), 0, TT_PIPELINE_CLASSES);
        *y = tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(rows, 6), 0, TT_PIPELINE_CLASSES);
    } else {
        *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(rows, TT_PIPELINE_WIDTH), 0, 1);
        *y = tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(rows), 0, TT_PIPELINE_CLASSES);
    }
    tutti_context_set_step(ctx, step);
}

/* ---- training -------------------------------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx, *maker; /* who computes, and who makes the module */
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    tutti_optim_t *opt;
} tt_trainer_t;

static inline tutti_status_t tt_open_contexts(tt_trainer_t *t, const tt_training_t *training,
                                              int rank)
{
    char device[24];
    snprintf(device, sizeof device, "strict:%d", rank);
    const tutti_context_options_t options = {.threads = 1, .seed = 5};
    TT_TRY(tt_test_context_on(training->on_devices ? device : NULL, &options, &t->ctx));
    if (training->on_meta) {
        return tt_test_context_on("meta", &options, &t->maker);
    }
    t->maker = tutti_context_retain(t->ctx);
    return TUTTI_OK;
}

static inline tutti_pipeline_run_options_t tt_run_options(const tt_training_t *training)
{
    return (tutti_pipeline_run_options_t){.plan = {.schedule = training->schedule,
                                                   .own = training->own,
                                                   .stages_per_rank = training->stages_per_rank,
                                                   .micro_batches = training->micro_batches},
                                          .cut = training->cut,
                                          .cut_count = training->cut_count,
                                          .recompute = training->recompute,
                                          .loss_is_sum = training->sums,
                                          .loss = tt_pipeline_loss,
                                          .loss_user = (void *)(uintptr_t)training};
}

static inline tutti_status_t tt_trainer_open(tt_trainer_t *t, const tt_training_t *training,
                                             tutti_group_t *group)
{
    *t = (tt_trainer_t){0};
    const tutti_pipeline_run_options_t run = tt_run_options(training);
    const tutti_adamw_options_t adamw = {.lr = 1e-2};
    TT_TRY(tt_open_contexts(t, training, group == NULL ? 0 : tutti_group_rank(group)));
    TT_TRY(tt_make_model(t->maker, training->model, &t->net));
    TT_TRY(tutti_pipeline_create(t->ctx, t->net, group, &run, &t->pipeline));
    TT_TRY(tutti_optim_create(t->ctx, &tutti_adamw, &adamw, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static inline void tt_trainer_close(tt_trainer_t *t)
{
    tutti_optim_release(t->opt);
    tutti_pipeline_release(t->pipeline);
    tutti_module_release(t->net);
    tutti_context_release(t->maker);
    tutti_context_release(t->ctx);
}

static inline tutti_status_t tt_train_on(tt_trainer_t *t, const tt_training_t *training,
                                         const tutti_pipeline_batch_t *batch, double *loss)
{
    for (int i = 0; i < (training->accumulates ? 2 : 1); i++) {
        TT_TRY(tutti_pipeline_step(t->pipeline, batch, loss));
    }
    TT_TRY(training->scaler != NULL ? tutti_scaler_unscale(training->scaler, t->opt) : TUTTI_OK);
    TT_TRY(training->clips ? tutti_clip_grad_norm(t->opt, 0.5, 2.0, NULL) : TUTTI_OK);
    TT_TRY(training->scaler != NULL ? tutti_scaler_step(training->scaler, t->opt, NULL)
                                    : tutti_optim_step(t->opt));
    tutti_optim_zero_grad(t->opt);
    return training->scaler != NULL ? tutti_scaler_update(training->scaler) : TUTTI_OK;
}

static inline tutti_status_t tt_train_step(tt_trainer_t *t, const tt_training_t *training, int step,
                                           double *loss)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tt_make_batch(s, training, step, &x, &y);
    const tutti_status_t status =
        tt_train_on(t, training, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, loss);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static inline tutti_status_t tt_evaluate(tt_trainer_t *t, const tt_training_t *training,
                                         double *loss)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tt_make_batch(s, training, 77, &x, &y);
    const tutti_status_t status =
        tutti_pipeline_evaluate(t->pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, loss);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* group NULL: one rank. */
static inline tutti_status_t tt_train(const tt_training_t *training, tutti_group_t *group,
                                      tt_trained_t *out)
{
    tt_trainer_t t;
    tutti_status_t status = tt_trainer_open(&t, training, group);
    for (int i = 0; i < TT_PIPELINE_STEPS && status >= 0; i++) {
        status = tt_train_step(&t, training, i, &out->losses[i]);
    }
    status = status < 0 ? status : tt_evaluate(&t, training, &out->evaluated);
    status = status < 0 ? status : tutti_pipeline_digest(t.pipeline, out->digest);
    if (status >= 0) {
        out->stats = tutti_pipeline_stats(t.pipeline);
    }
    tt_trainer_close(&t);
    return status;
}

#endif
