/* Activations, as a function and as a layer. */
#include <tutti/op_math.h>

#include "compute/nn/layers/activate.h"

tutti_status_t tt_activation_check(const char *layer, tutti_activation_t activation)
{
    if ((int)activation < TUTTI_ACTIVATION_DEFAULT || activation > TUTTI_ACTIVATION_TANH) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: there is no activation %d, only %d to %d", layer,
                       (int)activation, TUTTI_ACTIVATION_DEFAULT, TUTTI_ACTIVATION_TANH);
    }
    return TUTTI_OK;
}

tutti_tensor_t *tt_activate(tutti_scope_t *s, tutti_tensor_t *x, tutti_activation_t activation)
{
    switch (activation) {
    case TUTTI_ACTIVATION_RELU:
        return tutti_relu(s, x);
    case TUTTI_ACTIVATION_GELU_TANH:
        return tutti_gelu(s, x, TUTTI_GELU_TANH);
    case TUTTI_ACTIVATION_SILU:
        return tutti_silu(s, x);
    case TUTTI_ACTIVATION_SIGMOID:
        return tutti_sigmoid(s, x);
    case TUTTI_ACTIVATION_TANH:
        return tutti_tanh(s, x);
    case TUTTI_ACTIVATION_DEFAULT:
    case TUTTI_ACTIVATION_GELU:
        break;
    }
    return tutti_gelu(s, x, TUTTI_GELU_ERF);
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    tutti_activation_options_t *state = tutti_module_state(m);
    if (options != NULL) {
        *state = *(const tutti_activation_options_t *)options;
    }
    return tt_activation_check("activation", state->kind);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_activation_options_t *state = tutti_module_state(m);
    return tt_activate(s, x, state->kind);
}

const tutti_module_ops_t tutti_activation_layer = {
    .name = "activation",
    .about = "relu, gelu, silu, sigmoid or tanh",
    .state_bytes = sizeof(tutti_activation_options_t),
    .init = init,
    .forward = forward,
};
