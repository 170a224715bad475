/* Attention forward and backward on one core: GFLOP/s (under causal half of the products count)
 * against dnnl_sgemm on a square product of the same run. `attention_speed [seconds per shape]`. */
#include <dlfcn.h>
#include <dnnl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/kernel/attention/attention.h"

typedef struct {
    int64_t batch, heads, length, d;
    bool causal;
    tutti_dtype_t dtype;
} shape_t;

static const shape_t shapes[] = {
    {4, 6, 256, 64, true, TUTTI_F32},   {4, 6, 256, 64, true, TUTTI_BF16},
    {8, 4, 256, 32, true, TUTTI_F32},   {1, 6, 1024, 64, true, TUTTI_F32},
    {1, 6, 1024, 64, false, TUTTI_F32}, {1, 6, 1024, 128, true, TUTTI_F32},
};

static double now(void)
{
    return (double)tt_clock_ns() * 1e-9;
}

static void *make(int64_t floats)
{
    float *x = aligned_alloc(64, ((size_t)floats * 4 + 63) / 64 * 64);
    if (x == NULL) {
        exit(1);
    }
    const tt_rng_t rng = tt_rng_stream(1, 0, 0, 0, 0);
    for (int64_t i = 0; i < floats; i++) { /* small as f32, and as two bf16 */
        x[i] = tt_rng_uniform(rng, (uint64_t)i) - 0.5f;
    }
    return x;
}

static double measure_library(double seconds)
{
    enum { N = 384 };
    float *a = make(N * N), *b = make(N * N), *c = make(N * N);
    double best = 1e9;
    for (double start = now(); now() - start < seconds;) {
        const double t = now();
        dnnl_sgemm('N', 'N', N, N, N, 1, a, N, b, N, 0, c, N);
        best = fmin(best, now() - t);
    }
    free(a);
    free(b);
    free(c);
    return 2e-9 * N * N * N / best;
}

static void place(tt_attention_t *a, const shape_t *s, char *qkv, char *dqkv)
{
    const int64_t width = s->heads * s->d, bytes = (int64_t)tutti_dtype_bytes(s->dtype);
    tt_heads_t *const parts[] = {&a->q, &a->k, &a->v, &a->dq, &a->dk, &a->dv};
    for (int i = 0; i < 6; i++) {
        char *data = (i < 3 ? qkv : dqkv) + i % 3 * width * bytes;
        *parts[i] = (tt_heads_t){data, s->length * 3 * width, s->d, 3 * width};
    }
}

static void measure(const shape_t *s, tt_threads_t *threads, double seconds)
{
    const int64_t width = s->heads * s->d, rows = s->batch * s->length;
    float *qkv = make(rows * 3 * width), *dqkv = make(rows * 3 * width);
    float *out = make(rows * width), *dout = make(rows * width),
          *max_sum = make(rows * s->heads * 2);
    tt_exec_t exec = {.threads = threads};
    tt_attention_t a = {.batch = s->batch,
                        .heads = s->heads,
                        .tq = s->length,
                        .tk = s->length,
                        .d = s->d,
                        .dtype = s->dtype,
                        .scale = 1 / sqrtf((float)s->d),
                        .causal = s->causal,
                        .out = {out, s->length * width, s->d, width},
                        .dout = {dout, s->length * width, s->d, width},
                        .max_sum = (tt_max_sum_t *)max_sum};
    place(&a, s, (char *)qkv, (char *)dqkv);
    double forward = 1e9, backward = 1e9;
    for (double start = now(); now() - start < seconds;) {
        const double t0 = now();
        const bool failed = tt_attention_forward(&exec, &a) < 0;
        const double t1 = now();
        if (failed || tt_attention_backward(&exec, &a) < 0) {
            exit(1);
        }
        forward = fmin(forward, t1 - t0);
        backward = fmin(backward, now() - t1);
    }
    const double peer = measure_library(seconds / 4);
    const double work = 2e-9 * (double)(rows * s->heads * s->length * s->d) * (s->causal ? 0.5 : 1);
    const double both = 7 * work / (forward + backward);
    printf("%-4s B %d H %d T %4d D %3d %-6s  forward %5.1f  backward %5.1f  both %5.1f GFLOP/s  "
           "sgemm %5.1f  ratio %.2f\n",
           tutti_dtype_name(s->dtype), (int)s->batch, (int)s->heads, (int)s->length, (int)s->d,
           s->causal ? "causal" : "full", 2 * work / forward, 5 * work / backward, both, peer,
           both / peer);
    free(qkv);
    free(dqkv);
    free(out);
    free(dout);
    free(max_sum);
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.3;
    void (*set_threads)(int);
    *(void **)(void *)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads != NULL) {
        set_threads(1);
    }
    tt_threads_t *threads;
    if (tt_threads_create(1, &threads) < 0) {
        return 1;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        measure(&shapes[i], threads, seconds);
    }
    tt_threads_release(threads);
    return 0;
}
