/* A module that is run for nothing but its time: gradients are put aside, buffers copied, and both
 * come back, as do the context's modes and the place in its random numbers. */
#include <tutti/devices.h>
#include <tutti/modes.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/layer_measure.h"

static tutti_status_t check_tensor(const char *name, const tutti_tensor_t *x)
{
    if (x->slice != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "measure_layers: %s is dealt out by a DDP or a pipeline: measure before "
                       "these are made",
                       name);
    }
    if (x->spread != NULL || !tt_device_has_values(x->storage->device)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "measure_layers: %s %s: one rank measures a module of which it has all "
                       "values",
                       name,
                       x->spread != NULL ? "is a part by tensor parallelism"
                                         : "lies on meta (tutti_module_materialize())");
    }
    return TUTTI_OK;
}

static tutti_status_t add(tt_kept_t **all, int *count, int *capacity, tutti_tensor_t *x)
{
    if (*count == *capacity) {
        const int more = *capacity == 0 ? 16 : 2 * *capacity;
        tt_kept_t *grown = tt_realloc(*all, (size_t)more * sizeof *grown, "kept tensors");
        TT_TRY_ALLOC(grown);
        *all = grown;
        *capacity = more;
    }
    (*all)[(*count)++] = (tt_kept_t){.tensor = tutti_tensor_retain(x)};
    return TUTTI_OK;
}

static bool is_heard_of(const tutti_tensor_t *x)
{
    const tt_autograd_t *a = tt_autograd_of(x);
    const tt_hook_link_t *link = a == NULL ? NULL : a->hooks.first;
    while (link != NULL && (link->is_removed || ((const tt_hook_t *)link)->on_accumulate == NULL)) {
        link = link->next;
    }
    return link != NULL;
}

/* Whoever hears of gradients takes them for a training's: DDP averages them. */
static tutti_status_t check_hooks(const char *name, const tutti_tensor_t *x)
{
    return is_heard_of(x)
               ? TT_FAIL(TUTTI_ERR_STATE,
                         "measure_layers: %s's gradients are heard of by a DDP, or by a hook of "
                         "tutti_tensor_on_accumulate(): measure before these are made",
                         name)
               : TUTTI_OK;
}

static tutti_status_t add_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    tt_keeping_t *k = user;
    TT_TRY(check_tensor(name, x));
    TT_TRY(check_hooks(name, x));
    return add(&k->params, &k->param_count, &k->param_capacity, x);
}

static tutti_status_t add_buffer(void *user, const char *name, tutti_tensor_t *x)
{
    tt_keeping_t *k = user;
    TT_TRY(check_tensor(name, x));
    TT_TRY(add(&k->buffers, &k->buffer_count, &k->buffer_capacity, x));
    tt_kept_t *kept = &k->buffers[k->buffer_count - 1];
    TT_TRY(tt_tensor_new(x->storage->device, x->dtype, x->shape, false, &kept->kept));
    return tutti_tensor_copy(kept->kept, x);
}

/* Behind all that can fail. */
static void put_grads_aside(tt_keeping_t *k)
{
    for (int i = 0; i < k->param_count; i++) {
        tutti_tensor_t *grad = tutti_tensor_grad(k->params[i].tensor);
        if (grad != NULL) {
            k->params[i].kept = tutti_tensor_retain(grad);
            (void)tutti_tensor_set_grad(k->params[i].tensor, NULL);
        }
    }
}

tutti_status_t tt_keeping_open(tutti_context_t *ctx, tutti_module_t *module, tt_keeping_t *k)
{
    *k = (tt_keeping_t){.ctx = ctx};
    TT_TRY(tutti_module_each_parameter(module, add_parameter, k));
    TT_TRY(tutti_module_each_buffer(module, add_buffer, k));
    put_grads_aside(k);
    k->random_calls = ctx->random_calls;
    k->was_training = tutti_context_is_training(ctx);
    k->was_recording = tutti_context_set_grad_enabled(ctx, true);
    tutti_context_set_training(ctx, true);
    k->has_modes = true;
    return TUTTI_OK;
}

static void drop_grads(tt_keeping_t *k)
{
    for (int i = 0; i < k->param_count; i++) {
        (void)tutti_tensor_set_grad(k->params[i].tensor, NULL);
    }
}

static tutti_status_t restore(tt_keeping_t *k)
{
    tutti_status_t status = TUTTI_OK;
    drop_grads(k);
    for (int i = 0; i < k->param_count && status >= 0; i++) {
        status = k->params[i].kept == NULL
                     ? TUTTI_OK
                     : tutti_tensor_set_grad(k->params[i].tensor, k->params[i].kept);
    }
    for (int i = 0; i < k->buffer_count && status >= 0; i++) {
        status = tutti_tensor_copy(k->buffers[i].tensor, k->buffers[i].kept);
    }
    k->ctx->random_calls = k->random_calls;
    tutti_context_set_training(k->ctx, k->was_training);
    (void)tutti_context_set_grad_enabled(k->ctx, k->was_recording);
    return status;
}

static void release(tt_kept_t *all, int count)
{
    for (int i = 0; i < count; i++) {
        tutti_tensor_release(all[i].tensor);
        tutti_tensor_release(all[i].kept);
    }
    tt_free(all);
}

tutti_status_t tt_keeping_close(tt_keeping_t *k)
{
    const tutti_status_t status = k->has_modes ? restore(k) : TUTTI_OK;
    release(k->params, k->param_count);
    release(k->buffers, k->buffer_count);
    *k = (tt_keeping_t){0};
    return status;
}
