/* Functions as modules: each gives the bits of its function, with defaults and with options, and
 * refuses options that are wrong for every x. */
#include "core/tensor/device_testing.h"

#include <string.h>

#include <tutti/nn_functions.h>
#include <tutti/op_activation.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "core/base/alloc.h"

typedef struct {
    tutti_scope_t *s;
    tutti_module_t *m;
    tutti_tensor_t *x, *y; /* both [2, 4, 6]; one module takes both */
} call_t;

typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
    tutti_tensor_t *(*function)(const call_t *c);
    int inputs; /* 0: 1 */
} case_t;

/* ---- the functions --------------------------------------------------------------------------- */

static tutti_tensor_t *leaky(const call_t *c)
{
    return tutti_leaky_relu(c->s, c->x, 0.01);
}

static tutti_tensor_t *steep(const call_t *c)
{
    return tutti_leaky_relu(c->s, c->x, 0.3);
}

static tutti_tensor_t *elu(const call_t *c)
{
    return tutti_elu(c->s, c->x, 1);
}

static tutti_tensor_t *celu(const call_t *c)
{
    return tutti_celu(c->s, c->x, 2);
}

static tutti_tensor_t *softplus(const call_t *c)
{
    return tutti_softplus(c->s, c->x, 1, 20);
}

static tutti_tensor_t *threshold(const call_t *c)
{
    return tutti_threshold(c->s, c->x, 0.5, -3);
}

static tutti_tensor_t *hardtanh(const call_t *c)
{
    return tutti_hardtanh(c->s, c->x, -0.5, 1);
}

static tutti_tensor_t *hardshrink(const call_t *c)
{
    return tutti_hardshrink(c->s, c->x, 0.5);
}

static tutti_tensor_t *softshrink(const call_t *c)
{
    return tutti_softshrink(c->s, c->x, 0.25);
}

static tutti_tensor_t *selu(const call_t *c)
{
    return tutti_selu(c->s, c->x);
}

static tutti_tensor_t *mish(const call_t *c)
{
    return tutti_mish(c->s, c->x);
}

static tutti_tensor_t *gelu_tanh(const call_t *c)
{
    return tutti_gelu(c->s, c->x, TUTTI_GELU_TANH);
}

static tutti_tensor_t *prelu(const call_t *c)
{
    return tutti_leaky_relu(c->s, c->x, 0.25);
}

static tutti_tensor_t *softmax(const call_t *c)
{
    return tutti_softmax(c->s, c->x, -1);
}

static tutti_tensor_t *log_softmax_1(const call_t *c)
{
    return tutti_log_softmax(c->s, c->x, 1);
}

static tutti_tensor_t *softmin_0(const call_t *c)
{
    return tutti_softmin(c->s, c->x, 0);
}

static tutti_tensor_t *glu(const call_t *c)
{
    return tutti_glu(c->s, c->x, -1);
}

static tutti_tensor_t *pad(const call_t *c)
{
    return tutti_pad(c->s, c->x, TUTTI_PADDING(1, 2), TUTTI_PAD_CONSTANT, 7);
}

static tutti_tensor_t *pixel_shuffle(const call_t *c)
{
    return tutti_pixel_unshuffle(c->s, c->x, 2);
}

static tutti_tensor_t *channel_shuffle(const call_t *c)
{
    return tutti_channel_shuffle(c->s, c->x, 2);
}

static const tutti_unfold_options_t windows = {.kernel = {2, 3}, .stride = {1, 3}};

static tutti_tensor_t *unfold(const call_t *c)
{
    return tutti_unfold(c->s, c->x, &windows);
}

static tutti_tensor_t *unflatten(const call_t *c)
{
    return tutti_reshape(c->s, c->x, TUTTI_SHAPE(2, 4, 3, 2));
}

static tutti_tensor_t *cosine(const call_t *c)
{
    return tutti_cosine_similarity(c->s, c->x, c->y, 1, 1e-8);
}

static tutti_tensor_t *distance(const call_t *c)
{
    return tutti_unsqueeze(c->s, tutti_pairwise_distance(c->s, c->x, c->y, 1, 1e-6), -1);
}

static tutti_tensor_t *bilinear(const call_t *c)
{
    return tutti_bilinear(c->s, c->x, c->y, tutti_module_find(c->m, "weight"),
                          tutti_module_find(c->m, "bias"));
}

