/* A rank's slice in the dtype that is computed with: what it has rounded it keeps until the slice
 * is stepped. */
#ifndef TT_UNIT_SLICE_COPY_H
#define TT_UNIT_SLICE_COPY_H

#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_tensor_t *tensor; /* NULL: the slice is computed with as it is */
    uint32_t version;       /* of the slice, as it was rounded */
    bool is_rounded;        /* ever */
} tt_slice_copy_t;

static inline void tt_slice_copy_update(tt_slice_copy_t *copy, const tutti_tensor_t *own,
                                        tt_threads_t *threads)
{
    if (copy->tensor != NULL && (!copy->is_rounded || copy->version != own->storage->version)) {
        tt_tensor_convert_now(threads, copy->tensor, own);
        copy->version = own->storage->version;
        copy->is_rounded = true;
    }
}

#endif
