/* Dropouts of whole channels, and SELU's; and the norm over neighbouring channels. */
#include <tutti/nn_functions.h>
#include <tutti/op_feature.h>

#include "compute/nn/layers/kept_options.h"

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_dropout_options_t *o = tt_keep_options(m, options);
    return o->p >= 0 && o->p <= 1 ? TUTTI_OK
                                  : TT_FAIL(TUTTI_ERR_ARG, "%s: p is %g: it must be from 0 to 1",
                                            tutti_module_kind(m)->name, (double)o->p);
}

static float p_of(tutti_module_t *m)
{
    const tutti_dropout_options_t *o = tutti_module_state(m);
    return o->p;
}

static tutti_tensor_t *forward_dropout1d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_dropout1d(s, x, p_of(m));
}

static tutti_tensor_t *forward_dropout2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_dropout2d(s, x, p_of(m));
}

static tutti_tensor_t *forward_dropout3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_dropout3d(s, x, p_of(m));
}

static tutti_tensor_t *forward_alpha_dropout(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_alpha_dropout(s, x, p_of(m));
}

static tutti_tensor_t *forward_feature_alpha_dropout(tutti_scope_t *s, tutti_module_t *m,
                                                     tutti_tensor_t *x)
{
    return tutti_feature_alpha_dropout(s, x, p_of(m));
}

const tutti_module_ops_t tutti_dropout1d_layer = {
    .name = "dropout1d",
    .about = "zeros whole lines with probability p while training",
    .state_bytes = sizeof(tutti_dropout_options_t),
    .init = init,
    .forward = forward_dropout1d,
};

const tutti_module_ops_t tutti_dropout2d_layer = {
    .name = "dropout2d",
    .about = "zeros whole planes with probability p while training",
    .state_bytes = sizeof(tutti_dropout_options_t),
    .init = init,
    .forward = forward_dropout2d,
};

const tutti_module_ops_t tutti_dropout3d_layer = {
    .name = "dropout3d",
    .about = "zeros whole volumes with probability p while training",
    .state_bytes = sizeof(tutti_dropout_options_t),
    .init = init,
    .forward = forward_dropout3d,
};

const tutti_module_ops_t tutti_alpha_dropout_layer = {
    .name = "alpha_dropout",
    .about = "dropout that keeps mean 0 and variance 1, behind SELU",
    .state_bytes = sizeof(tutti_dropout_options_t),
    .init = init,
    .forward = forward_alpha_dropout,
};

const tutti_module_ops_t tutti_feature_alpha_dropout_layer = {
    .name = "feature_alpha_dropout",
    .about = "the same of whole channels",
    .state_bytes = sizeof(tutti_dropout_options_t),
    .init = init,
    .forward = forward_feature_alpha_dropout,
};

/* ---- local response norm --------------------------------------------------------------------- */

static tutti_status_t init_local_response(tutti_module_t *m, const void *options)
{
    const tutti_local_response_options_t *o = tt_keep_options(m, options);
    return o->size >= 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "local_response_norm: size %lld: it must be at least 1",
                         (long long)o->size);
}

static tutti_tensor_t *forward_local_response(tutti_scope_t *s, tutti_module_t *m,
                                              tutti_tensor_t *x)
{
    return tutti_local_response_norm(s, x, tutti_module_state(m));
}

const tutti_module_ops_t tutti_local_response_norm_layer = {
    .name = "local_response_norm",
    .about = "x over a power of its neighbours' mean square",
    .state_bytes = sizeof(tutti_local_response_options_t),
    .init = init_local_response,
    .forward = forward_local_response,
};
