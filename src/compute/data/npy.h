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

#endif
