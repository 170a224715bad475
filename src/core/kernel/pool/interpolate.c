/* Interpolation: threads take runs of rows of y. Rows of x are blended first, then columns of the
 * blend. Backward is the same with the taps of the gradient, from dy to dx. Where each element is
 * one of x as it is (the nearest), it is copied, a row once and then as it is again.
 * Cost: a multiplication for each tap of H and element of a row, a gather for each tap of W.
 * Scratch of a thread: a plane of x if x is of 16 bits, and two rows, in f32 (f64 for f64). */
#include "core/kernel/pool/interpolate.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/pool/interpolate_ops.h"

enum { RUN = 1 << 15, LINE = 64 };

typedef struct {
    const tt_interpolate_ops_t *ops;
    tt_taps_t taps[2];
    bool is_pick[2], is_identity[2]; /* how the taps are */
    int64_t planes, size[2], out_size[2];
    const char *from;
    char *to;
    tutti_dtype_t dtype;
    size_t bytes, wide_bytes; /* of an element, and of one that is computed with */
    tt_convert_fn_t widen, narrow;
    char *scratch;
    size_t plane_bytes, row_bytes, scratch_bytes;
    int64_t run;
    _Atomic int64_t next;
} job_t;

/* Rows of a plane of y, which lie in order. */
typedef struct {
    int64_t plane, first, end;
} strip_t;

/* ---- copies ---------------------------------------------------------------------------------- */

static void take_elements(const job_t *job, char *y, const char *x)
{
    const int32_t *from = job->taps[1].index;
    const int64_t n = job->out_size[1];
    for (int64_t i = 0; i < n && job->bytes == 2; i++) {
        ((uint16_t *)(void *)y)[i] = ((const uint16_t *)(const void *)x)[from[i]];
    }
    for (int64_t i = 0; i < n && job->bytes == 4; i++) {
        ((uint32_t *)(void *)y)[i] = ((const uint32_t *)(const void *)x)[from[i]];
    }
    for (int64_t i = 0; i < n && job->bytes == 8; i++) {
        ((uint64_t *)(void *)y)[i] = ((const uint64_t *)(const void *)x)[from[i]];
    }
}

