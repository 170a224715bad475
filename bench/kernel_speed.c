/* How fast the kernels are on one thread, against memcpy in the same run.
 *
 * For each kernel: elements per second and bytes moved per second, once on 32 KiB operands (cache)
 * and once on 64 MiB ones (memory). The last column is the bytes' rate over that of memcpy at
 * that size: about 1 means as fast as memory allows. The best of several rounds is printed.
 *
 *     TUTTI_ISA=avx2 build/bench/kernel_speed
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/kernel/optim/flat.h"
#include "core/kernel/optim/optim_steps.h"
#include "core/kernel/index/indexing.h"
#include "core/kernel/kernels.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/random/random.h"
#include "core/kernel/reduce/reduce.h"
#include "core/kernel/norm/rows.h"

enum { WIDTH = 512, ROUNDS = 5, BUFFERS = 4 };

/* Operands of n floats each, seen as [n / WIDTH, WIDTH]. */
typedef struct {
    float *x[BUFFERS];
    int64_t *indices;
    size_t n;
} bench_t;

typedef struct {
    const char *name;
    void (*run)(const bench_t *b, int kind);
    int kind;
    double bytes; /* moved per element */
} entry_t;

static tt_strided_t matrix(float *x, size_t n)
{
    return (tt_strided_t){
        .data = x, .rank = 2, .shape = {(int64_t)(n / WIDTH), WIDTH}, .strides = {WIDTH, 1}};
}

static void run_memcpy(const bench_t *b, int kind)
{
    (void)kind;
    memcpy(b->x[0], b->x[1], b->n * sizeof(float));
}

static void run_unary(const bench_t *b, int kind)
{
    const tt_strided_t y = matrix(b->x[0], b->n), x = matrix(b->x[1], b->n);
    TT_ASSERT(tt_map_unary(NULL, (tt_unary_t)kind, (tt_map_params_t){.p = 2, .q = 3}, &y, &x) >= 0);
}

static void run_binary(const bench_t *b, int kind)
{
    const tt_strided_t y = matrix(b->x[0], b->n), x = matrix(b->x[1], b->n);
    const tt_strided_t z = matrix(b->x[2], b->n);
    TT_ASSERT(
        tt_map_binary(NULL, (tt_binary_t)kind, (tt_map_params_t){.p = 2, .q = 3}, &y, &x, &z) >= 0);
}

static void run_bias(const bench_t *b, int kind)
{
    const tt_strided_t y = matrix(b->x[0], b->n), x = matrix(b->x[1], b->n);
    tt_strided_t bias = matrix(b->x[2], b->n);
    bias.strides[0] = 0;
    TT_ASSERT(tt_map_binary(NULL, (tt_binary_t)kind, (tt_map_params_t){0}, &y, &x, &bias) >= 0);
}

static void run_to_bf16(const bench_t *b, int kind)
{
    tt_strided_t y = matrix(b->x[0], b->n);
    const tt_strided_t x = matrix(b->x[1], b->n);
    y.dtype = (tutti_dtype_t)kind;
    TT_ASSERT(tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &y, &x) >= 0);
}

static void run_from_bf16(const bench_t *b, int kind)
{
    const tt_strided_t y = matrix(b->x[0], b->n);
    tt_strided_t x = matrix(b->x[3], b->n);
    x.dtype = (tutti_dtype_t)kind;
    TT_ASSERT(tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &y, &x) >= 0);
}

static void run_transpose(const bench_t *b, int kind)
{
    const tt_strided_t y = matrix(b->x[0], b->n);
    tt_strided_t x = matrix(b->x[1], b->n);
    x.strides[0] = 1;
    x.strides[1] = x.shape[0];
    TT_ASSERT(tt_map_unary(NULL, (tt_unary_t)kind, (tt_map_params_t){0}, &y, &x) >= 0);
}

static void run_reduce_all(const bench_t *b, int kind)
{
    const tt_strided_t x = matrix(b->x[1], b->n);
    tt_strided_t y = {.data = b->x[0], .rank = 2, .shape = {1, 1}, .strides = {1, 1}};
    TT_ASSERT(tt_reduce(NULL, (tt_reduce_t)kind, (tt_reduce_params_t){0}, &y, &x, 3) >= 0);
}

static void run_reduce_rows(const bench_t *b, int kind)
{
    const tt_strided_t x = matrix(b->x[1], b->n);
    tt_strided_t y = matrix(b->x[0], b->n);
    y.shape[1] = y.strides[0] = 1;
    TT_ASSERT(tt_reduce(NULL, (tt_reduce_t)kind, (tt_reduce_params_t){0}, &y, &x, 2) >= 0);
}

