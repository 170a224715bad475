/* Pooling and interpolation of random shapes: narrow dtypes against f64, one set
 * of bits over instruction sets and threads, nothing written behind a result. */
#include "core/kernel/bits_testing.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/pool/interpolate.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/pool/pooling.h"

enum { DRAWS = 60, GUARD = 64 };

typedef enum { MAX, MEAN, OTHER_SIZE, KIND_COUNT = OTHER_SIZE + TT_FILTER_AREA + 1 } kind_t;

/* A problem, and one run of it: values and indices of y, then the gradient. */
typedef struct {
    kind_t kind;
    tt_pooling_t p;
    tt_interpolate_t t;
    int64_t x, y; /* elements */
} problem_t;

typedef struct {
    char *x, *y, *dy, *dx;
    int32_t *at;
} run_t;

static void draw_windows(tt_rng_t rng, uint64_t *next, tt_pooling_t *p)
{
    for (int i = 0; i < 2; i++) {
        p->size[i] = draw(rng, next, 1, i == 0 ? 9 : 50);
        p->dilation[i] = 1;
        if (p->is_adaptive) {
            p->out_size[i] = draw(rng, next, 1, 12);
            continue;
        }
        const int64_t few = p->size[i] < 5 ? p->size[i] : 5;
        const bool is_mostly_padding = draw(rng, next, 0, 5) == 0;
        p->kernel[i] = is_mostly_padding ? 2 * p->size[i] : draw(rng, next, 1, few);
        p->padding[i] = is_mostly_padding ? p->size[i] : draw(rng, next, 0, p->kernel[i] / 2);
        p->stride[i] = draw(rng, next, 1, draw(rng, next, 0, 3) == 0 ? 10 : 3);
        const int64_t room = p->size[i] + 2 * p->padding[i] - p->kernel[i];
        const int64_t steps = room / p->stride[i], rest = room % p->stride[i];
        const bool is_cut = rest > 0 && (steps + 1) * p->stride[i] < p->size[i] + p->padding[i];
        p->out_size[i] = steps + 1 + (is_cut ? draw(rng, next, 0, 1) : 0);
    }
}

static tt_line_t draw_line(tt_rng_t rng, uint64_t *next, kind_t kind, int64_t size,
                           int64_t out_size)
{
    const double scale = ((double)out_size + 0.25) / (double)size;
    return (tt_line_t){.filter = (tt_filter_t)(kind - OTHER_SIZE),
                       .size = size,
                       .out_size = out_size,
                       .scale = draw(rng, next, 0, 2) == 0 ? scale : 0,
                       .align_corners = draw(rng, next, 0, 1) == 1,
                       .antialias = draw(rng, next, 0, 1) == 1};
}

static problem_t draw_problem(uint64_t seed)
{
    const tt_rng_t rng = tt_rng_stream(seed, 7, 0, 0, 0);
    uint64_t next = 0;
    problem_t problem = {.kind = (kind_t)draw(rng, &next, 0, KIND_COUNT - 1)};
    tt_pooling_t *p = &problem.p;
    p->planes = draw(rng, &next, 1, 200);
    p->is_adaptive = problem.kind >= OTHER_SIZE || draw(rng, &next, 0, 5) == 0;
    p->excludes_padding = draw(rng, &next, 0, 1) == 1;
    draw_windows(rng, &next, p);
    if (problem.kind == MAX && !p->is_adaptive && p->size[1] > 3 * p->kernel[1]) {
        p->dilation[1] = 2;
        p->out_size[1] =
            (p->size[1] + 2 * p->padding[1] - 2 * (p->kernel[1] - 1) - 1) / p->stride[1] + 1;
    }
    problem.t.planes = p->planes;
    for (int i = 0; i < 2 && problem.kind >= OTHER_SIZE; i++) {
        problem.t.lines[i] = draw_line(rng, &next, problem.kind, p->size[i], p->out_size[i]);
    }
    problem.x = p->planes * p->size[0] * p->size[1];
    problem.y = p->planes * p->out_size[0] * p->out_size[1];
    return problem;
}

static void convert(void *out, tutti_dtype_t to, void *in, tutti_dtype_t from, int64_t n)
{
    const tt_strided_t y = {.data = out, .dtype = to, .rank = 1, .shape = {n}, .strides = {1}};
    const tt_strided_t x = {.data = in, .dtype = from, .rank = 1, .shape = {n}, .strides = {1}};
    tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &y, &x);
}

/* n elements and a guard, all bytes 0x55. */
static char *room_for(int64_t n, size_t bytes)
{
    char *room = tt_alloc((size_t)n * bytes + GUARD, "room");
    assert_non_null(room);
    memset(room, 0x55, (size_t)n * bytes + GUARD);
    return room;
}

static void expect_guard(const char *room, int64_t n, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(room[(size_t)n * bytes + i], 0x55);
    }
}

/* Numbers that every dtype holds exactly, with ties among them. */
static run_t make_run(const problem_t *problem, tutti_dtype_t dtype)
{
    const size_t bytes = tutti_dtype_bytes(dtype);
    const int64_t most = problem->x > problem->y ? problem->x : problem->y;
    const tt_rng_t rng = tt_rng_stream(3, 1, 2, 3, 4);
    double *values = tt_alloc((size_t)most * sizeof *values, "values");
    assert_non_null(values);
    for (int64_t i = 0; i < most; i++) {
        values[i] = (double)((int)(tt_rng_u32(rng, (uint64_t)i) >> 27) - 14) / 4;
    }
    const run_t run = {.x = tt_alloc((size_t)problem->x * bytes, "x"),
                       .y = room_for(problem->y, bytes),
                       .dy = tt_alloc((size_t)problem->y * bytes, "dy"),
                       .dx = room_for(problem->x, sizeof(double)),
                       .at = (int32_t *)(void *)room_for(problem->y, sizeof(int32_t))};
    convert(run.x, dtype, values, TUTTI_F64, problem->x);
    convert(run.dy, dtype, values, TUTTI_F64, problem->y);
    tt_free(values);
    return run;
}

