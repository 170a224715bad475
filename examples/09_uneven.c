/* Lesson 9: inputs that run out at different times, and every sample counts once.
 *
 *     build/bin/09_uneven
 *     tutti run -n 2 build/bin/09_uneven
 *     tutti run -n 3 build/bin/09_uneven     # the same digest each time
 *
 * Four shards have 30, 70, 110 and 150 samples and take 16 of them a step: the first is done after
 * two steps, the last after ten. A shard's gradient weighs as much as it has samples; one that has
 * none weighs nothing. When nobody has any, every rank hears that the epoch is over.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { SHARDS = 4, BATCH = 16, EPOCHS = 20 };

static int64_t samples_left(int shard, int64_t step)
{
    const int64_t left = 30 + 40 * shard - step * BATCH;
    return left < 0 ? 0 : left < BATCH ? left : BATCH;
}

/* The mean loss of n samples. */
static tutti_status_t backward_of(tutti_context_t *ctx, tutti_module_t *net, int64_t n)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(n, 1), -3, 3);
    tutti_tensor_t *y = tutti_forward(s, net, x);
    (void)tutti_backward(s, tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN));
    return tutti_scope_close(s);
}

/* END when no shard has samples left. */
static tutti_status_t step(tutti_context_t *ctx, tutti_ddp_t *ddp, int64_t number, int64_t *samples)
{
    while (tutti_ddp_next_shard(ddp, ctx)) {
        const int64_t n = samples_left(tutti_context_shard(ctx), number);
        TUTTI_CHECK(tutti_ddp_set_weight(ddp, n));
        if (n > 0) {
            TUTTI_CHECK(backward_of(ctx, tutti_ddp_module(ddp), n));
        }
    }
    const tutti_status_t status = tutti_ddp_finish(ddp);
    *samples += tutti_ddp_weight(ddp, -1);
    return status;
}

static tutti_status_t train(tutti_context_t *ctx, tutti_group_t *world, tutti_ddp_t *ddp,
                            tutti_optim_t *opt)
{
    int64_t steps = 0, samples = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        tutti_status_t status = TUTTI_OK;
        for (int64_t number = 0; status != TUTTI_END; number++) {
            tutti_context_set_step(ctx, steps);
            status = step(ctx, ddp, number, &samples);
            TUTTI_CHECK(status);
            if (status == TUTTI_OK) {
                TUTTI_CHECK(tutti_optim_step(opt));
                steps++;
            }
        }
    }
    if (tutti_group_rank(world) == 0) {
        printf("%d epochs: %lld steps, %lld samples\n", EPOCHS, (long long)steps,
               (long long)samples);
    }
    return TUTTI_OK;
}

static tutti_status_t lesson(tutti_context_t *ctx, tutti_group_t *world)
{
    const tutti_ddp_options_t options = {.shards = SHARDS, .uneven = TUTTI_DDP_WEIGHTED};
    char digest[TUTTI_DIGEST_BYTES];
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_mlp_layer,
                                    &(tutti_mlp_options_t){.width = 1, .hidden = 32}, &net));
    TUTTI_CHECK(tutti_ddp_create(ctx, net, world, &options, &ddp));
    TUTTI_CHECK(tutti_optim_create(ctx, &tutti_adam, NULL, &opt));
    TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
    TUTTI_CHECK(train(ctx, world, ddp, opt));
    TUTTI_CHECK(tutti_module_digest(net, digest));
    if (tutti_group_rank(world) == 0) {
        printf("digest %s\n", digest);
    }
    tutti_optim_release(opt);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    return TUTTI_OK;
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
        return EXIT_FAILURE; /* the system gives everything back */
    }
    tutti_context_release(ctx);
    tutti_group_release(world);
    return EXIT_SUCCESS;
}
