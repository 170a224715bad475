/* Softmax, log-softmax and cross entropy: rows handed to the threads in pieces of about 16384
 * elements. Cost: one read and one write of the matrix where a row fits into L1 or L2. */
#include <string.h>

#include "core/kernel/kernels.h"
#include "core/kernel/norm/rows_ops.h"

enum { PIECE = 16384 };

typedef struct {
    tt_rows_t shape;
    size_t bytes, group; /* of an element; rows per piece */
    void (*one)(void *y, const void *x, size_t n);
    void (*two)(void *dx, const void *dy, const void *y, size_t n);
    char *out;
    const char *a, *b;
} rows_job_t;

tutti_dtype_t tt_accum_dtype(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
}

static const tt_softmax_rows_t *rows_of(tutti_dtype_t dtype)
{
    TT_ASSERT(tutti_dtype_is_float(dtype));
    return &tt_kernels_of(dtype)->softmax->rows[dtype];
}

static size_t rows_per_piece(const tt_rows_t *shape)
{
    return shape->n < PIECE ? PIECE / (shape->n + 1) + 1 : 1;
}

static size_t pieces_of(const tt_rows_t *shape)
{
    const size_t group = rows_per_piece(shape);
    return shape->n == 0 ? 0 : (shape->rows + group - 1) / group;
}

static void rows_piece(void *arg, size_t piece)
{
    const rows_job_t *job = arg;
    const size_t first = piece * job->group, n = job->shape.n;
    for (size_t row = first; row < first + job->group && row < job->shape.rows; row++) {
        const size_t offset = row * n * job->bytes;
        if (job->one != NULL) {
            job->one(job->out + offset, job->a + offset, n);
        } else {
            job->two(job->out + offset, job->a + offset, job->b + offset, n);
        }
    }
}

static void run_rows(tt_threads_t *threads, rows_job_t *job)
{
    job->bytes = tutti_dtype_bytes(job->shape.dtype);
    job->group = rows_per_piece(&job->shape);
    tt_threads_run(threads, pieces_of(&job->shape), rows_piece, job);
}

void tt_softmax(tt_threads_t *threads, tt_rows_t shape, void *y, const void *x)
{
    rows_job_t job = {.shape = shape, .one = rows_of(shape.dtype)->softmax, .out = y, .a = x};
    run_rows(threads, &job);
}

void tt_softmax_backward(tt_threads_t *threads, tt_rows_t shape, void *dx, const void *dy,
                         const void *y)
{
    rows_job_t job = {
        .shape = shape, .two = rows_of(shape.dtype)->softmax_backward, .out = dx, .a = dy, .b = y};
    run_rows(threads, &job);
}

void tt_log_softmax(tt_threads_t *threads, tt_rows_t shape, void *y, const void *x)
{
    rows_job_t job = {.shape = shape, .one = rows_of(shape.dtype)->log_softmax, .out = y, .a = x};
    run_rows(threads, &job);
}

void tt_log_softmax_backward(tt_threads_t *threads, tt_rows_t shape, void *dx, const void *dy,
                             const void *y)
{
    rows_job_t job = {.shape = shape,
                      .two = rows_of(shape.dtype)->log_softmax_backward,
                      .out = dx,
                      .a = dy,
                      .b = y};
    run_rows(threads, &job);
}

/* A number in an array of the accumulation type. */
static double get(const void *array, size_t at, tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? ((const double *)array)[at] : (double)((const float *)array)[at];
}

static void put(void *array, size_t at, tutti_dtype_t dtype, double value)
{
    if (dtype == TUTTI_F64) {
        ((double *)array)[at] = value;
    } else {
        ((float *)array)[at] = (float)value;
    }
}

static tt_loss_row_t loss_row_at(const tt_cross_entropy_t *ce, size_t row)
{
    const size_t n = ce->shape.n, bytes = tutti_dtype_bytes(ce->shape.dtype);
    return (tt_loss_row_t){
        .x = (const char *)ce->logits + row * n * bytes,
        .n = n,
        .target = ce->targets[row],
        .smoothing = ce->label_smoothing,
    };
}

static void loss_piece(void *arg, size_t piece)
{
    const tt_cross_entropy_t *ce = arg;
    const tutti_dtype_t dtype = ce->shape.dtype;
    const tt_softmax_rows_t *rows = rows_of(dtype);
    const size_t group = rows_per_piece(&ce->shape), first = piece * group;
    for (size_t i = first; i < first + group && i < ce->shape.rows; i++) {
        tt_loss_row_t row = {.loss = 0};
        if (ce->targets[i] != ce->ignore_index) {
            row = loss_row_at(ce, i);
            rows->loss(&row);
        }
        put(ce->loss, i, dtype, row.loss);
        put(ce->max_sum, 2 * i, dtype, row.max);
        put(ce->max_sum, 2 * i + 1, dtype, row.sum);
    }
}

static void loss_backward_piece(void *arg, size_t piece)
{
    const tt_cross_entropy_t *ce = arg;
    const tutti_dtype_t dtype = ce->shape.dtype;
    const tt_softmax_rows_t *rows = rows_of(dtype);
    const size_t bytes = ce->shape.n * tutti_dtype_bytes(dtype);
    const size_t group = rows_per_piece(&ce->shape), first = piece * group;
    for (size_t i = first; i < first + group && i < ce->shape.rows; i++) {
        tt_loss_row_t row = loss_row_at(ce, i);
        row.dx = (char *)ce->dlogits + i * bytes;
        if (row.target == ce->ignore_index) {
            memset(row.dx, 0, bytes);
            continue;
        }
        row.max = get(ce->max_sum, 2 * i, dtype);
        row.sum = get(ce->max_sum, 2 * i + 1, dtype);
        row.scale = get(ce->scale, ce->scale_is_shared ? 0 : i, dtype);
        rows->loss_backward(&row);
    }
}

tutti_status_t tt_cross_entropy(tt_threads_t *threads, const tt_cross_entropy_t *ce)
{
    for (size_t i = 0; i < ce->shape.rows; i++) {
        const int64_t target = ce->targets[i];
        if (target != ce->ignore_index && (target < 0 || target >= (int64_t)ce->shape.n)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "cross_entropy: target %zu is %lld, outside the %zu classes and not "
                           "ignore_index %lld",
                           i, (long long)target, ce->shape.n, (long long)ce->ignore_index);
        }
    }
    tt_cross_entropy_t job = *ce;
    const size_t group = rows_per_piece(&ce->shape); /* losses are written without classes, too */
    tt_threads_run(threads, (ce->shape.rows + group - 1) / group, loss_piece, &job);
    return TUTTI_OK;
}

void tt_cross_entropy_backward(tt_threads_t *threads, const tt_cross_entropy_t *ce)
{
    tt_cross_entropy_t job = *ce;
    tt_threads_run(threads, pieces_of(&ce->shape), loss_backward_piece, &job);
}
