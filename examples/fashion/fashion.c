/* The command line of fashion. */
#include "fashion.h"

#include <tutti/modes.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *const models[] = {"mlp", "cnn", "resnet", NULL};
static const char *const dtypes[] = {"f32", "bf16", NULL};
static const char *const policies[] = {"stop", "skip", "warn", NULL};
static const char *const accumulations[] = {"local", "sharded", NULL}; /* as the library's */
static const char *const optimizers[] = {"adamw", "sgd", NULL};

static const tutti_option_t table[] = {
    {.name = "data",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, data),
     .argument = "DIR",
     .about = "of the four files of Fashion-MNIST"},
    {.name = "model",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, model),
     .choices = models,
     .about = "the network"},
    {.name = "epochs",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, epochs),
     .argument = "N",
     .min = 1,
     .max = 1e6,
     .about = "to train"},
    {.name = "steps",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, steps),
     .argument = "N",
     .min = 0,
     .max = 1e9,
     .about = "to train, instead of epochs; 0: by --epochs"},
    {.name = "batch",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, batch),
     .argument = "B",
     .min = 1,
     .max = 65536,
     .about = "samples per shard and step"},
    {.name = "shards",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, shards),
     .argument = "V",
     .min = 0,
     .max = 65536,
     .about = "shards per step, on any number of ranks; 0: the ranks"},
    {.name = "stage",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, stage),
     .argument = "S",
     .min = 0,
     .max = 3,
     .about = "of ZeRO; 1: each rank steps a part of the weights; 2: and has that part of "
              "gradients; 3: and of weights"},
    {.name = "accumulate-gradients",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, accumulation),
     .choices = accumulations,
     .about = "where the gradients of a rank's shards are added up at stage 2 and 3"},
    {.name = "unit",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, unit),
     .argument = "KIND",
     .about = "of modules that come and go together at stage 3: conv2d"},
    {.name = "reshard-ranks",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, reshard_ranks),
     .argument = "K",
     .min = 0,
     .max = 65536,
     .about = "that keep a unit together from its forward to its backward: those of a host; 0: "
              "none do"},
    {.name = "mesh",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, mesh),
     .argument = "replicate=R,shard=S",
     .about = "R rows of S ranks; at stage 3 each row has all weights"},
    {.name = "offload",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, offload),
     .argument = "DIR",
     .about = "a folder for the optimizer's state: a disk in place of memory"},
    {.name = "offload-parameters",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, offload_parameters),
     .argument = "DIR",
     .about = "a folder for the weights of stage 3, too, and for their gradients and state"},
    {.name = "lr",
     .kind = TUTTI_OPTION_REAL,
     .offset = offsetof(settings_t, lr),
     .argument = "X",
     .min = 0,
     .max = 10,
     .about = "highest learning rate"},
    {.name = "ema",
     .kind = TUTTI_OPTION_REAL,
     .offset = offsetof(settings_t, ema),
     .argument = "DECAY",
     .min = 0,
     .max = 0.999999999,
     .about = "of averages of the weights, which are tested and saved; 0: none"},
    {.name = "swa",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, swa),
     .argument = "STEP",
     .min = 0,
     .max = 1e9,
     .about = "from this step on all weights are averaged alike, and tested and saved; 0: none"},
    {.name = "swa-lr",
     .kind = TUTTI_OPTION_REAL,
     .offset = offsetof(settings_t, swa_lr),
     .argument = "X",
     .min = 0,
     .max = 10,
     .about = "learning rate meanwhile; 0: half of --lr"},
    {.name = "optimizer",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, optimizer),
     .choices = optimizers,
     .about = "sgd has a momentum of 0.9"},
    {.name = "on-nan",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, on_nan),
     .choices = policies,
     .about = "a step whose loss or gradient is no number: end, leave it out, go on"},
    {.name = "seed",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, seed),
     .argument = "K",
     .min = 0,
     .max = 1e15,
     .about = "of initial weights, the order of samples, and dropout"},
    {.name = "dropout",
     .kind = TUTTI_OPTION_REAL,
     .offset = offsetof(settings_t, dropout),
     .argument = "P",
     .min = 0,
     .max = 0.99,
     .about = "share of hidden values that are dropped while training"},
    {.name = "dtype",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, dtype),
     .choices = dtypes,
     .about = "of convolutions and matrix products"},
    {.name = "threads",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, threads),
     .argument = "N",
     .min = 0,
     .max = 256,
     .about = "compute threads of a rank; 0: its share of the cores"},
    {.name = "save",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, save),
     .argument = "FILE",
     .about = "write the weights at the end, as safetensors"},
    {.name = "load",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, load),
     .argument = "FILE",
     .about = "begin with these weights: a file, or a folder of checkpoints"},
    {.name = "checkpoint",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, checkpoint),
     .argument = "DIR",
     .about = "folder of this training's checkpoints"},
    {.name = "every",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, every),
     .argument = "STEPS",
     .min = 0,
     .max = 1e9,
     .about = "steps between checkpoints, and one at the end; 0: none is written"},
    {.name = "resume",
     .offset = offsetof(settings_t, resume),
     .about = "go on from the newest checkpoint, if there is one"},
    {.name = "keep",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, keep),
     .argument = "K",
     .min = 1,
     .max = 1e6,
     .about = "so many checkpoints stay"},
    {.name = "whole",
     .offset = offsetof(settings_t, whole),
     .about = "each tensor of a checkpoint in one file, as Hugging Face reads them"},
    {.name = "per-host",
     .offset = offsetof(settings_t, per_host),
     .about = "the checkpoints' folder is on another disk on each host"},
    {.name = "copies",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, copies),
     .argument = "C",
     .min = 1,
     .max = 1e6,
     .about = "with --per-host: so many hosts have each file"},
    {.name = "evaluate",
     .offset = offsetof(settings_t, evaluate),
     .about = "only test, do not train"},
    {.name = "modules",
     .offset = offsetof(settings_t, modules),
     .about = "print the network's parts, with what a batch of them takes, and end"},
    {.name = "digest",
     .offset = offsetof(settings_t, digest),
     .about = "print a digest of the weights on a line of its own, too"},
    {.name = "log",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, log),
     .argument = "FILE",
     .about = "write a line of JSON for each step"},
    {.name = "metrics",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, metrics),
     .argument = "DIR",
     .about = "numbers of each step, for TensorBoard, as JSON and as CSV"},
    {0},
};

