/* Convolutions of f32 and bf16 against the loops of f64, and their bits over threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/testing.h"
#include "core/kernel/conv/conv_impl.h"
#include "core/kernel/half.h"
#include "core/kernel/isa.h"

enum { POOLS = 3 };

/* batch, groups, in, out, height, width, kernel, stride, padding, dilation (the last four of both
 * dimensions). The last eight have a channel in each group: rows that fill vectors and such that do
 * not, rows longer than the stack, more taps than there are lists for. */
static const int64_t shapes[][14] = {
    {35, 1, 1, 32, 28, 28, 3, 3, 1, 1, 0, 0, 1, 1}, {17, 1, 32, 40, 13, 13, 3, 3, 1, 1, 1, 1, 1, 1},
    {3, 1, 70, 33, 6, 9, 3, 3, 1, 1, 1, 1, 1, 1},   {2, 1, 5, 7, 40, 41, 5, 3, 2, 3, 2, 1, 1, 2},
    {4, 6, 1, 1, 9, 10, 3, 3, 1, 1, 1, 1, 1, 1},    {3, 2, 3, 17, 1, 50, 1, 4, 1, 2, 0, 3, 1, 3},
    {2, 1, 130, 3, 3, 3, 3, 3, 1, 1, 2, 2, 1, 1},   {1, 1, 3, 5, 64, 64, 1, 1, 2, 2, 0, 0, 1, 1},
    {2, 1, 2, 3, 20, 1, 3, 1, 3, 1, 4, 0, 2, 1},    {21, 1, 16, 48, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1},
    {3, 2, 17, 16, 30, 11, 3, 3, 1, 1, 2, 0, 1, 1}, {2, 1, 33, 16, 5, 90, 3, 3, 1, 1, 1, 1, 1, 1},
    {9, 1, 16, 34, 14, 15, 3, 3, 2, 2, 1, 1, 1, 1}, {3, 2, 6, 20, 9, 9, 1, 1, 2, 2, 0, 0, 1, 1},
    {2, 1, 3, 18, 3, 300, 3, 3, 1, 1, 1, 1, 1, 1},  {1, 1, 16, 16, 8, 38, 3, 3, 1, 1, 1, 2, 1, 1},
    {2, 5, 1, 1, 3, 170, 3, 3, 1, 1, 1, 1, 1, 1},   {3, 8, 1, 1, 15, 14, 5, 5, 2, 2, 2, 2, 1, 1},
    {2, 4, 1, 1, 20, 33, 3, 5, 2, 3, 2, 1, 2, 1},   {1, 4, 1, 1, 2, 2100, 1, 3, 1, 2, 0, 1, 1, 1},
    {19, 7, 1, 1, 7, 7, 7, 7, 1, 1, 3, 3, 1, 1},    {2, 4, 1, 1, 1, 40, 1, 31, 1, 1, 0, 15, 1, 1},
    {1, 4, 1, 1, 13, 13, 12, 12, 1, 1, 2, 2, 1, 1}, {2, 4, 1, 1, 2, 3, 2, 1, 3, 5, 0, 0, 1, 1},
};

typedef struct {
    tt_conv_t conv;
    int64_t x, w, y, x_channels, y_channels; /* elements, and channels */
} problem_t;

static problem_t problem_of(const int64_t s[14])
{
    problem_t p = {.conv = {.batch = s[0], .groups = s[1], .in = s[2], .out = s[3]}};
    tt_conv_t *c = &p.conv;
    for (int i = 0; i < 2; i++) {
        c->size[i] = s[4 + i];
        c->kernel[i] = s[6 + i];
        c->stride[i] = s[8 + i];
        c->padding[i] = s[10 + i];
        c->dilation[i] = s[12 + i];
        c->out_size[i] =
            (c->size[i] + 2 * c->padding[i] - c->dilation[i] * (c->kernel[i] - 1) - 1) /
                c->stride[i] +
            1;
    }
    p.x_channels = c->groups * c->in;
    p.y_channels = c->groups * c->out;
    p.x = c->batch * p.x_channels * c->size[0] * c->size[1];
    p.y = c->batch * p.y_channels * c->out_size[0] * c->out_size[1];
    p.w = p.y_channels * c->in * c->kernel[0] * c->kernel[1];
    return p;
}

/* Operands in f64 and in the dtype under test: eighths, which bf16 holds; in f32 thirds of them,
 * whose products and sums are rounded. */
