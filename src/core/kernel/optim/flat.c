/* Flat buffers cut into pieces of 16384 elements for the threads. Cost: memory bandwidth. */
#include "core/kernel/optim/flat.h"

#include <math.h>
#include <stdatomic.h>

#include "core/base/integers.h"
#include "core/kernel/kernels.h"

enum { PIECE = 4 * TT_FLAT_BLOCK, BATCH = 256 };

typedef struct {
    const tt_flat_ops_t *ops;
    size_t n;
    float *y;
    const float *x;
    float factor;
    double (*measure)(const float *x, size_t n);
    double *partial;
    atomic_bool is_bad;
} flat_job_t;

static size_t pieces_of(size_t n)
{
    return tt_divide_up(n, PIECE);
}

static size_t piece_length(const flat_job_t *job, size_t first)
{
    return tt_min_size(job->n - first, PIECE);
}

static void scale_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    job->ops->scale(job->y + i, piece_length(job, i), job->factor);
}

static void scale_now(tt_threads_t *threads, float *x, size_t n, float factor)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .y = x, .factor = factor};
    tt_threads_run(threads, pieces_of(n), scale_piece, &job);
}

static void measure_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t first = piece * PIECE, end = first + piece_length(job, first);
    for (size_t i = first; i < end; i += TT_FLAT_BLOCK) {
        const size_t n = tt_min_size(end - i, TT_FLAT_BLOCK);
        job->partial[i / TT_FLAT_BLOCK] = job->measure(job->x + i, n);
    }
}

void tt_flat_blocks(tt_threads_t *threads, const float *x, size_t n, bool is_largest,
                    double *blocks)
{
    const tt_flat_ops_t *ops = tt_kernels()->flat;
    flat_job_t job = {
        .n = n, .x = x, .measure = is_largest ? ops->largest : ops->squares, .partial = blocks};
    tt_threads_run(threads, pieces_of(n), measure_piece, &job);
}

/* Of blocks, then of what they gave, in order: sums of squares, or the largest. */
static double measure(tt_threads_t *threads, const float *x, size_t n, bool is_largest)
{
    double partial[BATCH], all = 0;
    const size_t batch = (size_t)BATCH * TT_FLAT_BLOCK;
    for (size_t first = 0; first < n; first += batch) {
        const size_t count = tt_min_size(n - first, batch);
        tt_flat_blocks(threads, x + first, count, is_largest, partial);
        for (size_t i = 0; i < tt_divide_up(count, TT_FLAT_BLOCK); i++) {
            all = tt_flat_fold(all, partial[i], is_largest);
        }
    }
    return all;
}

double tt_flat_sum_squares(tt_threads_t *threads, const float *x, size_t n)
{
    return measure(threads, x, n, false);
}

double tt_flat_largest(tt_threads_t *threads, const float *x, size_t n)
{
    return measure(threads, x, n, true);
}

static void unscale_piece(void *arg, size_t piece)
{
    flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    if (!job->ops->is_finite(job->y + i, piece_length(job, i))) {
        atomic_store_explicit(&job->is_bad, true, memory_order_relaxed);
    }
    scale_piece(arg, piece);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* Arguments of all; `number` is a factor, or the largest norm. */
typedef struct {
    float *x;
    size_t n;
    double *cell;
    double number;
    bool is_largest;
} flat_t;

static const tt_pointer_t pointers[] = {TT_POINTER(flat_t, x), TT_POINTER(flat_t, cell),
                                        TT_NO_POINTER};

static tutti_status_t run_scale(tt_threads_t *threads, const void *arguments)
{
    const flat_t *flat = arguments;
    scale_now(threads, flat->x, flat->n, (float)flat->number);
    return TUTTI_OK;
}

tutti_status_t tt_flat_scale(tt_exec_t *exec, float *x, size_t n, float factor)
{
    static const tt_kernel_t kernel = TT_KERNEL("scale", flat_t, run_scale, pointers);
    return tt_launch(exec, &kernel, &(flat_t){.x = x, .n = n, .number = (double)factor});
}

static tutti_status_t run_measure(tt_threads_t *threads, const void *arguments)
{
    const flat_t *flat = arguments;
    const double next = measure(threads, flat->x, flat->n, flat->is_largest);
    *flat->cell = tt_flat_fold(*flat->cell, next, flat->is_largest);
    return TUTTI_OK;
}

tutti_status_t tt_flat_measure(tt_exec_t *exec, const float *x, size_t n, bool is_largest,
                               double *total)
{
    static const tt_kernel_t kernel = TT_KERNEL("grad_norm", flat_t, run_measure, pointers);
    union {
        const float *read;
        float *x;
    } grad = {.read = x}; /* it is only read */
    return tt_launch(exec, &kernel,
                     &(flat_t){.x = grad.x, .n = n, .cell = total, .is_largest = is_largest});
}

double tt_flat_clip_factor(double total, bool is_largest, double max_norm)
{
    const double eps = 1e-6;
    return max_norm == INFINITY ? 1 : max_norm / ((is_largest ? total : sqrt(total)) + eps);
}

static tutti_status_t run_clip(tt_threads_t *threads, const void *arguments)
{
    const flat_t *flat = arguments;
    const double factor = tt_flat_clip_factor(*flat->cell, flat->is_largest, flat->number);
    if (!(factor >= 1)) {
        scale_now(threads, flat->x, flat->n, (float)factor);
    }
    return TUTTI_OK;
}

tutti_status_t tt_flat_clip(tt_exec_t *exec, float *x, size_t n, const double *total,
                            bool is_largest, double max_norm)
{
    static const tt_kernel_t kernel = TT_KERNEL("clip_grad_norm", flat_t, run_clip, pointers);
    union {
        const double *read;
        double *cell;
    } norm = {.read = total}; /* it is only read */
    return tt_launch(exec, &kernel, &(flat_t){x, n, norm.cell, max_norm, is_largest});
}

static tutti_status_t run_unscale(tt_threads_t *threads, const void *arguments)
{
    const flat_t *flat = arguments;
    flat_job_t job = {
        .ops = tt_kernels()->flat, .n = flat->n, .y = flat->x, .factor = (float)flat->number};
    tt_threads_run(threads, pieces_of(flat->n), unscale_piece, &job);
    *flat->cell = atomic_load(&job.is_bad) ? 1 : *flat->cell;
    return TUTTI_OK;
}

tutti_status_t tt_flat_unscale(tt_exec_t *exec, float *x, size_t n, float factor, double *bad)
{
    static const tt_kernel_t kernel = TT_KERNEL("unscale", flat_t, run_unscale, pointers);
    return tt_launch(exec, &kernel,
                     &(flat_t){.x = x, .n = n, .cell = bad, .number = (double)factor});
}
