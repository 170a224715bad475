/* Our products against one plain call of the library for the whole product, on one core: GFLOP/s
 * of both and their ratio, the best of interleaved runs. `matmul_speed [seconds per shape]`.
 * The library: oneDNN, dnnl_sgemm in f32, a matmul primitive made once in bf16. */
#include <dlfcn.h>
#include <dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/rng.h"
#include "core/kernel/matmul/matmul.h"

typedef struct {
    const char *what;
    int m, n, k;
    bool ta, tb;
} shape_t;

static const shape_t shapes[] = {
    {"qkv    Y = X W^T", 1024, 1152, 384, false, true},
    {"       dX = dY W", 1024, 384, 1152, false, false},
    {"       dW = dY^T X", 1152, 384, 1024, true, false},
    {"up     Y = X W^T", 1024, 1536, 384, false, true},
    {"       dX = dY W", 1024, 384, 1536, false, false},
    {"       dW = dY^T X", 1536, 384, 1024, true, false},
    {"down   Y = X W^T", 1024, 384, 1536, false, true},
    {"       dX = dY W", 1024, 1536, 384, false, false},
    {"       dW = dY^T X", 384, 1536, 1024, true, false},
    {"square Y = X W^T", 1024, 384, 384, false, true},
    {"       dW = dY^T X", 384, 384, 1024, true, false},
    {"128    Y = X W^T", 2048, 512, 128, false, true},
    {"       dX = dY W", 2048, 128, 512, false, false},
    {"       dW = dY^T X", 512, 128, 2048, true, false},
    {"       Y = X W^T", 2048, 128, 512, false, true},
    {"       Y = X W^T", 2048, 384, 128, false, true},
    {"       dW = dY^T X", 384, 128, 2048, true, false},
    {"       Y = X W^T", 2048, 128, 128, false, true},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *make(size_t bytes)
{
    uint16_t *x = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (x == NULL) {
        exit(1);
    }
    const tt_rng_t rng = tt_rng_stream(1, 0, 0, 0, 0);
    for (size_t i = 0; i < bytes / 2; i++) {
        x[i] = (uint16_t)(0x3c00 |
                          (tt_rng_u32(rng, i) & 0x83ff)); /* a small number as bf16 and as f32 */
    }
    return x;
}

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[3];
} library_t;

static void describe(dnnl_memory_desc_t *d, int rows, int columns, bool transposed,
                     dnnl_data_type_t type)
{
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static void prepare(library_t *l, const shape_t *s, void *a, void *b, void *c)
{
    dnnl_memory_desc_t d[3];
    describe(&d[0], s->m, s->k, s->ta, dnnl_bf16);
    describe(&d[1], s->k, s->n, s->tb, dnnl_bf16);
    describe(&d[2], s->m, s->n, false, dnnl_f32);
    dnnl_engine_create(&l->engine, dnnl_cpu, 0);
    dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags);
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t pd;
    dnnl_matmul_desc_init(&op, &d[0], &d[1], NULL, &d[2]);
    dnnl_primitive_desc_create(&pd, &op, NULL, l->engine, NULL);
    dnnl_primitive_create(&l->primitive, pd);
    dnnl_primitive_desc_destroy(pd);
    void *const data[] = {a, b, c};
    const int roles[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    for (int i = 0; i < 3; i++) {
        l->args[i].arg = roles[i];
        dnnl_memory_create(&l->args[i].memory, &d[i], l->engine, data[i]);
    }
}

static void finish(library_t *l)
{
    for (int i = 0; i < 3; i++) {
        dnnl_memory_destroy(l->args[i].memory);
    }
    dnnl_primitive_destroy(l->primitive);
    dnnl_stream_destroy(l->stream);
    dnnl_engine_destroy(l->engine);
}

static void call_library(const library_t *l, const shape_t *s, const void *a, const void *b,
                         float *c, bool bf16)
{
    if (bf16) {
        dnnl_primitive_execute(l->primitive, l->stream, 3, l->args);
        dnnl_stream_wait(l->stream);
        return;
    }
    dnnl_sgemm(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b,
               s->tb ? s->k : s->n, 0, c, s->n);
}

static double measure(const shape_t *s, tt_threads_t *threads, double seconds, bool bf16)
{
    const size_t bytes = bf16 ? 2 : 4;
    void *a = make((size_t)s->m * (size_t)s->k * bytes);
    void *b = make((size_t)s->n * (size_t)s->k * bytes);
    float *c = make((size_t)s->m * (size_t)s->n * 4);
    library_t library;
    prepare(&library, s, a, b, c);
    const tt_matmul_t m = {.batch = 1,
                           .m = s->m,
                           .n = s->n,
                           .k = s->k,
                           .dtype = bf16 ? TUTTI_BF16 : TUTTI_F32,
                           .a = {.data = a, .transposed = s->ta},
                           .b = {.data = b, .transposed = s->tb},
                           .c = c};
    double theirs = 1e9, ours = 1e9;
    for (double start = now(); now() - start < seconds;) {
        const double t0 = now();
        call_library(&library, s, a, b, c, bf16);
        const double t1 = now();
        if (tt_matmul(&(tt_exec_t){.threads = threads}, &m) < 0) {
            exit(1);
        }
        const double t2 = now();
        theirs = t1 - t0 < theirs ? t1 - t0 : theirs;
        ours = t2 - t1 < ours ? t2 - t1 : ours;
    }
    const double work = 2e-9 * s->m * s->n * s->k;
    printf("%-4s %-19s %5d %5d %5d  ours %6.1f  library %6.1f GFLOP/s  ratio %.3f\n",
           bf16 ? "bf16" : "f32", s->what, s->m, s->n, s->k, work / ours, work / theirs,
           theirs / ours);
    finish(&library);
    free(a);
    free(b);
    free(c);
    return theirs / ours;
}

/* The library's team; its OpenMP is not linked here, but loaded with it. */
static void use_one_thread(void)
{
    void (*set_threads)(int);
    *(void **)(void *)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads != NULL) {
        set_threads(1);
    }
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.3;
    use_one_thread();
    tt_threads_t *threads;
    if (tt_threads_create(1, &threads) < 0) {
        return 1;
    }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            measure(&shapes[i], threads, seconds, bf16);
        }
    }
    tt_threads_release(threads);
    return 0;
}
