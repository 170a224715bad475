/* Every kind of module on meta: made, called, backward, and called with what it refuses. Shapes,
 * dtypes and texts are those of the host, and no memory for values is taken. */
#include <tutti/devices.h>
#include <tutti/tutti.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/device_testing.h"

enum { INPUTS_MAX = 3, OUTPUTS_MAX = 3, TEXT_BYTES = 8192 };

#define SHAPE(...)                                                                                 \
    {                                                                                              \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dims = { __VA_ARGS__ } \
    }

typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
    tutti_shape_t inputs[INPUTS_MAX]; /* up to one of rank 0 */
    int outputs;                      /* 0: 1 */
    tutti_shape_t refused;            /* in place of the first input; rank 0: it takes any shape */
    bool takes_indices, last_is_index;
} layer_case_t;

static bool is_index(const layer_case_t *c, int input)
{
    const bool is_last = input + 1 == INPUTS_MAX || c->inputs[input + 1].rank == 0;
    return c->takes_indices || (c->last_is_index && is_last);
}

static const tutti_linear_options_t linear = {
    .in = 4, .out = 6, .activation = TUTTI_ACTIVATION_GELU};
static const tutti_conv_layer_options_t conv = {.in = 4, .out = 6, .kernel = {3, 2, 2}};
static const tutti_pool_options_t pool = {.kernel = {2, 2, 2}};
static const tutti_avg_pool_options_t means = {.kernel = {2, 2, 2}};
static const tutti_max_unpool_options_t back = {.kernel = {2, 2, 2}};
static const tutti_lp_pool_options_t norms = {.p = 2, .kernel = {2, 2, 2}};
static const tutti_adaptive_pool_options_t three = {.size = {3, 3}};
static const tutti_interpolate_options_t twice = {.scale = {2, 2}};
static const tutti_flatten_options_t flat = {.first = 1, .last = 2};
static const tutti_embedding_options_t embedding = {.count = 5, .width = 4};
static const tutti_norm_options_t norm = {.width = 4};
static const tutti_batch_norm_layer_options_t batch = {.width = 4, .relu = true};
static const tutti_batch_norm_layer_options_t cumulative = {.width = 4, .cumulative = true};
static const tutti_group_norm_options_t group = {.width = 4, .groups = 2};
static const tutti_instance_norm_options_t instance = {.width = 4, .affine = true};
static const tutti_dropout_options_t dropout = {.p = 0.5F};
static const tutti_activation_options_t silu = {.kind = TUTTI_ACTIVATION_SILU};
static const tutti_self_attention_options_t attention = {
    .width = 4, .heads = 2, .causal = true, .dropout = 0.1F};
static const tutti_mlp_options_t mlp = {.width = 4, .dropout = 0.1F};
static const tutti_transformer_block_options_t block = {.width = 4, .heads = 2};
static const tutti_gpt_options_t gpt = {.layers = 2,
                                        .width = 4,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .context = 8,
                                        .vocab = 5,
                                        .recompute = true,
                                        .tie_head = true};
static const tutti_rnn_options_t rnn = {
    .in = 4, .hidden = 3, .layers = 2, .bidirectional = true, .dropout = 0.1F};
static const tutti_rnn_cell_options_t cell = {.in = 4, .hidden = 3};

static const tutti_activation_options_t hardtanh = {
    .kind = TUTTI_ACTIVATION_HARDTANH, .low = -1, .high = 1};
static const tutti_pad_layer_options_t padding = {.sizes = {.count = 2, .sizes = {1, 2}},
                                                  .mode = TUTTI_PAD_REFLECT};
static const tutti_shuffle_options_t two = {.factor = 2};
static const tutti_unfold_options_t windows = {.kernel = {2, 2}};
static const tutti_fold_options_t fold = {.size = {3, 4}, .windows = {.kernel = {2, 2}}};
static const tutti_unflatten_options_t unflatten = {.dim = 1, .sizes = SHAPE(2, -1)};
static const tutti_local_response_options_t neighbours = {.size = 3};
static const tutti_bilinear_options_t bilinear = {.in = 4, .second_in = 3, .out = 5};
static const tutti_embedding_bag_layer_options_t bag = {.count = 5, .width = 4};

static const tutti_multihead_attention_options_t heads = {
    .width = 4, .heads = 2, .kv_heads = 1, .causal = true, .batch_first = true};
static const tutti_linear_cross_entropy_layer_options_t head = {
    .in = 4, .classes = 5, .sizes = {2}, .has_bias = true, .has_weight = true};
