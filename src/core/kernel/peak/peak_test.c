/* The peak of a core is what no product exceeds, of those that add and multiply in f32. */
#include "core/kernel/peak/peak.h"

#include <tutti/tutti.h>

#include "core/base/clock.h"
#include "core/base/testing.h"

enum { WIDTH = 384, RUNS = 20 };

/* GFLOP/s of the fastest of some products on this thread. */
static double rate_of_products(tutti_context_t *ctx)
{
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(WIDTH, WIDTH));
        const int64_t begin = tt_clock_ns();
        (void)tutti_matmul(s, x, x);
        const double rate = 2.0 * WIDTH * WIDTH * WIDTH / (double)(tt_clock_ns() - begin);
        best = rate > best ? rate : best;
        assert_int_equal(tutti_scope_close(s), 0);
    }
    return best;
}

/* A tenth is for the clock, and for others who want the core. */
static void no_product_is_faster(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    double peak = 0;
    for (int i = 0; i < 3; i++) {
        const double now = tt_core_peak();
        peak = now > peak ? now : peak;
    }
    const double rate = rate_of_products(ctx);
    print_message("peak %.1f GFLOP/s, products %.1f\n", peak, rate);
    assert_true(peak > 0.9 * rate);
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_product_is_faster)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
