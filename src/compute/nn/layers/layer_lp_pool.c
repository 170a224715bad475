/* Layers that pool by powers: options that are kept, and checked once. */
#include <tutti/nn_layers.h>
#include <tutti/op_volume.h>

#include "core/base/fail.h"

static tutti_status_t init(tutti_module_t *m, const void *options, int dims)
{
    tutti_lp_pool_options_t *o = tutti_module_state(m);
    if (options != NULL) {
        *o = *(const tutti_lp_pool_options_t *)options;
    }
    if (o->p == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: p must not be 0", tutti_module_kind(m)->name);
    }
    for (int i = 0; i < dims; i++) {
        if (o->kernel[i] < 1 || o->stride[i] < 0) {
            return TT_FAIL(
                TUTTI_ERR_ARG, "%s: kernel %lld must be at least 1, stride %lld not negative",
                tutti_module_kind(m)->name, (long long)o->kernel[i], (long long)o->stride[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t init_lp_pool1d(tutti_module_t *m, const void *options)
{
    return init(m, options, 1);
}

static tutti_status_t init_lp_pool2d(tutti_module_t *m, const void *options)
{
    return init(m, options, 2);
}

static tutti_status_t init_lp_pool3d(tutti_module_t *m, const void *options)
{
    return init(m, options, 3);
}

static tutti_tensor_t *forward_lp_pool1d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_lp_pool1d(s, x, tutti_module_state(m));
}

static tutti_tensor_t *forward_lp_pool2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_lp_pool2d(s, x, tutti_module_state(m));
}

static tutti_tensor_t *forward_lp_pool3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_lp_pool3d(s, x, tutti_module_state(m));
}

const tutti_module_ops_t tutti_lp_pool1d_layer = {
    .name = "lp_pool1d",
    .about = "the norm of each window of lines [N, C, L]",
    .state_bytes = sizeof(tutti_lp_pool_options_t),
    .init = init_lp_pool1d,
    .forward = forward_lp_pool1d,
};

const tutti_module_ops_t tutti_lp_pool2d_layer = {
    .name = "lp_pool2d",
    .about = "the norm of each window of planes [N, C, H, W]",
    .state_bytes = sizeof(tutti_lp_pool_options_t),
    .init = init_lp_pool2d,
    .forward = forward_lp_pool2d,
};

const tutti_module_ops_t tutti_lp_pool3d_layer = {
    .name = "lp_pool3d",
    .about = "the norm of each window of volumes [N, C, D, H, W]",
    .state_bytes = sizeof(tutti_lp_pool_options_t),
    .init = init_lp_pool3d,
    .forward = forward_lp_pool3d,
};
