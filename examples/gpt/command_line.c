/* The command line of gpt. */
#include "gpt.h"

#include <tutti/modes.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *const dtypes[] = {"f32", "bf16", NULL};
static const char *const gelus[] = {"erf", "tanh", NULL};
static const char *const policies[] = {"stop", "skip", "warn", NULL};
static const char *const accumulations[] = {"local", "sharded", NULL}; /* as the library's */
static const char *const schedules[] = {"cosine", "constant", NULL};

#define INT(field, option, letter, least, most, text)                                              \
    {                                                                                              \
        .name = option, .kind = TUTTI_OPTION_INT, .offset = offsetof(settings_t, field),           \
        .argument = letter, .min = least, .max = most, .about = text                               \
    }
#define REAL(field, option, least, most, text)                                                     \
    {                                                                                              \
        .name = option, .kind = TUTTI_OPTION_REAL, .offset = offsetof(settings_t, field),          \
        .argument = "X", .min = least, .max = most, .about = text                                  \
    }
#define TEXT(field, option, what, text)                                                            \
    {                                                                                              \
        .name = option, .kind = TUTTI_OPTION_TEXT, .offset = offsetof(settings_t, field),          \
        .argument = what, .about = text                                                            \
    }
#define PATH(field, option, text) TEXT(field, option, "FILE", text)
#define CHOICE(field, option, all, text)                                                           \
    {                                                                                              \
        .name = option, .kind = TUTTI_OPTION_CHOICE, .offset = offsetof(settings_t, field),        \
        .choices = all, .about = text                                                              \
    }
#define FLAG(field, option, text)                                                                  \
    {                                                                                              \
        .name = option, .offset = offsetof(settings_t, field), .about = text                       \
    }

