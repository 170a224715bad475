/* Dropout: zeros while the context trains; the layer itself has no mode. */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "compute/nn/module_impl.h"
#include "core/base/fail.h"

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    tutti_dropout_options_t *state = tutti_module_state(m);
    if (options != NULL) {
        *state = *(const tutti_dropout_options_t *)options;
    }
    if (!(state->p >= 0 && state->p <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "dropout: p is %g: it must be from 0 to 1", (double)state->p);
    }
    return TUTTI_OK;
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_dropout_options_t *state = tutti_module_state(m);
    return tt_module_dropout(s, m, x, state->p);
}

const tutti_module_ops_t tutti_dropout_layer = {
    .name = "dropout",
    .about = "zeros with probability p while training",
    .state_bytes = sizeof(tutti_dropout_options_t),
    .init = init,
    .forward = forward,
};
