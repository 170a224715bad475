/* Draws by weights: how often, in what order, of weights that are tiny or huge. Streams are fixed:
 * the same draws every time. */
#include <math.h>

#include "core/base/testing.h"
#include "core/kernel/random/multinomial.h"

enum { DRAWS = 40000 };

static int64_t out[DRAWS];

static tt_multinomial_t choice_of(const double *weights, int64_t rows, int64_t length,
                                  int64_t count)
{
    return (tt_multinomial_t){.at = {tt_rng_stream(5, 0, 0, 0, 0), 0},
                              .out = out,
                              .weights = weights,
                              .rows = rows,
                              .length = length,
                              .count = count,
                              .replaces = true};
}

/* Within five standard deviations of n p. */
static void expect_often(int64_t count, double p)
{
    const double n = DRAWS, spread = sqrt(n * p * (1 - p));
    if (fabs((double)count - n * p) > 5 * spread) {
        fail_msg("%lld of %d draws, for a probability of %g", (long long)count, DRAWS, p);
    }
}

static void weights_are_how_often_with_replacement(void **state)
{
    (void)state;
    const double scales[] = {1, 1e-310, 3e307};
    for (int k = 0; k < 3; k++) {
        double weights[5] = {1, 0, 2, 0, 5};
        int64_t counts[5] = {0};
        for (int i = 0; i < 5; i++) {
            weights[i] *= scales[k];
        }
        const tt_multinomial_t choice = choice_of(weights, 1, 5, DRAWS);
        assert_int_equal(tt_multinomial(NULL, &choice), 0);
        for (int i = 0; i < DRAWS; i++) {
            counts[out[i]]++;
        }
        assert_true(counts[1] == 0 && counts[3] == 0);
        expect_often(counts[0], 0.125);
        expect_often(counts[2], 0.25);
    }
}

/* Rows of two draws of three weights: the first is as with replacement, and never the same again.
 */
static void draws_without_replacement_differ(void **state)
{
    (void)state;
    enum { ROWS = DRAWS / 2 };
    static double weights[ROWS * 3];
    const double scales[] = {1, 1e-310, 3e307};
    for (int k = 0; k < 3; k++) {
        int64_t first[3] = {0}, both = 0;
        for (int i = 0; i < ROWS * 3; i++) {
            weights[i] = (1 + i % 3) * scales[k];
        }
        tt_multinomial_t choice = choice_of(weights, ROWS, 3, 2);
        choice.replaces = false;
        assert_int_equal(tt_multinomial(NULL, &choice), 0);
        for (int i = 0; i < ROWS; i++) {
            assert_true(out[2 * i] != out[2 * i + 1]);
            first[out[2 * i]] += 2; /* of half as many draws */
            both += out[2 * i] + out[2 * i + 1] == 1 ? 2 : 0;
        }
        for (int i = 0; i < 3; i++) {
            const double p = (1 + i) / 6.0, n = ROWS;
            assert_true(fabs((double)first[i] / 2 - n * p) < 5 * sqrt(n * p * (1 - p)));
        }
        const double p = 1 / 6.0 * 2 / 5 + 2 / 6.0 * 1 / 4, n = ROWS;
        assert_true(fabs((double)both / 2 - n * p) < 5 * sqrt(n * p * (1 - p)));
    }
}

static void rows_that_cannot_be_drawn_from_are_named(void **state)
{
    (void)state;
    const double bad[][3] = {{1, NAN, 1}, {1, INFINITY, 1}, {1, -1, 1}, {0, 0, 0}};
    for (int i = 0; i < 4; i++) {
        const double weights[6] = {1, 1, 1, bad[i][0], bad[i][1], bad[i][2]};
        const tt_multinomial_t choice = choice_of(weights, 2, 3, 1);
        assert_int_equal(tt_multinomial(NULL, &choice), TUTTI_ERR_ARG);
        tt_expect_error("row 1");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_how_often_with_replacement),
        cmocka_unit_test(draws_without_replacement_differ),
        cmocka_unit_test(rows_that_cannot_be_drawn_from_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
