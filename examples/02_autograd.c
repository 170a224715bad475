/* Lesson 2: gradients, and a module of your own.
 *
 * Operations on tensors that need a gradient are recorded; tutti_backward() goes through the record
 * and leaves the gradients at the parameters. Here a net of one hidden layer, written below as a
 * module, learns y = sin x by gradient descent.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

/* A module: state, options, init, forward. */
typedef struct {
    tutti_module_t *hidden, *result;
} wave_t;

typedef struct {
    int64_t width;
} wave_options_t;

static tutti_status_t wave_init(tutti_module_t *m, const void *options)
{
    const wave_options_t *o = options;
    wave_t *wave = tutti_module_state(m);
    const tutti_linear_options_t hidden = {.in = 1, .out = o->width};
    const tutti_linear_options_t result = {.in = o->width, .out = 1};
    TUTTI_CHECK(tutti_module_new_child(m, "hidden", &tutti_linear_layer, &hidden, &wave->hidden));
    return tutti_module_new_child(m, "result", &tutti_linear_layer, &result, &wave->result);
}

static tutti_tensor_t *wave_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const wave_t *wave = tutti_module_state(m);
    return tutti_forward(s, wave->result, tutti_tanh(s, tutti_forward(s, wave->hidden, x)));
}

static const tutti_module_ops_t wave_layer = {.name = "wave",
                                              .about = "one hidden layer of tanh",
                                              .state_bytes = sizeof(wave_t),
                                              .init = wave_init,
                                              .forward = wave_forward};

/* d(w²)/dw = 2 w */
static tutti_status_t by_hand(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *w = tutti_full(s, TUTTI_F32, TUTTI_SCALAR, 3);
    TUTTI_CHECK(tutti_tensor_set_requires_grad(w, true));
    TUTTI_CHECK(tutti_backward(s, tutti_mul(s, w, w)));
    printf("d(w * w)/dw at 3 is %g\n", tutti_tensor_item(tutti_tensor_grad(w)));
    return tutti_scope_close(s);
}

static tutti_status_t step(tutti_context_t *ctx, tutti_module_t *net, double *loss)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_unsqueeze(s, tutti_arange(s, TUTTI_F32, -3, 0.05, 121), 1);
    tutti_tensor_t *y = tutti_forward(s, net, x);
    tutti_tensor_t *error = tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN);
    *loss = tutti_tensor_item(error);
    (void)tutti_backward(s, error); /* the scope knows if it failed */
    return tutti_scope_close(s);
}

static tutti_status_t learn(tutti_context_t *ctx, tutti_module_t *net, tutti_optim_t *opt)
{
    TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
    for (int64_t i = 0; i <= 500; i++) {
        double loss;
        tutti_context_set_step(ctx, i);
        TUTTI_CHECK(step(ctx, net, &loss));
        TUTTI_CHECK(tutti_optim_step(opt));
        tutti_optim_zero_grad(opt);
        if (i % 100 == 0) {
            printf("step %3d  mean squared error %.5f\n", (int)i, loss);
        }
    }
    return TUTTI_OK;
}

int main(void)
{
    tutti_context_t *ctx = NULL;
    tutti_module_t *net = NULL;
    tutti_optim_t *opt = NULL;
    const bool done =
        tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx) >= 0 &&
        by_hand(ctx) >= 0 &&
        tutti_module_create(ctx, &wave_layer, &(wave_options_t){.width = 32}, &net) >= 0 &&
        tutti_optim_create(ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.02}, &opt) >= 0 &&
        learn(ctx, net, opt) >= 0;
    if (!done) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_context_release(ctx);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
