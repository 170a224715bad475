/* Indexing and rotary kernels against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/kernel/index/indexing.h"
#include "core/kernel/index/scatter_back.h"
#include "core/kernel/attention/rotary.h"

enum { V = 50, C = 301, COUNT = 200 };

static float table[V * C], rows[COUNT * C], sums[V * C], again[V * C];
static int64_t indices[COUNT];

static void prepare(void)
{
    for (int i = 0; i < V * C; i++) {
        table[i] = (float)(i * 7919 % 1013) / 64;
    }
    for (int i = 0; i < COUNT; i++) {
        indices[i] = i * 37 % 17 + i % 3 * 16;
    }
}

static void rows_are_taken_and_added_in_order(void **state)
{
    (void)state;
    prepare();
    const tt_rows_by_index_t at = {
        .dtype = TUTTI_F32, .table_rows = V, .columns = C, .indices = indices, .count = COUNT};
    assert_int_equal(tt_take_rows(NULL, &at, rows, table), TUTTI_OK);
    memset(sums, 0, sizeof sums);
    static float want[V * C];
    memset(want, 0, sizeof want);
    for (int i = 0; i < COUNT; i++) {
        assert_memory_equal(rows + i * C, table + indices[i] * C, C * sizeof *rows);
        for (int j = 0; j < C; j++) {
            rows[i * C + j] *= 0.1f * (float)(i + 1);
            want[indices[i] * C + j] += rows[i * C + j];
        }
    }
    assert_int_equal(tt_add_rows(NULL, &at, sums, rows), TUTTI_OK);
    assert_memory_equal(sums, want, sizeof want);
    for (int count = 2; count <= 4; count++) {
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
        memset(again, 0, sizeof again);
        assert_int_equal(tt_add_rows(&(tt_exec_t){.threads = threads}, &at, again, rows), TUTTI_OK);
        assert_memory_equal(sums, again, sizeof sums);
        tt_threads_release(threads);
    }
}

static void indices_outside_are_named(void **state)
{
    (void)state;
    int64_t bad[3] = {0, 1, 50};
    const tt_rows_by_index_t at = {.dtype = TUTTI_F32,
                                   .table_rows = V,
                                   .columns = C,
                                   .indices = bad,
                                   .count = 3,
                                   .rank = 2,
                                   .shape = {1, 3}};
    assert_int_equal(tt_take_rows(NULL, &at, rows, table), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "embedding: index 50 at [0, 2] is outside a vocabulary of 50");
    bad[2] = -1;
    assert_int_equal(tt_add_rows(NULL, &at, sums, rows), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "embedding_backward: index -1 at [0, 2] is outside a vocabulary of 50");
    const tt_strided_t x = {
        .data = table, .dtype = TUTTI_F32, .rank = 1, .shape = {3}, .strides = {1}};
    const tt_strided_t index = {
        .data = bad, .dtype = TUTTI_I64, .rank = 1, .shape = {3}, .strides = {1}};
    assert_int_equal(tt_gather(NULL, &x, &x, 0, &index), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "index -1 at element 2"));
    assert_int_equal(tt_index_select(NULL, &x, &x, 0, bad), TUTTI_ERR_ARG);
}

/* x[2,4,3], seen transposed so that strides matter. */
static const tt_strided_t cube = {
    .data = table, .dtype = TUTTI_F32, .rank = 3, .shape = {2, 4, 3}, .strides = {1, 2, 8}};

static float cube_at(int64_t i, int64_t j, int64_t k)
{
    return table[i + 2 * j + 8 * k];
}

static void index_select_and_add_follow_their_dim(void **state)
{
    (void)state;
    prepare();
    const int64_t pick[5] = {3, 0, 3, 1, 2};
    float got[30], back[24] = {0};
    const tt_strided_t out = {
        .data = got, .dtype = TUTTI_F32, .rank = 3, .shape = {2, 5, 3}, .strides = {15, 3, 1}};
    const tt_strided_t sum = {
        .data = back, .dtype = TUTTI_F32, .rank = 3, .shape = {2, 4, 3}, .strides = {12, 3, 1}};
    assert_int_equal(tt_index_select(NULL, &out, &cube, 1, pick), TUTTI_OK);
    assert_int_equal(tt_index_add(NULL, &sum, &out, 1, pick), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            for (int j = 0; j < 5; j++) {
                assert_true(got[i * 15 + j * 3 + k] == cube_at(i, pick[j], k));
            }
            assert_true(back[i * 12 + 3 * 3 + k] == 2 * cube_at(i, 3, k));
            assert_true(back[i * 12 + k] == cube_at(i, 0, k));
        }
    }
}

