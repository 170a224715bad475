/* Fractional max pooling as layers. */
#include <tutti/nn_functions.h>
#include <tutti/op_fractional.h>

#include "compute/nn/layers/kept_options.h"

typedef tutti_tensor_t *(*pool_fn_t)(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *samples,
                                     const tutti_fractional_pool_options_t *options,
                                     tutti_tensor_t **indices);

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    (void)tt_keep_options(m, options);
    return TUTTI_OK;
}

/* Tensors in, and out, that follow a call's first ones. */
typedef struct {
    tutti_tensor_t *const *inputs;
    int input_count;
    tutti_tensor_t **outputs;
    int output_count;
} tensors_t;

static void run(tutti_scope_t *s, tutti_module_t *m, pool_fn_t pool, tensors_t t)
{
    if (t.input_count < 1 || t.input_count > 2 || t.output_count < 1 || t.output_count > 2) {
        (void)tutti_scope_fail(s,
                               TT_FAIL(TUTTI_ERR_ARG,
                                       "%s takes one or two tensors and gives one or two, not "
                                       "%d and %d",
                                       tutti_module_kind(m)->name, t.input_count, t.output_count));
        return;
    }
    t.outputs[0] = pool(s, t.inputs[0], t.input_count > 1 ? t.inputs[1] : NULL,
                        tutti_module_state(m), t.output_count > 1 ? &t.outputs[1] : NULL);
}

static void forward_2d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                       int input_count, tutti_tensor_t **outputs, int output_count)
{
    run(s, m, tutti_fractional_max_pool2d, (tensors_t){inputs, input_count, outputs, output_count});
}

static void forward_3d(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                       int input_count, tutti_tensor_t **outputs, int output_count)
{
    run(s, m, tutti_fractional_max_pool3d, (tensors_t){inputs, input_count, outputs, output_count});
}

const tutti_module_ops_t tutti_fractional_max_pool2d_layer = {
    .name = "fractional_max_pool2d",
    .about = "the largest of windows of planes, at varying distances",
    .state_bytes = sizeof(tutti_fractional_pool_options_t),
    .init = init,
    .forward_many = forward_2d,
};

const tutti_module_ops_t tutti_fractional_max_pool3d_layer = {
    .name = "fractional_max_pool3d",
    .about = "the largest of windows of volumes, at varying distances",
    .state_bytes = sizeof(tutti_fractional_pool_options_t),
    .init = init,
    .forward_many = forward_3d,
};
