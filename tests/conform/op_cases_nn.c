/* Cases of op_linear.h, op_loss.h, op_norm.h and op_nn.h. Values are compared with PyTorch's by
 * golden_op_test.c; here are gradients against differences, layouts, empty inputs, errors. */
#include <tutti/op_linear.h>
#include <tutti/op_loss.h>
#include <tutti/op_nn.h>
#include <tutti/op_norm.h>

#include "op_cases.h"

#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = expression;                                                                       \
    }

CALL(matmul, tutti_matmul(s, in[0], in[1]))
CALL(linear, tutti_linear(s, in[0], in[1], in[2]))
CALL(linear_gelu, tutti_linear_gelu(s, in[0], in[1], in[2], TUTTI_GELU_ERF))
CALL(linear_gelu_tanh, tutti_linear_gelu(s, in[0], in[1], in[2], TUTTI_GELU_TANH))
CALL(softmax, tutti_softmax(s, in[0], -1))
CALL(softmax_first, tutti_softmax(s, in[0], 0))
CALL(log_softmax, tutti_log_softmax(s, in[0], -1))
CALL(cross_entropy, tutti_cross_entropy(s, in[0], in[1]))
CALL(smoothed_cross_entropy,
     tutti_cross_entropy_with(s, in[0], in[1],
                              &(tutti_cross_entropy_options_t){.label_smoothing = 0.25f,
                                                               .has_ignore_index = true}))
CALL(mse_loss, tutti_mse_loss(s, in[0], in[1], TUTTI_REDUCTION_MEAN))
CALL(mse_loss_sum, tutti_mse_loss(s, in[0], in[1], TUTTI_REDUCTION_SUM))
CALL(bce, tutti_bce_with_logits(s, in[0], in[1], TUTTI_REDUCTION_MEAN))
CALL(bce_sum, tutti_bce_with_logits(s, in[0], in[1], TUTTI_REDUCTION_SUM))
CALL(layer_norm, tutti_layer_norm(s, in[0], in[1], in[2], 0.01))
CALL(rms_norm, tutti_rms_norm(s, in[0], in[1], 0.01))
CALL(embedding, tutti_embedding(s, in[0], in[1]))
CALL(dropout, tutti_dropout_named(s, in[0], 0.5f, ((tutti_random_name_t){9, 1})))
CALL(attention, tutti_attention(s, in[0], in[1], in[2], NULL))
CALL(causal_attention,
     tutti_attention(s, in[0], in[1], in[2], &(tutti_attention_options_t){.causal = true}))
CALL(attention_qkv, tutti_attention_qkv(s, in[0], 2, &(tutti_attention_options_t){.causal = true}))
CALL(rotary, tutti_rotary(s, in[0], NULL))
CALL(rotary_pairs,
     tutti_rotary(s, in[0], &(tutti_rotary_options_t){.start = 3, .is_interleaved = true}))

#define CASE(id, about, called, ...)                                                               \
    {                                                                                              \
        .op = #id, .what = about, .call = call_##called, .inputs = {__VA_ARGS__},                  \
        .input_count = sizeof((op_input_t[]){__VA_ARGS__}) / sizeof(op_input_t)                    \
    }
#define X(...)                                                                                     \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__)                                                                \
    }
/* Labels and indices below 5. */
#define LABELS(...)                                                                                \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__), .dtype = TUTTI_I64, .high = 4                                 \
    }
#define TARGETS(...)                                                                               \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__), .high = 1, .is_constant = true                                \
    }
#define NO_BIAS                                                                                    \
    {                                                                                              \
        .is_missing = true                                                                         \
    }

