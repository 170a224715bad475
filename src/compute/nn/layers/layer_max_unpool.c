/* Layers that put maxima back where they were: of two inputs, maxima and indices. */
#include <tutti/nn_functions.h>
#include <tutti/op_volume.h>

#include "compute/nn/layers/kept_options.h"

static tutti_status_t init(tutti_module_t *m, const void *options, int dims)
{
    const tutti_max_unpool_options_t *o = tt_keep_options(m, options);
    for (int i = 0; i < dims; i++) {
        if (o->kernel[i] < 1 || o->stride[i] < 0 || o->padding[i] < 0 || o->size[i] < 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: kernel %lld must be at least 1; stride %lld, padding %lld and "
                           "size %lld not negative",
                           tutti_module_kind(m)->name, (long long)o->kernel[i],
                           (long long)o->stride[i], (long long)o->padding[i],
                           (long long)o->size[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t init_max_unpool1d(tutti_module_t *m, const void *options)
{
    return init(m, options, 1);
}

static tutti_status_t init_max_unpool2d(tutti_module_t *m, const void *options)
{
    return init(m, options, 2);
}

static tutti_status_t init_max_unpool3d(tutti_module_t *m, const void *options)
{
    return init(m, options, 3);
}

static void forward_max_unpool1d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                                 int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (tt_is_call_of(s, m, 2, input_count, output_count)) {
        outputs[0] = tutti_max_unpool1d(s, inputs[0], inputs[1], tutti_module_state(m));
    }
}

static void forward_max_unpool2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                                 int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (tt_is_call_of(s, m, 2, input_count, output_count)) {
        outputs[0] = tutti_max_unpool2d(s, inputs[0], inputs[1], tutti_module_state(m));
    }
}

static void forward_max_unpool3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                                 int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (tt_is_call_of(s, m, 2, input_count, output_count)) {
        outputs[0] = tutti_max_unpool3d(s, inputs[0], inputs[1], tutti_module_state(m));
    }
}

const tutti_module_ops_t tutti_max_unpool1d_layer = {
    .name = "max_unpool1d",
    .about = "maxima of lines [N, C, L] back at their places",
    .state_bytes = sizeof(tutti_max_unpool_options_t),
    .init = init_max_unpool1d,
    .forward_many = forward_max_unpool1d,
};

const tutti_module_ops_t tutti_max_unpool2d_layer = {
    .name = "max_unpool2d",
    .about = "maxima of planes [N, C, H, W] back at their places",
    .state_bytes = sizeof(tutti_max_unpool_options_t),
    .init = init_max_unpool2d,
    .forward_many = forward_max_unpool2d,
};

const tutti_module_ops_t tutti_max_unpool3d_layer = {
    .name = "max_unpool3d",
    .about = "maxima of volumes [N, C, D, H, W] back at their places",
    .state_bytes = sizeof(tutti_max_unpool_options_t),
    .init = init_max_unpool3d,
    .forward_many = forward_max_unpool3d,
};
