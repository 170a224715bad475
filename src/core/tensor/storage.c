/* Storages: memory that tensors share. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

static void free_own(tt_storage_t *storage)
{
    tt_free(storage->data);
}

tutti_status_t tt_storage_borrow(void *data, size_t bytes, void (*release)(tt_storage_t *),
                                 void *owner, tt_storage_t **out)
{
    tt_storage_t *storage = tt_alloc(sizeof *storage, "storage");
    TT_TRY_ALLOC(storage);
    tt_ref_init(&storage->ref);
    storage->data = data;
    storage->bytes = bytes;
    storage->release = release;
    storage->owner = owner;
    *out = storage;
    return TUTTI_OK;
}

static void return_to_device(tt_storage_t *storage)
{
    tt_device_free(storage->owner, storage->data, storage->bytes);
}

static tutti_status_t new_on_device(tt_device_t *device, size_t bytes, tt_storage_t **out)
{
    void *data = tt_device_alloc(device, bytes, "tensor data");
    TT_TRY_ALLOC(data);
    const tutti_status_t status = tt_storage_borrow(data, bytes, return_to_device, device, out);
    if (status < 0) {
        tt_device_free(device, data, bytes);
    }
    return status;
}

static tutti_status_t new_plain(size_t bytes, tt_storage_t **out)
{
    void *data = tt_alloc_raw(bytes, "tensor data");
    TT_TRY_ALLOC(data);
    const tutti_status_t status = tt_storage_borrow(data, bytes, free_own, NULL, out);
    if (status < 0) {
        tt_free(data);
    }
    return status;
}

tutti_status_t tt_storage_new(tt_device_t *device, size_t bytes, bool zeroed, tt_storage_t **out)
{
    TT_TRY(device == NULL ? new_plain(bytes, out) : new_on_device(device, bytes, out));
    if (zeroed) {
        memset((*out)->data, 0, bytes);
    }
    return TUTTI_OK;
}

void tt_storage_retain(tt_storage_t *storage)
{
    tt_ref_retain(&storage->ref);
}

void tt_storage_release(tt_storage_t *storage)
{
    if (storage != NULL && tt_ref_release(&storage->ref)) {
        if (storage->release != NULL) {
            storage->release(storage);
        }
        tt_free(storage);
    }
}