static void gather_and_scatter_add_follow_their_dim(void **state)
{
    (void)state;
    prepare();
    int64_t pick[12];
    for (int i = 0; i < 12; i++) {
        pick[i] = i * 5 % 4;
    }
    float got[12], back[24] = {0}, want[24] = {0};
    const tt_strided_t out = {
        .data = got, .dtype = TUTTI_F32, .rank = 3, .shape = {2, 2, 3}, .strides = {6, 3, 1}};
    const tt_strided_t index = {
        .data = pick, .dtype = TUTTI_I64, .rank = 3, .shape = {2, 2, 3}, .strides = {6, 3, 1}};
    const tt_strided_t sum = {
        .data = back, .dtype = TUTTI_F32, .rank = 3, .shape = {2, 4, 3}, .strides = {12, 3, 1}};
    assert_int_equal(tt_gather(NULL, &out, &cube, 1, &index), TUTTI_OK);
    assert_int_equal(tt_scatter_add(NULL, &sum, &out, 1, &index), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            for (int k = 0; k < 3; k++) {
                const int at = i * 6 + j * 3 + k;
                assert_true(got[at] == cube_at(i, pick[at], k));
                want[i * 12 + pick[at] * 3 + k] += got[at];
            }
        }
    }
    assert_memory_equal(back, want, sizeof want);
}

static void make_table(const tt_rotary_table_t *of)
{
    assert_int_equal(tt_rotary_table(NULL, of), TUTTI_OK);
}

static void turn_by(const tt_rotary_t *rotary, const tt_strided_t *out, const tt_strided_t *x)
{
    assert_int_equal(tt_rotary(NULL, rotary, out, x), TUTTI_OK);
}

static void rotary_turns_pairs_and_back(void **state)
{
    (void)state;
    enum { T = 6, D = 8, H = 2 };
    float cosine[T * D / 2], sine[T * D / 2], x[T * H * D], y[T * H * D], z[T * H * D];
    make_table(&(tt_rotary_table_t){cosine, sine, T, D / 2, 3, 10000});
    for (int i = 0; i < T * H * D; i++) {
        x[i] = (float)(i % 11) - 5;
    }
    /* [H,T,D] seen in [T,H,D]. */
    tt_strided_t in = {
        .data = x, .dtype = TUTTI_F32, .rank = 3, .shape = {H, T, D}, .strides = {D, H * D, 1}};
    tt_strided_t out = in, back = in;
    out.data = y;
    back.data = z;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        tt_rotary_t turn = {.cosine = cosine, .sine = sine, .interleaved = interleaved};
        turn_by(&turn, &out, &in);
        const int t = 4, pair = 1, h = 1, base = t * H * D + h * D;
        const int a = base + (interleaved ? 2 * pair : pair);
        const int b = base + (interleaved ? 2 * pair + 1 : pair + D / 2);
        const double angle = (3 + t) * pow(10000, -2.0 * pair / D);
        const double want = (double)x[b] * cos(angle) + (double)x[a] * sin(angle);
        assert_true(fabs((double)y[b] - want) < 1e-5);
        turn.inverse = true;
        turn_by(&turn, &back, &out);
        for (int i = 0; i < T * H * D; i++) {
            assert_true(fabsf(z[i] - x[i]) < 1e-5f);
        }
    }
}

/* Rows of any width, in place, turned and back. */
static void wide_rows_are_turned(void **state)
{
    (void)state;
    enum { D = 10002 };
    static float cosine[D / 2], sine[D / 2], x[D];
    make_table(&(tt_rotary_table_t){cosine, sine, 1, D / 2, 5, 10000});
    const tt_strided_t row = {
        .data = x, .dtype = TUTTI_F32, .rank = 2, .shape = {1, D}, .strides = {D, 1}};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        tt_rotary_t turn = {.cosine = cosine, .sine = sine, .interleaved = interleaved};
        for (int i = 0; i < D; i++) {
            x[i] = (float)i;
        }
        turn_by(&turn, &row, &row);
        for (int i = 0; i < D / 2; i += 613) {
            const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + D / 2;
            assert_true(x[a] == (float)a * cosine[i] - (float)b * sine[i]);
            assert_true(x[b] == (float)b * cosine[i] + (float)a * sine[i]);
        }
        turn.inverse = true;
        turn_by(&turn, &row, &row);
        for (int i = 0; i < D; i++) {
            assert_true(fabsf(x[i] - (float)i) < 1e-2f);
        }
    }
}

