/* Tensors in the memory that a group's ranks share. */
#include "comm/group/group_impl.h"

#include <string.h>

#include "comm/group/transient.h"
#include "core/base/alloc.h"

/* Whole pages, so that they can be replaced without touching anything else (heap.h). */
static size_t room_for(size_t bytes)
{
    const size_t page = tt_heap_page_bytes();
    return bytes > page ? bytes : page;
}

static void give_back(tt_storage_t *storage)
{
    tt_device_free(storage->owner, storage->data, room_for(storage->bytes));
}

static tutti_status_t make_tensor(tutti_group_t *group, tutti_dtype_t dtype, tutti_shape_t shape,
                                  bool zeroed, tutti_tensor_t **out)
{
    TT_TRY(tt_shape_check(dtype, shape));
    const size_t bytes = (size_t)tutti_shape_numel(shape) * tutti_dtype_bytes(dtype);
    tt_device_t *heap = group->backend->memory(group->state);
    void *memory = tt_device_alloc(heap, room_for(bytes), "shared tensor");
    TT_TRY_ALLOC(memory);
    tt_storage_t *storage;
    tutti_status_t status = tt_storage_borrow(memory, bytes, give_back, heap, &storage);
    if (status < 0) {
        tt_device_free(heap, memory, room_for(bytes));
        return status;
    }
    if (zeroed) {
        memset(memory, 0, bytes);
    }
    status = tt_tensor_over(storage, dtype, shape, NULL, 0, out);
    tt_storage_release(storage); /* the tensor holds it now */
    return status;
}

tutti_status_t tutti_group_tensor(tutti_group_t *group, tutti_dtype_t dtype, tutti_shape_t shape,
                                  tutti_tensor_t **out)
{
    TT_WANT("group_tensor", group);
    TT_WANT("group_tensor", out);
    return make_tensor(group, dtype, shape, true, out);
}

tutti_status_t tt_group_tensor_away(tutti_dtype_t dtype, tutti_shape_t shape, const char *reason,
                                    tutti_tensor_t **out)
{
    tt_storage_t *storage;
    TT_TRY(tt_shape_check(dtype, shape));
    const size_t bytes = (size_t)tutti_shape_numel(shape) * tutti_dtype_bytes(dtype);
    TT_TRY(tt_storage_borrow(NULL, bytes, NULL, NULL, &storage));
    (void)tt_storage_evict(storage, reason); /* it was not away */
    const tutti_status_t status = tt_tensor_over(storage, dtype, shape, NULL, 0, out);
    tt_storage_release(storage);
    return status;
}

tutti_status_t tt_group_tensor_refill(tutti_group_t *group, const tutti_tensor_t *x)
{
    tt_device_t *heap = group->backend->memory(group->state);
    void *memory = tt_device_alloc(heap, room_for(x->storage->bytes), "shared tensor");
    TT_TRY_ALLOC(memory);
    const tutti_status_t status = tt_storage_lend(x->storage, memory, give_back, heap);
    if (status < 0) {
        tt_device_free(heap, memory, room_for(x->storage->bytes));
        return status;
    }
    return tt_storage_publish(x->storage);
}

void tt_group_keep_memory(tutti_group_t *group, int64_t bytes)
{
    tt_device_keep(group->backend->memory(group->state), bytes);
}

tutti_tensor_t *tutti_group_empty(tutti_group_t *group, tutti_scope_t *s, tutti_dtype_t dtype,
                                  tutti_shape_t shape)
{
    tutti_tensor_t *x = NULL;
    const tutti_status_t status = group == NULL
                                      ? TT_FAIL(TUTTI_ERR_ARG, "group_empty: group is NULL")
                                      : make_tensor(group, dtype, shape, false, &x);
    return s != NULL ? tt_scope_adopt(s, status, x) : NULL;
}
