/* Casting a module's tensors, or moving them to a device, in place: all are converted first, then
 * each takes over its converted memory, so that a failure changes nothing and the holder of a
 * tensor still holds the parameter. Source: torch.nn.Module.to. */
#include <tutti/devices.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"

typedef struct {
    tutti_dtype_t dtype;                                        /* of a cast */
    tt_device_t *device;                                        /* of a move; NULL: the host */
    bool (*is_cast)(const void *user, const tutti_tensor_t *x); /* NULL: all are */
    const void *user;
    tt_tensor_list_t from, to;
} conversion_t;

static tutti_status_t add(conversion_t *conversion, const char *name, tutti_tensor_t *x,
                          tt_device_t *device, tutti_dtype_t dtype)
{
    tutti_tensor_t *y;
    TT_TRY(tt_tensor_new(device, dtype, x->shape, false, &y));
    const tt_event_t before = tt_device_event(y->storage->device);
    tutti_status_t status = tutti_tensor_copy(y, x);
    status = status < 0 ? status : tt_device_check_since(before); /* else x is lost with it */
    if (status >= 0) {
        status = tt_tensor_list_add(&conversion->to, name, y);
    }
    tutti_tensor_release(y);
    TT_TRY(status);
    return tt_tensor_list_add(&conversion->from, name, x);
}

static tutti_status_t convert(void *user, const char *name, tutti_tensor_t *x)
{
    conversion_t *casting = user;
    return !tutti_dtype_is_float(x->dtype) || x->dtype == casting->dtype ||
                   (casting->is_cast != NULL && !casting->is_cast(casting->user, x))
               ? TUTTI_OK
               : add(casting, name, x, x->storage->device, casting->dtype);
}

static tutti_status_t move(void *user, const char *name, tutti_tensor_t *x)
{
    conversion_t *moving = user;
    return tutti_tensor_device(x) == moving->device
               ? TUTTI_OK
               : add(moving, name, x, moving->device, x->dtype);
}

static tutti_status_t move_with_grad(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_tensor_t *grad = tutti_tensor_grad(x);
    TT_TRY(grad == NULL ? TUTTI_OK : move(user, name, grad));
    return move(user, name, x);
}

/* A tensor's versions only grow: the new memory may come to lie where the old one was. */
static void take_over(tutti_tensor_t *x, tutti_tensor_t *converted)
{
    converted->storage->version = x->storage->version + 1;
    if (converted->storage->initializer != NULL) {
        converted->storage->initializer->version = converted->storage->version;
    }
    tt_tensor_swap(x, converted);
}

/* Forgets a gradient: of a cast each, of a move what was forgotten already and lies elsewhere. */
static tutti_status_t finish(conversion_t *conversion, tutti_status_t status, bool is_cast)
{
    for (size_t i = 0; i < conversion->from.count && status >= 0; i++) {
        tutti_tensor_t *x = (tutti_tensor_t *)(uintptr_t)conversion->from.items[i].tensor;
        status = is_cast || tutti_tensor_grad(x) == NULL ? tutti_tensor_set_grad(x, NULL) : status;
        if (status >= 0) {
            take_over(x, (tutti_tensor_t *)(uintptr_t)conversion->to.items[i].tensor);
        }
    }
    tt_tensor_list_release(&conversion->from);
    tt_tensor_list_release(&conversion->to);
    return status;
}

tutti_status_t tutti_module_to(tutti_module_t *m, tutti_device_t *device)
{
    conversion_t moving = {.device = tt_memory_on(device)};
    tutti_status_t status = tutti_module_each_parameter(m, move_with_grad, &moving);
    if (status >= 0) {
        status = tutti_module_each_buffer(m, move, &moving);
    }
    return finish(&moving, status, false);
}

tutti_status_t tutti_module_cast(tutti_module_t *m, tutti_dtype_t dtype)
{
    conversion_t casting = {.dtype = dtype};
    if (!tutti_dtype_is_float(dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "module_cast: %s is no floating dtype",
                       tutti_dtype_name(dtype));
    }
    tutti_status_t status = tutti_module_each_parameter(m, convert, &casting);
    if (status >= 0) {
        status = tutti_module_each_buffer(m, convert, &casting);
    }
    return finish(&casting, status, true);
}

tutti_status_t tt_module_cast_buffers(tutti_module_t *m, tutti_dtype_t dtype,
                                      bool (*is_cast)(const void *user, const tutti_tensor_t *x),
                                      const void *user)
{
    conversion_t casting = {.dtype = dtype, .is_cast = is_cast, .user = user};
    return finish(&casting, tutti_module_each_buffer(m, convert, &casting), true);
}
