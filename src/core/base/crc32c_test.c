/* CRC-32C against the vectors of RFC 3720 (B.4) and against itself without the instruction. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/crc32c.h"
#include "core/base/rng.h"
#include "core/base/testing.h"

static void known_vectors_give_known_sums(void **state)
{
    (void)state;
    unsigned char data[32];
    memset(data, 0, sizeof data);
    assert_int_equal(tt_crc32c(0, data, 32), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    assert_int_equal(tt_crc32c(0, data, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) {
        data[i] = (unsigned char)i;
    }
    assert_int_equal(tt_crc32c(0, data, 32), 0x46dd794e);
    assert_int_equal(tt_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(tt_crc32c_portable(0, "123456789", 9), 0xe3069283);
    assert_int_equal(tt_crc32c(0, NULL, 0), 0);
}

static void every_length_and_cut_agrees_with_the_portable_sum(void **state)
{
    (void)state;
    enum { BYTES = 60000 };
    unsigned char *data = tt_alloc(BYTES, "test");
    const tt_rng_t rng = tt_rng_stream(11, 0, 0, 0, 0);
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)tt_rng_u32(rng, i);
    }
    for (size_t bytes = 0; bytes < BYTES; bytes += 1 + bytes / 5) {
        const size_t shift = bytes % 7 < BYTES - bytes ? bytes % 7 : 0;
        const uint32_t want = tt_crc32c_portable(5, data + shift, bytes);
        assert_int_equal(tt_crc32c(5, data + shift, bytes), want);
        assert_int_equal(tt_crc32c_narrow(5, data + shift, bytes), want);
        const uint32_t head = tt_crc32c(5, data + shift, bytes / 3);
        assert_int_equal(tt_crc32c(head, data + shift + bytes / 3, bytes - bytes / 3), want);
    }
    tt_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors_give_known_sums),
        cmocka_unit_test(every_length_and_cut_agrees_with_the_portable_sum),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
