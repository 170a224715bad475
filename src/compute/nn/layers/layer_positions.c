/* Learned positions: x + weight[0 … T). */
#include "compute/nn/layers/layer_positions.h"

#include <tutti/op_math.h>
#include <tutti/op_shape.h>

typedef struct {
    tutti_tensor_t *weight;
} positions_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tt_positions_options_t *o = options;
    positions_t *positions = tutti_module_state(m);
    const tutti_init_t normal = {TUTTI_INIT_NORMAL, 0, o->std};
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o->count, o->width), normal,
                                      &positions->weight);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const positions_t *positions = tutti_module_state(m);
    const int64_t length = tutti_tensor_dim(x, -2);
    tutti_tensor_t *weight = positions->weight;
    if (length < tutti_tensor_dim(weight, 0)) {
        weight = tutti_slice(s, weight, 0, TUTTI_RANGE(0, length));
    }
    return tutti_add(s, x, weight);
}

const tutti_module_ops_t tt_positions_layer = {
    .name = "positions",
    .about = "learned positions, added",
    .state_bytes = sizeof(positions_t),
    .init = init,
    .forward = forward,
};
