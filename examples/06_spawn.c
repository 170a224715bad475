/* Lesson 6: a program that starts its ranks itself.
 *
 *     build/bin/06_spawn             # one rank
 *     build/bin/06_spawn 3           # three processes; the same digest
 *     build/bin/06_spawn 3 threads   # three threads, for tests
 *     build/bin/06_spawn 3 fail      # rank 1 fails: its words come back
 *
 * tutti_spawn() executes this program again for each rank; main() hands control to tutti_spawned(),
 * which calls train() there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/ddp.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { SHARDS = 6, SAMPLES = 32, STEPS = 300 };

/* All that a rank has; what is not there yet is NULL. */
typedef struct {
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
} training_t;

static tutti_status_t prepare(const tutti_spawned_t *self, training_t *t)
{
    const tutti_mlp_options_t mlp = {.width = 1, .hidden = 32};
    const tutti_ddp_options_t ddp = {.shards = SHARDS};
    TUTTI_CHECK(tutti_init(TUTTI_SPAWNED(self), &t->world));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_mlp_layer, &mlp, &t->net));
    TUTTI_CHECK(tutti_ddp_create(t->ctx, t->net, t->world, &ddp, &t->ddp));
    TUTTI_CHECK(
        tutti_optim_create(t->ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.01}, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

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

static tutti_status_t train_all(const tutti_spawned_t *self, training_t *t)
{
    char digest[TUTTI_DIGEST_BYTES];
    for (int64_t step = 0; step < STEPS; step++) {
        tutti_context_set_step(t->ctx, step);
        if (step == STEPS / 2 && self->rank == 1 && strcmp(self->argument.data, "fail") == 0) {
            return tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(-7), &(tutti_tensor_t *){NULL});
        }
        TUTTI_CHECK(train_step(t));
    }
    TUTTI_CHECK(tutti_module_digest(t->net, digest));
    if (self->rank == 0) {
        printf("%d ranks, digest %s\n", self->size, digest);
    }
    return TUTTI_OK;
}

/* The entry of every rank: whatever it makes it releases, also when it fails. */
static tutti_status_t train(const tutti_spawned_t *self)
{
    training_t t = {0};
    tutti_status_t status = prepare(self, &t);
    if (status >= 0) {
        status = train_all(self, &t);
    }
    tutti_optim_release(t.opt);
    tutti_ddp_release(t.ddp);
    tutti_module_release(t.net);
    tutti_context_release(t.ctx);
    tutti_group_release(t.world);
    return status;
}

int main(int argc, char **argv)
{
    static const tutti_spawn_entry_t entries[] = {{"train", train}, {NULL, NULL}};
    int code;
    if (tutti_spawned(entries, &code)) {
        return code; // this process was a rank, and is done
    }
    const int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    const char *how = argc > 2 ? argv[2] : "";
    const tutti_spawn_options_t options = {.argument = tutti_text(how),
                                           .threads = strcmp(how, "threads") == 0};
    if (tutti_spawn(train, ranks, &options) < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
