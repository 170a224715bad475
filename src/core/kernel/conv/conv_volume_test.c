/* Convolutions over volumes against sums written out in f64, and their bits over threads. One
 * shape needs more scratch than is taken at once, two are planes as they lie. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/testing.h"
#include "core/kernel/conv/conv.h"

typedef struct {
    int64_t batch, groups, in, out;
    int64_t size[3], kernel[3], stride[3], padding[3], dilation[3];
} shape_t;

static const shape_t shapes[] = {
    {2, 1, 3, 4, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {1, 2, 2, 3, {6, 5, 9}, {2, 3, 2}, {2, 1, 3}, {2, 0, 1}, {2, 2, 1}},
    {3, 1, 2, 2, {7, 3, 4}, {1, 2, 2}, {4, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {5, 1, 80, 2, {4, 64, 64}, {2, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {3, 2, 5, 6, {4, 5, 9}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 1, 5, 6, {4, 5, 9}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}, {1, 1, 1}},
};

typedef struct {
    tt_conv_t conv;
    int64_t out_size[3];
    int64_t x, w, y, bias; /* elements */
    float *data[4];        /* x, weight, dy, bias */
} problem_t;

enum { X, WEIGHT, DY, BIAS };

static int64_t volume_of(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

static float *numbers(int64_t count, unsigned seed)
{
    float *x = tt_alloc((size_t)count * sizeof *x + 1, "numbers");
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 16 & 31) - 15) / 8;
    }
    return x;
}

static problem_t make_problem(const shape_t *s)
{
    problem_t p = {.conv = {.batch = s->batch,
                            .groups = s->groups,
                            .in = s->in,
                            .out = s->out,
                            .dtype = TUTTI_F32,
                            .out_dtype = TUTTI_F32}};
    for (int i = 0; i < 3; i++) {
        p.out_size[i] = (s->size[i] + 2 * s->padding[i] - s->dilation[i] * (s->kernel[i] - 1) - 1) /
                            s->stride[i] +
                        1;
    }
    for (int i = 0; i < 2; i++) {
        p.conv.size[i] = s->size[i + 1];
        p.conv.out_size[i] = p.out_size[i + 1];
        p.conv.kernel[i] = s->kernel[i + 1];
        p.conv.stride[i] = s->stride[i + 1];
        p.conv.padding[i] = s->padding[i + 1];
        p.conv.dilation[i] = s->dilation[i + 1];
    }
    p.conv.depth = (tt_conv_depth_t){s->size[0],   p.out_size[0], s->kernel[0],
                                     s->stride[0], s->padding[0], s->dilation[0]};
    p.x = s->batch * s->groups * s->in * volume_of(s->size);
    p.w = s->groups * s->out * s->in * volume_of(s->kernel);
    p.y = s->batch * s->groups * s->out * volume_of(p.out_size);
    p.bias = s->groups * (s->in > s->out ? s->in : s->out);
    const int64_t counts[] = {p.x, p.w, p.y, p.bias};
    for (unsigned i = 0; i < 4; i++) {
        p.data[i] = numbers(counts[i], i + 1);
    }
    return p;
}

static void free_problem(problem_t *p)
{
    for (int i = 0; i < 4; i++) {
        tt_free(p->data[i]);
    }
}

/* Visits each product: y[y] += w[w] x[x]. */
typedef struct {
    const problem_t *p;
    double *y, *dx, *dw;
} sums_t;

