/* Storages: memory that tensors share. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

static void free_own(tt_storage_t *storage)
{
    tt_free(storage->data);
}

tutti_status_t tt_storage_borrow(void *data, size_t bytes, tt_storage_release_t release,
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

static void set_device(tt_storage_t *storage, tt_device_t *device)
{
    tutti_device_release(storage->device);
    storage->device =
        device != NULL && tt_device_is_accelerator(device) ? tutti_device_retain(device) : NULL;
}

/* Memory for one that has none. */
static tutti_status_t take_memory(tt_storage_t *storage, tt_device_t *device)
{
    void *data = device == NULL ? tt_alloc_raw(storage->bytes, "tensor data")
                                : tt_device_alloc(device, storage->bytes, "tensor data");
    TT_TRY_ALLOC(data);
    storage->data = data;
    storage->release = device == NULL ? free_own : return_to_device;
    storage->owner = device;
    set_device(storage, device);
    return TUTTI_OK;
}

tutti_status_t tt_storage_keep(tt_storage_t *storage, const tt_initializer_t *initializer)
{
    if (storage->initializer == NULL) {
        storage->initializer = tt_alloc(sizeof *initializer, "initializer");
        TT_TRY_ALLOC(storage->initializer);
    }
    *storage->initializer = *initializer;
    storage->initializer->version = storage->version;
    return TUTTI_OK;
}

static tutti_status_t fill_zeros(tt_storage_t *storage)
{
    if (storage->device == NULL) {
        memset(storage->data, 0, storage->bytes);
        return TUTTI_OK;
    }
    if (tt_device_is_store(storage->device)) {
        return TUTTI_OK; /* they are */
    }
    const tt_strided_t all = tt_strided_row(storage->data, TUTTI_U8, (int64_t)storage->bytes);
    return tt_fill(tt_device_exec(storage->device), &all, 0);
}

static void give_memory_back(tt_storage_t *storage)
{
    if (storage->release != NULL) {
        storage->release(storage);
    }
    storage->data = storage->owner = NULL;
    storage->release = NULL;
    storage->is_pinned = false;
}

tutti_status_t tt_storage_new(tt_device_t *device, size_t bytes, bool zeroed, tt_storage_t **out)
{
    tt_storage_t *storage;
    TT_TRY(tt_storage_borrow(NULL, bytes, NULL, NULL, &storage));
    tutti_status_t status = take_memory(storage, device);
    if (status >= 0 && zeroed) {
        status = fill_zeros(storage);
    }
    if (status >= 0 && zeroed && !tt_device_has_values(storage->device)) {
        status = tt_storage_keep(storage, &(tt_initializer_t){0});
    }
    if (status < 0) {
        tt_storage_release(storage);
        return status;
    }
    *out = storage;
    return TUTTI_OK;
}

void tt_storage_retain(tt_storage_t *storage)
{
    tt_ref_retain(&storage->ref);
}

void tt_storage_release(tt_storage_t *storage)
{
    if (storage != NULL && tt_ref_release(&storage->ref)) {
        give_memory_back(storage);
        tutti_device_release(storage->device);
        tt_free(storage->initializer);
        tt_free(storage);
    }
}

static void return_to_lender(tt_storage_t *storage)
{
    tt_storage_release(storage->owner);
}

tt_storage_t *tt_storage_memory(tt_storage_t *storage)
{
    return storage->release == return_to_lender ? storage->owner : storage;
}

/* Memory that nobody gives back has no owner to be kept. */
tutti_status_t tt_storage_pin(tt_storage_t *storage)
{
    if (!storage->is_pinned && storage->release != NULL) {
        tt_storage_t *memory;
        TT_TRY(tt_storage_borrow(storage->data, storage->bytes, storage->release, storage->owner,
                                 &memory));
        storage->release = return_to_lender;
        storage->owner = memory;
    }
    storage->is_pinned = true;
    return TUTTI_OK;
}

void tt_storage_swap(tt_storage_t *a, tt_storage_t *b)
{
    const tt_storage_t old = *a;
    TT_ASSERT(a->bytes == b->bytes);
    a->data = b->data;
    a->release = b->release;
    a->owner = b->owner;
    a->device = b->device;
    a->initializer = b->initializer;
    a->is_pinned = b->is_pinned;
    b->data = old.data;
    b->release = old.release;
    b->owner = old.owner;
    b->device = old.device;
    b->initializer = old.initializer;
    b->is_pinned = old.is_pinned;
}

/* ---- without memory for a while -------------------------------------------------------------- */

static bool is_filling(const tt_storage_t *storage)
{
    return storage->away != NULL && storage->data != NULL;
}

tutti_status_t tt_storage_evict(tt_storage_t *storage, const char *reason)
{
    if (storage->away != NULL && storage->data == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "evicted twice: %s", storage->away);
    }
    give_memory_back(storage);
    storage->away = reason;
    return TUTTI_OK;
}

void tt_storage_leave_device(tt_storage_t *storage)
{
    TT_ASSERT(storage->away != NULL && storage->data == NULL);
    set_device(storage, NULL);
}

static tutti_status_t check_away(const tt_storage_t *storage)
{
    if (storage->away != NULL && storage->data == NULL) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_STATE, "refilled, but %s: %s",
                   is_filling(storage) ? "it is being filled" : "it is there",
                   is_filling(storage) ? storage->away : "only what was evicted can be refilled");
}

tutti_status_t tt_storage_refill(tt_storage_t *storage, tt_device_t *device)
{
    TT_TRY(check_away(storage));
    return take_memory(storage, device);
}

tutti_status_t tt_storage_lend(tt_storage_t *storage, void *data, tt_storage_release_t release,
                               void *owner)
{
    TT_TRY(check_away(storage));
    storage->data = data;
    storage->release = release;
    storage->owner = owner;
    set_device(storage, NULL);
    return TUTTI_OK;
}

tutti_status_t tt_storage_publish(tt_storage_t *storage)
{
    if (!is_filling(storage)) {
        return TT_FAIL(TUTTI_ERR_STATE, "published, but nobody fills it: %s",
                       storage->away == NULL ? "it is there" : storage->away);
    }
    storage->away = NULL;
    return TUTTI_OK;
}
