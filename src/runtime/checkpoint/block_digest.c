/* Digests, by the kernels. */
#include "runtime/checkpoint/block_digest.h"

#include <stdio.h>
#include <string.h>

#include "core/kernel/digest/xxh3.h"
#include "core/kernel/kernels.h"

_Static_assert(sizeof(tt_digest_t) == TT_XXH3_BYTES, "digests lie side by side");

tt_digest_t tt_digest_of(const void *data, size_t bytes)
{
    tt_digest_t digest;
    tt_kernels()->xxh3->whole(data, bytes, digest.bytes);
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
    tt_kernels()->xxh3->parts(data, bytes, TT_BLOCK_BYTES, blocks->bytes);
}
