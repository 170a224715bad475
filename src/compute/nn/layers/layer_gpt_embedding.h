/* Tokens and their positions: the first layer of gpt. */
#ifndef TT_LAYER_GPT_EMBEDDING_H
#define TT_LAYER_GPT_EMBEDDING_H

#include <tutti/nn.h>

typedef struct {
    int64_t vocab, context, width;
    double std; /* of the initial values */
    float dropout;
} tt_gpt_embedding_options_t;

/* tokens[B, T], T at most context -> [B, T, width]; "tok.weight" [vocab, width], "pos.weight"
 * [context, width]. */
extern const tutti_module_ops_t tt_gpt_embedding_layer;

#endif
