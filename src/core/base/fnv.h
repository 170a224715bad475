/* FNV-1a: a hash of bytes that is the same on every rank. Not for what an enemy may choose.
 * Source: Fowler, Noll, Vo. */
#ifndef TT_FNV_H
#define TT_FNV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TT_FNV_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t tt_fnv(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* A text in at least 18 bytes: of one that is longer a hash of all of it stands for its end. */
static inline void tt_fnv_shorten(const char *text, char *out, size_t bytes)
{
    enum { HASH_BYTES = 18 };
    const int length = snprintf(out, bytes, "%s", text);
    if (length >= (int)bytes) {
        snprintf(out + bytes - HASH_BYTES, HASH_BYTES, "~%016llx",
                 (unsigned long long)tt_fnv(TT_FNV_BEGIN, text, (size_t)length));
    }
}

#endif
