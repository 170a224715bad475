/* Element-wise kernels: against f64, over strides, dtypes, variants and threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/kernel/isa.h"
#include "core/kernel/elementwise/map.h"

enum { N = 2051 };

static const tt_map_params_t params = {.p = 0.75, .q = 1.25};

static tt_strided_t vector(void *data, tutti_dtype_t dtype, int64_t n)
{
    return (tt_strided_t){.data = data, .dtype = dtype, .rank = 1, .shape = {n}, .strides = {1}};
}

/* Random numbers over many magnitudes, and the special ones in front. */
static void make_numbers(float *x, size_t n, uint64_t seed)
{
    static const float special[] = {0.0f,    -0.0f,     1.0f,       -1.0f,     INFINITY, -INFINITY,
                                    NAN,     0x1p-149f, -0x1p-140f, 0x1p-126f, 88.7f,    -87.4f,
                                    3.4e38f, -3.4e38f,  1e-20f,     100.0f};
    const tt_rng_t rng = tt_rng_stream(seed, 0, 0, 0, 0);
    for (size_t i = 0; i < n; i++) {
        const float scale = ldexpf(1.0f, (int)tt_rng_below(rng, 2 * i, 12) - 8);
        x[i] = tt_rng_normal(rng, 2 * i + 1) * scale;
    }
    for (size_t i = 0; i < 16; i++) {
        x[(i * 7 + seed * 5) % 112] = special[i];
    }
}

static bool same_bits(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) {
            return false;
        }
    }
    return true;
}

static void use_variant(int variant)
{
    setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)variant), 1);
}

/* Every kind in one call: kinds are numbered over the three arities. */
enum { KINDS = TT_UNARY_COUNT + TT_BINARY_COUNT + TT_TERNARY_COUNT };

static const char *name_of(int kind)
{
    if (kind < TT_UNARY_COUNT) {
        return tt_unary_table[kind].name;
    }
    kind -= TT_UNARY_COUNT;
    return kind < TT_BINARY_COUNT ? tt_binary_table[kind].name
                                  : tt_ternary_table[kind - TT_BINARY_COUNT].name;
}

static void run(tt_threads_t *threads, int kind, const tt_strided_t *out, const tt_strided_t in[3])
{
    tt_exec_t exec = {.threads = threads};
    if (kind < TT_UNARY_COUNT) {
        tt_map_unary(&exec, (tt_unary_t)kind, params, out, &in[0]);
        return;
    }
    kind -= TT_UNARY_COUNT;
    if (kind < TT_BINARY_COUNT) {
        tt_map_binary(&exec, (tt_binary_t)kind, params, out, &in[0], &in[1]);
        return;
    }
    tt_map_ternary(&exec, (tt_ternary_t)(kind - TT_BINARY_COUNT), params, out, &in[0], &in[1],
                   &in[2]);
}

static bool takes_ints(int kind)
{
    if (kind < TT_UNARY_COUNT) {
        return tt_unary_takes_ints((tt_unary_t)kind);
    }
    kind -= TT_UNARY_COUNT;
    return kind < TT_BINARY_COUNT ? tt_binary_takes_ints((tt_binary_t)kind)
                                  : tt_ternary_takes_ints((tt_ternary_t)(kind - TT_BINARY_COUNT));
}

static void kinds_give_the_same_bits_on_all_variants(void **state)
{
    (void)state;
    static float x[3][N], y[TT_VARIANT_COUNT][N];
    tt_strided_t in[3];
    for (int k = 0; k < 3; k++) {
        make_numbers(x[k], N, (uint64_t)k + 1);
        in[k] = vector(x[k], TUTTI_F32, N);
    }
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int kind = 0; kind < KINDS; kind++) {
        for (int variant = 0; variant <= best; variant++) {
            use_variant(variant);
            const tt_strided_t out = vector(y[variant], TUTTI_F32, N);
            run(NULL, kind, &out, in);
            if (!same_bits(y[0], y[variant], N)) {
                fail_msg("%s: variant %d gives other bits", name_of(kind), variant);
            }
        }
    }
    unsetenv("TUTTI_ISA");
}

