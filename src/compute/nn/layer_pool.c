/* Pooling layers: options that are kept, and checked once. */
#include <tutti/pool_layers.h>

#include "core/base/fail.h"

static tutti_status_t init(tutti_module_t *m, const void *options, int dims)
{
    const char *name = tutti_module_kind(m)->name;
    tutti_pool_options_t *o = tutti_module_state(m);
    if (options != NULL) {
        *o = *(const tutti_pool_options_t *)options;
    }
    for (int i = 0; i < dims; i++) {
        if (o->kernel[i] < 1 || o->stride[i] < 0 || o->dilation[i] < 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: kernel %lld must be at least 1, stride %lld and dilation %lld not "
                           "negative",
                           name, (long long)o->kernel[i], (long long)o->stride[i],
                           (long long)o->dilation[i]);
        }
        if (o->padding[i] < 0 || o->padding[i] > o->kernel[i] / 2) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: padding %lld must be from 0 to half of the kernel %lld", name,
                           (long long)o->padding[i], (long long)o->kernel[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t init_lines(tutti_module_t *m, const void *options)
{
    return init(m, options, 1);
}

static tutti_status_t init_planes(tutti_module_t *m, const void *options)
{
    return init(m, options, 2);
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

const tutti_module_ops_t tutti_max_pool1d_layer = {
    .name = "max_pool1d",
    .about = "the largest of each window of lines [N, C, L]",
    .state_bytes = sizeof(tutti_pool_options_t),
    .init = init_lines,
    .forward_many = forward_max_pool1d,
};

const tutti_module_ops_t tutti_max_pool2d_layer = {
    .name = "max_pool2d",
    .about = "the largest of each window of planes [N, C, H, W]",
    .state_bytes = sizeof(tutti_pool_options_t),
    .init = init_planes,
    .forward_many = forward_max_pool2d,
};
