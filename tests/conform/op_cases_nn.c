/* Cases of op_math.h, op_loss.h, op_nn.h and op_nn.h. Their references are golden values. */
#include <math.h>

#include <tutti/op_feature.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>

#include "op_cases.h"

/* ---- op_math.h ----------------------------------------------------------------------------- */

static void call_matmul(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_matmul(s, in[0], in[1]);
}

static void call_linear(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_linear(s, in[0], in[1], in[2]);
}

static void call_linear_gelu(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_linear_gelu(s, in[0], in[1], in[2], TUTTI_GELU_ERF);
}

static void call_linear_gelu_tanh(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_linear_gelu(s, in[0], in[1], in[2], TUTTI_GELU_TANH);
}

/* ---- op_loss.h ------------------------------------------------------------------------------- */

static void call_softmax(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_softmax(s, in[0], -1);
}

static void call_softmax_first(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_softmax(s, in[0], 0);
}

static void call_log_softmax(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_log_softmax(s, in[0], 1);
}

static void call_cross_entropy(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_cross_entropy(s, in[0], in[1]);
}

static void call_cross_entropy_smooth(tutti_scope_t *s, tutti_tensor_t *const *in,
                                      tutti_tensor_t **out)
{
    out[0] = tutti_cross_entropy_with(s, in[0], in[1],
                                      &(tutti_cross_entropy_options_t){.reduction = TUTTI_LOSS_NONE,
                                                                       .label_smoothing = 0.25,
                                                                       .has_ignore_index = true,
                                                                       .ignore_index = 2});
}

static void call_cross_entropy_sum(tutti_scope_t *s, tutti_tensor_t *const *in,
                                   tutti_tensor_t **out)
{
    out[0] = tutti_cross_entropy_with(
        s, in[0], in[1], &(tutti_cross_entropy_options_t){.reduction = TUTTI_LOSS_SUM});
}

static void call_mse_loss(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_mse_loss(s, in[0], in[1], TUTTI_LOSS_MEAN);
    out[1] = tutti_mse_loss(s, in[0], in[1], TUTTI_LOSS_NONE);
}

static void call_mse_loss_sum(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_mse_loss(s, in[0], in[1], TUTTI_LOSS_SUM);
}

static void call_smooth_l1(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_smooth_l1_loss(s, in[0], in[1], 0.75, TUTTI_LOSS_SUM);
    out[1] = tutti_smooth_l1_loss(s, in[0], in[1], 0, TUTTI_LOSS_NONE);
}

static void call_huber(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_huber_loss(s, in[0], in[1], 1.25, TUTTI_LOSS_MEAN);
}

static void call_kl_div(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_kl_div(s, in[0], in[1], NULL);
    out[1] = tutti_kl_div(s, in[0], in[1], &(tutti_kl_div_options_t){.batch_mean = true});
    out[2] = tutti_kl_div(s, in[0], in[1], &(tutti_kl_div_options_t){.reduction = TUTTI_LOSS_NONE});
}

static void call_kl_div_log(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] =
        tutti_kl_div(s, in[0], in[1],
                     &(tutti_kl_div_options_t){.reduction = TUTTI_LOSS_SUM, .log_target = true});
}

static void call_bce(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_bce_with_logits(s, in[0], in[1], TUTTI_LOSS_MEAN);
    out[1] = tutti_bce_with_logits(s, in[0], in[1], TUTTI_LOSS_NONE);
}

static void call_bce_each(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_bce_with_logits(s, in[0], in[1], TUTTI_LOSS_NONE);
}

static void call_bce_sum(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_bce_with_logits(s, in[0], in[1], TUTTI_LOSS_SUM);
}

/* ---- op_nn.h ------------------------------------------------------------------------------- */

static void call_layer_norm(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_layer_norm(s, in[0], in[1], in[2], 0.1);
}

static void call_weight_norm(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_weight_norm(s, in[0], in[1], 0);
}

static void call_rms_norm(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_rms_norm(s, in[0], in[1], 0.1);
}

/* ---- op_nn.h --------------------------------------------------------------------------------- */

static void call_embedding(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_embedding(s, in[0], in[1]);
}

static void call_dropout(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_dropout(s, in[0], 0.25F);
}

static void call_dropout_named(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_dropout_named(s, in[0], 0.25F, (tutti_random_name_t){.module = 5, .call = 2});
}

