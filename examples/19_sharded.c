/* Lesson 19: a model of which no rank has all.
 *
 *     build/bin/19_sharded 0
 *     tutti run -n 2 build/bin/19_sharded 1
 *     tutti run -n 3 build/bin/19_sharded 3      # the same digest each time
 *
 * The argument is the stage, what ranks deal out: 0 nothing, 1 the optimizer's moments, 2 gradients
 * too, 3 parameters too. At stage 3 the layers are units: the weights of one are gathered before it
 * computes, and given back behind it. Nothing else of the program changes.
 *
 * In the end each rank says what it had in memory while nothing was computed.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>
#include <tutti/tensor.h>

enum { SHARDS = 6, SAMPLES = 16, STEPS = 30, WIDTH = 192, LAYERS = 4 };

static tutti_status_t make_net(tutti_context_t *ctx, tutti_module_t **out)
{
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    for (int i = 0; i < LAYERS; i++) {
        const tutti_linear_options_t layer = {
            .in = i == 0 ? 1 : WIDTH,
            .out = i + 1 == LAYERS ? 1 : WIDTH,
            .activation = i + 1 == LAYERS ? TUTTI_ACTIVATION_DEFAULT : TUTTI_ACTIVATION_TANH};
        TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &layer, NULL));
    }
    return TUTTI_OK;
}

/* The loop is lesson 5's. */
static tutti_status_t train_step(tutti_context_t *ctx, tutti_ddp_t *ddp, tutti_optim_t *opt)
{
    while (tutti_ddp_next_shard(ddp, ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), -3, 3);
        tutti_tensor_t *y = tutti_ddp_forward(s, ddp, x); // weights come and go
        (void)tutti_backward(s, tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(ddp));
    return tutti_optim_step(opt); // of this rank's part
}

static tutti_status_t report(tutti_ddp_t *ddp, tutti_optim_t *opt, tutti_group_t *world)
{
    char digest[TUTTI_DIGEST_BYTES], units[2000];
    TUTTI_CHECK(tutti_ddp_digest(ddp, digest)); // all ranks, for weights come for it
    const tutti_ddp_memory_t memory = tutti_ddp_memory(ddp, opt);
    printf("rank %d stage %d: %zu bytes of parameters, %zu of gradients, %zu of moments\n",
           tutti_group_rank(world), memory.stage, memory.parameter_bytes, memory.gradient_bytes,
           memory.optimizer_bytes);
    if (tutti_group_rank(world) == 0) {
        printf("%sdigest %s\n", tutti_ddp_describe(ddp, units, sizeof units), digest);
    }
    return TUTTI_OK;
}

static tutti_status_t train(tutti_context_t *ctx, tutti_group_t *world, tutti_module_t *net,
                            int stage)
{
    const tutti_ddp_options_t options = {
        .shards = SHARDS, .stage = stage, .units = {.kind = stage == 3 ? "linear" : NULL}};
    tutti_ddp_t *ddp = NULL;
    tutti_optim_t *opt = NULL;
    tutti_status_t status = tutti_ddp_create(ctx, net, world, &options, &ddp);
    if (status >= 0) {
        status = tutti_optim_create(ctx, &tutti_adam, NULL, &opt);
    }
    if (status >= 0) {
        status = tutti_optim_add_module(opt, net, NULL, NULL);
    }
    for (int64_t step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        status = train_step(ctx, ddp, opt);
    }
    if (status >= 0) {
        status = report(ddp, opt, world);
    }
    tutti_optim_release(opt);
    tutti_ddp_release(ddp);
    return status;
}

static tutti_status_t perform(int stage)
{
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *net = NULL;
    TUTTI_CHECK(tutti_init(NULL, &world));
    tutti_status_t status = tutti_context_create(NULL, &ctx);
    if (status >= 0) {
        status = make_net(ctx, &net);
        status = status < 0 ? status : train(ctx, world, net, stage);
        tutti_module_release(net);
        tutti_context_release(ctx);
    }
    tutti_group_release(world);
    return status;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    const long stage = argc == 2 ? strtol(argv[1], &end, 10) : -1;
    if (end == NULL || *end != 0 || stage < 0 || stage > 3) {
        fprintf(stderr, "19_sharded: give a stage, 0 to 3\n");
        return EXIT_FAILURE;
    }
    if (perform((int)stage) < 0) {
        fprintf(stderr, "19_sharded: %s\n", tutti_last_error());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
