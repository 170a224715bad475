/* For tests of pipelines on a mesh: a training on dp × tp × pp ranks, which ends with a digest and
 * the losses of all shards. */
#ifndef TT_PIPELINE_MESH_TESTING_H
#define TT_PIPELINE_MESH_TESTING_H

#include <math.h>

#include <tutti/averaged.h>
#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/own_optimizer.h>
#include <tutti/pipeline_run.h>
#include <tutti/tensor_parallel.h>

#include "comm/group/group_team.h"
#include "compute/nn/layers/layer_linear.h"
#include "compute/nn/module_impl.h"
#include "core/kernel/reduce/tree.h"
#include "core/tensor/device_testing.h"

enum {
    TT_MESH_STEPS = 3,
    TT_MESH_SHARDS_MAX = 4,
    TT_MESH_WIDTH = 16,
    TT_MESH_HEADS = 4,
    TT_MESH_VOCAB = 11,
    TT_MESH_CONTEXT = 8,
    TT_MESH_LAYERS = 4
};

/* What a training is; up to the blank line that must be the same where bits are compared. */
typedef struct {
    int shards, tp_shards, micro_batches; /* tp_shards 0: layers are not cut */
    bool is_tied;                         /* embedding and head are one table */
    bool clips, scales;                   /* the first step overflows */
    bool accumulates;                     /* two batches a shard */
    bool is_uneven;                       /* shards weigh, and one has nothing in the second step */
    tutti_dtype_t dtype;                  /* shards compute in it, all but norms; 0: f32 */
    const tutti_optim_ops_t *kind;        /* NULL: AdamW */
    double max_norm;                      /* of clips; 0: 0.5 */
    bool is_frozen;                       /* a weight in the middle is */
    bool is_spoiled; /* of scales: a gradient of the last block alone overflows,
                        in the second step */

    int dp, tp, pp; /* 0: 1 */
    const char *schedule;
    int stage; /* of ZeRO */
    tutti_ddp_accumulate_t accumulate;
    bool sequence, recompute;
    const char *const *cut;
    int cut_count;
    const char *device;                   /* NULL: this process's memory */
    bool at_once;                         /* all shards of a row in one schedule */
    bool validates;                       /* steps before all gradients are known */
    const tutti_pipeline_schedule_t *own; /* of at_once; schedule NULL */
} tt_mesh_training_t;

typedef struct {
    char digest[TUTTI_DIGEST_BYTES], collected[TUTTI_DIGEST_BYTES];
    double losses[TT_MESH_STEPS][TT_MESH_SHARDS_MAX], evaluated;
    char averages[TUTTI_DIGEST_BYTES]; /* of all steps' weights */
    double evaluated_by_averages;
} tt_mesh_trained_t;

typedef struct {
    const tt_mesh_training_t *training;
    tutti_context_t *ctx;
    tutti_mesh_t *mesh;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_averaged_t *average;
    tutti_scaler_t *scaler; /* NULL: none */
} tt_mesh_trainer_t;

