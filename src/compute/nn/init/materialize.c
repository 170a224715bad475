/* Tensors on meta get memory and the values that they would have had: their initializer runs, with
 * the random stream that it drew when the tensor was made. The memory takes the place of meta's in
 * the storage, so whoever holds the tensor, or a view of it, still does.
 *
 * Cost: the tensor; where it was cast to another dtype, the tensor in both. Source:
 * torch.nn.Module.to_empty and reset_parameters; deferred initialization in torchdistx. */
#include <tutti/devices.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

tutti_status_t tt_leave_meta(tutti_tensor_t *x, tutti_tensor_t *made)
{
    TT_TRY(tutti_tensor_set_grad(x, NULL));
    tt_storage_swap(x->storage, made->storage);
    tt_tensor_touch(x);
    return TUTTI_OK;
}

tutti_status_t tt_init_check_known(const tutti_tensor_t *x, const char *name)
{
    char text[192];
    const tt_initializer_t *init = x->storage->initializer;
    if (!tt_tensor_is_whole(x)) {
        return TT_FAIL(TUTTI_ERR_ARG, "materialize: %s, %s, is a part of another tensor", name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (init == NULL || init->version != x->storage->version) {
        return TT_FAIL(TUTTI_ERR_STATE, "materialize: the values of %s, %s, are not known: it %s",
                       name, tutti_tensor_describe(x, text, sizeof text),
                       init == NULL ? "was not made by an initializer"
                                    : "was written after its initializer");
    }
    return TUTTI_OK;
}

/* In the dtype in which they are made. */
static tutti_status_t make(tutti_context_t *ctx, const tutti_tensor_t *x, tt_device_t *device,
                           tutti_tensor_t **out)
{
    const tt_initializer_t *init = x->storage->initializer;
    const bool is_zero = init->run == NULL;
    TT_TRY(tt_tensor_new(device, is_zero ? x->dtype : init->dtype, x->shape, is_zero, out));
    const tutti_status_t status = is_zero ? TUTTI_OK : init->run(ctx, *out, init);
    if (status < 0) {
        tutti_tensor_release(*out);
    }
    return status;
}

tutti_status_t tt_init_make(tutti_context_t *ctx, const tutti_tensor_t *x, tt_device_t *device,
                            tutti_tensor_t **out)
{
    tutti_tensor_t *made;
    TT_TRY(make(ctx, x, device, &made));
    if (made->dtype == x->dtype) {
        *out = made;
        return TUTTI_OK;
    }
    tutti_status_t status = tt_tensor_new(device, x->dtype, x->shape, false, out);
    if (status >= 0) {
        status = tutti_tensor_copy(*out, made);
        if (status < 0) {
            tutti_tensor_release(*out);
        }
    }
    tutti_tensor_release(made);
    return status;
}

static tutti_status_t materialize(tutti_context_t *ctx, tutti_tensor_t *x, const char *name,
                                  tutti_device_t *device)
{
    TT_TRY(tt_tensor_check_named(x, name));
    if (!tt_device_has_values(device)) {
        return TT_FAIL(TUTTI_ERR_ARG, "materialize: %s has no memory for %s",
                       tutti_device_name(device), name);
    }
    if (tt_device_has_values(x->storage->device)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_init_check_known(x, name));
    tutti_tensor_t *made;
    TT_TRY(tt_init_make(ctx, x, tt_memory_on(device), &made));
    const tutti_status_t status = tt_leave_meta(x, made);
    tutti_tensor_release(made);
    return status;
}

tutti_status_t tutti_tensor_materialize(tutti_context_t *ctx, tutti_tensor_t *x,
                                        tutti_device_t *device)
{
    return materialize(ctx, x, "the tensor", device);
}

typedef struct {
    tutti_context_t *ctx;
    tutti_device_t *device;
} target_t;

static tutti_status_t materialize_one(void *user, const char *name, tutti_tensor_t *x)
{
    const target_t *target = user;
    return materialize(target->ctx, x, name, target->device);
}

tutti_status_t tutti_module_materialize(tutti_module_t *m, tutti_device_t *device)
{
    return tutti_module_each_tensor(m, materialize_one, &(target_t){m->ctx, device});
}
