/* How the cases of module_calls.py are called: a kind of layers.def, its options by their names,
 * and its state by PyTorch's names. */
#ifndef TT_GOLDEN_MODULES_H
#define TT_GOLDEN_MODULES_H

#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tutti/modes.h>
#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>
#include <tutti/nn_transformer.h>
#include <tutti/nn_vocabulary.h>

#include "compute/nn/module_impl.h"
#include "golden_args.h"

/* ---- options --------------------------------------------------------------------------------- */

typedef enum {
    OPTION_BOOL,
    OPTION_INT,
    OPTION_ENUM,
    OPTION_INT64,
    OPTION_FLOAT,
    OPTION_DOUBLE,
    OPTION_INT64_LIST,
    OPTION_PADDING,
    OPTION_SHAPE
} option_type_t;

typedef struct {
    const char *name;
    size_t offset;
    option_type_t type;
} option_field_t;

enum { OPTION_FIELDS_MAX = 16, OPTION_BYTES_MAX = 256 };

/* Several kinds may have the same options. */
typedef struct {
    const char *kinds; /* with blanks around each */
    option_field_t fields[OPTION_FIELDS_MAX];
} option_table_t;

#define OPTION_TYPE(field)                                                                         \
    _Generic((field),                                                                              \
        bool: OPTION_BOOL,                                                                         \
        int: OPTION_INT,                                                                           \
        unsigned: OPTION_ENUM,                                                                     \
        int64_t: OPTION_INT64,                                                                     \
        float: OPTION_FLOAT,                                                                       \
        double: OPTION_DOUBLE,                                                                     \
        int64_t *: OPTION_INT64_LIST,                                                              \
        tutti_padding_t: OPTION_PADDING,                                                           \
        tutti_shape_t: OPTION_SHAPE)
#define FIELD(struct_t, field)                                                                     \
    {                                                                                              \
#field, offsetof(struct_t, field), OPTION_TYPE(((struct_t *)0)->field)                     \
    }

