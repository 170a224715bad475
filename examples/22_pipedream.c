/* Lesson 22: stages that do not wait for each other to step.
 *
 *     tutti run -n 3 build/bin/22_pipedream                  # pipedream
 *     tutti run -n 3 build/bin/22_pipedream vertical-sync
 *     tutti run -n 3 build/bin/22_pipedream 2bw
 *     tutti run -n 3 build/bin/22_pipedream flush            # as lesson 20: a step behind a batch
 *     tutti explain pipeline --schedule pipedream --ranks 3 --micro-batches 12
 *
 * A batch here is a stream of micro-batches. Under flush the pipeline runs empty before each step.
 * Under the others a stage steps while micro-batches are under way, and goes on at once:
 *
 *     stage 0   F0 F1 F2 .. B0 S F3 B1 S F4 B2 S         S: the optimizer steps the stage
 *     stage 2   .. .. F0 B0 S F1 B1 S F2 B2 S            pipedream, three stages
 *
 * The price: B1 of stage 0 comes behind a step that F1 had not seen. It must use the weights that
 * F1 used, so a stage keeps older versions of its weights: with 3 stages the first has 3 versions,
 * the last one 1 (pipedream), all 3 (vertical sync), or all 2 (2bw, which steps behind groups of
 * micro-batches). And gradients are of older weights than those that they change: the loss says
 * what that costs, the clock what it brings.
 *
 * The optimizer is told to the pipeline, which steps it: there is nothing to clip, and nothing to
 * step, behind a batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/launch.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/pipeline_run.h>

enum { LAYERS = 5, WIDTH = 32, MICRO_BATCHES = 12, ROWS = 16, BATCHES = 100 };

typedef struct {
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    tutti_optim_t *opt;
    bool is_flush;
} lesson_t;

static tutti_tensor_t *mean_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs, int output_count,
                                 tutti_tensor_t *const *targets, int target_count, void *user)
{
    (void)output_count, (void)target_count, (void)user;
    return tutti_mse_loss(s, outputs[0], targets[0], TUTTI_LOSS_MEAN);
}

/* 1 -> WIDTH -> … -> 1 */
static tutti_status_t make_net(tutti_context_t *ctx, tutti_module_t **net)
{
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, net));
    for (int i = 0; i < LAYERS; i++) {
        const tutti_linear_options_t linear = {.in = i == 0 ? 1 : WIDTH,
                                               .out = i == LAYERS - 1 ? 1 : WIDTH};
        TUTTI_CHECK(tutti_sequential_add(*net, &tutti_linear_layer, &linear, NULL));
        if (i < LAYERS - 1) {
            TUTTI_CHECK(tutti_sequential_add(*net, &tutti_activation_layer, NULL, NULL));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t prepare(lesson_t *lesson, const char *schedule)
{
    const bool is_vertical = strcmp(schedule, "vertical-sync") == 0;
    const tutti_pipeline_run_options_t options = {
        .plan = {.schedule = is_vertical ? "pipedream" : schedule,
                 .micro_batches = MICRO_BATCHES,
                 .vertical_sync = is_vertical},
        .loss = mean_loss};
    lesson->is_flush = strcmp(schedule, "flush") == 0;
    TUTTI_CHECK(tutti_init(NULL, &lesson->world));
    TUTTI_CHECK(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 1}, &lesson->ctx));
    TUTTI_CHECK(make_net(lesson->ctx, &lesson->net));
    TUTTI_CHECK(tutti_pipeline_create(lesson->ctx, lesson->net, lesson->world, &options,
                                      &lesson->pipeline));
    const tutti_sgd_options_t sgd = {.lr = 0.02, .momentum = 0.9};
    TUTTI_CHECK(tutti_optim_create(lesson->ctx, &tutti_sgd, &sgd, &lesson->opt));
    TUTTI_CHECK(tutti_optim_add_module(lesson->opt, lesson->net, NULL, NULL));
    return lesson->is_flush ? TUTTI_OK
                            : tutti_pipeline_set_optimizer(lesson->pipeline, lesson->opt);
}

/* Learn the sine of x. */
static tutti_status_t train_batch(const lesson_t *lesson, int64_t number, double *loss)
{
    tutti_scope_t *s;
    tutti_context_set_step(lesson->ctx, number);
    TUTTI_CHECK(tutti_scope_open(lesson->ctx, &s));
    tutti_tensor_t *x =
        tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE((int64_t)MICRO_BATCHES * ROWS, 1), -3, 3);
    tutti_tensor_t *y = tutti_sin(s, x);
    const tutti_pipeline_batch_t batch = {&x, 1, &y, 1};
    const tutti_status_t status = tutti_pipeline_step(lesson->pipeline, &batch, loss);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(status);
    if (lesson->is_flush) { // else each stage has stepped, MICRO_BATCHES times or some fewer
        TUTTI_CHECK(tutti_optim_step(lesson->opt));
        tutti_optim_zero_grad(lesson->opt);
    }
    return TUTTI_OK;
}

static tutti_status_t learn(const lesson_t *lesson)
{
    char digest[TUTTI_DIGEST_BYTES];
    double loss = 0;
    const int rank = tutti_group_rank(lesson->world);
    for (int64_t number = 0; number < BATCHES; number++) {
        TUTTI_CHECK(train_batch(lesson, number, &loss));
    }
    TUTTI_CHECK(tutti_pipeline_digest(lesson->pipeline, digest)); // of the newest, on all stages
    const tutti_pipeline_stats_t stats = tutti_pipeline_stats(lesson->pipeline);
    printf("stage %d: %d versions of its weights at most, %lld bytes beside the newest\n", rank,
           stats.versions_max, (long long)stats.stash_bytes_max);
    if (rank == 0) {
        printf("loss %.4f digest %s\n", loss, digest);
    }
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    lesson_t lesson = {0};
    tutti_status_t status = prepare(&lesson, argc > 1 ? argv[1] : "pipedream");
    if (status >= 0) {
        status = learn(&lesson);
    }
    if (status < 0) {
        fprintf(stderr, "22_pipedream: %s\n", tutti_last_error());
    }
    tutti_optim_release(lesson.opt);
    tutti_pipeline_release(lesson.pipeline);
    tutti_module_release(lesson.net);
    tutti_context_release(lesson.ctx);
    tutti_group_release(lesson.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
