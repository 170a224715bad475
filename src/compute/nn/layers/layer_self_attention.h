/* The state of tutti_self_attention_layer, for those who spread it over ranks. */
#ifndef TT_LAYER_SELF_ATTENTION_H
#define TT_LAYER_SELF_ATTENTION_H

#include <tutti/nn_layers.h>

typedef struct {
    tutti_module_t *qkv, *proj;
    int64_t width, heads, kv_heads;
    bool causal;
    float dropout;
} tt_self_attention_layer_t;

#endif
