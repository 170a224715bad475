/* Layer norm and RMS norm, over the last dimension. */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "compute/nn/layers/layer_norms.h"
#include "core/base/fail.h"

typedef tt_norm_layer_t norm_t;

static const tutti_init_t ones = {TUTTI_INIT_CONSTANT, 1, 0};

static tutti_status_t init_weight(tutti_module_t *m, const tutti_norm_options_t *o)
{
    norm_t *norm = tutti_module_state(m);
    if (o == NULL || o->width < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: width %lld: it must be at least 1",
                       tutti_module_kind(m)->name, o == NULL ? 0LL : (long long)o->width);
    }
    norm->eps = o->eps;
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o->width), ones, &norm->weight);
}

static tutti_status_t init_layer_norm(tutti_module_t *m, const void *options)
{
    const tutti_norm_options_t *o = options;
    norm_t *norm = tutti_module_state(m);
    TT_TRY(init_weight(m, o));
    return o->no_bias ? TUTTI_OK
                      : tutti_module_new_parameter(m, "bias", TUTTI_SHAPE(o->width),
                                                   (tutti_init_t){0}, &norm->bias);
}

static tutti_status_t init_rms_norm(tutti_module_t *m, const void *options)
{
    return init_weight(m, options);
}

static tutti_tensor_t *forward_layer_norm(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const norm_t *norm = tutti_module_state(m);
    return tutti_layer_norm(s, x, norm->weight, norm->bias, norm->eps);
}

static tutti_tensor_t *forward_rms_norm(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const norm_t *norm = tutti_module_state(m);
    return tutti_rms_norm(s, x, norm->weight, norm->eps);
}

const tutti_module_ops_t tutti_layer_norm_layer = {
    .name = "layer_norm",
    .about = "rows of mean 0 and variance 1, scaled and shifted",
    .state_bytes = sizeof(norm_t),
    .init = init_layer_norm,
    .forward = forward_layer_norm,
};

const tutti_module_ops_t tutti_rms_norm_layer = {
    .name = "rms_norm",
    .about = "rows of root mean square 1, scaled",
    .state_bytes = sizeof(norm_t),
    .init = init_rms_norm,
    .forward = forward_rms_norm,
};
