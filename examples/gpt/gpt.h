/* A byte-level GPT: train, evaluate, sample, measure. command_line.c reads the command line, and
 * then
 *
 *     train.c     the training loop
 *     layout.c    which ranks share what: --mesh, tensor parallelism; what does not go together
 *     stages.c    --mesh pp=P: stages of the model, each on a rank of its own
 *     bad_numbers.c   --on-nan
 *     automatic_cut.c  --cut auto: where they begin
 *     trainer.c   a step's forward and backward of all shards, by DDP or a pipeline
 *     parallel.c  how several ranks share a step: DDP, hooks, micro-batches, the timeline
 *     evaluate.c  mean loss over a text, in windows that do not overlap, spread over the ranks
 *     whole.c     all weights on rank 0, whoever has them
 *     sample.c    text from the model, byte by byte
 *     modules.c   --modules: what the model is made of
 *     measure.c   --bench: the time of a step on random tokens
 *     gpt_report.c  progress line, log, summary
 */
#ifndef TT_GPT_H
#define TT_GPT_H

#include <tutti/tutti.h>

#include "../common/common.h"

typedef struct {
    const char *data, *save, *load, *log, *reference, *summary, *hook, *bucket_mb, *trace, *unit;
    const char *checkpoint, *device, *metrics, *mesh, *pipeline, *cut, *offload;
    const char *offload_parameters;
    int64_t layers, width, heads, kv_heads, context, batch, shards, steps, threads, seed, sample;
    int64_t warmup, validate_every, every, keep, copies, accumulate, stage;
    int64_t micro_batches, stages_per_rank, tp_shards, reshard_ranks;
    int64_t device_mib, device_launch_ns, device_copy_mb; /* zeros: as the device has it */
    double seconds, lr, weight_decay, clip, dropout, ema;
    int dtype, schedule, on_nan, gelu, accumulation;
    bool tie_head, evaluate, digest, bench, modules, no_overlap, recompute, resume, whole;
    bool per_host, sequence_parallel, vertical_sync, post_validate;
} settings_t;

enum { DTYPE_F32, DTYPE_BF16 };
enum { GELU_ERF, GELU_TANH };
enum { ON_NAN_STOP, ON_NAN_SKIP, ON_NAN_WARN };
enum { SCHEDULE_COSINE, SCHEDULE_CONSTANT };
enum { VOCAB = 256 };

/* What every part works with. */
typedef struct {
    settings_t settings;
    tutti_group_t *world;
    tutti_mesh_t *mesh;                  /* of the world: "dp", "tp" and "pp" */
    tutti_mesh_t *rows;                  /* of `data`: "replicate" and "shard"; NULL: one row */
    tutti_group_t *data, *tensor, *pipe; /* its groups of this rank, borrowed */
    bool is_cut;                         /* the model is spread over `tensor` */
    tutti_context_t *ctx;
    tutti_module_t *model;
    int64_t params;         /* of the whole model */
    tutti_trace_t *trace;   /* NULL: none */
    tutti_device_t *device; /* NULL: the host */
    char command[1024];     /* as it was given */
    int rank, ranks;
    int stop_signal; /* that ended the training, on all ranks; 0: none */
    bool has_warned; /* of a loss that is no number */
} session_t;

/* Windows of T bytes of --data, from one share of the text to another. */
tutti_status_t gpt_open_text(const session_t *session, double from, double to, int64_t stride,
                             tutti_dataset_t **out);

tutti_status_t gpt_train(session_t *session);

/* --modules: the model's tree, with what a batch takes in each part; on meta, so that any size
 * will do. */
tutti_status_t gpt_print_modules(session_t *session);
tutti_status_t gpt_measure(session_t *session);

/* Mean nats per byte over at most `windows_max` windows (0: all), the same on every rank. pipeline
 * NULL: the model is none. */
tutti_status_t gpt_evaluate(session_t *session, tutti_pipeline_t *pipeline, tutti_dataset_t *text,
                            int64_t windows_max, double *loss);

/* `count` bytes that follow a line's end, printed by rank 0, whose model it is. */
tutti_status_t gpt_sample(session_t *session, tutti_module_t *whole, int64_t count);

/* A model as the settings have it, in a context. */
tutti_status_t gpt_new_model(const session_t *session, tutti_context_t *ctx, tutti_module_t **out);

/* The model with all weights on rank 0, and NULL on others (or what they have of it); all ranks
 * call it. */
tutti_status_t gpt_gather(session_t *session, tutti_pipeline_t *pipeline, tutti_ddp_t *ddp,
                          tutti_module_t **out);

/* Loss of a batch: tokens and targets [B, T] u8. */
tutti_tensor_t *gpt_loss(tutti_scope_t *s, session_t *session, tutti_tensor_t *tokens,
                         tutti_tensor_t *targets);

