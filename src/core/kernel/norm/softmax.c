/* Softmax, log-softmax and cross entropy: rows handed to the threads in pieces of about 16384
 * elements. Cost: one read and one write of the matrix where a row fits into L1 or L2. */
#include <math.h>
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

/* ---- the kernels of rows --------------------------------------------------------------------- */

typedef struct {
    tt_rows_t shape;
    void *out;
    const void *a, *b; /* b: of two operands */
} rows_t;

static tutti_status_t run_rows(tt_threads_t *threads, const rows_t *rows, rows_job_t job)
{
    job.shape = rows->shape;
    job.bytes = tutti_dtype_bytes(job.shape.dtype);
    job.group = rows_per_piece(&job.shape);
    job.out = rows->out;
    job.a = rows->a;
    job.b = rows->b;
    tt_threads_run(threads, pieces_of(&job.shape), rows_piece, &job);
    return TUTTI_OK;
}

static tutti_status_t run_softmax(tt_threads_t *threads, const void *arguments)
{
    const rows_t *rows = arguments;
    return run_rows(threads, rows, (rows_job_t){.one = rows_of(rows->shape.dtype)->softmax});
}

static tutti_status_t run_softmax_backward(tt_threads_t *threads, const void *arguments)
{
    const rows_t *rows = arguments;
    return run_rows(threads, rows,
                    (rows_job_t){.two = rows_of(rows->shape.dtype)->softmax_backward});
}

static tutti_status_t run_log_softmax(tt_threads_t *threads, const void *arguments)
{
    const rows_t *rows = arguments;
    return run_rows(threads, rows, (rows_job_t){.one = rows_of(rows->shape.dtype)->log_softmax});
}

static tutti_status_t run_log_softmax_backward(tt_threads_t *threads, const void *arguments)
{
    const rows_t *rows = arguments;
    return run_rows(threads, rows,
                    (rows_job_t){.two = rows_of(rows->shape.dtype)->log_softmax_backward});
}

static const tt_pointer_t rows_pointers[] = {TT_POINTER(rows_t, out), TT_POINTER(rows_t, a),
                                             TT_POINTER(rows_t, b), TT_NO_POINTER};
static const tt_kernel_t softmax_kernel = TT_KERNEL("softmax", rows_t, run_softmax, rows_pointers);
static const tt_kernel_t softmax_backward_kernel =
    TT_KERNEL("softmax_backward", rows_t, run_softmax_backward, rows_pointers);
static const tt_kernel_t log_softmax_kernel =
    TT_KERNEL("log_softmax", rows_t, run_log_softmax, rows_pointers);
static const tt_kernel_t log_softmax_backward_kernel =
    TT_KERNEL("log_softmax_backward", rows_t, run_log_softmax_backward, rows_pointers);

tutti_status_t tt_softmax(tt_exec_t *exec, tt_rows_t shape, void *y, const void *x)
{
    return tt_launch(exec, &softmax_kernel, &(rows_t){shape, y, x, NULL});
}

tutti_status_t tt_softmax_backward(tt_exec_t *exec, tt_rows_t shape, void *dx, const void *dy,
                                   const void *y)
{
    return tt_launch(exec, &softmax_backward_kernel, &(rows_t){shape, dx, dy, y});
}

tutti_status_t tt_log_softmax(tt_exec_t *exec, tt_rows_t shape, void *y, const void *x)
{
    return tt_launch(exec, &log_softmax_kernel, &(rows_t){shape, y, x, NULL});
}

tutti_status_t tt_log_softmax_backward(tt_exec_t *exec, tt_rows_t shape, void *dx, const void *dy,
                                       const void *y)
{
    return tt_launch(exec, &log_softmax_backward_kernel, &(rows_t){shape, dx, dy, y});
}

/* ---- cross entropy --------------------------------------------------------------------------- */

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

/* Where a target is among the classes that are here; -1: elsewhere. */
static int64_t target_in(int64_t target, size_t first, size_t n)
{
    const int64_t at = target - (int64_t)first;
    return at >= 0 && at < (int64_t)n ? at : -1;
}

static size_t classes_of(const tt_cross_entropy_t *ce)
{
    return ce->classes > 0 ? ce->classes : ce->shape.n;
}

static bool is_ignored(const tt_cross_entropy_t *ce, size_t row)
{
    return ce->probs == NULL && ce->targets[row] == ce->ignore_index;
}

static tt_loss_row_t loss_row_at(const tt_cross_entropy_t *ce, size_t row)
{
    const size_t n = ce->shape.n, bytes = tutti_dtype_bytes(ce->shape.dtype);
    const size_t wide = row * n * tutti_dtype_bytes(tt_accum_dtype(ce->shape.dtype));
    return (tt_loss_row_t){
        .x = (const char *)ce->logits + row * n * bytes,
        .n = n,
        .target = ce->probs == NULL ? target_in(ce->targets[row], ce->first, n) : -1,
        .classes = classes_of(ce),
        .smoothing = ce->label_smoothing,
        .probs = ce->probs == NULL ? NULL : (const char *)ce->probs + wide,
        .weight = ce->class_weight,
        .dprobs = ce->dprobs == NULL ? NULL : (char *)ce->dprobs + wide,
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
        if (!is_ignored(ce, i)) {
            row = loss_row_at(ce, i);
            (ce->class_weight != NULL ? rows->soft_loss : rows->loss)(&row);
        }
        put(ce->loss, i, dtype, row.loss);
        put(ce->max_sum, 2 * i, dtype, row.max);
        put(ce->max_sum, 2 * i + 1, dtype, row.sum);
    }
}

