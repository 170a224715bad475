/* Distances of tiles, against their formulas, in f32 and f64: coincident rows, several matrices,
 * every rest of a group and of a vector; and their bits over threads and instruction sets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/dtype.h>

#include "core/base/testing.h"
#include "core/kernel/distance/distances.h"

enum { ROWS_MAX = 150, N_MAX = 70, BATCH = 2, SIZE = BATCH * ROWS_MAX * N_MAX };
enum { PAIRS = BATCH * ROWS_MAX * ROWS_MAX };

typedef struct {
    double x[SIZE], y[SIZE], d[PAIRS], dd[PAIRS], dx[SIZE], dy[SIZE];
} numbers_t; /* also as f32 */

static numbers_t in, got;
static double want_d[PAIRS], want_dx[SIZE], want_dy[SIZE];

static double get(const double *array, size_t at, bool is_wide)
{
    return is_wide ? array[at] : (double)((const float *)array)[at];
}

static void put(double *array, size_t at, bool is_wide, double value)
{
    if (is_wide) {
        array[at] = value;
    } else {
        ((float *)array)[at] = (float)value;
    }
}

/* Sixteenths, of which some differ by nothing; row 1 of y is row 0 of x. */
static void fill(const tt_distances_t *job)
{
    unsigned seed = 7;
    const size_t x = job->batch * job->rows * job->n, y = job->batch * job->others * job->n;
    for (size_t i = 0; i < SIZE; i++) {
        seed = seed * 1664525u + 1013904223u;
        put(in.x, i, job->is_wide, i < x ? (double)(seed >> 27) / 16 - 1 : 0);
        seed = seed * 1664525u + 1013904223u;
        put(in.y, i, job->is_wide, i < y ? (double)(seed >> 27) / 16 - 1 : 0);
    }
    for (size_t i = 0; i < PAIRS; i++) {
        seed = seed * 1664525u + 1013904223u;
        put(in.dd, i, job->is_wide, (double)(seed >> 27) / 16 - 0.9);
    }
    for (size_t i = 0; i < job->n && job->others > 1; i++) {
        put(in.y, job->n + i, job->is_wide, get(in.x, i, job->is_wide));
        put(in.x, (job->rows - 1) * job->n + i, job->is_wide, get(in.x, i, job->is_wide));
    }
}

static double plain_distance(const tt_distances_t *job, const double *a, size_t i, const double *b,
                             size_t j)
{
    double sum = 0;
    for (size_t k = 0; k < job->n; k++) {
        const double t =
            fabs(get(a, i * job->n + k, job->is_wide) - get(b, j * job->n + k, job->is_wide));
        sum = isinf(job->p) ? fmax(sum, t) : job->p == 0 ? sum + (t != 0) : sum + pow(t, job->p);
    }
    return isinf(job->p) || job->p == 0 ? sum : pow(sum, 1 / job->p);
}

static double plain_slope(double p, double t, double d)
{
    const double sign = (t > 0) - (t < 0);
    if (d == 0 || t == 0 || p == 0) {
        return 0;
    }
    return isinf(p) ? (fabs(t) >= d * (1 - 1e-6) ? sign : 0) : sign * pow(fabs(t) / d, p - 1);
}

/* One pair: its distance, and what it adds to both gradients. */
static void expect_pair(const tt_distances_t *job, size_t at, size_t i, size_t j)
{
    const double *y = job->is_own ? in.x : in.y, dd = get(in.dd, at, job->is_wide);
    const double d = want_d[at] = plain_distance(job, in.x, i, y, j);
    double *dy = job->is_own ? want_dx : want_dy;
    for (size_t k = 0; k < job->n; k++) {
        const double t =
            get(in.x, i * job->n + k, job->is_wide) - get(y, j * job->n + k, job->is_wide);
        want_dx[i * job->n + k] += dd * plain_slope(job->p, t, d);
        dy[j * job->n + k] -= dd * plain_slope(job->p, t, d);
    }
}

static size_t expect_pairs(const tt_distances_t *job)
{
    size_t at = 0;
    memset(want_dx, 0, sizeof want_dx);
    memset(want_dy, 0, sizeof want_dy);
    for (size_t i = 0; i < job->batch * job->rows; i++) {
        const size_t matrix = i / job->rows * job->others;
        for (size_t j = job->is_own ? i + 1 : matrix; j < matrix + job->others; j++) {
            expect_pair(job, at++, i, j);
        }
    }
    return at;
}

static void run(tt_threads_t *threads, tt_distances_t job)
{
    tt_exec_t exec = {.threads = threads};
    memset(&got, 0xFF, sizeof got);
    job.x = in.x;
    job.y = job.is_own ? in.x : in.y;
    job.d = got.d;
    job.dd = in.dd;
    job.dx = got.dx;
    job.dy = job.is_own ? NULL : got.dy;
    assert_int_equal(tt_distances(&exec, &job), TUTTI_OK);
    assert_int_equal(tt_distances_backward(&exec, &job), TUTTI_OK);
}

