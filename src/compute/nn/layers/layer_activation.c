/* Activations, as a function and as a layer. */
#include <tutti/op_activation.h>
#include <tutti/op_math.h>

#include "compute/nn/layers/activate.h"
#include "compute/nn/layers/kept_options.h"
#include "core/base/default.h"

static tutti_status_t check_kind(const char *layer, tutti_activation_t activation)
{
    if ((int)activation < TUTTI_ACTIVATION_DEFAULT || activation > TUTTI_ACTIVATION_RRELU) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: there is no activation %d, only %d to %d", layer,
                       (int)activation, TUTTI_ACTIVATION_DEFAULT, TUTTI_ACTIVATION_RRELU);
    }
    return TUTTI_OK;
}

tutti_status_t tt_activation_check(const char *layer, tutti_activation_t activation)
{
    TT_TRY(check_kind(layer, activation));
    return activation != TUTTI_ACTIVATION_RRELU
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: RReLU draws, and wants an activation layer of its own",
                         layer);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

typedef tutti_activation_options_t options_t;
typedef tutti_tensor_t *(*activate_t)(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o);

static tutti_tensor_t *gelu(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return tutti_gelu(s, x,
                      o->kind == TUTTI_ACTIVATION_GELU_TANH ? TUTTI_GELU_TANH : TUTTI_GELU_ERF);
}

static tutti_tensor_t *leaky_relu(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return tutti_leaky_relu(s, x, tt_or_default(o->slope, 0.01));
}

static tutti_tensor_t *elu(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return (o->kind == TUTTI_ACTIVATION_ELU ? tutti_elu : tutti_celu)(s, x,
                                                                      tt_or_default(o->alpha, 1));
}

static tutti_tensor_t *softplus(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return tutti_softplus(s, x, tt_or_default(o->beta, 1), tt_or_default(o->bound, 20));
}

static tutti_tensor_t *threshold(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return tutti_threshold(s, x, o->threshold, o->value);
}

static tutti_tensor_t *hardtanh(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return tutti_hardtanh(s, x, o->low, o->high);
}

static tutti_tensor_t *shrink(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return (o->kind == TUTTI_ACTIVATION_HARDSHRINK ? tutti_hardshrink : tutti_softshrink)(
        s, x, tt_or_default(o->lambda, 0.5));
}

static tutti_tensor_t *rrelu(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return tutti_rrelu(s, x, tt_or_default(o->lower, 1.0 / 8), tt_or_default(o->upper, 1.0 / 3));
}

/* What a kind does: a function without numbers, or one of those above. */
static const struct {
    tutti_tensor_t *(*plain)(tutti_scope_t *s, tutti_tensor_t *x);
    activate_t with;
} kinds[] = {
    [TUTTI_ACTIVATION_DEFAULT] = {NULL, gelu},
    [TUTTI_ACTIVATION_RELU] = {tutti_relu, NULL},
    [TUTTI_ACTIVATION_GELU] = {NULL, gelu},
    [TUTTI_ACTIVATION_GELU_TANH] = {NULL, gelu},
    [TUTTI_ACTIVATION_SILU] = {tutti_silu, NULL},
    [TUTTI_ACTIVATION_SIGMOID] = {tutti_sigmoid, NULL},
    [TUTTI_ACTIVATION_TANH] = {tutti_tanh, NULL},
    [TUTTI_ACTIVATION_LEAKY_RELU] = {NULL, leaky_relu},
    [TUTTI_ACTIVATION_ELU] = {NULL, elu},
    [TUTTI_ACTIVATION_CELU] = {NULL, elu},
    [TUTTI_ACTIVATION_SELU] = {tutti_selu, NULL},
    [TUTTI_ACTIVATION_SOFTPLUS] = {NULL, softplus},
    [TUTTI_ACTIVATION_LOGSIGMOID] = {tutti_logsigmoid, NULL},
    [TUTTI_ACTIVATION_MISH] = {tutti_mish, NULL},
    [TUTTI_ACTIVATION_SOFTSIGN] = {tutti_softsign, NULL},
    [TUTTI_ACTIVATION_TANHSHRINK] = {tutti_tanhshrink, NULL},
    [TUTTI_ACTIVATION_THRESHOLD] = {NULL, threshold},
    [TUTTI_ACTIVATION_HARDTANH] = {NULL, hardtanh},
    [TUTTI_ACTIVATION_RELU6] = {tutti_relu6, NULL},
    [TUTTI_ACTIVATION_HARDSIGMOID] = {tutti_hardsigmoid, NULL},
    [TUTTI_ACTIVATION_HARDSWISH] = {tutti_hardswish, NULL},
    [TUTTI_ACTIVATION_HARDSHRINK] = {NULL, shrink},
    [TUTTI_ACTIVATION_SOFTSHRINK] = {NULL, shrink},
    [TUTTI_ACTIVATION_RRELU] = {NULL, rrelu},
};

static tutti_tensor_t *activate(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    return kinds[o->kind].plain != NULL ? kinds[o->kind].plain(s, x) : kinds[o->kind].with(s, x, o);
}

tutti_tensor_t *tt_activate(tutti_scope_t *s, tutti_tensor_t *x, tutti_activation_t activation)
{
    return activate(s, x, &(options_t){.kind = activation});
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const options_t *o = tt_keep_options(m, options);
    return check_kind("activation", o->kind);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return activate(s, x, tutti_module_state(m));
}

const tutti_module_ops_t tutti_activation_layer = {
    .name = "activation",
    .about = "a function of each element: relu, gelu, elu, mish and more",
    .state_bytes = sizeof(tutti_activation_options_t),
    .init = init,
    .forward = forward,
};
