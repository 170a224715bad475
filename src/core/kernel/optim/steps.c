/* Optimizer steps cut into pieces for the pool.
 *
 * LAMB and Adafactor take two passes: the first moves the moments and adds up squares, one f64 sum
 * per piece, the second applies the update, which it computes anew rather than keep it. Their
 * pieces are at most 256, so that the sums fit on the stack. Cost: memory bandwidth. */
#include "core/kernel/optim/steps_ops.h"

#include <math.h>

#include "core/kernel/optim/flat_ops.h"
#include "core/kernel/kernels.h"

enum { PIECE = 4 * TT_FLAT_BLOCK, PIECES_MAX = 256, COLUMNS = 64 };

typedef void (*loop_fn_t)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n);

typedef struct {
    const tt_steps_ops_t *ops;
    const tt_flat_ops_t *flat;
    loop_fn_t loop;
    size_t n, piece; /* elements (Adafactor: rows), in all and a piece */
    tt_steps_numbers_t numbers;
    tt_steps_buffers_t at;
    const tt_adafactor_t *adafactor;
    double row_mean;                                 /* Adafactor, of the only matrix */
    double weights[PIECES_MAX], updates[PIECES_MAX]; /* sums of squares */
    float factor;
} steps_job_t;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* The buffers from element i on. */
static tt_steps_buffers_t from(const tt_steps_buffers_t *at, size_t i)
{
    return (tt_steps_buffers_t){
        .weight = at->weight + i,
        .gradient = at->gradient + i,
        .first = at->first == NULL ? NULL : at->first + i,
        .second = at->second == NULL ? NULL : at->second + i,
        .third = at->third == NULL ? NULL : at->third + i,
    };
}

static void loop_piece(void *arg, size_t piece)
{
    const steps_job_t *job = arg;
    const size_t i = piece * PIECE;
    const tt_steps_buffers_t at = from(&job->at, i);
    job->loop(&job->numbers, &at, least(job->n - i, PIECE));
}

static void run_loop(tt_pool_t *pool, loop_fn_t loop, const tt_steps_numbers_t *numbers,
                     const tt_steps_buffers_t *at, size_t n)
{
    steps_job_t job;
    job.loop = loop;
    job.n = n;
    job.numbers = *numbers;
    job.at = *at;
    tt_pool_run(pool, divide_up(n, PIECE), loop_piece, &job);
}

static float descriptor_of(bool maximize)
{
    return maximize ? -1.0f : 1.0f;
}

void tt_steps_rmsprop(tt_pool_t *pool, const tt_rmsprop_t *rmsprop, const tt_steps_buffers_t *at,
                      size_t n)
{
    const tt_steps_numbers_t numbers = {
        .sign = descriptor_of(rmsprop->maximize),
        .decay = (float)rmsprop->weight_decay,
        .minus_lr = (float)-rmsprop->lr,
        .beta1 = (float)rmsprop->alpha,
        .gain1 = (float)(1 - rmsprop->alpha),
        .eps = (float)rmsprop->eps,
        .momentum = (float)rmsprop->momentum,
    };
    run_loop(pool, tt_kernels()->steps->rmsprop, &numbers, at, n);
}

void tt_steps_adagrad(tt_pool_t *pool, const tt_adagrad_t *adagrad, const tt_steps_buffers_t *at,
                      size_t n)
{
    const double lr = adagrad->lr / (1 + (double)(adagrad->step - 1) * adagrad->lr_decay);
    const tt_steps_numbers_t numbers = {
        .sign = descriptor_of(adagrad->maximize),
        .decay = (float)adagrad->weight_decay,
        .minus_lr = (float)-lr,
        .eps = (float)adagrad->eps,
        .initial = adagrad->step == 1 ? (float)adagrad->initial : 0.0f,
    };
    run_loop(pool, tt_kernels()->steps->adagrad, &numbers, at, n);
}

void tt_steps_lion(tt_pool_t *pool, const tt_lion_t *lion, const tt_steps_buffers_t *at, size_t n)
{
    const tt_steps_numbers_t numbers = {
        .sign = descriptor_of(lion->maximize),
        .keep = (float)(1 - lion->lr * lion->weight_decay),
        .minus_lr = (float)-lion->lr,
        .beta1 = (float)lion->beta1,
        .gain1 = (float)(1 - lion->beta1),
        .beta2 = (float)lion->beta2,
        .gain2 = (float)(1 - lion->beta2),
    };
    run_loop(pool, tt_kernels()->steps->lion, &numbers, at, n);
}

/* ---- two passes ------------------------------------------------------------------------------ */

