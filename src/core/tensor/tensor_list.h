/* A growing list of named tensors, for what is saved together. */
#ifndef TT_TENSOR_LIST_H
#define TT_TENSOR_LIST_H

#include <tutti/safetensors.h>

typedef struct {
    tutti_named_tensor_t *items; /* [count], names copied, tensors retained */
    size_t count, capacity;
} tt_tensor_list_t;

/* The list is `user`, so that this is a visit of tutti_module_each_tensor() and the like. */
tutti_status_t tt_tensor_list_add(void *list, const char *name, tutti_tensor_t *tensor);

void tt_tensor_list_release(tt_tensor_list_t *list);

/* The tensor of an entry, for those who may change it. */
static inline tutti_tensor_t *tt_listed(const tt_tensor_list_t *list, size_t index)
{
    return (tutti_tensor_t *)(uintptr_t)list->items[index].tensor;
}

#endif
