/* Digests of what a checkpoint holds: XXH3-128 of each block of a slice, and one over these, which
 * stands in the manifest.
 *
 *     slice   | 16 KiB | 16 KiB | … | the rest |
 *     blocks  | 16 B   | 16 B   | … | 16 B     |   --> the slice's digest
 *
 * They find what a disk or a copy has changed; they keep nobody out who wants to change it.
 */
#ifndef TT_BLOCK_DIGEST_H
#define TT_BLOCK_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT_BLOCK_BYTES = 16384, TT_DIGEST_TEXT_BYTES = 33 };

/* In the order of bytes in which it is printed and stored. */
typedef struct {
    unsigned char bytes[16];
} tt_digest_t;

tt_digest_t tt_digest_of(const void *data, size_t bytes);
bool tt_digest_equal(tt_digest_t a, tt_digest_t b);

/* 32 hexadecimal digits; returns text. */
char *tt_digest_format(tt_digest_t digest, char text[TT_DIGEST_TEXT_BYTES]);
bool tt_digest_parse(const char *text, tt_digest_t *out);

static inline uint64_t tt_block_count(uint64_t bytes)
{
    return bytes / TT_BLOCK_BYTES + (bytes % TT_BLOCK_BYTES != 0);
}

/* Of each of its blocks: [tt_block_count(bytes)]. */
void tt_digest_blocks(const void *data, size_t bytes, tt_digest_t *blocks);

#endif