static void free_run(run_t run)
{
    tt_free(run.x);
    tt_free(run.y);
    tt_free(run.dy);
    tt_free(run.dx);
    tt_free(run.at);
}

static tutti_dtype_t gradient_dtype(const problem_t *problem, tutti_dtype_t dtype)
{
    const bool is_wide =
        problem->kind == MAX && dtype != TUTTI_F64 && !tt_pooling_is_disjoint(&problem->p);
    return is_wide ? TUTTI_F32 : dtype;
}

static void compute(tt_threads_t *threads, problem_t problem, tutti_dtype_t dtype, const run_t *run)
{
    tt_exec_t exec = {.threads = threads};
    problem.p.dtype = problem.t.dtype = dtype;
    if (problem.kind == MAX) {
        assert_int_equal(tt_pooling_max(&exec, &problem.p, run->x, run->y, run->at), 0);
        assert_int_equal(tt_pooling_max_backward(&exec, &problem.p, run->dy, run->at, run->dx), 0);
    } else if (problem.kind == MEAN) {
        assert_int_equal(tt_pooling_average(&exec, &problem.p, run->x, run->y), 0);
        assert_int_equal(tt_pooling_average_backward(&exec, &problem.p, run->dy, run->dx), 0);
    } else {
        assert_int_equal(tt_interpolate(&exec, &problem.t, run->x, run->y), 0);
        assert_int_equal(tt_interpolate_backward(&exec, &problem.t, run->dy, run->dx), 0);
    }
    expect_guard(run->y, problem.y, tutti_dtype_bytes(dtype));
    expect_guard(run->dx, problem.x, tutti_dtype_bytes(gradient_dtype(&problem, dtype)));
    expect_guard((char *)run->at, problem.y, sizeof(int32_t));
}

static void compare(const char *what, uint64_t seed, void *got, tutti_dtype_t dtype,
                    const double *want, int64_t n)
{
    const double tolerance = dtype == TUTTI_BF16 ? 1e-2 : dtype == TUTTI_F16 ? 2e-3 : 1e-5;
    double *values = tt_alloc((size_t)n * sizeof *values, "values");
    assert_non_null(values);
    convert(values, TUTTI_F64, got, dtype, n);
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(values[i] - want[i]) <= tolerance * (1 + fabs(want[i])))) {
            fail_msg("TUTTI_SEED=%llu, %s in %s: element %lld is %g, not %g",
                     (unsigned long long)seed, what, tutti_dtype_name(dtype), (long long)i,
                     values[i], want[i]);
        }
    }
    tt_free(values);
}

/* All ways have the first one's bits. */
static void expect_one_set_of_bits(tt_threads_t *const *pools, const problem_t *problem,
                                   tutti_dtype_t dtype, const run_t *first)
{
    const size_t bytes = tutti_dtype_bytes(dtype);
    const size_t dx_bytes = tutti_dtype_bytes(gradient_dtype(problem, dtype));
    for (int way = 0; way < count_ways(); way++) {
        const run_t other = make_run(problem, dtype);
        compute(begin_way(pools, way), *problem, dtype, &other);
        end_way();
        assert_memory_equal(other.y, first->y, (size_t)problem->y * bytes);
        assert_memory_equal(other.dx, first->dx, (size_t)problem->x * dx_bytes);
        assert_memory_equal(other.at, first->at, (size_t)problem->y * sizeof *other.at);
        free_run(other);
    }
}

static void check(tt_threads_t *const *pools, uint64_t seed)
{
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    const problem_t problem = draw_problem(seed);
    const run_t exact = make_run(&problem, TUTTI_F64);
    compute(NULL, problem, TUTTI_F64, &exact);
    for (size_t d = 0; d < 3; d++) {
        const run_t run = make_run(&problem, dtypes[d]);
        compute(NULL, problem, dtypes[d], &run);
        compare("y", seed, run.y, dtypes[d], (double *)(void *)exact.y, problem.y);
        compare("dx", seed, run.dx, gradient_dtype(&problem, dtypes[d]), (double *)(void *)exact.dx,
                problem.x);
        assert_memory_equal(run.at, exact.at, (size_t)problem.y * sizeof *run.at);
        expect_one_set_of_bits(pools, &problem, dtypes[d], &run);
        free_run(run);
    }
    free_run(exact);
}

static void random_shapes_have_the_values_of_f64_and_one_set_of_bits(void **state)
{
    (void)state;
    check_seeds(DRAWS, check);
}

static void a_window_of_padding_alone_has_no_maximum(void **state)
{
    (void)state;
    const tt_pooling_t p = {.planes = 1,
                            .size = {1, 2},
                            .out_size = {1, 1},
                            .kernel = {1, 2},
                            .stride = {1, 2},
                            .padding = {0, 1},
                            .dilation = {1, 3},
                            .dtype = TUTTI_F32};
    const float x[] = {1, 2}, dy = 3;
    float y = 0, dx[] = {5, 5};
    int32_t at = 7;
    assert_int_equal(tt_pooling_max(NULL, &p, x, &y, &at), TUTTI_OK);
    assert_true(y == -INFINITY && at == -1);
    assert_int_equal(tt_pooling_max_backward(NULL, &p, &dy, &at, dx), TUTTI_OK);
    assert_true(dx[0] == 0 && dx[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_have_the_values_of_f64_and_one_set_of_bits),
        cmocka_unit_test(a_window_of_padding_alone_has_no_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