static inline int tt_mesh_ranks(const tt_mesh_training_t *t)
{
    return (t->dp == 0 ? 1 : t->dp) * (t->tp == 0 ? 1 : t->tp) * (t->pp == 0 ? 1 : t->pp);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* The head has the embedding's table, as its weight. */
static inline void tt_mesh_tie(tutti_module_t *head, tutti_module_t *embedding)
{
    tutti_tensor_t *table = tutti_module_find(embedding, "weight");
    tutti_tensor_release(head->slots[0].tensor);
    head->slots[0].tensor = tutti_tensor_retain(table);
    ((tt_linear_layer_t *)tutti_module_state(head))->weight = table;
}

static inline tutti_status_t tt_mesh_make_tied(tutti_context_t *ctx, tutti_module_t **out)
{
    tutti_module_t *embedding, *head;
    const tutti_embedding_options_t table = {.count = TT_MESH_VOCAB, .width = TT_MESH_WIDTH};
    const tutti_transformer_block_options_t block = {
        .width = TT_MESH_WIDTH, .heads = TT_MESH_HEADS, .causal = true, .dropout = 0.1F};
    const tutti_linear_options_t linear = {
        .in = TT_MESH_WIDTH, .out = TT_MESH_VOCAB, .no_bias = true};
    TT_TRY(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    TT_TRY(tutti_sequential_add(*out, &tutti_embedding_layer, &table, &embedding));
    for (int i = 0; i < 3; i++) {
        TT_TRY(tutti_sequential_add(*out, &tutti_transformer_block_layer, &block, NULL));
    }
    TT_TRY(tutti_sequential_add(*out, &tutti_linear_layer, &linear, &head));
    tt_mesh_tie(head, embedding);
    return TUTTI_OK;
}

static inline tutti_status_t tt_mesh_make(tutti_context_t *ctx, const tt_mesh_training_t *training,
                                          tutti_module_t **out)
{
    const tutti_gpt_options_t o = {.layers = TT_MESH_LAYERS,
                                   .width = TT_MESH_WIDTH,
                                   .heads = TT_MESH_HEADS,
                                   .context = TT_MESH_CONTEXT,
                                   .vocab = TT_MESH_VOCAB,
                                   .dropout = 0.1F};
    return training->is_tied ? tt_mesh_make_tied(ctx, out)
                             : tutti_module_create(ctx, &tutti_gpt_layer, &o, out);
}

static inline tutti_tensor_t *tt_mesh_spoil(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)user;
    return tutti_context_step(tutti_scope_context(s)) == 1 ? tutti_mul_scalar(s, grad, INFINITY)
                                                           : NULL;
}

/* Some gradients are none, or no numbers. */
static inline tutti_status_t tt_mesh_mark(const tt_mesh_trainer_t *t)
{
    const tt_mesh_training_t *training = t->training;
    const char *frozen = training->is_tied ? "2.up.weight" : "blocks.1.up.weight",
               *spoiled = training->is_tied ? "3.up.weight" : "blocks.3.up.weight";
    TT_TRY(training->is_frozen
               ? tutti_tensor_set_requires_grad(tutti_module_find(t->net, frozen), false)
               : TUTTI_OK);
    return training->is_spoiled
               ? tutti_tensor_on_grad(tutti_module_find(t->net, spoiled), tt_mesh_spoil, NULL)
               : TUTTI_OK;
}

static inline tutti_status_t tt_mesh_cut(tt_mesh_trainer_t *t)
{
    static const tutti_parallel_rule_t rules[] = {
        {.pattern = "0", .style = TUTTI_PARALLEL_VOCABULARY},
        {.pattern = "?.ln?", .style = TUTTI_PARALLEL_SEQUENCE},
        {.pattern = "?.qkv", .style = TUTTI_PARALLEL_COLUMN},
        {.pattern = "?.proj", .style = TUTTI_PARALLEL_ROW},
        {.pattern = "?.up", .style = TUTTI_PARALLEL_COLUMN},
        {.pattern = "?.down", .style = TUTTI_PARALLEL_ROW},
        {.pattern = "4", .style = TUTTI_PARALLEL_COLUMN}};
    tutti_parallel_options_t o = {.shards = t->training->tp_shards,
                                  .sequence = t->training->sequence};
    if (t->training->is_tied) {
        o.rules = rules;
        o.rule_count = sizeof rules / sizeof *rules;
    }
    return t->training->tp_shards == 0
               ? TUTTI_OK
               : tutti_parallelize(t->net, tutti_mesh_group(t->mesh, "tp"), &o);
}

static inline tutti_tensor_t *tt_mesh_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                           int output_count, tutti_tensor_t *const *targets,
                                           int target_count, void *user)
{
    (void)output_count, (void)target_count;
    const tt_mesh_trainer_t *t = user;
    const tutti_parallel_loss_options_t o = {.group = tutti_mesh_group(t->mesh, "tp"),
                                             .shards = t->training->tp_shards,
                                             .classes = TT_MESH_VOCAB};
    tutti_tensor_t *loss = t->training->tp_shards == 0
                               ? tutti_cross_entropy(s, outputs[0], targets[0])
                               : tutti_parallel_cross_entropy(s, outputs[0], targets[0], &o);
    return t->scaler == NULL ? loss
                             : tutti_scaler_scale(t->scaler, s, tutti_mul_scalar(s, loss, 256));
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* How many are this row's; options.accumulate deals them out. */
static inline int tt_mesh_share(const tt_mesh_trainer_t *t)
{
    const int shards = t->training->shards, rows = tutti_mesh_size(t->mesh, "dp"),
              row = tutti_mesh_coordinate(t->mesh, "dp");
    const tt_leaves_t share = tt_tree_share(shards, rows, row);
    return t->training->accumulate == TUTTI_DDP_SHARDED ? (shards - row + rows - 1) / rows
                                                        : share.end - share.begin;
}

/* In a plan: a row without shards has one. */
static inline int tt_mesh_planned(const tt_mesh_trainer_t *t)
{
    const int share = tt_mesh_share(t);
    return t->training->at_once && share > 0 ? share : 1;
}

/* ---- training -------------------------------------------------------------------------------- */

static inline tutti_status_t tt_mesh_open_ranks(tt_mesh_trainer_t *t, tutti_group_t *world)
{
    const tt_mesh_training_t *training = t->training;
    const char *const names[] = {"dp", "tp", "pp"};
    int shape[] = {training->dp, training->tp, training->pp};
    for (int i = 0; i < 3; i++) {
        shape[i] = shape[i] == 0 ? 1 : shape[i];
    }
    TT_TRY(tt_test_context_on(training->device, &(tutti_context_options_t){.threads = 1, .seed = 5},
                              &t->ctx));
    return tutti_mesh_create(world, 3, shape, names, &t->mesh);
}

static inline tutti_status_t tt_mesh_open_pipeline(tt_mesh_trainer_t *t)
{
    const tt_mesh_training_t *training = t->training;
    const tutti_pipeline_run_options_t run = {.plan = {.schedule = training->schedule,
                                                       .own = training->own,
                                                       .micro_batches = training->micro_batches,
                                                       .shards = tt_mesh_planned(t)},
                                              .cut = training->cut,
                                              .cut_count = training->cut_count,
                                              .recompute = training->recompute,
                                              .loss = tt_mesh_loss,
                                              .loss_user = t};
    const tutti_ddp_options_t average = {
        .shards = training->shards,
        .uneven = training->is_uneven ? TUTTI_DDP_WEIGHTED : TUTTI_DDP_EVEN,
        .stage = training->stage,
        .whole_slices = training->kind != NULL && training->kind->wants_whole,
        .accumulate = training->accumulate,
        .param_dtype = training->dtype,
        .bucket_bytes = 4096,
        .first_bucket_bytes = 1024,
        .units = {.kind = training->stage == 3 ? "block" : NULL}};
    TT_TRY(
        tutti_pipeline_create(t->ctx, t->net, tutti_mesh_group(t->mesh, "pp"), &run, &t->pipeline));
    TT_TRY(tutti_ddp_create(t->ctx, t->net, tutti_mesh_group(t->mesh, "dp"), &average, &t->ddp));
    return tutti_pipeline_set_ddp(t->pipeline, t->ddp);
}

static inline tutti_status_t tt_mesh_open_average(tt_mesh_trainer_t *t)
{
    return tutti_averaged_create(t->ctx, t->net, &(tutti_averaged_options_t){.decay = 0.75},
                                 &t->average);
}

static inline double tt_mesh_max_norm(const tt_mesh_training_t *training)
{
    return !training->clips ? INFINITY : training->max_norm == 0 ? 0.5 : training->max_norm;
}

static inline tutti_status_t tt_mesh_post_validate(tt_mesh_trainer_t *t)
{
    const tutti_pipeline_validation_t o = {.max_norm = tt_mesh_max_norm(t->training),
                                           .scaler = t->scaler};
    return tutti_pipeline_post_validate(t->pipeline, t->opt, &o);
}

static inline tutti_status_t tt_mesh_open(tt_mesh_trainer_t *t, const tt_mesh_training_t *training,
                                          tutti_group_t *world)
{
    const tutti_adamw_options_t adamw = {.lr = 1e-2};
    *t = (tt_mesh_trainer_t){.training = training};
    TT_TRY(tt_mesh_open_ranks(t, world));
    TT_TRY(tt_mesh_make(t->ctx, training, &t->net));
    TT_TRY(tt_mesh_mark(t));
    TT_TRY(tt_mesh_cut(t));
    TT_TRY(tt_mesh_open_pipeline(t));
    const tutti_scaler_options_t scaling = {.group = world,
                                            .init_scale = training->is_spoiled ? 0x1p16 : 0x1p126,
                                            .backoff_factor = 0x1p-20};
    TT_TRY(training->scales ? tutti_scaler_create(&scaling, &t->scaler) : TUTTI_OK);
    TT_TRY(tutti_optim_create(t->ctx, training->kind != NULL ? training->kind : &tutti_adamw,
                              training->kind != NULL ? NULL : &adamw, &t->opt));
    TT_TRY(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    TT_TRY(training->validates ? tt_mesh_post_validate(t) : TUTTI_OK);
    return tt_mesh_open_average(t);
}

static inline void tt_mesh_close(tt_mesh_trainer_t *t)
{
    tutti_averaged_release(t->average);
    tutti_scaler_release(t->scaler);
    tutti_optim_release(t->opt);
    tutti_ddp_release(t->ddp);
    tutti_pipeline_release(t->pipeline);
    tutti_module_release(t->net);
    tutti_mesh_release(t->mesh);
    tutti_context_release(t->ctx);
}

/* Of the context's step and shard, the same on all ranks. */
static inline void tt_mesh_draw(const tt_mesh_trainer_t *t, tutti_scope_t *s, tutti_tensor_t **x,
                                tutti_tensor_t **y)
{
    const int64_t rows = 2 * t->training->micro_batches + 1;
    const tutti_shape_t shape = TUTTI_SHAPE(rows, TT_MESH_CONTEXT);
    *x = tutti_randint(s, TUTTI_I64, shape, 0, TT_MESH_VOCAB);
    *y = tutti_randint(s, TUTTI_I64, shape, 0, TT_MESH_VOCAB);
}

static inline tutti_status_t tt_mesh_run(tt_mesh_trainer_t *t, bool trains, double *loss)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tt_mesh_draw(t, s, &x, &y);
    const tutti_status_t status = (trains ? tutti_pipeline_step : tutti_pipeline_evaluate)(
        t->pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, loss);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static inline bool tt_mesh_is_empty(const tt_mesh_trainer_t *t, int step, int64_t shard)
{
    return t->training->is_uneven && step == 1 && shard == 1;
}

static inline tutti_status_t tt_mesh_run_shard(tt_mesh_trainer_t *t, int step, double *loss)
{
    const int64_t shard = tutti_context_shard(t->ctx);
    const bool is_empty = tt_mesh_is_empty(t, step, shard);
    TT_TRY(t->training->is_uneven ? tutti_ddp_set_weight(t->ddp, is_empty ? 0 : shard + 1)
                                  : TUTTI_OK);
    if (t->training->accumulates && !is_empty) {
        tutti_ddp_no_sync(t->ddp, true);
        TT_TRY(tt_mesh_run(t, true, loss));
        tutti_ddp_no_sync(t->ddp, false);
    }
    return is_empty ? TUTTI_OK : tt_mesh_run(t, true, loss);
}

/* The row's shards in one schedule. */
static inline tutti_status_t tt_mesh_run_shards(tt_mesh_trainer_t *t, int step, double *losses)
{
    tutti_scope_t *s;
    int first, count;
    const int stride = tutti_ddp_shard_stride(t->ddp);
    tutti_tensor_t *x[TT_MESH_SHARDS_MAX], *y[TT_MESH_SHARDS_MAX];
    tutti_pipeline_shard_t shards[TT_MESH_SHARDS_MAX];
    double own[TT_MESH_SHARDS_MAX] = {0};
    const int64_t outside = tutti_context_shard(t->ctx);
    tutti_ddp_local_shards(t->ddp, &first, &count);
    TT_TRY(tutti_scope_open(t->ctx, &s));
    for (int i = 0; i < count; i++) {
        const int shard = first + i * stride;
        tutti_context_set_shard(t->ctx, shard);
        tt_mesh_draw(t, s, &x[i], &y[i]);
        shards[i] = (tutti_pipeline_shard_t){.batch = {&x[i], 1, &y[i], 1},
                                             .weight = t->training->is_uneven ? shard + 1 : 0,
                                             .is_empty = tt_mesh_is_empty(t, step, shard)};
    }
    tutti_context_set_shard(t->ctx, outside);
    const tutti_status_t status =
        tutti_pipeline_step_shards(t->pipeline, shards, count, t->training->validates ? NULL : own);
    for (int i = 0; i < count; i++) {
        losses[first + i * stride] = own[i];
    }
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static inline tutti_status_t tt_mesh_step_optim(tt_mesh_trainer_t *t)
{
    TT_TRY(t->scaler != NULL ? tutti_scaler_unscale(t->scaler, t->opt) : TUTTI_OK);
    TT_TRY(t->training->clips ? tutti_clip_grad_norm(t->opt, tt_mesh_max_norm(t->training), 2, NULL)
                              : TUTTI_OK);
    if (t->scaler == NULL) {
        return tutti_optim_step(t->opt);
    }
    TT_TRY(tutti_scaler_step(t->scaler, t->opt, NULL));
    return tutti_scaler_update(t->scaler);
}

/* Averages of all shards' gradients. */
static inline tutti_status_t tt_mesh_average(tt_mesh_trainer_t *t, int step, double *losses)
{
    tutti_context_set_step(t->ctx, step);
    TT_TRY(t->training->at_once ? tt_mesh_run_shards(t, step, losses) : TUTTI_OK);
    while (!t->training->at_once && tutti_ddp_next_shard(t->ddp, t->ctx)) {
        double *loss = &losses[tutti_context_shard(t->ctx)];
        TT_TRY(tt_mesh_run_shard(t, step, t->training->validates ? NULL : loss));
    }
    return tutti_ddp_finish(t->ddp);
}

static inline tutti_status_t tt_mesh_step(tt_mesh_trainer_t *t, int step, double *losses)
{
    TT_TRY(tt_mesh_average(t, step, losses));
    TT_TRY(tt_mesh_step_optim(t));
    return tutti_averaged_update(t->average);
}

/* The losses of all shards, on every rank. */
static inline tutti_status_t tt_mesh_gather(tt_mesh_trainer_t *t, tt_mesh_trained_t *out)
{
    tutti_tensor_t *x;
    TT_TRY(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(TT_MESH_STEPS * TT_MESH_SHARDS_MAX), &x));
    memcpy(tutti_tensor_data(x), out->losses, sizeof out->losses);
    const tutti_status_t status =
        tutti_all_reduce(tutti_mesh_group(t->mesh, "dp"), x, TUTTI_SUM, NULL);
    memcpy(out->losses, tutti_tensor_data(x), sizeof out->losses);
    tutti_tensor_release(x);
    return status;
}

static inline tutti_status_t tt_mesh_take(void *module, const char *name, tutti_tensor_t *x)
{
    return tutti_tensor_copy(tutti_module_find(module, name), x);
}

/* The digest of a module that is not cut, filled on the last rank of each row; else "". */
static inline tutti_status_t tt_mesh_collect(tt_mesh_trainer_t *t, char digest[TUTTI_DIGEST_BYTES])
{
    tutti_module_t *all;
    tutti_group_t *row = tutti_mesh_group(t->mesh, "pp");
    const int last = tutti_group_size(row) - 1;
    TT_TRY(tt_mesh_make(t->ctx, t->training, &all));
    tutti_status_t status = tutti_pipeline_collect(t->pipeline, last, tt_mesh_take, all);
    if (status >= 0 && tutti_group_rank(row) == last) {
        status = tutti_module_digest(all, digest);
    }
    tutti_module_release(all);
    return status;
}

static inline tutti_status_t tt_mesh_look_at_averages(tt_mesh_trainer_t *t, tt_mesh_trained_t *out)
{
    TT_TRY(tutti_averaged_swap_in(t->average));
    TT_TRY(tutti_pipeline_digest(t->pipeline, out->averages));
    TT_TRY(tt_mesh_run(t, false, &out->evaluated_by_averages));
    return tutti_averaged_swap_out(t->average);
}

static inline tutti_status_t tt_mesh_train_on(tt_mesh_trainer_t *t, tt_mesh_trained_t *out)
{
    for (int i = 0; i < TT_MESH_STEPS; i++) {
        TT_TRY(tt_mesh_step(t, i, out->losses[i]));
    }
    tutti_context_set_step(t->ctx, 77);
    TT_TRY(tt_mesh_look_at_averages(t, out));
    TT_TRY(tt_mesh_run(t, false, &out->evaluated));
    TT_TRY(tt_mesh_gather(t, out));
    TT_TRY(tutti_pipeline_digest(t->pipeline, out->digest));
    return tt_mesh_collect(t, out->collected);
}

static inline tutti_status_t tt_mesh_train(const tt_mesh_training_t *training, tutti_group_t *world,
                                           tt_mesh_trained_t *out)
{
    tt_mesh_trainer_t t;
    *out = (tt_mesh_trained_t){0};
    tutti_status_t status = tt_mesh_open(&t, training, world);
    status = status < 0 ? status : tt_mesh_train_on(&t, out);
    tt_mesh_close(&t);
    return status;
}

#endif
