/* Lesson 8: replicas of a model in one process, each with a thread and a core of its own.
 *
 *     build/bin/08_data_parallel           # two replicas
 *     build/bin/08_data_parallel 4
 *
 * The wrapper is a module: training looks as with one. It cuts each batch into chunks, runs all
 * replicas at once, and sums their gradients into the model, in one fixed order. For several
 * processes or hosts, and for most things, take DDP (lesson 5).
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/data_parallel.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { SAMPLES = 192, STEPS = 300 };

/* Makes the model, and each replica. */
static tutti_status_t build(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    (void)user;
    return tutti_module_create(ctx, &tutti_mlp_layer,
                               &(tutti_mlp_options_t){.width = 1, .hidden = 32}, out);
}

/* Learn the sine of x. */
static tutti_status_t train_step(tutti_context_t *ctx, tutti_module_t *model, tutti_optim_t *opt,
                                 double *loss)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), -3, 3);
    tutti_tensor_t *y = tutti_forward(s, model, x); // all replicas at once
    tutti_tensor_t *mean = tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN);
    (void)tutti_backward(s, mean); // again
    *loss = tutti_tensor_item(mean);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(tutti_optim_step(opt));
    tutti_optim_zero_grad(opt);
    return TUTTI_OK;
}

static tutti_status_t train(tutti_context_t *ctx, tutti_module_t *model)
{
    tutti_optim_t *opt;
    double loss = 0;
    TUTTI_CHECK(tutti_optim_create(ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.01}, &opt));
    tutti_status_t status = tutti_optim_add_module(opt, model, NULL, NULL);
    for (int64_t step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        status = train_step(ctx, model, opt, &loss);
    }
    tutti_optim_release(opt);
    if (status >= 0) {
        char digest[TUTTI_DIGEST_BYTES];
        TUTTI_CHECK(tutti_module_digest(model, digest));
        printf("%d replicas: the last loss is %.4f\ndigest %s\n",
               tutti_data_parallel_replicas(model), loss, digest);
    }
    return status;
}

static tutti_status_t lesson(tutti_context_t *ctx, int replicas)
{
    const tutti_data_parallel_options_t options = {.replicas = replicas, .build = build};
    tutti_module_t *net, *model = NULL;
    TUTTI_CHECK(build(ctx, NULL, &net));
    tutti_status_t status = tutti_data_parallel_create(net, &options, &model);
    if (status >= 0) {
        status = train(ctx, model);
    }
    tutti_module_release(model);
    tutti_module_release(net);
    return status;
}

int main(int argc, char **argv)
{
    tutti_context_t *ctx = NULL;
    const int replicas = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2;
    tutti_status_t status = tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx);
    if (status >= 0) {
        status = lesson(ctx, replicas);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_context_release(ctx);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