static const option_table_t option_tables[] = {
    {" linear ",
     {FIELD(tutti_linear_options_t, in), FIELD(tutti_linear_options_t, out),
      FIELD(tutti_linear_options_t, no_bias)}},
    {" linear_cross_entropy ",
     {FIELD(tutti_linear_cross_entropy_layer_options_t, in),
      FIELD(tutti_linear_cross_entropy_layer_options_t, classes),
      FIELD(tutti_linear_cross_entropy_layer_options_t, sizes),
      FIELD(tutti_linear_cross_entropy_layer_options_t, has_bias),
      FIELD(tutti_linear_cross_entropy_layer_options_t, has_weight),
      FIELD(tutti_linear_cross_entropy_layer_options_t, reduction),
      FIELD(tutti_linear_cross_entropy_layer_options_t, label_smoothing),
      FIELD(tutti_linear_cross_entropy_layer_options_t, has_ignore_index),
      FIELD(tutti_linear_cross_entropy_layer_options_t, ignore_index)}},
    {" adaptive_log_softmax ",
     {FIELD(tutti_adaptive_log_softmax_options_t, in),
      FIELD(tutti_adaptive_log_softmax_options_t, classes),
      FIELD(tutti_adaptive_log_softmax_options_t, cutoffs),
      FIELD(tutti_adaptive_log_softmax_options_t, div_value),
      FIELD(tutti_adaptive_log_softmax_options_t, has_bias)}},
    {" bilinear ",
     {FIELD(tutti_bilinear_options_t, in), FIELD(tutti_bilinear_options_t, second_in),
      FIELD(tutti_bilinear_options_t, out), FIELD(tutti_bilinear_options_t, no_bias)}},
    {" conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d ",
     {FIELD(tutti_conv_layer_options_t, in), FIELD(tutti_conv_layer_options_t, out),
      FIELD(tutti_conv_layer_options_t, kernel), FIELD(tutti_conv_layer_options_t, no_bias),
      FIELD(tutti_conv_layer_options_t, move.stride),
      FIELD(tutti_conv_layer_options_t, move.padding),
      FIELD(tutti_conv_layer_options_t, move.output_padding),
      FIELD(tutti_conv_layer_options_t, move.dilation),
      FIELD(tutti_conv_layer_options_t, move.groups),
      FIELD(tutti_conv_layer_options_t, move.same)}},
    {" max_pool1d max_pool2d max_pool3d ",
     {FIELD(tutti_pool_options_t, kernel), FIELD(tutti_pool_options_t, stride),
      FIELD(tutti_pool_options_t, padding), FIELD(tutti_pool_options_t, dilation),
      FIELD(tutti_pool_options_t, ceil_mode)}},
    {" avg_pool1d avg_pool2d avg_pool3d ",
     {FIELD(tutti_avg_pool_options_t, kernel), FIELD(tutti_avg_pool_options_t, stride),
      FIELD(tutti_avg_pool_options_t, padding), FIELD(tutti_avg_pool_options_t, ceil_mode),
      FIELD(tutti_avg_pool_options_t, excludes_padding), FIELD(tutti_avg_pool_options_t, divisor)}},
    {" lp_pool1d lp_pool2d lp_pool3d ",
     {FIELD(tutti_lp_pool_options_t, p), FIELD(tutti_lp_pool_options_t, kernel),
      FIELD(tutti_lp_pool_options_t, stride), FIELD(tutti_lp_pool_options_t, ceil_mode)}},
    {" adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_avg_pool1d "
     "adaptive_avg_pool2d adaptive_avg_pool3d ",
     {FIELD(tutti_adaptive_pool_options_t, size)}},
    {" pad ",
     {FIELD(tutti_pad_layer_options_t, sizes), FIELD(tutti_pad_layer_options_t, mode),
      FIELD(tutti_pad_layer_options_t, value)}},
    {" activation ",
     {FIELD(tutti_activation_options_t, kind), FIELD(tutti_activation_options_t, slope),
      FIELD(tutti_activation_options_t, alpha), FIELD(tutti_activation_options_t, beta),
      FIELD(tutti_activation_options_t, bound), FIELD(tutti_activation_options_t, lambda),
      FIELD(tutti_activation_options_t, threshold), FIELD(tutti_activation_options_t, value),
      FIELD(tutti_activation_options_t, low), FIELD(tutti_activation_options_t, high)}},
    {" prelu ", {FIELD(tutti_prelu_options_t, count)}},
    {" softmax softmin log_softmax glu ", {FIELD(tutti_dim_options_t, dim)}},
    {" batch_norm ",
     {FIELD(tutti_batch_norm_layer_options_t, width), FIELD(tutti_batch_norm_layer_options_t, eps),
      FIELD(tutti_batch_norm_layer_options_t, momentum),
      FIELD(tutti_batch_norm_layer_options_t, cumulative),
      FIELD(tutti_batch_norm_layer_options_t, no_affine),
      FIELD(tutti_batch_norm_layer_options_t, no_bias),
      FIELD(tutti_batch_norm_layer_options_t, no_running)}},
    {" group_norm ",
     {FIELD(tutti_group_norm_options_t, width), FIELD(tutti_group_norm_options_t, groups),
      FIELD(tutti_group_norm_options_t, eps), FIELD(tutti_group_norm_options_t, no_affine),
      FIELD(tutti_group_norm_options_t, no_bias)}},
    {" instance_norm ",
     {FIELD(tutti_instance_norm_options_t, width), FIELD(tutti_instance_norm_options_t, eps),
      FIELD(tutti_instance_norm_options_t, affine), FIELD(tutti_instance_norm_options_t, no_bias),
      FIELD(tutti_instance_norm_options_t, running), FIELD(tutti_instance_norm_options_t, momentum),
      FIELD(tutti_instance_norm_options_t, spatial_dims)}},
    {" layer_norm rms_norm ",
     {FIELD(tutti_norm_options_t, width), FIELD(tutti_norm_options_t, eps),
      FIELD(tutti_norm_options_t, no_bias), FIELD(tutti_norm_options_t, no_affine),
      FIELD(tutti_norm_options_t, shape)}},
    {" local_response_norm ",
     {FIELD(tutti_local_response_options_t, size), FIELD(tutti_local_response_options_t, alpha),
      FIELD(tutti_local_response_options_t, beta), FIELD(tutti_local_response_options_t, k)}},
    {" embedding ",
     {FIELD(tutti_embedding_options_t, count), FIELD(tutti_embedding_options_t, width),
      FIELD(tutti_embedding_options_t, lookup.has_padding),
      FIELD(tutti_embedding_options_t, lookup.padding),
      FIELD(tutti_embedding_options_t, lookup.max_norm),
      FIELD(tutti_embedding_options_t, lookup.norm_p),
      FIELD(tutti_embedding_options_t, lookup.scale_by_frequency)}},
    {" rnn lstm gru ",
     {FIELD(tutti_rnn_options_t, in), FIELD(tutti_rnn_options_t, hidden),
      FIELD(tutti_rnn_options_t, layers), FIELD(tutti_rnn_options_t, bidirectional),
      FIELD(tutti_rnn_options_t, batch_first), FIELD(tutti_rnn_options_t, no_bias),
      FIELD(tutti_rnn_options_t, dropout), FIELD(tutti_rnn_options_t, nonlinearity),
      FIELD(tutti_rnn_options_t, projection)}},
    {" rnn_cell lstm_cell gru_cell ",
     {FIELD(tutti_rnn_cell_options_t, in), FIELD(tutti_rnn_cell_options_t, hidden),
      FIELD(tutti_rnn_cell_options_t, no_bias), FIELD(tutti_rnn_cell_options_t, nonlinearity)}},
    {" multihead_attention ",
     {FIELD(tutti_multihead_attention_options_t, width),
      FIELD(tutti_multihead_attention_options_t, heads),
      FIELD(tutti_multihead_attention_options_t, key_width),
      FIELD(tutti_multihead_attention_options_t, value_width),
      FIELD(tutti_multihead_attention_options_t, dropout),
      FIELD(tutti_multihead_attention_options_t, no_bias),
      FIELD(tutti_multihead_attention_options_t, batch_first),
      FIELD(tutti_multihead_attention_options_t, bias_kv),
      FIELD(tutti_multihead_attention_options_t, zero_attention)}},
    {" encoder_block decoder_block encoder decoder transformer ",
     {FIELD(tutti_transformer_options_t, width), FIELD(tutti_transformer_options_t, heads),
      FIELD(tutti_transformer_options_t, hidden), FIELD(tutti_transformer_options_t, layers),
      FIELD(tutti_transformer_options_t, decoder_layers),
      FIELD(tutti_transformer_options_t, activation), FIELD(tutti_transformer_options_t, dropout),
      FIELD(tutti_transformer_options_t, eps), FIELD(tutti_transformer_options_t, norm_first),
      FIELD(tutti_transformer_options_t, batch_first),
      FIELD(tutti_transformer_options_t, no_bias)}},
};