/* The error that f32 rounding of inputs of this size explains. */
static bool is_near(float got, double want, double scale)
{
    if (isnan(want) || fabs(want) > 3e38) {
        return isnan(want) ? isnan(got) : fabsf(got) > 2.9e38f;
    }
    return fabs((double)got - want) <= 1e-6 * (fabs(want) + scale) + 1e-37;
}

static void kinds_agree_with_f64(void **state)
{
    (void)state;
    static float x[3][N], y[N];
    static double wide[3][N], want[N];
    tt_strided_t in[3], wide_in[3];
    const tt_rng_t rng = tt_rng_stream(7, 0, 0, 0, 0);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < N; i++) {
            x[k][i] = 3 * tt_rng_normal(rng, (uint64_t)(k * N + i));
            wide[k][i] = (double)x[k][i];
        }
        in[k] = vector(x[k], TUTTI_F32, N);
        wide_in[k] = vector(wide[k], TUTTI_F64, N);
    }
    const tt_strided_t out = vector(y, TUTTI_F32, N), wide_out = vector(want, TUTTI_F64, N);
    for (int kind = 0; kind < KINDS; kind++) {
        run(NULL, kind, &out, in);
        run(NULL, kind, &wide_out, wide_in);
        for (int i = 0; i < N; i++) {
            if (!is_near(y[i], want[i], fabs(wide[0][i]) + 0.5)) {
                fail_msg("%s(%g, %g, %g) = %.9g, not %.9g", name_of(kind), wide[0][i], wide[1][i],
                         wide[2][i], (double)y[i], want[i]);
            }
        }
    }
}

