/* Casting a module's tensors in place: all are converted first, then each takes over its converted
 * memory, so that a failure changes nothing and the holder of a tensor still holds the parameter.
 * Source: torch.nn.Module.to(dtype). */
#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"

typedef struct {
    tutti_dtype_t dtype;
    tt_tensor_list_t from, to;
} casting_t;

static tutti_status_t convert(void *user, const char *name, tutti_tensor_t *x)
{
    casting_t *casting = user;
    if (!tutti_dtype_is_float(x->dtype) || x->dtype == casting->dtype) {
        return TUTTI_OK;
    }
    tutti_tensor_t *y;
    TT_TRY(tt_tensor_new(x->storage->device, casting->dtype, x->shape, false, &y));
    tutti_status_t status = tutti_tensor_copy(y, x);
    if (status >= 0) {
        status = tt_tensor_list_add(&casting->to, name, y);
    }
    tutti_tensor_release(y);
    TT_TRY(status);
    return tt_tensor_list_add(&casting->from, name, x);
}

/* A tensor's versions only grow: the new memory may come to lie where the old one was. */
static void take_over(tutti_tensor_t *x, tutti_tensor_t *converted)
{
    converted->storage->version = x->storage->version + 1;
    tt_tensor_swap(x, converted);
}

static tutti_status_t cast(tutti_module_t *m, tutti_dtype_t dtype, bool has_parameters)
{
    casting_t casting = {.dtype = dtype};
    tutti_status_t status =
        has_parameters ? tutti_module_each_parameter(m, convert, &casting) : TUTTI_OK;
    if (status >= 0) {
        status = tutti_module_each_buffer(m, convert, &casting);
    }
    for (size_t i = 0; i < casting.from.count && status >= 0; i++) {
        tutti_tensor_t *x = (tutti_tensor_t *)(uintptr_t)casting.from.items[i].tensor;
        status = tutti_tensor_set_grad(x, NULL);
        if (status >= 0) {
            take_over(x, (tutti_tensor_t *)(uintptr_t)casting.to.items[i].tensor);
        }
    }
    tt_tensor_list_release(&casting.from);
    tt_tensor_list_release(&casting.to);
    return status;
}

tutti_status_t tutti_module_cast(tutti_module_t *m, tutti_dtype_t dtype)
{
    return tutti_dtype_is_float(dtype)
               ? cast(m, dtype, true)
               : TT_FAIL(TUTTI_ERR_DTYPE, "module_cast: %s is no floating dtype",
                         tutti_dtype_name(dtype));
}

tutti_status_t tt_module_cast_buffers(tutti_module_t *m, tutti_dtype_t dtype)
{
    return cast(m, dtype, false);
}
