/* Every rule of updates.def: cuts and instruction sets change no bit, with and without the moments
 * that it may have. Formulas are tested in compute/optim and tests/golden. */
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "core/kernel/isa.h"
#include "core/kernel/kernels.h"
#include "core/kernel/optim/optim_steps.h"

enum { N = 4001, CUT = 1237, BUFFERS = 5 };

typedef struct {
    float x[BUFFERS][N]; /* weight, gradient, moments */
} state_t;

static state_t one, two;

static const struct {
    const char *name;
    int always, at_most;
} rules[] = {
#define TT_UPDATE(kind, always, at_most, source, ...) {#kind, always, at_most},
#include "core/kernel/optim/updates.def"
#undef TT_UPDATE
};

/* Second moments are not negative: all moments are squares. */
static void reset(state_t *s)
{
    const tt_rng_t rng = tt_rng_stream(6, 0, 0, 0, 0);
    for (uint64_t k = 0; k < BUFFERS; k++) {
        for (uint64_t i = 0; i < N; i++) {
            const float x = tt_rng_uniform(rng, k * N + i) - 0.5f;
            s->x[k][i] = i % 89 == 0 ? 0.0f : k < 2 ? x : x * x;
        }
    }
}

static void run(int rule, int moments, state_t *s, size_t from, size_t n)
{
    const tt_update_numbers_t numbers = {.sign = -1,
                                         .keep = 0.99,
                                         .decay = 0.1,
                                         .minus_lr = -0.3,
                                         .beta1 = 0.9,
                                         .gain1 = 0.1,
                                         .beta2 = 0.7,
                                         .gain2 = 0.3,
                                         .scale1 = 1.5,
                                         .root2 = 0.4,
                                         .eps = 1e-6,
                                         .momentum = 0.8,
                                         .initial = 0.2};
    const tt_update_buffers_t at = {
        s->x[0] + from, s->x[1] + from, moments & 1 ? s->x[2] + from : NULL,
        moments & 2 ? s->x[3] + from : NULL, moments & 4 ? s->x[4] + from : NULL};
    tt_kernels()->optim_steps->update[rule](&numbers, &at, n);
}

/* Which moments a rule can meet: those it always has, and any of the others. */
static bool is_possible(int rule, int moments)
{
    const int always = (1 << rules[rule].always) - 1, most = (1 << rules[rule].at_most) - 1;
    return (moments & always) == always && (moments & ~most) == 0;
}

static void cuts_and_variants_change_no_bit(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int rule = 0; rule < TT_UPDATE_COUNT; rule++) {
        for (int moments = 0; moments < 8; moments++) {
            for (int isa = 0; isa <= best && is_possible(rule, moments); isa++) {
                reset(&one);
                reset(&two);
                run(rule, moments, &one, 0, N);
                setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)isa), 1);
                run(rule, moments, &two, 0, CUT);
                assert_memory_not_equal(one.x[0], two.x[0], sizeof one.x[0]);
                run(rule, moments, &two, CUT, N - CUT);
                unsetenv("TUTTI_ISA");
                assert_memory_equal(&one, &two, sizeof one);
            }
        }
    }
}

/* A moment that is there moves, with the weight; the gradient stays. */
static void every_moment_moves(void **state)
{
    (void)state;
    for (int rule = 0; rule < TT_UPDATE_COUNT; rule++) {
        reset(&one);
        reset(&two);
        run(rule, (1 << rules[rule].at_most) - 1, &one, 0, N);
        for (int k = 0; k < BUFFERS; k++) {
            const bool moves = k != 1 && k < 2 + rules[rule].at_most;
            if (moves == (memcmp(one.x[k], two.x[k], sizeof one.x[k]) == 0)) {
                fail_msg("%s: buffer %d %s", rules[rule].name, k, moves ? "stays" : "moves");
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_and_variants_change_no_bit),
        cmocka_unit_test(every_moment_moves),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