static void run_reduce_columns(const bench_t *b, int kind)
{
    const tt_strided_t x = matrix(b->x[1], b->n);
    tt_strided_t y = matrix(b->x[0], b->n);
    y.shape[0] = 1;
    TT_ASSERT(tt_reduce(NULL, (tt_reduce_t)kind, (tt_reduce_params_t){0}, &y, &x, 1) >= 0);
}

static tt_rows_t rows_of(const bench_t *b)
{
    return (tt_rows_t){TUTTI_F32, b->n / WIDTH, WIDTH};
}

static void run_softmax(const bench_t *b, int kind)
{
    if (kind == 0) {
        TT_ASSERT(tt_softmax(NULL, rows_of(b), b->x[0], b->x[1]) >= 0);
    } else {
        TT_ASSERT(tt_softmax_backward(NULL, rows_of(b), b->x[0], b->x[1], b->x[2]) >= 0);
    }
}

static void run_loss(const bench_t *b, int kind)
{
    float scale = 1;
    const tt_cross_entropy_t ce = {.shape = rows_of(b),
                                   .logits = b->x[1],
                                   .targets = b->indices,
                                   .ignore_index = -100,
                                   .loss = b->x[2],
                                   .max_sum = b->x[2] + b->n / WIDTH,
                                   .dlogits = b->x[0],
                                   .scale = &scale,
                                   .scale_is_shared = true};
    if (kind == 0) {
        TT_ASSERT(tt_cross_entropy(NULL, &ce) >= 0);
    } else {
        TT_ASSERT(tt_cross_entropy_backward(NULL, &ce) >= 0);
    }
}

static void run_layer_norm(const bench_t *b, int kind)
{
    const size_t rows = b->n / WIDTH;
    float *statistics = b->x[3], *gamma = statistics + 2 * rows;
    const tt_norm_t norm = {.shape = rows_of(b),
                            .eps = 1e-5,
                            .x = b->x[1],
                            .gamma = gamma,
                            .beta = gamma,
                            .y = b->x[0],
                            .mean = statistics,
                            .rstd = statistics + rows,
                            .dy = b->x[2],
                            .dx = b->x[0],
                            .dgamma = gamma + WIDTH,
                            .dbeta = gamma + 2 * WIDTH};
    if (kind == 0) {
        TT_ASSERT(tt_layer_norm(NULL, &norm) >= 0);
    } else {
        TT_ASSERT(tt_layer_norm_backward(NULL, &norm) >= 0);
    }
}

static void run_adam(const bench_t *b, int kind)
{
    const tt_update_numbers_t numbers = {.sign = 1,
                                         .keep = kind == 0 ? 1 : 0.99999,
                                         .decay = kind == 0 ? 0.1 : 0,
                                         .minus_lr = -1e-4,
                                         .gain1 = 0.1,
                                         .beta2 = 0.99,
                                         .gain2 = 0.01,
                                         .root2 = 0.3,
                                         .eps = 1e-8};
    const tt_update_buffers_t at = {b->x[0], b->x[1], b->x[2], b->x[3], NULL};
    tt_kernels()->optim_steps->update[TT_UPDATE_ADAM](&numbers, &at, b->n);
}

static void run_flat(const bench_t *b, int kind)
{
    if (kind == 0) {
        tt_kernels()->flat->axpy(b->x[0], b->x[1], b->n, 1e-3f);
    } else {
        b->x[0][0] = (float)tt_flat_sum_squares(NULL, b->x[1], b->n);
    }
}

static void run_random(const bench_t *b, int kind)
{
    const tt_random_t at = {.rng = tt_rng_stream(1, 2, 3, 4, 5)};
    if (kind == 0) {
        TT_ASSERT(tt_dropout(NULL, at, TUTTI_F32, b->x[0], b->x[1], b->n, 0.1) >= 0);
    } else {
        TT_ASSERT(tt_fill_normal(NULL, at, TUTTI_F32, b->x[0], b->n, 0, 1) >= 0);
    }
}

static void run_embedding(const bench_t *b, int kind)
{
    const tt_rows_by_index_t at = {.dtype = TUTTI_F32,
                                   .table_rows = b->n / WIDTH,
                                   .columns = WIDTH,
                                   .indices = b->indices,
                                   .count = b->n / WIDTH};
    if (kind == 0) {
        TT_ASSERT(tt_take_rows(NULL, &at, b->x[0], b->x[1]) >= 0);
    } else {
        TT_ASSERT(tt_add_rows(NULL, &at, b->x[0], b->x[1]) >= 0);
    }
}

