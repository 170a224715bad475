/* Lesson 7: a training that survives the death of its ranks.
 *
 *     tutti run -n 2 build/bin/07_restart DIR
 *     tutti run -n 2 --max-restarts 3 build/bin/07_restart DIR2 crash    # the same digest
 *
 * Every 50 steps a checkpoint goes to the folder. With "crash", rank 1 kills itself in step 120 of
 * the first attempt; all ranks are started again and go on from step 100.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/checkpoint.h>
#include <tutti/ddp.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { SHARDS = 6, SAMPLES = 32, STEPS = 300, SAVE_EVERY = 50, CRASH_AT = 120 };

typedef struct {
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
} training_t;

static tutti_status_t prepare(training_t *t)
{
    const tutti_mlp_options_t mlp = {.width = 1, .hidden = 32};
    const tutti_ddp_options_t ddp = {.shards = SHARDS};
    TUTTI_CHECK(tutti_init(NULL, &t->world));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_mlp_layer, &mlp, &t->net));
    TUTTI_CHECK(tutti_ddp_create(t->ctx, t->net, t->world, &ddp, &t->ddp));
    TUTTI_CHECK(
        tutti_optim_create(t->ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.01}, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

/* Random numbers are named by seed, step and shard: a step that is done again is the same again. */
static tutti_status_t train_step(training_t *t)
{
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), -3, 3);
        tutti_tensor_t *y = tutti_forward(s, t->net, x);
        (void)tutti_backward(s, tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    return tutti_optim_step(t->opt);
}

static tutti_status_t train(training_t *t, const char *folder, bool crashes)
{
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .group = t->world, .module = t->net, .optim = t->opt};
    const int rank = tutti_group_rank(t->world);
    char digest[TUTTI_DIGEST_BYTES];
    int64_t step = 0; // stays 0 when there is no checkpoint
    TUTTI_CHECK(tutti_checkpoint_load(&checkpoint, &step));
    printf("rank %d begins at step %lld, restart %d\n", rank, (long long)step,
           tutti_restart_count());
    fflush(stdout);
    while (step < STEPS) {
        if (crashes && step == CRASH_AT && rank == 1 && tutti_restart_count() == 0) {
            raise(SIGKILL);
        }
        tutti_context_set_step(t->ctx, step);
        TUTTI_CHECK(train_step(t));
        step++;
        if (step % SAVE_EVERY == 0) {
            TUTTI_CHECK(tutti_checkpoint_save(&checkpoint, step));
        }
    }
    TUTTI_CHECK(tutti_module_digest(t->net, digest));
    if (rank == 0) {
        printf("digest %s\n", digest);
    }
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    training_t t = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: 07_restart DIR [crash]\n");
        return EXIT_FAILURE;
    }
    tutti_status_t status = prepare(&t);
    if (status >= 0) {
        status = train(&t, argv[1], argc > 2 && strcmp(argv[2], "crash") == 0);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_optim_release(t.opt);
    tutti_ddp_release(t.ddp);
    tutti_module_release(t.net);
    tutti_context_release(t.ctx);
    tutti_group_release(t.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
