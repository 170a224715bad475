/* Digests: every variant has those of xxhash's own library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <xxhash.h>

#include "core/base/alloc.h"
#include "core/kernel/digest/xxh3.h"
#include "core/kernel/kernels.h"

enum { BYTES_MAX = 3000, PART = 700 };

static unsigned char data[BYTES_MAX + 1];

static void expect_whole(size_t bytes)
{
    unsigned char digest[TT_XXH3_BYTES];
    XXH128_canonical_t want;
    XXH128_canonicalFromHash(&want, XXH3_128bits(data + 1, bytes));
    tt_kernels()->xxh3->whole(data + 1, bytes, digest);
    assert_memory_equal(digest, want.digest, TT_XXH3_BYTES);
}

static void expect_parts(size_t bytes, size_t part)
{
    unsigned char digests[(BYTES_MAX / PART + 1) * TT_XXH3_BYTES];
    unsigned char want[TT_XXH3_BYTES];
    tt_kernels()->xxh3->parts(data + 1, bytes, part, digests);
    for (size_t at = 0, i = 0; at < bytes; at += part, i++) {
        tt_kernels()->xxh3->whole(data + 1 + at, bytes - at < part ? bytes - at : part, want);
        assert_memory_equal(digests + i * TT_XXH3_BYTES, want, TT_XXH3_BYTES);
    }
}

static void variants_have_the_digests_of_the_library(void **state)
{
    (void)state;
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * i * 7 + i);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv("TUTTI_ISA", names[i], 1);
        for (size_t bytes = 0; bytes <= BYTES_MAX && tt_isa_check() >= 0; bytes++) {
            expect_whole(bytes);
            expect_parts(bytes, PART);
        }
    }
    unsetenv("TUTTI_ISA");
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_have_the_digests_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
