/* Layer norm and RMS norm over rows. Backward cuts the rows into at most 64 blocks, a function of
 * the number of rows alone; each adds its rows' dgamma and dbeta into its own partial sums, which
 * are added in the order of the blocks at the end. Cost: x (and dy) read once, y (dx) written once.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/kernels.h"
#include "core/kernel/norm/rows_ops.h"

enum { PIECE = 16384, BLOCKS_MAX = 64, BLOCK_ROWS = 32, SUM_COLUMNS = 1024 };

typedef struct {
    tt_norm_t norm;
    tt_norm_rows_t rows;
    size_t bytes, accum_bytes, group;
    char *partial; /* [blocks][2][n], accumulation type */
    size_t blocks;
} norm_job_t;

static tt_norm_rows_t rows_of(tutti_dtype_t dtype, bool is_rms)
{
    TT_ASSERT(tutti_dtype_is_float(dtype));
    const tt_norm_ops_t *ops = tt_kernels_of(dtype)->norm;
    return is_rms ? ops->rms[dtype] : ops->layer[dtype];
}

static double get(const norm_job_t *job, const void *array, size_t at)
{
    const bool is_wide = job->norm.shape.dtype == TUTTI_F64;
    return is_wide ? ((const double *)array)[at] : (double)((const float *)array)[at];
}

static void put(const norm_job_t *job, void *array, size_t at, double value)
{
    if (array == NULL) {
        return;
    }
    if (job->norm.shape.dtype == TUTTI_F64) {
        ((double *)array)[at] = value;
    } else {
        ((float *)array)[at] = (float)value;
    }
}

/* Where row i lies. */
static size_t place_of(const tt_norm_t *norm, size_t i)
{
    return norm->run == 0 ? i : i / norm->run * norm->stride + i % norm->run;
}

static norm_job_t job_of(const tt_norm_t *norm, bool is_rms)
{
    const size_t n = norm->shape.n;
    return (norm_job_t){
        .norm = *norm,
        .rows = rows_of(norm->shape.dtype, is_rms),
        .bytes = tutti_dtype_bytes(norm->shape.dtype),
        .accum_bytes = tutti_dtype_bytes(tt_accum_dtype(norm->shape.dtype)),
        .group = n < PIECE ? PIECE / (n + 1) + 1 : 1,
    };
}

static void forward_piece(void *arg, size_t piece)
{
    const norm_job_t *job = arg;
    const tt_norm_t *norm = &job->norm;
    const size_t first = piece * job->group;
    for (size_t i = first; i < first + job->group && i < norm->shape.rows; i++) {
        const size_t at = place_of(norm, i), offset = at * norm->shape.n * job->bytes;
        tt_norm_row_t row = {
            .x = (const char *)norm->x + offset,
            .y = (char *)norm->y + offset,
            .gamma = norm->gamma,
            .beta = norm->beta,
            .n = norm->shape.n,
            .eps = norm->eps,
        };
        job->rows.forward(&row);
        put(job, norm->mean, at, row.mean);
        put(job, norm->rstd, at, row.rstd);
    }
}

static tutti_status_t forward(tt_threads_t *threads, norm_job_t job)
{
    const size_t rows = job.norm.shape.n == 0 ? 0 : job.norm.shape.rows;
    tt_threads_run(threads, (rows + job.group - 1) / job.group, forward_piece, &job);
    return TUTTI_OK;
}

/* One block of rows, with its own dgamma and dbeta. */
static void backward_piece(void *arg, size_t block)
{
    const norm_job_t *job = arg;
    const tt_norm_t *norm = &job->norm;
    const size_t n = norm->shape.n, row_bytes = n * job->bytes;
    char *sums = job->partial == NULL ? NULL : job->partial + block * 2 * n * job->accum_bytes;
    const size_t first = block * job->group;
    for (size_t i = first; i < first + job->group && i < norm->shape.rows; i++) {
        const size_t at = place_of(norm, i);
        const tt_norm_row_t row = {
            .x = (const char *)norm->x + at * row_bytes,
            .dy = (const char *)norm->dy + at * row_bytes,
            .dx = norm->dx == NULL ? NULL : (char *)norm->dx + at * row_bytes,
            .gamma = norm->gamma,
            .dgamma = norm->dgamma == NULL ? NULL : sums,
            .dbeta = norm->dbeta == NULL ? NULL : sums + n * job->accum_bytes,
            .n = n,
            .mean = norm->mean == NULL ? 0 : get(job, norm->mean, at),
            .rstd = get(job, norm->rstd, at),
        };
        job->rows.backward(&row);
    }
}

