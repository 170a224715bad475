/* Lesson 2 in C++: gradients, and a module of your own, which learns y = sin x by gradient descent.
 * A module's functions are called by C, so they return a status, as there.
 */
#include <cstdio>
#include <exception>

#include <tutti/tutti.hpp>

/* A module: state, options, init, forward. */
struct wave_t {
    tutti_module_t *hidden, *result; // the module owns its children
};

struct wave_options_t {
    int64_t width;
};

static tutti_status_t wave_init(tutti_module_t *m, const void *options)
{
    const auto *o = static_cast<const wave_options_t *>(options);
    auto *wave = static_cast<wave_t *>(tutti_module_state(m));
    tutti_linear_options_t hidden = {}, result = {};
    hidden.in = 1;
    hidden.out = result.in = o->width;
    result.out = 1;
    TUTTI_CHECK(tutti_module_new_child(m, "hidden", &tutti_linear_layer, &hidden, &wave->hidden));
    return tutti_module_new_child(m, "result", &tutti_linear_layer, &result, &wave->result);
}

static tutti_tensor_t *wave_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const auto *wave = static_cast<const wave_t *>(tutti_module_state(m));
    return tutti_forward(s, wave->result, tutti_tanh(s, tutti_forward(s, wave->hidden, x)));
}

static tutti_module_ops_t make_wave_layer()
{
    tutti_module_ops_t ops = {};
    ops.name = "wave";
    ops.about = "one hidden layer of tanh";
    ops.state_bytes = sizeof(wave_t);
    ops.init = wave_init;
    ops.forward = wave_forward;
    return ops;
}

static const tutti_module_ops_t wave_layer = make_wave_layer();

/* d(w²)/dw = 2 w */
static void by_hand(tutti_context_t *ctx)
{
    tutti::in_scope(ctx, [](tutti_scope_t *s) {
        tutti_tensor_t *w = tutti_full(s, TUTTI_F32, TUTTI_SCALAR, 3);
        tutti::check(tutti_tensor_set_requires_grad(w, true));
        tutti::check(tutti_backward(s, tutti_mul(s, w, w)));
        std::printf("d(w * w)/dw at 3 is %g\n", tutti_tensor_item(tutti_tensor_grad(w)));
    });
}

static double step(tutti_context_t *ctx, tutti_module_t *net)
{
    double loss = 0;
    tutti::in_scope(ctx, [&](tutti_scope_t *s) {
        tutti_tensor_t *x = tutti_unsqueeze(s, tutti_arange(s, TUTTI_F32, -3, 0.05, 121), 1);
        tutti_tensor_t *y = tutti_forward(s, net, x);
        tutti_tensor_t *error = tutti_mse_loss(s, y, tutti_sin(s, x), TUTTI_LOSS_MEAN);
        loss = tutti_tensor_item(error);
        tutti::check(tutti_backward(s, error));
    });
    return loss;
}

static void learn(tutti_context_t *ctx, tutti_module_t *net, tutti_optim_t *opt)
{
    tutti::check(tutti_optim_add_module(opt, net, nullptr, nullptr));
    for (int64_t i = 0; i <= 500; i++) {
        tutti_context_set_step(ctx, i);
        const double loss = step(ctx, net);
        tutti::check(tutti_optim_step(opt));
        tutti_optim_zero_grad(opt);
        if (i % 100 == 0) {
            std::printf("step %3d  mean squared error %.5f\n", static_cast<int>(i), loss);
        }
    }
}

int main()
{
    try {
        tutti_context_options_t seeded = {};
        seeded.seed = 1;
        const wave_options_t wave = {32};
        tutti_adam_options_t adam = {};
        adam.lr = 0.02;
        auto ctx = tutti::make(tutti_context_create, &seeded);
        by_hand(ctx);
        auto net = tutti::make(tutti_module_create, ctx, &wave_layer, &wave);
        auto opt = tutti::make(tutti_optim_create, ctx, &tutti_adam, &adam);
        learn(ctx, net, opt);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
