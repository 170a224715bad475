/* The state of tutti_layer_norm_layer and tutti_rms_norm_layer, for those who run them otherwise.
 */
#ifndef TT_LAYER_NORMS_H
#define TT_LAYER_NORMS_H

#include <tutti/nn_layers.h>

typedef struct {
    tutti_tensor_t *weight, *bias; /* NULL where there is none */
    double eps;
    tutti_shape_t row;
} tt_norm_layer_t;

#endif