static void sum_blocks(const norm_job_t *job, void *out, size_t which, size_t column)
{
    double sum = 0;
    const size_t n = job->norm.shape.n;
    for (size_t block = 0; block < job->blocks; block++) {
        sum += get(job, job->partial, (2 * block + which) * n + column);
    }
    put(job, out, column, sum);
}

static void sum_piece(void *arg, size_t piece)
{
    const norm_job_t *job = arg;
    const size_t first = piece * SUM_COLUMNS;
    for (size_t j = first; j < first + SUM_COLUMNS && j < job->norm.shape.n; j++) {
        if (job->norm.dgamma != NULL) {
            sum_blocks(job, job->norm.dgamma, 0, j);
        }
        if (job->norm.dbeta != NULL) {
            sum_blocks(job, job->norm.dbeta, 1, j);
        }
    }
}

static tutti_status_t backward(tt_threads_t *threads, norm_job_t job)
{
    const size_t rows = job.norm.shape.rows, n = job.norm.shape.n;
    const size_t even = (rows + BLOCKS_MAX - 1) / BLOCKS_MAX;
    job.group = even > BLOCK_ROWS ? even : BLOCK_ROWS;
    job.blocks = (rows + job.group - 1) / job.group;
    if (job.norm.dgamma != NULL || job.norm.dbeta != NULL) {
        job.partial = tt_alloc_array(job.blocks * 2 * n, job.accum_bytes, "norm partial sums");
        TT_TRY_ALLOC(job.partial);
    }
    tt_threads_run(threads, n == 0 ? 0 : job.blocks, backward_piece, &job);
    if (job.partial != NULL) {
        tt_threads_run(threads, (n + SUM_COLUMNS - 1) / SUM_COLUMNS, sum_piece, &job);
    }
    tt_free(job.partial);
    return TUTTI_OK;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static tutti_status_t run_layer_norm(tt_threads_t *threads, const void *norm)
{
    return forward(threads, job_of(norm, false));
}

static tutti_status_t run_rms_norm(tt_threads_t *threads, const void *norm)
{
    return forward(threads, job_of(norm, true));
}

static tutti_status_t run_layer_norm_backward(tt_threads_t *threads, const void *norm)
{
    return backward(threads, job_of(norm, false));
}

static tutti_status_t run_rms_norm_backward(tt_threads_t *threads, const void *norm)
{
    return backward(threads, job_of(norm, true));
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_norm_t, x),
                                        TT_POINTER(tt_norm_t, gamma),
                                        TT_POINTER(tt_norm_t, beta),
                                        TT_POINTER(tt_norm_t, y),
                                        TT_POINTER(tt_norm_t, mean),
                                        TT_POINTER(tt_norm_t, rstd),
                                        TT_POINTER(tt_norm_t, dy),
                                        TT_POINTER(tt_norm_t, dx),
                                        TT_POINTER(tt_norm_t, dgamma),
                                        TT_POINTER(tt_norm_t, dbeta),
                                        TT_NO_POINTER};
TT_LAUNCHER(tt_layer_norm, "layer_norm", tt_norm_t, run_layer_norm, pointers)
TT_LAUNCHER(tt_rms_norm, "rms_norm", tt_norm_t, run_rms_norm, pointers)
TT_LAUNCHER(tt_layer_norm_backward, "layer_norm_backward", tt_norm_t, run_layer_norm_backward,
            pointers)
TT_LAUNCHER(tt_rms_norm_backward, "rms_norm_backward", tt_norm_t, run_rms_norm_backward, pointers)
