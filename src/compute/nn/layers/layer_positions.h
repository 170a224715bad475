/* Learned positions: a layer of gpt's own. */
#ifndef TT_LAYER_POSITIONS_H
#define TT_LAYER_POSITIONS_H

#include <tutti/nn.h>

typedef struct {
    int64_t count, width;
    double std; /* of the initial values */
} tt_positions_options_t;

/* x[..., T, width] + weight[0 … T), "weight" [count, width]; T at most count. */
extern const tutti_module_ops_t tt_positions_layer;

#endif
