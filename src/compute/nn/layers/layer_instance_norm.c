/* Instance norm, with running statistics or without. */
#include <tutti/op_shape.h>

#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

enum { SPATIAL_MAX = 3 };

typedef struct {
    tt_channel_norm_t norm;
    int64_t width;
    int spatial_dims; /* 0: any number */
} instance_norm_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_instance_norm_options_t *o = options;
    instance_norm_t *instance = tutti_module_state(m);
    TT_TRY(tt_channel_norm_check(m, o == NULL ? 0 : o->width));
    if (o->spatial_dims < 0 || o->spatial_dims > SPATIAL_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "instance_norm: spatial_dims %d: want 1 to %d, or 0 for any",
                       o->spatial_dims, SPATIAL_MAX);
    }
    instance->norm.eps = o->eps;
    instance->norm.momentum = o->momentum;
    instance->width = o->width;
    instance->spatial_dims = o->spatial_dims;
    if (o->affine) {
        TT_TRY(tt_channel_norm_add_affine(m, o->width, o->no_bias));
    }
    return o->running ? tt_channel_norm_add_running(m, o->width) : TUTTI_OK;
}

/* Whether x is a sample. SHAPE: it is neither that nor a batch of them. */
static tutti_status_t look(const instance_norm_t *instance, const tutti_tensor_t *x,
                           bool *is_sample)
{
    char text[160];
    TT_TRY(tt_tensor_status(x));
    const int rank = x->shape.rank, dims = instance->spatial_dims;
    *is_sample = dims > 0 && rank == dims + 1;
    const bool is_batch = dims > 0 ? rank == dims + 2 : rank >= 2;
    return (*is_sample || is_batch) && x->shape.dims[*is_sample ? 0 : 1] == instance->width
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE, "instance_norm: x must have %lld channels, %s: it is %s",
                         (long long)instance->width,
                         dims == 0   ? "[N, C, ...]"
                         : dims == 1 ? "[N, C, L] or [C, L]"
                         : dims == 2 ? "[N, C, H, W] or [C, H, W]"
                                     : "[N, C, D, H, W] or [C, D, H, W]",
                         tutti_tensor_describe(x, text, sizeof text));
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const instance_norm_t *instance = tutti_module_state(m);
    const tt_channel_norm_t *norm = &instance->norm;
    const tutti_batch_norm_options_t options = {.running_mean = norm->running_mean,
                                                .running_var = norm->running_var,
                                                .momentum = norm->momentum,
                                                .eps = norm->eps};
    bool is_sample;
    const tutti_status_t status = look(instance, x, &is_sample);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *batch = is_sample ? tutti_unsqueeze(s, x, 0) : x;
    tutti_tensor_t *y = tutti_instance_norm(s, batch, norm->weight, norm->bias, &options);
    return is_sample ? tutti_squeeze(s, y, 0) : y;
}

const tutti_module_ops_t tutti_instance_norm_layer = {
    .name = "instance_norm",
    .about = "channels of mean 0 and variance 1 in each sample",
    .state_bytes = sizeof(instance_norm_t),
    .init = init,
    .forward = forward,
};