/* Set the pieces of a job over n items, each of at least `item_pieces`; how many there are. */
static size_t cut(steps_job_t *job, size_t n, size_t piece_least)
{
    job->ops = tt_kernels()->steps;
    job->flat = tt_kernels()->flat;
    job->n = n;
    job->piece = divide_up(n, PIECES_MAX);
    job->piece = job->piece < piece_least ? piece_least : job->piece;
    return divide_up(n, job->piece);
}

static double sum_of(const double *parts, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += parts[i];
    }
    return sum;
}

/* ---- LAMB ------------------------------------------------------------------------------------ */

static void lamb_measure(void *arg, size_t piece)
{
    steps_job_t *job = arg;
    float u[TT_FLAT_BLOCK];
    double weights = 0, updates = 0;
    const size_t end = least((piece + 1) * job->piece, job->n);
    for (size_t i = piece * job->piece; i < end; i += TT_FLAT_BLOCK) {
        const size_t n = least(end - i, TT_FLAT_BLOCK);
        const tt_steps_buffers_t at = from(&job->at, i);
        job->ops->lamb_moments(&job->numbers, &at, n);
        job->ops->lamb_update(&job->numbers, &at, u, n);
        weights += job->flat->squares(at.weight, n);
        updates += job->flat->squares(u, n);
    }
    job->weights[piece] = weights;
    job->updates[piece] = updates;
}

static void lamb_apply(void *arg, size_t piece)
{
    steps_job_t *job = arg;
    float u[TT_FLAT_BLOCK];
    const size_t end = least((piece + 1) * job->piece, job->n);
    for (size_t i = piece * job->piece; i < end; i += TT_FLAT_BLOCK) {
        const size_t n = least(end - i, TT_FLAT_BLOCK);
        const tt_steps_buffers_t at = from(&job->at, i);
        job->ops->lamb_update(&job->numbers, &at, u, n);
        job->flat->axpy(at.weight, u, n, job->factor);
    }
}

void tt_steps_lamb(tt_pool_t *pool, const tt_lamb_t *lamb, const tt_steps_buffers_t *at, size_t n)
{
    const double step = (double)lamb->step;
    steps_job_t job;
    job.at = *at;
    job.numbers = (tt_steps_numbers_t){
        .sign = descriptor_of(lamb->maximize),
        .decay = (float)lamb->weight_decay,
        .beta1 = (float)lamb->beta1,
        .gain1 = (float)(1 - lamb->beta1),
        .beta2 = (float)lamb->beta2,
        .gain2 = (float)(1 - lamb->beta2),
        .eps = (float)lamb->eps,
        .scale1 = (float)(1 / (1 - pow(lamb->beta1, step))),
        .root2 = (float)sqrt(1 - pow(lamb->beta2, step)),
    };
    const size_t pieces = cut(&job, n, PIECE);
    tt_pool_run(pool, pieces, lamb_measure, &job);
    const double weight = sqrt(sum_of(job.weights, pieces));
    const double update = sqrt(sum_of(job.updates, pieces));
    const double trust = weight > 0 && update > 0 ? weight / update : 1;
    job.factor = (float)(-lamb->lr * trust);
    tt_pool_run(pool, pieces, lamb_apply, &job);
}

/* ---- Adafactor ------------------------------------------------------------------------------- */

/* Means of squares along the rows of a piece. */
static void row_piece(void *arg, size_t piece)
{
    const steps_job_t *job = arg;
    const size_t columns = job->adafactor->columns;
    const size_t end = least((piece + 1) * job->piece, job->n);
    for (size_t row = piece * job->piece; row < end; row++) {
        const double sum = job->flat->squares(job->at.gradient + row * columns, columns);
        const double mean = sum / (double)columns + job->adafactor->eps;
        float *at = &job->at.second[row];
        *at = *at * job->numbers.beta2 + (float)mean * job->numbers.gain2;
    }
}

/* Means of squares along some columns of a matrix. */
static void column_piece(void *arg, size_t piece)
{
    const steps_job_t *job = arg;
    const tt_adafactor_t *a = job->adafactor;
    const size_t blocks = divide_up(a->columns, COLUMNS);
    const size_t matrix = piece / blocks, first = piece % blocks * COLUMNS;
    const size_t n = least(a->columns - first, COLUMNS);
    double sum[COLUMNS] = {0};
    const float *x = job->at.gradient + matrix * a->rows * a->columns + first;
    job->ops->column_squares(sum, x, a->rows, a->columns, n);
    float *at = job->at.third + matrix * a->columns + first;
    for (size_t i = 0; i < n; i++) {
        const double mean = sum[i] / (double)a->rows + a->eps;
        at[i] = at[i] * job->numbers.beta2 + (float)mean * job->numbers.gain2;
    }
}

