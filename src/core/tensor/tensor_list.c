/* A growing list of named tensors. */
#include "core/tensor/tensor_list.h"

#include "core/base/alloc.h"

static tutti_status_t grow(tt_tensor_list_t *list)
{
    const size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
    tutti_named_tensor_t *items = tt_realloc(list->items, capacity * sizeof *items, "tensor list");
    TT_TRY_ALLOC(items);
    list->items = items;
    list->capacity = capacity;
    return TUTTI_OK;
}

tutti_status_t tt_tensor_list_add(void *user, const char *name, tutti_tensor_t *tensor)
{
    tt_tensor_list_t *list = user;
    if (list->count == list->capacity) {
        TT_TRY(grow(list));
    }
    char *copy = tt_strdup(name, "tensor name");
    TT_TRY_ALLOC(copy);
    list->items[list->count++] = (tutti_named_tensor_t){copy, tutti_tensor_retain(tensor)};
    return TUTTI_OK;
}

void tt_tensor_list_release(tt_tensor_list_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        tt_free((void *)(uintptr_t)list->items[i].name);
        tutti_tensor_release((tutti_tensor_t *)(uintptr_t)list->items[i].tensor);
    }
    tt_free(list->items);
    *list = (tt_tensor_list_t){0};
}