static void call_attention(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] =
        tutti_attention(s, in[0], in[1], in[2], &(tutti_attention_options_t){.key_padding = in[3]});
}

static void call_attention_causal(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_attention(s, in[0], in[1], in[2],
                             &(tutti_attention_options_t){.causal = true, .dropout = 0.25F});
}

static void call_attention_qkv(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_attention_qkv(s, in[0], 2, &(tutti_attention_options_t){.causal = true});
}

static void call_attention_qkv_padded(tutti_scope_t *s, tutti_tensor_t *const *in,
                                      tutti_tensor_t **out)
{
    out[0] = tutti_attention_qkv(
        s, in[0], 2,
        &(tutti_attention_options_t){.key_padding = in[1], .dropout = 0.25F, .scale = 0.5});
}

/* Of one head of keys and values for two of queries: [.., (4 + 2 x 2) 2]. */
static void call_attention_qkv_grouped(tutti_scope_t *s, tutti_tensor_t *const *in,
                                       tutti_tensor_t **out)
{
    out[0] = tutti_attention_qkv(
        s, in[0], 4,
        &(tutti_attention_options_t){.key_padding = in[1], .causal = true, .kv_heads = 2});
}

static void call_rotary(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_rotary(s, in[0], NULL);
    out[1] = tutti_rotary(s, in[0], &(tutti_rotary_options_t){.is_interleaved = true, .start = 3});
}

/* ---- cases ----------------------------------------------------------------------------------- */

static const double targets[] = {3, 0, 4, 2, 2, 1}, ignored[] = {3, -100, 4, 2, -100, 1};
static const double padding[] = {0, 0, 1, 0, 0, 1, 1, 1};
static const double zeros[6] = {0};

#define CASE(name, about) .op = name, .what = about
#define X(...)                                                                                     \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__)                                                                \
    }
#define MISSING                                                                                    \
    {                                                                                              \
        .is_missing = true                                                                         \
    }
#define CLASSES(list, ...)                                                                         \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__), .dtype = TUTTI_I64, .values = list                            \
    }
#define PADDING(...)                                                                               \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__), .dtype = TUTTI_BOOL, .values = padding                        \
    }

/* The log-sums of attention's rows are kept in f32, whatever the dtype. */
#define ATTENTION_TOLERANCE 2e-5

