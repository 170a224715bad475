/* How fast a convolution and its two gradients are on one thread: microseconds and GFLOP/s of each,
 * the best of interleaved runs, and of one product of the forward's size. One line for each shape
 * and dtype; bench/peers/torch_conv.py puts PyTorch's numbers beside them.
 *
 *     conv_speed [seconds per shape [first shape [count]]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/kernel/conv/conv.h"
#include "core/kernel/matmul/matmul.h"

typedef struct {
    int batch, in, out, size, kernel, stride, padding;
} shape_t;

static const shape_t shapes[] = {
    {64, 1, 32, 28, 3, 1, 1},    {64, 32, 64, 14, 3, 1, 1},   {64, 32, 64, 13, 3, 1, 0},
    {64, 16, 16, 28, 3, 1, 1},   {64, 16, 32, 28, 3, 2, 1},   {64, 32, 32, 14, 3, 1, 1},
    {64, 32, 64, 14, 3, 2, 1},   {64, 64, 64, 7, 3, 1, 1},    {64, 16, 32, 28, 1, 2, 0},
    {64, 32, 64, 14, 1, 2, 0},   {8, 3, 64, 112, 7, 2, 3},    {8, 128, 128, 28, 3, 1, 1},
    {64, 64, 64, 14, 1, 1, 0},   {16, 256, 64, 56, 1, 1, 0},  {16, 128, 512, 28, 1, 1, 0},
    {16, 512, 512, 7, 1, 1, 0},  {16, 128, 256, 28, 1, 2, 0}, {16, 64, 128, 56, 3, 2, 1},
    {16, 256, 512, 14, 3, 2, 1},
};

enum { FORWARD, TO_X, TO_WEIGHT, PRODUCT, KINDS };

typedef struct {
    tt_conv_t conv;
    tt_matmul_t product;
    float *x, *w, *y, *dx, *dw;
} problem_t;

static float *make(int64_t count)
{
    uint16_t *x = tt_alloc_raw((size_t)count * 4 + 64, "bench operand");
    if (x == NULL) {
        exit(1);
    }
    const tt_rng_t rng = tt_rng_stream(1, 0, 0, 0, 0);
    for (int64_t i = 0; i < 2 * count; i++) { /* small numbers as bf16 and as f32 */
        x[i] = (uint16_t)(0x3c00 | (tt_rng_u32(rng, (uint64_t)i) & 0x83ff));
    }
    return (float *)(void *)x;
}

static problem_t make_problem(const shape_t *s, tutti_dtype_t dtype)
{
    problem_t p = {.conv = {.batch = s->batch,
                            .groups = 1,
                            .in = s->in,
                            .out = s->out,
                            .dtype = dtype,
                            .out_dtype = dtype}};
    const int64_t out_size = (s->size + 2 * s->padding - s->kernel) / s->stride + 1;
    for (int i = 0; i < 2; i++) {
        p.conv.size[i] = s->size;
        p.conv.out_size[i] = out_size;
        p.conv.kernel[i] = s->kernel;
        p.conv.stride[i] = s->stride;
        p.conv.padding[i] = s->padding;
        p.conv.dilation[i] = 1;
    }
    const int64_t taps = (int64_t)s->in * s->kernel * s->kernel, positions = out_size * out_size;
    p.x = make((int64_t)s->batch * s->in * s->size * s->size);
    p.dx = make((int64_t)s->batch * s->in * s->size * s->size);
    p.w = make(s->out * taps);
    p.dw = make(s->out * taps);
    p.y = make(s->batch * s->out * positions);
    p.product = (tt_matmul_t){.batch = 1,
                              .m = s->batch * positions,
                              .n = s->out,
                              .k = taps,
                              .dtype = dtype,
                              .out_dtype = TUTTI_F32,
                              .a = {.data = make(s->batch * positions * taps)},
                              .b = {.data = p.w, .transposed = true},
                              .c = make(s->batch * s->out * positions)};
    return p;
}

static void free_problem(problem_t *p)
{
    float *const all[] = {p->x, p->dx, p->w, p->dw, p->y, p->product.c};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_free(all[i]);
    }
    tt_free((void *)(uintptr_t)p->product.a.data);
}

static tutti_status_t run(const problem_t *p, tt_threads_t *threads, int kind)
{
    tt_exec_t exec = {.threads = threads};
    switch (kind) {
    case FORWARD:
        return tt_conv_forward(&exec, &p->conv, p->x, p->w, NULL, p->y);
    case TO_X:
        return tt_conv_to_x(&exec, &p->conv, p->y, p->w, NULL, p->dx);
    case TO_WEIGHT:
        return tt_conv_to_weight(&exec, &p->conv, p->x, p->y, p->dw);
    default:
        return tt_matmul(&exec, &p->product);
    }
}

static void measure(const shape_t *s, tt_threads_t *threads, double seconds, tutti_dtype_t dtype)
{
    problem_t p = make_problem(s, dtype);
    double best[KINDS] = {1e9, 1e9, 1e9, 1e9};
    const int64_t end = tt_clock_ns() + (int64_t)(seconds * 1e9);
    do {
        for (int kind = 0; kind < KINDS; kind++) {
            const int64_t start = tt_clock_ns();
            if (run(&p, threads, kind) < 0) {
                exit(1);
            }
            const double micros = (double)(tt_clock_ns() - start) * 1e-3;
            best[kind] = micros < best[kind] ? micros : best[kind];
        }
    } while (tt_clock_ns() < end);
    const double work = 2e-3 * (double)(p.product.m * p.product.n * p.product.k);
    printf("%s %d %d %d %d %d %d %d ", dtype == TUTTI_F32 ? "f32" : "bf16", s->batch, s->in, s->out,
           s->size, s->kernel, s->stride, s->padding);
    for (int kind = 0; kind < KINDS; kind++) {
        printf(" %8.0f %6.1f", best[kind], work / best[kind]);
    }
    printf("\n");
    free_problem(&p);
}

int main(int argc, char **argv)
{
    const int total = (int)(sizeof shapes / sizeof *shapes);
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.3;
    const int first = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    const int count = argc > 3 ? (int)strtol(argv[3], NULL, 10) : argc > 2 ? 1 : total;
    tt_threads_t *threads;
    if (tt_threads_create(1, &threads) < 0) {
        return 1;
    }
    printf("# dtype batch in out size kernel stride padding; us and GFLOP/s of forward, dx, dw, "
           "product\n");
    for (int i = first; i < first + count && i >= 0 && i < total; i++) {
        measure(&shapes[i], threads, seconds, TUTTI_F32);
        if (tt_conv_dtype(TUTTI_BF16) == TUTTI_BF16) {
            measure(&shapes[i], threads, seconds, TUTTI_BF16);
        }
    }
    tt_threads_release(threads);
    return 0;
}