static const tutti_option_t table[] = {
    PATH(data, "data", "text to train on or to evaluate"),
    INT(layers, "layers", "L", 1, 1000, "transformer blocks"),
    INT(width, "width", "C", 1, 65536, "size of a position's vector"),
    INT(heads, "heads", "H", 1, 1024, "attention heads; they divide the width"),
    INT(kv_heads, "kv-heads", "H", 0, 1024,
        "heads of keys and values, which divide the others; 1: multi-query; 0: as many"),
    CHOICE(gelu, "gelu", gelus, "of the mlps: exact, or GPT-2's own formula"),
    FLAG(tie_head, "tie-head", "the head has the embedding's weight, as in GPT-2"),
    INT(context, "context", "T", 1, 65536, "bytes that the model sees at once"),
    INT(batch, "batch", "B", 1, 65536, "sequences per shard and step"),
    INT(shards, "shards", "V", 0, 65536, "shards per step, on any number of ranks; 0: the ranks"),
    INT(steps, "steps", "N", 0, 1e9, "steps to train; 0: until --seconds"),
    REAL(seconds, "seconds", 0, 1e9, "seconds to train; 0: until --steps"),
    REAL(lr, "lr", 0, 10, "highest learning rate"),
    CHOICE(schedule, "schedule", schedules, "of the learning rate, after the warm-up"),
    INT(warmup, "warmup", "N", 0, 1e9, "steps in which the learning rate rises"),
    REAL(weight_decay, "weight-decay", 0, 10, "of AdamW, for matrices"),
    REAL(dropout, "dropout", 0, 0.99, "share of activations that are dropped while training"),
    INT(accumulate, "accumulate", "A", 1, 65536, "micro-batches of B sequences per shard and step"),
    REAL(clip, "clip", -1, 1e9,
         "largest norm of the gradient; 0: any; -1: 1, and any with pipedream, 2bw and --bench"),
    REAL(ema, "ema", 0, 0.999999999,
         "decay of averages of the weights, which are validated, saved and sampled; 0: none"),
    CHOICE(on_nan, "on-nan", policies,
           "a step whose loss or gradient is no number: end, leave it out, go on"),
    INT(seed, "seed", "K", 0, 1e15, "of initial weights and of the order of samples"),
    CHOICE(dtype, "dtype", dtypes, "of the matrix products"),
    INT(threads, "threads", "N", 0, 256, "compute threads of a rank; 0: its share of the cores"),
    TEXT(device, "device", "NAME", "where the model is computed: cpu, strict:0"),
    INT(device_mib, "device-memory", "MIB", 0, 1e9, "memory of a strict device; 0: 64 GiB"),
    INT(device_launch_ns, "device-launch", "NS", 0, 1e9,
        "least time of a kernel on it; 0: its own"),
    INT(device_copy_mb, "device-copy", "MB", 0, 1e9, "copied per second, at most; 0: its own"),
    TEXT(hook, "hook", "NAME", "how gradients are averaged: none, bf16, fp16, powersgd:R, …"),
    TEXT(bucket_mb, "bucket-mb", "MIB",
         "gradients that travel together; auto: by the wire's speed"),
    INT(stage, "stage", "S", 0, 3,
        "of ZeRO: each rank steps a part of the weights; 2: and has no more of gradients; 3: nor "
        "of "
        "weights"),
    CHOICE(accumulation, "accumulate-gradients", accumulations,
           "where the gradients of a rank's shards are added up at stage 2 and 3"),
    TEXT(unit, "unit", "KIND", "of modules that come and go together at stage 3: block"),
    INT(reshard_ranks, "reshard-ranks", "K", 0, 65536,
        "that keep a unit together from its forward to its backward: those of a host; 0: none do"),
    TEXT(mesh, "mesh", "dp=D,tp=T,pp=P",
         "ranks that share the data, a layer, the layers; else all share the data. "
         "replicate=R,shard=S "
         "in place of dp: rows of S ranks have the weights of stage 3"),
    INT(tp_shards, "tp-shards", "T", 0, 65536,
        "shards of tensor parallelism, on any number of ranks; 0: the ranks"),
    FLAG(sequence_parallel, "sequence-parallel", "of them each has a part of the sequence, too"),
    INT(micro_batches, "micro-batches", "M", 0, 65536,
        "that each shard's B sequences are cut into; excludes --accumulate"),
    TEXT(pipeline, "pipeline", "NAME", "the schedule of the stages: 1f1b, gpipe, zb-h1, zb-v, …"),
    FLAG(vertical_sync, "vertical-sync", "pipedream: one version of the weights on all stages"),
    FLAG(post_validate, "post-validate",
         "stages step before they know the norm of all gradients, and undo it where that clips"),
    INT(stages_per_rank, "stages-per-rank", "N", 0, 64, "0: as few as the schedule wants"),
    TEXT(cut, "cut", "NAMES",
         "parts with which stages begin: blocks.2,ln; auto: by measured times; else blocks evenly"),
    TEXT(offload, "offload", "DIR",
         "a folder for the optimizer's state: a disk in place of memory"),
    TEXT(offload_parameters, "offload-parameters", "DIR",
         "a folder for the weights of stage 3, too, and for their gradients and state"),
    FLAG(recompute, "recompute", "activations in backward instead of keeping them: less memory"),
    FLAG(no_overlap, "no-overlap", "average gradients behind the backward, not under it"),
    PATH(trace, "trace", "write a timeline for chrome://tracing"),
    INT(validate_every, "validate-every", "N", 0, 1e9, "steps between validations; 0: at the end"),
    INT(sample, "sample", "BYTES", 0, 1e6, "bytes to generate at the end"),
    PATH(save, "save", "write the weights at the end, as safetensors"),
    PATH(load, "load", "begin with these weights: a file, or a folder of checkpoints"),
    PATH(reference, "reference",
         "begin with these weights of a GPT-2 in PyTorch (transformers): --gelu tanh --tie-head"),
    TEXT(checkpoint, "checkpoint", "DIR", "folder of this training's checkpoints"),
    INT(every, "every", "STEPS", 0, 1e9,
        "steps between checkpoints, and one at the end; 0: none is written"),
    FLAG(resume, "resume", "go on from the newest checkpoint, if there is one"),
    INT(keep, "keep", "K", 1, 1e6, "so many checkpoints stay"),
    FLAG(whole, "whole", "each tensor of a checkpoint in one file, as Hugging Face reads them"),
    FLAG(per_host, "per-host", "the checkpoints' folder is on another disk on each host"),
    INT(copies, "copies", "C", 1, 1e6, "with --per-host: so many hosts have each file"),
    PATH(log, "log", "write a line of JSON for each step"),
    TEXT(metrics, "metrics", "DIR", "numbers of each step, for TensorBoard, as JSON and as CSV"),
    PATH(summary, "summary", "write the result as JSON; validates at the end"),
    FLAG(evaluate, "evaluate", "only print the loss over --data, in windows of T"),
    FLAG(modules, "modules", "print the model's parts, with what a batch of them takes, and end"),
    FLAG(digest, "digest", "print a digest of the weights at the end"),
    FLAG(bench, "bench", "train on random tokens and print the time of a step of all ranks"),
    {0},
};

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const settings_t defaults = {
    .layers = 6,
    .width = 384,
    .heads = 6,
    .context = 256,
    .batch = 4,
    .lr = 1e-3,
    .warmup = 20,
    .weight_decay = 0.1,
    .clip = -1,
    .accumulate = 1,
    .keep = 3,
    .copies = 1,
};

