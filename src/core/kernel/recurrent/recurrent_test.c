/* Recurrent steps: bits over variants, threads and the place in a row; f32 near f64. */
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
#include "core/kernel/recurrent/recurrent.h"

enum { ROWS = 7, N = 149, SIZE = ROWS * N };

/* Room for any dtype. */
typedef struct {
    double x[4 * SIZE], product[4 * SIZE], h[SIZE], c[SIZE], kept[4 * SIZE], c_next[SIZE], y[SIZE];
    double dy[SIZE], dh[SIZE], dc[SIZE], dx[4 * SIZE], dproduct[4 * SIZE];
} set_t;

static set_t wide, narrow, second;

static void fill(double *to, size_t count, uint64_t name)
{
    const tt_rng_t rng = tt_rng_stream(name, 1, 2, 3, 4);
    for (size_t i = 0; i < count; i++) {
        /* Numbers that bf16 holds exactly, so that all dtypes start with the same values. */
        to[i] = (double)((int)(tt_rng_u32(rng, i) >> 25) - 64) / 32;
    }
}

static void make_wide(void)
{
    memset(&wide, 0, sizeof wide);
    fill(wide.x, 4 * SIZE, 1);
    fill(wide.product, 4 * SIZE, 2);
    fill(wide.h, SIZE, 3);
    fill(wide.c, SIZE, 4);
    fill(wide.dy, SIZE, 5);
    fill(wide.dh, SIZE, 6);
    fill(wide.dc, SIZE, 7);
}

static void convert(double *out, tutti_dtype_t to, double *in, int64_t n)
{
    const tt_strided_t y = {.data = out, .dtype = to, .rank = 1, .shape = {n}, .strides = {1}};
    const tt_strided_t x = {
        .data = in, .dtype = TUTTI_F64, .rank = 1, .shape = {n}, .strides = {1}};
    tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &y, &x);
}

static void narrow_to(set_t *set, tutti_dtype_t dtype)
{
    const tutti_dtype_t sum = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    memset(set, 0, sizeof *set);
    convert(set->x, dtype, wide.x, 4 * SIZE);
    convert(set->product, sum, wide.product, 4 * SIZE);
    convert(set->h, dtype, wide.h, SIZE);
    convert(set->c, sum, wide.c, SIZE);
    convert(set->dy, dtype, wide.dy, SIZE);
    convert(set->dh, sum, wide.dh, SIZE);
    convert(set->dc, sum, wide.dc, SIZE);
}

static void run(tt_threads_t *threads, tt_recurrent_t kind, tutti_dtype_t dtype, set_t *set)
{
    const tt_recurrent_step_t step = {
        kind,      dtype,       ROWS,   N,       set->x,  set->product, set->h,  set->c,
        set->kept, set->c_next, set->y, set->dy, set->dh, set->dc,      set->dx, set->dproduct};
    tt_exec_t exec = {.threads = threads};
    assert_int_equal(tt_recurrent_forward(&exec, &step), TUTTI_OK);
    assert_int_equal(tt_recurrent_backward(&exec, &step), TUTTI_OK);
}

static void variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    const tt_variant_t best = tt_isa();
    make_wide();
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F64};
    for (int trial = 0; trial < 36; trial++) {
        const tt_recurrent_t kind = (tt_recurrent_t)(trial % 4);
        const tutti_dtype_t dtype = dtypes[trial / 4 % 3];
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(trial % 3 + 2, &threads), TUTTI_OK);
        narrow_to(&narrow, dtype);
        narrow_to(&second, dtype);
        run(NULL, kind, dtype, &narrow);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(trial / 12 % ((int)best + 1))), 1);
        run(threads, kind, dtype, &second);
        unsetenv("TUTTI_ISA");
        tt_threads_release(threads);
        if (memcmp(&narrow, &second, sizeof narrow) != 0) {
            fail_msg("kind %d, trial %d", (int)kind, trial);
        }
    }
}

static void expect_near(const char *what, const double *f32, const double *f64, size_t count)
{
    const float *got = (const float *)(const void *)f32;
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - f64[i]) <= 1e-6 * (1 + fabs(f64[i])))) {
            fail_msg("%s: element %zu is %.9g, not %.9g", what, i, (double)got[i], f64[i]);
        }
    }
}

static void f32_is_near_f64(void **state)
{
    (void)state;
    for (int kind = TT_RECURRENT_TANH; kind <= TT_RECURRENT_GRU; kind++) {
        const size_t gates = tt_recurrent_gates((tt_recurrent_t)kind);
        make_wide();
        narrow_to(&narrow, TUTTI_F32);
        run(NULL, (tt_recurrent_t)kind, TUTTI_F64, &wide);
        run(NULL, (tt_recurrent_t)kind, TUTTI_F32, &narrow);
        expect_near("y", narrow.y, wide.y, SIZE);
        expect_near("c_next", narrow.c_next, wide.c_next, SIZE);
        expect_near("dx", narrow.dx, wide.dx, gates * SIZE);
        expect_near("dproduct", narrow.dproduct, wide.dproduct, gates * SIZE);
        expect_near("dh", narrow.dh, wide.dh, SIZE);
        expect_near("dc", narrow.dc, wide.dc, SIZE);
    }
}

static void nan_stays_in_f32_and_f64(void **state)
{
    (void)state;
    for (int kind = TT_RECURRENT_TANH; kind <= TT_RECURRENT_GRU; kind++) {
        make_wide();
        wide.x[0] = wide.x[N] = NAN;
        narrow_to(&narrow, TUTTI_F32);
        run(NULL, (tt_recurrent_t)kind, TUTTI_F64, &wide);
        run(NULL, (tt_recurrent_t)kind, TUTTI_F32, &narrow);
        const float *got = (const float *)(const void *)narrow.y;
        assert_true(isnan(wide.y[0]) && isnan(got[0]));
    }
}

/* An infinity that comes back to a closed unit: 0, and no 0 · ∞. */
static void relu_passes_nothing_where_it_is_closed(void **state)
{
    (void)state;
    make_wide();
    for (size_t i = 0; i < SIZE; i++) {
        wide.dh[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : NAN;
    }
    narrow_to(&narrow, TUTTI_F32);
    run(NULL, TT_RECURRENT_RELU, TUTTI_F32, &narrow);
    const float *y = (const float *)(const void *)narrow.y, *dx = (float *)(void *)narrow.dx;
    const float *dh = (const float *)(const void *)narrow.dh;
    for (size_t i = 0; i < SIZE; i++) {
        const bool passes = isnan(dh[i]) ? isnan(dx[i]) : dx[i] == dh[i];
        assert_true(y[i] > 0 ? passes : dx[i] == 0);
    }
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(variants_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(f32_is_near_f64, nothing_is_left),
        cmocka_unit_test_teardown(nan_stays_in_f32_and_f64, nothing_is_left),
        cmocka_unit_test_teardown(relu_passes_nothing_where_it_is_closed, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