/* The row's incoming gradient times the weight, rounded to the accumulation type. */
static double scale_of(const tt_cross_entropy_t *ce, size_t row)
{
    const tutti_dtype_t dtype = ce->shape.dtype;
    const double scale =
        ce->scale == NULL ? 1 : get(ce->scale, ce->scale_is_shared ? 0 : row, dtype);
    if (ce->weight == NULL) {
        return scale;
    }
    const double product = scale * get(ce->weight, 0, dtype);
    return dtype == TUTTI_F64 ? product : (double)(float)product;
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
        if (is_ignored(ce, i)) {
            memset(row.dx, 0, bytes);
            continue;
        }
        row.max = get(ce->max_sum, 2 * i, dtype);
        row.sum = get(ce->max_sum, 2 * i + 1, dtype);
        row.scale = scale_of(ce, i);
        (ce->class_weight != NULL ? rows->soft_loss_backward : rows->loss_backward)(&row);
    }
}

/* What those weigh that are not ignored. */
static tutti_status_t check_targets(const tt_cross_entropy_t *ce, double *count)
{
    const tutti_dtype_t accum = tt_accum_dtype(ce->shape.dtype);
    *count = ce->probs == NULL ? 0 : (double)ce->shape.rows;
    for (size_t i = 0; ce->probs == NULL && i < ce->shape.rows; i++) {
        const int64_t target = ce->targets[i];
        if (target != ce->ignore_index && (target < 0 || target >= (int64_t)classes_of(ce))) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "cross_entropy: target %zu is %lld, outside the %zu classes and not "
                           "ignore_index %lld",
                           i, (long long)target, classes_of(ce), (long long)ce->ignore_index);
        }
        if (target != ce->ignore_index) {
            *count += ce->class_weight == NULL ? 1 : get(ce->class_weight, (size_t)target, accum);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t run_cross_entropy(tt_threads_t *threads, const void *arguments)
{
    tt_cross_entropy_t ce = *(const tt_cross_entropy_t *)arguments;
    double count;
    TT_TRY(check_targets(&ce, &count));
    const size_t group = rows_per_piece(&ce.shape); /* losses are written without classes, too */
    tt_threads_run(threads, (ce.shape.rows + group - 1) / group, loss_piece, &ce);
    if (ce.weight != NULL) {
        put(ce.weight, 0, ce.shape.dtype, 1 / count);
    }
    return TUTTI_OK;
}

static tutti_status_t run_cross_entropy_weight(tt_threads_t *threads, const void *arguments)
{
    tt_cross_entropy_t ce = *(const tt_cross_entropy_t *)arguments;
    double count;
    (void)threads;
    TT_TRY(check_targets(&ce, &count));
    if (ce.weight != NULL) {
        put(ce.weight, 0, ce.shape.dtype, 1 / count);
        const double weight = get(ce.weight, 0, ce.shape.dtype);
        put(ce.weight, 1, ce.shape.dtype, isfinite(weight) ? 1 : (double)NAN);
        put(ce.weight, 2, ce.shape.dtype, isfinite(weight) ? weight : 0);
    }
    return TUTTI_OK;
}

static tutti_status_t run_cross_entropy_backward(tt_threads_t *threads, const void *arguments)
{
    tt_cross_entropy_t ce = *(const tt_cross_entropy_t *)arguments;
    tt_threads_run(threads, pieces_of(&ce.shape), loss_backward_piece, &ce);
    return TUTTI_OK;
}

static const tt_pointer_t loss_pointers[] = {TT_POINTER(tt_cross_entropy_t, logits),
                                             TT_POINTER(tt_cross_entropy_t, targets),
                                             TT_POINTER(tt_cross_entropy_t, loss),
                                             TT_POINTER(tt_cross_entropy_t, max_sum),
                                             TT_POINTER(tt_cross_entropy_t, weight),
                                             TT_POINTER(tt_cross_entropy_t, dlogits),
                                             TT_POINTER(tt_cross_entropy_t, scale),
                                             TT_POINTER(tt_cross_entropy_t, probs),
                                             TT_POINTER(tt_cross_entropy_t, class_weight),
                                             TT_POINTER(tt_cross_entropy_t, dprobs),
                                             TT_NO_POINTER};

/* ---- of a part of the classes ---------------------------------------------------------------- */

static tt_loss_row_t part_row_at(const tt_cross_entropy_part_t *p, size_t row)
{
    const size_t bytes = tutti_dtype_bytes(p->dtype);
    return (tt_loss_row_t){
        .x = (const char *)p->logits + row * p->stride * bytes,
        .n = p->n,
        .target = target_in(p->targets[row], p->first, p->n),
        .smoothing = p->has_total ? 1 : 0,
    };
}

static void max_piece(void *arg, size_t row)
{
    const tt_cross_entropy_part_t *p = arg;
    tt_loss_row_t at = part_row_at(p, row);
    rows_of(p->dtype)->loss_max(&at);
    put(p->max, row, p->dtype, at.max);
}

static void sums_piece(void *arg, size_t row)
{
    const tt_cross_entropy_part_t *p = arg;
    tt_loss_row_t at = part_row_at(p, row);
    at.max = get(p->max, row, p->dtype);
    rows_of(p->dtype)->loss_sums(&at);
    put(p->sums, row, p->dtype, at.sum);
    put(p->sums, p->rows + row, p->dtype, at.pick);
    if (p->has_total) {
        put(p->sums, 2 * p->rows + row, p->dtype, at.total);
    }
}

static tutti_status_t run_part_max(tt_threads_t *threads, const void *arguments)
{
    tt_cross_entropy_part_t p = *(const tt_cross_entropy_part_t *)arguments;
    tt_threads_run(threads, p.rows, max_piece, &p);
    return TUTTI_OK;
}

static tutti_status_t run_part_sums(tt_threads_t *threads, const void *arguments)
{
    tt_cross_entropy_part_t p = *(const tt_cross_entropy_part_t *)arguments;
    tt_threads_run(threads, p.rows, sums_piece, &p);
    return TUTTI_OK;
}

typedef struct {
    tt_cross_entropy_t ce;
    const void *max, *sums;
} finish_t;

static void finish_row(const finish_t *f, size_t i)
{
    const tutti_dtype_t dtype = f->ce.shape.dtype;
    const size_t rows = f->ce.shape.rows;
    tt_loss_row_t row = {.loss = 0};
    if (f->ce.targets[i] != f->ce.ignore_index) {
        row = loss_row_at(&f->ce, i);
        row.max = get(f->max, i, dtype);
        row.sum = get(f->sums, i, dtype);
        row.pick = get(f->sums, rows + i, dtype);
        row.total = row.smoothing > 0 ? get(f->sums, 2 * rows + i, dtype) : 0;
        rows_of(dtype)->loss_finish(&row);
    }
    put(f->ce.loss, i, dtype, row.loss);
    put(f->ce.max_sum, 2 * i, dtype, row.max);
    put(f->ce.max_sum, 2 * i + 1, dtype, row.sum);
}

static tutti_status_t run_finish(tt_threads_t *threads, const void *arguments)
{
    const finish_t *f = arguments;
    double count;
    (void)threads;
    TT_TRY(check_targets(&f->ce, &count));
    for (size_t i = 0; i < f->ce.shape.rows; i++) {
        finish_row(f, i);
    }
    if (f->ce.weight != NULL) {
        put(f->ce.weight, 0, f->ce.shape.dtype, 1 / count);
    }
    return TUTTI_OK;
}

static const tt_pointer_t part_pointers[] = {
    TT_POINTER(tt_cross_entropy_part_t, logits), TT_POINTER(tt_cross_entropy_part_t, targets),
    TT_POINTER(tt_cross_entropy_part_t, max), TT_POINTER(tt_cross_entropy_part_t, sums),
    TT_NO_POINTER};
TT_LAUNCHER(tt_cross_entropy_max, "cross_entropy_max", tt_cross_entropy_part_t, run_part_max,
            part_pointers)
TT_LAUNCHER(tt_cross_entropy_sums, "cross_entropy_sums", tt_cross_entropy_part_t, run_part_sums,
            part_pointers)

tutti_status_t tt_cross_entropy_finish(tt_exec_t *exec, const tt_cross_entropy_t *ce,
                                       const void *max, const void *sums)
{
    static const tt_pointer_t pointers[] = {TT_POINTER(finish_t, ce.targets),
                                            TT_POINTER(finish_t, ce.loss),
                                            TT_POINTER(finish_t, ce.max_sum),
                                            TT_POINTER(finish_t, ce.weight),
                                            TT_POINTER(finish_t, max),
                                            TT_POINTER(finish_t, sums),
                                            TT_NO_POINTER};
    static const tt_kernel_t kernel =
        TT_KERNEL("cross_entropy_finish", finish_t, run_finish, pointers);
    return tt_launch(exec, &kernel, &(finish_t){*ce, max, sums});
}

TT_LAUNCHER(tt_cross_entropy, "cross_entropy", tt_cross_entropy_t, run_cross_entropy, loss_pointers)
TT_LAUNCHER(tt_cross_entropy_weight, "cross_entropy", tt_cross_entropy_t, run_cross_entropy_weight,
            loss_pointers) /* which its error names */
TT_LAUNCHER(tt_cross_entropy_backward, "cross_entropy_backward", tt_cross_entropy_t,
            run_cross_entropy_backward, loss_pointers)