const op_case_t op_cases_nn[] = {
    {CASE("matmul", ""), .input_count = 2, .inputs = {X(3, 4), X(4, 2)}, .call = call_matmul},
    {CASE("matmul", "broadcast"), .input_count = 2, .inputs = {X(2, 1, 3, 4), X(3, 4, 2)},
     .call = call_matmul},
    {CASE("matmul", "batches"), .input_count = 2, .inputs = {X(2, 3, 4), X(2, 4, 2)},
     .call = call_matmul},
    {CASE("matmul", "batches by one matrix"), .input_count = 2, .inputs = {X(2, 3, 4), X(4, 2)},
     .call = call_matmul},
    {CASE("matmul", "one matrix by batches"), .input_count = 2, .inputs = {X(3, 4), X(2, 2, 4, 2)},
     .call = call_matmul},
    {CASE("matmul", "row"), .input_count = 2, .inputs = {X(4), X(2, 4, 3)}, .call = call_matmul},
    {CASE("matmul", "column"), .input_count = 2, .inputs = {X(2, 3, 4), X(4)}, .call = call_matmul},
    {CASE("matmul", "dot"), .input_count = 2, .inputs = {X(5), X(5)}, .call = call_matmul},
    {CASE("matmul", "empty"), .input_count = 2, .inputs = {X(0, 4), X(4, 2)}, .call = call_matmul},
    {CASE("matmul", "sums of nothing"), .input_count = 2, .inputs = {X(2, 0), X(0, 3)},
     .call = call_matmul, .expected = zeros, .expected_shape = SHAPE(2, 3)},

    {CASE("linear", ""), .input_count = 3, .inputs = {X(2, 3, 4), X(5, 4), X(5)},
     .call = call_linear},
    {CASE("linear", "without bias"), .input_count = 3, .inputs = {X(3, 4), X(5, 4), MISSING},
     .call = call_linear},
    {CASE("linear", "vector"), .input_count = 3, .inputs = {X(4), X(5, 4), X(5)},
     .call = call_linear},
    {CASE("linear", "empty"), .input_count = 3, .inputs = {X(0, 4), X(5, 4), X(5)},
     .call = call_linear},
    {CASE("linear_gelu", ""), .input_count = 3, .inputs = {X(2, 3, 4), X(5, 4), X(5)},
     .call = call_linear_gelu},
    {CASE("linear_gelu", "tanh"), .input_count = 3, .inputs = {X(3, 4), X(5, 4), MISSING},
     .call = call_linear_gelu_tanh},
    {CASE("linear_gelu", "empty"), .input_count = 3, .inputs = {X(2, 0, 4), X(5, 4), X(5)},
     .call = call_linear_gelu},

    {CASE("softmax", ""), .inputs = {X(3, 5)}, .call = call_softmax},
    {CASE("softmax", "first dimension"), .inputs = {X(3, 2, 2)}, .call = call_softmax_first},
    {CASE("softmax", "scalar"), .inputs = {{.shape = {0}}}, .call = call_softmax},
    {CASE("softmax", "empty"), .inputs = {X(0, 5)}, .call = call_softmax},
    {CASE("log_softmax", "middle dimension"), .inputs = {X(2, 3, 2)}, .call = call_log_softmax},
    {CASE("log_softmax", "empty"), .inputs = {X(2, 0)}, .call = call_log_softmax},

    {CASE("cross_entropy", ""), .input_count = 2, .inputs = {X(2, 3, 5), CLASSES(targets, 2, 3)},
     .call = call_cross_entropy},
    {CASE("cross_entropy", "ignored"), .input_count = 2, .inputs = {X(6, 5), CLASSES(ignored, 6)},
     .call = call_cross_entropy},
    {CASE("cross_entropy", "each, smooth"), .input_count = 2,
     .inputs = {X(6, 5), CLASSES(targets, 6)}, .call = call_cross_entropy_smooth},
    {CASE("cross_entropy", "sum"), .input_count = 2, .inputs = {X(6, 5), CLASSES(targets, 6)},
     .call = call_cross_entropy_sum},
    {CASE("cross_entropy", "empty"), .input_count = 2, .inputs = {X(0, 5), CLASSES(targets, 0)},
     .call = call_cross_entropy},
    {CASE("mse_loss", ""), .input_count = 2, .output_count = 2, .inputs = {X(3, 4), X(3, 4)},
     .call = call_mse_loss},
    {CASE("mse_loss", "sum"), .input_count = 2, .inputs = {X(5), X(5)}, .call = call_mse_loss_sum},
    {CASE("mse_loss", "empty"), .input_count = 2, .inputs = {X(0), X(0)},
     .call = call_mse_loss_sum},
    {CASE("huber_loss", ""), .input_count = 2, .inputs = {X(3, 4), X(3, 4)}, .call = call_huber},
    {CASE("huber_loss", "empty"), .input_count = 2, .inputs = {X(0), X(0)}, .call = call_huber,
     .has_no_gradient = true},
    {CASE("smooth_l1_loss", ""), .input_count = 2, .output_count = 2, .inputs = {X(3, 4), X(3, 4)},
     .call = call_smooth_l1},
    {CASE("smooth_l1_loss", "empty"), .input_count = 2, .output_count = 2, .inputs = {X(0), X(0)},
     .call = call_smooth_l1, .has_no_gradient = true},
    {CASE("kl_div", ""), .input_count = 2, .output_count = 3,
     .inputs = {X(3, 4), {.shape = SHAPE(3, 4), .low = 0.1, .high = 1}}, .call = call_kl_div},
    {CASE("kl_div", "logarithms"), .input_count = 2, .inputs = {X(5), X(5)},
     .call = call_kl_div_log},
    {CASE("kl_div", "empty"), .input_count = 2, .inputs = {X(0), X(0)}, .call = call_kl_div_log},
    {CASE("bce_with_logits", ""), .input_count = 2, .output_count = 2,
     .inputs = {X(3, 4), {.shape = SHAPE(3, 4), .low = 0, .high = 1}}, .call = call_bce},
    {CASE("bce_with_logits", "sum"), .input_count = 2, .inputs = {X(5), X(5)},
     .call = call_bce_sum},
    {CASE("bce_with_logits", "infinite logits"), .input_count = 2,
     .inputs = {{.shape = SHAPE(7),
                 .values =
                     VALUES(INFINITY, -INFINITY, INFINITY, -INFINITY, INFINITY, -INFINITY, 0)},
                {.shape = SHAPE(7), .values = VALUES(1, 0, 0, 1, 0.5, 0.5, 1)}},
     .call = call_bce_each, .has_no_gradient = true,
     .expected = VALUES(0, 0, INFINITY, INFINITY, INFINITY, INFINITY, 0.69314718055994531),
     .expected_shape = SHAPE(7)},
    {CASE("bce_with_logits", "empty"), .input_count = 2, .inputs = {X(0), X(0)},
     .call = call_bce_sum},

    {CASE("layer_norm", ""), .input_count = 3, .inputs = {X(2, 3, 5), X(5), X(5)},
     .call = call_layer_norm},
    {CASE("layer_norm", "two dimensions"), .input_count = 3,
     .inputs = {X(3, 2, 4), X(2, 4), X(2, 4)}, .call = call_layer_norm},
    {CASE("layer_norm", "without weight and bias"), .input_count = 3,
     .inputs = {X(3, 4), MISSING, MISSING}, .call = call_layer_norm},
    {CASE("layer_norm", "without weight"), .input_count = 3, .inputs = {X(3, 4), MISSING, X(4)},
     .call = call_layer_norm},
    {CASE("layer_norm", "empty"), .input_count = 3, .inputs = {X(0, 4), X(4), X(4)},
     .call = call_layer_norm},
    {CASE("rms_norm", ""), .input_count = 2, .inputs = {X(2, 3, 5), X(5)}, .call = call_rms_norm},
    {CASE("rms_norm", "without weight"), .input_count = 2, .inputs = {X(3, 4), MISSING},
     .call = call_rms_norm},
    {CASE("weight_norm", ""), .input_count = 2, .inputs = {X(3, 2, 5), X(3, 1, 1)},
     .call = call_weight_norm},
    {CASE("weight_norm", "long rows"), .input_count = 2, .inputs = {X(2, 37), X(2, 1)},
     .call = call_weight_norm},
    {CASE("weight_norm", "empty"), .input_count = 2, .inputs = {X(0, 4), X(0, 1)},
     .call = call_weight_norm},
    {CASE("rms_norm", "empty"), .input_count = 2, .inputs = {X(0, 4), X(4)}, .call = call_rms_norm},

    {CASE("embedding", ""), .input_count = 2, .inputs = {CLASSES(targets, 2, 3), X(5, 3)},
     .call = call_embedding},
    {CASE("embedding", "empty"), .input_count = 2, .inputs = {CLASSES(targets, 0), X(5, 3)},
     .call = call_embedding},
    {CASE("dropout", ""), .inputs = {X(3, 7)}, .call = call_dropout},
    {CASE("dropout", "named"), .inputs = {X(3, 7)}, .call = call_dropout_named},
    {CASE("dropout", "empty"), .inputs = {X(3, 0)}, .call = call_dropout},

    {CASE("attention", ""), .input_count = 4,
     .inputs = {X(1, 2, 3, 4), X(1, 2, 5, 4), X(1, 2, 5, 4), MISSING}, .call = call_attention,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention", "scores of -infinity"), .input_count = 4,
     .inputs = {{.shape = SHAPE(1, 1, 2, 2), .values = VALUES(1, 1, 1, 0)},
                {.shape = SHAPE(1, 1, 2, 2), .values = VALUES(-INFINITY, 1, -INFINITY, 1)},
                {.shape = SHAPE(1, 1, 2, 2), .values = VALUES(1, 2, 3, 4)},
                MISSING},
     .call = call_attention, .has_no_gradient = true, .expected = VALUES(0, 0, 0, 0),
     .expected_shape = SHAPE(1, 1, 2, 2)},
    {CASE("attention", "padding, a query without keys"), .input_count = 4,
     .inputs = {X(2, 1, 2, 3), X(2, 1, 4, 3), X(2, 1, 4, 3), PADDING(2, 4)}, .call = call_attention,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention", "causal, dropout"), .input_count = 3,
     .inputs = {X(1, 2, 5, 3), X(1, 2, 4, 3), X(1, 2, 4, 3)}, .call = call_attention_causal,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention", "no queries"), .input_count = 4,
     .inputs = {X(1, 2, 0, 4), X(1, 2, 5, 4), X(1, 2, 5, 4), MISSING}, .call = call_attention},
    {CASE("attention", "no keys"), .input_count = 4,
     .inputs = {X(1, 1, 2, 3), X(1, 1, 0, 3), X(1, 1, 0, 3), MISSING}, .call = call_attention,
     .expected = zeros, .expected_shape = SHAPE(1, 1, 2, 3)},
    {CASE("attention_qkv", "causal"), .inputs = {X(2, 3, 12)}, .call = call_attention_qkv,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention_qkv", "padding, dropout"), .input_count = 2,
     .inputs = {X(2, 4, 18), PADDING(2, 4)}, .call = call_attention_qkv_padded,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention", "heads share keys"), .input_count = 4,
     .inputs = {X(2, 4, 3, 2), X(2, 2, 4, 2), X(2, 2, 4, 2), PADDING(2, 4)}, .call = call_attention,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention", "all heads share keys, causal, dropout"), .input_count = 3,
     .inputs = {X(1, 3, 5, 4), X(1, 1, 4, 4), X(1, 1, 4, 4)}, .call = call_attention_causal,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention_qkv", "heads share keys"), .input_count = 2,
     .inputs = {X(2, 4, 16), PADDING(2, 4)}, .call = call_attention_qkv_grouped,
     .tolerance = ATTENTION_TOLERANCE},
    {CASE("attention_qkv", "empty"), .inputs = {X(2, 0, 12)}, .call = call_attention_qkv},
    {CASE("rotary", ""), .output_count = 2, .inputs = {X(2, 3, 6)}, .call = call_rotary},
    {CASE("rotary", "empty"), .output_count = 2, .inputs = {X(2, 0, 6)}, .call = call_rotary},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static tutti_tensor_t *f32(tutti_scope_t *s, tutti_shape_t shape)
{
    return tutti_ones(s, TUTTI_F32, shape);
}

static void matmul_of_unlike_sizes(tutti_scope_t *s)
{
    (void)tutti_matmul(s, f32(s, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(4, 5)));
}

static void matmul_of_a_scalar(tutti_scope_t *s)
{
    (void)tutti_matmul(s, f32(s, TUTTI_SCALAR), f32(s, TUTTI_SHAPE(4, 5)));
}

static void matmul_of_integers(tutti_scope_t *s)
{
    (void)tutti_matmul(s, tutti_ones(s, TUTTI_I32, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(3, 2)));
}

static void linear_of_unlike_sizes(tutti_scope_t *s)
{
    (void)tutti_linear(s, f32(s, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(5, 4)), NULL);
}

static void linear_with_a_wrong_bias(tutti_scope_t *s)
{
    (void)tutti_linear(s, f32(s, TUTTI_SHAPE(2, 4)), f32(s, TUTTI_SHAPE(5, 4)),
                       f32(s, TUTTI_SHAPE(4)));
}

static void linear_gelu_of_no_formula(tutti_scope_t *s)
{
    (void)tutti_linear_gelu(s, f32(s, TUTTI_SHAPE(2, 4)), f32(s, TUTTI_SHAPE(5, 4)), NULL,
                            (tutti_gelu_t)7);
}

static void softmax_of_no_dimension(tutti_scope_t *s)
{
    (void)tutti_softmax(s, f32(s, TUTTI_SHAPE(2, 4)), 2);
}

static void softmax_of_integers(tutti_scope_t *s)
{
    (void)tutti_softmax(s, tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(2)), 0);
}

