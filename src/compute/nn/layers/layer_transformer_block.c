/* A transformer block with the norms in front:
 *
 *     x = x + attention(ln1(x))
 *     x = x + mlp(ln2(x))
 *
 * Attention and mlp add no level to the names: "blocks.0.qkv.weight".
 */
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>

#include "core/base/fail.h"

typedef struct {
    tutti_module_t *ln1, *ln2, *attention, *mlp;
} block_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    if (options == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "transformer_block: width and heads are required");
    }
    const tutti_transformer_block_options_t *o = options;
    block_t *block = tutti_module_state(m);
    const tutti_norm_options_t norm = {.width = o->width, .eps = o->eps};
    const tutti_self_attention_options_t attention = {.width = o->width,
                                                      .heads = o->heads,
                                                      .kv_heads = o->kv_heads,
                                                      .causal = o->causal,
                                                      .dropout = o->dropout,
                                                      .no_bias = o->no_bias,
                                                      .std = o->std,
                                                      .result_std = o->result_std};
    const tutti_mlp_options_t mlp = {.width = o->width,
                                     .hidden = o->hidden,
                                     .activation = o->activation,
                                     .dropout = o->dropout,
                                     .no_bias = o->no_bias,
                                     .std = o->std,
                                     .result_std = o->result_std};
    TT_TRY(tutti_module_new_child(m, "ln1", &tutti_layer_norm_layer, &norm, &block->ln1));
    TT_TRY(tutti_module_new_child(m, "ln2", &tutti_layer_norm_layer, &norm, &block->ln2));
    TT_TRY(
        tutti_module_new_child(m, "", &tutti_self_attention_layer, &attention, &block->attention));
    return tutti_module_new_child(m, "", &tutti_mlp_layer, &mlp, &block->mlp);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const block_t *block = tutti_module_state(m);
    x = tutti_add(s, x, tutti_forward(s, block->attention, tutti_forward(s, block->ln1, x)));
    return tutti_add(s, x, tutti_forward(s, block->mlp, tutti_forward(s, block->ln2, x)));
}

const tutti_module_ops_t tutti_transformer_block_layer = {
    .name = "transformer_block",
    .about = "attention and mlp, each on a norm and added to its input",
    .state_bytes = sizeof(block_t),
    .init = init,
    .forward = forward,
};
