/* The state of tutti_linear_layer, for those who run it otherwise. */
#ifndef TT_LAYER_LINEAR_H
#define TT_LAYER_LINEAR_H

#include <tutti/nn_layers.h>

typedef struct {
    tutti_tensor_t *weight, *bias; /* bias: NULL if there is none */
    tutti_activation_t activation;
} tt_linear_layer_t;

#endif
