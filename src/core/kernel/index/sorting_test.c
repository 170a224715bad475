/* Sorting against a plain insertion: every dtype, lines of all lengths at which another algorithm
 * begins, ties, NaN, both zeros, strides, a few of many, and any number of threads. Values are
 * those of seed 1, or of TUTTI_SEED. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/index/sorting.h"

enum { LONGEST = 5000 };

static uint64_t seed = 1;
static double plain[LONGEST];
static char values[LONGEST * 16], sorted[LONGEST * 16];
static int64_t indices[LONGEST], want[LONGEST];

/* NaN is the largest, and equal to NaN. */
static bool is_before(double a, double b, bool is_descending)
{
    const double first = is_descending ? b : a, second = is_descending ? a : b;
    return isnan(second) ? !isnan(first) : first < second;
}

/* Stable: merged from halves. */
static void sort_plainly(int64_t *order, int64_t *room, int64_t n, bool is_descending)
{
    if (n < 2) {
        return;
    }
    const int64_t half = n / 2;
    sort_plainly(order, room, half, is_descending);
    sort_plainly(order + half, room, n - half, is_descending);
    int64_t a = 0, b = half;
    for (int64_t i = 0; i < n; i++) {
        const bool takes_b =
            a == half || (b < n && is_before(plain[order[b]], plain[order[a]], is_descending));
        room[i] = order[takes_b ? b++ : a++];
    }
    memcpy(order, room, (size_t)n * sizeof *order);
}

static double draw(tt_rng_t rng, int64_t i, tutti_dtype_t dtype, int64_t distinct)
{
    const int64_t number = (int64_t)tt_rng_below(rng, (uint64_t)i, (uint64_t)distinct);
    const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, -NAN};
    if (dtype == TUTTI_BOOL || dtype == TUTTI_U8) {
        return (double)(number % (dtype == TUTTI_BOOL ? 2 : 256));
    }
    if (!tutti_dtype_is_float(dtype)) {
        return (double)(number - distinct / 2);
    }
    return number < 6 ? special[number] : (double)(number - distinct / 2) / 8;
}

static tt_strided_t strided(void *data, tutti_dtype_t dtype, int64_t n, int64_t stride)
{
    tt_strided_t row = tt_strided_row(data, dtype, n);
    row.strides[0] = stride;
    return row;
}

typedef struct {
    tutti_dtype_t dtype;
    int64_t n, wanted, distinct, stride;
    bool is_descending;
} case_t;

static void check(case_t c)
{
    static int64_t room[LONGEST];
    const tt_rng_t rng =
        tt_rng_stream(seed, (uint64_t)c.n, (uint64_t)c.dtype, (uint64_t)c.distinct, 0);
    const tt_strided_t x = strided(values, c.dtype, c.n, c.stride);
    for (int64_t i = 0; i < c.n; i++) {
        plain[i] = draw(rng, i, c.dtype, c.distinct);
        want[i] = i;
    }
    tt_strided_t in = tt_strided_row(plain, TUTTI_F64, c.n);
    assert_int_equal(tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &x, &in), 0);
    assert_int_equal(tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &in, &x), 0);
    sort_plainly(want, room, c.n, c.is_descending);
    const tt_sort_t sort = {.values = strided(sorted, c.dtype, c.wanted, c.stride),
                            .indices = tt_strided_row(indices, TUTTI_I64, c.wanted),
                            .x = x,
                            .is_descending = c.is_descending};
    assert_int_equal(tt_sort(NULL, &sort), TUTTI_OK);
    const size_t bytes = tutti_dtype_bytes(c.dtype), step = (size_t)c.stride * bytes;
    for (int64_t i = 0; i < c.wanted; i++) {
        if (indices[i] != want[i] ||
            memcmp(sorted + (size_t)i * step, values + (size_t)want[i] * step, bytes) != 0) {
            fail_msg("TUTTI_SEED=%llu: %s, %lld of %lld, %lld distinct, stride %lld: element %lld "
                     "is number %lld, not %lld",
                     (unsigned long long)seed, tutti_dtype_name(c.dtype), (long long)c.wanted,
                     (long long)c.n, (long long)c.distinct, (long long)c.stride, (long long)i,
                     (long long)indices[i], (long long)want[i]);
        }
    }
}

