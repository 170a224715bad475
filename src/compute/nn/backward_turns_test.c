/* A backward in two turns has the bits of one: transformer blocks, convolutions with batch norm, an
 * LSTM; in f32 and under autocast, kept or recomputed, with gradients that meet. */
#include "core/tensor/device_testing.h"

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/tensor.h>

#include "core/tensor/tensor_impl.h"

enum { GRADS_MAX = 1 << 16 };

typedef struct {
    const char *name;
    tutti_module_t *(*make)(tutti_context_t *ctx, bool recompute);
    tutti_shape_t shape; /* of the input */
} model_t;

/* All gradients of a model, one behind the other. */
typedef struct {
    unsigned char bytes[GRADS_MAX];
    size_t used;
} grads_t;

static tutti_module_t *stack_of(tutti_context_t *ctx, const tutti_module_ops_t *ops,
                                const void *options, bool recompute)
{
    tutti_module_t *all;
    const tutti_sequential_options_t none = {.recompute = recompute};
    assert_int_equal(tutti_module_create(ctx, &tutti_sequential_layer, &none, &all), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_sequential_add(all, ops, options, NULL), 0);
    }
    return all;
}

static tutti_module_t *make_blocks(tutti_context_t *ctx, bool recompute)
{
    const tutti_transformer_block_options_t options = {.width = 16, .heads = 2, .dropout = 0.2F};
    return stack_of(ctx, &tutti_transformer_block_layer, &options, recompute);
}

static tutti_module_t *make_convolutions(tutti_context_t *ctx, bool recompute)
{
    const tutti_conv_layer_options_t options = {
        .in = 4, .out = 4, .kernel = {3, 3}, .move = {.padding = {1, 1}}};
    tutti_module_t *all = stack_of(ctx, &tutti_conv2d_layer, &options, recompute);
    assert_int_equal(tutti_sequential_add(all, &tutti_batch_norm_layer,
                                          &(tutti_batch_norm_layer_options_t){.width = 4}, NULL),
                     0);
    return all;
}

static tutti_module_t *make_lstm(tutti_context_t *ctx, bool recompute)
{
    (void)recompute;
    const tutti_rnn_options_t options = {.in = 8, .hidden = 8, .layers = 2};
    tutti_module_t *lstm;
    assert_int_equal(tutti_module_create(ctx, &tutti_lstm_layer, &options, &lstm), 0);
    return lstm;
}

static void append(grads_t *grads, tutti_tensor_t *grad)
{
    assert_non_null(grad);
    const size_t bytes = tutti_tensor_bytes(grad);
    assert_true(grads->used + bytes <= sizeof grads->bytes);
    memcpy(grads->bytes + grads->used, tt_test_host(grad), bytes);
    grads->used += bytes;
}

static tutti_status_t append_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    append(user, tutti_tensor_grad(x));
    return TUTTI_OK;
}

static tutti_status_t expect_none(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name;
    assert_null(tutti_tensor_grad(x));
    return TUTTI_OK;
}

/* The input counts twice, so that gradients meet there, too. */
static tutti_tensor_t *result(tutti_scope_t *s, const model_t *model, tutti_module_t *m,
                              tutti_tensor_t *x)
{
    tutti_tensor_t *y[3];
    if (model->make == make_lstm) {
        tutti_forward_many(s, m, (tutti_tensor_t *[]){x, NULL, NULL}, 3, y, 3);
    } else {
        y[0] = tutti_forward(s, m, x);
    }
    return tutti_sum(s, tutti_mul(s, y[0], tutti_mul(s, y[0], x)));
}

static void learn(const model_t *model, bool recompute, tutti_dtype_t autocast, bool has_turns,
                  grads_t *grads)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_backward_run_t *run;
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    assert_int_equal(tt_test_context(&options, &ctx), 0);
    tutti_module_t *m = model->make(ctx, recompute);
    (void)tutti_context_set_autocast(ctx, autocast);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, model->shape, 0, 1), *grad_x;
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    const tutti_root_t root = {.tensor = result(s, model, m, x)};
    grads->used = 0;
    if (has_turns) {
        assert_int_equal(tutti_backward_inputs(s, &root, 1, NULL, &x, 1, &grad_x, &run), 0);
        append(grads, grad_x);
        assert_int_equal(tutti_module_each_parameter(m, expect_none, NULL), 0);
        assert_int_equal(tutti_backward_weights(run), 0);
        assert_null(tutti_tensor_grad(x));
    } else {
        assert_int_equal(tutti_backward(s, root.tensor), 0);
        append(grads, tutti_tensor_grad(x));
    }
    assert_int_equal(tutti_module_each_parameter(m, append_parameter, grads), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_module_release(m);
    tutti_context_release(ctx);
}

static void two_turns_have_the_bits_of_one(void **state)
{
    (void)state;
    const model_t models[] = {{"transformer", make_blocks, TUTTI_SHAPE(2, 8, 16)},
                              {"convolutions", make_convolutions, TUTTI_SHAPE(2, 4, 6, 6)},
                              {"lstm", make_lstm, TUTTI_SHAPE(5, 2, 8)}};
    static grads_t one, two;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        for (int k = 0; k < 4; k++) {
            const tutti_dtype_t autocast = k & 1 ? TUTTI_BF16 : TUTTI_F32;
            learn(&models[i], k & 2, autocast, false, &one);
            learn(&models[i], k & 2, autocast, true, &two);
            assert_int_equal(one.used, two.used);
            if (memcmp(one.bytes, two.bytes, one.used) != 0) {
                fail_msg("%s, recipe %d: other bits", models[i].name, k);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_turns_have_the_bits_of_one)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