/* The f64 slopes against differences of the f64 functions. */
static void backward_kinds_are_slopes(void **state)
{
    (void)state;
    static const struct {
        tt_unary_t forward;
        tt_binary_t backward;
        bool of_result;
    } pairs[] = {
        {TT_UNARY_ABS, TT_BINARY_ABS_BACKWARD, false},
        {TT_UNARY_SQRT, TT_BINARY_SQRT_BACKWARD, true},
        {TT_UNARY_RSQRT, TT_BINARY_RSQRT_BACKWARD, true},
        {TT_UNARY_RECIPROCAL, TT_BINARY_RECIPROCAL_BACKWARD, true},
        {TT_UNARY_POW, TT_BINARY_POW_BACKWARD, false},
        {TT_UNARY_SIN, TT_BINARY_SIN_BACKWARD, false},
        {TT_UNARY_COS, TT_BINARY_COS_BACKWARD, false},
        {TT_UNARY_TANH, TT_BINARY_TANH_BACKWARD, true},
        {TT_UNARY_ERF, TT_BINARY_ERF_BACKWARD, false},
        {TT_UNARY_SIGMOID, TT_BINARY_SIGMOID_BACKWARD, true},
        {TT_UNARY_SOFTPLUS, TT_BINARY_SOFTPLUS_BACKWARD, false},
        {TT_UNARY_RELU, TT_BINARY_RELU_BACKWARD, false},
        {TT_UNARY_GELU, TT_BINARY_GELU_BACKWARD, false},
        {TT_UNARY_GELU_TANH, TT_BINARY_GELU_TANH_BACKWARD, false},
        {TT_UNARY_SILU, TT_BINARY_SILU_BACKWARD, false},
        {TT_UNARY_CLAMP, TT_BINARY_CLAMP_BACKWARD, false},
        {TT_UNARY_CLAMP, TT_BINARY_HARDTANH_BACKWARD, false},
        {TT_UNARY_LEAKY_RELU, TT_BINARY_LEAKY_RELU_BACKWARD, false},
        {TT_UNARY_ELU, TT_BINARY_ELU_BACKWARD, false},
        {TT_UNARY_SELU, TT_BINARY_SELU_BACKWARD, false},
        {TT_UNARY_SOFTPLUS_STEEP, TT_BINARY_SOFTPLUS_STEEP_BACKWARD, false},
        {TT_UNARY_LOGSIGMOID, TT_BINARY_LOGSIGMOID_BACKWARD, false},
        {TT_UNARY_MISH, TT_BINARY_MISH_BACKWARD, false},
        {TT_UNARY_HARDSWISH, TT_BINARY_HARDSWISH_BACKWARD, false},
        {TT_UNARY_HARDSIGMOID, TT_BINARY_HARDSIGMOID_BACKWARD, false},
        {TT_UNARY_SOFTSIGN, TT_BINARY_SOFTSIGN_BACKWARD, false},
        {TT_UNARY_TANHSHRINK, TT_BINARY_TANHSHRINK_BACKWARD, false},
        {TT_UNARY_THRESHOLD, TT_BINARY_THRESHOLD_BACKWARD, false},
        {TT_UNARY_HARDSHRINK, TT_BINARY_SHRINK_BACKWARD, false},
        {TT_UNARY_SOFTSHRINK, TT_BINARY_SHRINK_BACKWARD, false},
    };
    enum { POINTS = 5 };
    double x[POINTS] = {0.31, 0.8, 1.1, 1.9, 2.7}, up[POINTS], down[POINTS], y[POINTS];
    double g[POINTS] = {1, 2, 3, 4, 5}, dx[POINTS];
    const double h = 1e-6;
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        for (int i = 0; i < POINTS; i++) {
            up[i] = x[i] + h;
            down[i] = x[i] - h;
        }
        const tt_strided_t vx = vector(x, TUTTI_F64, POINTS), vy = vector(y, TUTTI_F64, POINTS);
        const tt_strided_t vu = vector(up, TUTTI_F64, POINTS), vd = vector(down, TUTTI_F64, POINTS);
        const tt_strided_t vg = vector(g, TUTTI_F64, POINTS), vdx = vector(dx, TUTTI_F64, POINTS);
        tt_map_unary(NULL, pairs[k].forward, params, &vy, &vx);
        tt_map_unary(NULL, pairs[k].forward, params, &vu, &vu);
        tt_map_unary(NULL, pairs[k].forward, params, &vd, &vd);
        tt_map_binary(NULL, pairs[k].backward, params, &vdx, &vg, pairs[k].of_result ? &vy : &vx);
        for (int i = 0; i < POINTS; i++) {
            const double want = g[i] * (up[i] - down[i]) / (2 * h);
            if (fabs(dx[i] - want) > 1e-7 * (1 + fabs(want))) {
                fail_msg("%s at %g: %.9g, not %.9g", tt_binary_table[pairs[k].backward].name, x[i],
                         dx[i], want);
            }
        }
    }
}

/* Three dims, the middle one broadcast in b, a transposed, c every second element. */
/* Where the activation is a line, its slope is 0 or 1 although x² has no room beside it. */
static void slopes_of_large_numbers_are_those_of_lines(void **state)
{
    (void)state;
    static const int kinds[] = {TT_BINARY_GELU_BACKWARD, TT_BINARY_GELU_TANH_BACKWARD,
                                TT_BINARY_SILU_BACKWARD, TT_BINARY_SOFTPLUS_BACKWARD};
    float x[4] = {1e4f, -1e4f, 1e15f, -1e15f}, one[4] = {1, 1, 1, 1}, y[4];
    const tt_strided_t in = vector(x, TUTTI_F32, 4), g = vector(one, TUTTI_F32, 4),
                       out = vector(y, TUTTI_F32, 4);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tt_map_binary(NULL, (tt_binary_t)kinds[i], params, &out, &g, &in);
        for (int k = 0; k < 4; k++) {
            if (y[k] != (float)(k % 2 == 0)) {
                fail_msg("%s at %g: %g", tt_binary_table[kinds[i]].name, (double)x[k],
                         (double)y[k]);
            }
        }
    }
}

