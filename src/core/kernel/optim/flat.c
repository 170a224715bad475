/* Flat buffers cut into pieces of 16384 elements for the pool. Cost: memory bandwidth. */
#include "core/kernel/optim/flat_ops.h"

#include <math.h>
#include <stdatomic.h>

#include "core/kernel/kernels.h"

enum { PIECE = 4 * TT_FLAT_BLOCK, BATCH = 256 };

typedef struct {
    const tt_flat_ops_t *ops;
    size_t n;
    float *y;
    const float *x;
    float factor;
    double *partial;
    atomic_bool is_bad;
    tt_adam_step_t adam;
    tt_adam_buffers_t at;
    tt_sgd_step_t sgd;
} flat_job_t;

static size_t pieces_of(size_t n)
{
    return (n + PIECE - 1) / PIECE;
}

static size_t piece_length(const flat_job_t *job, size_t first)
{
    return job->n - first < PIECE ? job->n - first : PIECE;
}

static void sgd_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    float *buffer = job->at.first == NULL ? NULL : job->at.first + i;
    job->ops->sgd(&job->sgd, job->y + i, job->x + i, buffer, piece_length(job, i));
}

void tt_flat_sgd(tt_pool_t *pool, const tt_sgd_t *sgd, float *weight, const float *gradient,
                 float *momentum_buffer, size_t n)
{
    flat_job_t job = {
        .ops = tt_kernels()->flat,
        .n = n,
        .y = weight,
        .x = gradient,
        .at = {.first = momentum_buffer},
        .sgd = {.minus_lr = (float)-sgd->lr,
                .momentum = (float)sgd->momentum,
                .gain = (float)(1 - sgd->dampening),
                .decay = (float)sgd->weight_decay,
                .sign = sgd->maximize ? -1.0f : 1.0f,
                .nesterov = sgd->nesterov,
                .is_first_step = sgd->is_first_step},
    };
    tt_pool_run(pool, pieces_of(n), sgd_piece, &job);
}

static void adam_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    const tt_adam_buffers_t at = {
        .weight = job->at.weight + i,
        .gradient = job->at.gradient + i,
        .first = job->at.first + i,
        .second = job->at.second + i,
        .second_max = job->at.second_max == NULL ? NULL : job->at.second_max + i,
    };
    job->ops->adam(&job->adam, &at, piece_length(job, i));
}

static tt_adam_step_t adam_step(const tt_adam_t *adam)
{
    const double step = (double)adam->step;
    return (tt_adam_step_t){
        .keep = adam->decoupled ? (float)(1 - adam->lr * adam->weight_decay) : 1.0f,
        .decay = adam->decoupled ? 0.0f : (float)adam->weight_decay,
        .sign = adam->maximize ? -1.0f : 1.0f,
        .gain1 = (float)(1 - adam->beta1),
        .beta2 = (float)adam->beta2,
        .gain2 = (float)(1 - adam->beta2),
        .root2 = (float)sqrt(1 - pow(adam->beta2, step)),
        .eps = (float)adam->eps,
        .minus_step = (float)(-adam->lr / (1 - pow(adam->beta1, step))),
    };
}

void tt_flat_adam(tt_pool_t *pool, const tt_adam_t *adam, const tt_adam_buffers_t *at, size_t n)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .adam = adam_step(adam), .at = *at};
    tt_pool_run(pool, pieces_of(n), adam_piece, &job);
}

static void scale_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    job->ops->scale(job->y + i, piece_length(job, i), job->factor);
}

void tt_flat_scale(tt_pool_t *pool, float *x, size_t n, float factor)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .y = x, .factor = factor};
    tt_pool_run(pool, pieces_of(n), scale_piece, &job);
}

static void clamp_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    job->ops->clamp(job->y + i, piece_length(job, i), job->factor);
}

void tt_flat_clamp(tt_pool_t *pool, float *x, size_t n, float limit)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .y = x, .factor = limit};
    tt_pool_run(pool, pieces_of(n), clamp_piece, &job);
}

static void axpy_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    job->ops->axpy(job->y + i, job->x + i, piece_length(job, i), job->factor);
}

void tt_flat_axpy(tt_pool_t *pool, float *y, const float *x, size_t n, float factor)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .y = y, .x = x, .factor = factor};
    tt_pool_run(pool, pieces_of(n), axpy_piece, &job);
}

static void squares_piece(void *arg, size_t piece)
{
    const flat_job_t *job = arg;
    const size_t first = piece * PIECE, end = first + piece_length(job, first);
    for (size_t i = first; i < end; i += TT_FLAT_BLOCK) {
        const size_t n = end - i < TT_FLAT_BLOCK ? end - i : TT_FLAT_BLOCK;
        job->partial[i / TT_FLAT_BLOCK] = job->ops->squares(job->x + i, n);
    }
}

/* partial holds ceil(n / TT_FLAT_BLOCK). */
static void sum_block_squares(tt_pool_t *pool, double *partial, const float *x, size_t n)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .x = x, .partial = partial};
    tt_pool_run(pool, pieces_of(n), squares_piece, &job);
}

double tt_flat_sum_squares(tt_pool_t *pool, const float *x, size_t n)
{
    double partial[BATCH], sum = 0;
    const size_t batch = (size_t)BATCH * TT_FLAT_BLOCK;
    for (size_t first = 0; first < n; first += batch) {
        const size_t length = n - first < batch ? n - first : batch;
        sum_block_squares(pool, partial, x + first, length);
        for (size_t i = 0; i < (length + TT_FLAT_BLOCK - 1) / TT_FLAT_BLOCK; i++) {
            sum += partial[i];
        }
    }
    return sum;
}

static void finite_piece(void *arg, size_t piece)
{
    flat_job_t *job = arg;
    const size_t i = piece * PIECE;
    if (!job->ops->is_finite(job->x + i, piece_length(job, i))) {
        atomic_store_explicit(&job->is_bad, true, memory_order_relaxed);
    }
}

static void unscale_piece(void *arg, size_t piece)
{
    finite_piece(arg, piece);
    scale_piece(arg, piece);
}

bool tt_flat_unscale(tt_pool_t *pool, float *x, size_t n, float factor)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .y = x, .x = x, .factor = factor};
    tt_pool_run(pool, pieces_of(n), unscale_piece, &job);
    return !atomic_load(&job.is_bad);
}

bool tt_flat_is_finite(tt_pool_t *pool, const float *x, size_t n)
{
    flat_job_t job = {.ops = tt_kernels()->flat, .n = n, .x = x};
    tt_pool_run(pool, pieces_of(n), finite_piece, &job);
    return !atomic_load(&job.is_bad);
}
