/* Lesson 15: an optimizer of your own. LARS gives each parameter steps in proportion to its own
 * size, so that a layer with large gradients does not run away (You, Gitman, Ginsburg 2017):
 *
 *     trust = eta ‖w‖ / (‖g‖ + decay ‖w‖),  b = momentum b + trust (g + decay w),  w -= lr b
 *
 *     build/bin/15_own_optimizer
 *
 * An optimizer is a table: its options, the names of its moments, and functions over a row of
 * elements. It is trained with a schedule and clipping, saved, and goes on from the file.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/own_optimizer.h>
#include <tutti/tensor.h>

/* ---- the optimizer ---- */

typedef struct {
    double lr, momentum, eta, weight_decay;
} lars_options_t;

/* Name, place, default, and range of each; a rate is wanted. */
static const tutti_optim_option_t lars_options[] = {
    {"lr", offsetof(lars_options_t, lr), 1, 0, INFINITY},
    {"momentum", offsetof(lars_options_t, momentum), 0.9, 0, 1},
    {"eta", offsetof(lars_options_t, eta), 0.02, 0, INFINITY},
    {"weight_decay", offsetof(lars_options_t, weight_decay), 1e-4, 0, INFINITY},
    {0},
};

/* A large parameter is measured in sections, by several threads; sums over all of it come back. */
static void measure(const tutti_optim_piece_t *section, double *sums)
{
    for (size_t i = 0; i < section->count; i++) {
        sums[0] += (double)section->weight[i] * (double)section->weight[i];
        sums[1] += (double)section->gradient[i] * (double)section->gradient[i];
    }
}

static void update(const tutti_optim_piece_t *piece)
{
    const lars_options_t *o = piece->options;
    const double weights = sqrt(piece->sums[0]), gradients = sqrt(piece->sums[1]);
    const double size = gradients + o->weight_decay * weights;
    const float trust = (float)(weights > 0 && size > 0 ? o->eta * weights / size : 1);
    const float momentum = (float)o->momentum, decay = (float)o->weight_decay;
    float *w = piece->weight, *b = piece->moments[0];
    for (size_t i = 0; i < piece->count; i++) {
        b[i] = momentum * b[i] + trust * (piece->gradient[i] + decay * w[i]);
        w[i] -= (float)piece->lr * b[i];
    }
}

static const tutti_optim_ops_t lars = {
    .name = "lars",
    .about = "steps in proportion to each parameter's size",
    .options_bytes = sizeof(lars_options_t),
    .options = lars_options,
    .moments = {"momentum_buffer"},
    .measure = measure,
    .update = update,
};

/* ---- training ---- */

enum { STEPS = 60, HALF = STEPS / 2, BATCH = 32, WIDTH = 16 };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
} training_t;

static tutti_status_t open_training(training_t *t, const tutti_optim_ops_t *kind)
{
    *t = (training_t){0};
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 7}, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_mlp_layer,
                                    &(tutti_mlp_options_t){.width = WIDTH}, &t->net));
    TUTTI_CHECK(tutti_optim_create(t->ctx, kind, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static void close_training(training_t *t)
{
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

/* Numbers of which the net shall give each the one behind it, in a ring. */
static tutti_status_t step(training_t *t, int64_t number, double *loss)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_context_set_step(t->ctx, number);
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH), 0, 1);
    tutti_tensor_t *wanted = tutti_empty(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH));
    const float *from = tutti_tensor_data(x);
    float *to = tutti_tensor_data(wanted);
    for (int i = 0; i < BATCH * WIDTH; i++) {
        to[i] = from[i / WIDTH * WIDTH + (i + 1) % WIDTH];
    }
    tutti_tensor_t *error = tutti_mse_loss(s, tutti_forward(s, t->net, x), wanted, TUTTI_LOSS_MEAN);
    *loss = tutti_tensor_item(error);
    tutti_optim_zero_grad(t->opt);
    const tutti_status_t status = tutti_backward(s, error);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static tutti_status_t train(training_t *t, int64_t first, int64_t end, double *loss)
{
    const tutti_schedule_t schedule = {
        .kind = TUTTI_SCHEDULE_WARMUP_COSINE, .lr = 1, .warmup_steps = 5, .total_steps = STEPS};
    for (int64_t number = first; number < end; number++) {
        TUTTI_CHECK(step(t, number, loss));
        TUTTI_CHECK(tutti_clip_grad_norm(t->opt, 1, 2, NULL));
        tutti_optim_set_lr(t->opt, tutti_schedule_lr(&schedule, number));
        TUTTI_CHECK(tutti_optim_step(t->opt));
    }
    return TUTTI_OK;
}

/* Half of the steps; the optimizer's state goes through a file; the other half. */
static tutti_status_t go_on(training_t *t, const char *path, double *loss)
{
    TUTTI_CHECK(train(t, 0, HALF, loss));
    TUTTI_CHECK(tutti_optim_save(t->opt, path));
    tutti_optim_release(t->opt);
    t->opt = NULL;
    TUTTI_CHECK(tutti_optim_create(t->ctx, &lars, NULL, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    TUTTI_CHECK(tutti_optim_load(t->opt, path));
    return train(t, HALF, STEPS, loss);
}

static tutti_status_t compare(training_t *whole, training_t *halves, training_t *other,
                              const char *path)
{
    double first, last, again;
    TUTTI_CHECK(open_training(whole, &lars));
    TUTTI_CHECK(step(whole, 0, &first));
    TUTTI_CHECK(train(whole, 0, STEPS, &last));
    printf("loss %.4f at first, %.4f after %d steps\n", first, last, STEPS);
    TUTTI_CHECK(open_training(halves, &lars));
    TUTTI_CHECK(go_on(halves, path, &again));
    char a[TUTTI_DIGEST_BYTES], b[TUTTI_DIGEST_BYTES];
    TUTTI_CHECK(tutti_module_digest(whole->net, a));
    TUTTI_CHECK(tutti_module_digest(halves->net, b));
    printf("through a file:  %s\n", strcmp(a, b) == 0 ? "the same bits" : "other bits");
    TUTTI_CHECK(open_training(other, &tutti_sgd));
    if (tutti_optim_load(other->opt, path) < 0) { /* as it should */
        printf("sgd says:        %s\n", tutti_last_error());
    }
    return TUTTI_OK;
}

int main(void)
{
    training_t whole = {0}, halves = {0}, other = {0};
    char path[64];
    snprintf(path, sizeof path, "/tmp/15_own_optimizer-%d.safetensors", (int)getpid());
    const tutti_status_t status = compare(&whole, &halves, &other, path);
    if (status < 0) {
        fprintf(stderr, "15_own_optimizer: %s\n", tutti_last_error());
    }
    (void)unlink(path);
    close_training(&whole);
    close_training(&halves);
    close_training(&other);
    return status < 0;
}
