/* How each golden case is called: a table from the names of make_golden.py to public functions. */
#ifndef TT_GOLDEN_CALLS_H
#define TT_GOLDEN_CALLS_H

#include <tutti/modes.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "golden_args.h"
#include "golden_everyday.h"
#include "golden_layers.h"
#include "golden_vocabulary.h"
#include "golden_windows.h"

/* ---- op_math.h ------------------------------------------------------------------------------ */

static tutti_tensor_t *call_scalar_sub(golden_call_t *c)
{
    return tutti_scalar_sub(c->s, number(c, "value"), c->in[0]);
}

static tutti_tensor_t *call_scalar_div(golden_call_t *c)
{
    return tutti_scalar_div(c->s, number(c, "value"), c->in[0]);
}

static tutti_tensor_t *call_clamp(golden_call_t *c)
{
    return tutti_clamp(c->s, c->in[0], number(c, "low"), number(c, "high"));
}

static tutti_tensor_t *call_gelu(golden_call_t *c)
{
    return tutti_gelu(c->s, c->in[0], TUTTI_GELU_ERF);
}

static tutti_tensor_t *call_gelu_tanh(golden_call_t *c)
{
    return tutti_gelu(c->s, c->in[0], TUTTI_GELU_TANH);
}

static tutti_tensor_t *call_where(golden_call_t *c)
{
    return tutti_where(c->s, c->in[0], c->in[1], c->in[2]);
}

static tutti_tensor_t *call_masked_fill(golden_call_t *c)
{
    return tutti_masked_fill(c->s, c->in[0], c->in[1], number(c, "value"));
}

/* ---- op_shape.h ----------------------------------------------------------------------------- */

static tutti_tensor_t *call_view(golden_call_t *c)
{
    /* A view of strided memory is an error, and tested elsewhere. */
    return tutti_view(c->s, tutti_contiguous(c->s, c->in[0]), shape(c, "shape"));
}

static tutti_tensor_t *call_reshape(golden_call_t *c)
{
    return tutti_reshape(c->s, c->in[0], shape(c, "shape"));
}

static tutti_tensor_t *call_flatten(golden_call_t *c)
{
    return tutti_flatten(c->s, c->in[0], (int)integer(c, "first"), (int)integer(c, "last"));
}

static tutti_tensor_t *call_squeeze(golden_call_t *c)
{
    return tutti_squeeze(c->s, c->in[0], (int)integer(c, "dim"));
}

static tutti_tensor_t *call_unsqueeze(golden_call_t *c)
{
    return tutti_unsqueeze(c->s, c->in[0], (int)integer(c, "dim"));
}

static tutti_tensor_t *call_transpose(golden_call_t *c)
{
    return tutti_transpose(c->s, c->in[0], (int)integer(c, "a"), (int)integer(c, "b"));
}

static tutti_tensor_t *call_permute(golden_call_t *c)
{
    return tutti_permute(c->s, c->in[0], dims(c, "dims"));
}

static tutti_tensor_t *call_slice(golden_call_t *c)
{
    const tutti_range_t range = {
        .start = integer(c, "start"), .stop = integer(c, "stop"), .step = integer(c, "step")};
    return tutti_slice(c->s, c->in[0], (int)integer(c, "dim"), range);
}

static tutti_tensor_t *call_narrow(golden_call_t *c)
{
    return tutti_narrow(c->s, c->in[0], (int)integer(c, "dim"), integer(c, "start"),
                        integer(c, "length"));
}

static tutti_tensor_t *call_select(golden_call_t *c)
{
    return tutti_select(c->s, c->in[0], (int)integer(c, "dim"), integer(c, "index"));
}

static tutti_tensor_t *call_split(golden_call_t *c)
{
    tutti_split(c->s, c->in[0], (int)integer(c, "dim"), (int)integer(c, "count"), c->out);
    return NULL;
}

static tutti_tensor_t *call_split_sizes(golden_call_t *c)
{
    tutti_split_sizes(c->s, c->in[0], (int)integer(c, "dim"), shape(c, "sizes"), c->out);
    return NULL;
}

static tutti_tensor_t *call_expand(golden_call_t *c)
{
    return tutti_expand(c->s, c->in[0], shape(c, "shape"));
}

static tutti_tensor_t *call_cat(golden_call_t *c)
{
    return tutti_cat(c->s, c->in, c->input_count, (int)integer(c, "dim"));
}

static tutti_tensor_t *call_stack(golden_call_t *c)
{
    return tutti_stack(c->s, c->in, c->input_count, (int)integer(c, "dim"));
}

