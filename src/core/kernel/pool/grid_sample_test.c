/* Grids of random shapes: f32 against f64, one set of bits over instruction sets and threads, dx as
 * the transpose of y. */
#include "core/kernel/bits_testing.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/pool/grid_sample.h"

enum { DRAWS = 60 };

typedef struct {
    tt_grid_sample_t t;
    int64_t x, y, grid; /* elements */
} problem_t;

/* x and dy are read; y, dx and dgrid written. */
typedef struct {
    void *x, *dy, *grid, *y, *dx, *dgrid;
} run_t;

static problem_t draw_problem(uint64_t seed)
{
    const tt_rng_t rng = tt_rng_stream(seed, 8, 0, 0, 0);
    uint64_t next = 0;
    problem_t p = {.t = {.batch = draw(rng, &next, 1, 3),
                         .channels = draw(rng, &next, 1, 20),
                         .dims = (int)draw(rng, &next, 2, 3),
                         .points = draw(rng, &next, 1, 200),
                         .mode = (tt_grid_mode_t)draw(rng, &next, 0, 2),
                         .padding = (tt_grid_padding_t)draw(rng, &next, 0, 2),
                         .align_corners = draw(rng, &next, 0, 1) == 1}};
    int64_t volume = 1;
    for (int i = 0; i < 3; i++) {
        p.t.size[i] = i == 0 && p.t.dims == 2 ? 1 : draw(rng, &next, 1, 9);
        volume *= p.t.size[i];
    }
    p.t.order[2] = (int)draw(rng, &next, 0, 1);
    p.t.order[1] = (int)draw(rng, &next, 0, 2) / 2;
    p.x = p.t.batch * p.t.channels * volume;
    p.y = p.t.batch * p.t.channels * p.t.points;
    p.grid = p.t.batch * p.t.points * p.t.dims;
    return p;
}

static void *random_numbers(int64_t n, tutti_dtype_t dtype, uint64_t seed, double scale)
{
    const tt_rng_t rng = tt_rng_stream(seed, 1, 2, 3, 4);
    void *list = tt_alloc((size_t)n * tutti_dtype_bytes(dtype), "numbers");
    assert_non_null(list);
    for (int64_t i = 0; i < n; i++) {
        const double x = ((double)(tt_rng_u32(rng, (uint64_t)i) >> 20) / 2048 - 1) * scale;
        if (dtype == TUTTI_F64) {
            ((double *)list)[i] = x;
        } else {
            ((float *)list)[i] = (float)x;
        }
    }
    return list;
}

static run_t make_run(const problem_t *p, tutti_dtype_t dtype)
{
    return (run_t){.x = random_numbers(p->x, dtype, 1, 2),
                   .dy = random_numbers(p->y, dtype, 2, 2),
                   .grid = random_numbers(p->grid, dtype, 3, 1.5),
                   .y = random_numbers(p->y, dtype, 4, 1),
                   .dx = random_numbers(p->x, dtype, 4, 1),
                   .dgrid = random_numbers(p->grid, dtype, 4, 1)};
}

static void free_run(run_t r)
{
    void *const all[] = {r.x, r.dy, r.grid, r.y, r.dx, r.dgrid};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_free(all[i]);
    }
}

static void compute(tt_threads_t *threads, problem_t p, tutti_dtype_t dtype, const run_t *r)
{
    tt_exec_t exec = {.threads = threads};
    p.t.dtype = dtype;
    assert_int_equal(tt_grid_sample(&exec, &p.t, r->x, r->grid, r->y), TUTTI_OK);
    assert_int_equal(tt_grid_spread(&exec, &p.t, r->dy, r->grid, r->dx), TUTTI_OK);
    assert_int_equal(tt_grid_slopes(&exec, &p.t, r->dy, r->x, r->grid, r->dgrid), TUTTI_OK);
}

