/* Batch norm with running statistics, and group norm, over channels. The running statistics are
 * buffers: saved and loaded, not learned. */
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/base/default.h"
#include "core/base/fail.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

static const tutti_init_t ones = {TUTTI_INIT_CONSTANT, 1, 0};

tutti_status_t tt_channel_norm_check(const tutti_module_t *m, int64_t width)
{
    return width >= 1 ? TUTTI_OK
                      : TT_FAIL(TUTTI_ERR_ARG, "%s: width %lld: it must be at least 1",
                                tutti_module_kind(m)->name, (long long)width);
}

tutti_status_t tt_channel_norm_add_affine(tutti_module_t *m, int64_t width, bool no_bias)
{
    tt_channel_norm_t *norm = tutti_module_state(m);
    TT_TRY(tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(width), ones, &norm->weight));
    return no_bias ? TUTTI_OK
                   : tutti_module_new_parameter(m, "bias", TUTTI_SHAPE(width), (tutti_init_t){0},
                                                &norm->bias);
}

static tutti_status_t add_buffer(tutti_module_t *m, const char *name, tutti_dtype_t dtype,
                                 tutti_shape_t shape, tutti_tensor_t **out)
{
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(m->ctx->home, dtype, shape, true, &x));
    const tutti_status_t status = tutti_module_add_buffer(m, name, x);
    tutti_tensor_release(x);
    *out = status < 0 ? NULL : x; /* the module's */
    return status;
}

tutti_status_t tt_channel_norm_add_running(tutti_module_t *m, int64_t width)
{
    tt_channel_norm_t *norm = tutti_module_state(m);
    const tutti_shape_t shape = TUTTI_SHAPE(width);
    TT_TRY(add_buffer(m, "running_mean", TUTTI_F32, shape, &norm->running_mean));
    TT_TRY(add_buffer(m, "running_var", TUTTI_F32, shape, &norm->running_var));
    TT_TRY(tutti_tensor_fill(norm->running_var, 1));
    return add_buffer(m, "num_batches_tracked", TUTTI_I64, TUTTI_SCALAR, &norm->batches);
}

tutti_status_t tt_batch_norm_layer_init(tutti_module_t *m, const void *options)
{
    const tutti_batch_norm_layer_options_t *o = options;
    tt_channel_norm_t *norm = tutti_module_state(m);
    TT_TRY(tt_channel_norm_check(m, o == NULL ? 0 : o->width));
    norm->eps = o->eps;
    norm->momentum = o->momentum;
    norm->is_cumulative = o->cumulative;
    norm->has_relu = o->relu;
    if (!o->no_affine) {
        TT_TRY(tt_channel_norm_add_affine(m, o->width, o->no_bias));
    }
    return o->no_running ? TUTTI_OK : tt_channel_norm_add_running(m, o->width);
}

static tutti_status_t count_batch(const tutti_scope_t *s, tutti_tensor_t *batches)
{
    TT_TRY(tt_tensor_check(batches));
    const tt_strided_t at = tt_tensor_strided(batches), one = {.dtype = TUTTI_I64, .number.i64 = 1};
    TT_TRY(tt_map_binary(tt_tensor_exec(s->ctx, batches), TT_BINARY_ADD, (tt_map_params_t){0}, &at,
                         &at, &one));
    tt_tensor_touch(batches);
    return TUTTI_OK;
}

/* The share of the next batch in a plain average. On meta any: nothing is moved there. */
static tutti_status_t find_share(const tutti_tensor_t *batches, double *share)
{
    int64_t count = 0;
    TT_ASSERT(batches->dtype == TUTTI_I64);
    if (tt_device_has_values(batches->storage->device)) {
        TT_TRY(tt_tensor_read(batches, &count));
    }
    *share = 1 / ((double)count + 1);
    return TUTTI_OK;
}

tutti_status_t tt_batch_norm_layer_move(tutti_scope_t *s, tt_channel_norm_t *norm,
                                        const tt_batch_statistics_t *batch)
{
    double momentum = tt_or_default(norm->momentum, 0.1);
    TT_TRY(norm->is_cumulative ? find_share(norm->batches, &momentum) : TUTTI_OK);
    TT_TRY(tt_batch_norm_move(s, norm->running_mean, norm->running_var, momentum, batch));
    return count_batch(s, norm->batches);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x,
                               tutti_tensor_t *residual)
{
    const tt_channel_norm_t *norm = tutti_module_state(m);
    const bool is_shared = norm->shared.merge != NULL;
    const tutti_context_t *ctx = tutti_scope_context(s);
    const bool counts = norm->batches != NULL && tutti_context_is_training(ctx) &&
                        !tutti_context_is_recomputing(ctx);
    const uint32_t before = counts ? norm->running_mean->storage->version : 0;
    double momentum = norm->momentum;
    const tutti_status_t found =
        counts && norm->is_cumulative ? find_share(norm->batches, &momentum) : TUTTI_OK;
    if (found < 0) {
        return tutti_scope_fail(s, found);
    }
    const tutti_batch_norm_options_t options = {.running_mean = norm->running_mean,
                                                .running_var = norm->running_var,
                                                .momentum = momentum,
                                                .eps = norm->eps,
                                                .residual = residual,
                                                .relu = norm->has_relu};
    tutti_tensor_t *const inputs[] = {x, norm->weight, norm->bias};
    tutti_tensor_t *y =
        tt_batch_norm(s, inputs, &options, is_shared ? &norm->shared : NULL, norm->deferred);
    if (counts && norm->running_mean->storage->version != before) {
        /* one without samples moves nothing, and is none of the average */
        const tutti_status_t status = count_batch(s, norm->batches);
        y = status < 0 ? tutti_scope_fail(s, status) : y;
    }
    return y;
}

void tt_batch_norm_layer_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                                 int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (input_count < 1 || input_count > 2 || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "%s takes x, and perhaps a residual, and gives one "
                                          "tensor, not %d and %d",
                                          tutti_module_kind(m)->name, input_count, output_count));
        return;
    }
    outputs[0] = forward(s, m, inputs[0], input_count > 1 ? inputs[1] : NULL);
}

static tutti_status_t init_group_norm(tutti_module_t *m, const void *options)
{
    const tutti_group_norm_options_t *o = options;
    tt_channel_norm_t *norm = tutti_module_state(m);
    TT_TRY(tt_channel_norm_check(m, o == NULL ? 0 : o->width));
    if (o->groups < 1 || o->width % o->groups != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "group_norm: %lld groups do not divide the width, %lld",
                       (long long)o->groups, (long long)o->width);
    }
    norm->eps = o->eps;
    norm->groups = o->groups;
    return o->no_affine ? TUTTI_OK : tt_channel_norm_add_affine(m, o->width, o->no_bias);
}

static tutti_tensor_t *forward_group_norm(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_channel_norm_t *norm = tutti_module_state(m);
    return tutti_group_norm(s, x, norm->groups, norm->weight, norm->bias, norm->eps);
}

const tutti_module_ops_t tutti_batch_norm_layer = {
    .name = "batch_norm",
    .about = "channels of mean 0 and variance 1 over the batch, scaled and shifted",
    .state_bytes = sizeof(tt_channel_norm_t),
    .init = tt_batch_norm_layer_init,
    .forward_many = tt_batch_norm_layer_forward,
};

const tutti_module_ops_t tutti_group_norm_layer = {
    .name = "group_norm",
    .about = "groups of channels of mean 0 and variance 1 in each sample, scaled and shifted",
    .state_bytes = sizeof(tt_channel_norm_t),
    .init = init_group_norm,
    .forward = forward_group_norm,
};