/* The same of the model's result. */
tutti_tensor_t *gpt_loss_of(tutti_scope_t *s, session_t *session, tutti_tensor_t *logits,
                            tutti_tensor_t *targets);

/* Tokens and targets [B, T] u8 of a micro-batch of the context's step and shard. */
typedef struct {
    void (*read)(void *user, tutti_scope_t *s, int64_t micro_batch, tutti_tensor_t **tokens,
                 tutti_tensor_t **targets);
    void *user;
} gpt_source_t;

/* Its state goes to the disk of --offload, if that is given. */
tutti_status_t gpt_offload(const session_t *session, tutti_optim_t *opt);
/* The ranks as --mesh has them; then the model cut, if it is to be. */
tutti_status_t gpt_open_mesh(session_t *session);
tutti_status_t gpt_cut_model(session_t *session);

tutti_status_t gpt_open_ddp(session_t *session, tutti_ddp_t **out);

/* Forward and backward of all micro-batches of a shard; the mean of their losses. */
tutti_status_t gpt_shard(session_t *session, tutti_ddp_t *ddp, const gpt_source_t *source,
                         double *loss);

/* ---- trainer.c ------------------------------------------------------------------------------ */

typedef struct {
    tutti_pipeline_t *pipeline;     /* NULL: the model is none */
    tutti_ddp_t *ddp;               /* NULL: there is one shard, and a pipeline steps itself */
    tutti_pipeline_shard_t *shards; /* of a pipeline's row, and what they have */
    struct row_batch *batches;
    double *row_losses;
} trainer_t;

/* Released also where opening has failed. */
tutti_status_t gpt_open_trainer(session_t *session, trainer_t *t);
void gpt_close_trainer(trainer_t *t);

/* Whether stages step, and not the caller: inside a batch, or before their step is validated. */
bool gpt_steps_itself(const settings_t *settings);

/* That steps then. */
tutti_status_t gpt_set_optimizer(const session_t *session, trainer_t *t, tutti_optim_t *opt);

/* Shards of a step, of all ranks. */
int gpt_shards_of(const trainer_t *t);

/* Forward and backward of all shards of this rank; gradients are averages. losses: [shards], of
 * which its own are written; with --post-validate none is, for the verdict tells it. */
tutti_status_t gpt_step_shards(session_t *session, trainer_t *t, const gpt_source_t *source,
                               double *losses);

/* With --post-validate, behind it: the same losses, and the norm of all gradients. */
tutti_status_t gpt_take_verdict(trainer_t *t, double *losses, double *norm);

/* ---- bad_numbers.c ------------------------------------------------------------------------- */

/* Behind the backward of a step, on all ranks: whether the optimizer is to leave it out. Errors:
 * NUMERIC (the training stops). */
tutti_status_t gpt_judge(session_t *session, int64_t step, double loss, double norm, bool *skips);

/* ---- stages.c ------------------------------------------------------------------------------ */

/* --mesh or --micro-batches: the model is a pipeline, of one rank or more. */
bool gpt_is_pipeline(const settings_t *settings);

/* What --mesh and those it goes with cannot be; NULL: nothing. */
const char *gpt_check_pipeline(const settings_t *settings);

tutti_status_t gpt_open_pipeline(session_t *session, tutti_pipeline_t **out);

/* The stages step inside a batch: --pipeline pipedream or 2bw. */
bool gpt_steps_inside(const settings_t *settings);
/* Whether a DDP averages gradients: not of stages that step inside a batch, nor of one shard that a
 * pipeline steps itself. */
bool gpt_averages(const settings_t *settings);

/* --clip, or what it is where it is not given: 1, and 0 where stages step inside a batch, or time
 * is measured. */
double gpt_clip(const settings_t *settings);

/* Names of the parts with which stages behind the first begin, such that those of the pipeline
 * take the same time; the same on all ranks of the world, which call it together. */
tutti_status_t gpt_choose_cut(session_t *session, const tutti_pipeline_run_options_t *run,
                              char *text, size_t bytes);

double seconds_now(void);

/* ---- gpt_report.c --------------------------------------------------------------------------- */

typedef struct {
    int64_t step;
    double loss, lr, seconds, tokens_per_second, seconds_left;
} progress_t;

typedef struct report report_t;

/* With is_continued the log goes on, and so do the metrics, behind `step`. */
tutti_status_t report_open(const session_t *session, bool is_continued, int64_t step,
                           report_t **out);
void report_step(report_t *report, const progress_t *progress);
void report_validation(report_t *report, int64_t step, double seconds, double loss);
void report_digest(report_t *report, int64_t step, const char *digest);
tutti_status_t report_close(report_t *report); /* IO if the log is not whole */

typedef struct {
    int64_t steps;
    double seconds, tokens_per_second, train_loss, val_loss;
    const char *digest;
} summary_t;

tutti_status_t report_summary(const session_t *session, const summary_t *summary);

#endif
