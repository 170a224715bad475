/* Combining kernels, compiled once per instruction set (TT_ISA). Plain loops that the compiler
 * turns into vectors; each element is computed alone, so the width of a vector changes no bit.
 * Streaming stores are the only part written by hand. */
#include "core/kernel/elementwise/combine.h"

#include <stdint.h>
#include <string.h>

#include "core/kernel/half.h"
#include "core/kernel/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* dst may be a or b, element for element, which is no dependence between iterations. */
#if defined(__clang__)
#define TT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TT_INDEPENDENT _Pragma("GCC ivdep")
#endif

typedef struct {
    float value, index;
} f32_pair_t;

typedef struct {
    double value, index;
} f64_pair_t;

typedef struct {
    int64_t value, index;
} i64_pair_t;

typedef struct {
    int32_t value, index;
} i32_pair_t;

#define X(dtype, type, reduction, value)                                                           \
    static void combine_##dtype##_##reduction(void *dst, const void *first, const void *second,    \
                                              size_t count)                                        \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *x = first, *y = second;                                                        \
        const size_t elements = count / (size_t)tt_combine_width(TUTTI_##reduction);               \
        TT_INDEPENDENT                                                                             \
        for (size_t i = 0; i < elements; i++) {                                                    \
            const type a = x[i], b = y[i];                                                         \
            d[i] = value;                                                                          \
        }                                                                                          \
    }
#include "core/kernel/elementwise/combine.def"
#undef X

/* 16 floats at a time. */
enum { LANES = 16, AHEAD_BYTES = 1024 };
typedef float floats_t __attribute__((vector_size(64), aligned(4), may_alias));

static inline void store_stream(float *dst, floats_t value)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(dst, (__m512)value);
#elif defined(__x86_64__)
    float lanes[LANES];
    memcpy(lanes, &value, sizeof lanes);
    for (int i = 0; i < LANES; i += 4) {
        _mm_stream_ps(dst + i, _mm_loadu_ps(lanes + i));
    }
#else
    memcpy(dst, &value, sizeof value);
#endif
}

static inline void drain_stream(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* What becomes a store around the cache is read once: it is fetched ahead so that it passes by the
 * lower caches. Behind the end of a buffer this does nothing. */
static inline void expect_once(const void *x)
{
    __builtin_prefetch((const char *)x + AHEAD_BYTES, 0, 0);
}

static void sum_f32_to_two(float *d, float *e, const float *a, const float *b, size_t count)
{
    TT_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const float sum = a[i] + b[i];
        d[i] = sum;
        e[i] = sum;
    }
}

static void widen(float *dst, const void *src, tutti_dtype_t dtype, size_t count)
{
    const uint16_t *x = src;
    if (dtype == TUTTI_BF16) {
        for (size_t i = 0; i < count; i++) {
            dst[i] = tt_bf16_to_f32(x[i]);
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            dst[i] = tt_f16_to_f32(x[i]);
        }
    }
}

static void narrow(void *dst, const float *src, tutti_dtype_t dtype, size_t count)
{
    uint16_t *d = dst;
    if (dtype == TUTTI_BF16) {
        for (size_t i = 0; i < count; i++) {
            d[i] = tt_bf16_from_f32(src[i]);
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            d[i] = tt_f16_from_f32(src[i]);
        }
    }
}

static void divide_f32(float *x, float divisor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] /= divisor;
    }
}

static void divide_f64(double *x, double divisor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] /= divisor;
    }
}

static void scale_f32(float *dst, const float *src, float factor, size_t count)
{
    TT_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        dst[i] = src[i] * factor;
    }
}

static void scale_f64(double *dst, const double *src, double factor, size_t count)
{
    TT_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        dst[i] = src[i] * factor;
    }
}

static void copy_stream(void *dst, const void *src, size_t bytes)
{
    unsigned char *d = dst;
    const unsigned char *s = src;
    size_t head = (64 - (uintptr_t)d % 64) % 64;
    head = head < bytes ? head : bytes;
    memcpy(d, s, head);
    size_t i = head;
    for (; i + 64 <= bytes; i += 64) {
        floats_t value;
        expect_once(s + i);
        memcpy(&value, s + i, sizeof value);
        store_stream((float *)(void *)(d + i), value);
    }
    drain_stream();
    memcpy(d + i, s + i, bytes - i);
}

extern const tt_combine_kernels_t TT_ISA_NAME(tt_combine_kernels);

const tt_combine_kernels_t TT_ISA_NAME(tt_combine_kernels) = {
    .combine =
        {
#define X(dtype, type, reduction, value)                                                           \
    [TUTTI_##dtype][TUTTI_##reduction] = combine_##dtype##_##reduction,
#include "core/kernel/elementwise/combine.def"
#undef X
        },
    .sum_f32_to_two = sum_f32_to_two,
    .widen = widen,
    .narrow = narrow,
    .divide_f32 = divide_f32,
    .divide_f64 = divide_f64,
    .scale_f32 = scale_f32,
    .scale_f64 = scale_f64,
    .copy_stream = copy_stream,
};
