/* Products of any kind against sums in double: matmul_test.c, matmul_bits_test.c. */
#ifndef TT_MATMUL_TESTING_H
#define TT_MATMUL_TESTING_H

#include "core/base/guard_testing.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/kernel/half.h"
#include "core/kernel/isa.h"
#include "core/kernel/matmul/matmul.h"

typedef struct {
    int64_t batch, m, n, k;
    bool ta, tb, shared_b, padded, accumulate, bias;
    tutti_dtype_t dtype, out;
    tt_epilogue_t epilogue;
} tt_product_case_t;

typedef struct {
    void *a, *b, *c, *pre, *bias;
    size_t c_bytes;
    tt_matmul_t call;
} tt_product_t;

static inline double tt_product_get(const void *data, tutti_dtype_t dtype, int64_t i)
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

static inline void *tt_product_make(int64_t count, tutti_dtype_t dtype, uint64_t seed)
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

static inline void tt_product_open(const tt_product_case_t *t, tt_product_t *x)
{
    const int64_t pad = t->padded ? 3 : 0;
    const int64_t ar = t->ta ? t->k : t->m, ac = (t->ta ? t->m : t->k) + pad;
    const int64_t br = t->tb ? t->n : t->k, bc = (t->tb ? t->k : t->n) + pad;
    const int64_t cc = t->n + pad, c_count = t->batch * t->m * cc;
    x->a = tt_product_make(t->batch * ar * ac, t->dtype, 1);
    x->b = tt_product_make((t->shared_b ? 1 : t->batch) * br * bc, t->dtype, 2);
    x->c = tt_product_make(c_count, t->out, 3);
    x->pre = tt_product_make(c_count, t->out, 4);
    x->bias = tt_product_make(t->n, t->out, 5);
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

static inline void tt_product_close(tt_product_t *x)
{
    tt_free(x->a);
    tt_free(x->b);
    tt_free(x->c);
    tt_free(x->pre);
    tt_free(x->bias);
}

static inline double tt_product_gelu(double x, tt_epilogue_t epilogue)
{
    if (epilogue == TT_EPILOGUE_GELU_ERF) {
        return x * 0.5 * erfc(-x / sqrt(2));
    }
    return x * 0.5 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static inline double tt_product_expect(const tt_matmul_t *m, const void *old, int64_t batch,
                                       int64_t i, int64_t j)
{
    const int64_t lda = m->a.ld ? m->a.ld : m->a.transposed ? m->m : m->k;
    const int64_t ldb = m->b.ld ? m->b.ld : m->b.transposed ? m->k : m->n;
    const int64_t ldc = m->c_ld ? m->c_ld : m->n;
    double sum = 0;
    for (int64_t k = 0; k < m->k; k++) {
        const int64_t a = m->a.transposed ? k * lda + i : i * lda + k;
        const int64_t b = m->b.transposed ? j * ldb + k : k * ldb + j;
        sum += tt_product_get(m->a.data, m->dtype, batch * m->a.batch_stride + a) *
               tt_product_get(m->b.data, m->dtype, batch * m->b.batch_stride + b);
    }
    sum += m->accumulate
               ? tt_product_get(old, m->out_dtype, batch * m->c_batch_stride + i * ldc + j)
               : 0;
    return sum + (m->bias ? tt_product_get(m->bias, m->bias_dtype, j) : 0);
}

static inline double tt_product_tolerance(tutti_dtype_t out, int64_t k, double value)
{
    const double unit = out == TUTTI_F64    ? 1e-13
                        : out == TUTTI_F32  ? 3e-7
                        : out == TUTTI_BF16 ? 4e-3
                                            : 6e-4;
    const double sum_unit = out == TUTTI_F64 ? 1e-15 : 1.2e-7;
    return unit * (fabs(value) + 0.1) + sum_unit * (8 + 4 * sqrt((double)k));
}

static inline void tt_product_assert_near(double got, double want, tutti_dtype_t out, int64_t k)
{
    if (!(fabs(got - want) <= tt_product_tolerance(out, k, want))) {
        fail_msg("got %.9g, expected %.9g (%s, K %d)", got, want, tutti_dtype_name(out), (int)k);
    }
}

static inline void tt_product_check(const tt_product_case_t *t, tt_threads_t *threads)
{
    tt_product_t x;
    tt_product_open(t, &x);
    void *old = tt_alloc(x.c_bytes + 1, "test");
    memcpy(old, x.c, x.c_bytes);
    assert_int_equal(tt_matmul(&(tt_exec_t){.threads = threads}, &x.call), TUTTI_OK);
    const int64_t ld = t->n + (t->padded ? 3 : 0);
    for (int64_t b = 0; b < t->batch; b++) {
        for (int64_t i = 0; i < t->m; i++) {
            for (int64_t j = 0; j < ld; j++) {
                const int64_t at = b * x.call.c_batch_stride + i * ld + j;
                const double got = tt_product_get(x.c, t->out, at);
                if (j >= t->n) { /* between the rows nothing is written */
                    assert_true(got == tt_product_get(old, t->out, at));
                    continue;
                }
                const double sum = tt_product_expect(&x.call, old, b, i, j);
                if (t->epilogue == TT_EPILOGUE_NONE) {
                    tt_product_assert_near(got, sum, t->out, t->k);
                } else {
                    tt_product_assert_near(tt_product_get(x.pre, t->out, at), sum, t->out, t->k);
                    tt_product_assert_near(got, tt_product_gelu(sum, t->epilogue), t->out, t->k);
                }
            }
        }
    }
    tt_free(old);
    tt_product_close(&x);
}

static inline void tt_set_isa(const char *isa)
{
    if (isa == NULL) {
        unsetenv("TUTTI_ISA");
    } else {
        setenv("TUTTI_ISA", isa, 1);
    }
}

static const tutti_dtype_t tt_product_dtypes[][2] = {
    {TUTTI_F32, TUTTI_F32},  {TUTTI_F64, TUTTI_F64}, {TUTTI_BF16, TUTTI_BF16},
    {TUTTI_BF16, TUTTI_F32}, {TUTTI_F16, TUTTI_F16}, {TUTTI_F16, TUTTI_F32},
};

/* What the CPU lacks counts as the best that it has. */
static const char *const tt_isas[] = {NULL, "avx512", "avx2", "baseline"};
enum { TT_ISAS = sizeof tt_isas / sizeof *tt_isas };

#endif