static const entry_t entries[] = {
    {"memcpy", run_memcpy, 0, 8},
    {"add", run_binary, TT_BINARY_ADD, 12},
    {"add a bias row", run_bias, TT_BINARY_ADD, 8},
    {"affine", run_unary, TT_UNARY_AFFINE, 8},
    {"relu", run_unary, TT_UNARY_RELU, 8},
    {"exp", run_unary, TT_UNARY_EXP, 8},
    {"log", run_unary, TT_UNARY_LOG, 8},
    {"tanh", run_unary, TT_UNARY_TANH, 8},
    {"sigmoid", run_unary, TT_UNARY_SIGMOID, 8},
    {"gelu", run_unary, TT_UNARY_GELU, 8},
    {"gelu_tanh", run_unary, TT_UNARY_GELU_TANH, 8},
    {"gelu_backward", run_binary, TT_BINARY_GELU_BACKWARD, 12},
    {"gelu_tanh_backward", run_binary, TT_BINARY_GELU_TANH_BACKWARD, 12},
    {"f32 to bf16", run_to_bf16, TUTTI_BF16, 6},
    {"bf16 to f32", run_from_bf16, TUTTI_BF16, 6},
    {"transpose", run_transpose, TT_UNARY_COPY, 8},
    {"sum of all", run_reduce_all, TT_REDUCE_SUM, 4},
    {"sum of rows", run_reduce_rows, TT_REDUCE_SUM, 4},
    {"sum of columns", run_reduce_columns, TT_REDUCE_SUM, 4},
    {"argmax of rows", run_reduce_rows, TT_REDUCE_ARGMAX, 4},
    {"softmax", run_softmax, 0, 8},
    {"softmax_backward", run_softmax, 1, 12},
    {"cross_entropy", run_loss, 0, 4},
    {"cross_entropy_backward", run_loss, 1, 8},
    {"layer_norm", run_layer_norm, 0, 8},
    {"layer_norm_backward", run_layer_norm, 1, 12},
    {"embedding", run_embedding, 0, 8},
    {"embedding_backward", run_embedding, 1, 12},
    {"adamw", run_adam, 1, 28},
    {"axpy", run_flat, 0, 12},
    {"sum_squares", run_flat, 1, 4},
    {"dropout", run_random, 0, 8},
    {"fill_normal", run_random, 1, 4},
};

/* Seconds of one run, the best of several rounds of at least 2 ms. */
static double measure(const entry_t *entry, const bench_t *b)
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        int runs = 0;
        const int64_t start = tt_clock_ns();
        int64_t now = start;
        for (; now - start < 2 * TT_NS_PER_MS; now = tt_clock_ns(), runs++) {
            entry->run(b, entry->kind);
        }
        const double seconds = (double)(now - start) / (double)TT_NS_PER_S / runs;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static tutti_status_t make_operands(bench_t *b, size_t n)
{
    *b = (bench_t){.n = n};
    for (int k = 0; k < BUFFERS; k++) {
        b->x[k] = tt_alloc_raw((n + 4 * WIDTH) * sizeof(float), "bench operand");
        TT_TRY_ALLOC(b->x[k]);
    }
    b->indices = tt_alloc_array(n / WIDTH, sizeof(int64_t), "bench indices");
    TT_TRY_ALLOC(b->indices);
    for (size_t i = 0; i < n / WIDTH; i++) {
        b->indices[i] = (int64_t)(i * 7919 % (n / WIDTH < WIDTH ? n / WIDTH : WIDTH));
    }
    return TUTTI_OK;
}

static void refill(const bench_t *b)
{
    for (int k = 0; k < BUFFERS; k++) {
        const tt_random_t at = {.rng = tt_rng_stream((uint64_t)k, 0, 0, 0, 0)};
        TT_ASSERT(tt_fill_uniform(NULL, at, TUTTI_F32, b->x[k], b->n + 4 * WIDTH, 0.1, 1) >= 0);
    }
}

int main(void)
{
    static const size_t sizes[2] = {8192, 16 << 20};
    char id[160];
    tt_kernels_id(id, sizeof id);
    printf("%s\n%-24s %34s %34s\n", id, "", "32 KiB per operand", "64 MiB per operand");
    printf("%-24s %12s %9s %11s %12s %9s %11s\n", "kernel", "Gelem/s", "GB/s", "of memcpy",
           "Gelem/s", "GB/s", "of memcpy");
    bench_t operands[2];
    double copy[2] = {0, 0};
    for (int s = 0; s < 2; s++) {
        if (make_operands(&operands[s], sizes[s]) < 0) {
            fprintf(stderr, "%s\n", tutti_last_error());
            return 1;
        }
    }
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
        printf("%-24s", entries[e].name);
        for (int s = 0; s < 2; s++) {
            refill(&operands[s]);
            const double rate = (double)sizes[s] / measure(&entries[e], &operands[s]) / 1e9;
            copy[s] = e == 0 ? rate * entries[e].bytes : copy[s];
            printf(" %12.2f %9.1f %11.2f", rate, rate * entries[e].bytes,
                   rate * entries[e].bytes / copy[s]);
        }
        printf("\n");
    }
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < BUFFERS; k++) {
            tt_free(operands[s].x[k]);
        }
        tt_free(operands[s].indices);
    }
    return 0;
}
