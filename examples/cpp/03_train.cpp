/* Lesson 3 in C++: train and test. An MLP learns to tell ten kinds of clothes apart (Fashion-MNIST;
 * `apt install dataset-fashion-mnist`), and is tested on pictures that it has not seen.
 *
 *     03_train --steps 2000
 */
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

#include <tutti/tutti.hpp>

struct settings_t {
    const char *data;
    int64_t steps, threads;
};

static const tutti_option_t table[] = {
    {"data", 'd', TUTTI_OPTION_TEXT, offsetof(settings_t, data), "DIR", nullptr, 0, 0,
     "of the files"},
    {"steps", 'n', TUTTI_OPTION_INT, offsetof(settings_t, steps), "N", nullptr, 1, 1e9, "to train"},
    {"threads", 't', TUTTI_OPTION_INT, offsetof(settings_t, threads), "N", nullptr, 0, 256,
     "0: all"},
    {}};

/* Released in the opposite order. */
struct program_t {
    tutti::owner<tutti_context_t> ctx;
    tutti::owner<tutti_dataset_t> train, test;
    tutti::owner<tutti_dataloader_t> train_loader, test_loader;
    tutti::owner<tutti_module_t> net;
    tutti::owner<tutti_optim_t> opt;
};

static tutti::owner<tutti_dataset_t> open_data(const std::string &folder, const std::string &kind)
{
    const std::string images = folder + "/" + kind + "-images-idx3-ubyte.gz";
    const std::string labels = folder + "/" + kind + "-labels-idx1-ubyte.gz";
    tutti_idx_options_t options = {};
    options.inputs = images.c_str();
    options.targets = labels.c_str();
    return tutti::make(tutti_dataset_create, &tutti_idx_dataset, &options);
}

static void add_layer(tutti_module_t *net, int64_t in, int64_t out, tutti_activation_t activation)
{
    tutti_linear_options_t options = {};
    options.in = in;
    options.out = out;
    options.activation = activation;
    tutti::check(tutti_sequential_add(net, &tutti_linear_layer, &options, nullptr));
}

static program_t prepare(const settings_t &settings)
{
    program_t p;
    tutti_context_options_t context = {};
    context.threads = static_cast<int>(settings.threads);
    tutti_dataloader_options_t shuffled = {}, in_order = {};
    shuffled.batch = 128;
    shuffled.shuffle = shuffled.endless = true;
    in_order.batch = 500;
    p.ctx = tutti::make(tutti_context_create, &context);
    p.train = open_data(settings.data, "train");
    p.test = open_data(settings.data, "t10k");
    p.train_loader = tutti::make(tutti_dataloader_create, p.train, &shuffled);
    p.test_loader = tutti::make(tutti_dataloader_create, p.test, &in_order);
    p.net = tutti::make(tutti_module_create, p.ctx, &tutti_sequential_layer, nullptr);
    add_layer(p.net, 784, 256, TUTTI_ACTIVATION_GELU);
    add_layer(p.net, 256, 10, TUTTI_ACTIVATION_DEFAULT);
    p.opt = tutti::make(tutti_optim_create, p.ctx, &tutti_adamw, nullptr);
    tutti::check(tutti_optim_add_module(p.opt, p.net, nullptr, nullptr));
    return p;
}

/* u8 [B, 28, 28] -> logits [B, 10] */
static tutti_tensor_t *classify(tutti_scope_t *s, const program_t &p, tutti_tensor_t *images)
{
    tutti_tensor_t *x = tutti_flatten(s, tutti_cast(s, images, TUTTI_F32), 1, 2);
    return tutti_forward(s, p.net, tutti_sub_scalar(s, tutti_div_scalar(s, x, 127.5), 1));
}

static double train_step(const program_t &p)
{
    double loss = 0;
    tutti::in_scope(p.ctx, [&](tutti_scope_t *s) {
        tutti_batch_t batch;
        tutti::check(tutti_dataloader_next(p.train_loader, s, &batch));
        tutti_tensor_t *error = tutti_cross_entropy(s, classify(s, p, batch.input), batch.target);
        loss = tutti_tensor_item(error);
        tutti::check(tutti_backward(s, error));
    });
    return loss;
}

static void train(const program_t &p, int64_t steps)
{
    tutti_schedule_t cosine = {};
    cosine.kind = TUTTI_SCHEDULE_COSINE;
    cosine.lr = 2e-3;
    cosine.total_steps = steps;
    for (int64_t step = 0; step < steps; step++) {
        tutti_context_set_step(p.ctx, step);
        const double loss = train_step(p);
        tutti_optim_set_lr(p.opt, tutti_schedule_lr(&cosine, step));
        tutti::check(tutti_optim_step(p.opt));
        tutti_optim_zero_grad(p.opt);
        if (step % 200 == 0 || step + 1 == steps) {
            std::printf("step %5lld  loss %.4f\n", static_cast<long long>(step), loss);
        }
    }
}

/* Adds what was guessed right; false behind the last batch. */
static bool test_step(const program_t &p, double *right)
{
    bool has_batch = false;
    tutti::in_scope(p.ctx, [&](tutti_scope_t *s) {
        tutti_batch_t batch;
        has_batch = tutti::check(tutti_dataloader_next(p.test_loader, s, &batch)) == TUTTI_OK;
        if (has_batch) {
            tutti_tensor_t *guess = tutti_argmax(s, classify(s, p, batch.input), -1, false);
            *right += tutti_tensor_item(tutti_sum(s, tutti_eq(s, guess, batch.target)));
        }
    });
    return has_batch;
}

static void test(const program_t &p)
{
    double right = 0;
    (void)tutti_context_set_grad_enabled(p.ctx, false);
    while (test_step(p, &right)) {
    }
    const auto count = static_cast<double>(tutti_dataset_info(p.test).count);
    std::printf("test accuracy %.2f %%\n", 100 * right / count);
}

int main(int argc, char **argv)
{
    try {
        settings_t settings = {"/usr/share/datasets/fashion-mnist", 2000, 0};
        if (tutti::check(tutti_options_parse(table, argc, argv, &settings, nullptr)) == TUTTI_END) {
            char help[1024];
            (void)tutti_options_help(table, &settings, help, sizeof help);
            std::printf("%s", help);
            return 0;
        }
        const program_t p = prepare(settings);
        train(p, settings.steps);
        test(p);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