static void print_help(void)
{
    static char text[8192];
    (void)tutti_options_help(table, &defaults, text, sizeof text);
    printf("gpt: train a byte-level GPT, alone or under `tutti run`\n\n%s", text);
}

/* At stage 3 each rank makes slices alone: the model is made without memory, on meta. */
static bool is_never_whole(const session_t *session)
{
    const settings_t *settings = &session->settings;
    return settings->stage == 3 && settings->load == NULL && settings->reference == NULL &&
           settings->device == NULL && !settings->bench && !settings->evaluate &&
           !session->is_cut && !gpt_is_pipeline(settings);
}

tutti_status_t gpt_new_model(const session_t *session, tutti_context_t *ctx, tutti_module_t **out)
{
    const settings_t *settings = &session->settings;
    const tutti_gpt_options_t options = {.layers = settings->layers,
                                         .width = settings->width,
                                         .heads = settings->heads,
                                         .kv_heads = settings->kv_heads,
                                         .context = settings->context,
                                         .vocab = VOCAB,
                                         .dropout = (float)settings->dropout,
                                         .recompute = settings->recompute,
                                         .activation = settings->gelu == GELU_TANH
                                                           ? TUTTI_ACTIVATION_GELU_TANH
                                                           : TUTTI_ACTIVATION_GELU,
                                         .tie_head = settings->tie_head};
    return tutti_module_create(ctx, &tutti_gpt_layer, &options, out);
}

static tutti_status_t make_model(session_t *session)
{
    tutti_device_t *meta;
    tutti_context_t *plan;
    if (!is_never_whole(session)) {
        return gpt_new_model(session, session->ctx, &session->model);
    }
    TUTTI_CHECK(tutti_device_open("meta", NULL, &meta));
    const tutti_context_options_t where = {
        .threads = 1, .seed = tutti_context_seed(session->ctx), .device = meta};
    tutti_status_t status = tutti_context_create(&where, &plan);
    if (status >= 0) {
        status = gpt_new_model(session, plan, &session->model);
        tutti_context_release(plan);
    }
    tutti_device_release(meta);
    return status;
}