static tutti_tensor_t *response(const call_t *c)
{
    const tutti_local_response_options_t o = {.size = 3, .alpha = 1e-4, .beta = 0.75, .k = 1};
    return tutti_local_response_norm(c->s, c->x, &o);
}

/* One slope: nothing is left to be drawn. */
static tutti_tensor_t *rrelu(const call_t *c)
{
    return tutti_leaky_relu(c->s, c->x, 0.25);
}

/* ---- the cases ------------------------------------------------------------------------------- */

#define ACTIVATION(...)                                                                            \
    &tutti_activation_layer, &(const tutti_activation_options_t)                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const case_t cases[] = {
    {ACTIVATION(.kind = TUTTI_ACTIVATION_LEAKY_RELU), leaky, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_LEAKY_RELU, .slope = 0.3), steep, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_ELU), elu, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_CELU, .alpha = 2), celu, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_SOFTPLUS), softplus, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_THRESHOLD, .threshold = 0.5, .value = -3), threshold, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_HARDTANH, .low = -0.5, .high = 1), hardtanh, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_HARDSHRINK), hardshrink, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_SOFTSHRINK, .lambda = 0.25), softshrink, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_SELU), selu, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_MISH), mish, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_GELU_TANH), gelu_tanh, 0},
    {ACTIVATION(.kind = TUTTI_ACTIVATION_RRELU, .lower = 0.25, .upper = 0.25), rrelu, 0},
    {&tutti_prelu_layer, NULL, prelu, 0},
    {&tutti_softmax_layer, NULL, softmax, 0},
    {&tutti_log_softmax_layer, &(const tutti_dim_options_t){.dim = 1}, log_softmax_1, 0},
    {&tutti_softmin_layer, &(const tutti_dim_options_t){.dim = 0}, softmin_0, 0},
    {&tutti_glu_layer, NULL, glu, 0},
    {&tutti_pad_layer,
     &(const tutti_pad_layer_options_t){.sizes = {.count = 2, .sizes = {1, 2}}, .value = 7}, pad,
     0},
    {&tutti_pixel_unshuffle_layer, &(const tutti_shuffle_options_t){.factor = 2}, pixel_shuffle, 0},
    {&tutti_channel_shuffle_layer, &(const tutti_shuffle_options_t){.factor = 2}, channel_shuffle,
     0},
    {&tutti_unfold_layer, &windows, unfold, 0},
    {&tutti_unflatten_layer,
     &(const tutti_unflatten_options_t){.dim = -1, .sizes = {.rank = 2, .dims = {-1, 2}}},
     unflatten, 0},
    {&tutti_cosine_similarity_layer, NULL, cosine, 2},
    {&tutti_pairwise_distance_layer,
     &(const tutti_pairwise_distance_options_t){.p = 1, .keep_dim = true}, distance, 2},
    {&tutti_bilinear_layer, &(const tutti_bilinear_options_t){.in = 6, .second_in = 6, .out = 3},
     bilinear, 2},
    {&tutti_local_response_norm_layer, &(const tutti_local_response_options_t){.size = 3}, response,
     0},
};

static void check_case(tutti_context_t *ctx, const case_t *c)
{
    call_t call;
    tutti_tensor_t *got;
    assert_int_equal(tutti_scope_open(ctx, &call.s), 0);
    assert_int_equal(tutti_module_create(ctx, c->ops, c->options, &call.m), 0);
    call.x = tutti_normal(call.s, TUTTI_F32, TUTTI_SHAPE(2, 4, 6), 0, 1);
    call.y = tutti_normal(call.s, TUTTI_F32, TUTTI_SHAPE(2, 4, 6), 0, 1);
    tutti_forward_many(call.s, call.m, (tutti_tensor_t *[]){call.x, call.y},
                       c->inputs == 0 ? 1 : c->inputs, &got, 1);
    tutti_tensor_t *want = c->function(&call);
    if (tutti_scope_status(call.s) < 0) {
        fail_msg("%s: %s", c->ops->name, tutti_scope_error(call.s));
    }
    assert_true(tutti_shape_equal(tutti_tensor_shape(got), tutti_tensor_shape(want)));
    for (int64_t i = 0; i < tutti_tensor_numel(want); i++) {
        if (tutti_tensor_at(got, i) != tutti_tensor_at(want, i)) {
            fail_msg("%s: element %lld is %g, not %g", c->ops->name, (long long)i,
                     tutti_tensor_at(got, i), tutti_tensor_at(want, i));
        }
    }
    tutti_module_release(call.m);
    assert_int_equal(tutti_scope_close(call.s), 0);
}

