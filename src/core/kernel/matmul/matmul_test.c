/* Matrix products against sums in double. */
#include "core/base/draw_testing.h"
#include "core/kernel/matmul/matmul_testing.h"

static const int64_t sizes[] = {0, 1, 2, 13, 14, 15, 31, 33, 70};

/* A random walk through everything that can be asked for. */
static void matmul_equals_sums_in_double(void **state)
{
    (void)state;
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    const tt_rng_t rng = tt_rng_stream(42, 0, 0, 0, 0);
    for (uint64_t i = 0; i < 300; i++) {
        const uint64_t at = i * 16;
        const size_t pair = tt_rng_below(rng, at, 6);
        const tt_product_case_t t = {
            .batch = (int64_t)tt_rng_below(rng, at + 1, 5),
            .m = sizes[tt_rng_below(rng, at + 2, 9)],
            .n = sizes[tt_rng_below(rng, at + 3, 9)],
            .k = sizes[tt_rng_below(rng, at + 4, 9)],
            .ta = tt_rng_below(rng, at + 5, 2),
            .tb = tt_rng_below(rng, at + 6, 2),
            .shared_b = tt_rng_below(rng, at + 7, 2),
            .padded = tt_rng_below(rng, at + 8, 2),
            .accumulate = tt_rng_below(rng, at + 9, 2),
            .bias = tt_rng_below(rng, at + 10, 2),
            .epilogue = (tt_epilogue_t)tt_rng_below(rng, at + 11, 3),
            .dtype = tt_product_dtypes[pair][0],
            .out = tt_product_dtypes[pair][1],
        };
        tt_set_isa(tt_isas[tt_rng_below(rng, at + 12, TT_ISAS)]);
        if (tt_test_takes(i)) {
            tt_product_check(&t, tt_rng_below(rng, at + 13, 2) ? threads : NULL);
        }
    }
    tt_set_isa(NULL);
    tt_threads_release(threads);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Several blocks along N and K, edges in every direction. */
static void matmul_crosses_blocks(void **state)
{
    (void)state;
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(2, &threads), TUTTI_OK);
    for (size_t i = 0; i < 8; i++) {
        const size_t pair = i < 6 ? i : i - 4; /* bf16 again, in pairs */
        tt_set_isa(tt_isas[i / 6]);
        for (int bits = 0; bits < 8; bits++) {
            if (!tt_test_takes(i * 8 + (size_t)bits)) {
                continue;
            }
            const tt_product_case_t t = {.batch = 1,
                                         .m = 59,
                                         .n = 401,
                                         .k = 1031 + 12 * bits,
                                         .ta = bits & 1,
                                         .tb = bits & 2,
                                         .accumulate = bits & 4,
                                         .bias = true,
                                         .padded = bits & 4,
                                         .dtype = tt_product_dtypes[pair][0],
                                         .out = tt_product_dtypes[pair][1]};
            tt_product_check(&t, threads);
        }
    }
    tt_set_isa(NULL);
    tt_threads_release(threads);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Of a thread and of three, over several blocks of K, in each way to pack bf16; nothing is written
 * behind what is packed. */
static void matmul_of_a_packed_b_has_the_same_bits(void **state)
{
    (void)state;
    enum { BEHIND = 4096 };
    static unsigned char untouched[BEHIND];
    memset(untouched, 0x5a, BEHIND);
    for (int i = 0; i < 12; i++) {
        if (!tt_test_takes((uint64_t)i)) {
            continue;
        }
        const tt_product_case_t t = {.batch = 1,
                                     .m = 33,
                                     .n = 600,
                                     .k = 2100,
                                     .tb = (i & 1) != 0,
                                     .padded = true,
                                     .accumulate = (i & 2) != 0,
                                     .bias = true,
                                     .dtype = i < 4 ? TUTTI_F32 : TUTTI_BF16,
                                     .out = i < 4 ? TUTTI_F32 : TUTTI_BF16};
        tt_product_t plain, x;
        tt_set_isa(i < 8 ? NULL : "avx512");
        tt_product_open(&t, &plain);
        assert_int_equal(tt_matmul(NULL, &plain.call), TUTTI_OK);
        const size_t bytes = tt_matmul_packed_bytes(t.dtype, t.n, t.k);
        for (int count = 1; bytes > 0 && count <= 3; count += 2) {
            tt_threads_t *threads;
            assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
            char *packed = tt_alloc(bytes + BEHIND, "test");
            memset(packed, 0x5a, bytes + BEHIND);
            tt_product_open(&t, &x);
            const tutti_status_t status =
                tt_matmul_pack(&(tt_exec_t){.threads = threads}, &x.call, packed);
            assert_int_equal(status, TUTTI_OK);
            assert_memory_equal(packed + bytes, untouched, BEHIND);
            memset(x.b, 0xff, 2); /* it is not looked at again */
            x.call.packed = packed;
            assert_int_equal(tt_matmul(&(tt_exec_t){.threads = threads}, &x.call), TUTTI_OK);
            assert_memory_equal(x.c, plain.c, x.c_bytes);
            tt_free(packed);
            tt_product_close(&x);
            tt_threads_release(threads);
        }
        tt_product_close(&plain);
    }
    tt_set_isa(NULL);
    assert_int_equal(tt_matmul_packed_bytes(TUTTI_F64, 8, 8), 0);
}

/* Vectors and tiles are wider than what is left at the end of a row: the program ends if one of
 * them is read or written as a whole there. */
static void matmul_touches_nothing_behind_its_operands(void **state)
{
    (void)state;
    static const int64_t ks[] = {1, 7, 18, 33};
    for (int i = 0; i < 6 * TT_ISAS * 32; i++) {
        if (!tt_test_takes((uint64_t)i)) {
            continue;
        }
        const tutti_dtype_t *types = tt_product_dtypes[i / 32 / TT_ISAS];
        const tt_product_case_t t = {.batch = 1,
                                     .m = i & 16 ? 15 : 3,
                                     .n = i & 16 ? 5 : 37,
                                     .k = ks[i / 4 % 4],
                                     .ta = i & 1,
                                     .tb = i & 2,
                                     .dtype = types[0],
                                     .out = types[1]};
        const size_t width = tutti_dtype_bytes(t.dtype);
        tt_set_isa(tt_isas[i / 32 % TT_ISAS]);
        tt_product_t x;
        tt_product_open(&t, &x);
        const tt_guarded_t a = tt_guard(x.a, (size_t)(t.m * t.k) * width);
        const tt_guarded_t b = tt_guard(x.b, (size_t)(t.n * t.k) * width),
                           c = tt_guard(x.c, x.c_bytes);
        assert_int_equal(tt_matmul(NULL, &x.call), TUTTI_OK);
        x.call.a.data = a.data;
        x.call.b.data = b.data;
        x.call.c = c.data;
        assert_int_equal(tt_matmul(NULL, &x.call), TUTTI_OK);
        assert_memory_equal(c.data, x.c, x.c_bytes);
        tt_unguard(a);
        tt_unguard(b);
        tt_unguard(c);
        tt_product_close(&x);
    }
    tt_set_isa(NULL);
}

static void matmul_refuses_what_it_cannot_multiply(void **state)
{
    (void)state;
    float c = 5;
    tt_matmul_t m = {.batch = 1, .m = 1, .n = 1, .k = 0, .dtype = TUTTI_I32, .c = &c};
    assert_int_equal(tt_matmul(NULL, &m), TUTTI_ERR_DTYPE);
    assert_non_null(strstr(tutti_last_error(), "i32"));
    m.dtype = TUTTI_F64;
    assert_int_equal(tt_matmul(NULL, &m), TUTTI_ERR_DTYPE);
    m.dtype = TUTTI_F32;
    assert_int_equal(tt_matmul(NULL, &m), TUTTI_OK);
    assert_true(c == 0);
}

static void matmul_reports_a_failed_allocation(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const tt_product_case_t t = {.batch = 2,
                                     .m = 20,
                                     .n = 20,
                                     .k = 20,
                                     .dtype = i == 2 ? TUTTI_F16 : TUTTI_F32,
                                     .out = i == 2 ? TUTTI_F16 : TUTTI_F32};
        tt_product_t x;
        tt_product_open(&t, &x);
        tt_threads_t *threads = NULL;
        assert_int_equal(i == 1 ? tt_threads_create(2, &threads) : TUTTI_OK, TUTTI_OK);
        for (size_t nth = 1;; nth++) {
            tt_alloc_fail_at(nth);
            const tutti_status_t status = tt_matmul(&(tt_exec_t){.threads = threads}, &x.call);
            if (!tt_alloc_has_failed()) {
                assert_true(nth > 1);
                break;
            }
            assert_int_equal(status, TUTTI_ERR_NOMEM);
        }
        tt_alloc_fail_at(0);
        tt_threads_release(threads);
        tt_product_close(&x);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_equals_sums_in_double),
        cmocka_unit_test(matmul_crosses_blocks),
        cmocka_unit_test(matmul_of_a_packed_b_has_the_same_bits),
        cmocka_unit_test(matmul_touches_nothing_behind_its_operands),
        cmocka_unit_test(matmul_refuses_what_it_cannot_multiply),
        cmocka_unit_test(matmul_reports_a_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
