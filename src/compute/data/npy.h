/* Headers of .npy files. */
#ifndef TT_NPY_H
#define TT_NPY_H

#include <tutti/tensor.h>

#include "core/base/file.h"

typedef struct {
    tutti_dtype_t dtype;
    tutti_shape_t shape;
    bool is_fortran; /* the first index runs fastest */
    bool is_swapped; /* the other byte order */
    uint64_t offset; /* of the elements */
} tt_npy_t;

/* Read the header, and check that the elements are all there and nothing is behind them. */
tutti_status_t tt_npy_open(const tt_file_t *file, tt_npy_t *out);

/* Elements as they stand in the file become those of a tensor: bytes in order, bools 0 or 1. */
void tt_npy_finish(const tt_npy_t *npy, void *data, int64_t count);

/* All of it. */
tutti_status_t tt_npy_load(const tt_file_t *file, const tt_npy_t *npy, tutti_tensor_t **out);

#endif
