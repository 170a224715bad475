/* Matrix products against sums in double, and their bits. */
#include "core/base/guard_testing.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/kernel/half.h"
#include "core/kernel/isa.h"
#include "core/kernel/matmul/matmul.h"

enum { THREADS_MAX = 8 };

typedef struct {
    int64_t batch, m, n, k;
    bool ta, tb, shared_b, padded, accumulate, bias;
    tutti_dtype_t dtype, out;
    tt_epilogue_t epilogue;
} case_t;

typedef struct {
    void *a, *b, *c, *pre, *bias;
    size_t c_bytes;
    tt_matmul_t call;
} buffers_t;

static double get(const void *data, tutti_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return (double)((const float *)data)[i];
    case TUTTI_F64:
        return ((const double *)data)[i];
    case TUTTI_BF16:
        return (double)tt_bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return (double)tt_f16_to_f32(((const uint16_t *)data)[i]);
    }
}

static void *make(int64_t count, tutti_dtype_t dtype, uint64_t seed)
{
    void *data = tt_alloc((size_t)count * tutti_dtype_bytes(dtype) + 1, "test");
    assert_non_null(data);
    const tt_rng_t rng = tt_rng_stream(seed, 0, 0, 0, 0);
    uint64_t word = tt_rng_u32(rng, 0) | 1;
    for (int64_t i = 0; i < count; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        const float x = (float)(word >> 40) * 0x1p-24f - 0.5f;
        if (dtype == TUTTI_F32) {
            ((float *)data)[i] = x;
        } else if (dtype == TUTTI_F64) {
            ((double *)data)[i] = (double)(word >> 11) * 0x1p-53 - 0.5; /* no number of f32 */
        } else {
            ((uint16_t *)data)[i] = dtype == TUTTI_BF16 ? tt_bf16_from_f32(x) : tt_f16_from_f32(x);
        }
    }
    return data;
}

static void set_up(const case_t *t, buffers_t *x)
{
    const int64_t pad = t->padded ? 3 : 0;
    const int64_t ar = t->ta ? t->k : t->m, ac = (t->ta ? t->m : t->k) + pad;
    const int64_t br = t->tb ? t->n : t->k, bc = (t->tb ? t->k : t->n) + pad;
    const int64_t cc = t->n + pad, c_count = t->batch * t->m * cc;
    x->a = make(t->batch * ar * ac, t->dtype, 1);
    x->b = make((t->shared_b ? 1 : t->batch) * br * bc, t->dtype, 2);
    x->c = make(c_count, t->out, 3);
    x->pre = make(c_count, t->out, 4);
    x->bias = make(t->n, t->out, 5);
    x->c_bytes = (size_t)c_count * tutti_dtype_bytes(t->out);
    x->call = (tt_matmul_t){
        .batch = t->batch,
        .m = t->m,
        .n = t->n,
        .k = t->k,
        .dtype = t->dtype,
        .out_dtype = t->out,
        .a = {x->a, pad ? ac : 0, ar * ac, t->ta},
        .b = {x->b, pad ? bc : 0, t->shared_b ? 0 : br * bc, t->tb},
        .c = x->c,
        .c_ld = pad ? cc : 0,
        .c_batch_stride = t->m * cc,
        .accumulate = t->accumulate,
        .bias = t->bias ? x->bias : NULL,
        .bias_dtype = t->out,
        .epilogue = t->epilogue,
        .pre = t->epilogue != TT_EPILOGUE_NONE ? x->pre : NULL,
    };
}

static void tear_down(buffers_t *x)
{
    tt_free(x->a);
    tt_free(x->b);
    tt_free(x->c);
    tt_free(x->pre);
    tt_free(x->bias);
}

