/* Lesson 3: train and test. An MLP learns to tell ten kinds of clothes apart (Fashion-MNIST, 60,000
 * pictures of 28 × 28; `apt install dataset-fashion-mnist`), and is tested on 10,000 others.
 *
 *     03_train --steps 2000
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/data_files.h>
#include <tutti/dataloader.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/options.h>

/* What main makes and releases. */
typedef struct {
    const char *data;
    int64_t steps, threads;
    tutti_context_t *ctx;
    tutti_dataset_t *train, *test;
    tutti_dataloader_t *train_loader, *test_loader;
    tutti_module_t *net;
    tutti_optim_t *opt;
} program_t;

static const tutti_option_t table[] = {
    {"data", 'd', TUTTI_OPTION_TEXT, offsetof(program_t, data), "DIR", NULL, 0, 0, "of the files"},
    {"steps", 'n', TUTTI_OPTION_INT, offsetof(program_t, steps), "N", NULL, 1, 1e9, "to train"},
    {"threads", 't', TUTTI_OPTION_INT, offsetof(program_t, threads), "N", NULL, 0, 256, "0: all"},
    {0}};

static tutti_status_t open_data(const char *folder, const char *kind, tutti_dataset_t **out)
{
    char images[512], labels[512];
    snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte.gz", folder, kind);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte.gz", folder, kind);
    return tutti_dataset_create(&tutti_idx_dataset, &(tutti_idx_options_t){images, labels}, out);
}

static tutti_status_t prepare(program_t *p)
{
    const tutti_context_options_t context = {.threads = (int)p->threads};
    const tutti_dataloader_options_t shuffled = {.batch = 128, .shuffle = true, .endless = true};
    const tutti_dataloader_options_t in_order = {.batch = 500};
    const tutti_linear_options_t hidden = {
        .in = 784, .out = 256, .activation = TUTTI_ACTIVATION_GELU};
    const tutti_linear_options_t result = {.in = 256, .out = 10};
    TUTTI_CHECK(tutti_context_create(&context, &p->ctx));
    TUTTI_CHECK(open_data(p->data, "train", &p->train));
    TUTTI_CHECK(open_data(p->data, "t10k", &p->test));
    TUTTI_CHECK(tutti_dataloader_create(p->train, &shuffled, &p->train_loader));
    TUTTI_CHECK(tutti_dataloader_create(p->test, &in_order, &p->test_loader));
    TUTTI_CHECK(tutti_module_create(p->ctx, &tutti_sequential_layer, NULL, &p->net));
    TUTTI_CHECK(tutti_sequential_add(p->net, &tutti_linear_layer, &hidden, NULL));
    TUTTI_CHECK(tutti_sequential_add(p->net, &tutti_linear_layer, &result, NULL));
    TUTTI_CHECK(tutti_optim_create(p->ctx, &tutti_adamw, NULL, &p->opt));
    return tutti_optim_add_module(p->opt, p->net, NULL, NULL);
}

/* u8 [B, 28, 28] -> logits [B, 10] */
static tutti_tensor_t *classify(tutti_scope_t *s, const program_t *p, tutti_tensor_t *images)
{
    tutti_tensor_t *x = tutti_flatten(s, tutti_cast(s, images, TUTTI_F32), 1, 2);
    return tutti_forward(s, p->net, tutti_sub_scalar(s, tutti_div_scalar(s, x, 127.5), 1));
}

static tutti_status_t train_step(program_t *p, double *loss)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(p->ctx, &s));
    (void)tutti_dataloader_next(p->train_loader, s, &batch); /* failures stay in the scope */
    tutti_tensor_t *error = tutti_cross_entropy(s, classify(s, p, batch.input), batch.target);
    *loss = tutti_tensor_item(error);
    (void)tutti_backward(s, error);
    return tutti_scope_close(s);
}

static tutti_status_t train(program_t *p)
{
    const tutti_schedule_t cosine = {TUTTI_SCHEDULE_COSINE, .lr = 2e-3, .total_steps = p->steps};
    for (int64_t step = 0; step < p->steps; step++) {
        double loss;
        tutti_context_set_step(p->ctx, step);
        TUTTI_CHECK(train_step(p, &loss));
        tutti_optim_set_lr(p->opt, tutti_schedule_lr(&cosine, step));
        TUTTI_CHECK(tutti_optim_step(p->opt));
        tutti_optim_zero_grad(p->opt);
        if (step % 200 == 0 || step + 1 == p->steps) {
            printf("step %5lld  loss %.4f\n", (long long)step, loss);
        }
    }
    return TUTTI_OK;
}

/* Adds what was guessed right; END behind the last batch. */
static tutti_status_t test_step(program_t *p, double *right)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(p->ctx, &s));
    const tutti_status_t status = tutti_dataloader_next(p->test_loader, s, &batch);
    if (status == TUTTI_OK) {
        tutti_tensor_t *guess = tutti_argmax(s, classify(s, p, batch.input), -1, false);
        *right += tutti_tensor_item(tutti_sum(s, tutti_eq(s, guess, batch.target)));
    }
    TUTTI_CHECK(tutti_scope_close(s));
    return status;
}

static tutti_status_t test(program_t *p)
{
    tutti_status_t status = TUTTI_OK;
    double right = 0;
    (void)tutti_context_set_grad_enabled(p->ctx, false);
    while (status == TUTTI_OK) {
        status = test_step(p, &right);
    }
    TUTTI_CHECK(status);
    printf("test accuracy %.2f %%\n", 100 * right / (double)tutti_dataset_info(p->test).count);
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    program_t p = {.data = "/usr/share/datasets/fashion-mnist", .steps = 2000};
    char help[1024];
    const tutti_status_t parsed = tutti_options_parse(table, argc, argv, &p, NULL);
    if (parsed == TUTTI_END) {
        (void)tutti_options_help(table, &p, help, sizeof help);
        printf("%s", help);
        return EXIT_SUCCESS;
    }
    const bool done = parsed >= 0 && prepare(&p) >= 0 && train(&p) >= 0 && test(&p) >= 0;
    if (!done) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_optim_release(p.opt);
    tutti_module_release(p.net);
    tutti_dataloader_release(p.test_loader);
    tutti_dataloader_release(p.train_loader);
    tutti_dataset_release(p.test);
    tutti_dataset_release(p.train);
    tutti_context_release(p.ctx);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
