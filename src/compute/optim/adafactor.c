/* Adafactor: the second moment of a matrix kept as one number a row and one a column, and steps
 * relative to the size of the parameter. Source: Shazeer and Stern, ICML 2018, algorithms 4 and 5;
 * options and defaults as in Hugging Face's Adafactor.
 *
 * Passes over the whole parameter: the means move, squares of the update are added up, the update
 * is computed again and applied. Sums are in f64, at most 256 of them, so that they fit on the
 * stack; the shape fixes what each adds up. A vector has rows of PIECE elements and no factors.
 */
#include "compute/optim/optimizer.h"
#include "core/base/integers.h"
#include "core/kernel/optim/flat.h"
#include "core/tensor/tensor_impl.h"

#define OPTION(name, ...) TT_OPTIM_OPTION(tutti_adafactor_options_t, name, __VA_ARGS__)

static const tutti_optim_option_t options_table[] = {
    OPTION(lr, 1, 0, INFINITY),           OPTION(eps1, 1e-30, 0, INFINITY),
    OPTION(eps2, 1e-3, 0, INFINITY),      OPTION(clip, 1, 0, INFINITY),
    OPTION(decay_rate, -0.8, -1, 0),      OPTION(beta1, 0, 0, 1),
    OPTION(weight_decay, 0, 0, INFINITY), {0},
};

static tutti_status_t resolve(void *options)
{
    const tutti_adafactor_options_t *o = options;
    return o->no_relative_step && !tt_is_given(o->lr)
               ? TT_FAIL(TUTTI_ERR_ARG, "adafactor: lr is 0: without the relative step it must be "
                                        "given")
               : TUTTI_OK;
}

enum { AVG, AVG_SQ, AVG_SQ_ROW, AVG_SQ_COL };

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    const tutti_adafactor_options_t *o = options;
    const bool is_factored = shape->rank >= 2;
    if (i == AVG || i == AVG_SQ) {
        return i == AVG ? o->beta1 != 0 : !is_factored;
    }
    if (is_factored) {
        if (i == AVG_SQ_COL) {
            shape->dims[shape->rank - 2] = shape->dims[shape->rank - 1];
        }
        shape->rank--;
    }
    return is_factored;
}

/* ---- a step ---------------------------------------------------------------------------------- */

enum { PIECE = 4 * TT_FLAT_BLOCK, PIECES_MAX = 256, COLUMNS = 64 };

typedef struct {
    const tutti_optim_piece_t *at;
    const tt_kernels_t *kernels;
    tt_update_numbers_t numbers;
    size_t matrices, rows, columns; /* the parameter's shape; of a vector, PIECE columns */
    size_t length;                  /* rows of a piece */
    double row_mean;                /* of the only matrix */
    double updates[PIECES_MAX];     /* sums of squares */
} job_t;

static bool is_factored(const job_t *job)
{
    return job->at->moments[AVG_SQ] == NULL;
}

static void move_mean(const job_t *job, float *mean, double square)
{
    const tt_update_numbers_t *k = &job->numbers;
    *mean = *mean * (float)k->beta2 + (float)(square + k->eps) * (float)k->gain2;
}

/* Means of squares: of a vector; along the rows of a piece; along some columns of a matrix. */
static void square_piece(void *arg, size_t piece)
{
    const job_t *job = arg;
    const size_t i = piece * PIECE;
    job->kernels->optim_steps->square_mean(&job->numbers, job->at->moments[AVG_SQ] + i,
                                           job->at->gradient + i,
                                           tt_min_size(job->at->count - i, PIECE));
}

static void row_piece(void *arg, size_t piece)
{
    const job_t *job = arg;
    const size_t end = tt_min_size((piece + 1) * job->length, job->matrices * job->rows);
    for (size_t row = piece * job->length; row < end; row++) {
        const float *x = job->at->gradient + row * job->columns;
        const double sum = job->kernels->flat->squares(x, job->columns);
        move_mean(job, &job->at->moments[AVG_SQ_ROW][row], sum / (double)job->columns);
    }
}

static void column_piece(void *arg, size_t piece)
{
    const job_t *job = arg;
    const size_t blocks = tt_divide_up(job->columns, COLUMNS);
    const size_t matrix = piece / blocks, first = piece % blocks * COLUMNS;
    const size_t n = tt_min_size(job->columns - first, COLUMNS);
    const float *x = job->at->gradient + matrix * job->rows * job->columns + first;
    float *mean = job->at->moments[AVG_SQ_COL] + matrix * job->columns + first;
    double sum[COLUMNS] = {0};
    job->kernels->optim_steps->column_squares(sum, x, job->rows, job->columns, n);
    for (size_t i = 0; i < n; i++) {
        move_mean(job, &mean[i], sum[i] / (double)job->rows);
    }
}

static double row_mean_of(const job_t *job, size_t matrix)
{
    double sum = 0;
    for (size_t i = 0; i < job->rows; i++) {
        sum += (double)job->at->moments[AVG_SQ_ROW][matrix * job->rows + i];
    }
    return sum / (double)job->rows;
}

/* Where a row's update begins: what stands under the root, and the factor before it. row_mean: of
 * the row before's matrix, unless this is the first row. */