static void add_taps(const shape_t *s, sums_t *t, int64_t x, int64_t w, int64_t y,
                     const int64_t at[3])
{
    for (int64_t tap = 0; tap < volume_of(s->kernel); tap++) {
        const int64_t k[3] = {tap / (s->kernel[1] * s->kernel[2]),
                              tap / s->kernel[2] % s->kernel[1], tap % s->kernel[2]};
        int64_t place = 0;
        for (int i = 0; i < 3; i++) {
            const int64_t from = at[i] * s->stride[i] - s->padding[i] + k[i] * s->dilation[i];
            place = from < 0 || from >= s->size[i] || place < 0 ? -1 : place * s->size[i] + from;
        }
        if (place >= 0) {
            const problem_t *p = t->p;
            t->y[y] += (double)p->data[WEIGHT][w + tap] * (double)p->data[X][x + place];
            t->dx[x + place] += (double)p->data[WEIGHT][w + tap] * (double)p->data[DY][y];
            t->dw[w + tap] += (double)p->data[DY][y] * (double)p->data[X][x + place];
        }
    }
}

static void add_up(const shape_t *s, sums_t *t)
{
    const problem_t *p = t->p;
    const int64_t out = volume_of(p->out_size), channels = s->groups * s->out;
    for (int64_t y = 0; y < p->y; y++) {
        const int64_t o = y / out % channels, image = y / out / channels, i = y % out;
        const int64_t at[3] = {i / (p->out_size[1] * p->out_size[2]),
                               i / p->out_size[2] % p->out_size[1], i % p->out_size[2]};
        for (int64_t c = 0; c < s->in; c++) {
            const int64_t x = ((image * s->groups + o / s->out) * s->in + c) * volume_of(s->size);
            add_taps(s, t, x, (o * s->in + c) * volume_of(s->kernel), y, at);
        }
    }
}

static void compare(const float *got, const double *sums, const float *bias, int64_t channels,
                    int64_t volume, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double want = sums[i] + (bias == NULL ? 0 : (double)bias[i / volume % channels]);
        if (!(fabs((double)got[i] - want) <= 1e-4 * (1 + fabs(want)))) {
            fail_msg("element %lld: %g, not %g", (long long)i, (double)got[i], want);
        }
    }
}

static void check_shape(const shape_t *s, tt_threads_t *const pools[2])
{
    problem_t p = make_problem(s);
    const int64_t counts[] = {p.y, p.x, p.w};
    double *sums[3];
    float *got[2][3];
    for (int i = 0; i < 3; i++) {
        sums[i] = tt_alloc((size_t)counts[i] * sizeof(double), "sums");
        for (int k = 0; k < 2; k++) {
            got[k][i] = tt_alloc((size_t)counts[i] * sizeof(float), "results");
        }
    }
    add_up(s, &(sums_t){&p, sums[0], sums[1], sums[2]});
    for (int k = 0; k < 2; k++) {
        tt_exec_t exec = {.threads = pools[k]};
        assert_int_equal(
            tt_conv_forward(&exec, &p.conv, p.data[X], p.data[WEIGHT], p.data[BIAS], got[k][0]), 0);
        assert_int_equal(
            tt_conv_to_x(&exec, &p.conv, p.data[DY], p.data[WEIGHT], p.data[BIAS], got[k][1]), 0);
        assert_int_equal(tt_conv_to_weight(&exec, &p.conv, p.data[X], p.data[DY], got[k][2]), 0);
    }
    compare(got[0][0], sums[0], p.data[BIAS], s->groups * s->out, volume_of(p.out_size), p.y);
    compare(got[0][1], sums[1], p.data[BIAS], s->groups * s->in, volume_of(s->size), p.x);
    compare(got[0][2], sums[2], NULL, 1, 1, p.w);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(got[0][i], got[1][i], (size_t)counts[i] * sizeof(float));
        tt_free(sums[i]);
        tt_free(got[0][i]);
        tt_free(got[1][i]);
    }
    free_problem(&p);
}

static void volumes_are_the_sums_of_their_products_on_any_number_of_threads(void **state)
{
    tt_threads_t *pools[2];
    (void)state;
    assert_int_equal(tt_threads_create(1, &pools[0]), TUTTI_OK);
    assert_int_equal(tt_threads_create(3, &pools[1]), TUTTI_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_shape(&shapes[i], pools);
    }
    tt_threads_release(pools[0]);
    tt_threads_release(pools[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(volumes_are_the_sums_of_their_products_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
