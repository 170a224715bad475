/* Pooling layers: options that are kept, and checked once. */
#include <tutti/nn_layers.h>
#include <tutti/op_volume.h>

#include "core/base/fail.h"

static tutti_status_t check_window(const char *name, int64_t kernel, int64_t stride,
                                   int64_t padding, int64_t dilation)
{
    if (kernel < 1 || stride < 0 || dilation < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: kernel %lld must be at least 1, stride %lld and dilation %lld not "
                       "negative",
                       name, (long long)kernel, (long long)stride, (long long)dilation);
    }
    if (padding < 0 || padding > kernel / 2) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: padding %lld must be from 0 to half of the kernel %lld",
                       name, (long long)padding, (long long)kernel);
    }
    return TUTTI_OK;
}

static tutti_status_t init_max(tutti_module_t *m, const void *options, int dims)
{
    tutti_pool_options_t *o = tutti_module_state(m);
    if (options != NULL) {
        *o = *(const tutti_pool_options_t *)options;
    }
    for (int i = 0; i < dims; i++) {
        TT_TRY(check_window(tutti_module_kind(m)->name, o->kernel[i], o->stride[i], o->padding[i],
                            o->dilation[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t init_max_pool1d(tutti_module_t *m, const void *options)
{
    return init_max(m, options, 1);
}

static tutti_status_t init_max_pool2d(tutti_module_t *m, const void *options)
{
    return init_max(m, options, 2);
}

static tutti_status_t init_max_pool3d(tutti_module_t *m, const void *options)
{
    return init_max(m, options, 3);
}

static tutti_status_t init_avg(tutti_module_t *m, const void *options, int dims)
{
    tutti_avg_pool_options_t *o = tutti_module_state(m);
    if (options != NULL) {
        *o = *(const tutti_avg_pool_options_t *)options;
    }
    for (int i = 0; i < dims; i++) {
        TT_TRY(
            check_window(tutti_module_kind(m)->name, o->kernel[i], o->stride[i], o->padding[i], 1));
    }
    return TUTTI_OK;
}

static tutti_status_t init_avg_pool1d(tutti_module_t *m, const void *options)
{
    return init_avg(m, options, 1);
}

static tutti_status_t init_avg_pool2d(tutti_module_t *m, const void *options)
{
    return init_avg(m, options, 2);
}

static tutti_status_t init_avg_pool3d(tutti_module_t *m, const void *options)
{
    return init_avg(m, options, 3);
}

static tutti_status_t init_adaptive(tutti_module_t *m, const void *options)
{
    tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    if (options != NULL) {
        *o = *(const tutti_adaptive_pool_options_t *)options;
    }
    for (int i = 0; i < 3; i++) {
        if (o->size[i] < 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: size %lld must not be negative",
                           tutti_module_kind(m)->name, (long long)o->size[i]);
        }
    }
    return TUTTI_OK;
}

/* The second output are the indices. */
static bool is_call_of_max(tutti_scope_t *s, tutti_module_t *m, int input_count, int output_count)
{
    if (input_count == 1 && (output_count == 1 || output_count == 2)) {
        return true;
    }
    (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                      "%s takes one tensor and gives one or two, not %d and %d",
                                      tutti_module_kind(m)->name, input_count, output_count));
    return false;
}

static void forward_max_pool1d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                               int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (is_call_of_max(s, m, input_count, output_count)) {
        outputs[0] = tutti_max_pool1d(s, inputs[0], tutti_module_state(m),
                                      output_count > 1 ? &outputs[1] : NULL);
    }
}

static void forward_max_pool2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                               int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (is_call_of_max(s, m, input_count, output_count)) {
        outputs[0] = tutti_max_pool2d(s, inputs[0], tutti_module_state(m),
                                      output_count > 1 ? &outputs[1] : NULL);
    }
}

static void forward_max_pool3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                               int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (is_call_of_max(s, m, input_count, output_count)) {
        outputs[0] = tutti_max_pool3d(s, inputs[0], tutti_module_state(m),
                                      output_count > 1 ? &outputs[1] : NULL);
    }
}

static void forward_adaptive_max_pool1d(tutti_scope_t *s, tutti_module_t *m,
                                        tutti_tensor_t *const *inputs, int input_count,
                                        tutti_tensor_t **outputs, int output_count)
{
    const tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    if (is_call_of_max(s, m, input_count, output_count)) {
        outputs[0] = tutti_adaptive_max_pool1d(s, inputs[0], o->size[0],
                                               output_count > 1 ? &outputs[1] : NULL);
    }
}

static void forward_adaptive_max_pool2d(tutti_scope_t *s, tutti_module_t *m,
                                        tutti_tensor_t *const *inputs, int input_count,
                                        tutti_tensor_t **outputs, int output_count)
{
    const tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    if (is_call_of_max(s, m, input_count, output_count)) {
        outputs[0] = tutti_adaptive_max_pool2d(s, inputs[0], o->size[0], o->size[1],
                                               output_count > 1 ? &outputs[1] : NULL);
    }
}

static void forward_adaptive_max_pool3d(tutti_scope_t *s, tutti_module_t *m,
                                        tutti_tensor_t *const *inputs, int input_count,
                                        tutti_tensor_t **outputs, int output_count)
{
    const tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    if (is_call_of_max(s, m, input_count, output_count)) {
        outputs[0] =
            tutti_adaptive_max_pool3d(s, inputs[0], o->size, output_count > 1 ? &outputs[1] : NULL);
    }
}

