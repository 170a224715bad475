/* One layer of an encoder, with its norms behind or in front:
 *
 *     x = norm1(x + attention(x))       x = x + attention(norm1(x))
 *     x = norm2(x + feed(x))            x = x + feed(norm2(x))
 */
#include "compute/nn/layers/transformer_parts.h"

enum { X, MASK, PADDING, INPUTS };

typedef struct {
    tutti_module_t *attention, *norm1, *norm2;
    tt_feed_t feed;
    bool norm_first;
} block_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_transformer_options_t *o = options;
    block_t *block = tutti_module_state(m);
    TT_TRY(tt_transformer_check("encoder_block", o));
    block->norm_first = o->norm_first;
    TT_TRY(tt_attention_add(m, "self_attn", o, o->causal, &block->attention));
    TT_TRY(tt_feed_add(m, o, &block->feed));
    TT_TRY(tt_norm_add(m, "norm1", o, &block->norm1));
    return tt_norm_add(m, "norm2", o, &block->norm2);
}

static tutti_tensor_t *run(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x,
                           tutti_tensor_t *const masks[2])
{
    const block_t *b = tutti_module_state(m);
    const float p = b->feed.dropout;
    if (b->norm_first) {
        tutti_tensor_t *y = tt_attend(s, b->attention, tutti_forward(s, b->norm1, x), NULL, masks);
        x = tt_add_branch(s, m, x, y, p);
        y = tt_feed_forward(s, m, &b->feed, tutti_forward(s, b->norm2, x));
        return tt_add_branch(s, m, x, y, p);
    }
    tutti_tensor_t *y = tt_attend(s, b->attention, x, NULL, masks);
    x = tutti_forward(s, b->norm1, tt_add_branch(s, m, x, y, p));
    y = tt_feed_forward(s, m, &b->feed, x);
    return tutti_forward(s, b->norm2, tt_add_branch(s, m, x, y, p));
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    tutti_tensor_t *masks[2] = {NULL};
    if (input_count < 1 || input_count > INPUTS || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "encoder_block takes one to three tensors and gives one, "
                                          "not %d and %d",
                                          input_count, output_count));
        return;
    }
    for (int i = MASK; i < input_count; i++) {
        masks[i - MASK] = inputs[i];
    }
    outputs[0] = run(s, m, inputs[X], masks);
}

const tutti_module_ops_t tutti_encoder_block_layer = {
    .name = "encoder_block",
    .about = "self-attention and two linear layers, each added to its input",
    .state_bytes = sizeof(block_t),
    .init = init,
    .forward_many = forward_many,
};