static const option_field_t *find_fields(const char *kind)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", kind);
    for (size_t i = 0; i < sizeof option_tables / sizeof option_tables[0]; i++) {
        if (strstr(option_tables[i].kinds, word) != NULL) {
            return option_tables[i].fields;
        }
    }
    fail_msg("golden_modules.h has no options of %s", kind);
    return NULL;
}

static void set_list(int64_t *to, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        to[i] = json_integer_value(json_array_get(list, i));
    }
}

static void set_option(unsigned char *options, const option_field_t *field, const json_t *value)
{
    void *to = options + field->offset;
    switch (field->type) {
    case OPTION_BOOL:
        *(bool *)to = json_is_true(value);
        break;
    case OPTION_INT:
        *(int *)to = (int)json_integer_value(value);
        break;
    case OPTION_ENUM:
        *(unsigned *)to = (unsigned)json_integer_value(value);
        break;
    case OPTION_INT64:
        *(int64_t *)to = json_integer_value(value);
        break;
    case OPTION_FLOAT:
        *(float *)to = (float)json_number_value(value);
        break;
    case OPTION_DOUBLE:
        *(double *)to = json_number_value(value);
        break;
    case OPTION_INT64_LIST:
        set_list(to, value);
        break;
    case OPTION_PADDING:
        ((tutti_padding_t *)to)->count = (int)json_array_size(value);
        set_list(((tutti_padding_t *)to)->sizes, value);
        break;
    case OPTION_SHAPE:
        ((tutti_shape_t *)to)->rank = (int)json_array_size(value);
        set_list(((tutti_shape_t *)to)->dims, value);
        break;
    }
}