static const tutti_adaptive_log_softmax_options_t clusters = {
    .in = 16, .classes = 9, .cutoffs = {3, 5}};
static const tutti_fractional_pool_options_t fractional = {.kernel = {2, 1, 2}, .size = {2, 3, 2}};
static const tutti_transformer_options_t transformer = {.width = 4,
                                                        .heads = 2,
                                                        .hidden = 8,
                                                        .layers = 2,
                                                        .dropout = 0.1F,
                                                        .norm_first = true,
                                                        .batch_first = true,
                                                        .final_norm = true};

static const layer_case_t cases[] = {
    {&tutti_linear_layer, &linear, {SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_conv1d_layer, &conv, {SHAPE(2, 4, 7)}, .refused = SHAPE(2, 3, 7)},
    {&tutti_conv2d_layer, &conv, {SHAPE(2, 4, 7, 8)}, .refused = SHAPE(2, 4, 7, 1)},
    {&tutti_conv_transpose1d_layer, &conv, {SHAPE(2, 4, 7)}, .refused = SHAPE(2, 3, 7)},
    {&tutti_conv_transpose2d_layer, &conv, {SHAPE(2, 4, 7, 8)}, .refused = SHAPE(2, 3, 7, 8)},
    {&tutti_max_pool1d_layer, &pool, {SHAPE(2, 3, 7)}, .outputs = 2, .refused = SHAPE(2, 3, 1)},
    {&tutti_max_pool2d_layer, &pool, {SHAPE(2, 3, 6, 8)}, .outputs = 2, .refused = SHAPE(2, 3)},
    {&tutti_avg_pool1d_layer, &means, {SHAPE(2, 3, 7)}, .refused = SHAPE(2, 3, 1)},
    {&tutti_avg_pool2d_layer, &means, {SHAPE(2, 3, 6, 8)}, .refused = SHAPE(2, 3)},
    {&tutti_conv3d_layer, &conv, {SHAPE(1, 4, 4, 3, 3)}, .refused = SHAPE(2, 4, 2, 3, 3)},
    {&tutti_conv_transpose3d_layer, &conv, {SHAPE(1, 4, 2, 2, 3)}, .refused = SHAPE(2, 3, 7, 8)},
    {&tutti_max_pool3d_layer,
     &pool,
     {SHAPE(2, 3, 4, 6, 8)},
     .outputs = 2,
     .refused = SHAPE(2, 3, 1, 6, 8)},
    {&tutti_avg_pool3d_layer, &means, {SHAPE(2, 3, 4, 6, 8)}, .refused = SHAPE(2, 3, 4)},
    {&tutti_lp_pool1d_layer, &norms, {SHAPE(2, 3, 7)}, .refused = SHAPE(2, 3, 1)},
    {&tutti_lp_pool2d_layer, &norms, {SHAPE(2, 3, 6, 8)}, .refused = SHAPE(2, 3)},
    {&tutti_lp_pool3d_layer, &norms, {SHAPE(2, 3, 4, 6, 8)}, .refused = SHAPE(2, 3)},
    {&tutti_adaptive_max_pool3d_layer,
     &three,
     {SHAPE(2, 3, 4, 6, 8)},
     .outputs = 2,
     .refused = SHAPE(2, 3, 7)},
    {&tutti_adaptive_avg_pool3d_layer, &three, {SHAPE(2, 3, 4, 6, 8)}, .refused = SHAPE(2, 3, 7)},
    {&tutti_adaptive_max_pool1d_layer, &three, {SHAPE(2, 3, 7)}, .outputs = 2, .refused = SHAPE(7)},
    {&tutti_adaptive_max_pool2d_layer,
     &three,
     {SHAPE(2, 3, 6, 8)},
     .outputs = 2,
     .refused = SHAPE(7)},
    {&tutti_adaptive_avg_pool1d_layer, &three, {SHAPE(2, 3, 7)}, .refused = SHAPE(7)},
    {&tutti_adaptive_avg_pool2d_layer, &three, {SHAPE(2, 3, 6, 8)}, .refused = SHAPE(7)},
    {&tutti_upsample_layer, &twice, {SHAPE(2, 3, 6, 8)}, .refused = SHAPE(7)},
    {&tutti_flatten_layer, &flat, {SHAPE(2, 3, 4)}, .refused = SHAPE(2)},
    {&tutti_embedding_layer, &embedding, {SHAPE(2, 3)}, .takes_indices = true},
    {&tutti_layer_norm_layer, &norm, {SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_rms_norm_layer, &norm, {SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_batch_norm_layer, &batch, {SHAPE(2, 4, 5)}, .refused = SHAPE(2, 3)},
    {&tutti_batch_norm_layer, &cumulative, {SHAPE(2, 4, 5)}, .refused = SHAPE(1, 4)},
    {&tutti_group_norm_layer, &group, {SHAPE(2, 4, 5)}, .refused = SHAPE(2, 3, 5)},
    {&tutti_instance_norm_layer, &instance, {SHAPE(2, 4, 5)}, .refused = SHAPE(2, 3, 5)},
    {&tutti_dropout_layer, &dropout, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_activation_layer, &silu, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_sequential_layer, NULL, {SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_self_attention_layer, &attention, {SHAPE(2, 3, 4)}, .refused = SHAPE(2, 4)},
    {&tutti_mlp_layer, &mlp, {SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_transformer_block_layer, &block, {SHAPE(2, 3, 4)}, .refused = SHAPE(2, 3, 5)},
    {&tutti_gpt_layer, &gpt, {SHAPE(2, 8)}, .refused = SHAPE(2, 9), .takes_indices = true},
    {&tutti_rnn_layer,
     &rnn,
     {SHAPE(5, 2, 4), SHAPE(4, 2, 3)},
     .outputs = 2,
     .refused = SHAPE(5, 2, 3)},
    {&tutti_lstm_layer,
     &rnn,
     {SHAPE(5, 2, 4), SHAPE(4, 2, 3), SHAPE(4, 2, 3)},
     .outputs = 3,
     .refused = SHAPE(5, 4)},
    {&tutti_gru_layer,
     &rnn,
     {SHAPE(5, 2, 4), SHAPE(4, 2, 3)},
     .outputs = 2,
     .refused = SHAPE(5, 3, 4)},
    {&tutti_rnn_cell_layer, &cell, {SHAPE(2, 4), SHAPE(2, 3)}, .refused = SHAPE(2, 5)},
    {&tutti_lstm_cell_layer,
     &cell,
     {SHAPE(2, 4), SHAPE(2, 3), SHAPE(2, 3)},
     .outputs = 2,
     .refused = SHAPE(3, 4)},
    {&tutti_gru_cell_layer, &cell, {SHAPE(2, 4), SHAPE(2, 3)}, .refused = SHAPE(2, 5)},
    {&tutti_activation_layer, &hardtanh, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_prelu_layer, NULL, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_softmax_layer, NULL, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_log_softmax_layer, NULL, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_softmin_layer, NULL, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_glu_layer, NULL, {SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_pad_layer, &padding, {SHAPE(2, 4)}, .refused = SHAPE(2, 2)},
    {&tutti_pixel_shuffle_layer, &two, {SHAPE(1, 4, 2, 3)}, .refused = SHAPE(2, 3, 3)},
    {&tutti_pixel_unshuffle_layer, &two, {SHAPE(1, 4, 2, 4)}, .refused = SHAPE(2, 3, 3)},
    {&tutti_channel_shuffle_layer, &two, {SHAPE(1, 4, 2, 3)}, .refused = SHAPE(2, 3, 3)},
    {&tutti_unfold_layer, &windows, {SHAPE(1, 2, 3, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_fold_layer, &fold, {SHAPE(1, 8, 6)}, .refused = SHAPE(1, 8, 5)},
    {&tutti_unflatten_layer, &unflatten, {SHAPE(2, 6, 3)}, .refused = SHAPE(2, 5, 3)},
    {&tutti_dropout1d_layer, &dropout, {SHAPE(2, 4, 3)}, .refused = SHAPE(2)},
    {&tutti_dropout2d_layer, &dropout, {SHAPE(2, 4, 3, 2)}, .refused = SHAPE(2, 3)},
    {&tutti_dropout3d_layer, &dropout, {SHAPE(2, 4, 3, 2, 2)}, .refused = SHAPE(2, 3)},
    {&tutti_alpha_dropout_layer, &dropout, {SHAPE(2, 4)}, .refused = {0}},
    {&tutti_feature_alpha_dropout_layer, &dropout, {SHAPE(2, 4, 3)}, .refused = SHAPE(2)},
    {&tutti_local_response_norm_layer, &neighbours, {SHAPE(2, 4, 3)}, .refused = SHAPE(2, 3)},
    {&tutti_cosine_similarity_layer, NULL, {SHAPE(2, 4), SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_pairwise_distance_layer, NULL, {SHAPE(2, 4), SHAPE(2, 4)}, .refused = SHAPE(2, 3)},
    {&tutti_max_unpool1d_layer,
     &back,
     {SHAPE(2, 3, 4), SHAPE(2, 3, 4)},
     .refused = SHAPE(2, 3, 5),
     .takes_indices = true},
    {&tutti_max_unpool2d_layer,
     &back,
     {SHAPE(3, 4, 2), SHAPE(3, 4, 2)},
     .refused = SHAPE(3, 5, 2),
     .takes_indices = true},
    {&tutti_max_unpool3d_layer,
     &back,
     {SHAPE(3, 2, 4, 2), SHAPE(3, 2, 4, 2)},
     .refused = SHAPE(4, 2),
     .takes_indices = true},
    {&tutti_bilinear_layer, &bilinear, {SHAPE(2, 4), SHAPE(2, 3)}, .refused = SHAPE(2, 3)},
    {&tutti_multihead_attention_layer,
     &heads,
     {SHAPE(2, 3, 4), SHAPE(2, 5, 4)},
     .outputs = 2,
     .refused = SHAPE(2, 3, 5)},
    {&tutti_encoder_block_layer, &transformer, {SHAPE(2, 3, 4)}, .refused = SHAPE(2, 3, 5)},
    {&tutti_decoder_block_layer,
     &transformer,
     {SHAPE(2, 3, 4), SHAPE(2, 5, 4)},
     .refused = SHAPE(3, 3, 4)},
    {&tutti_encoder_layer, &transformer, {SHAPE(2, 3, 4)}, .refused = SHAPE(2, 3, 5)},
    {&tutti_decoder_layer,
     &transformer,
     {SHAPE(2, 3, 4), SHAPE(2, 5, 4)},
     .refused = SHAPE(3, 3, 4)},
    {&tutti_transformer_layer,
     &transformer,
     {SHAPE(2, 3, 4), SHAPE(2, 5, 4)},
     .refused = SHAPE(2, 3, 5)},
    {&tutti_linear_cross_entropy_layer,
     &head,
     {SHAPE(3, 4), SHAPE(3, 2, 5)},
     .refused = SHAPE(3, 5)},
    {&tutti_adaptive_log_softmax_layer,
     &clusters,
     {SHAPE(3, 16), SHAPE(3)},
     .outputs = 2,
     .refused = SHAPE(3, 15),
     .last_is_index = true},
    {&tutti_fractional_max_pool2d_layer,
     &fractional,
     {SHAPE(2, 3, 6, 8), SHAPE(2, 3, 2)},
     .outputs = 2,
     .refused = SHAPE(2, 3)},
    {&tutti_fractional_max_pool3d_layer,
     &fractional,
     {SHAPE(2, 3, 4, 6, 8), SHAPE(2, 3, 3)},
     .outputs = 2,
     .refused = SHAPE(2, 3, 1, 6, 8)},
    {&tutti_embedding_bag_layer, &bag, {SHAPE(2, 3)}, .takes_indices = true},
};

enum { CASE_COUNT = sizeof cases / sizeof *cases };

/* What a run was: a line for each tensor, and the error at the end. */
typedef struct {
    const tutti_device_t *device;
    size_t used;
    char text[TEXT_BYTES];
} story_t;

static void tell(story_t *story, const char *what, const tutti_tensor_t *x)
{
    char line[192] = "none";
    if (x != NULL) {
        assert_ptr_equal(tutti_tensor_device(x), story->device);
        tutti_tensor_describe(x, line, sizeof line);
    }
    story->used += (size_t)snprintf(story->text + story->used, TEXT_BYTES - story->used, "%s: %s\n",
                                    what, line);
    assert_true(story->used < TEXT_BYTES);
}

static tutti_status_t tell_with_grad(void *user, const char *name, tutti_tensor_t *x)
{
    tell(user, name, x);
    tell(user, "  its gradient", tutti_tensor_grad(x));
    return TUTTI_OK;
}

static tutti_module_t *make(const layer_case_t *c, tutti_context_t *ctx, tutti_dtype_t dtype)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(ctx, c->ops, c->options, &m), TUTTI_OK);
    if (c->ops == &tutti_sequential_layer) {
        assert_int_equal(tutti_sequential_add(m, &tutti_linear_layer, &linear, NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_module_cast(m, dtype), TUTTI_OK);
    return m;
}

static void call(const layer_case_t *c, tutti_scope_t *s, tutti_module_t *m, tutti_dtype_t dtype,
                 const tutti_shape_t *first, story_t *story)
{
    tutti_tensor_t *inputs[INPUTS_MAX], *outputs[OUTPUTS_MAX], *loss = NULL;
    int input_count = 0;
    const int output_count = c->outputs == 0 ? 1 : c->outputs;
    for (int i = 0; i < INPUTS_MAX && c->inputs[i].rank > 0; i++, input_count++) {
        inputs[i] =
            tutti_zeros(s, is_index(c, i) ? TUTTI_I64 : dtype, i == 0 ? *first : c->inputs[i]);
        if (!is_index(c, i)) {
            assert_int_equal(tutti_tensor_set_requires_grad(inputs[i], true), TUTTI_OK);
        }
    }
    tutti_forward_many(s, m, inputs, input_count, outputs, output_count);
    for (int i = 0; i < output_count && tutti_scope_status(s) >= 0; i++) {
        tell(story, "an output", outputs[i]);
        if (tutti_tensor_requires_grad(outputs[i])) {
            tutti_tensor_t *sum = tutti_sum(s, outputs[i]);
            loss = loss == NULL ? sum : tutti_add(s, loss, sum);
        }
    }
    if (loss != NULL) {
        (void)tutti_backward(s, loss);
    }
    for (int i = 0; i < input_count; i++) {
        tell(story, "the gradient of an input", tutti_tensor_grad(inputs[i]));
    }
}

/* Memory for values: the context's own of the host, or plain. */
static void check_memory(const layer_case_t *c, tutti_context_t *ctx, bool is_taken)
{
    char report[4096];
    (void)tt_alloc_report(report, sizeof report);
    const uint64_t requests = tt_device_stats(ctx->cpu).requests;
    const bool is_plain = strstr(report, "tensor data") != NULL;
    if ((requests > 0 || is_plain) != is_taken) {
        fail_msg("%s: %llu requests of memory of the host: %s", c->ops->name,
                 (unsigned long long)requests, report);
    }
}

static void run(const layer_case_t *c, const char *device, tutti_dtype_t dtype, bool is_refused,
                story_t *story)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    *story = (story_t){0};
    assert_int_equal(tt_test_context_on(device, &(tutti_context_options_t){.threads = 1}, &ctx), 0);
    story->device = tutti_context_device(ctx);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_module_t *m = make(c, ctx, dtype);
    call(c, s, m, dtype, is_refused ? &c->refused : &c->inputs[0], story);
    assert_int_equal(tutti_module_each_tensor(m, tell_with_grad, story), TUTTI_OK);
    snprintf(story->text + story->used, TEXT_BYTES - story->used, "%s", tutti_scope_error(s));
    if ((tutti_scope_status(s) < 0) != is_refused) {
        fail_msg("%s: %s", c->ops->name, is_refused ? "takes it" : tutti_scope_error(s));
    }
    check_memory(c, ctx, device == NULL);
    (void)tutti_scope_close(s);
    tutti_module_release(m);
    tutti_context_release(ctx);
}

static void compare(const layer_case_t *c, tutti_dtype_t dtype, bool is_refused)
{
    static story_t meta, host;
    run(c, "meta", dtype, is_refused, &meta);
    run(c, NULL, dtype, is_refused, &host);
    if (strcmp(meta.text, host.text) != 0) {
        fail_msg("%s: on meta\n%s\non the host\n%s", c->ops->name, meta.text, host.text);
    }
}

static void shapes_and_dtypes_are_those_of_the_host_without_its_memory(void **state)
{
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        compare(&cases[i], TUTTI_F32, false);
        compare(&cases[i], TUTTI_BF16, false);
    }
}

static void what_is_refused_is_refused_with_the_same_words(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; i < CASE_COUNT; i++) {
        if (cases[i].refused.rank > 0) {
            compare(&cases[i], TUTTI_F32, true);
            count++;
        }
    }
    assert_true(count > 30);
}

static void every_kind_has_a_case(void **state)
{
    (void)state;
    for (size_t k = 0; k < tt_layer_count; k++) {
        int count = 0;
        for (int i = 0; i < CASE_COUNT; i++) {
            count += cases[i].ops == tt_layers[k];
        }
        if (count == 0) {
            fail_msg("%s has no case", tt_layers[k]->name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_and_dtypes_are_those_of_the_host_without_its_memory),
        cmocka_unit_test(what_is_refused_is_refused_with_the_same_words),
        cmocka_unit_test(every_kind_has_a_case),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
