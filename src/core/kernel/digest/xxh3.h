/* XXH3-128 (xxhash.com), in its canonical form: the same bytes from every variant. */
#ifndef TT_XXH3_H
#define TT_XXH3_H

#include <stddef.h>

enum { TT_XXH3_BYTES = 16 };

/* What xxh3_simd.c exports per variant. */
struct tt_xxh3_ops {
    void (*whole)(const void *data, size_t bytes, unsigned char digest[TT_XXH3_BYTES]);

    /* Of each part of `part_bytes`, the last of which may be shorter, one behind the other; none of
     * no bytes. */
    void (*parts)(const void *data, size_t bytes, size_t part_bytes, unsigned char *digests);
};

#endif