static double gelu(double x, tt_epilogue_t epilogue)
{
    if (epilogue == TT_EPILOGUE_GELU_ERF) {
        return x * 0.5 * erfc(-x / sqrt(2));
    }
    return x * 0.5 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double expect(const tt_matmul_t *m, const void *old, int64_t batch, int64_t i, int64_t j)
{
    const int64_t lda = m->a.ld ? m->a.ld : m->a.transposed ? m->m : m->k;
    const int64_t ldb = m->b.ld ? m->b.ld : m->b.transposed ? m->k : m->n;
    const int64_t ldc = m->c_ld ? m->c_ld : m->n;
    double sum = 0;
    for (int64_t k = 0; k < m->k; k++) {
        const int64_t a = m->a.transposed ? k * lda + i : i * lda + k;
        const int64_t b = m->b.transposed ? j * ldb + k : k * ldb + j;
        sum += get(m->a.data, m->dtype, batch * m->a.batch_stride + a) *
               get(m->b.data, m->dtype, batch * m->b.batch_stride + b);
    }
    sum += m->accumulate ? get(old, m->out_dtype, batch * m->c_batch_stride + i * ldc + j) : 0;
    return sum + (m->bias ? get(m->bias, m->bias_dtype, j) : 0);
}

static double tolerance(tutti_dtype_t out, int64_t k, double value)
{
    const double unit = out == TUTTI_F64    ? 1e-13
                        : out == TUTTI_F32  ? 3e-7
                        : out == TUTTI_BF16 ? 4e-3
                                            : 6e-4;
    const double sum_unit = out == TUTTI_F64 ? 1e-15 : 1.2e-7;
    return unit * (fabs(value) + 0.1) + sum_unit * (8 + 4 * sqrt((double)k));
}

static void assert_near(double got, double want, tutti_dtype_t out, int64_t k)
{
    if (!(fabs(got - want) <= tolerance(out, k, want))) {
        fail_msg("got %.9g, expected %.9g (%s, K %d)", got, want, tutti_dtype_name(out), (int)k);
    }
}

static void run_case(const case_t *t, tt_threads_t *threads)
{
    buffers_t x;
    set_up(t, &x);
    void *old = tt_alloc(x.c_bytes + 1, "test");
    memcpy(old, x.c, x.c_bytes);
    assert_int_equal(tt_matmul(&(tt_exec_t){.threads = threads}, &x.call), TUTTI_OK);
    const int64_t ld = t->n + (t->padded ? 3 : 0);
    for (int64_t b = 0; b < t->batch; b++) {
        for (int64_t i = 0; i < t->m; i++) {
            for (int64_t j = 0; j < ld; j++) {
                const int64_t at = b * x.call.c_batch_stride + i * ld + j;
                const double got = get(x.c, t->out, at);
                if (j >= t->n) { /* between the rows nothing is written */
                    assert_true(got == get(old, t->out, at));
                    continue;
                }
                const double sum = expect(&x.call, old, b, i, j);
                if (t->epilogue == TT_EPILOGUE_NONE) {
                    assert_near(got, sum, t->out, t->k);
                } else {
                    assert_near(get(x.pre, t->out, at), sum, t->out, t->k);
                    assert_near(got, gelu(sum, t->epilogue), t->out, t->k);
                }
            }
        }
    }
    tt_free(old);
    tear_down(&x);
}

static void set_isa(const char *isa)
{
    if (isa == NULL) {
        unsetenv("TUTTI_ISA");
    } else {
        setenv("TUTTI_ISA", isa, 1);
    }
}

static const tutti_dtype_t pairs[][2] = {
    {TUTTI_F32, TUTTI_F32},  {TUTTI_F64, TUTTI_F64}, {TUTTI_BF16, TUTTI_BF16},
    {TUTTI_BF16, TUTTI_F32}, {TUTTI_F16, TUTTI_F16}, {TUTTI_F16, TUTTI_F32},
};
static const int64_t sizes[] = {0, 1, 2, 13, 14, 15, 31, 33, 70};

/* What the CPU lacks counts as the best that it has. */
static const char *const isas[] = {NULL, "avx512", "avx2", "baseline"};
enum { ISAS = sizeof isas / sizeof *isas };

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
        const case_t t = {
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
            .dtype = pairs[pair][0],
            .out = pairs[pair][1],
        };
        set_isa(isas[tt_rng_below(rng, at + 12, ISAS)]);
        run_case(&t, tt_rng_below(rng, at + 13, 2) ? threads : NULL);
    }
    set_isa(NULL);
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
        set_isa(isas[i / 6]);
        for (int bits = 0; bits < 8; bits++) {
            const case_t t = {.batch = 1,
                              .m = 59,
                              .n = 401,
                              .k = 1031 + 12 * bits,
                              .ta = bits & 1,
                              .tb = bits & 2,
                              .accumulate = bits & 4,
                              .bias = true,
                              .padded = bits & 4,
                              .dtype = pairs[pair][0],
                              .out = pairs[pair][1]};
            run_case(&t, threads);
        }
    }
    set_isa(NULL);
    tt_threads_release(threads);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static uint64_t bits_of(const buffers_t *x, tt_threads_t *threads)
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
        set_isa(bits < 48 ? NULL : "avx512");
        const int64_t k = ks[bits / 4 % 6];
        const case_t t = {.batch = 1 + bits % 3 % 2 * 2,
                          .m = 64,
                          .n = k > 9999 ? 64 : 100,
                          .k = k,
                          .ta = bits & 1,
                          .tb = bits & 2,
                          .dtype = bits < 24 ? TUTTI_F32 : TUTTI_BF16,
                          .out = bits < 24 || bits & 1 ? TUTTI_F32 : TUTTI_BF16};
        buffers_t x;
        set_up(&t, &x);
        const uint64_t alone = bits_of(&x, NULL);
        assert_true(alone == bits_of(&x, NULL));
        for (int i = 0; i < THREADS_MAX; i++) {
            assert_true(alone == bits_of(&x, pools[i]));
        }
        tear_down(&x);
    }
    set_isa(NULL);
    for (int i = 0; i < THREADS_MAX; i++) {
        tt_threads_release(pools[i]);
    }
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
        const case_t t = {.batch = 1,
                          .m = 33,
                          .n = 600,
                          .k = 2100,
                          .tb = (i & 1) != 0,
                          .padded = true,
                          .accumulate = (i & 2) != 0,
                          .bias = true,
                          .dtype = i < 4 ? TUTTI_F32 : TUTTI_BF16,
                          .out = i < 4 ? TUTTI_F32 : TUTTI_BF16};
        buffers_t plain, x;
        set_isa(i < 8 ? NULL : "avx512");
        set_up(&t, &plain);
        assert_int_equal(tt_matmul(NULL, &plain.call), TUTTI_OK);
        const size_t bytes = tt_matmul_packed_bytes(t.dtype, t.n, t.k);
        for (int count = 1; bytes > 0 && count <= 3; count += 2) {
            tt_threads_t *threads;
            assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
            char *packed = tt_alloc(bytes + BEHIND, "test");
            memset(packed, 0x5a, bytes + BEHIND);
            set_up(&t, &x);
            const tutti_status_t status =
                tt_matmul_pack(&(tt_exec_t){.threads = threads}, &x.call, packed);
            assert_int_equal(status, TUTTI_OK);
            assert_memory_equal(packed + bytes, untouched, BEHIND);
            memset(x.b, 0xff, 2); /* it is not looked at again */
            x.call.packed = packed;
            assert_int_equal(tt_matmul(&(tt_exec_t){.threads = threads}, &x.call), TUTTI_OK);
            assert_memory_equal(x.c, plain.c, x.c_bytes);
            tt_free(packed);
            tear_down(&x);
            tt_threads_release(threads);
        }
        tear_down(&plain);
    }
    set_isa(NULL);
    assert_int_equal(tt_matmul_packed_bytes(TUTTI_F64, 8, 8), 0);
}

