/* Shapes. */
#include <stdio.h>
#include <string.h>

#include "core/tensor/tensor_impl.h"

int64_t tutti_shape_numel(tutti_shape_t shape)
{
    int64_t numel = 1;
    for (int i = 0; i < shape.rank; i++) {
        numel *= shape.dims[i];
    }
    return numel;
}

bool tutti_shape_equal(tutti_shape_t a, tutti_shape_t b)
{
    if (a.rank != b.rank) {
        return false;
    }
    for (int i = 0; i < a.rank; i++) {
        if (a.dims[i] != b.dims[i]) {
            return false;
        }
    }
    return true;
}

char *tutti_shape_format(tutti_shape_t shape, char *text, size_t bytes)
{
    size_t used = 0;
    const int rank = shape.rank < 0 ? 0 : shape.rank > TUTTI_RANK_MAX ? TUTTI_RANK_MAX : shape.rank;
    for (int i = 0; i < rank && used < bytes; i++) {
        const int n = snprintf(text + used, bytes - used, "%s%lld", i == 0 ? "[" : ", ",
                               (long long)shape.dims[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < bytes) {
        snprintf(text + used, bytes - used, "%s", rank == 0 ? "[]" : "]");
    }
    return text;
}

void tt_shape_strides(tutti_shape_t shape, int64_t *strides)
{
    int64_t step = 1;
    for (int i = shape.rank; i-- > 0;) {
        strides[i] = step;
        step *= shape.dims[i] > 0 ? shape.dims[i] : 1;
    }
}

tutti_status_t tt_shape_check(tutti_dtype_t dtype, tutti_shape_t shape)
{
    char text[160];
    if ((unsigned)dtype >= TUTTI_DTYPE_COUNT) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%d is no dtype", (int)dtype);
    }
    if (shape.rank < 0 || shape.rank > TUTTI_RANK_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "a tensor has 0 to %d dimensions, not %d", TUTTI_RANK_MAX,
                       shape.rank);
    }
    int64_t bytes = (int64_t)tutti_dtype_bytes(dtype);
    bool overflows = false;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dims[i] < 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "shape %s: dimension %d is negative",
                           tutti_shape_format(shape, text, sizeof text), i);
        }
        /* An empty tensor's other sizes count too: strides are products of them. */
        const int64_t size = shape.dims[i] > 0 ? shape.dims[i] : 1;
        overflows = overflows || __builtin_mul_overflow(bytes, size, &bytes);
    }
    if (overflows) {
        return TT_FAIL(TUTTI_ERR_ARG, "shape %s: too many elements",
                       tutti_shape_format(shape, text, sizeof text));
    }
    return TUTTI_OK;
}

int tt_dim_index(int dim, int rank)
{
    const int index = dim < 0 ? dim + rank : dim;
    return index < 0 || index >= rank ? -1 : index;
}