static tutti_tensor_t *forward_avg_pool1d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_avg_pool1d(s, x, tutti_module_state(m));
}

static tutti_tensor_t *forward_avg_pool2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_avg_pool2d(s, x, tutti_module_state(m));
}

static tutti_tensor_t *forward_avg_pool3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_avg_pool3d(s, x, tutti_module_state(m));
}

static tutti_tensor_t *forward_adaptive_avg_pool3d(tutti_scope_t *s, tutti_module_t *m,
                                                   tutti_tensor_t *x)
{
    const tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    return tutti_adaptive_avg_pool3d(s, x, o->size);
}

static tutti_tensor_t *forward_adaptive_avg_pool1d(tutti_scope_t *s, tutti_module_t *m,
                                                   tutti_tensor_t *x)
{
    const tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    return tutti_adaptive_avg_pool1d(s, x, o->size[0]);
}

static tutti_tensor_t *forward_adaptive_avg_pool2d(tutti_scope_t *s, tutti_module_t *m,
                                                   tutti_tensor_t *x)
{
    const tutti_adaptive_pool_options_t *o = tutti_module_state(m);
    return tutti_adaptive_avg_pool2d(s, x, o->size[0], o->size[1]);
}

const tutti_module_ops_t tutti_max_pool1d_layer = {
    .name = "max_pool1d",
    .about = "the largest of each window of lines [N, C, L]",
    .state_bytes = sizeof(tutti_pool_options_t),
    .init = init_max_pool1d,
    .forward_many = forward_max_pool1d,
};

const tutti_module_ops_t tutti_max_pool2d_layer = {
    .name = "max_pool2d",
    .about = "the largest of each window of planes [N, C, H, W]",
    .state_bytes = sizeof(tutti_pool_options_t),
    .init = init_max_pool2d,
    .forward_many = forward_max_pool2d,
};

const tutti_module_ops_t tutti_avg_pool1d_layer = {
    .name = "avg_pool1d",
    .about = "the mean of each window of lines [N, C, L]",
    .state_bytes = sizeof(tutti_avg_pool_options_t),
    .init = init_avg_pool1d,
    .forward = forward_avg_pool1d,
};

const tutti_module_ops_t tutti_avg_pool2d_layer = {
    .name = "avg_pool2d",
    .about = "the mean of each window of planes [N, C, H, W]",
    .state_bytes = sizeof(tutti_avg_pool_options_t),
    .init = init_avg_pool2d,
    .forward = forward_avg_pool2d,
};

const tutti_module_ops_t tutti_adaptive_max_pool1d_layer = {
    .name = "adaptive_max_pool1d",
    .about = "lines of one length, by maxima",
    .state_bytes = sizeof(tutti_adaptive_pool_options_t),
    .init = init_adaptive,
    .forward_many = forward_adaptive_max_pool1d,
};

const tutti_module_ops_t tutti_adaptive_max_pool2d_layer = {
    .name = "adaptive_max_pool2d",
    .about = "planes of one size, by maxima",
    .state_bytes = sizeof(tutti_adaptive_pool_options_t),
    .init = init_adaptive,
    .forward_many = forward_adaptive_max_pool2d,
};

const tutti_module_ops_t tutti_adaptive_avg_pool1d_layer = {
    .name = "adaptive_avg_pool1d",
    .about = "lines of one length, by means",
    .state_bytes = sizeof(tutti_adaptive_pool_options_t),
    .init = init_adaptive,
    .forward = forward_adaptive_avg_pool1d,
};

const tutti_module_ops_t tutti_adaptive_avg_pool2d_layer = {
    .name = "adaptive_avg_pool2d",
    .about = "planes of one size, by means",
    .state_bytes = sizeof(tutti_adaptive_pool_options_t),
    .init = init_adaptive,
    .forward = forward_adaptive_avg_pool2d,
};

const tutti_module_ops_t tutti_max_pool3d_layer = {
    .name = "max_pool3d",
    .about = "the largest of each window of volumes [N, C, D, H, W]",
    .state_bytes = sizeof(tutti_pool_options_t),
    .init = init_max_pool3d,
    .forward_many = forward_max_pool3d,
};

const tutti_module_ops_t tutti_avg_pool3d_layer = {
    .name = "avg_pool3d",
    .about = "the mean of each window of volumes [N, C, D, H, W]",
    .state_bytes = sizeof(tutti_avg_pool_options_t),
    .init = init_avg_pool3d,
    .forward = forward_avg_pool3d,
};

const tutti_module_ops_t tutti_adaptive_max_pool3d_layer = {
    .name = "adaptive_max_pool3d",
    .about = "volumes of one size, by maxima",
    .state_bytes = sizeof(tutti_adaptive_pool_options_t),
    .init = init_adaptive,
    .forward_many = forward_adaptive_max_pool3d,
};

const tutti_module_ops_t tutti_adaptive_avg_pool3d_layer = {
    .name = "adaptive_avg_pool3d",
    .about = "volumes of one size, by means",
    .state_bytes = sizeof(tutti_adaptive_pool_options_t),
    .init = init_adaptive,
    .forward = forward_adaptive_avg_pool3d,
};
