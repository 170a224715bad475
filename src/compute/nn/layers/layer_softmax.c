/* Softmax, its logarithm, softmin and gated halves, along a dimension; and PReLU. */
#include <tutti/nn_functions.h>
#include <tutti/op_activation.h>
#include <tutti/op_nn.h>

#include "compute/nn/layers/kept_options.h"
#include "core/base/default.h"

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    static const tutti_dim_options_t last = {.dim = -1};
    (void)tt_keep_options(m, options == NULL ? &last : options);
    return TUTTI_OK;
}

static int dim_of(tutti_module_t *m)
{
    const tutti_dim_options_t *state = tutti_module_state(m);
    return state->dim;
}

static tutti_tensor_t *forward_softmax(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_softmax(s, x, dim_of(m));
}

static tutti_tensor_t *forward_log_softmax(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_log_softmax(s, x, dim_of(m));
}

static tutti_tensor_t *forward_softmin(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_softmin(s, x, dim_of(m));
}

static tutti_tensor_t *forward_glu(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_glu(s, x, dim_of(m));
}

const tutti_module_ops_t tutti_softmax_layer = {
    .name = "softmax",
    .about = "exponentials that sum to 1 along a dimension",
    .state_bytes = sizeof(tutti_dim_options_t),
    .init = init,
    .forward = forward_softmax,
};

const tutti_module_ops_t tutti_log_softmax_layer = {
    .name = "log_softmax",
    .about = "the logarithm of softmax",
    .state_bytes = sizeof(tutti_dim_options_t),
    .init = init,
    .forward = forward_log_softmax,
};

const tutti_module_ops_t tutti_softmin_layer = {
    .name = "softmin",
    .about = "softmax of -x",
    .state_bytes = sizeof(tutti_dim_options_t),
    .init = init,
    .forward = forward_softmin,
};

const tutti_module_ops_t tutti_glu_layer = {
    .name = "glu",
    .about = "half of a dimension, gated by the other",
    .state_bytes = sizeof(tutti_dim_options_t),
    .init = init,
    .forward = forward_glu,
};

/* ---- PReLU ----------------------------------------------------------------------------------- */

typedef struct {
    tutti_tensor_t *weight;
} prelu_t;

static tutti_status_t init_prelu(tutti_module_t *m, const void *options)
{
    prelu_t *prelu = tutti_module_state(m);
    tutti_prelu_options_t o = {.count = 0};
    if (options != NULL) {
        o = *(const tutti_prelu_options_t *)options;
    }
    o.count = o.count == 0 ? 1 : o.count;
    if (o.count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "prelu: count %lld: it must be at least 1",
                       (long long)o.count);
    }
    const tutti_init_t begin = {TUTTI_INIT_CONSTANT, tt_or_default(o.begin, 0.25), 0};
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o.count), begin, &prelu->weight);
}

static tutti_tensor_t *forward_prelu(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const prelu_t *prelu = tutti_module_state(m);
    return tutti_prelu(s, x, prelu->weight);
}

const tutti_module_ops_t tutti_prelu_layer = {
    .name = "prelu",
    .about = "x, below 0 times a number that is learned",
    .state_bytes = sizeof(prelu_t),
    .init = init_prelu,
    .forward = forward_prelu,
};
