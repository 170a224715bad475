/* GPT-2's shape: token and position embeddings, blocks, a norm, a head of its own.
 *
 *     tokens[B,T] -> tok + pos[T] -> blocks -> ln -> head -> logits[B,T,V]
 *
 * Initial values: N(0, 1 / (3 width)), which is GPT-2's 0.02² at its width of 768 and lets narrow
 * models learn sooner; the last linear of each residual branch is divided by √(2 layers), since
 * that many branches add up. (4 × 128 on the King James Bible, 2,600 steps of 512 bytes: validation
 * loss 1.59, against 1.78 with 0.02.)
 */
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include <math.h>

#include "compute/nn/layers/layer_positions.h"
#include "compute/nn/module_impl.h"
#include "core/base/fail.h"

typedef struct {
    tutti_module_t *tok, *pos, *blocks, *ln, *head;
    int64_t context;
    float dropout;
} gpt_t;

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value == 0 ? fallback : value;
}

/* With the defaults put in. */
static tutti_status_t resolve(const tutti_gpt_options_t *given, tutti_gpt_options_t *o)
{
    *o = given == NULL ? (tutti_gpt_options_t){0} : *given;
    o->layers = or_default(o->layers, 6);
    o->width = or_default(o->width, 384);
    o->heads = or_default(o->heads, 6);
    o->context = or_default(o->context, 256);
    o->vocab = or_default(o->vocab, 256);
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"layers", o->layers},
                 {"width", o->width},
                 {"heads", o->heads},
                 {"context", o->context},
                 {"vocab", o->vocab}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1 || sizes[i].value > INT32_MAX) {
            return TT_FAIL(TUTTI_ERR_ARG, "gpt: %s is %lld: it must be from 1 to %d", sizes[i].name,
                           (long long)sizes[i].value, INT32_MAX);
        }
    }
    if (o->width % o->heads != 0) {
        const int64_t near = (o->width + o->heads - 1) / o->heads * o->heads;
        return TT_FAIL(TUTTI_ERR_ARG,
                       "gpt: %lld heads do not divide a width of %lld: choose a width that is a "
                       "multiple of %lld, such as %lld, or other heads",
                       (long long)o->heads, (long long)o->width, (long long)o->heads,
                       (long long)near);
    }
    return TUTTI_OK;
}

static double deviation_of(const tutti_gpt_options_t *o)
{
    return 1 / sqrt(3 * (double)o->width);
}

static tutti_status_t add_blocks(gpt_t *gpt, const tutti_gpt_options_t *o)
{
    const tutti_transformer_block_options_t block = {.width = o->width,
                                                     .heads = o->heads,
                                                     .causal = true,
                                                     .dropout = o->dropout,
                                                     .std = deviation_of(o),
                                                     .result_std = deviation_of(o) /
                                                                   sqrt(2 * (double)o->layers),
                                                     .activation = o->activation};
    for (int64_t i = 0; i < o->layers; i++) {
        TT_TRY(tutti_sequential_add(gpt->blocks, &tutti_transformer_block_layer, &block, NULL));
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    gpt_t *gpt = tutti_module_state(m);
    tutti_gpt_options_t o;
    TT_TRY(resolve(options, &o));
    gpt->context = o.context;
    gpt->dropout = o.dropout;
    const tutti_embedding_options_t tok = {o.vocab, o.width, deviation_of(&o)};
    const tt_positions_options_t pos = {o.context, o.width, deviation_of(&o)};
    const tutti_sequential_options_t blocks = {.recompute = o.recompute};
    const tutti_norm_options_t norm = {.width = o.width};
    const tutti_linear_options_t head = {
        .in = o.width, .out = o.vocab, .no_bias = true, .std = deviation_of(&o)};
    TT_TRY(tutti_module_new_child(m, "tok", &tutti_embedding_layer, &tok, &gpt->tok));
    TT_TRY(tutti_module_new_child(m, "pos", &tt_positions_layer, &pos, &gpt->pos));
    TT_TRY(tutti_module_new_child(m, "blocks", &tutti_sequential_layer, &blocks, &gpt->blocks));
    TT_TRY(add_blocks(gpt, &o));
    TT_TRY(tutti_module_new_child(m, "ln", &tutti_layer_norm_layer, &norm, &gpt->ln));
    return tutti_module_new_child(m, "head", &tutti_linear_layer, &head, &gpt->head);
}

static tutti_status_t check_tokens(const gpt_t *gpt, const tutti_tensor_t *tokens)
{
    if (tutti_tensor_rank(tokens) != 2) {
        char text[200];
        return TT_FAIL(TUTTI_ERR_SHAPE, "gpt: tokens are %s: expected [sequences, positions]",
                       tutti_tensor_describe(tokens, text, sizeof text));
    }
    if (tutti_tensor_dim(tokens, 1) > gpt->context) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "gpt: sequences of %lld tokens, but its context is %lld: cut the sequences, "
                       "or make the model with a longer context",
                       (long long)tutti_tensor_dim(tokens, 1), (long long)gpt->context);
    }
    return TUTTI_OK;
}

/* x[B,T,C] = tok[tokens] + pos[0 … T] */
static tutti_tensor_t *embed(tutti_scope_t *s, const tutti_module_t *m, tutti_tensor_t *tokens)
{
    const gpt_t *gpt = m->state;
    tutti_tensor_t *x = tutti_forward(s, gpt->pos, tutti_forward(s, gpt->tok, tokens));
    return gpt->dropout > 0 ? tt_module_dropout(s, m, x, gpt->dropout) : x;
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *tokens)
{
    const gpt_t *gpt = tutti_module_state(m);
    const tutti_status_t status = check_tokens(gpt, tokens);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *x = tutti_forward(s, gpt->blocks, embed(s, m, tokens));
    return tutti_forward(s, gpt->head, tutti_forward(s, gpt->ln, x));
}

const tutti_module_ops_t tutti_gpt_layer = {
    .name = "gpt",
    .about = "GPT-2's shape: embeddings, transformer blocks, a norm, a head",
    .state_bytes = sizeof(gpt_t),
    .init = init,
    .forward = forward,
};