static const settings_t defaults = {
    .data = "/usr/share/datasets/fashion-mnist",
    .model = MODEL_CNN,
    .epochs = 8,
    .batch = 64,
    .lr = 2e-3,
    .dropout = 0.25,
    .keep = 3,
    .copies = 1,
};

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_help(void)
{
    static char text[4096];
    (void)tutti_options_help(table, &defaults, text, sizeof text);
    printf("fashion: learn ten kinds of clothes, alone or under `tutti run`\n\n%s", text);
}

tutti_status_t fashion_open_data(const session_t *session, bool is_test, tutti_dataset_t **out)
{
    const tutti_mnist_options_t options = {
        .folder = session->settings.data, .is_test = is_test, .mean = 0.286, .std = 0.353};
    return tutti_dataset_create(&tutti_mnist_dataset, &options, out);
}

static tutti_status_t open_rows(session_t *session)
{
    static const char *const names[] = {"replicate", "shard"};
    const char *text = session->settings.mesh;
    int sizes[2], used = 0;
    if (text == NULL) {
        return TUTTI_OK;
    }
    if (sscanf(text, "replicate=%d,shard=%d%n", &sizes[0], &sizes[1], &used) != 2 ||
        text[used] != 0) {
        fprintf(stderr, "fashion: --mesh %s: want replicate=R,shard=S\n", text);
        return TUTTI_ERR_ARG;
    }
    return tutti_mesh_create(session->world, 2, sizes, names, &session->rows);
}

/* Before the training, not behind it. */
static tutti_status_t check_outputs(const session_t *session)
{
    const settings_t *settings = &session->settings;
    const output_t outputs[] = {
        {"save", settings->save, OUTPUT_SAFE, false},
        {"log", settings->log, OUTPUT_FILE, false},
        {"metrics", settings->metrics, OUTPUT_FOLDER, false},
        {"checkpoint", settings->every > 0 ? settings->checkpoint : NULL, OUTPUT_FOLDER, true},
        {"offload", settings->offload, OUTPUT_FOLDER, true},
        {"offload-parameters", settings->offload_parameters, OUTPUT_FOLDER, true}};
    return settings->evaluate || settings->modules
               ? TUTTI_OK
               : outputs_check(session->world, "fashion", outputs,
                               sizeof outputs / sizeof outputs[0]);
}

