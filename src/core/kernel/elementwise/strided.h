/* What a kernel sees of a tensor: memory with a shape and strides. Kernels know no tensor. */
#ifndef TT_STRIDED_H
#define TT_STRIDED_H

#include <stdint.h>

#include <tutti/dtype.h>

enum { TT_RANK_MAX = 8 };

typedef struct {
    void *data; /* the first element */
    tutti_dtype_t dtype;
    int rank;
    int64_t shape[TT_RANK_MAX];
    int64_t strides[TT_RANK_MAX]; /* in elements; 0 repeats (broadcast) */
} tt_strided_t;

#endif