static tutti_tensor_t *call_gather(golden_call_t *c)
{
    return tutti_gather_along(c->s, c->in[0], (int)integer(c, "dim"), c->in[1]);
}

static tutti_tensor_t *call_index_select(golden_call_t *c)
{
    return tutti_index_select(c->s, c->in[0], (int)integer(c, "dim"), c->in[1]);
}

static tutti_tensor_t *call_cast(golden_call_t *c)
{
    return tutti_cast(c->s, c->in[0], strcmp(text(c, "dtype"), "i64") == 0 ? TUTTI_I64 : TUTTI_F64);
}

/* ---- op_reduce.h ---------------------------------------------------------------------------- */

static tutti_tensor_t *call_var(golden_call_t *c)
{
    return truth(c, "all") ? tutti_var(c->s, c->in[0])
                           : tutti_var_over(c->s, c->in[0], dims(c, "dims"), truth(c, "keepdim"),
                                            number(c, "correction"));
}

static tutti_tensor_t *call_max_along(golden_call_t *c)
{
    c->out[0] =
        tutti_max_along(c->s, c->in[0], (int)integer(c, "dim"), truth(c, "keepdim"), &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_min_along(golden_call_t *c)
{
    c->out[0] =
        tutti_min_along(c->s, c->in[0], (int)integer(c, "dim"), truth(c, "keepdim"), &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_argmax(golden_call_t *c)
{
    return tutti_argmax(c->s, c->in[0], (int)integer(c, "dim"), truth(c, "keepdim"));
}

static tutti_tensor_t *call_argmin(golden_call_t *c)
{
    return tutti_argmin(c->s, c->in[0], (int)integer(c, "dim"), truth(c, "keepdim"));
}

/* ---- op_math.h, op_loss.h ------------------------------------------------------------------ */

static tutti_tensor_t *call_linear(golden_call_t *c)
{
    return tutti_linear(c->s, c->in[0], c->in[1], c->in[2]);
}

static tutti_tensor_t *call_linear_gelu(golden_call_t *c)
{
    return tutti_linear_gelu(c->s, c->in[0], c->in[1], c->in[2],
                             strcmp(text(c, "formula"), "tanh") == 0 ? TUTTI_GELU_TANH
                                                                     : TUTTI_GELU_ERF);
}

static tutti_tensor_t *call_softmax(golden_call_t *c)
{
    return tutti_softmax(c->s, c->in[0], (int)integer(c, "dim"));
}

static tutti_tensor_t *call_log_softmax(golden_call_t *c)
{
    return tutti_log_softmax(c->s, c->in[0], (int)integer(c, "dim"));
}

static tutti_tensor_t *call_cross_entropy(golden_call_t *c)
{
    return tutti_cross_entropy_with(c->s, c->in[0], c->in[1],
                                    &(tutti_cross_entropy_options_t){
                                        .reduction = reduction(c),
                                        .label_smoothing = number(c, "label_smoothing"),
                                        .has_ignore_index = is_given(c, "ignore_index"),
                                        .ignore_index = integer(c, "ignore_index"),
                                    });
}

static tutti_tensor_t *call_nll_loss(golden_call_t *c)
{
    return tutti_nll_loss(c->s, c->in[0], c->in[1],
                          &(tutti_nll_loss_options_t){
                              .reduction = reduction(c),
                              .has_ignore_index = is_given(c, "ignore_index"),
                              .ignore_index = integer(c, "ignore_index"),
                          });
}

static tutti_tensor_t *call_mse_loss(golden_call_t *c)
{
    return tutti_mse_loss(c->s, c->in[0], c->in[1], reduction(c));
}

static tutti_tensor_t *call_bce_with_logits(golden_call_t *c)
{
    return tutti_bce_with_logits(c->s, c->in[0], c->in[1], reduction(c));
}

static tutti_tensor_t *call_smooth_l1_loss(golden_call_t *c)
{
    return tutti_smooth_l1_loss(c->s, c->in[0], c->in[1], number(c, "beta"), reduction(c));
}

static tutti_tensor_t *call_huber_loss(golden_call_t *c)
{
    return tutti_huber_loss(c->s, c->in[0], c->in[1], number(c, "delta"), reduction(c));
}

static tutti_tensor_t *call_kl_div(golden_call_t *c)
{
    const tutti_kl_div_options_t options = {.reduction = reduction(c),
                                            .batch_mean = truth(c, "batch_mean"),
                                            .log_target = truth(c, "log")};
    return tutti_kl_div(c->s, c->in[0], c->in[1], &options);
}

/* ---- op_nn.h, op_nn.h ---------------------------------------------------------------------- */

/* The table as it was written is a second output, if there is one. */
static tutti_tensor_t *call_embedding(golden_call_t *c)
{
    const tutti_embedding_lookup_options_t options = {.has_padding = is_given(c, "padding"),
                                                      .padding = integer(c, "padding"),
                                                      .max_norm = number(c, "max_norm"),
                                                      .norm_p = number(c, "norm_p"),
                                                      .scale_by_frequency =
                                                          truth(c, "scale_by_frequency")};
    c->out[0] = tutti_embedding_with(c->s, c->in[0], c->in[1], &options);
    c->out[1] = c->output_count > 1 ? tutti_detach(c->s, c->in[1]) : NULL;
    return NULL;
}

static tutti_row_norm_options_t row_norm(const golden_call_t *c)
{
    return (tutti_row_norm_options_t){.eps = number(c, "eps"),
                                      .row_dims = (int)integer(c, "row_dims")};
}

static tutti_tensor_t *call_layer_norm(golden_call_t *c)
{
    const tutti_row_norm_options_t options = row_norm(c);
    return tutti_layer_norm_with(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_rms_norm(golden_call_t *c)
{
    const tutti_row_norm_options_t options = row_norm(c);
    return tutti_rms_norm_with(c->s, c->in[0], c->in[1], &options);
}

/* Running statistics are further outputs. */
static tutti_tensor_t *call_running(golden_call_t *c,
                                    tutti_tensor_t *(*function)(tutti_scope_t *, tutti_tensor_t *,
                                                                tutti_tensor_t *, tutti_tensor_t *,
                                                                const tutti_batch_norm_options_t *))
{
    const tutti_batch_norm_options_t options = {.running_mean = c->in[3],
                                                .running_var = c->in[4],
                                                .momentum = number(c, "momentum"),
                                                .eps = number(c, "eps")};
    tutti_context_set_training(tutti_scope_context(c->s), truth(c, "training"));
    c->out[1] = c->in[3];
    c->out[2] = c->in[4];
    return function(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_batch_norm(golden_call_t *c)
{
    return call_running(c, tutti_batch_norm);
}

static tutti_tensor_t *call_instance_norm(golden_call_t *c)
{
    return call_running(c, tutti_instance_norm);
}

static tutti_tensor_t *call_group_norm(golden_call_t *c)
{
    return tutti_group_norm(c->s, c->in[0], integer(c, "groups"), c->in[1], c->in[2],
                            number(c, "eps"));
}

static tutti_scan_t scan_of(const golden_call_t *c)
{
    return (tutti_scan_t){.x = c->in[0],
                          .weight = c->in[1],
                          .bias = c->in[2],
                          .h = c->in[3],
                          .c = c->input_count > 4 ? c->in[4] : NULL,
                          .projection = c->input_count > 5 ? c->in[5] : NULL,
                          .is_reverse = truth(c, "reverse")};
}

static tutti_tensor_t *call_rnn_scan(golden_call_t *c)
{
    const tutti_scan_t scan = scan_of(c);
    return tutti_rnn_scan(c->s, &scan, truth(c, "relu") ? TUTTI_RNN_RELU : TUTTI_RNN_TANH);
}

static tutti_tensor_t *call_lstm_scan(golden_call_t *c)
{
    const tutti_scan_t scan = scan_of(c);
    return tutti_lstm_scan(c->s, &scan, &c->out[1]);
}

static tutti_tensor_t *call_gru_scan(golden_call_t *c)
{
    const tutti_scan_t scan = scan_of(c);
    return tutti_gru_scan(c->s, &scan);
}

static tutti_tensor_t *call_dropout(golden_call_t *c)
{
    tutti_context_set_training(tutti_scope_context(c->s), truth(c, "training"));
    return tutti_dropout(c->s, c->in[0], (float)number(c, "p"));
}

static tutti_tensor_t *call_attention(golden_call_t *c)
{
    return tutti_attention(c->s, c->in[0], c->in[1], c->in[2],
                           &(tutti_attention_options_t){.causal = truth(c, "causal"),
                                                        .scale = number(c, "scale"),
                                                        .key_padding = c->in[3]});
}

static tutti_tensor_t *call_attention_qkv(golden_call_t *c)
{
    return tutti_attention_qkv(c->s, c->in[0], integer(c, "heads"),
                               &(tutti_attention_options_t){.causal = truth(c, "causal"),
                                                            .scale = number(c, "scale"),
                                                            .key_padding = c->in[1]});
}

static tutti_tensor_t *call_rotary(golden_call_t *c)
{
    return tutti_rotary(c->s, c->in[0],
                        &(tutti_rotary_options_t){.base = number(c, "base"),
                                                  .start = integer(c, "start"),
                                                  .is_interleaved = truth(c, "interleaved")});
}

/* ---- the table ------------------------------------------------------------------------------- */

static const golden_entry_t golden_table[] = {
    {"add", .binary = tutti_add},
    {"sub", .binary = tutti_sub},
    {"mul", .binary = tutti_mul},
    {"div", .binary = tutti_div},
    {"pow", .binary = tutti_pow},
    {"maximum", .binary = tutti_maximum},
    {"minimum", .binary = tutti_minimum},
    {"neg", .unary = tutti_neg},
    {"add_scalar", .scalar = tutti_add_scalar},
    {"sub_scalar", .scalar = tutti_sub_scalar},
    {"scalar_sub", .other = call_scalar_sub},
    {"mul_scalar", .scalar = tutti_mul_scalar},
    {"div_scalar", .scalar = tutti_div_scalar},
    {"scalar_div", .other = call_scalar_div},
    {"pow_scalar", .scalar = tutti_pow_scalar},
    {"clamp", .other = call_clamp},
    {"abs", .unary = tutti_abs},
    {"square", .unary = tutti_square},
    {"sqrt", .unary = tutti_sqrt},
    {"rsqrt", .unary = tutti_rsqrt},
    {"exp", .unary = tutti_exp},
    {"log", .unary = tutti_log},
    {"log1p", .unary = tutti_log1p},
    {"expm1", .unary = tutti_expm1},
    {"sign", .unary = tutti_sign},
    {"floor", .unary = tutti_floor},
    {"ceil", .unary = tutti_ceil},
    {"round", .unary = tutti_round},
    {"trunc", .unary = tutti_trunc},
    {"sin", .unary = tutti_sin},
    {"cos", .unary = tutti_cos},
    {"erf", .unary = tutti_erf},
    {"tanh", .unary = tutti_tanh},
    {"sigmoid", .unary = tutti_sigmoid},
    {"relu", .unary = tutti_relu},
    {"silu", .unary = tutti_silu},
    {"gelu", .other = call_gelu},
    {"gelu_tanh", .other = call_gelu_tanh},
    {"eq", .binary = tutti_eq},
    {"ne", .binary = tutti_ne},
    {"lt", .binary = tutti_lt},
    {"le", .binary = tutti_le},
    {"gt", .binary = tutti_gt},
    {"ge", .binary = tutti_ge},
    {"eq_scalar", .scalar = tutti_eq_scalar},
    {"ne_scalar", .scalar = tutti_ne_scalar},
    {"lt_scalar", .scalar = tutti_lt_scalar},
    {"le_scalar", .scalar = tutti_le_scalar},
    {"gt_scalar", .scalar = tutti_gt_scalar},
    {"ge_scalar", .scalar = tutti_ge_scalar},
    {"logical_not", .unary = tutti_logical_not},
    {"isnan", .unary = tutti_isnan},
    {"isinf", .unary = tutti_isinf},
    {"isfinite", .unary = tutti_isfinite},
    {"logical_and", .binary = tutti_logical_and},
    {"logical_or", .binary = tutti_logical_or},
    {"where", .other = call_where},
    {"masked_fill", .other = call_masked_fill},
    {"view", .other = call_view},
    {"reshape", .other = call_reshape},
    {"flatten", .other = call_flatten},
    {"squeeze", .other = call_squeeze},
    {"unsqueeze", .other = call_unsqueeze},
    {"transpose", .other = call_transpose},
    {"permute", .other = call_permute},
    {"slice", .other = call_slice},
    {"narrow", .other = call_narrow},
    {"select", .other = call_select},
    {"split", .other = call_split},
    {"split_sizes", .other = call_split_sizes},
    {"expand", .other = call_expand},
    {"cat", .other = call_cat},
    {"stack", .other = call_stack},
    {"gather", .other = call_gather},
    {"index_select", .other = call_index_select},
    {"cast", .other = call_cast},
    {"clone", .unary = tutti_clone},
    {"contiguous", .unary = tutti_contiguous},
    {"sum", .unary = tutti_sum, .over = tutti_sum_over},
    {"mean", .unary = tutti_mean, .over = tutti_mean_over},
    {"var", .other = call_var},
    {"prod", .unary = tutti_prod, .over = tutti_prod_over},
    {"max", .unary = tutti_max, .over = tutti_max_over},
    {"min", .unary = tutti_min, .over = tutti_min_over},
    {"any", .unary = tutti_any, .over = tutti_any_over},
    {"all", .unary = tutti_all, .over = tutti_all_over},
    {"max_along", .other = call_max_along},
    {"min_along", .other = call_min_along},
    {"argmax", .other = call_argmax},
    {"argmin", .other = call_argmin},
    {"matmul", .binary = tutti_matmul},
    {"linear", .other = call_linear},
    {"linear_gelu", .other = call_linear_gelu},
    {"softmax", .other = call_softmax},
    {"log_softmax", .other = call_log_softmax},
    {"cross_entropy", .other = call_cross_entropy},
    {"nll_loss", .other = call_nll_loss},
    {"mse_loss", .other = call_mse_loss},
    {"smooth_l1_loss", .other = call_smooth_l1_loss},
    {"huber_loss", .other = call_huber_loss},
    {"bce_with_logits", .other = call_bce_with_logits},
    {"kl_div", .other = call_kl_div},
    {"layer_norm", .other = call_layer_norm},
    {"rms_norm", .other = call_rms_norm},
    {"batch_norm", .other = call_batch_norm},
    {"group_norm", .other = call_group_norm},
    {"instance_norm", .other = call_instance_norm},
    {"embedding", .other = call_embedding},
    {"dropout", .other = call_dropout},
    {"attention", .other = call_attention},
    {"attention_qkv", .other = call_attention_qkv},
    {"rotary", .other = call_rotary},
    {"rnn_scan", .other = call_rnn_scan},
    {"lstm_scan", .other = call_lstm_scan},
    {"gru_scan", .other = call_gru_scan},
    {"conv1d", .other = call_conv1d},
    {"conv2d", .other = call_conv2d},
    {"conv_transpose1d", .other = call_conv_transpose1d},
    {"conv_transpose2d", .other = call_conv_transpose2d},
    {"max_pool1d", .other = call_max_pool1d},
    {"max_pool2d", .other = call_max_pool2d},
    {"avg_pool1d", .other = call_avg_pool1d},
    {"avg_pool2d", .other = call_avg_pool2d},
    {"adaptive_max_pool1d", .other = call_adaptive_max_pool1d},
    {"adaptive_max_pool2d", .other = call_adaptive_max_pool2d},
    {"adaptive_avg_pool1d", .other = call_adaptive_avg_pool1d},
    {"adaptive_avg_pool2d", .other = call_adaptive_avg_pool2d},
    {"interpolate", .other = call_interpolate},
    {"grid_sample", .other = call_grid_sample},
    {"affine_grid", .other = call_affine_grid},
};

static const golden_entry_t *golden_find(const char *name)
{
    for (size_t i = 0; i < sizeof golden_table / sizeof golden_table[0]; i++) {
        if (strcmp(golden_table[i].name, name) == 0) {
            return &golden_table[i];
        }
    }
    for (size_t i = 0; i < sizeof golden_everyday / sizeof golden_everyday[0]; i++) {
        if (strcmp(golden_everyday[i].name, name) == 0) {
            return &golden_everyday[i];
        }
    }
    for (size_t i = 0; i < sizeof golden_layers / sizeof golden_layers[0]; i++) {
        if (strcmp(golden_layers[i].name, name) == 0) {
            return &golden_layers[i];
        }
    }
    for (size_t i = 0; i < sizeof golden_vocabulary / sizeof golden_vocabulary[0]; i++) {
        if (strcmp(golden_vocabulary[i].name, name) == 0) {
            return &golden_vocabulary[i];
        }
    }
    return NULL;
}

static void golden_run(const golden_entry_t *entry, golden_call_t *c)
{
    tutti_tensor_t *y = NULL;
    if (entry->over != NULL && !truth(c, "all")) {
        y = entry->over(c->s, c->in[0], dims(c, "dims"), truth(c, "keepdim"));
    } else if (entry->unary != NULL) {
        y = entry->unary(c->s, c->in[0]);
    } else if (entry->binary != NULL) {
        y = entry->binary(c->s, c->in[0], c->in[1]);
    } else if (entry->scalar != NULL) {
        y = entry->scalar(c->s, c->in[0], number(c, "value"));
    } else {
        y = entry->other(c);
    }
    c->out[0] = y == NULL ? c->out[0] : y;
}

#endif