static void strides_and_threads_change_no_bit(void **state)
{
    (void)state;
    enum { A = 37, B = 29, C = 41, TOTAL = A * B * C };
    static float a[TOTAL], b[A * C], c[2 * TOTAL], dense[3][TOTAL], want[TOTAL], got[TOTAL];
    make_numbers(a, TOTAL, 1);
    make_numbers(b, A * C, 2);
    make_numbers(c, 2 * TOTAL, 3);
    for (int i = 0, at = 0; i < A; i++) {
        for (int j = 0; j < B; j++) {
            for (int k = 0; k < C; k++, at++) {
                dense[0][at] = a[(k * B + j) * A + i];
                dense[1][at] = b[i * C + k];
                dense[2][at] = c[2 * at];
            }
        }
    }
    const tt_strided_t in[3] = {
        {.data = a, .rank = 3, .shape = {A, B, C}, .strides = {1, A, A * B}},
        {.data = b, .rank = 3, .shape = {A, B, C}, .strides = {C, 0, 1}},
        {.data = c, .rank = 3, .shape = {A, B, C}, .strides = {2 * B * C, 2 * C, 2}},
    };
    const tt_strided_t out = {.data = got, .rank = 3, .shape = {A, B, C}, .strides = {B * C, C, 1}};
    const tt_strided_t flat[3] = {vector(dense[0], TUTTI_F32, TOTAL),
                                  vector(dense[1], TUTTI_F32, TOTAL),
                                  vector(dense[2], TUTTI_F32, TOTAL)};
    const tt_strided_t flat_out = vector(want, TUTTI_F32, TOTAL);
    for (int count = 1; count <= 4; count++) {
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
        for (int kind = 0; kind < KINDS; kind += count) {
            run(NULL, kind, &flat_out, flat);
            run(threads, kind, &out, in);
            if (!same_bits(want, got, TOTAL)) {
                fail_msg("%s over strides with %d threads", name_of(kind), count);
            }
        }
        tt_threads_release(threads);
    }
}

static void strided_outputs_are_written_where_they_lie(void **state)
{
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[12];
    for (int i = 0; i < 12; i++) {
        y[i] = -1;
    }
    const tt_strided_t in = {.data = x, .rank = 2, .shape = {2, 3}, .strides = {3, 1}};
    const tt_strided_t out = {.data = y, .rank = 2, .shape = {2, 3}, .strides = {2, 4}};
    tt_map_unary(NULL, TT_UNARY_NEG, params, &out, &in);
    const float want[12] = {-1, -1, -4, -1, -2, -1, -5, -1, -3, -1, -6, -1};
    assert_memory_equal(y, want, sizeof y);
}

static void empty_rank_0_and_rank_8_work(void **state)
{
    (void)state;
    float x[256], y[256];
    for (int i = 0; i < 256; i++) {
        x[i] = (float)i;
    }
    tt_strided_t in = {.data = x, .rank = 8}, out = {.data = y, .rank = 8};
    for (int d = 0; d < 8; d++) {
        in.shape[d] = out.shape[d] = 2;
        in.strides[d] = 1 << d;
        out.strides[d] = 128 >> d;
    }
    tt_map_unary(NULL, TT_UNARY_COPY, params, &out, &in);
    for (int i = 0; i < 256; i++) {
        int reversed = 0;
        for (int bit = 0; bit < 8; bit++) {
            reversed |= (i >> bit & 1) << (7 - bit);
        }
        assert_true(y[i] == (float)reversed);
    }
    in.shape[3] = out.shape[3] = 0;
    tt_map_unary(NULL, TT_UNARY_NEG, params, &out, &in);
    assert_true(y[0] == 0.0f);
    const tt_strided_t one = {.data = &x[5]}, result = {.data = &y[5]};
    tt_map_unary(NULL, TT_UNARY_NEG, params, &result, &one);
    assert_true(y[5] == -5.0f);
}

