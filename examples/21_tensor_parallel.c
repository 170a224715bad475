/* Lesson 21: a model that no rank has whole.
 *
 *     build/bin/21_tensor_parallel                     # one rank, four shards
 *     tutti run -n 2 build/bin/21_tensor_parallel      # two ranks with two shards each
 *     tutti run -n 4 build/bin/21_tensor_parallel
 *     tutti run -n 3 build/bin/21_tensor_parallel      # one of them has two
 *     tutti run -n 4 build/bin/21_tensor_parallel sequence
 *
 * Every rank makes the same small GPT from one seed, and tutti_parallelize() leaves each its part:
 * some heads of an attention, some columns of an MLP, some rows of the vocabulary. All of them see
 * the same batch, and the sums in which their parts meet are made of four shards whatever the
 * number of ranks, so the last line is the same for all five commands.
 *
 *                     x                x: whole on every rank (or, with "sequence", a part of
 *         up   a      |      b           the positions)
 *              gelu(x aᵀ)  gelu(x bᵀ)  what is cut: columns here, rows below
 *         down c      |      d
 *              y = (… cᵀ) + (… dᵀ)     the sum: a call between the ranks
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/autograd.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>
#include <tutti/optim.h>
#include <tutti/tensor_parallel.h>

enum { SHARDS = 4, VOCAB = 32, BATCH = 4, LENGTH = 16, STEPS = 20 };

typedef struct {
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *gpt;
    tutti_optim_t *opt;
    bool sequence;
} training_t;

static tutti_status_t open_training(training_t *t)
{
    const tutti_gpt_options_t gpt = {
        .layers = 2, .width = 32, .heads = 4, .context = LENGTH, .vocab = VOCAB};
    const tutti_parallel_options_t cut = {.shards = SHARDS, .sequence = t->sequence};
    const tutti_context_options_t context = {.threads = 1, .seed = 7};
    TUTTI_CHECK(tutti_init(NULL, &t->world));
    TUTTI_CHECK(tutti_context_create(&context, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_gpt_layer, &gpt, &t->gpt));
    const int64_t whole = tutti_module_numel(t->gpt);
    TUTTI_CHECK(tutti_parallelize(t->gpt, t->world, &cut));
    printf("rank %d has %lld of %lld parameters\n", tutti_group_rank(t->world),
           (long long)tutti_module_numel(t->gpt), (long long)whole);
    TUTTI_CHECK(
        tutti_optim_create(t->ctx, &tutti_adamw, &(tutti_adamw_options_t){.lr = 0.01}, &t->opt));
    return tutti_optim_add_module(t->opt, t->gpt, NULL, NULL);
}

/* Rows that count upwards by 1, 2, 3 or 4: the next number is what is to be learned. */
static tutti_tensor_t *count_up(tutti_scope_t *s, int64_t step, int64_t ahead)
{
    uint8_t numbers[BATCH * LENGTH];
    for (int64_t i = 0; i < (int64_t)sizeof numbers; i++) {
        const int64_t row = i / LENGTH, at = i % LENGTH;
        numbers[i] = (uint8_t)((step * 5 + (row + 1) * (at + ahead)) % VOCAB);
    }
    return tutti_from_data(s, TUTTI_U8, TUTTI_SHAPE(BATCH, LENGTH), numbers);
}

static tutti_status_t train_step(const training_t *t, int64_t step, double *loss)
{
    const tutti_parallel_loss_options_t classes = {
        .group = t->world, .shards = SHARDS, .classes = VOCAB};
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *logits = tutti_forward(s, t->gpt, count_up(s, step, 0)); // some of the classes
    tutti_tensor_t *mean = tutti_parallel_cross_entropy(s, logits, count_up(s, step, 1), &classes);
    (void)tutti_backward(s, mean);
    *loss = tutti_tensor_item(mean);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(tutti_clip_grad_norm(t->opt, 1, 2, NULL));
    TUTTI_CHECK(tutti_optim_step(t->opt));
    tutti_optim_zero_grad(t->opt);
    return TUTTI_OK;
}

static tutti_status_t train(training_t *t)
{
    double loss = 0;
    char digest[TUTTI_DIGEST_BYTES];
    TUTTI_CHECK(open_training(t));
    for (int64_t step = 0; step < STEPS; step++) {
        TUTTI_CHECK(train_step(t, step, &loss));
    }
    TUTTI_CHECK(tutti_parallel_digest(t->gpt, digest));
    if (tutti_group_rank(t->world) == 0) {
        printf("loss %.6f digest %s\n", loss, digest);
    }
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    training_t t = {.sequence = argc > 1 && strcmp(argv[1], "sequence") == 0};
    const tutti_status_t status = train(&t);
    if (status < 0) {
        fprintf(stderr, "21_tensor_parallel: %s\n", tutti_last_error());
    }
    tutti_optim_release(t.opt);
    tutti_module_release(t.gpt);
    tutti_context_release(t.ctx);
    tutti_group_release(t.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