static tutti_status_t open_model(session_t *session)
{
    const settings_t *settings = &session->settings;
    TUTTI_CHECK(make_model(session));
    session->params = tutti_module_numel(session->model);
    const char *weights = settings->load != NULL ? settings->load : settings->reference;
    /* What a training keeps beside them, and the masks in old files of Hugging Face's. */
    static const char *const others[] = {"optim.*", "averaged.*",  "seconds",
                                         "losses",  "*.attn.bias", "*.attn.masked_bias"};
    tutti_load_options_t loading = {
        .exclude = others, .exclude_count = sizeof others / sizeof *others, .cast = true};
    loading.rules = tutti_gpt2_rules(&loading.rule_count);
    const tutti_checkpoint_t checkpoint = {.group = session->world, .module = session->model};
    return weights == NULL ? TUTTI_OK : tutti_checkpoint_load_from(&checkpoint, weights, &loading);
}

static tutti_status_t open_device(session_t *session)
{
    const settings_t *settings = &session->settings;
    const tutti_device_options_t options = {.memory_bytes = settings->device_mib << 20,
                                            .launch_ns = settings->device_launch_ns,
                                            .copy_bytes_per_s = settings->device_copy_mb * 1000000,
                                            .threads = (int)settings->threads};
    return settings->device == NULL
               ? TUTTI_OK
               : tutti_device_open(settings->device, &options, &session->device);
}

static void print_device(const session_t *session)
{
    const tutti_device_stats_t stats = tutti_device_stats(session->device);
    printf("device %s launches %llu peak_bytes %zu copied_bytes %llu\n",
           tutti_device_name(session->device), (unsigned long long)stats.launches, stats.peak_bytes,
           (unsigned long long)stats.copied_bytes);
}

/* Before the training, not behind it. */
static tutti_status_t check_outputs(const session_t *session)
{
    const settings_t *settings = &session->settings;
    const output_t outputs[] = {
        {"save", settings->save, OUTPUT_SAFE, false},
        {"log", settings->log, OUTPUT_FILE, false},
        {"summary", settings->summary, OUTPUT_FILE, false},
        {"metrics", settings->metrics, OUTPUT_FOLDER, false},
        {"trace", settings->trace, OUTPUT_FILE, true},
        {"checkpoint", settings->every > 0 ? settings->checkpoint : NULL, OUTPUT_FOLDER, true},
        {"offload", settings->offload, OUTPUT_FOLDER, true},
        {"offload-parameters", settings->offload_parameters, OUTPUT_FOLDER, true}};
    return settings->evaluate
               ? TUTTI_OK
               : outputs_check(session->world, "gpt", outputs, sizeof outputs / sizeof outputs[0]);
}

static tutti_status_t open_session(session_t *session)
{
    const settings_t *settings = &session->settings;
    TUTTI_CHECK(open_device(session));
    const tutti_context_options_t options = {.threads = (int)settings->threads,
                                             .seed = (uint64_t)settings->seed,
                                             .device = session->device};
    TUTTI_CHECK(tutti_init(NULL, &session->world));
    session->rank = tutti_group_rank(session->world);
    session->ranks = tutti_group_size(session->world);
    TUTTI_CHECK(check_outputs(session));
    TUTTI_CHECK(tutti_context_create(&options, &session->ctx));
    (void)tutti_context_set_autocast(session->ctx,
                                     settings->dtype == DTYPE_BF16 ? TUTTI_BF16 : TUTTI_F32);
    TUTTI_CHECK(gpt_open_mesh(session));
    TUTTI_CHECK(open_model(session));
    return gpt_cut_model(session);
}

/* false: the timeline is not all there. */
static bool close_session(session_t *session)
{
    const bool is_written = tutti_trace_release(session->trace) >= 0;
    if (!is_written) {
        fprintf(stderr, "gpt: %s\n", tutti_last_error());
    }
    tutti_module_release(session->model);
    tutti_context_release(session->ctx);
    tutti_device_release(session->device);
    tutti_mesh_release(session->rows);
    tutti_mesh_release(session->mesh);
    tutti_group_release(session->world);
    return is_written;
}