static void expect_near(const tt_distances_t *job, const double *values, const double *wanted,
                        size_t count)
{
    const double bound = job->is_wide ? 1e-12 : 2e-5;
    for (size_t i = 0; i < count; i++) {
        const double value = get(values, i, job->is_wide);
        if (!(fabs(value - wanted[i]) <= bound * (10 + fabs(wanted[i])))) {
            fail_msg("p %g, %zu × %zu × %zu, %zu: %.17g, not %.17g", job->p, job->rows, job->others,
                     job->n, i, value, wanted[i]);
        }
    }
}

static const double norms[] = {0, 0.5, 1, 1.5, 2, 3, INFINITY};

static void check(tt_distances_t job)
{
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        job.p = norms[k];
        fill(&job);
        const size_t pairs = expect_pairs(&job);
        run(NULL, job);
        expect_near(&job, got.d, want_d, pairs);
        expect_near(&job, got.dx, want_dx, job.batch * job.rows * job.n);
        if (!job.is_own) {
            expect_near(&job, got.dy, want_dy, job.batch * job.others * job.n);
        }
    }
}

/* The last ones are more than a tile has: rows, others and elements. */
static void distances_have_the_values_of_their_formulas(void **state)
{
    static const size_t lengths[] = {1, 5, 16, 35, N_MAX, 3}, counts[] = {2, 3, 17, 40, 70, 150};
    (void)state;
    for (int i = 0; i < 6; i++) {
        for (int is_wide = 0; is_wide < 2; is_wide++) {
            check((tt_distances_t){.is_wide = is_wide,
                                   .batch = BATCH,
                                   .rows = counts[i],
                                   .others = counts[5 - i],
                                   .n = lengths[i]});
            check((tt_distances_t){.is_wide = is_wide,
                                   .is_own = true,
                                   .batch = 1,
                                   .rows = counts[i],
                                   .others = counts[i],
                                   .n = lengths[5 - i]});
        }
    }
}

/* Many rows of a tile, many tiles of others. */
static void threads_change_no_bit(void **state)
{
    static numbers_t alone;
    tt_threads_t *threads;
    (void)state;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    for (int k = 0; k < 4; k++) {
        const bool is_own = k % 2 == 1;
        const tt_distances_t job = {.is_own = is_own,
                                    .p = 2,
                                    .batch = is_own ? 1 : BATCH,
                                    .rows = ROWS_MAX,
                                    .others = ROWS_MAX,
                                    .n = k < 2 ? N_MAX : 3};
        fill(&job);
        run(NULL, job);
        alone = got;
        run(threads, job);
        assert_memory_equal(&alone, &got, sizeof got);
        const size_t pairs = expect_pairs(&job);
        expect_near(&job, got.d, want_d, pairs);
        expect_near(&job, got.dx, want_dx, job.batch * job.rows * job.n);
    }
    tt_threads_release(threads);
}

/* Of each norm, with a rest of a group and of a vector. */
static void instruction_sets_change_no_bit(void **state)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    static numbers_t first;
    (void)state;
    const size_t norm_count = sizeof norms / sizeof *norms;
    for (size_t k = 0; k < 4 * norm_count; k++) {
        const tt_distances_t job = {.is_wide = k % 2 == 1,
                                    .p = norms[k / 4],
                                    .batch = BATCH,
                                    .rows = 23,
                                    .others = 21,
                                    .n = k % 4 < 2 ? 45 : 7};
        fill(&job);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            setenv("TUTTI_ISA", names[i], 1);
            if (tt_isa_check() >= 0) {
                run(NULL, job);
                first = i == 0 ? got : first;
                assert_memory_equal(&first, &got, sizeof got);
            }
        }
    }
    unsetenv("TUTTI_ISA");
}

static void a_difference_that_is_no_number_shows(void **state)
{
    (void)state;
    tt_distances_t job = {.batch = 1, .rows = 1, .others = 1, .n = 3};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        job.p = norms[k];
        fill(&job);
        put(in.x, 1, false, NAN);
        run(NULL, job);
        assert_true(isnan(get(got.d, 0, false)));
    }
}

/* It has no pair, not even with itself. */
static void an_infinite_row_alone_has_no_slope(void **state)
{
    (void)state;
    tt_distances_t job = {.is_own = true, .batch = 1, .rows = 1, .others = 1, .n = 3, .p = 2};
    fill(&job);
    put(in.x, 1, false, INFINITY);
    run(NULL, job);
    for (size_t k = 0; k < 3; k++) {
        assert_true(get(got.dx, k, false) == 0);
    }
}

/* |t|^3 is 0 in f32, t is not. */
static void a_distance_that_underflows_has_no_slope(void **state)
{
    (void)state;
    tt_distances_t job = {.batch = 1, .rows = 1, .others = 1, .n = 3, .p = 3};
    fill(&job);
    for (size_t k = 0; k < 3; k++) {
        put(in.x, k, false, 1e-20);
        put(in.y, k, false, 0);
    }
    run(NULL, job);
    assert_true(get(got.d, 0, false) == 0);
    for (size_t k = 0; k < 3; k++) {
        assert_true(get(got.dx, k, false) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_have_the_values_of_their_formulas),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(instruction_sets_change_no_bit),
        cmocka_unit_test(a_difference_that_is_no_number_shows),
        cmocka_unit_test(an_infinite_row_alone_has_no_slope),
        cmocka_unit_test(a_distance_that_underflows_has_no_slope),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
