/* tutti_dtype_bytes for code in which a call of a function would be felt. */
#ifndef TT_DTYPE_BYTES_H
#define TT_DTYPE_BYTES_H

#include <tutti/dtype.h>

static inline size_t tt_dtype_bytes(tutti_dtype_t dtype)
{
    static const unsigned char bytes_of[TUTTI_DTYPE_COUNT] = {
#define X(identifier, name, bytes, safetensors) bytes,
        TUTTI_DTYPE_LIST(X)
#undef X
    };
    return bytes_of[dtype];
}

#endif
