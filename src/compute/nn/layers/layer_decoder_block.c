/* One layer of a decoder: the encoder's (layer_encoder_block.c), with attention to a memory between
 * its two branches. */
#include "compute/nn/layers/transformer_parts.h"

enum { X, MEMORY, MASK, MEMORY_MASK, PADDING, MEMORY_PADDING, INPUTS };

typedef struct {
    tutti_module_t *attention, *to_memory, *norm1, *norm2, *norm3;
    tt_feed_t feed;
    bool norm_first;
} block_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_transformer_options_t *o = options;
    block_t *block = tutti_module_state(m);
    TT_TRY(tt_transformer_check("decoder_block", o));
    block->norm_first = o->norm_first;
    TT_TRY(tt_attention_add(m, "self_attn", o, o->causal, &block->attention));
    TT_TRY(tt_attention_add(m, "multihead_attn", o, false, &block->to_memory));
    TT_TRY(tt_feed_add(m, o, &block->feed));
    TT_TRY(tt_norm_add(m, "norm1", o, &block->norm1));
    TT_TRY(tt_norm_add(m, "norm2", o, &block->norm2));
    return tt_norm_add(m, "norm3", o, &block->norm3);
}

static tutti_tensor_t *run_norms_first(tutti_scope_t *s, tutti_module_t *m,
                                       tutti_tensor_t *const *in)
{
    const block_t *b = tutti_module_state(m);
    const float p = b->feed.dropout;
    tutti_tensor_t *const own[] = {in[MASK], in[PADDING]};
    tutti_tensor_t *const memory[] = {in[MEMORY_MASK], in[MEMORY_PADDING]};
    tutti_tensor_t *x = in[X];
    tutti_tensor_t *y = tt_attend(s, b->attention, tutti_forward(s, b->norm1, x), NULL, own);
    x = tt_add_branch(s, m, x, y, p);
    y = tt_attend(s, b->to_memory, tutti_forward(s, b->norm2, x), in[MEMORY], memory);
    x = tt_add_branch(s, m, x, y, p);
    y = tt_feed_forward(s, m, &b->feed, tutti_forward(s, b->norm3, x));
    return tt_add_branch(s, m, x, y, p);
}

static tutti_tensor_t *run_norms_last(tutti_scope_t *s, tutti_module_t *m,
                                      tutti_tensor_t *const *in)
{
    const block_t *b = tutti_module_state(m);
    const float p = b->feed.dropout;
    tutti_tensor_t *const own[] = {in[MASK], in[PADDING]};
    tutti_tensor_t *const memory[] = {in[MEMORY_MASK], in[MEMORY_PADDING]};
    tutti_tensor_t *x = in[X];
    tutti_tensor_t *y = tt_attend(s, b->attention, x, NULL, own);
    x = tutti_forward(s, b->norm1, tt_add_branch(s, m, x, y, p));
    y = tt_attend(s, b->to_memory, x, in[MEMORY], memory);
    x = tutti_forward(s, b->norm2, tt_add_branch(s, m, x, y, p));
    y = tt_feed_forward(s, m, &b->feed, x);
    return tutti_forward(s, b->norm3, tt_add_branch(s, m, x, y, p));
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const block_t *block = tutti_module_state(m);
    tutti_tensor_t *in[INPUTS] = {NULL};
    if (input_count < 2 || input_count > INPUTS || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "decoder_block takes two to six tensors and gives one, "
                                          "not %d and %d",
                                          input_count, output_count));
        return;
    }
    for (int i = 0; i < input_count; i++) {
        in[i] = inputs[i];
    }
    if (in[X] == NULL || in[MEMORY] == NULL) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "decoder_block: the %s is NULL",
                                          in[X] == NULL ? "input" : "memory"));
        return;
    }
    outputs[0] = (block->norm_first ? run_norms_first : run_norms_last)(s, m, in);
}

const tutti_module_ops_t tutti_decoder_block_layer = {
    .name = "decoder_block",
    .about = "self-attention, attention to a memory, and two linear layers",
    .state_bytes = sizeof(block_t),
    .init = init,
    .forward_many = forward_many,
};