tutti_status_t gpt_open_text(const session_t *session, double from, double to, int64_t stride,
                             tutti_dataset_t **out)
{
    const tutti_text_options_t options = {.path = session->settings.data,
                                          .length = session->settings.context,
                                          .stride = stride,
                                          .from = from,
                                          .to = to};
    return tutti_dataset_create(&tutti_text_dataset, &options, out);
}

static tutti_status_t evaluate_only(session_t *session)
{
    tutti_dataset_t *text;
    tutti_pipeline_t *pipeline = NULL;
    double loss = 0;
    TUTTI_CHECK(gpt_open_text(session, 0, 1, session->settings.context, &text));
    tutti_status_t status =
        gpt_is_pipeline(&session->settings) ? gpt_open_pipeline(session, &pipeline) : TUTTI_OK;
    status = status < 0 ? status : gpt_evaluate(session, pipeline, text, 0, &loss);
    tutti_pipeline_release(pipeline);
    tutti_dataset_release(text);
    if (status >= 0 && session->rank == 0) {
        printf("{\"loss\":%.6f}\n", loss);
    }
    return status;
}

static tutti_status_t perform(session_t *session)
{
    if (session->settings.modules) {
        return gpt_print_modules(session);
    }
    TUTTI_CHECK(open_session(session));
    TUTTI_CHECK(session->settings.bench      ? gpt_measure(session)
                : session->settings.evaluate ? evaluate_only(session)
                                             : gpt_train(session));
    if (session->device != NULL && session->rank == 0) {
        print_device(session);
    }
    return TUTTI_OK;
}

/* What the table of options cannot say. */
static const char *find_contradiction(const settings_t *settings)
{
    if (settings->modules) {
        return NULL; /* all else is left alone */
    }
    if (settings->data == NULL && !settings->bench) {
        return "gpt: --data FILE is missing: give a text to train on";
    }
    if (settings->steps == 0 && settings->seconds == 0 && !settings->evaluate) {
        return "gpt: give --steps N or --seconds S, so that training ends";
    }
    if (settings->checkpoint == NULL && (settings->every > 0 || settings->resume)) {
        return "gpt: --every and --resume need --checkpoint DIR, a folder of this training's own";
    }
    if (settings->checkpoint != NULL && settings->every == 0 && !settings->resume) {
        return "gpt: --checkpoint DIR wants --every N, the steps between checkpoints, or --resume";
    }
    if (settings->load != NULL && settings->reference != NULL) {
        return "gpt: --load and --reference both say where the weights begin: give one of them";
    }
    return gpt_check_pipeline(settings);
}

/* What a GPT-2 in PyTorch computes. */
static void follow_reference(settings_t *settings)
{
    if (settings->reference != NULL) {
        settings->gelu = GELU_TANH;
        settings->tie_head = true;
    }
}

int main(int argc, char **argv)
{
    session_t session = {.settings = defaults};
    const tutti_status_t parsed = tutti_options_parse(table, argc, argv, &session.settings, NULL);
    if (parsed == TUTTI_END) {
        print_help();
        return EXIT_SUCCESS;
    }
    if (parsed < 0) {
        fprintf(stderr, "gpt: %s\n", tutti_last_error());
        return EXIT_FAILURE;
    }
    follow_reference(&session.settings);
    const char *contradiction = find_contradiction(&session.settings);
    if (contradiction != NULL) {
        fprintf(stderr, "%s\n", contradiction);
        return EXIT_FAILURE;
    }
    command_keep(session.command, sizeof session.command, argc, argv);
    const tutti_status_t status = perform(&session);
    if (status < 0 && tutti_last_error()[0] != 0) { /* else it has been told */
        fprintf(stderr, "gpt: rank %d: %s\n", session.rank, tutti_last_error());
    }
    const bool is_written = close_session(&session);
    return status < 0 || !is_written  ? EXIT_FAILURE
           : session.stop_signal != 0 ? 128 + session.stop_signal
                                      : EXIT_SUCCESS;
}