/* Vectors and tiles are wider than what is left at the end of a row: the program ends if one of
 * them is read or written as a whole there. */
static void matmul_touches_nothing_behind_its_operands(void **state)
{
    (void)state;
    static const int64_t ks[] = {1, 7, 18, 33};
    for (int i = 0; i < 6 * ISAS * 32; i++) {
        const tutti_dtype_t *types = pairs[i / 32 / ISAS];
        const case_t t = {.batch = 1,
                          .m = i & 16 ? 15 : 3,
                          .n = i & 16 ? 5 : 37,
                          .k = ks[i / 4 % 4],
                          .ta = i & 1,
                          .tb = i & 2,
                          .dtype = types[0],
                          .out = types[1]};
        const size_t width = tutti_dtype_bytes(t.dtype);
        set_isa(isas[i / 32 % ISAS]);
        buffers_t x;
        set_up(&t, &x);
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
        tear_down(&x);
    }
    set_isa(NULL);
}

/* What is computed for a part of the rows or columns is a part of what is computed for all. */
static void matmul_of_a_part_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    enum { M = 90, N = 150, K = 784 };
    for (int i = 0; i < 3; i++) {
        const tutti_dtype_t dtype = i ? TUTTI_BF16 : TUTTI_F32;
        set_isa(i < 2 ? NULL : "avx512");
        const int64_t bytes = (int64_t)tutti_dtype_bytes(dtype);
        char *a = make(M * K, dtype, 1), *b = make(N * K, dtype, 2);
        float *whole = make(M * N, TUTTI_F32, 3), *part = make(M * N, TUTTI_F32, 4);
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
    set_isa(NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void matmul_has_the_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    for (int bits = 0; bits < 24; bits++) {
        const tutti_dtype_t dtype = bits < 12 ? TUTTI_F32 : TUTTI_F64;
        const case_t t = {.batch = 1,
                          .m = 45,
                          .n = 70,
                          .k = 784,
                          .ta = bits & 1,
                          .tb = bits & 2,
                          .bias = true,
                          .epilogue = (tt_epilogue_t)(bits / 4 % 3),
                          .dtype = dtype,
                          .out = dtype};
        buffers_t x;
        set_up(&t, &x);
        const uint64_t best = bits_of(&x, NULL);
        set_isa("avx2");
        assert_true(best == bits_of(&x, NULL));
        set_isa("baseline");
        assert_true(best == bits_of(&x, NULL));
        set_isa(NULL);
        tear_down(&x);
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
        uint16_t *a = make(M * k, TUTTI_BF16, 1), *b = make(N * k, TUTTI_BF16, 2);
        float *c = make(M * N, TUTTI_F32, 3);
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
        const case_t t = {.batch = 2,
                          .m = 20,
                          .n = 20,
                          .k = 20,
                          .dtype = i == 2 ? TUTTI_F16 : TUTTI_F32,
                          .out = i == 2 ? TUTTI_F16 : TUTTI_F32};
        buffers_t x;
        set_up(&t, &x);
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
        tear_down(&x);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_equals_sums_in_double),
        cmocka_unit_test(matmul_crosses_blocks),
        cmocka_unit_test(matmul_gives_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(matmul_of_a_packed_b_has_the_same_bits),
        cmocka_unit_test(matmul_touches_nothing_behind_its_operands),
        cmocka_unit_test(matmul_of_a_part_has_the_bits_of_the_whole),
        cmocka_unit_test(matmul_has_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(matmul_in_tiles_of_amx_has_the_bits_of_its_chain),
        cmocka_unit_test(matmul_refuses_what_it_cannot_multiply),
        cmocka_unit_test(matmul_reports_a_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
