/* Lesson 17: one network on two devices of a process, and a pipeline between them.
 *
 *     build/bin/17_two_devices            # splits of 32, 16, 8, 4 and 2 pictures
 *     build/bin/17_two_devices 8          # that one alone
 *
 * The first half of a residual network lies on strict:0, the second one on strict:1: what one
 * device has no memory for, two have. tutti_tensor_to() takes activations across, and autograd
 * takes their gradients back. But then one device waits while the other one computes:
 *
 *     strict:0   | first half |                                    a batch at once
 *     strict:1                | second half |
 *
 *     strict:0   | 1 | 2 | 3 | 4 |                                 in splits: launches do not wait,
 *     strict:1       | 1 | 2 | 3 | 4 |                             so both work at a time
 *
 * Strict devices are threads of this process that behave as GPUs do, with a cost for each launch
 * and each copied byte. Smaller splits overlap more, and have more launches: one size is the best.
 * build/bench/device_timeline shows where the time of a step goes.
 *
 * Source: the PyTorch tutorial "Single-Machine Model Parallel Best Practices".
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/devices.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

enum { BATCH = 32, SIDE = 32, WIDTH = 32, BLOCKS = 4, KINDS = 10, STEPS = 5 };

/* ---- the network ----------------------------------------------------------------------------- */

typedef struct {
    tutti_module_t *conv1, *bn1, *conv2, *bn2;
} block_t;

static tutti_status_t block_init(tutti_module_t *m, const void *options)
{
    const int64_t width = *(const int64_t *)options;
    block_t *block = tutti_module_state(m);
    const tutti_batch_norm_layer_options_t norm = {.width = width, .relu = true};
    const tutti_conv_layer_options_t conv = {
        .in = width, .out = width, .kernel = {3, 3}, .move = {.padding = {1, 1}}, .no_bias = true};
    TUTTI_CHECK(tutti_module_new_child(m, "conv1", &tutti_conv2d_layer, &conv, &block->conv1));
    TUTTI_CHECK(tutti_module_new_child(m, "bn1", &tutti_batch_norm_layer, &norm, &block->bn1));
    TUTTI_CHECK(tutti_module_new_child(m, "conv2", &tutti_conv2d_layer, &conv, &block->conv2));
    return tutti_module_new_child(m, "bn2", &tutti_batch_norm_layer, &norm, &block->bn2);
}

static tutti_tensor_t *block_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const block_t *block = tutti_module_state(m);
    tutti_tensor_t *y = tutti_forward(s, block->bn1, tutti_forward(s, block->conv1, x));
    y = tutti_forward(s, block->conv2, y);
    tutti_forward_many(s, block->bn2, (tutti_tensor_t *[]){y, x}, 2, &y, 1);
    return y; // relu(bn2(y) + x)
}

static const tutti_module_ops_t residual_block = {.name = "residual_block",
                                                  .state_bytes = sizeof(block_t),
                                                  .init = block_init,
                                                  .forward = block_forward};

/* A convolution of 3 x 3 from `in` to `out` channels, then blocks. */
static tutti_status_t add_blocks(tutti_module_t *half, int64_t in, int64_t out, int64_t stride)
{
    const tutti_conv_layer_options_t conv = {
        .in = in,
        .out = out,
        .kernel = {3, 3},
        .move = {.stride = {stride, stride}, .padding = {1, 1}}};
    TUTTI_CHECK(tutti_sequential_add(half, &tutti_conv2d_layer, &conv, NULL));
    for (int i = 0; i < BLOCKS; i++) {
        TUTTI_CHECK(tutti_sequential_add(half, &residual_block, &out, NULL));
    }
    return TUTTI_OK;
}

typedef struct {
    tutti_module_t *first, *second; // "first.0.weight" …
} halves_t;

static tutti_status_t net_init(tutti_module_t *m, const void *options)
{
    (void)options;
    halves_t *net = tutti_module_state(m);
    const tutti_adaptive_pool_options_t one = {.size = {1, 1}};
    const tutti_linear_options_t head = {.in = 2 * WIDTH, .out = KINDS};
    TUTTI_CHECK(tutti_module_new_child(m, "first", &tutti_sequential_layer, NULL, &net->first));
    TUTTI_CHECK(tutti_module_new_child(m, "second", &tutti_sequential_layer, NULL, &net->second));
    TUTTI_CHECK(add_blocks(net->first, 3, WIDTH, 1));
    TUTTI_CHECK(add_blocks(net->second, WIDTH, 2 * WIDTH, 2));
    TUTTI_CHECK(tutti_sequential_add(net->second, &tutti_adaptive_avg_pool2d_layer, &one, NULL));
    TUTTI_CHECK(tutti_sequential_add(net->second, &tutti_flatten_layer, NULL, NULL));
    return tutti_sequential_add(net->second, &tutti_linear_layer, &head, NULL);
}

static const tutti_module_ops_t net_ops = {
    .name = "two_halves", .state_bytes = sizeof(halves_t), .init = net_init};

