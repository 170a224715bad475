/* Lesson 5: one model, any number of processes, the same bits.
 *
 *     build/bin/05_ddp
 *     tutti run -n 2 build/bin/05_ddp
 *     tutti run -n 3 build/bin/05_ddp        # the same digest each time
 *
 * The batch of a step is cut into shards, six here, however many ranks there are. A rank computes
 * the shards that it hosts; DDP averages the gradients of all six in one fixed order.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { SHARDS = 6, SAMPLES = 32, STEPS = 300 };

/* The loss of a shard: learn the sine of x. Random numbers are named by seed, step and shard. */
static tutti_tensor_t *shard_loss(tutti_scope_t *s, tutti_module_t *net)
{
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), -3, 3);
    return tutti_mse_loss(s, tutti_forward(s, net, x), tutti_sin(s, x), TUTTI_LOSS_MEAN);
}

static tutti_status_t train_step(tutti_context_t *ctx, tutti_ddp_t *ddp, tutti_optim_t *opt,
                                 double *loss)
{
    while (tutti_ddp_next_shard(ddp, ctx)) { // sets the context's shard
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        tutti_tensor_t *mean = shard_loss(s, tutti_ddp_module(ddp));
        (void)tutti_backward(s, mean); // buckets begin to travel during the last shard
        *loss = tutti_tensor_item(mean);
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(ddp)); // gradients are averaged, on every rank
    return tutti_optim_step(opt);
}

static tutti_status_t train(tutti_context_t *ctx, tutti_group_t *world, tutti_module_t *net)
{
    const tutti_ddp_options_t options = {.shards = SHARDS};
    tutti_ddp_t *ddp = NULL;
    tutti_optim_t *opt = NULL;
    double loss = 0;
    tutti_status_t status = tutti_ddp_create(ctx, net, world, &options, &ddp);
    if (status >= 0) {
        status = tutti_optim_create(ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.01}, &opt);
    }
    if (status >= 0) {
        status = tutti_optim_add_module(opt, net, NULL, NULL);
    }
    for (int64_t step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        status = train_step(ctx, ddp, opt, &loss);
    }
    if (status >= 0) {
        printf("rank %d: the loss of its last shard is %.4f\n", tutti_group_rank(world), loss);
    }
    tutti_optim_release(opt);
    tutti_ddp_release(ddp);
    return status;
}

static tutti_status_t lesson(tutti_context_t *ctx, tutti_group_t *world)
{
    char digest[TUTTI_DIGEST_BYTES];
    tutti_module_t *net;
    const tutti_mlp_options_t options = {.width = 1, .hidden = 32};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_mlp_layer, &options, &net));
    tutti_status_t status = train(ctx, world, net);
    if (status >= 0) {
        status = tutti_module_digest(net, digest);
    }
    if (status >= 0 && tutti_group_rank(world) == 0) {
        printf("digest %s\n", digest);
    }
    tutti_module_release(net);
    return status;
}

int main(void)
{
    tutti_group_t *world = NULL;
    tutti_context_t *ctx = NULL;
    tutti_status_t status = tutti_init(NULL, &world);
    if (status >= 0) {
        status = tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx);
    }
    if (status >= 0) {
        status = lesson(ctx, world);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_context_release(ctx);
    tutti_group_release(world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