static void take_strip(const job_t *job, strip_t s)
{
    const int32_t *rows = job->taps[0].index;
    const size_t width = (size_t)job->size[1] * job->bytes;
    const size_t out = (size_t)job->out_size[1] * job->bytes;
    const char *x = job->from + (size_t)(s.plane * job->size[0]) * width;
    char *y = job->to + (size_t)(s.plane * job->out_size[0] + s.first) * out;
    for (int64_t i = s.first; i < s.end; i++, y += out) {
        if (i > s.first && rows[i] == rows[i - 1]) {
            memcpy(y, y - out, out);
        } else {
            take_elements(job, y, x + (size_t)rows[i] * width);
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The plane's x as it is computed with: where it lies, or in `room` those rows that the strip sees.
 */
static const char *widened(const job_t *job, strip_t s, char *room)
{
    const size_t width = (size_t)job->size[1];
    const char *x = job->from + (size_t)(s.plane * job->size[0]) * width * job->bytes;
    if (job->widen == NULL) {
        return x;
    }
    const tt_range_t rows = tt_taps_range(&job->taps[0], job->dtype, s.first, s.end);
    const size_t at = (size_t)rows.first * width;
    job->widen(room + at * job->wide_bytes, x + at * job->bytes,
               (size_t)(rows.end - rows.first) * width);
    return room;
}

/* One row of y, in the type that is computed with. */
static void blend_row(const job_t *job, char *y, const char *x, char *scratch, int64_t i)
{
    const int64_t width = job->size[1];
    const char *row = x + (size_t)(job->taps[0].index[i] * width) * job->wide_bytes;
    if (!job->is_pick[0]) {
        char *blend = job->is_identity[1] ? y : scratch;
        job->ops->blend_rows(blend, x, width, &job->taps[0], i);
        row = blend;
    }
    if (!job->is_identity[1]) {
        job->ops->blend_columns(y, row, &job->taps[1]);
    } else if (row != y) {
        memcpy(y, row, (size_t)width * job->wide_bytes);
    }
}

static void blend_strip(const job_t *job, char *scratch, strip_t s)
{
    const char *x = widened(job, s, scratch);
    char *row = scratch + job->plane_bytes, *wide = row + job->row_bytes;
    const size_t out = (size_t)job->out_size[1];
    char *y = job->to + (size_t)(s.plane * job->out_size[0] + s.first) * out * job->bytes;
    for (int64_t i = s.first; i < s.end; i++, y += out * job->bytes) {
        blend_row(job, job->narrow == NULL ? y : wide, x, row, i);
        if (job->narrow != NULL) {
            job->narrow(y, wide, out);
        }
    }
}

/* ---- all rows -------------------------------------------------------------------------------- */

static void run_rows(const job_t *job, char *scratch, int64_t first, int64_t end)
{
    const int64_t height = job->out_size[0];
    while (first < end) {
        const int64_t row = first % height, rows = tt_min(end - first, height - row);
        const strip_t s = {first / height, row, row + rows};
        if (job->is_pick[0] && job->is_pick[1]) {
            take_strip(job, s);
        } else {
            blend_strip(job, scratch, s);
        }
        first += rows;
    }
}

static void run_piece(void *arg, size_t piece)
{
    job_t *job = arg;
    const int64_t rows = job->planes * job->out_size[0];
    int64_t first;
    while ((first = atomic_fetch_add(&job->next, job->run)) < rows) {
        run_rows(job, job->scratch + piece * job->scratch_bytes, first,
                 tt_min(first + job->run, rows));
    }
}

static void plan(job_t *job)
{
    const tutti_dtype_t dtype = job->dtype;
    const tt_class_t class = tt_class_of(dtype);
    const int64_t plane = job->size[0] * job->size[1], out = job->out_size[0] * job->out_size[1];
    const int64_t widest = tt_max(job->size[1], job->out_size[1]);
    job->ops = tt_kernels_of(dtype)->interpolate;
    job->bytes = tutti_dtype_bytes(dtype);
    job->wide_bytes = tutti_dtype_bytes(tt_class_dtype(class));
    if (job->bytes != job->wide_bytes) {
        job->widen = tt_convert_to(class, dtype);
        job->narrow = tt_convert_from(class, dtype);
        job->plane_bytes = tt_round_up((size_t)plane * job->wide_bytes, LINE);
    }
    job->row_bytes = tt_round_up((size_t)widest * job->wide_bytes, LINE);
    job->scratch_bytes = job->plane_bytes + 2 * job->row_bytes;
    job->run = RUN / ((plane + out) / job->out_size[0] + 1) + 1;
    for (int dim = 0; dim < 2; dim++) {
        job->is_pick[dim] = tt_taps_pick(&job->taps[dim], dtype);
        job->is_identity[dim] =
            job->size[dim] == job->out_size[dim] && tt_taps_are_identity(&job->taps[dim], dtype);
    }
}

static tutti_status_t run_planned(tt_threads_t *threads, job_t *job)
{
    const int64_t runs = tt_pieces_of(job->planes * job->out_size[0], job->run);
    const size_t workers = (size_t)tt_min(tt_threads_count(threads), runs);
    job->scratch = tt_threads_borrow(threads, workers * job->scratch_bytes);
    TT_TRY_ALLOC(job->scratch);
    tt_threads_run(threads, workers, run_piece, job);
    tt_threads_give_back(threads, job->scratch);
    return TUTTI_OK;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

typedef struct {
    tt_interpolate_t t;
    const void *from; /* x, or dy */
    void *to;         /* y, or dx */
} operands_t;

static tutti_status_t run(tt_threads_t *threads, const operands_t *a, bool is_backward)
{
    job_t job = {.planes = a->t.planes, .dtype = a->t.dtype, .from = a->from, .to = a->to};
    tutti_status_t status = TUTTI_OK;
    for (int dim = 0; dim < 2 && status >= 0 && job.planes > 0; dim++) {
        const tt_line_t *l = &a->t.lines[dim];
        job.size[dim] = is_backward ? l->out_size : l->size;
        job.out_size[dim] = is_backward ? l->size : l->out_size;
        status = tt_taps_of_line(l, is_backward, a->t.dtype, &job.taps[dim]);
    }
    if (status >= 0 && job.planes > 0) {
        plan(&job);
        status = run_planned(threads, &job);
    }
    tt_taps_free(&job.taps[0]);
    tt_taps_free(&job.taps[1]);
    return status;
}

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    return run(threads, arguments, false);
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    return run(threads, arguments, true);
}

static const tt_pointer_t pointers[] = {TT_POINTER(operands_t, from), TT_POINTER(operands_t, to),
                                        TT_NO_POINTER};
static const tt_kernel_t forward_kernel =
    TT_KERNEL("interpolate", operands_t, run_forward, pointers);
static const tt_kernel_t backward_kernel =
    TT_KERNEL("interpolate_backward", operands_t, run_backward, pointers);

tutti_status_t tt_interpolate(tt_exec_t *exec, const tt_interpolate_t *t, const void *x, void *y)
{
    return tt_launch(exec, &forward_kernel, &(operands_t){*t, x, y});
}

tutti_status_t tt_interpolate_backward(tt_exec_t *exec, const tt_interpolate_t *t, const void *dy,
                                       void *dx)
{
    return tt_launch(exec, &backward_kernel, &(operands_t){*t, dy, dx});
}