static void cross_entropy_of_unlike_shapes(tutti_scope_t *s)
{
    (void)tutti_cross_entropy(s, f32(s, TUTTI_SHAPE(2, 5, 3)),
                              tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(2, 3)));
}

static void cross_entropy_of_a_wrong_class(tutti_scope_t *s)
{
    (void)tutti_cross_entropy(s, f32(s, TUTTI_SHAPE(3, 5)), tutti_arange(s, TUTTI_I64, 3, 1, 3));
}

static void cross_entropy_too_smooth(tutti_scope_t *s)
{
    (void)tutti_cross_entropy_with(s, f32(s, TUTTI_SHAPE(3, 5)),
                                   tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(3)),
                                   &(tutti_cross_entropy_options_t){.label_smoothing = 2});
}

static void nll_loss_of_fractions(tutti_scope_t *s)
{
    (void)tutti_nll_loss(s, f32(s, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(2)), NULL);
}

static void mse_of_unlike_shapes(tutti_scope_t *s)
{
    (void)tutti_mse_loss(s, f32(s, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(3)), TUTTI_LOSS_MEAN);
}

static void huber_without_a_delta(tutti_scope_t *s)
{
    tutti_tensor_t *x = f32(s, TUTTI_SHAPE(2));
    (void)tutti_huber_loss(s, x, x, 0, TUTTI_LOSS_MEAN);
}