static void modules_give_the_bits_of_their_functions(void **state)
{
    tutti_context_t *ctx;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1, .seed = 5}, &ctx), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_case(ctx, &cases[i]);
    }
    tutti_context_release(ctx);
}

/* ---- options that are wrong ------------------------------------------------------------------ */

static const struct {
    const tutti_module_ops_t *ops;
    const void *options;
    const char *text;
} wrong[] = {
    {ACTIVATION(.kind = (tutti_activation_t)99), "activation: there is no activation 99"},
    {&tutti_linear_layer,
     &(const tutti_linear_options_t){.in = 2, .out = 2, .activation = TUTTI_ACTIVATION_RRELU},
     "linear: RReLU draws, and wants an activation layer of its own"},
    {&tutti_prelu_layer, &(const tutti_prelu_options_t){.count = -1},
     "prelu: count -1: it must be"},
    {&tutti_pad_layer, NULL, "pad: 0 sizes: there must be two for each dimension"},
    {&tutti_pixel_shuffle_layer, NULL, "pixel_shuffle: factor 0: it must be at least 1"},
    {&tutti_unfold_layer, NULL, "unfold: kernel 0 and 0: both must be at least 1"},
    {&tutti_fold_layer, NULL, "fold: kernel 0 and 0: both must be at least 1"},
    {&tutti_unflatten_layer, NULL, "unflatten: there must be sizes"},
    {&tutti_dropout2d_layer, &(const tutti_dropout_options_t){.p = 2}, "dropout2d: p is 2"},
    {&tutti_local_response_norm_layer, NULL, "local_response_norm: size 0: it must be at least 1"},
    {&tutti_bilinear_layer, NULL, "bilinear: in 0, second_in 0, out 0: all must be at least 1"},
    {&tutti_embedding_bag_layer, NULL, "embedding_bag: count 0, width 0: both must be at least 1"},
    {&tutti_embedding_bag_layer,
     &(const tutti_embedding_bag_layer_options_t){
         .count = 3, .width = 2, .has_padding = true, .padding = 3},
     "embedding_bag: padding 3 is no row of a table of 3"},
    {&tutti_lp_pool2d_layer, &(const tutti_lp_pool_options_t){.kernel = {2, 2}},
     "lp_pool2d: p must not be 0"},
};

static void wrong_options_are_refused(void **state)
{
    tutti_context_t *ctx;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tutti_module_t *m;
        assert_int_equal(tutti_module_create(ctx, wrong[i].ops, wrong[i].options, &m),
                         TUTTI_ERR_ARG);
        if (strstr(tutti_last_error(), wrong[i].text) == NULL) {
            fail_msg("%s: %s", wrong[i].text, tutti_last_error());
        }
    }
    tutti_context_release(ctx);
}

/* ---- bags ------------------------------------------------------------------------------------ */

static void bags_take_offsets_and_weights(void **state)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m;
    tutti_tensor_t *y;
    (void)state;
    const tutti_embedding_bag_layer_options_t o = {.count = 4, .width = 2, .mode = TUTTI_BAG_SUM};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_embedding_bag_layer, &o, &m), 0);
    tutti_tensor_t *weight = tutti_module_find(m, "weight");
    tutti_tensor_t *rows = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(3), (int64_t[]){3, 1, 2});
    tutti_tensor_t *begins = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){0, 2});
    tutti_tensor_t *factors = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(3), (float[]){1, 2, 4});
    tutti_forward_many(s, m, (tutti_tensor_t *[]){rows, begins, factors}, 3, &y, 1);
    assert_int_equal(tutti_scope_status(s), 0);
    assert_true(tutti_tensor_at(y, 0) ==
                (double)(float)(tutti_tensor_at(weight, 6) + 2 * tutti_tensor_at(weight, 2)));
    assert_true(tutti_tensor_at(y, 3) == 4 * tutti_tensor_at(weight, 5));
    tutti_forward_many(s, m, (tutti_tensor_t *[]){rows, begins, factors, rows}, 4, &y, 1);
    assert_non_null(strstr(tutti_scope_error(s), "embedding_bag takes one to three tensors"));
    tutti_module_release(m);
    assert_true(tutti_scope_close(s) < 0);
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_give_the_bits_of_their_functions),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(bags_take_offsets_and_weights),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
