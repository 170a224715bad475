/* The bits of matrix products: for any number of threads, any part, any instruction set. */
#include "core/kernel/matmul/matmul_testing.h"

enum { THREADS_MAX = 8 };

static uint64_t bits_of(const tt_product_t *x, tt_threads_t *threads)
{
    memset(x->c, 1, x->c_bytes);
    assert_int_equal(tt_matmul(&(tt_exec_t){.threads = threads}, &x->call), TUTTI_OK);
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < x->c_bytes; i++) {
        hash = (hash ^ ((const unsigned char *)x->c)[i]) * 1099511628211u;
    }
    return hash;
}

static void matmul_gives_the_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    static const int64_t ks[] = {360, 400, 784, 1000, 3000, 65536};
    tt_threads_t *pools[THREADS_MAX];
    for (int i = 0; i < THREADS_MAX; i++) {
        assert_int_equal(tt_threads_create(i + 1, &pools[i]), TUTTI_OK);
    }
    for (int bits = 0; bits < 4 * 6 * 2 + 4 * 5; bits++) {
        tt_set_isa(bits < 48 ? NULL : "avx512");
        const int64_t k = ks[bits / 4 % 6];
        const tt_product_case_t t = {.batch = 1 + bits % 3 % 2 * 2,
                                     .m = 64,
                                     .n = k > 9999 ? 64 : 100,
                                     .k = k,
                                     .ta = bits & 1,
                                     .tb = bits & 2,
                                     .dtype = bits < 24 ? TUTTI_F32 : TUTTI_BF16,
                                     .out = bits < 24 || bits & 1 ? TUTTI_F32 : TUTTI_BF16};
        tt_product_t x;
        tt_product_open(&t, &x);
        const uint64_t alone = bits_of(&x, NULL);
        assert_true(alone == bits_of(&x, NULL));
        for (int i = 0; i < THREADS_MAX; i++) {
            assert_true(alone == bits_of(&x, pools[i]));
        }
        tt_product_close(&x);
    }
    tt_set_isa(NULL);
    for (int i = 0; i < THREADS_MAX; i++) {
        tt_threads_release(pools[i]);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* What is computed for a part of the rows or columns is a part of what is computed for all. */
static void matmul_of_a_part_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    enum { M = 90, N = 150, K = 784 };
    for (int i = 0; i < 3; i++) {
        const tutti_dtype_t dtype = i ? TUTTI_BF16 : TUTTI_F32;
        tt_set_isa(i < 2 ? NULL : "avx512");
        const int64_t bytes = (int64_t)tutti_dtype_bytes(dtype);
        char *a = tt_product_make(M * K, dtype, 1), *b = tt_product_make(N * K, dtype, 2);
        float *whole = tt_product_make(M * N, TUTTI_F32, 3),
              *part = tt_product_make(M * N, TUTTI_F32, 4);
        tt_matmul_t m = {.batch = 1,
                         .m = M,
                         .n = N,
                         .k = K,
                         .dtype = dtype,
                         .a = {.data = a},
                         .b = {.data = b, .transposed = true},
                         .c = whole};
        assert_int_equal(tt_matmul(NULL, &m), TUTTI_OK);
        m.c_ld = N;
        const int64_t cuts[] = {0, 1, 34, 67, N};
        for (int cut = 0; cut < 4; cut++) {
            m.n = cuts[cut + 1] - cuts[cut];
            m.b.data = b + cuts[cut] * K * bytes;
            m.c = part + cuts[cut];
            m.m = 37;
            m.a.data = a;
            assert_int_equal(tt_matmul(NULL, &m), TUTTI_OK);
            m.m = M - 37;
            m.a.data = a + 37 * K * bytes;
            m.c = part + 37 * N + cuts[cut];
            assert_int_equal(tt_matmul(NULL, &m), TUTTI_OK);
        }
        assert_memory_equal(whole, part, M * N * sizeof *whole);
        tt_free(a);
        tt_free(b);
        tt_free(whole);
        tt_free(part);
    }
    tt_set_isa(NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void matmul_has_the_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    for (int bits = 0; bits < 24; bits++) {
        const tutti_dtype_t dtype = bits < 12 ? TUTTI_F32 : TUTTI_F64;
        const tt_product_case_t t = {.batch = 1,
                                     .m = 45,
                                     .n = 70,
                                     .k = 784,
                                     .ta = bits & 1,
                                     .tb = bits & 2,
                                     .bias = true,
                                     .epilogue = (tt_epilogue_t)(bits / 4 % 3),
                                     .dtype = dtype,
                                     .out = dtype};
        tt_product_t x;
        tt_product_open(&t, &x);
        const uint64_t best = bits_of(&x, NULL);
        tt_set_isa("avx2");
        assert_true(best == bits_of(&x, NULL));
        tt_set_isa("baseline");
        assert_true(best == bits_of(&x, NULL));
        tt_set_isa(NULL);
        tt_product_close(&x);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* gemm_amx_simd.c: in steps of 32 elements, those of even and of odd places by themselves. */
static float sum_as_amx_does(const uint16_t *a, const uint16_t *b, int64_t k)
{
    float sum = 0;
    for (int64_t step = 0; step < k; step += 32) {
        float part[2] = {0, 0};
        for (int64_t i = step; i < k && i < step + 32; i++) {
            part[i % 2] += tt_bf16_to_f32(a[i]) * tt_bf16_to_f32(b[i]);
        }
        sum += part[0] + part[1];
    }
    return sum;
}

static void matmul_in_tiles_of_amx_has_the_bits_of_its_chain(void **state)
{
    (void)state;
    enum { M = 35, N = 50 };
    static const int64_t ks[] = {1, 2, 31, 32, 33, 64, 97, 384, 1024};
    if (!tt_isa_has_amx()) {
        print_message("skipped: this CPU has no AMX\n");
        skip();
    }
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        const int64_t k = ks[i];
        uint16_t *a = tt_product_make(M * k, TUTTI_BF16, 1),
                 *b = tt_product_make(N * k, TUTTI_BF16, 2);
        float *c = tt_product_make(M * N, TUTTI_F32, 3);
        const tt_matmul_t m = {.batch = 1,
                               .m = M,
                               .n = N,
                               .k = k,
                               .dtype = TUTTI_BF16,
                               .out_dtype = TUTTI_F32,
                               .a = {.data = a},
                               .b = {.data = b, .transposed = true},
                               .c = c};
        assert_int_equal(tt_matmul(NULL, &m), TUTTI_OK);
        for (int64_t at = 0; at < M * N; at++) {
            const float want = sum_as_amx_does(a + at / N * k, b + at % N * k, k);
            assert_memory_equal(&c[at], &want, sizeof want);
        }
        tt_free(a);
        tt_free(b);
        tt_free(c);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_gives_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(matmul_of_a_part_has_the_bits_of_the_whole),
        cmocka_unit_test(matmul_has_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(matmul_in_tiles_of_amx_has_the_bits_of_its_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