static void smooth_l1_of_a_negative_beta(tutti_scope_t *s)
{
    tutti_tensor_t *x = f32(s, TUTTI_SHAPE(2));
    (void)tutti_smooth_l1_loss(s, x, x, -1, TUTTI_LOSS_MEAN);
}

static void kl_div_of_unlike_shapes(tutti_scope_t *s)
{
    (void)tutti_kl_div(s, f32(s, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(3)), NULL);
}

static void layer_norm_of_another_row(tutti_scope_t *s)
{
    (void)tutti_layer_norm(s, f32(s, TUTTI_SHAPE(2, 3)), f32(s, TUTTI_SHAPE(2)), NULL, 0);
}

static void layer_norm_of_negative_eps(tutti_scope_t *s)
{
    (void)tutti_layer_norm(s, f32(s, TUTTI_SHAPE(2, 3)), NULL, NULL, -1);
}

static void embedding_outside(tutti_scope_t *s)
{
    const int64_t ids[] = {0, 4, 7, 1};
    (void)tutti_embedding(s, tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2, 2), ids),
                          f32(s, TUTTI_SHAPE(7, 3)));
}

static void dropout_of_too_much(tutti_scope_t *s)
{
    (void)tutti_dropout(s, f32(s, TUTTI_SHAPE(2)), 1.5F);
}