typedef struct {
    double *exact;
    void *data;
} operand_t;

static operand_t make_operand(int64_t count, tutti_dtype_t dtype, unsigned seed)
{
    operand_t o = {tt_alloc((size_t)count * 8 + 1, "exact"), tt_alloc((size_t)count * 8 + 1, "x")};
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        o.exact[i] = ((int)(seed >> 16 & 31) - 15) / 8.0;
        if (dtype == TUTTI_F32) {
            ((float *)o.data)[i] = (float)(o.exact[i] / 3);
            o.exact[i] = (double)((float *)o.data)[i];
        } else {
            ((uint16_t *)o.data)[i] = tt_bf16_from_f32((float)o.exact[i]);
        }
    }
    return o;
}

static void free_operand(operand_t o)
{
    tt_free(o.exact);
    tt_free(o.data);
}

typedef enum { FORWARD, TO_X, TO_WEIGHT } what_t;

static void run(tt_threads_t *threads, const tt_conv_t *c, what_t what, const void *const in[4],
                void *out)
{
    tt_exec_t exec = {.threads = threads};
    tutti_status_t status;
    if (what == FORWARD) {
        status = tt_conv_forward(&exec, c, in[0], in[1], in[3], out);
    } else if (what == TO_X) {
        status = tt_conv_to_x(&exec, c, in[2], in[1], in[3], out);
    } else {
        status = tt_conv_to_weight(&exec, c, in[0], in[2], out);
    }
    assert_int_equal(status, TUTTI_OK);
}

static void compare(const float *out, const double *wanted, int64_t count, int64_t sums)
{
    for (int64_t i = 0; i < count; i++) {
        const double bound = 1e-6 * (double)sums + 1e-5 * fabs(wanted[i]);
        if (!(fabs((double)out[i] - wanted[i]) <= bound)) {
            fail_msg("element %lld: %g, not %g", (long long)i, (double)out[i], wanted[i]);
        }
    }
}

/* Of so many elements, with one behind them that nobody may write. */
static void *make_output(int64_t count, size_t bytes)
{
    void *out = tt_alloc((size_t)(count + 1) * bytes, "out");
    memset(out, 0x7f, (size_t)(count + 1) * bytes);
    return out;
}

static void free_output(void *out, int64_t count, size_t bytes)
{
    for (size_t i = (size_t)count * bytes; i < (size_t)(count + 1) * bytes; i++) {
        assert_int_equal(((const unsigned char *)out)[i], 0x7f);
    }
    tt_free(out);
}

static int64_t count_of(const problem_t *p, what_t what)
{
    return what == FORWARD ? p->y : what == TO_X ? p->x : p->w;
}

/* One operation with all pools: the bits are the same, the values those of f64. */
static void check(tt_threads_t *const pools[POOLS], problem_t p, what_t what, const operand_t in[4],
                  tutti_dtype_t dtype)
{
    const int64_t count = count_of(&p, what);
    const void *const exact[] = {in[0].exact, in[1].exact, in[2].exact, in[3].exact};
    const void *const given[] = {in[0].data, in[1].data, in[2].data, in[3].data};
    double *wanted = make_output(count, sizeof *wanted);
    p.conv.dtype = p.conv.out_dtype = TUTTI_F64;
    run(NULL, &p.conv, what, exact, wanted);
    p.conv.dtype = dtype;
    p.conv.out_dtype = TUTTI_F32;
    float *first = make_output(count, sizeof *first);
    run(pools[0], &p.conv, what, given, first);
    compare(first, wanted, count, what == TO_WEIGHT ? p.y / p.y_channels : p.w / p.y_channels);
    for (int i = 1; i < POOLS; i++) {
        float *other = make_output(count, sizeof *other);
        run(pools[i], &p.conv, what, given, other);
        assert_memory_equal(other, first, (size_t)count * sizeof *first);
        free_output(other, count, sizeof *other);
    }
    free_output(wanted, count, sizeof *wanted);
    free_output(first, count, sizeof *first);
}

