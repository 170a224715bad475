/* Lesson 10: averaging parameters now and then, instead of gradients in each step.
 *
 *     tutti run -n 4 build/bin/10_averaging
 *
 * After 20 steps of plain DDP every pair of ranks goes on by itself: gradients are averaged within
 * a pair alone. Every 4 steps the parameters of a pair are averaged, every 16 steps those of all.
 * Less travels between pairs, and the weights then depend on the number of ranks.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { SAMPLES = 32, WARMUP = 20, STEPS = WARMUP + 16 * 20 + 1 };

typedef struct {
    tutti_context_t *ctx;
    tutti_group_t *world, *pair;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_averager_t *averager;
} lesson_t;

static tutti_status_t open_lesson(lesson_t *l)
{
    const int rank = tutti_group_rank(l->world);
    TUTTI_CHECK(tutti_group_split(l->world, rank / 2, rank, &l->pair));
    TUTTI_CHECK(tutti_module_create(l->ctx, &tutti_mlp_layer,
                                    &(tutti_mlp_options_t){.width = 1, .hidden = 32}, &l->net));
    TUTTI_CHECK(tutti_ddp_create(l->ctx, l->net, l->world, NULL, &l->ddp));
    const tutti_local_sgd_options_t local = {.subgroup = l->pair, .start_step = WARMUP};
    TUTTI_CHECK(tutti_ddp_set_hook(l->ddp, &tutti_local_sgd_hook, &local));
    const tutti_average_level_t levels[] = {{.period = 4, .group = l->pair},
                                            {.period = 16, .group = l->world}};
    TUTTI_CHECK(tutti_averager_create(levels, 2, WARMUP, &l->averager));
    TUTTI_CHECK(
        tutti_optim_create(l->ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.02}, &l->opt));
    return tutti_optim_add_module(l->opt, l->net, NULL, NULL);
}

static void close_lesson(lesson_t *l)
{
    tutti_averager_release(l->averager);
    tutti_optim_release(l->opt);
    tutti_ddp_release(l->ddp);
    tutti_module_release(l->net);
    tutti_group_release(l->pair);
}

static tutti_status_t step(lesson_t *l, double *loss)
{
    while (tutti_ddp_next_shard(l->ddp, l->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(l->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), -3, 3);
        tutti_tensor_t *y = tutti_forward(s, l->net, x);
        tutti_tensor_t *mean = tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN);
        (void)tutti_backward(s, mean);
        *loss = tutti_tensor_item(mean);
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(l->ddp));
    TUTTI_CHECK(tutti_optim_step(l->opt));
    return tutti_averager_step(l->averager, l->net);
}

static tutti_status_t train(lesson_t *l)
{
    char digest[TUTTI_DIGEST_BYTES];
    double loss = 0;
    for (int64_t number = 0; number < STEPS; number++) {
        tutti_context_set_step(l->ctx, number);
        TUTTI_CHECK(step(l, &loss));
    }
    TUTTI_CHECK(tutti_module_digest(l->net, digest)); // the last step averaged over all ranks
    printf("rank %d: loss %.4f, digest %s\n", tutti_group_rank(l->world), loss, digest);
    return TUTTI_OK;
}

int main(void)
{
    lesson_t lesson = {0};
    tutti_status_t status = tutti_init(NULL, &lesson.world);
    if (status >= 0) {
        status = tutti_context_create(&(tutti_context_options_t){.seed = 1}, &lesson.ctx);
    }
    if (status >= 0) {
        status = open_lesson(&lesson);
    }
    if (status >= 0) {
        status = train(&lesson);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    close_lesson(&lesson);
    tutti_context_release(lesson.ctx);
    tutti_group_release(lesson.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