const op_case_t op_cases_nn[] = {
    CASE(matmul, "", matmul, X(3, 4), X(4, 2)),
    CASE(matmul, "batched", matmul, X(2, 3, 4), X(2, 4, 2)),
    CASE(matmul, "broadcast", matmul, X(2, 1, 3, 4), X(3, 4, 2)),
    CASE(matmul, "vectors", matmul, X(5), X(5)),
    CASE(matmul, "matrix and vector", matmul, X(2, 3, 4), X(4)),
    CASE(matmul, "empty", matmul, X(0, 4), X(4, 2)),
    CASE(matmul, "empty inside", matmul, X(3, 0), X(0, 2)),
    CASE(linear, "", linear, X(2, 3, 5), X(4, 5), X(4)),
    CASE(linear, "without bias", linear, X(3, 5), X(4, 5), NO_BIAS),
    CASE(linear, "empty", linear, X(0, 5), X(4, 5), X(4)),
    CASE(linear_gelu, "", linear_gelu, X(3, 5), X(4, 5), X(4)),
    CASE(linear_gelu, "tanh", linear_gelu_tanh, X(3, 5), X(4, 5), NO_BIAS),
    CASE(linear_gelu, "empty", linear_gelu, X(0, 5), X(4, 5), X(4)),
    CASE(softmax, "", softmax, X(2, 3, 5)),
    CASE(softmax, "first", softmax_first, X(3, 4)),
    CASE(softmax, "empty", softmax, X(0, 5)),
    CASE(log_softmax, "", log_softmax, X(3, 5)),
    CASE(log_softmax, "empty", log_softmax, X(0, 5)),
    CASE(cross_entropy, "", cross_entropy, X(2, 3, 5), LABELS(2, 3)),
    CASE(cross_entropy, "smoothed", smoothed_cross_entropy, X(6, 5), LABELS(6)),
    CASE(cross_entropy, "empty", cross_entropy, X(0, 5), LABELS(0)),
    CASE(mse_loss, "", mse_loss, X(3, 4), X(3, 4)),
    CASE(mse_loss, "sum", mse_loss_sum, X(3, 4), X(3, 4)),
    CASE(mse_loss, "empty", mse_loss, X(0, 4), X(0, 4)),
    CASE(bce_with_logits, "", bce, X(3, 4), TARGETS(3, 4)),
    CASE(bce_with_logits, "empty", bce_sum, X(0), TARGETS(0)),
    CASE(layer_norm, "", layer_norm, X(2, 3, 5), X(5), X(5)),
    CASE(layer_norm, "without weight and bias", layer_norm, X(3, 5), NO_BIAS, NO_BIAS),
    CASE(layer_norm, "empty", layer_norm, X(0, 5), X(5), X(5)),
    CASE(rms_norm, "", rms_norm, X(2, 3, 5), X(5)),
    CASE(rms_norm, "empty", rms_norm, X(0, 5), X(5)),
    CASE(embedding, "", embedding, LABELS(2, 4), X(5, 3)),
    CASE(embedding, "empty", embedding, LABELS(0), X(5, 3)),
    CASE(dropout, "", dropout, X(4, 5)),
    CASE(dropout, "empty", dropout, X(0, 5)),
    CASE(attention, "", attention, X(2, 2, 3, 4), X(2, 2, 5, 4), X(2, 2, 5, 4)),
    CASE(attention, "causal", causal_attention, X(1, 2, 5, 4), X(1, 2, 5, 4), X(1, 2, 5, 4)),
    CASE(attention, "empty", attention, X(0, 2, 3, 4), X(0, 2, 3, 4), X(0, 2, 3, 4)),
    CASE(attention_qkv, "", attention_qkv, X(2, 3, 12)),
    CASE(attention_qkv, "empty", attention_qkv, X(0, 3, 12)),
    CASE(rotary, "", rotary, X(2, 3, 6)),
    CASE(rotary, "interleaved", rotary_pairs, X(2, 3, 6)),
    CASE(rotary, "empty", rotary, X(0, 3, 6)),
};

static void matmul_of_unlike_sizes(tutti_scope_t *s)
{
    (void)tutti_matmul(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3)),
                       tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(4, 5)));
}

const op_error_t op_errors_nn[] = {
    {"matmul", matmul_of_unlike_sizes,
     "matmul: the inner sizes must be equal, but are 3 and 4: f32[2, 3] and f32[4, 5]"},
};

OP_CASE_LISTS(nn);