static void dtypes_convert_as_documented(void **state)
{
    (void)state;
    const float x[6] = {1.5f, -2.75f, 300.0f, NAN, 0.0f, 1e30f};
    float copy[6];
    memcpy(copy, x, sizeof x);
    const tt_strided_t in = vector(copy, TUTTI_F32, 6);
    int64_t i64[6];
    const int64_t want[6] = {1, -2, 300, 0, 0, INT64_MAX};
    tt_strided_t out = vector(i64, TUTTI_I64, 6);
    tt_map_unary(NULL, TT_UNARY_COPY, params, &out, &in);
    assert_memory_equal(i64, want, sizeof want);
    uint8_t bytes[6];
    const uint8_t want_bool[6] = {1, 1, 1, 1, 0, 1}, want_u8[6] = {1, 254, 44, 0, 0, 255};
    out = vector(bytes, TUTTI_BOOL, 6);
    tt_map_unary(NULL, TT_UNARY_COPY, params, &out, &in);
    assert_memory_equal(bytes, want_bool, 6);
    out = vector(bytes, TUTTI_U8, 6);
    tt_map_unary(NULL, TT_UNARY_COPY, params, &out, &in);
    assert_memory_equal(bytes, want_u8, 6);
    uint16_t half[6];
    const uint16_t want_bf16[6] = {0x3fc0, 0xc030, 0x4396, 0x7fc0, 0, 0x714a};
    out = vector(half, TUTTI_BF16, 6);
    tt_map_unary(NULL, TT_UNARY_COPY, params, &out, &in);
    assert_memory_equal(half, want_bf16, sizeof half);
}

static void whole_numbers_are_exact(void **state)
{
    (void)state;
    int64_t a[3] = {INT64_MAX, (INT64_C(1) << 53) + 1, -7}, b[3] = {1, 2, 3}, y[3];
    const tt_strided_t in[3] = {vector(a, TUTTI_I64, 3), vector(b, TUTTI_I64, 3),
                                vector(b, TUTTI_I64, 3)};
    const tt_strided_t out = vector(y, TUTTI_I64, 3);
    run(NULL, TT_UNARY_COUNT + TT_BINARY_ADD, &out, in);
    const int64_t want[3] = {INT64_MIN, (INT64_C(1) << 53) + 3, -4};
    assert_memory_equal(y, want, sizeof want);
    run(NULL, TT_UNARY_COUNT + TT_BINARY_POW, &out, in);
    assert_true(y[2] == -343);
    for (int kind = 0; kind < KINDS; kind++) {
        if (takes_ints(kind)) {
            run(NULL, kind, &out, in);
        }
    }
    assert_false(tt_unary_takes_ints(TT_UNARY_EXP));
}

static void fill_writes_every_dtype(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        double raw[5], back[5];
        const tt_strided_t out = vector(raw, (tutti_dtype_t)dtype, 5);
        const tt_strided_t wide = vector(back, TUTTI_F64, 5);
        tt_fill(NULL, &out, 1.0);
        tt_map_unary(NULL, TT_UNARY_COPY, params, &wide, &out);
        assert_true(back[0] == 1.0 && back[4] == 1.0);
        tt_fill_int(NULL, &out, 0);
        tt_map_unary(NULL, TT_UNARY_COPY, params, &wide, &out);
        assert_true(back[0] == 0.0 && back[4] == 0.0);
    }
    int64_t big[2];
    const tt_strided_t out = vector(big, TUTTI_I64, 2);
    tt_fill_int(NULL, &out, INT64_MAX - 1);
    assert_true(big[1] == INT64_MAX - 1);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(kinds_give_the_same_bits_on_all_variants, nothing_is_left),
        cmocka_unit_test_teardown(kinds_agree_with_f64, nothing_is_left),
        cmocka_unit_test_teardown(backward_kinds_are_slopes, nothing_is_left),
        cmocka_unit_test_teardown(slopes_of_large_numbers_are_those_of_lines, nothing_is_left),
        cmocka_unit_test_teardown(strides_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(strided_outputs_are_written_where_they_lie, nothing_is_left),
        cmocka_unit_test_teardown(empty_rank_0_and_rank_8_work, nothing_is_left),
        cmocka_unit_test_teardown(dtypes_convert_as_documented, nothing_is_left),
        cmocka_unit_test_teardown(whole_numbers_are_exact, nothing_is_left),
        cmocka_unit_test_teardown(fill_writes_every_dtype, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
