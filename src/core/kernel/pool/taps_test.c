/* Weights of interpolation: Lanczos' against libm's sines, and their bits, which are the same on
 * every machine. */
#include "core/base/testing.h"

#include <math.h>

#include "core/kernel/pool/taps.h"

static const double pi = 3.14159265358979323846;

static double lanczos(double x)
{
    return x == 0 ? 1 : fabs(x) < 3 ? 3 * sin(pi * x) * sin(pi * x / 3) / (pi * pi * x * x) : 0;
}

/* Σ weight x[index] of element i, where x is 1 at j and 0 elsewhere. */
static double weight_of(const tt_taps_t *t, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t at = i; at < t->most * t->stride; at += t->stride) {
        const double weight = ((const double *)t->weight)[at];
        sum += weight != 0 && t->index[at] == j ? weight : 0;
    }
    return sum;
}

static void expect_lanczos(tt_line_t l)
{
    tt_taps_t t;
    assert_int_equal(tt_taps_of_line(&l, false, TUTTI_F64, &t), TUTTI_OK);
    const double step = (double)l.size / (double)l.out_size, stretch = fmax(step, 1);
    for (int64_t i = 0; i < l.out_size; i++) {
        double sum = 0;
        for (int64_t j = 0; j < l.size; j++) {
            sum += lanczos(((double)j + 0.5 - ((double)i + 0.5) * step) / stretch);
        }
        for (int64_t j = 0; j < l.size; j++) {
            const double x = ((double)j + 0.5 - ((double)i + 0.5) * step) / stretch;
            const double got = weight_of(&t, i, j), want = lanczos(x) / sum;
            if (!(fabs(got - want) <= 1e-15)) {
                fail_msg("%lld to %lld: weight of %lld in %lld is %a, not %a", (long long)l.size,
                         (long long)l.out_size, (long long)j, (long long)i, got, want);
            }
        }
    }
    tt_taps_free(&t);
}

static void lanczos_weights_are_products_of_sines_over_their_sum(void **state)
{
    (void)state;
    for (int64_t size = 1; size < 40; size++) {
        for (int64_t out_size = 1; out_size < 40; out_size++) {
            expect_lanczos((tt_line_t){.filter = TT_FILTER_LANCZOS,
                                       .size = size,
                                       .out_size = out_size,
                                       .antialias = true});
        }
    }
}

/* Where y is of x's size, each element is that of x: other sines are 0. */
static void lanczos_of_the_same_size_picks_each_element(void **state)
{
    (void)state;
    const tt_line_t l = {
        .filter = TT_FILTER_LANCZOS, .size = 100, .out_size = 100, .antialias = true};
    tt_taps_t t;
    assert_int_equal(tt_taps_of_line(&l, false, TUTTI_F64, &t), TUTTI_OK);
    assert_true(tt_taps_are_identity(&t, TUTTI_F64));
    tt_taps_free(&t);
}

static void expect_weights(tt_line_t l, int64_t i, const double want[6])
{
    tt_taps_t t;
    assert_int_equal(tt_taps_of_line(&l, false, TUTTI_F64, &t), TUTTI_OK);
    assert_int_equal(t.most, 6);
    for (int64_t k = 0; k < t.most; k++) {
        const double weight = ((const double *)t.weight)[i + k * t.stride];
        if (weight != want[k]) {
            fail_msg("tap %lld has the weight %a, not %a", (long long)k, weight, want[k]);
        }
    }
    tt_taps_free(&t);
}

/* Element 4 of 9 that become 13, and of 6 that become 9: there distances are halves, where all
 * terms of the series count. */
static void lanczos_weights_have_one_set_of_bits(void **state)
{
    (void)state;
    tt_line_t l = {.filter = TT_FILTER_LANCZOS, .size = 9, .out_size = 13, .antialias = true};
    expect_weights(l, 4,
                   (const double[]){0x1.0c2fb7afe6c1dp-6, -0x1.bd1c8c42f1a45p-4,
                                    0x1.d0044f41bec33p-2, 0x1.8387830723345p-1,
                                    -0x1.2eec513bc801ap-3, 0x1.ee6fae39cd223p-6});
    l.size = 6;
    l.out_size = 9;
    expect_weights(l, 4,
                   (const double[]){0x1.90b21642c858ep-6, -0x1.1642c8590b216p-3,
                                    0x1.390b21642c859p-1, 0x1.390b21642c859p-1,
                                    -0x1.1642c8590b216p-3, 0x1.90b21642c858ep-6});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanczos_weights_are_products_of_sines_over_their_sum),
        cmocka_unit_test(lanczos_of_the_same_size_picks_each_element),
        cmocka_unit_test(lanczos_weights_have_one_set_of_bits),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
