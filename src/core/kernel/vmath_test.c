/* Accuracy of our own functions over a sample of all floats, in units of the last place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"

enum { SAMPLE = 4096, STEP = 1009 };

static double ulps(float got, double want)
{
    const float rounded = (float)want;
    if (isnan(want) || isinf(rounded) || isinf(got)) {
        return (isnan(want) && isnan(got)) || got == rounded ? 0 : INFINITY;
    }
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static void check(tt_unary_t kind, double (*reference)(double), double ulps_max)
{
    static float x[SAMPLE], y[SAMPLE];
    tt_strided_t in = {.data = x, .rank = 1, .shape = {SAMPLE}, .strides = {1}}, out = in;
    out.data = y;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += (uint64_t)SAMPLE * STEP) {
        for (uint64_t i = 0; i < SAMPLE; i++) {
            const uint32_t pattern = (uint32_t)(bits + i * STEP);
            memcpy(&x[i], &pattern, sizeof pattern);
        }
        tt_map_unary(NULL, kind, (tt_map_params_t){0}, &out, &in);
        for (int i = 0; i < SAMPLE; i++) {
            const double error = ulps(y[i], reference((double)x[i]));
            if (error > ulps_max) {
                fail_msg("%s(%a) = %a is %.2f ulp off", tt_unary_table[kind].name, (double)x[i],
                         (double)y[i], error);
            }
        }
    }
}

static void functions_are_within_three_ulp(void **state)
{
    (void)state;
    check(TT_UNARY_EXP, exp, 1.1);
    check(TT_UNARY_LOG, log, 1.0);
    check(TT_UNARY_TANH, tanh, 1.6);
    check(TT_UNARY_ERF, erf, 2.0);
    check(TT_UNARY_SIN, sin, 1.6);
    check(TT_UNARY_COS, cos, 1.6);
    check(TT_UNARY_SQRT, sqrt, 0.5);
    check(TT_UNARY_LOG1P, log1p, 2.0);
    check(TT_UNARY_EXPM1, expm1, 2.6);
    check(TT_UNARY_FLOOR, floor, 0);
    check(TT_UNARY_CEIL, ceil, 0);
    check(TT_UNARY_ROUND, rint, 0);
    check(TT_UNARY_TRUNC, trunc, 0);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void functions_through_zero_keep_its_sign(void **state)
{
    (void)state;
    const tt_unary_t kinds[] = {TT_UNARY_TANH,  TT_UNARY_ERF,  TT_UNARY_SIN,   TT_UNARY_SQRT,
                                TT_UNARY_FLOOR, TT_UNARY_CEIL, TT_UNARY_ROUND, TT_UNARY_TRUNC,
                                TT_UNARY_LOG1P, TT_UNARY_EXPM1};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        float x[2] = {0.0f, -0.0f}, y[2] = {1, 1};
        const tt_strided_t in = tt_strided_row(x, TUTTI_F32, 2),
                           out = tt_strided_row(y, TUTTI_F32, 2);
        assert_int_equal(tt_map_unary(NULL, kinds[k], (tt_map_params_t){0}, &out, &in), 0);
        if (y[0] != 0 || y[1] != 0 || signbit(y[0]) || !signbit(y[1])) {
            fail_msg("%s gives %a at 0 and %a at -0", tt_unary_table[kinds[k]].name, (double)y[0],
                     (double)y[1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_within_three_ulp),
        cmocka_unit_test(functions_through_zero_keep_its_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
