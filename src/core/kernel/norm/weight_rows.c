/* Weight norm over rows, some rows at a time (weight_rows_simd.c). Cost: v (and dw) read once from
 * memory and once from a cache, w (dv) written once. */
#include "core/kernel/norm/weight_rows.h"

enum { PIECE = 16384 };

typedef struct {
    const tt_weight_norm_t *norm;
    void (*do_row)(const tt_weight_norm_t *norm, size_t row);
    size_t group;
} weight_rows_job_t;

static void do_piece(void *arg, size_t piece)
{
    const weight_rows_job_t *job = arg;
    const size_t first = piece * job->group;
    for (size_t i = first; i < first + job->group && i < job->norm->rows; i++) {
        job->do_row(job->norm, i);
    }
}

static tutti_status_t run(tt_threads_t *threads, const tt_weight_norm_t *norm,
                          void (*do_row)(const tt_weight_norm_t *, size_t))
{
    weight_rows_job_t job = {.norm = norm, .do_row = do_row, .group = PIECE / (norm->n + 1) + 1};
    tt_threads_run(threads, (norm->rows + job.group - 1) / job.group, do_piece, &job);
    return TUTTI_OK;
}

static const tt_weight_rows_ops_t *ops_of(const tt_weight_norm_t *norm)
{
    return tt_kernels_of(norm->is_wide ? TUTTI_F64 : TUTTI_F32)->weight_rows;
}

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    return run(threads, arguments, ops_of(arguments)->forward);
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    return run(threads, arguments, ops_of(arguments)->backward);
}

static const tt_pointer_t pointers[] = {
    TT_POINTER(tt_weight_norm_t, v),  TT_POINTER(tt_weight_norm_t, g),
    TT_POINTER(tt_weight_norm_t, w),  TT_POINTER(tt_weight_norm_t, length),
    TT_POINTER(tt_weight_norm_t, dw), TT_POINTER(tt_weight_norm_t, dv),
    TT_POINTER(tt_weight_norm_t, dg), TT_NO_POINTER};
TT_LAUNCHER(tt_weight_norm, "weight_norm", tt_weight_norm_t, run_forward, pointers)
TT_LAUNCHER(tt_weight_norm_backward, "weight_norm_backward", tt_weight_norm_t, run_backward,
            pointers)
