/* The networks, as lists of layers. Parameters are called as in a PyTorch Sequential of the same
 * layers: "0.weight" … A batch norm with relu is one layer. */
#include "fashion.h"

#include <stdio.h>

static const tutti_activation_options_t relu = {.kind = TUTTI_ACTIVATION_RELU};

typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
} layer_t;

static tutti_status_t stack(tutti_module_t *net, const layer_t *layers)
{
    for (; layers->ops != NULL; layers++) {
        TUTTI_CHECK(tutti_sequential_add(net, layers->ops, layers->options, NULL));
    }
    return TUTTI_OK;
}

static tutti_status_t stack_mlp(tutti_module_t *net, float dropout)
{
    return stack(net, (layer_t[]){
                          {&tutti_flatten_layer, NULL},
                          {&tutti_linear_layer, &(tutti_linear_options_t){.in = 784, .out = 256}},
                          {&tutti_activation_layer, &relu},
                          {&tutti_dropout_layer, &(tutti_dropout_options_t){dropout}},
                          {&tutti_linear_layer, &(tutti_linear_options_t){.in = 256, .out = 128}},
                          {&tutti_activation_layer, &relu},
                          {&tutti_linear_layer, &(tutti_linear_options_t){.in = 128, .out = KINDS}},
                          {NULL, NULL},
                      });
}

static tutti_conv_layer_options_t conv3x3(int64_t in, int64_t out, int64_t stride)
{
    return (tutti_conv_layer_options_t){.in = in,
                                        .out = out,
                                        .kernel = {3, 3},
                                        .move = {.stride = {stride, stride}, .padding = {1, 1}}};
}

/* Of four neighbours, the greatest is chosen before negative ones become 0: the same function as
 * the other way round, at a quarter of the work. */
static tutti_status_t stack_cnn(tutti_module_t *net, float dropout)
{
    const tutti_conv_layer_options_t wide = conv3x3(1, 32, 1), deep = conv3x3(32, 64, 1);
    const tutti_pool_options_t half = {.kernel = {2, 2}};
    return stack(net, (layer_t[]){
                          {&tutti_conv2d_layer, &wide}, /* [N, 32, 28, 28] */
                          {&tutti_max_pool2d_layer, &half},
                          {&tutti_activation_layer, &relu},
                          {&tutti_conv2d_layer, &deep}, /* [N, 64, 14, 14] */
                          {&tutti_max_pool2d_layer, &half},
                          {&tutti_activation_layer, &relu},
                          {&tutti_flatten_layer, NULL},
                          {&tutti_linear_layer, &(tutti_linear_options_t){.in = 3136, .out = 128}},
                          {&tutti_activation_layer, &relu},
                          {&tutti_dropout_layer, &(tutti_dropout_options_t){dropout}},
                          {&tutti_linear_layer, &(tutti_linear_options_t){.in = 128, .out = KINDS}},
                          {NULL, NULL},
                      });
}

/* ---- a residual network of 20 layers ------------------------------------------------------- */

typedef struct {
    int64_t in, out, stride;
} block_options_t;

/* "shortcut" is there where shapes change. Names are those of torchvision's BasicBlock, which calls
 * it "downsample". */
typedef struct {
    tutti_module_t *conv1, *bn1, *conv2, *bn2, *shortcut;
} block_t;

/* Without a bias: the norm behind it has one, and does the relu, too. */
static tutti_status_t add_conv(tutti_module_t *to, tutti_conv_layer_options_t options,
                               bool has_relu)
{
    const tutti_batch_norm_layer_options_t norm = {.width = options.out, .relu = has_relu};
    options.no_bias = true;
    return stack(to, (layer_t[]){{&tutti_conv2d_layer, &options},
                                 {&tutti_batch_norm_layer, &norm},
                                 {NULL, NULL}});
}

