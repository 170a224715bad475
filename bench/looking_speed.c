/* What looking at a training costs: steps of a GPT on one thread with a profile or without, and
 * what it costs to tell 100 numbers. For each line on stdin, so many steps, and the mean of one is
 * printed, in milliseconds of all threads' time on a processor.
 *
 *     looking_speed FOLDER LAYERS WIDTH HEADS CONTEXT BATCH
 *     plain STEPS      steps
 *     profile STEPS    steps that are recorded; starting, stopping and writing do not count
 *     metrics STEPS    no steps, but their 100 numbers into FOLDER, until they are written
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

enum { SCALARS = 100, PATH_BYTES = 512, KIND_BYTES = 16 };

typedef struct {
    const char *folder;
    int64_t batch;
    tutti_gpt_options_t shape;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_metrics_t *metrics;
    int64_t step;
} bench_t;

static double busy_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static tutti_status_t train_step(bench_t *b)
{
    tutti_scope_t *s;
    const int64_t rows = b->batch, columns = b->shape.context;
    tutti_context_set_step(b->ctx, b->step++);
    TUTTI_CHECK(tutti_scope_open(b->ctx, &s));
    tutti_tensor_t *tokens =
        tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(rows, columns + 1), 0, b->shape.vocab);
    tutti_tensor_t *logits = tutti_forward(s, b->net, tutti_narrow(s, tokens, 1, 0, columns));
    tutti_tensor_t *loss = tutti_cross_entropy(s, logits, tutti_narrow(s, tokens, 1, 1, columns));
    (void)tutti_backward(s, loss); /* the scope knows if it failed */
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(tutti_optim_step(b->opt));
    tutti_optim_zero_grad(b->opt);
    return TUTTI_OK;
}

static tutti_status_t train(bench_t *b, long steps, double *ms)
{
    const double begin = busy_ms();
    for (long i = 0; i < steps; i++) {
        TUTTI_CHECK(train_step(b));
    }
    *ms = busy_ms() - begin;
    return TUTTI_OK;
}

static tutti_status_t train_recorded(bench_t *b, long steps, double *ms)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/profile", b->folder);
    TUTTI_CHECK(tutti_profile_start(path));
    const tutti_status_t status = train(b, steps, ms);
    const tutti_status_t stopped = tutti_profile_stop();
    return status < 0 ? status : stopped;
}

static tutti_status_t tell(bench_t *b, long steps, double *ms)
{
    char name[KIND_BYTES + 8];
    const double begin = busy_ms();
    for (long i = 0; i < steps; i++, b->step++) {
        for (int k = 0; k < SCALARS; k++) {
            snprintf(name, sizeof name, "layer/%d", k);
            TUTTI_CHECK(tutti_metrics_scalar(b->metrics, name, b->step, 1.0 / (double)(k + 1)));
        }
    }
    TUTTI_CHECK(tutti_metrics_flush(b->metrics));
    *ms = busy_ms() - begin;
    return TUTTI_OK;
}

static tutti_status_t take_turns(bench_t *b)
{
    char line[64], kind[KIND_BYTES];
    while (fgets(line, sizeof line, stdin) != NULL) {
        long steps;
        double ms;
        if (sscanf(line, "%15s %ld", kind, &steps) != 2 || steps < 1) {
            fprintf(stderr, "looking_speed: want KIND STEPS, not %s", line);
            return TUTTI_ERR_ARG;
        }
        TUTTI_CHECK((strcmp(kind, "profile") == 0   ? train_recorded
                     : strcmp(kind, "metrics") == 0 ? tell
                                                    : train)(b, steps, &ms));
        printf("%.6f\n", ms / (double)steps);
        (void)fflush(stdout);
    }
    return TUTTI_OK;
}

static tutti_status_t run(bench_t *b)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 1};
    const tutti_adamw_options_t adamw = {.lr = 1e-4};
    TUTTI_CHECK(tutti_context_create(&options, &b->ctx));
    TUTTI_CHECK(tutti_module_create(b->ctx, &tutti_gpt_layer, &b->shape, &b->net));
    TUTTI_CHECK(tutti_optim_create(b->ctx, &tutti_adamw, &adamw, &b->opt));
    TUTTI_CHECK(tutti_optim_add_module(b->opt, b->net, NULL, NULL));
    TUTTI_CHECK(tutti_metrics_open(b->folder, NULL, &b->metrics));
    return take_turns(b);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: looking_speed FOLDER LAYERS WIDTH HEADS CONTEXT BATCH\n");
        return 2;
    }
    bench_t b = {.folder = argv[1],
                 .batch = strtol(argv[6], NULL, 10),
                 .shape = {.layers = strtol(argv[2], NULL, 10),
                           .width = strtol(argv[3], NULL, 10),
                           .heads = strtol(argv[4], NULL, 10),
                           .context = strtol(argv[5], NULL, 10),
                           .vocab = 256}};
    tutti_status_t status = run(&b);
    if (status < 0) {
        fprintf(stderr, "looking_speed: %s\n", tutti_last_error());
    }
    const tutti_status_t closed = tutti_metrics_close(b.metrics);
    tutti_optim_release(b.opt);
    tutti_module_release(b.net);
    tutti_context_release(b.ctx);
    return status < 0 || closed < 0;
}
