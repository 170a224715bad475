/* Parts of transformers' blocks. See transformer_parts.h. */
#include "compute/nn/layers/transformer_parts.h"

#include <tutti/op_math.h>

#include "compute/nn/layers/activate.h"
#include "compute/nn/layers/heads.h"
#include "compute/nn/module_impl.h"

tutti_status_t tt_transformer_check(const char *name, const tutti_transformer_options_t *o)
{
    if (o == NULL || o->width < 1 || o->heads < 1 || o->width % o->heads != 0 || o->hidden < 0 ||
        o->layers < 0 || o->layers > INT32_MAX || o->decoder_layers < 0 ||
        o->decoder_layers > INT32_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: width %lld, heads %lld: both must be at least 1, and heads divide the "
                       "width; hidden and layers must not be negative, nor layers above 2^31 - 1",
                       name, o == NULL ? 0LL : (long long)o->width,
                       o == NULL ? 0LL : (long long)o->heads);
    }
    TT_TRY(tt_heads_check(name, o->heads, o->kv_heads));
    return o->dropout >= 0 && o->dropout < 1
               ? tt_activation_check(name, o->activation)
               : TT_FAIL(TUTTI_ERR_ARG, "%s: dropout is %g: it must be in [0, 1)", name,
                         (double)o->dropout);
}

tutti_status_t tt_feed_add(tutti_module_t *m, const tutti_transformer_options_t *o, tt_feed_t *feed)
{
    const int64_t hidden = o->hidden == 0 ? 2048 : o->hidden;
    const bool is_default = o->activation == TUTTI_ACTIVATION_DEFAULT;
    const tutti_linear_options_t up = {.in = o->width,
                                       .out = hidden,
                                       .no_bias = o->no_bias,
                                       .activation =
                                           is_default ? TUTTI_ACTIVATION_RELU : o->activation};
    const tutti_linear_options_t down = {.in = hidden, .out = o->width, .no_bias = o->no_bias};
    feed->dropout = o->dropout;
    TT_TRY(tutti_module_new_child(m, "linear1", &tutti_linear_layer, &up, &feed->linear1));
    return tutti_module_new_child(m, "linear2", &tutti_linear_layer, &down, &feed->linear2);
}

tutti_tensor_t *tt_feed_forward(tutti_scope_t *s, tutti_module_t *m, const tt_feed_t *feed,
                                tutti_tensor_t *x)
{
    x = tutti_forward(s, feed->linear1, x);
    x = feed->dropout > 0 ? tt_module_dropout(s, m, x, feed->dropout) : x;
    return tutti_forward(s, feed->linear2, x);
}

tutti_status_t tt_attention_add(tutti_module_t *m, const char *name,
                                const tutti_transformer_options_t *o, bool is_causal,
                                tutti_module_t **out)
{
    const tutti_multihead_attention_options_t options = {.width = o->width,
                                                         .heads = o->heads,
                                                         .kv_heads = o->kv_heads,
                                                         .dropout = o->dropout,
                                                         .no_bias = o->no_bias,
                                                         .batch_first = o->batch_first,
                                                         .causal = is_causal};
    return tutti_module_new_child(m, name, &tutti_multihead_attention_layer, &options, out);
}

tutti_status_t tt_norm_add(tutti_module_t *m, const char *name,
                           const tutti_transformer_options_t *o, tutti_module_t **out)
{
    const tutti_norm_options_t norm = {.width = o->width, .eps = o->eps, .no_bias = o->no_bias};
    return tutti_module_new_child(m, name, &tutti_layer_norm_layer, &norm, out);
}

tutti_tensor_t *tt_attend(tutti_scope_t *s, tutti_module_t *attention, tutti_tensor_t *x,
                          tutti_tensor_t *memory, tutti_tensor_t *const masks[2])
{
    tutti_tensor_t *y;
    tutti_forward_many(s, attention, (tutti_tensor_t *[]){x, memory, memory, masks[0], masks[1]}, 5,
                       &y, 1);
    return y;
}

tutti_tensor_t *tt_add_branch(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x,
                              tutti_tensor_t *branch, float dropout)
{
    return tutti_add(s, x, dropout > 0 ? tt_module_dropout(s, m, branch, dropout) : branch);
}