static tutti_status_t block_init(tutti_module_t *m, const void *options)
{
    const block_options_t *o = options;
    block_t *block = tutti_module_state(m);
    const tutti_batch_norm_layer_options_t norm = {.width = o->out, .relu = true};
    tutti_conv_layer_options_t conv = conv3x3(o->in, o->out, o->stride);
    conv.no_bias = true;
    TUTTI_CHECK(tutti_module_new_child(m, "conv1", &tutti_conv2d_layer, &conv, &block->conv1));
    TUTTI_CHECK(tutti_module_new_child(m, "bn1", &tutti_batch_norm_layer, &norm, &block->bn1));
    conv = conv3x3(o->out, o->out, 1);
    conv.no_bias = true;
    TUTTI_CHECK(tutti_module_new_child(m, "conv2", &tutti_conv2d_layer, &conv, &block->conv2));
    TUTTI_CHECK(tutti_module_new_child(m, "bn2", &tutti_batch_norm_layer, &norm, &block->bn2));
    if (o->in == o->out) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(
        tutti_module_new_child(m, "shortcut", &tutti_sequential_layer, NULL, &block->shortcut));
    return add_conv(block->shortcut,
                    (tutti_conv_layer_options_t){.in = o->in,
                                                 .out = o->out,
                                                 .kernel = {1, 1},
                                                 .move = {.stride = {o->stride, o->stride}}},
                    false);
}

static tutti_tensor_t *block_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const block_t *block = tutti_module_state(m);
    tutti_tensor_t *y = tutti_forward(s, block->bn1, tutti_forward(s, block->conv1, x));
    y = tutti_forward(s, block->conv2, y);
    tutti_tensor_t *same = block->shortcut == NULL ? x : tutti_forward(s, block->shortcut, x);
    tutti_forward_many(s, block->bn2, (tutti_tensor_t *[]){y, same}, 2, &y, 1);
    return y; /* relu(bn2(y) + same) */
}

static const tutti_module_ops_t residual_block = {
    .name = "residual_block",
    .about = "two convolutions beside a shortcut",
    .state_bytes = sizeof(block_t),
    .init = block_init,
    .forward = block_forward,
};

/* He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2, with n = 3. */
static tutti_status_t stack_resnet(tutti_module_t *net, float dropout)
{
    enum { STAGES = 3, BLOCKS = 3, WIDTH = 16 };
    TUTTI_CHECK(add_conv(net, conv3x3(1, WIDTH, 1), true));
    int64_t width = WIDTH;
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < BLOCKS; i++) {
            const bool is_smaller = stage > 0 && i == 0;
            const block_options_t block = {
                .in = is_smaller ? width / 2 : width, .out = width, .stride = is_smaller ? 2 : 1};
            TUTTI_CHECK(tutti_sequential_add(net, &residual_block, &block, NULL));
        }
        width *= 2;
    }
    return stack(net, (layer_t[]){
                          {&tutti_adaptive_avg_pool2d_layer,
                           &(tutti_adaptive_pool_options_t){.size = {1, 1}}},
                          {&tutti_flatten_layer, NULL},
                          {&tutti_dropout_layer, &(tutti_dropout_options_t){dropout}},
                          {&tutti_linear_layer, &(tutti_linear_options_t){.in = 64, .out = KINDS}},
                          {NULL, NULL},
                      });
}

tutti_status_t fashion_open_net(session_t *session)
{
    const settings_t *settings = &session->settings;
    tutti_status_t (*const stacks[])(tutti_module_t *, float) = {stack_mlp, stack_cnn,
                                                                 stack_resnet};
    TUTTI_CHECK(tutti_module_create(session->ctx, &tutti_sequential_layer, NULL, &session->net));
    TUTTI_CHECK(stacks[settings->model](session->net, (float)settings->dropout));
    /* What a training keeps beside weights. */
    static const char *const others[] = {"optim.*", "averaged.*"};
    const tutti_load_options_t loading = {.exclude = others, .exclude_count = 2, .cast = true};
    const tutti_checkpoint_t checkpoint = {.group = session->world, .module = session->net};
    return settings->load == NULL || settings->modules
               ? TUTTI_OK
               : tutti_checkpoint_load_from(&checkpoint, settings->load, &loading);
}

tutti_status_t fashion_print_modules(const session_t *session)
{
    tutti_scope_t *s;
    tutti_buffer_t text;
    if (session->rank != 0) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    tutti_tensor_t *pictures =
        tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(session->settings.batch, 1, 28, 28));
    const tutti_status_t status = tutti_module_summary(
        session->net, &(tutti_summary_options_t){.inputs = &pictures, .input_count = 1}, &text);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(status);
    fwrite(text.data, 1, text.bytes, stdout);
    tutti_buffer_release(&text);
    return TUTTI_OK;
}