static void check_shape(tt_threads_t *const pools[POOLS], const int64_t shape[14],
                        tutti_dtype_t dtype)
{
    const problem_t p = problem_of(shape);
    const int64_t channels = p.x_channels > p.y_channels ? p.x_channels : p.y_channels;
    const operand_t in[] = {make_operand(p.x, dtype, 1), make_operand(p.w, dtype, 2),
                            make_operand(p.y, dtype, 3), make_operand(channels, dtype, 4)};
    check(pools, p, FORWARD, in, dtype);
    check(pools, p, TO_X, in, dtype);
    check(pools, p, TO_X, (operand_t[]){in[0], in[1], in[2], {NULL, NULL}}, dtype);
    check(pools, p, TO_WEIGHT, in, dtype);
    for (int i = 0; i < 4; i++) {
        free_operand(in[i]);
    }
}

static void check_dtype(tutti_dtype_t dtype)
{
    tt_threads_t *pools[POOLS];
    for (int i = 0; i < POOLS; i++) {
        assert_int_equal(tt_threads_create(i + 1, &pools[i]), TUTTI_OK);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_shape(pools, shapes[i], dtype);
    }
    for (int i = 0; i < POOLS; i++) {
        tt_threads_release(pools[i]);
    }
}

static void f32_has_the_values_of_f64_and_one_set_of_bits(void **state)
{
    (void)state;
    check_dtype(TUTTI_F32);
}

static void bf16_has_the_values_of_f64_and_one_set_of_bits(void **state)
{
    (void)state;
    if (tt_conv_dtype(TUTTI_BF16) != TUTTI_BF16) {
        skip();
    }
    check_dtype(TUTTI_BF16);
}

static float *run_on(const char *isa, const problem_t *p, what_t what, const operand_t in[4])
{
    const void *const given[] = {in[0].data, in[1].data, in[2].data, in[3].data};
    float *out = make_output(count_of(p, what), sizeof *out);
    setenv("TUTTI_ISA", isa, 1);
    run(NULL, &p->conv, what, given, out);
    return out;
}

static void compare_isas(problem_t p, what_t what, const operand_t in[4])
{
    const int64_t count = count_of(&p, what);
    p.conv.dtype = p.conv.out_dtype = TUTTI_F32;
    float *first = run_on("auto", &p, what, in);
    for (int i = 0; i < 2; i++) {
        float *other = run_on(i == 0 ? "avx2" : "baseline", &p, what, in);
        assert_memory_equal(other, first, (size_t)count * sizeof *first);
        free_output(other, count, sizeof *other);
    }
    free_output(first, count, sizeof *first);
}

static void f32_has_the_same_bits_with_every_instruction_set(void **state)
{
    (void)state;
    if (getenv("TUTTI_ISA") != NULL) {
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const problem_t p = problem_of(shapes[i]);
        const int64_t channels = p.x_channels > p.y_channels ? p.x_channels : p.y_channels;
        const operand_t in[] = {make_operand(p.x, TUTTI_F32, 1), make_operand(p.w, TUTTI_F32, 2),
                                make_operand(p.y, TUTTI_F32, 3),
                                make_operand(channels, TUTTI_F32, 4)};
        for (what_t what = FORWARD; what <= TO_WEIGHT; what++) {
            compare_isas(p, what, in);
        }
        for (int k = 0; k < 4; k++) {
            free_operand(in[k]);
        }
    }
    unsetenv("TUTTI_ISA");
}

/* Which rows of the kernel a tile leaves out, for they see padding alone, depends on its size: a
 * sum that begins with -0 would keep it there, and become 0 elsewhere. */
static void a_bias_of_minus_zero_has_the_same_bits_with_every_instruction_set(void **state)
{
    (void)state;
    const problem_t p = problem_of((const int64_t[]){2, 1, 3, 5, 9, 7, 3, 3, 1, 1, 4, 1, 1, 1});
    const operand_t in[] = {make_operand(p.x, TUTTI_F32, 1), make_operand(p.w, TUTTI_F32, 2),
                            make_operand(p.y, TUTTI_F32, 3), make_operand(5, TUTTI_F32, 4)};
    if (getenv("TUTTI_ISA") != NULL) {
        skip();
    }
    memset(in[0].data, 0, (size_t)p.x * sizeof(float));
    memset(in[2].data, 0, (size_t)p.y * sizeof(float));
    for (int i = 0; i < 5; i++) {
        ((float *)in[3].data)[i] = -0.0f;
    }
    compare_isas(p, FORWARD, in);
    compare_isas(p, TO_X, in);
    for (int i = 0; i < 4; i++) {
        free_operand(in[i]);
    }
    unsetenv("TUTTI_ISA");
}