static void attention_of_unlike_heads(tutti_scope_t *s)
{
    tutti_tensor_t *k = f32(s, TUTTI_SHAPE(1, 2, 5, 4));
    (void)tutti_attention(s, f32(s, TUTTI_SHAPE(1, 3, 5, 4)), k, k, NULL);
}

static void attention_of_a_wrong_padding(tutti_scope_t *s)
{
    tutti_tensor_t *k = f32(s, TUTTI_SHAPE(1, 2, 5, 4));
    (void)tutti_attention(
        s, k, k, k,
        &(tutti_attention_options_t){.key_padding = tutti_zeros(s, TUTTI_BOOL, TUTTI_SHAPE(1, 4))});
}

static void attention_of_other_sizes(tutti_scope_t *s)
{
    tutti_tensor_t *k = f32(s, TUTTI_SHAPE(1, 2, 5, 3));
    (void)tutti_attention(s, f32(s, TUTTI_SHAPE(1, 2, 5, 4)), k, k, NULL);
}

static void attention_of_other_kv_heads(tutti_scope_t *s)
{
    tutti_tensor_t *k = f32(s, TUTTI_SHAPE(1, 2, 5, 4));
    (void)tutti_attention(s, k, k, k, &(tutti_attention_options_t){.kv_heads = 1});
}

static void attention_of_no_groups(tutti_scope_t *s)
{
    (void)tutti_attention_qkv(s, f32(s, TUTTI_SHAPE(1, 2, 12)), 4,
                              &(tutti_attention_options_t){.kv_heads = 3});
}

static void attention_of_a_wrong_width(tutti_scope_t *s)
{
    (void)tutti_attention_qkv(s, f32(s, TUTTI_SHAPE(1, 2, 12)), 4,
                              &(tutti_attention_options_t){.kv_heads = 2});
}

static void attention_of_indivisible_heads(tutti_scope_t *s)
{
    (void)tutti_attention_qkv(s, f32(s, TUTTI_SHAPE(1, 2, 12)), 3, NULL);
}

static void rotary_of_an_odd_size(tutti_scope_t *s)
{
    (void)tutti_rotary(s, f32(s, TUTTI_SHAPE(2, 3)), NULL);
}

