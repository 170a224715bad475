/* Linear layer: activation(x weightᵀ + bias).
 * Initial values as torch.nn.Linear's: kaiming_uniform with a = √5 comes to U(±1/√in) for the
 * weight, and the bias has the same bounds.
 */
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>

#include <math.h>

#include "compute/nn/layers/activate.h"
#include "compute/nn/layers/layer_linear.h"
#include "core/base/default.h"
#include "core/base/fail.h"

typedef tt_linear_layer_t linear_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_linear_options_t *o = options;
    linear_t *linear = tutti_module_state(m);
    if (o == NULL || o->in < 1 || o->out < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "linear: %lld in, %lld out: both must be at least 1",
                       o == NULL ? 0LL : (long long)o->in, o == NULL ? 0LL : (long long)o->out);
    }
    TT_TRY(tt_activation_check("linear", o->activation));
    linear->activation = o->activation;
    const double bound = 1 / sqrt((double)o->in);
    const bool is_normal = tt_is_given(o->std);
    const tutti_init_t uniform = {TUTTI_INIT_UNIFORM, -bound, bound};
    const tutti_init_t normal = {TUTTI_INIT_NORMAL, 0, o->std};
    TT_TRY(tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o->out, o->in),
                                      is_normal ? normal : uniform, &linear->weight));
    if (o->no_bias) {
        return TUTTI_OK;
    }
    return tutti_module_new_parameter(m, "bias", TUTTI_SHAPE(o->out),
                                      is_normal ? (tutti_init_t){0} : uniform, &linear->bias);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const linear_t *linear = tutti_module_state(m);
    switch (linear->activation) {
    case TUTTI_ACTIVATION_DEFAULT:
        return tutti_linear(s, x, linear->weight, linear->bias);
    case TUTTI_ACTIVATION_GELU:
        return tutti_linear_gelu(s, x, linear->weight, linear->bias, TUTTI_GELU_ERF);
    case TUTTI_ACTIVATION_GELU_TANH:
        return tutti_linear_gelu(s, x, linear->weight, linear->bias, TUTTI_GELU_TANH);
    default:
        return tt_activate(s, tutti_linear(s, x, linear->weight, linear->bias), linear->activation);
    }
}

const tutti_module_ops_t tutti_linear_layer = {
    .name = "linear",
    .about = "x weightᵀ + bias, and an activation",
    .state_bytes = sizeof(linear_t),
    .init = init,
    .forward = forward,
};