/* On a CPU with AMX the test of bf16 has not seen the pairs of AVX-512. */
static void bf16_in_pairs_has_the_values_of_f64_too(void **state)
{
    (void)state;
    const char *before = getenv("TUTTI_ISA");
    if (!tt_isa_has_amx()) {
        skip();
    }
    setenv("TUTTI_ISA", "avx512", 1);
    assert_false(tt_isa_has_amx());
    check_dtype(TUTTI_BF16);
    if (before == NULL) {
        unsetenv("TUTTI_ISA");
    } else {
        setenv("TUTTI_ISA", before, 1);
    }
}

/* Steps over positions read behind a channel's last one. */
static void a_nan_of_a_channel_stays_out_of_the_gradient_of_others(void **state)
{
    (void)state;
    const problem_t p = problem_of((const int64_t[]){1, 1, 2, 2, 5, 5, 3, 3, 1, 1, 1, 1, 1, 1});
    tt_conv_t conv = p.conv;
    conv.dtype = tt_conv_dtype(TUTTI_BF16);
    conv.out_dtype = TUTTI_F32;
    const bool is_bf16 = conv.dtype == TUTTI_BF16;
    const operand_t x = make_operand(p.x, conv.dtype, 1), dy = make_operand(p.y, conv.dtype, 2);
    float dw[2 * 2 * 9];
    for (int64_t i = p.x / 2; i < p.x; i++) {
        if (is_bf16) {
            ((uint16_t *)x.data)[i] = 0x7fc0;
        } else {
            ((float *)x.data)[i] = NAN;
        }
    }
    assert_int_equal(tt_conv_to_weight(NULL, &conv, x.data, dy.data, dw), TUTTI_OK);
    for (int i = 0; i < 2 * 2 * 9; i++) {
        assert_true(isnan(dw[i]) == (i / 9 % 2 == 1));
    }
    free_operand(x);
    free_operand(dy);
}

/* The same of groups of one channel each, whose sums read behind a channel, too. */
static void a_nan_of_a_group_stays_out_of_the_gradient_of_others(void **state)
{
    (void)state;
    for (int64_t padding = 0; padding < 2; padding++) {
        const problem_t p =
            problem_of((const int64_t[]){2, 6, 1, 1, 5, 5, 3, 3, 1, 1, padding, padding, 1, 1});
        const operand_t x = make_operand(p.x, TUTTI_F32, 1), dy = make_operand(p.y, TUTTI_F32, 2);
        tt_conv_t conv = p.conv;
        float dw[6 * 9];
        for (int64_t i = 0; i < p.x; i++) {
            if (i / 25 % 2 == 1) {
                ((float *)x.data)[i] = NAN;
            }
        }
        conv.dtype = conv.out_dtype = TUTTI_F32;
        assert_int_equal(tt_conv_to_weight(NULL, &conv, x.data, dy.data, dw), TUTTI_OK);
        for (int i = 0; i < 6 * 9; i++) {
            assert_true(isnan(dw[i]) == (i / 9 % 2 == 1));
        }
        free_operand(x);
        free_operand(dy);
    }
}

/* One element of x is NaN: the same elements of dw are as in f64. */
static void compare_nans(const problem_t *p, const operand_t *x, const operand_t *dy, int64_t at)
{
    float dw[64];
    double exact[64];
    tt_conv_t conv = p->conv;
    const double value = x->exact[at];
    const uint16_t word = ((uint16_t *)x->data)[at];
    x->exact[at] = NAN;
    ((uint16_t *)x->data)[at] = 0x7fc0;
    conv.dtype = conv.out_dtype = TUTTI_F64;
    assert_int_equal(tt_conv_to_weight(NULL, &conv, x->exact, dy->exact, exact), TUTTI_OK);
    conv.dtype = TUTTI_BF16;
    conv.out_dtype = TUTTI_F32;
    assert_int_equal(tt_conv_to_weight(NULL, &conv, x->data, dy->data, dw), TUTTI_OK);
    for (int64_t i = 0; i < p->w; i++) {
        assert_true(isnan(dw[i]) == isnan(exact[i]));
    }
    x->exact[at] = value;
    ((uint16_t *)x->data)[at] = word;
}

