/* Flatten: from planes to rows, between convolutions and linear layers. */
#include <tutti/nn_layers.h>
#include <tutti/op_shape.h>

#include "core/base/fail.h"

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    tutti_flatten_options_t *state = tutti_module_state(m);
    if (options != NULL) {
        *state = *(const tutti_flatten_options_t *)options;
    }
    if (state->first == 0 && state->last == 0) {
        *state = (tutti_flatten_options_t){.first = 1, .last = -1};
    }
    return TUTTI_OK;
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_flatten_options_t *state = tutti_module_state(m);
    return tutti_flatten(s, x, state->first, state->last);
}

const tutti_module_ops_t tutti_flatten_layer = {
    .name = "flatten",
    .about = "dimensions first to last as one",
    .state_bytes = sizeof(tutti_flatten_options_t),
    .init = init,
    .forward = forward,
};
