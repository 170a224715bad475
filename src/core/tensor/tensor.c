/* Tensors: creation, sharing, looking. */
#include <tutti/devices.h>
#include <tutti/tensor.h>

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

tutti_status_t tt_tensor_over(tt_storage_t *storage, tutti_dtype_t dtype, tutti_shape_t shape,
                              const int64_t *strides, int64_t offset, tutti_tensor_t **out)
{
    tutti_tensor_t *x = tt_alloc(sizeof *x, "tensor");
    TT_TRY_ALLOC(x);
    tt_ref_init(&x->ref);
    x->dtype = dtype;
    x->shape = shape;
    x->numel = tutti_shape_numel(shape);
    x->offset = offset;
    if (strides == NULL) {
        tt_shape_strides(shape, x->strides);
    } else {
        memcpy(x->strides, strides, (size_t)shape.rank * sizeof *strides);
    }
    tt_storage_retain(storage);
    x->storage = storage;
    x->changes = storage->changes;
    *out = x;
    return TUTTI_OK;
}

static tutti_status_t over_own(tt_storage_t *storage, tutti_dtype_t dtype, tutti_shape_t shape,
                               tutti_tensor_t **out)
{
    const tutti_status_t status = tt_tensor_over(storage, dtype, shape, NULL, 0, out);
    tt_storage_release(storage);
    return status;
}

tutti_status_t tt_tensor_new(tt_device_t *device, tutti_dtype_t dtype, tutti_shape_t shape,
                             bool zeroed, tutti_tensor_t **out)
{
    TT_TRY(tt_shape_check(dtype, shape));
    tt_storage_t *storage;
    const size_t bytes = (size_t)tutti_shape_numel(shape) * tutti_dtype_bytes(dtype);
    TT_TRY(tt_storage_new(device, bytes, zeroed, &storage));
    return over_own(storage, dtype, shape, out);
}

tutti_status_t tutti_tensor_create(tutti_dtype_t dtype, tutti_shape_t shape, tutti_tensor_t **out)
{
    return tt_tensor_new(NULL, dtype, shape, true, out);
}

tutti_status_t tutti_tensor_wrap(tutti_dtype_t dtype, tutti_shape_t shape, void *data,
                                 tutti_tensor_t **out)
{
    TT_TRY(tt_shape_check(dtype, shape));
    tt_storage_t *storage;
    const size_t each = tutti_dtype_bytes(dtype), bytes = (size_t)tutti_shape_numel(shape) * each;
    if ((uintptr_t)data % each != 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "tensor_wrap: memory at %p: elements of %s must begin at a multiple of %zu "
                       "bytes",
                       data, tutti_dtype_name(dtype), each);
    }
    TT_TRY(tt_storage_borrow(data, bytes, NULL, NULL, &storage));
    return over_own(storage, dtype, shape, out);
}

tutti_status_t tt_tensor_alias(const tutti_tensor_t *x, tutti_tensor_t **out)
{
    return tt_tensor_over(x->storage, x->dtype, x->shape, x->strides, x->offset, out);
}

tutti_tensor_t *tutti_tensor_retain(tutti_tensor_t *x)
{
    tt_ref_retain(&x->ref);
    return x;
}

void tutti_tensor_release(tutti_tensor_t *x)
{
    if (x == NULL || !tt_ref_release(&x->ref)) {
        return;
    }
    if (x->meta != NULL) {
        x->meta->release(x->meta);
    }
    tt_storage_release(x->storage);
    tt_free(x->part);
    tt_spread_release(x->spread);
    tt_free(x);
}

tutti_status_t tt_tensor_set_part(tutti_tensor_t *x, tutti_shape_t whole, int64_t first)
{
    if (x->part == NULL) {
        x->part = tt_alloc(sizeof *x->part, "tensor");
        TT_TRY_ALLOC(x->part);
    }
    *x->part = (tt_tensor_part_t){.whole = whole, .first = first};
    return TUTTI_OK;
}

void tt_spread_release(tt_spread_t *spread)
{
    if (spread != NULL && tt_ref_release(&spread->ref)) {
        spread->ops->free(spread);
    }
}

void tt_tensor_set_spread(tutti_tensor_t *x, tt_spread_t *spread)
{
    if (spread != NULL) {
        tt_ref_retain(&spread->ref);
    }
    tt_spread_release(x->spread);
    x->spread = spread;
}

void tt_tensors_release(tutti_tensor_t **tensors, size_t count)
{
    for (size_t i = 0; tensors != NULL && i < count; i++) {
        tutti_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

tutti_status_t tutti_tensor_status(const tutti_tensor_t *x)
{
    return x->status;
}

tutti_status_t tt_tensor_status(const tutti_tensor_t *x)
{
    if (x == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "a tensor is NULL");
    }
    return x->status >= 0 ? TUTTI_OK
                          : TT_FAIL(x->status, "the result of a failed operation: %s",
                                    ((const tutti_scope_t *)(const void *)x)->error);
}

tutti_status_t tt_tensor_check_named(const tutti_tensor_t *x, const char *name)
{
    char text[192];
    if (x->status >= 0 && x->storage == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "a result was used before it was there");
    }
    if (x->status < 0 || x->storage->away == NULL) {
        return tt_tensor_status(x);
    }
    return TT_FAIL(TUTTI_ERR_STATE, "%s%s%s is not in memory: %s", name == NULL ? "" : name,
                   name == NULL ? "" : " ", tutti_tensor_describe(x, text, sizeof text),
                   x->storage->away);
}

