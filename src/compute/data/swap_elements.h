/* Elements of the other byte order, in place. */
#ifndef TT_SWAP_ELEMENTS_H
#define TT_SWAP_ELEMENTS_H

#include <stddef.h>

static inline void tt_swap_elements(unsigned char *data, size_t count, size_t size)
{
    for (size_t i = 0; i < count && size > 1; i++, data += size) {
        for (size_t k = 0; k < size / 2; k++) {
            const unsigned char byte = data[k];
            data[k] = data[size - 1 - k];
            data[size - 1 - k] = byte;
        }
    }
}

#endif
