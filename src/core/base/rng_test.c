/* Philox4x32-10 against the vectors that Random123 publishes (kat_vectors), and what is made of
 * it: streams, ranges, uniform and normal numbers. */
#include "core/base/testing.h"

#include <math.h>

#include "core/base/rng.h"

typedef struct {
    uint32_t counter[4], key[2], result[4];
} vector_t;

static const vector_t vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const vector_t *v = &vectors[i];
        const tt_rng_t rng = {.key = {v->key[0], v->key[1]},
                              .salt = {v->counter[2], v->counter[3]}};
        const uint64_t block = (uint64_t)v->counter[1] << 32 | v->counter[0];
        const tt_rng_block_t made = tt_rng_block(rng, block);
        assert_memory_equal(made.v, v->result, sizeof v->result);
    }
}

static void a_number_depends_on_its_index_alone(void **state)
{
    (void)state;
    const tt_rng_t rng = tt_rng_stream(1, 2, 3, 4, 5);
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(tt_rng_u32(rng, i), tt_rng_block(rng, i / 4).v[i % 4]);
    }
}

static void every_part_of_a_name_makes_another_stream(void **state)
{
    (void)state;
    const tt_rng_t streams[] = {
        tt_rng_stream(0, 0, 0, 0, 0), tt_rng_stream(1, 0, 0, 0, 0), tt_rng_stream(0, 1, 0, 0, 0),
        tt_rng_stream(0, 0, 1, 0, 0), tt_rng_stream(0, 0, 0, 1, 0), tt_rng_stream(0, 0, 0, 0, 1),
        tt_rng_stream(2, 1, 0, 0, 0), tt_rng_stream(1, 2, 0, 0, 0),
    };
    enum { COUNT = sizeof streams / sizeof streams[0] };
    for (int a = 0; a < COUNT; a++) {
        for (int b = 0; b < a; b++) {
            const tt_rng_block_t x = tt_rng_block(streams[a], 0), y = tt_rng_block(streams[b], 0);
            assert_memory_not_equal(x.v, y.v, sizeof x.v);
        }
    }
    const tt_rng_t again = tt_rng_stream(0, 1, 0, 0, 0);
    assert_memory_equal(&again, &streams[2], sizeof again);
}

static void below_is_the_upper_part_of_the_exact_product(void **state)
{
    (void)state;
    const tt_rng_t rng = tt_rng_stream(7, 0, 0, 0, 0);
    const uint64_t bounds[] = {1, 2, 3, 10, 60000, UINT32_MAX, UINT64_C(1) << 40, UINT64_MAX >> 1};
    for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
        for (uint64_t i = 0; i < 200; i++) {
            const tt_rng_block_t block = tt_rng_block(rng, i);
            const uint64_t word = (uint64_t)block.v[0] << 32 | block.v[1];
            __extension__ typedef unsigned __int128 wide_t;
            const uint64_t expected = (uint64_t)((wide_t)word * bounds[b] >> 64);
            assert_true(tt_rng_below(rng, i, bounds[b]) == expected);
            assert_true(expected < bounds[b]);
        }
    }
}

static void below_gives_every_value_about_equally_often(void **state)
{
    (void)state;
    enum { BOUND = 10, DRAWS = 20000 };
    const double expected = (double)DRAWS / BOUND;
    const tt_rng_t rng = tt_rng_stream(3, 0, 0, 0, 0);
    int counts[BOUND] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        counts[tt_rng_below(rng, i, BOUND)]++;
    }
    double chi2 = 0;
    for (int i = 0; i < BOUND; i++) {
        const double off = counts[i] - expected;
        chi2 += off * off / expected;
    }
    assert_true(chi2 < 27.9); /* 9 degrees of freedom: one seed in a thousand is above */
}

enum { SAMPLES = 40000 };

static void uniform_numbers_fill_the_unit_interval(void **state)
{
    (void)state;
    const tt_rng_t rng = tt_rng_stream(4, 0, 0, 0, 0);
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const double u = tt_rng_uniform(rng, i);
        assert_true(u >= 0 && u < 1);
        assert_true(u * 0x1p24 == floor(u * 0x1p24));
        sum += u;
        squares += u * u;
    }
    assert_true(fabs(sum / SAMPLES - 0.5) < 0.006);
    assert_true(fabs(squares / SAMPLES - 1.0 / 3) < 0.006);
}

static void normal_numbers_have_the_moments_of_the_normal_law(void **state)
{
    (void)state;
    const tt_rng_t rng = tt_rng_stream(5, 0, 0, 0, 0);
    double moments[5] = {0};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const double z = tt_rng_normal(rng, i);
        assert_true(isfinite(z));
        double power = 1;
        for (int m = 0; m < 5; m++) {
            moments[m] += power / SAMPLES;
            power *= z;
        }
    }
    assert_true(fabs(moments[1]) < 0.02);
    assert_true(fabs(moments[2] - 1) < 0.03);
    assert_true(fabs(moments[3]) < 0.08);
    assert_true(fabs(moments[4] - 3) < 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(a_number_depends_on_its_index_alone),
        cmocka_unit_test(every_part_of_a_name_makes_another_stream),
        cmocka_unit_test(below_is_the_upper_part_of_the_exact_product),
        cmocka_unit_test(below_gives_every_value_about_equally_often),
        cmocka_unit_test(uniform_numbers_fill_the_unit_interval),
        cmocka_unit_test(normal_numbers_have_the_moments_of_the_normal_law),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
