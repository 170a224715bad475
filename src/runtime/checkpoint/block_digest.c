/* Digests, by xxhash. */
#include "runtime/checkpoint/block_digest.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

tt_digest_t tt_digest_of(const void *data, size_t bytes)
{
    XXH128_canonical_t canonical;
    tt_digest_t digest;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(digest.bytes, canonical.digest, sizeof digest.bytes);
    return digest;
}

bool tt_digest_equal(tt_digest_t a, tt_digest_t b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

char *tt_digest_format(tt_digest_t digest, char text[TT_DIGEST_TEXT_BYTES])
{
    for (size_t i = 0; i < sizeof digest.bytes; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest.bytes[i]);
    }
    return text;
}

bool tt_digest_parse(const char *text, tt_digest_t *out)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * sizeof out->bytes || strspn(text, digits) != strlen(text)) {
        return false;
    }
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        const ptrdiff_t high = strchr(digits, text[2 * i]) - digits;
        out->bytes[i] = (unsigned char)(16 * high + (strchr(digits, text[2 * i + 1]) - digits));
    }
    return true;
}

void tt_digest_blocks(const void *data, size_t bytes, tt_digest_t *blocks)
{
    const char *at = data;
    for (size_t done = 0; done < bytes; done += TT_BLOCK_BYTES) {
        const size_t left = bytes - done;
        *blocks++ = tt_digest_of(at + done, left < TT_BLOCK_BYTES ? left : TT_BLOCK_BYTES);
    }
}