/* Rows of odd length, whose last pair is half; in one image, in two, with steps of two. */
static void a_nan_of_a_neighbour_stays_out_of_the_gradient(void **state)
{
    (void)state;
    static const int64_t odd[][14] = {{1, 1, 1, 2, 5, 5, 3, 3, 1, 1, 0, 0, 1, 1},
                                      {2, 1, 2, 1, 4, 7, 2, 3, 1, 1, 1, 0, 1, 1},
                                      {2, 2, 1, 1, 3, 11, 1, 3, 1, 2, 0, 1, 1, 2}};
    if (tt_conv_dtype(TUTTI_BF16) != TUTTI_BF16 || getenv("TUTTI_ISA") != NULL) {
        skip();
    }
    if (tt_isa_has_amx()) {
        setenv("TUTTI_ISA", "avx512", 1);
    }
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        const problem_t p = problem_of(odd[i]);
        const operand_t x = make_operand(p.x, TUTTI_BF16, 1), dy = make_operand(p.y, TUTTI_BF16, 2);
        assert_true(p.w <= 64 && p.conv.out_size[1] % 2 == 1);
        for (int64_t at = 0; at < p.x; at++) {
            compare_nans(&p, &x, &dy, at);
        }
        free_operand(x);
        free_operand(dy);
    }
    unsetenv("TUTTI_ISA");
}

/* Not nearly: what pads rows, planes and tiles is zero itself. */
static void sums_of_zeros_are_zero(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++) {
        problem_t p = problem_of(shapes[i / 2]);
        p.conv.dtype = i % 2 == 0 ? TUTTI_F32 : tt_conv_dtype(TUTTI_BF16);
        p.conv.out_dtype = TUTTI_F32;
        const operand_t some[] = {make_operand(p.x, p.conv.dtype, 1),
                                  make_operand(p.w, p.conv.dtype, 2)};
        void *none = tt_alloc((size_t)(p.x > p.y ? p.x : p.y) * sizeof(float), "zeros");
        const void *const in[] = {[FORWARD] = none, [TO_X] = none, [TO_WEIGHT] = some[0].data};
        for (what_t what = FORWARD; what <= TO_WEIGHT; what++) {
            const int64_t count = count_of(&p, what);
            float *out = make_output(count, sizeof *out);
            run(NULL, &p.conv, what, (const void *[]){in[what], some[1].data, none, NULL}, out);
            for (int64_t at = 0; at < count; at++) {
                assert_true(out[at] == 0);
            }
            free_output(out, count, sizeof *out);
        }
        tt_free(none);
        free_operand(some[0]);
        free_operand(some[1]);
    }
}

/* The window of dy, asked for tap by tap, against each position and tap. */
static void the_window_of_dy_is_what_positions_see(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 7};
    for (int64_t i = 0; i < 3 * 4 * 4 * 5 * 3; i++) {
        tt_conv_t c = {.size = {sizes[i % 3], 1}, .kernel = {i / 3 % 4 + 1, 1}, .dtype = TUTTI_F32};
        c.stride[0] = i / 12 % 4 + 1;
        c.padding[0] = i / 48 % 5;
        c.dilation[0] = i / 240 + 1;
        c.stride[1] = c.dilation[1] = 1;
        int64_t least = 0, most = 0, place;
        for (int64_t at = 0; at < c.size[0]; at++) {
            for (int64_t tap = 0; tap < c.kernel[0]; tap++) {
                const bool sees = tt_conv_sees(&c, 0, at, tap, &place);
                least = sees ? tt_min(least, place) : least;
                most = sees ? tt_max(most, place) : most;
            }
        }
        const tt_window_t window = tt_conv_window_of_dy(&c);
        assert_int_equal(window.before[0], -least);
        assert_int_equal(window.plane_size[0], most - least + 1);
    }
}