const op_error_t op_errors_nn[] = {
    {"matmul", matmul_of_unlike_sizes, "matmul: the inner sizes differ: f32[2, 3] and f32[4, 5]"},
    {"matmul", matmul_of_a_scalar,
     "matmul: each input needs at least one dimension: f32[] and f32[4, 5]"},
    {"matmul", matmul_of_integers,
     "matmul: input 0 must be of a floating dtype, which tutti_cast() gives it: i32[2, 3] and "
     "f32[3, 2]"},
    {"linear", linear_of_unlike_sizes,
     "linear: the last size of x must be weight's in, 4: f32[2, 3], f32[5, 4] and none"},
    {"linear", linear_with_a_wrong_bias,
     "linear: bias must be [out], [5]: f32[2, 4], f32[5, 4] and f32[4]"},
    {"linear_gelu", linear_gelu_of_no_formula,
     "linear_gelu: the formula is TUTTI_GELU_ERF or TUTTI_GELU_TANH, not 7"},
    {"softmax", softmax_of_no_dimension, "softmax: there is no dimension 2: f32[2, 4]"},
    {"softmax", softmax_of_integers, "softmax: want a floating dtype: i64[2]"},
    {"cross_entropy", cross_entropy_of_unlike_shapes,
     "cross_entropy: the targets must have the shape of the logits without the classes, which "
     "come last: f32[2, 5, 3] and i64[2, 3]"},
    {"cross_entropy", cross_entropy_of_a_wrong_class,
     "cross_entropy: target 2 is 5, outside the 5 classes and not ignore_index -100"},
    {"cross_entropy", cross_entropy_too_smooth,
     "cross_entropy: label_smoothing must be in [0, 1], not 2"},
    {"gather", nll_loss_of_fractions,
     "nll_loss: want floating log-probabilities, and targets of i64, i32 or u8: f32[2, 3] and "
     "f32[2]"},
    {"mse_loss", mse_of_unlike_shapes,
     "mse_loss: both inputs must have the same shape: f32[2, 3] and f32[3]"},
    {"huber_loss", huber_without_a_delta, "huber_loss: delta must be positive, not 0"},
    {"smooth_l1_loss", smooth_l1_of_a_negative_beta,
     "smooth_l1_loss: beta must be at least 0, not -1"},
    {"kl_div", kl_div_of_unlike_shapes,
     "kl_div: both inputs must have the same shape: f32[2, 3] and f32[3]"},
    {"layer_norm", layer_norm_of_another_row,
     "layer_norm: weight and bias must have the shape of x's last dimensions: f32[2, 3], f32[2] "
     "and none"},
    {"layer_norm", layer_norm_of_negative_eps,
     "layer_norm: eps must be at least 0, not -1: f32[2, 3], none and none"},
    {"embedding", embedding_outside, "embedding: index 7 at [1, 0] is outside a vocabulary of 7"},
    {"dropout", dropout_of_too_much, "dropout: p must be in [0, 1], not 1.5"},
    {"attention", attention_of_unlike_heads,
     "attention: the 2 heads of k and v do not divide the 3 of q: f32[1, 3, 5, 4], "
     "f32[1, 2, 5, 4], f32[1, 2, 5, 4] and none"},
    {"attention", attention_of_a_wrong_padding,
     "attention: key_padding must be [B, Tk], [1, 5]: f32[1, 2, 5, 4], f32[1, 2, 5, 4], "
     "f32[1, 2, 5, 4] and bool[1, 4]"},
    {"attention", attention_of_other_sizes,
     "attention: q, k and v must agree in the first size and the last: f32[1, 2, 5, 4], "
     "f32[1, 2, 5, 3], f32[1, 2, 5, 3] and none"},
    {"attention", attention_of_other_kv_heads,
     "attention: k and v have 2 heads, not kv_heads 1: f32[1, 2, 5, 4], f32[1, 2, 5, 4], "
     "f32[1, 2, 5, 4] and none"},
    {"attention_qkv", attention_of_no_groups,
     "attention_qkv: the 3 heads of k and v do not divide the 4 of q: f32[1, 2, 12] and none"},
    {"attention_qkv", attention_of_a_wrong_width,
     "attention_qkv: qkv must be [B, T, (4 + 2 x 2) D], of heads of D: f32[1, 2, 12] and none"},
    {"attention_qkv", attention_of_indivisible_heads,
     "attention_qkv: qkv must be [B, T, 3 C] with C a multiple of the 3 heads: f32[1, 2, 12] and "
     "none"},
    {"rotary", rotary_of_an_odd_size, "rotary: x must be [..., T, D] with an even D: f32[2, 3]"},
};

OP_CASE_LISTS(nn);