/* Elements of f64 keep digits that f32 has not; rows may be strided. */
static void rows_of_f64_are_turned_in_f64(void **state)
{
    (void)state;
    enum { D = 1032, APART = 3 };
    static float cosine[D / 2], sine[D / 2];
    static double x[D], y[APART * D];
    make_table(&(tt_rotary_table_t){cosine, sine, 1, D / 2, 5, 10000});
    for (int i = 0; i < D; i++) {
        x[i] = i + 1e-9;
    }
    const tt_strided_t in = {
        .data = x, .dtype = TUTTI_F64, .rank = 2, .shape = {1, D}, .strides = {D, 1}};
    tt_strided_t out = in;
    out.data = y;
    out.strides[1] = APART;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        const tt_rotary_t turn = {.cosine = cosine, .sine = sine, .interleaved = interleaved};
        turn_by(&turn, &out, &in);
        for (int i = 0; i < D / 2; i++) {
            const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + D / 2;
            const double c = (double)cosine[i], s = (double)sine[i];
            assert_true(y[APART * a] == x[a] * c - x[b] * s);
            assert_true(y[APART * b] == x[b] * c + x[a] * s);
        }
    }
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

/* Rows of a matrix and of its transpose; of equal places the last element stands. */
static void only_the_last_at_a_place_gets_its_gradient(void **state)
{
    (void)state;
    float g[8] = {1, 2, 3, 4, 5, 6, 7, 8}, dx[8], dsource[6] = {-1, -1, -1, -1, -1, -1};
    int64_t index[6] = {3, 0, 3, 2, 2, 2};
    const float want_dx[8] = {0, 2, 3, 0, 5, 6, 0, 8}, want[6] = {0, 1, 4, 0, 0, 7};
    memcpy(dx, g, sizeof dx);
    tt_scatter_back_t back = {.dx = tt_strided_rows(dx, TUTTI_F32, 2, 4),
                              .g = tt_strided_rows(g, TUTTI_F32, 2, 4),
                              .dsource = tt_strided_rows(dsource, TUTTI_F32, 2, 3),
                              .index = tt_strided_rows(index, TUTTI_I64, 2, 3),
                              .dim = 1};
    assert_int_equal(tt_scatter_back(NULL, &back), 0);
    assert_memory_equal(dx, want_dx, sizeof dx);
    assert_memory_equal(dsource, want, sizeof want);
    memset(dsource, 0xff, sizeof dsource);
    back.dx.data = NULL; /* and columns of a transposed one */
    tt_strided_t *all[] = {&back.g, &back.dsource, &back.index, &back.dx};
    for (int i = 0; i < 4; i++) {
        const int64_t size = all[i]->shape[0], step = all[i]->strides[0];
        all[i]->shape[0] = all[i]->shape[1];
        all[i]->strides[0] = all[i]->strides[1];
        all[i]->shape[1] = size;
        all[i]->strides[1] = step;
    }
    back.dim = 0;
    assert_int_equal(tt_scatter_back(NULL, &back), 0);
    assert_memory_equal(dsource, want, sizeof want);
    back.dsource.data = NULL;
    back.dx.data = memcpy(dx, g, sizeof dx);
    assert_int_equal(tt_scatter_back(NULL, &back), 0);
    assert_memory_equal(dx, want_dx, sizeof dx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(rows_are_taken_and_added_in_order, nothing_is_left),
        cmocka_unit_test_teardown(indices_outside_are_named, nothing_is_left),
        cmocka_unit_test_teardown(index_select_and_add_follow_their_dim, nothing_is_left),
        cmocka_unit_test_teardown(gather_and_scatter_add_follow_their_dim, nothing_is_left),
        cmocka_unit_test_teardown(rotary_turns_pairs_and_back, nothing_is_left),
        cmocka_unit_test_teardown(wide_rows_are_turned, nothing_is_left),
        cmocka_unit_test_teardown(rows_of_f64_are_turned_in_f64, nothing_is_left),
        cmocka_unit_test_teardown(only_the_last_at_a_place_gets_its_gradient, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