/* Every option of the case must be a field. */
static void set_options(unsigned char *options, const char *kind, json_t *values)
{
    const option_field_t *fields = find_fields(kind);
    const char *name;
    json_t *value;
    json_object_foreach(values, name, value)
    {
        int i = 0;
        while (i < OPTION_FIELDS_MAX && fields[i].name != NULL &&
               strcmp(fields[i].name, name) != 0) {
            i++;
        }
        if (i == OPTION_FIELDS_MAX || fields[i].name == NULL) {
            fail_msg("golden_modules.h: %s has no option %s", kind, name);
        }
        set_option(options, &fields[i], value);
    }
}

/* ---- the module ------------------------------------------------------------------------------ */

static const tutti_module_ops_t *find_kind(const char *name)
{
    for (size_t i = 0; i < tt_layer_count; i++) {
        if (strcmp(tt_layers[i]->name, name) == 0) {
            return tt_layers[i];
        }
    }
    fail_msg("%s is not in layers.def", name);
    return NULL;
}

static tutti_status_t count_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    (void)x;
    (*(int *)user)++;
    return TUTTI_OK;
}

/* The module's own tensor in place of the input that has its value. */
static tutti_status_t take_state(golden_call_t *c, const char *name, int input)
{
    tutti_tensor_t *x = tutti_module_find(c->module, name);
    if (x == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "there is no \"%s\"", name);
    }
    TT_TRY(tutti_tensor_copy(x, c->in[input]));
    c->in[input] = x;
    return TUTTI_OK;
}

static tutti_status_t make_module(golden_call_t *c, int first)
{
    _Alignas(max_align_t) unsigned char options[OPTION_BYTES_MAX] = {0};
    const json_t *state = json_object_get(c->args, "state");
    const int count = (int)json_array_size(state);
    int own = 0;
    set_options(options, text(c, "kind"), json_object_get(c->args, "options"));
    TT_TRY(tutti_module_create(tutti_scope_context(c->s), find_kind(text(c, "kind")), options,
                               &c->module));
    TT_TRY(tutti_module_cast(c->module, c->dtype));
    TT_TRY(tutti_module_each_tensor(c->module, count_tensor, &own));
    if (own != count) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d tensors of a state, not %d", own, count);
    }
    for (int i = 0; i < count; i++) {
        TT_TRY(take_state(c, json_string_value(json_array_get(state, (size_t)i)), first + i));
    }
    return TUTTI_OK;
}

static tutti_tensor_t *call_module(golden_call_t *c)
{
    const json_t *buffers = json_object_get(c->args, "buffers");
    const int count = (int)json_array_size(buffers), outputs = c->output_count - count;
    const int first = c->input_count - (int)json_array_size(json_object_get(c->args, "state"));
    tutti_context_set_training(tutti_scope_context(c->s), truth(c, "training"));
    const tutti_status_t status = make_module(c, first);
    if (status < 0) {
        tutti_scope_fail(c->s, status);
        return NULL;
    }
    tutti_forward_many(c->s, c->module, c->in, first, c->out, outputs);
    for (int i = 0; i < count; i++) {
        c->out[outputs + i] =
            tutti_module_find(c->module, json_string_value(json_array_get(buffers, (size_t)i)));
    }
    return NULL;
}

static const golden_entry_t golden_module = {"module", .other = call_module};

#endif