/* Planes whose bytes no integer counts: a dilation and a padding that fit each other. */
static void planes_beyond_all_memory_are_refused(void **state)
{
    (void)state;
    const int64_t reach = ((int64_t)1 << 32) - 2, far = ((int64_t)1 << 58) - 2;
    tt_conv_t plane = {.batch = 1, .groups = 1, .in = 1, .out = 1};
    for (int i = 0; i < 2; i++) {
        plane.size[i] = plane.out_size[i] = plane.stride[i] = 1;
        plane.kernel[i] = 2;
        plane.dilation[i] = reach;
        plane.padding[i] = reach / 2;
    }
    tt_conv_t line = plane;
    line.in = line.out = 16;
    line.kernel[0] = line.dilation[0] = 1;
    line.padding[0] = 0;
    line.dilation[1] = far;
    line.padding[1] = far / 2;
    tt_conv_t channels = plane;
    channels.groups = 4;
    tt_conv_t phases = plane; /* of one place each */
    for (int i = 0; i < 2; i++) {
        phases.dilation[i] = ((int64_t)1 << 33) - 2;
        phases.padding[i] = phases.dilation[i] / 2;
        phases.stride[i] = (int64_t)1 << 33;
    }
    const tt_conv_t convs[] = {line, plane, channels, phases};
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        static float x[16], w[16 * 16 * 2], y[16];
        tt_conv_t conv = convs[i];
        conv.dtype = conv.out_dtype = TUTTI_F32;
        assert_int_equal(tt_conv_forward(NULL, &conv, x, w, NULL, y), TUTTI_ERR_NOMEM);
        tt_expect_error("an image with padding");
        assert_int_equal(tt_conv_to_weight(NULL, &conv, x, y, w), TUTTI_ERR_NOMEM);
        assert_int_equal(tt_conv_to_x(NULL, &conv, y, w, NULL, x), TUTTI_ERR_NOMEM);
        conv.dtype = conv.out_dtype = TUTTI_F64; /* which makes no planes */
        assert_int_equal(
            tt_conv_forward(NULL, &conv, (double[16]){1}, (double[512]){1}, NULL, (double[16]){0}),
            TUTTI_OK);
    }
}

/* The same of what the windows of a volume see. */
static void windows_beyond_all_memory_are_refused(void **state)
{
    (void)state;
    const int64_t large = (int64_t)1 << 20;
    static double x[1], w[2], y[1];
    const tt_conv_t conv = {.batch = 1,
                            .groups = 1,
                            .in = 1,
                            .out = 1,
                            .size = {large, large},
                            .out_size = {large, large},
                            .kernel = {1, 1},
                            .stride = {1, 1},
                            .dilation = {1, 1},
                            .dtype = TUTTI_F64,
                            .out_dtype = TUTTI_F64,
                            .depth = {large, large * large, 2, 1, large * large / 2, 1}};
    assert_int_equal(tt_conv_forward(NULL, &conv, x, w, NULL, y), TUTTI_ERR_NOMEM);
    tt_expect_error("no memory for");
    assert_int_equal(tt_conv_to_x(NULL, &conv, y, w, NULL, x), TUTTI_ERR_NOMEM);
    assert_int_equal(tt_conv_to_weight(NULL, &conv, x, y, w), TUTTI_ERR_NOMEM);
}

static void no_images_give_a_gradient_of_zeros(void **state)
{
    (void)state;
    problem_t p = problem_of(shapes[0]);
    float dw[32 * 9];
    memset(dw, 0x7f, sizeof dw);
    p.conv.batch = 0;
    p.conv.dtype = p.conv.out_dtype = TUTTI_F32;
    assert_int_equal(tt_conv_forward(NULL, &p.conv, dw, dw, NULL, dw), TUTTI_OK);
    assert_int_equal(tt_conv_to_x(NULL, &p.conv, dw, dw, NULL, dw), TUTTI_OK);
    assert_int_equal(tt_conv_to_weight(NULL, &p.conv, dw, dw, dw), TUTTI_OK);
    for (size_t i = 0; i < sizeof dw / sizeof dw[0]; i++) {
        assert_true(dw[i] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_has_the_values_of_f64_and_one_set_of_bits),
        cmocka_unit_test(f32_has_the_same_bits_with_every_instruction_set),
        cmocka_unit_test(a_bias_of_minus_zero_has_the_same_bits_with_every_instruction_set),
        cmocka_unit_test(bf16_has_the_values_of_f64_and_one_set_of_bits),
        cmocka_unit_test(bf16_in_pairs_has_the_values_of_f64_too),
        cmocka_unit_test(a_nan_of_a_neighbour_stays_out_of_the_gradient),
        cmocka_unit_test(a_nan_of_a_channel_stays_out_of_the_gradient_of_others),
        cmocka_unit_test(a_nan_of_a_group_stays_out_of_the_gradient_of_others),
        cmocka_unit_test(sums_of_zeros_are_zero),
        cmocka_unit_test(the_window_of_dy_is_what_positions_see),
        cmocka_unit_test(planes_beyond_all_memory_are_refused),
        cmocka_unit_test(windows_beyond_all_memory_are_refused),
        cmocka_unit_test(no_images_give_a_gradient_of_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