tutti_status_t tt_tensor_check_decided(const tutti_tensor_t *x, const char *name)
{
    return x->decides == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "%s: the last step may be undone yet: %s() comes first",
                         name, x->decides);
}

tutti_dtype_t tutti_tensor_dtype(const tutti_tensor_t *x)
{
    return x->dtype;
}

int tutti_tensor_rank(const tutti_tensor_t *x)
{
    return x->shape.rank;
}

tutti_shape_t tutti_tensor_shape(const tutti_tensor_t *x)
{
    return x->shape;
}

int64_t tutti_tensor_dim(const tutti_tensor_t *x, int dim)
{
    const int index = tt_dim_index(dim, x->shape.rank);
    return index < 0 ? 0 : x->shape.dims[index];
}

int64_t tutti_tensor_stride(const tutti_tensor_t *x, int dim)
{
    const int index = tt_dim_index(dim, x->shape.rank);
    return index < 0 ? 0 : x->strides[index];
}

int64_t tutti_tensor_numel(const tutti_tensor_t *x)
{
    return x->numel;
}

size_t tutti_tensor_bytes(const tutti_tensor_t *x)
{
    return (size_t)x->numel * tutti_dtype_bytes(x->dtype);
}

bool tutti_tensor_is_contiguous(const tutti_tensor_t *x)
{
    int64_t step = 1;
    for (int i = x->shape.rank; i-- > 0 && x->numel > 0;) {
        if (x->shape.dims[i] != 1 && x->strides[i] != step) {
            return false;
        }
        step *= x->shape.dims[i];
    }
    return true;
}

void *tutti_tensor_data(const tutti_tensor_t *x)
{
    if (x->storage != NULL && x->storage->device != NULL) {
        (void)TT_FAIL(TUTTI_ERR_STATE,
                      "tensor_data: the tensor lies on %s, which the host does not read: "
                      "tutti_tensor_to(s, x, NULL) copies it",
                      tutti_device_name(x->storage->device));
        return NULL;
    }
    return tutti_tensor_device_data(x);
}

void *tutti_tensor_device_data(const tutti_tensor_t *x)
{
    return x->storage == NULL || x->storage->away != NULL ? NULL : tt_tensor_data(x);
}

tutti_device_t *tutti_tensor_device(const tutti_tensor_t *x)
{
    return x->storage == NULL ? NULL : x->storage->device;
}

bool tt_tensor_is_whole(const tutti_tensor_t *x)
{
    return tutti_tensor_bytes(x) == x->storage->bytes && tutti_tensor_is_contiguous(x);
}

tutti_status_t tt_tensor_keep(tutti_tensor_t *x, const tt_initializer_t *initializer)
{
    tt_tensor_touch(x);
    return tt_tensor_is_whole(x) ? tt_storage_keep(x->storage, initializer) : TUTTI_OK;
}

tutti_status_t tutti_tensor_pin(tutti_tensor_t *x)
{
    TT_TRY(tt_tensor_check(x));
    if (x->storage->device != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "tensor_pin: the tensor lies on %s: memory of the host alone "
                       "is pinned",
                       tutti_device_name(x->storage->device));
    }
    return tt_storage_pin(x->storage);
}

bool tutti_tensor_is_pinned(const tutti_tensor_t *x)
{
    return x->storage != NULL && x->storage->is_pinned;
}

void tt_tensor_swap(tutti_tensor_t *x, tutti_tensor_t *y)
{
    const tutti_tensor_t old = *x;
    x->dtype = y->dtype;
    x->storage = y->storage;
    x->changes = y->changes;
    x->offset = y->offset;
    memcpy(x->strides, y->strides, sizeof x->strides);
    y->dtype = old.dtype;
    y->storage = old.storage;
    y->changes = old.changes;
    y->offset = old.offset;
    memcpy(y->strides, old.strides, sizeof y->strides);
}

void tt_tensor_become(tutti_tensor_t *x, tutti_tensor_t *other)
{
    tt_tensor_swap(x, other);
    const tutti_shape_t shape = x->shape;
    const int64_t numel = x->numel;
    tt_spread_t *spread = x->spread;
    x->shape = other->shape;
    x->numel = other->numel;
    x->spread = other->spread;
    other->shape = shape;
    other->numel = numel;
    other->spread = spread;
}

void tt_tensor_touch(tutti_tensor_t *x)
{
    x->storage->version++;
}

tt_strided_t tt_tensor_strided(const tutti_tensor_t *x)
{
    tt_strided_t view = {.data = tt_tensor_data(x), .dtype = x->dtype, .rank = x->shape.rank};
    memcpy(view.shape, x->shape.dims, sizeof view.shape);
    memcpy(view.strides, x->strides, sizeof view.strides);
    return view;
}

tt_strided_t tt_tensor_strided_as(const tutti_tensor_t *x, tutti_shape_t shape)
{
    tt_strided_t view = {.data = tt_tensor_data(x), .dtype = x->dtype, .rank = shape.rank};
    memcpy(view.shape, shape.dims, sizeof view.shape);
    const int added = shape.rank - x->shape.rank;
    for (int i = added; i < shape.rank; i++) {
        const bool repeats = x->shape.dims[i - added] == 1 && shape.dims[i] != 1;
        view.strides[i] = repeats ? 0 : x->strides[i - added];
    }
    return view;
}

char *tutti_tensor_describe(const tutti_tensor_t *x, char *text, size_t bytes)
{
    char shape[160];
    snprintf(text, bytes, "%s%s", tutti_dtype_name(x->dtype),
             tutti_shape_format(x->shape, shape, sizeof shape));
    return text;
}
