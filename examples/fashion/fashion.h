/* Ten kinds of clothes, told apart: train and test on Fashion-MNIST, alone or under `tutti run`.
 * fashion.c reads the command line, and then
 *
 *     fashion_models.c    the three networks, as lists of layers
 *     fashion_train.c     epochs and steps over all ranks
 *     fashion_accuracy.c  share of the test pictures that are told right
 *     fashion_report.c    progress line, log, last line
 */
#ifndef TT_FASHION_H
#define TT_FASHION_H

#include <tutti/tutti.h>

#include "../common/common.h"

enum { ON_NAN_STOP, ON_NAN_SKIP, ON_NAN_WARN };

typedef struct {
    const char *data, *save, *load, *log, *checkpoint, *metrics, *unit, *offload, *mesh;
    const char *offload_parameters;
    int64_t epochs, steps, batch, shards, stage, seed, threads, every, keep, copies;
    int64_t swa, reshard_ranks;
    double lr, dropout, ema, swa_lr;
    int model, dtype, optimizer, on_nan, accumulation;
    bool evaluate, digest, modules, resume, whole, per_host;
} settings_t;

enum { MODEL_MLP, MODEL_CNN, MODEL_RESNET };
enum { DTYPE_F32, DTYPE_BF16 };
enum { OPTIMIZER_ADAMW, OPTIMIZER_SGD };
enum { KINDS = 10 };

/* What every part works with. */
typedef struct {
    settings_t settings;
    tutti_group_t *world;
    tutti_mesh_t *rows;   /* of the world: --mesh; NULL: none */
    tutti_device_t *meta; /* of --modules; NULL */
    tutti_context_t *ctx;
    tutti_module_t *net; /* [N, 1, 28, 28] -> logits [N, KINDS] */
    char command[1024];  /* as it was given */
    int rank, ranks;
    int stop_signal; /* that ended the training, on all ranks; 0: none */
} session_t;

/* What is known in the end, on every rank. */
typedef struct {
    double accuracy;           /* of the test pictures, in [0, 1] */
    double seconds;            /* in all */
    double samples_per_second; /* while training; of the test where nothing is trained */
    tutti_ddp_memory_t memory; /* while training, between steps */
} result_t;

tutti_status_t fashion_open_data(const session_t *session, bool is_test, tutti_dataset_t **out);
tutti_status_t fashion_open_net(session_t *session);

/* --modules: the network's parts, with what a batch of them takes. */
tutti_status_t fashion_print_modules(const session_t *session);

/* Train, testing after each epoch. */
tutti_status_t fashion_train(session_t *session, result_t *result);

/* Every rank tests its part; all get the accuracy. */
tutti_status_t fashion_test(session_t *session, tutti_dataset_t *pictures, double *accuracy);

double seconds_now(void);

/* ---- fashion_report.c: rank 0 only ---------------------------------------------------------- */

typedef struct {
    int64_t epoch, epochs, step, steps; /* of those to do */
    double loss, lr, seconds, samples_per_second, seconds_left;
} progress_t;

typedef struct report report_t;

/* Log and metrics go on behind `step`. */
tutti_status_t report_open(const session_t *session, int64_t step, report_t **out);
void report_step(report_t *report, const progress_t *progress);
void report_test(report_t *report, const progress_t *progress, double accuracy);
void report_digest(report_t *report, int64_t step, const char *digest);
tutti_status_t report_close(report_t *report); /* IO if the log is not whole; NULL does nothing */

void report_result(const result_t *result, const char *digest);

#endif
