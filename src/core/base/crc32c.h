/* CRC-32C (Castagnoli, RFC 3720): tells bytes that were changed on the way. */
#ifndef TT_CRC32C_H
#define TT_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` stands for (0: of nothing) and these bytes behind it. */
uint32_t tt_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same with the processor's instruction for 8 bytes, but without wide products; for tests. */
uint32_t tt_crc32c_narrow(uint32_t crc, const void *data, size_t bytes);

/* The same without the processor's own instruction; for tests, and where there is none. */
uint32_t tt_crc32c_portable(uint32_t crc, const void *data, size_t bytes);

#endif
