/* Tokens and their positions: the first layer of gpt.
 *
 *     tokens[B,T] -> tok + pos[0 … T) -> dropout
 */
#include "compute/nn/layers/layer_gpt_embedding.h"

#include <tutti/nn_layers.h>

#include "compute/nn/layers/layer_positions.h"
#include "compute/nn/module_impl.h"
#include "core/base/fail.h"

typedef struct {
    tutti_module_t *tok, *pos;
    int64_t context;
    float dropout;
} gpt_embedding_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tt_gpt_embedding_options_t *o = options;
    gpt_embedding_t *e = tutti_module_state(m);
    e->context = o->context;
    e->dropout = o->dropout;
    const tutti_embedding_options_t tok = {.count = o->vocab, .width = o->width, .std = o->std};
    const tt_positions_options_t pos = {o->context, o->width, o->std};
    TT_TRY(tutti_module_new_child(m, "tok", &tutti_embedding_layer, &tok, &e->tok));
    TT_TRY(tutti_module_new_child(m, "pos", &tt_positions_layer, &pos, &e->pos));
    return TUTTI_OK;
}

static tutti_status_t check_tokens(const gpt_embedding_t *e, const tutti_tensor_t *tokens)
{
    if (tutti_tensor_rank(tokens) != 2) {
        char text[200];
        return TT_FAIL(TUTTI_ERR_SHAPE, "gpt: tokens are %s: expected [sequences, positions]",
                       tutti_tensor_describe(tokens, text, sizeof text));
    }
    if (tutti_tensor_dim(tokens, 1) > e->context) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "gpt: sequences of %lld tokens, but its context is %lld: cut the sequences, "
                       "or make the model with a longer context",
                       (long long)tutti_tensor_dim(tokens, 1), (long long)e->context);
    }
    return TUTTI_OK;
}

/* x[B,T,C] = tok[tokens] + pos[0 … T] */
static tutti_tensor_t *embed(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *tokens)
{
    const gpt_embedding_t *e = tutti_module_state(m);
    const tutti_status_t status = check_tokens(e, tokens);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *x = tutti_forward(s, e->pos, tutti_forward(s, e->tok, tokens));
    return e->dropout > 0 ? tt_module_dropout(s, m, x, e->dropout) : x;
}

const tutti_module_ops_t tt_gpt_embedding_layer = {
    .name = "gpt_embedding",
    .about = "tokens and their positions",
    .state_bytes = sizeof(gpt_embedding_t),
    .init = init,
    .forward = embed,
};
