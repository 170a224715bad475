/* Lesson 20: a model that is cut into stages, each on a rank of its own.
 *
 *     build/bin/20_pipeline
 *     tutti run -n 2 build/bin/20_pipeline
 *     tutti run -n 4 build/bin/20_pipeline zb-h1      # the same digest each time
 *     tutti explain pipeline --schedule zb-h1 --ranks 4 --micro-batches 4
 *
 * A rank computes its own layers. A batch is cut into micro-batches, so that ranks work at the same
 * time: while the last stage has the first micro-batch, the first has a later one.
 *
 *     rank 0   F0 F1 F2 F3 .. .. B0 B1 B2 B3
 *     rank 1   .. F0 F1 F2 F3 B0 B1 B2 B3 ..          gpipe
 *
 * The first rank alone needs inputs, the last one alone targets. Every rank makes the whole model,
 * on meta, where it costs nothing, and gets the parameters of its own stages. What an optimizer
 * steps are these; clipping sees all.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/devices.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/pipeline_run.h>

enum { LAYERS = 5, WIDTH = 32, SAMPLES = 64, MICRO_BATCHES = 4, STEPS = 60 };

/* Each rank's own: who computes, and the whole model. */
typedef struct {
    tutti_group_t *world;
    tutti_device_t *meta;
    tutti_context_t *maker, *ctx;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    tutti_optim_t *opt;
} lesson_t;

/* Of a micro-batch, on the rank of the last stage. */
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
    const tutti_pipeline_run_options_t options = {
        .plan = {.schedule = schedule, .micro_batches = MICRO_BATCHES}, .loss = mean_loss};
    TUTTI_CHECK(tutti_init(NULL, &lesson->world));
    TUTTI_CHECK(tutti_device_open("meta", NULL, &lesson->meta));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1, .device = lesson->meta},
                                     &lesson->maker));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &lesson->ctx));
    TUTTI_CHECK(make_net(lesson->maker, &lesson->net));
    TUTTI_CHECK(tutti_pipeline_create(lesson->ctx, lesson->net, lesson->world, &options,
                                      &lesson->pipeline));
    const tutti_adam_options_t adam = {.lr = 1e-2};
    TUTTI_CHECK(tutti_optim_create(lesson->ctx, &tutti_adam, &adam, &lesson->opt));
    return tutti_optim_add_module(lesson->opt, lesson->net, NULL, NULL);
}

/* Learn the sine of x. Inputs and targets are made everywhere here, and used where they are due. */
static tutti_status_t train_step(const lesson_t *lesson, int64_t step, double *loss)
{
    tutti_scope_t *s;
    tutti_context_set_step(lesson->ctx, step);
    TUTTI_CHECK(tutti_scope_open(lesson->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), -3, 3);
    tutti_tensor_t *y = tutti_sin(s, x);
    const tutti_pipeline_batch_t batch = {&x, 1, &y, 1};
    const tutti_status_t status = tutti_pipeline_step(lesson->pipeline, &batch, loss);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(status);
    TUTTI_CHECK(tutti_clip_grad_norm(lesson->opt, 1.0, 2.0, NULL)); // of all stages
    TUTTI_CHECK(tutti_optim_step(lesson->opt));
    tutti_optim_zero_grad(lesson->opt);
    return TUTTI_OK;
}

static tutti_status_t learn(const lesson_t *lesson)
{
    char text[1000], digest[TUTTI_DIGEST_BYTES];
    double loss = 0;
    const int rank = tutti_group_rank(lesson->world);
    if (rank == 0) {
        printf("%s", tutti_pipeline_describe_stages(lesson->pipeline, text, sizeof text));
    }
    for (int64_t step = 0; step < STEPS; step++) {
        TUTTI_CHECK(train_step(lesson, step, &loss));
    }
    TUTTI_CHECK(tutti_pipeline_digest(lesson->pipeline, digest)); // of all stages
    const tutti_pipeline_stats_t stats = tutti_pipeline_stats(lesson->pipeline);
    printf("rank %d: at most %d micro-batches of stages at once, %lld tensors sent\n", rank,
           stats.live_max, (long long)stats.messages);
    if (rank == 0) {
        printf("loss %.4f digest %s\n", loss, digest);
    }
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    lesson_t lesson = {0};
    tutti_status_t status = prepare(&lesson, argc > 1 ? argv[1] : "1f1b");
    if (status >= 0) {
        status = learn(&lesson);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_optim_release(lesson.opt);
    tutti_pipeline_release(lesson.pipeline);
    tutti_module_release(lesson.net);
    tutti_context_release(lesson.ctx);
    tutti_context_release(lesson.maker);
    tutti_device_release(lesson.meta);
    tutti_group_release(lesson.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
