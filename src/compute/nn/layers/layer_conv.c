/* Convolution layers. Initial values as PyTorch's: kaiming_uniform with a = √5 comes to U(±1/√fan),
 * fan = kernel × the weight's second size, and the bias has the same bounds. */
#include <tutti/nn_layers.h>
#include <tutti/op_volume.h>

#include <math.h>

#include "core/base/fail.h"

typedef struct {
    tutti_tensor_t *weight, *bias;
    tutti_conv_options_t options;
} conv_layer_t;

static tutti_status_t check_options(tutti_module_t *m, const tutti_conv_layer_options_t *o,
                                    int dims)
{
    const char *name = tutti_module_kind(m)->name;
    if (o == NULL || o->in < 1 || o->out < 1 || o->kernel[0] < 1 || o->kernel[dims / 2] < 1 ||
        o->kernel[dims - 1] < 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: in %lld, out %lld, kernel %lld and %lld: all must be at least 1", name,
                       o == NULL ? 0LL : (long long)o->in, o == NULL ? 0LL : (long long)o->out,
                       o == NULL ? 0LL : (long long)o->kernel[0],
                       o == NULL ? 0LL : (long long)o->kernel[dims - 1]);
    }
    const int64_t groups = o->move.groups == 0 ? 1 : o->move.groups;
    if (groups < 0 || o->in % groups != 0 || o->out % groups != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %lld groups do not divide in %lld and out %lld", name,
                       (long long)groups, (long long)o->in, (long long)o->out);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_module_t *m, const tutti_conv_layer_options_t *o, int dims,
                           bool is_transposed)
{
    TT_TRY(check_options(m, o, dims));
    conv_layer_t *conv = tutti_module_state(m);
    const int64_t groups = o->move.groups == 0 ? 1 : o->move.groups;
    const int64_t first = is_transposed ? o->in : o->out;
    const int64_t second = (is_transposed ? o->out : o->in) / groups;
    tutti_shape_t shape = {.rank = dims + 2, .dims = {first, second}};
    double fan = (double)second;
    for (int i = 0; i < dims; i++) {
        shape.dims[2 + i] = o->kernel[i];
        fan *= (double)o->kernel[i];
    }
    const tutti_init_t uniform = {TUTTI_INIT_UNIFORM, -1 / sqrt(fan), 1 / sqrt(fan)};
    conv->options = o->move;
    TT_TRY(tutti_module_new_parameter(m, "weight", shape, uniform, &conv->weight));
    return o->no_bias
               ? TUTTI_OK
               : tutti_module_new_parameter(m, "bias", TUTTI_SHAPE(o->out), uniform, &conv->bias);
}

static tutti_status_t init_conv1d(tutti_module_t *m, const void *options)
{
    return init(m, options, 1, false);
}

static tutti_status_t init_conv2d(tutti_module_t *m, const void *options)
{
    return init(m, options, 2, false);
}

static tutti_status_t init_conv3d(tutti_module_t *m, const void *options)
{
    return init(m, options, 3, false);
}

static tutti_status_t init_conv_transpose1d(tutti_module_t *m, const void *options)
{
    return init(m, options, 1, true);
}

static tutti_status_t init_conv_transpose2d(tutti_module_t *m, const void *options)
{
    return init(m, options, 2, true);
}

static tutti_status_t init_conv_transpose3d(tutti_module_t *m, const void *options)
{
    return init(m, options, 3, true);
}

static tutti_tensor_t *forward_conv1d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const conv_layer_t *conv = tutti_module_state(m);
    return tutti_conv1d(s, x, conv->weight, conv->bias, &conv->options);
}

static tutti_tensor_t *forward_conv2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const conv_layer_t *conv = tutti_module_state(m);
    return tutti_conv2d(s, x, conv->weight, conv->bias, &conv->options);
}

static tutti_tensor_t *forward_conv_transpose1d(tutti_scope_t *s, tutti_module_t *m,
                                                tutti_tensor_t *x)
{
    const conv_layer_t *conv = tutti_module_state(m);
    return tutti_conv_transpose1d(s, x, conv->weight, conv->bias, &conv->options);
}

static tutti_tensor_t *forward_conv_transpose2d(tutti_scope_t *s, tutti_module_t *m,
                                                tutti_tensor_t *x)
{
    const conv_layer_t *conv = tutti_module_state(m);
    return tutti_conv_transpose2d(s, x, conv->weight, conv->bias, &conv->options);
}

static tutti_tensor_t *forward_conv3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const conv_layer_t *conv = tutti_module_state(m);
    return tutti_conv3d(s, x, conv->weight, conv->bias, &conv->options);
}

static tutti_tensor_t *forward_conv_transpose3d(tutti_scope_t *s, tutti_module_t *m,
                                                tutti_tensor_t *x)
{
    const conv_layer_t *conv = tutti_module_state(m);
    return tutti_conv_transpose3d(s, x, conv->weight, conv->bias, &conv->options);
}

const tutti_module_ops_t tutti_conv1d_layer = {
    .name = "conv1d",
    .about = "convolution over lines [N, C, L]",
    .state_bytes = sizeof(conv_layer_t),
    .init = init_conv1d,
    .forward = forward_conv1d,
};

const tutti_module_ops_t tutti_conv2d_layer = {
    .name = "conv2d",
    .about = "convolution over planes [N, C, H, W]",
    .state_bytes = sizeof(conv_layer_t),
    .init = init_conv2d,
    .forward = forward_conv2d,
};

const tutti_module_ops_t tutti_conv_transpose1d_layer = {
    .name = "conv_transpose1d",
    .about = "transposed convolution over lines [N, C, L]",
    .state_bytes = sizeof(conv_layer_t),
    .init = init_conv_transpose1d,
    .forward = forward_conv_transpose1d,
};

const tutti_module_ops_t tutti_conv_transpose2d_layer = {
    .name = "conv_transpose2d",
    .about = "transposed convolution over planes [N, C, H, W]",
    .state_bytes = sizeof(conv_layer_t),
    .init = init_conv_transpose2d,
    .forward = forward_conv_transpose2d,
};

const tutti_module_ops_t tutti_conv3d_layer = {
    .name = "conv3d",
    .about = "convolution over volumes [N, C, D, H, W]",
    .state_bytes = sizeof(conv_layer_t),
    .init = init_conv3d,
    .forward = forward_conv3d,
};

const tutti_module_ops_t tutti_conv_transpose3d_layer = {
    .name = "conv_transpose3d",
    .about = "transposed convolution over volumes [N, C, D, H, W]",
    .state_bytes = sizeof(conv_layer_t),
    .init = init_conv_transpose3d,
    .forward = forward_conv_transpose3d,
};