static tutti_status_t open_session(session_t *session)
{
    const settings_t *settings = &session->settings;
    TUTTI_CHECK(tutti_init(NULL, &session->world));
    session->rank = tutti_group_rank(session->world);
    session->ranks = tutti_group_size(session->world);
    TUTTI_CHECK(check_outputs(session));
    TUTTI_CHECK(settings->modules ? tutti_device_open("meta", NULL, &session->meta)
                                  : open_rows(session));
    const tutti_context_options_t options = {.threads = (int)settings->threads,
                                             .seed = (uint64_t)settings->seed,
                                             .device = session->meta};
    TUTTI_CHECK(tutti_context_create(&options, &session->ctx));
    (void)tutti_context_set_autocast(session->ctx,
                                     settings->dtype == DTYPE_BF16 ? TUTTI_BF16 : TUTTI_F32);
    return fashion_open_net(session);
}

static tutti_status_t test_only(session_t *session, result_t *result)
{
    tutti_dataset_t *pictures;
    TUTTI_CHECK(fashion_open_data(session, true, &pictures));
    const double begin = seconds_now();
    const tutti_status_t status = fashion_test(session, pictures, &result->accuracy);
    result->seconds = seconds_now() - begin;
    result->samples_per_second = (double)tutti_dataset_info(pictures).count / result->seconds;
    tutti_dataset_release(pictures);
    return status;
}

static tutti_status_t perform(session_t *session)
{
    char digest[TUTTI_DIGEST_BYTES];
    result_t result;
    TUTTI_CHECK(open_session(session));
    if (session->settings.modules) {
        return fashion_print_modules(session);
    }
    TUTTI_CHECK(session->settings.evaluate ? test_only(session, &result)
                                           : fashion_train(session, &result));
    TUTTI_CHECK(tutti_module_digest(session->net, digest));
    if (session->rank == 0) {
        if (session->settings.digest) {
            printf("digest %s\n", digest);
        }
        if (session->stop_signal == 0) {
            report_result(&result, digest);
        }
    }
    if (session->settings.digest && !session->settings.evaluate) {
        const tutti_ddp_memory_t *m = &result.memory;
        printf("rank %d stage %d parameter_bytes %zu gradient_bytes %zu optimizer_bytes %zu "
               "sent_bytes %lld local_traffic %lld sharded_traffic %lld\n",
               session->rank, m->stage, m->parameter_bytes, m->gradient_bytes, m->optimizer_bytes,
               (long long)m->sent_bytes, (long long)m->local_traffic,
               (long long)m->sharded_traffic);
    }
    return TUTTI_OK;
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
        fprintf(stderr, "fashion: %s\n", tutti_last_error());
        return EXIT_FAILURE;
    }
    if (session.settings.checkpoint == NULL &&
        (session.settings.every > 0 || session.settings.resume)) {
        fprintf(stderr, "fashion: --every and --resume need --checkpoint DIR, a folder of this "
                        "training's own\n");
        return EXIT_FAILURE;
    }
    if (session.settings.checkpoint != NULL && session.settings.every == 0 &&
        !session.settings.resume) {
        fprintf(stderr, "fashion: --checkpoint DIR wants --every N, the steps between checkpoints, "
                        "or --resume\n");
        return EXIT_FAILURE;
    }
    command_keep(session.command, sizeof session.command, argc, argv);
    const tutti_status_t status = perform(&session);
    if (status < 0 && tutti_last_error()[0] != 0) { /* else it has been told */
        fprintf(stderr, "fashion: rank %d: %s\n", session.rank, tutti_last_error());
    }
    tutti_module_release(session.net);
    tutti_context_release(session.ctx);
    tutti_device_release(session.meta);
    tutti_mesh_release(session.rows);
    tutti_group_release(session.world);
    return status < 0                 ? EXIT_FAILURE
           : session.stop_signal != 0 ? 128 + session.stop_signal
                                      : EXIT_SUCCESS;
}
