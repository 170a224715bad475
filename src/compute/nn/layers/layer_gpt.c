/* GPT-2's shape: token and position embeddings, blocks, a norm, a head of its own.
 *
 *     tokens[B,T] -> tok + pos[T] -> blocks -> ln -> head -> logits[B,T,V]
 *
 * Initial values: N(0, 1 / (3 width)), which is GPT-2's 0.02² at its width of 768 and lets narrow
 * models learn sooner; the last linear of each residual branch is divided by √(2 layers), since
 * that many branches add up. (4 × 128 on the King James Bible, 2,600 steps of 512 bytes: validation
 * loss 1.59, against 1.78 with 0.02.)
 *
 * A head that is tied has the embedding's weight, by both names.
 */
#include <tutti/nn_layers.h>

#include <math.h>

#include "compute/nn/layers/heads.h"
#include "compute/nn/layers/layer_gpt_embedding.h"
#include "compute/nn/layers/layer_linear.h"
#include "compute/nn/module_impl.h"

typedef struct {
    tutti_module_t *embedding, *blocks, *ln, *head;
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
    return tt_heads_check("gpt", o->heads, o->kv_heads);
}

static double deviation_of(const tutti_gpt_options_t *o)
{
    return 1 / sqrt(3 * (double)o->width);
}

static tutti_status_t add_blocks(gpt_t *gpt, const tutti_gpt_options_t *o)
{
    const tutti_transformer_block_options_t block = {.width = o->width,
                                                     .heads = o->heads,
                                                     .kv_heads = o->kv_heads,
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

/* Its only parameter is another module's, too. */
static void tie(tutti_module_t *head, tutti_tensor_t *weight)
{
    tt_linear_layer_t *linear = tutti_module_state(head);
    TT_ASSERT(head->slot_count == 1 && head->slots[0].tensor == linear->weight);
    tutti_tensor_release(linear->weight);
    linear->weight = head->slots[0].tensor = tutti_tensor_retain(weight);
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    gpt_t *gpt = tutti_module_state(m);
    tutti_gpt_options_t o;
    TT_TRY(resolve(options, &o));
    const tt_gpt_embedding_options_t embedding = {.vocab = o.vocab,
                                                  .context = o.context,
                                                  .width = o.width,
                                                  .std = deviation_of(&o),
                                                  .dropout = o.dropout};
    const tutti_sequential_options_t blocks = {.recompute = o.recompute};
    const tutti_norm_options_t norm = {.width = o.width};
    const tutti_linear_options_t head = {
        .in = o.width, .out = o.vocab, .no_bias = true, .std = deviation_of(&o)};
    /* It has no name, so that its tensors are called "tok.weight" and "pos.weight". */
    TT_TRY(tutti_module_new_child(m, "", &tt_gpt_embedding_layer, &embedding, &gpt->embedding));
    TT_TRY(tutti_module_new_child(m, "blocks", &tutti_sequential_layer, &blocks, &gpt->blocks));
    TT_TRY(add_blocks(gpt, &o));
    TT_TRY(tutti_module_new_child(m, "ln", &tutti_layer_norm_layer, &norm, &gpt->ln));
    TT_TRY(tutti_module_new_child(m, "head", &tutti_linear_layer, &head, &gpt->head));
    if (o.tie_head) {
        tie(gpt->head, tutti_module_find(gpt->embedding, "tok.weight"));
    }
    return TUTTI_OK;
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *tokens)
{
    const gpt_t *gpt = tutti_module_state(m);
    tutti_tensor_t *x = tutti_forward(s, gpt->blocks, tutti_forward(s, gpt->embedding, tokens));
    return tutti_forward(s, gpt->head, tutti_forward(s, gpt->ln, x));
}

static bool chain(tutti_module_t *m, int place, tutti_chain_link_t *link)
{
    const gpt_t *gpt = tutti_module_state(m);
    tutti_module_t *const links[] = {gpt->embedding, gpt->blocks, gpt->ln, gpt->head};
    if (place >= (int)(sizeof links / sizeof links[0])) {
        return false;
    }
    *link = (tutti_chain_link_t){.module = links[place]};
    return true;
}

const tutti_module_ops_t tutti_gpt_layer = {
    .name = "gpt",
    .about = "GPT-2's shape: embeddings, transformer blocks, a norm, a head",
    .state_bytes = sizeof(gpt_t),
    .init = init,
    .forward = forward,
    .chain = chain,
};