static void expect_near(uint64_t seed, const char *what, const void *got, const void *want,
                        int64_t n)
{
    double size = 1;
    for (int64_t i = 0; i < n; i++) {
        size = fmax(size, fabs(((const double *)want)[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)((const float *)got)[i], b = ((const double *)want)[i];
        if (!(fabs(a - b) <= 2e-5 * size)) {
            fail_msg("TUTTI_SEED=%llu, %s: element %lld is %g, not %g", (unsigned long long)seed,
                     what, (long long)i, a, b);
        }
    }
}

/* Σ y dy = Σ x dx */
static void expect_transposed(const problem_t *p, const run_t *r)
{
    double left = 0, right = 0;
    for (int64_t i = 0; i < p->y; i++) {
        left += ((double *)r->y)[i] * ((double *)r->dy)[i];
    }
    for (int64_t i = 0; i < p->x; i++) {
        right += ((double *)r->x)[i] * ((double *)r->dx)[i];
    }
    assert_true(fabs(left - right) <= 1e-9 * (1 + fabs(left)));
}

static void expect_one_set_of_bits(tt_threads_t *const *pools, const problem_t *p,
                                   tutti_dtype_t dtype, const run_t *first)
{
    const size_t bytes = tutti_dtype_bytes(dtype);
    for (int way = 0; way < count_ways(); way++) {
        const run_t other = make_run(p, dtype);
        compute(begin_way(pools, way), *p, dtype, &other);
        end_way();
        assert_memory_equal(other.y, first->y, (size_t)p->y * bytes);
        assert_memory_equal(other.dx, first->dx, (size_t)p->x * bytes);
        assert_memory_equal(other.dgrid, first->dgrid, (size_t)p->grid * bytes);
        free_run(other);
    }
}

static void check(tt_threads_t *const *pools, uint64_t seed)
{
    const problem_t p = draw_problem(seed);
    const run_t exact = make_run(&p, TUTTI_F64), run = make_run(&p, TUTTI_F32);
    compute(NULL, p, TUTTI_F64, &exact);
    compute(NULL, p, TUTTI_F32, &run);
    expect_near(seed, "y", run.y, exact.y, p.y);
    expect_near(seed, "dx", run.dx, exact.dx, p.x);
    expect_near(seed, "dgrid", run.dgrid, exact.dgrid, p.grid);
    expect_transposed(&p, &exact);
    expect_one_set_of_bits(pools, &p, TUTTI_F64, &exact);
    expect_one_set_of_bits(pools, &p, TUTTI_F32, &run);
    free_run(exact);
    free_run(run);
}

static void random_grids_have_the_values_of_f64_and_one_set_of_bits(void **state)
{
    (void)state;
    check_seeds(DRAWS, check);
}

/* As torch: NaN where neither padding nor rounding makes a place of it. */
static void a_place_that_is_no_number_is_outside_or_shown(void **state)
{
    (void)state;
    static const struct {
        tt_grid_mode_t mode;
        tt_grid_padding_t padding;
        float y;
    } cases[] = {
        {TT_GRID_BILINEAR, TT_GRID_ZEROS, NAN},      {TT_GRID_NEAREST, TT_GRID_ZEROS, 0},
        {TT_GRID_BICUBIC, TT_GRID_ZEROS, NAN},       {TT_GRID_BILINEAR, TT_GRID_BORDER, 2.5F},
        {TT_GRID_NEAREST, TT_GRID_BORDER, 1},        {TT_GRID_BICUBIC, TT_GRID_BORDER, NAN},
        {TT_GRID_BILINEAR, TT_GRID_REFLECTION, 2.5F}};
    const float x[] = {1, 2, 3, 4, 5, 6}, grid[] = {NAN, 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tt_grid_sample_t t = {.batch = 1,
                                    .channels = 1,
                                    .dims = 2,
                                    .size = {1, 2, 3},
                                    .points = 1,
                                    .mode = cases[i].mode,
                                    .padding = cases[i].padding,
                                    .dtype = TUTTI_F32};
        float y = 7;
        assert_int_equal(tt_grid_sample(NULL, &t, x, grid, &y), TUTTI_OK);
        assert_true(isnan(cases[i].y) ? isnan(y) : y == cases[i].y);
    }
}

/* Infinite, or so in f32: as any place that is far outside. */
static void a_place_far_outside_has_what_is_there(void **state)
{
    (void)state;
    static const float places[] = {INFINITY, -INFINITY, 3.4e38F, -3.4e38F, 1e30F, -9};
    static const tt_grid_mode_t modes[] = {TT_GRID_BILINEAR, TT_GRID_NEAREST, TT_GRID_BICUBIC};
    static const float x[] = {1, 2, 3, 4, 5, 6}, dy = 1;
    for (int i = 0; i < 36; i++) {
        const float grid[] = {places[i % 6], 1.0F / 2};
        const bool is_border = i / 18 == 1;
        const tt_grid_sample_t t = {.batch = 1,
                                    .channels = 1,
                                    .dims = 2,
                                    .size = {1, 2, 3},
                                    .points = 1,
                                    .mode = modes[i / 6 % 3],
                                    .padding = is_border ? TT_GRID_BORDER : TT_GRID_ZEROS,
                                    .dtype = TUTTI_F32};
        float y = 7, dx[6], dgrid[] = {7, 7}, sum = 0;
        assert_int_equal(tt_grid_sample(NULL, &t, x, grid, &y), TUTTI_OK);
        assert_int_equal(tt_grid_spread(NULL, &t, &dy, grid, dx), TUTTI_OK);
        assert_int_equal(tt_grid_slopes(NULL, &t, &dy, x, grid, dgrid), TUTTI_OK);
        for (int k = 0; k < 6; k++) {
            sum += dx[k];
        }
        assert_true(y == (!is_border ? 0.0F : grid[0] > 0 ? 6.0F : 4.0F));
        assert_true(sum == (is_border ? 1.0F : 0.0F) && dgrid[0] == 0);
    }
}

/* y is NaN, which may be masked: x has nothing of it. */
static void a_place_that_is_no_number_reaches_no_element(void **state)
{
    (void)state;
    static const tt_grid_mode_t modes[] = {TT_GRID_BILINEAR, TT_GRID_NEAREST, TT_GRID_BICUBIC};
    static const float grid[] = {NAN, 0, 0, NAN}, dy[] = {0, 1};
    for (int i = 0; i < 3; i++) {
        const tt_grid_sample_t t = {.batch = 1,
                                    .channels = 1,
                                    .dims = 2,
                                    .size = {1, 2, 3},
                                    .points = 2,
                                    .mode = modes[i],
                                    .dtype = TUTTI_F32};
        float dx[6];
        assert_int_equal(tt_grid_spread(NULL, &t, dy, grid, dx), TUTTI_OK);
        for (int k = 0; k < 6; k++) {
            assert_true(dx[k] == 0);
        }
    }
}

static void an_infinite_element_beside_the_place_does_not_count(void **state)
{
    (void)state;
    const tt_grid_sample_t t = {
        .batch = 1, .channels = 1, .dims = 2, .size = {1, 1, 2}, .points = 2, .dtype = TUTTI_F32};
    const float x[] = {1, INFINITY}, grid[] = {-0.5F, 0, -1, 0};
    float y[2] = {7, 7};
    assert_int_equal(tt_grid_sample(NULL, &t, x, grid, y), TUTTI_OK);
    assert_true(y[0] == 1 && y[1] == 0.5F);
}

/* All taps of the first point have the weight 0, and so have their derivatives. */
static void infinite_numbers_of_a_place_far_outside_do_not_count(void **state)
{
    (void)state;
    const tt_grid_sample_t t = {
        .batch = 1, .channels = 1, .dims = 2, .size = {1, 1, 2}, .points = 2, .dtype = TUTTI_F32};
    const float x[] = {INFINITY, 1}, grid[] = {-5, 0, 0.5F, 0}, dy[] = {INFINITY, 2};
    float y[2] = {7, 7}, dx[2] = {7, 7}, dgrid[4] = {7, 7, 7, 7};
    assert_int_equal(tt_grid_sample(NULL, &t, x, grid, y), TUTTI_OK);
    assert_int_equal(tt_grid_spread(NULL, &t, dy, grid, dx), TUTTI_OK);
    assert_int_equal(tt_grid_slopes(NULL, &t, dy, x, grid, dgrid), TUTTI_OK);
    assert_true(y[0] == 0 && y[1] == 1);
    assert_true(dx[0] == 0 && dx[1] == 2);
    assert_true(dgrid[0] == 0 && dgrid[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_grids_have_the_values_of_f64_and_one_set_of_bits),
        cmocka_unit_test(a_place_that_is_no_number_is_outside_or_shown),
        cmocka_unit_test(a_place_far_outside_has_what_is_there),
        cmocka_unit_test(a_place_that_is_no_number_reaches_no_element),
        cmocka_unit_test(an_infinite_element_beside_the_place_does_not_count),
        cmocka_unit_test(infinite_numbers_of_a_place_far_outside_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