/* All of n elements, and a few. */
static void check_length(case_t c)
{
    const int64_t few[] = {(c.n + 15) / 16, c.n / 16, c.n / 4, (c.n + 3) / 4};
    static const int64_t distinct[] = {300, 20, 20, 300};
    c.wanted = c.n;
    for (c.distinct = 8; c.distinct < 40000; c.distinct *= 2500) {
        check(c);
    }
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        c.wanted = few[i];
        c.distinct = distinct[i];
        check(c);
    }
}

static void lines_of_every_dtype_and_length_are_in_order(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1,   2,   15,   16,   17,   31,     33,
                                      100, 255, 1023, 1024, 1025, LONGEST};
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (int way = 0; way < 4; way++) {
                check_length((case_t){.dtype = (tutti_dtype_t)dtype,
                                      .n = lengths[i],
                                      .stride = 1 + way / 2,
                                      .is_descending = way % 2 == 1});
            }
        }
    }
}

/* Numbers that differ in their lowest or highest digits alone. */
static void no_digit_is_left_out(void **state)
{
    (void)state;
    enum { N = 2000 };
    static int64_t wide[N], out[N];
    static float narrow[N], floats[N];
    for (int bit = 0; bit < 64; bit++) {
        for (int64_t i = 0; i < N; i++) {
            wide[i] = (int64_t)((uint64_t)(i % 2 == 0) << bit);
            const uint32_t bits = (uint32_t)(i % 2 == 0) << bit % 32;
            memcpy(&narrow[i], &bits, sizeof bits);
        }
        const tt_sort_t whole = {.values = tt_strided_row(out, TUTTI_I64, N),
                                 .indices = tt_strided_row(indices, TUTTI_I64, N),
                                 .x = tt_strided_row(wide, TUTTI_I64, N)};
        assert_int_equal(tt_sort(NULL, &whole), 0);
        for (int64_t i = 1; i < N; i++) {
            assert_true(out[i - 1] <= out[i]);
        }
        const tt_sort_t real = {.values = tt_strided_row(floats, TUTTI_F32, N),
                                .indices = tt_strided_row(indices, TUTTI_I64, N),
                                .x = tt_strided_row(narrow, TUTTI_F32, N)};
        assert_int_equal(tt_sort(NULL, &real), 0);
        for (int64_t i = 1; i < N; i++) {
            assert_true(floats[i - 1] <= floats[i]);
        }
    }
}

/* [3, 40, 2] along the middle, in pieces. */
static void threads_and_dims_change_nothing(void **state)
{
    (void)state;
    enum { A = 3, N = 40, B = 2, ALL = A * N * B };
    static float x[ALL], one[ALL], many[ALL];
    static int64_t first[ALL], second[ALL];
    for (int i = 0; i < ALL; i++) {
        x[i] = (float)(i * 7919 % 53);
    }
    const tt_strided_t shape = {
        .data = x, .dtype = TUTTI_F32, .rank = 3, .shape = {A, N, B}, .strides = {N * B, B, 1}};
    tt_sort_t sort = {.values = shape, .indices = shape, .x = shape, .dim = 1};
    sort.indices.dtype = TUTTI_I64;
    sort.values.data = one;
    sort.indices.data = first;
    assert_int_equal(tt_sort(NULL, &sort), 0);
    for (int a = 0; a < A; a++) {
        for (int b = 0; b < B; b++) {
            for (int i = 1; i < N; i++) {
                const int at = (a * N + i) * B + b;
                assert_true(one[at - B] <= one[at]);
                assert_true(one[at] == x[(a * N + first[at]) * B + b]);
            }
        }
    }
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(3, &threads), 0);
    sort.values.data = many;
    sort.indices.data = second;
    assert_int_equal(tt_sort(&(tt_exec_t){.threads = threads}, &sort), 0);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(first, second, sizeof first);
    tt_threads_release(threads);
}

int main(void)
{
    const char *chosen = getenv("TUTTI_SEED");
    seed = chosen == NULL ? seed : strtoull(chosen, NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_every_dtype_and_length_are_in_order),
        cmocka_unit_test(no_digit_is_left_out),
        cmocka_unit_test(threads_and_dims_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
