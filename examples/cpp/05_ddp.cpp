/* Lesson 5 in C++: one model, any number of processes, the same bits.
 *
 *     ./05_ddp
 *     tutti run -n 2 ./05_ddp
 *     tutti run -n 3 ./05_ddp        # the same digest each time, which is that of C
 */
#include <cstdio>
#include <exception>

#include <tutti/tutti.hpp>

static const int shards = 6, samples = 32, steps = 300;

/* The loss of a shard: learn the sine of x. Random numbers are named by seed, step and shard. */
static tutti_tensor_t *shard_loss(tutti_scope_t *s, tutti_module_t *net)
{
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(samples, 1), -3, 3);
    return tutti_mse_loss(s, tutti_forward(s, net, x), tutti_sin(s, x), TUTTI_LOSS_MEAN);
}

static double train_step(tutti_context_t *ctx, tutti_ddp_t *ddp, tutti_optim_t *opt)
{
    double loss = 0;
    while (tutti_ddp_next_shard(ddp, ctx)) { // sets the context's shard
        tutti::in_scope(ctx, [&](tutti_scope_t *s) {
            tutti_tensor_t *mean = shard_loss(s, tutti_ddp_module(ddp));
            tutti::check(tutti_backward(s, mean)); // buckets travel during the last shard
            loss = tutti_tensor_item(mean);
        });
    }
    tutti::check(tutti_ddp_finish(ddp)); // gradients are averaged, on every rank
    tutti::check(tutti_optim_step(opt));
    return loss;
}

static void train(tutti_context_t *ctx, tutti_group_t *world, tutti_module_t *net)
{
    tutti_ddp_options_t sharded = {};
    sharded.shards = shards;
    tutti_adam_options_t adam = {};
    adam.lr = 0.01;
    double loss = 0;
    auto ddp = tutti::make(tutti_ddp_create, ctx, net, world, &sharded);
    auto opt = tutti::make(tutti_optim_create, ctx, &tutti_adam, &adam);
    tutti::check(tutti_optim_add_module(opt, net, nullptr, nullptr));
    for (int64_t step = 0; step < steps; step++) {
        tutti_context_set_step(ctx, step);
        loss = train_step(ctx, ddp, opt);
    }
    std::printf("rank %d: the loss of its last shard is %.4f\n", tutti_group_rank(world), loss);
}

int main()
{
    try {
        tutti_context_options_t seeded = {};
        seeded.seed = 1;
        tutti_mlp_options_t mlp = {};
        mlp.width = 1;
        mlp.hidden = 32;
        char digest[TUTTI_DIGEST_BYTES];
        auto world = tutti::make(tutti_init, nullptr);
        auto ctx = tutti::make(tutti_context_create, &seeded);
        auto net = tutti::make(tutti_module_create, ctx, &tutti_mlp_layer, &mlp);
        train(ctx, world, net);
        tutti::check(tutti_module_digest(net, digest));
        if (tutti_group_rank(world) == 0) {
            std::printf("digest %s\n", digest);
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