static const float *root_of(const job_t *job, size_t row, bool is_first, double *row_mean,
                            float *factor)
{
    *factor = (float)job->numbers.sign;
    if (!is_factored(job)) {
        return job->at->moments[AVG_SQ] + row * PIECE;
    }
    const size_t matrix = row / job->rows;
    if (job->matrices == 1) {
        *row_mean = job->row_mean;
    } else if (is_first || row % job->rows == 0) {
        *row_mean = row_mean_of(job, matrix);
    }
    *factor *= (float)sqrt(*row_mean / (double)job->at->moments[AVG_SQ_ROW][row]);
    return job->at->moments[AVG_SQ_COL] + matrix * job->columns;
}

/* Over the rows of a piece: sums of the updates' squares, or the step. */
static void over_rows(job_t *job, size_t piece, bool is_step)
{
    const tutti_optim_piece_t *at = job->at;
    const tt_optim_steps_ops_t *ops = job->kernels->optim_steps;
    const size_t first = piece * job->length;
    const size_t end = tt_min_size(first + job->length, tt_divide_up(at->count, job->columns));
    float u[TT_FLAT_BLOCK];
    double squares = 0, row_mean = 0;
    for (size_t row = first; row < end; row++) {
        float factor;
        const float *root = root_of(job, row, row == first, &row_mean, &factor);
        const size_t length = tt_min_size(at->count - row * job->columns, job->columns);
        for (size_t k = 0; k < length; k += TT_FLAT_BLOCK) {
            const size_t i = row * job->columns + k, n = tt_min_size(length - k, TT_FLAT_BLOCK);
            ops->over_root(u, at->gradient + i, root + k, factor, n);
            if (is_step) {
                float *mean = at->moments[AVG] == NULL ? NULL : at->moments[AVG] + i;
                ops->apply(&job->numbers, at->weight + i, mean, u, n);
            } else {
                squares += job->kernels->flat->squares(u, n);
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

static tt_threads_t *threads_of(const tutti_optim_piece_t *piece)
{
    return piece->ctx == NULL ? NULL : piece->ctx->exec.threads;
}

static void move_means(job_t *job, size_t pieces)
{
    tt_threads_t *threads = threads_of(job->at);
    if (!is_factored(job)) {
        tt_threads_run(threads, tt_divide_up(job->at->count, PIECE), square_piece, job);
        return;
    }
    tt_threads_run(threads, pieces, row_piece, job);
    tt_threads_run(threads, job->matrices * tt_divide_up(job->columns, COLUMNS), column_piece, job);
    job->row_mean = job->matrices == 1 ? row_mean_of(job, 0) : 0;
}

static double lr_of(const tutti_optim_piece_t *piece)
{
    const tutti_adafactor_options_t *o = piece->options;
    const double t = (double)piece->step;
    double lr = piece->lr;
    if (!o->no_relative_step) {
        lr *= fmin(o->warmup_init ? 1e-6 * t : 1e-2, 1 / sqrt(t));
    }
    if (!o->no_scale_parameter) {
        const double squares = tt_flat_sum_squares(threads_of(piece), piece->weight, piece->count);
        lr *= fmax(o->eps2, sqrt(squares / (double)piece->count));
    }
    return lr;
}

static tt_update_numbers_t numbers_of(const tutti_optim_piece_t *piece, double lr)
{
    const tutti_adafactor_options_t *o = piece->options;
    const double beta2 = 1 - pow((double)piece->step, o->decay_rate);
    return (tt_update_numbers_t){.sign = o->maximize ? -1 : 1,
                                 .keep = 1 - lr * o->weight_decay,
                                 .beta1 = o->beta1,
                                 .gain1 = 1 - o->beta1,
                                 .beta2 = beta2,
                                 .gain2 = 1 - beta2,
                                 .eps = o->eps1};
}

static size_t cut(job_t *job)
{
    const tutti_shape_t *shape = &job->at->shape;
    job->columns = PIECE;
    if (is_factored(job)) {
        job->rows = (size_t)shape->dims[shape->rank - 2];
        job->columns = (size_t)shape->dims[shape->rank - 1];
        job->matrices = job->at->count / job->rows / job->columns;
    }
    const size_t rows = tt_divide_up(job->at->count, job->columns);
    const size_t few = tt_divide_up(PIECE, job->columns), many = tt_divide_up(rows, PIECES_MAX);
    job->length = few > many ? few : many;
    return tt_divide_up(rows, job->length);
}

static void update(const tutti_optim_piece_t *piece)
{
    if (piece->count == 0) {
        return;
    }
    const tutti_adafactor_options_t *o = piece->options;
    tt_threads_t *threads = threads_of(piece);
    const double lr = lr_of(piece);
    job_t job = {.at = piece, .kernels = tt_kernels(), .numbers = numbers_of(piece, lr)};
    const size_t pieces = cut(&job);
    double squares = 0;
    move_means(&job, pieces);
    tt_threads_run(threads, pieces, measure_rows, &job);
    for (size_t i = 0; i < pieces; i++) {
        squares += job.updates[i];
    }
    const double size = sqrt(squares / (double)piece->count) / o->clip;
    job.numbers.minus_lr = -lr / (size > 1 ? size : 1);
    tt_threads_run(threads, pieces, step_rows, &job);
}

const tutti_optim_ops_t tutti_adafactor = {
    .name = "adafactor",
    .about = "second moments by row and column, steps relative to the parameter",
    .options_bytes = sizeof(tutti_adafactor_options_t),
    .options = options_table,
    .moments = {"exp_avg", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"},
    .resolve = resolve,
    .has_moment = has_moment,
    .update = update,
    .wants_whole = true,
};