/* ---- a step ---------------------------------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_device_t *devices[2]; // NULL: the host
    tutti_module_t *net;
    tutti_optim_t *opt;
} session_t;

/* While the second device works at a split, the first one is given the next. */
static tutti_tensor_t *forward(tutti_scope_t *s, const session_t *session, tutti_tensor_t *x,
                               int64_t split)
{
    const halves_t *net = tutti_module_state(session->net);
    tutti_tensor_t *outputs[BATCH];
    int count = 0;
    for (int64_t at = 0; at < BATCH; at += split) {
        tutti_tensor_t *part = tutti_narrow(s, x, 0, at, split);
        part = tutti_tensor_to(s, tutti_forward(s, net->first, part), session->devices[1]);
        outputs[count++] = tutti_forward(s, net->second, part);
    }
    return tutti_cat(s, outputs, count, 0);
}

static tutti_status_t train_step(const session_t *session, int64_t split)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s)); // whose own device is the first
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, 3, SIDE, SIDE), -1, 1);
    tutti_tensor_t *kinds = tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(BATCH), 0, KINDS);
    kinds = tutti_tensor_to(s, kinds, session->devices[1]);
    tutti_tensor_t *y = forward(s, session, x, split);
    (void)tutti_backward(s, tutti_cross_entropy(s, y, kinds));
    TUTTI_CHECK(tutti_scope_close(s)); // which does not wait either
    TUTTI_CHECK(tutti_optim_step(session->opt));
    tutti_optim_zero_grad(session->opt);
    return TUTTI_OK;
}

static tutti_status_t wait_for_devices(const session_t *session)
{
    for (int i = 0; i < 2 && session->devices[i] != NULL; i++) {
        TUTTI_CHECK(tutti_device_synchronize(session->devices[i], 0));
    }
    return TUTTI_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static tutti_status_t open_session(session_t *session)
{
    const tutti_sgd_options_t sgd = {.lr = 0.05};
    const tutti_context_options_t options = {
        .threads = 1, .seed = 17, .device = session->devices[0]};
    TUTTI_CHECK(tutti_context_create(&options, &session->ctx));
    TUTTI_CHECK(tutti_module_create(session->ctx, &net_ops, NULL, &session->net));
    const halves_t *net = tutti_module_state(session->net);
    TUTTI_CHECK(tutti_module_to(net->second, session->devices[1]));
    TUTTI_CHECK(tutti_optim_create(session->ctx, &tutti_sgd, &sgd, &session->opt));
    return tutti_optim_add_module(session->opt, session->net, NULL, NULL);
}

static void close_session(session_t *session)
{
    tutti_optim_release(session->opt);
    tutti_module_release(session->net);
    tutti_context_release(session->ctx);
}

/* Milliseconds of a step, the shortest of some, and a digest of the weights after all. */
static tutti_status_t run(tutti_device_t *const *devices, int64_t split, double *ms, char *digest)
{
    session_t session = {.devices = {devices[0], devices[1]}};
    tutti_status_t status = open_session(&session);
    *ms = 1e30;
    for (int step = 0; step < STEPS && status >= 0; step++) {
        const double begin = seconds_now();
        tutti_context_set_step(session.ctx, step);
        status = train_step(&session, split);
        status = status < 0 ? status : wait_for_devices(&session);
        const double took = (seconds_now() - begin) * 1e3;
        *ms = took < *ms ? took : *ms;
    }
    if (status >= 0) {
        status = tutti_module_digest(session.net, digest);
    }
    close_session(&session);
    return status;
}

static tutti_status_t compare(tutti_device_t *const *devices, int64_t only)
{
    char digest[TUTTI_DIGEST_BYTES];
    double host, whole = 0, ms;
    TUTTI_CHECK(run((tutti_device_t *[]){NULL, NULL}, BATCH, &host, digest));
    printf("host               %7.1f ms  digest %s\n", host, digest);
    for (int64_t split = BATCH; split >= 2; split /= 2) {
        if (only != 0 && split != only && split != BATCH) {
            continue;
        }
        TUTTI_CHECK(run(devices, split, &ms, digest));
        whole = split == BATCH ? ms : whole;
        printf("two, splits of %2lld  %7.1f ms  digest %s  %.2f x\n", (long long)split, ms, digest,
               whole / ms);
    }
    return TUTTI_OK;
}

static tutti_status_t open_devices(tutti_device_t **devices)
{
    const tutti_device_options_t costs = {
        .launch_ns = 5000, .copy_bytes_per_s = 10000000000, .threads = 1};
    TUTTI_CHECK(tutti_device_open("strict:0", &costs, &devices[0]));
    return tutti_device_open("strict:1", &costs, &devices[1]);
}

int main(int argc, char **argv)
{
    tutti_device_t *devices[2] = {NULL, NULL};
    const int64_t only = argc > 1 ? strtoll(argv[1], NULL, 10) : 0;
    tutti_status_t status = open_devices(devices);
    if (status >= 0) {
        status = compare(devices, only);
    }
    for (int i = 0; i < 2; i++) {
        tutti_device_release(devices[i]);
    }
    if (status < 0) {
        fprintf(stderr, "17_two_devices: %s\n", tutti_last_error());
    }
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