static double row_mean_of(const steps_job_t *job, size_t matrix)
{
    const size_t rows = job->adafactor->rows;
    double sum = 0;
    for (size_t i = 0; i < rows; i++) {
        sum += (double)job->at.second[matrix * rows + i];
    }
    return sum / (double)rows;
}

/* Where a row's update begins: what stands under the root, and the factor before it. */
static const float *root_of(const steps_job_t *job, size_t row, double *row_mean, float *factor)
{
    const tt_adafactor_t *a = job->adafactor;
    if (a->rows == 0) {
        *factor = job->numbers.sign;
        return job->at.second + row * PIECE;
    }
    const size_t matrix = row / a->rows;
    if (a->matrices == 1) {
        *row_mean = job->row_mean;
    } else if (isnan(*row_mean) || row % a->rows == 0) {
        *row_mean = row_mean_of(job, matrix);
    }
    *factor = job->numbers.sign * (float)sqrt(*row_mean / (double)job->at.second[row]);
    return job->at.third + matrix * a->columns;
}

/* Over the rows of a piece: sums of the updates' squares, or the step. Without factors a row is
 * PIECE elements of the vector. */
static void over_rows(steps_job_t *job, size_t piece, bool is_step)
{
    const tt_adafactor_t *a = job->adafactor;
    const size_t width = a->rows == 0 ? PIECE : a->columns;
    const size_t end = least((piece + 1) * job->piece, job->n);
    const size_t count = a->rows == 0 ? a->columns : a->matrices * a->rows * a->columns;
    float u[TT_FLAT_BLOCK];
    double squares = 0, row_mean = (double)NAN;
    for (size_t row = piece * job->piece; row < end; row++) {
        float factor;
        const float *root = root_of(job, row, &row_mean, &factor);
        const size_t length = least(count - row * width, width);
        for (size_t k = 0; k < length; k += TT_FLAT_BLOCK) {
            const size_t i = row * width + k, n = least(length - k, TT_FLAT_BLOCK);
            job->ops->over_root(u, job->at.gradient + i, root + k, factor, n);
            if (is_step) {
                float *first = job->at.first == NULL ? NULL : job->at.first + i;
                job->ops->apply(&job->numbers, job->at.weight + i, first, u, n);
            } else {
                squares += job->flat->squares(u, n);
            }
        }
    }
    job->updates[piece] = squares;
}

static void measure_rows(void *arg, size_t piece)
{
    over_rows(arg, piece, false);
}

static void step_rows(void *arg, size_t piece)
{
    over_rows(arg, piece, true);
}

/* The mean of squares of a vector. */
static void square_piece(void *arg, size_t piece)
{
    const steps_job_t *job = arg;
    const size_t i = piece * PIECE, n = least(job->adafactor->columns - i, PIECE);
    job->ops->square_mean(&job->numbers, job->at.second + i, job->at.gradient + i, n);
}

static void move_means(tt_pool_t *pool, steps_job_t *job, size_t pieces)
{
    const tt_adafactor_t *a = job->adafactor;
    if (a->rows == 0) {
        tt_pool_run(pool, divide_up(a->columns, PIECE), square_piece, job);
        return;
    }
    tt_pool_run(pool, pieces, row_piece, job);
    tt_pool_run(pool, a->matrices * divide_up(a->columns, COLUMNS), column_piece, job);
    job->row_mean = a->matrices == 1 ? row_mean_of(job, 0) : 0;
}

void tt_steps_adafactor(tt_pool_t *pool, const tt_adafactor_t *a, const tt_steps_buffers_t *at)
{
    steps_job_t job;
    job.at = *at;
    job.adafactor = a;
    job.numbers = (tt_steps_numbers_t){
        .sign = descriptor_of(a->maximize),
        .keep = (float)(1 - a->lr * a->weight_decay),
        .beta1 = (float)a->beta1,
        .gain1 = (float)(1 - a->beta1),
        .beta2 = (float)a->beta2,
        .gain2 = (float)(1 - a->beta2),
        .eps = (float)a->eps,
    };
    const bool is_vector = a->rows == 0;
    const size_t rows = is_vector ? divide_up(a->columns, PIECE) : a->matrices * a->rows;
    const size_t count = is_vector ? a->columns : rows * a->columns;
    if (count == 0) {
        return;
    }
    const size_t pieces = cut(&job, rows, is_vector ? 1 : divide_up(PIECE, a->columns));
    move_means(pool, &job, pieces);
    tt_pool_run(pool, pieces, measure_rows, &job);
    const double size = sqrt(sum_of(job.updates, pieces) / (double)count) / a->clip;
    job.numbers.minus_lr = (float)(-a->lr / (size > 1 ? size : 1));
    tt_pool_run(pool, pieces, step_rows, &job);
}
