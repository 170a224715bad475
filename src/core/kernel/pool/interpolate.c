/* Interpolation: threads take runs of planes. Rows of x are blended first, then columns of the
 * blend; backward spreads a row of dy over columns first, then over two rows of dx. What is nearest
 * is copied, a row once and then as it is again.
 * Cost: two multiplications and a gather for each element of y. Scratch of a thread: a plane of x
 * and two rows, in f32 (f64 for f64). */
#include "core/kernel/pool/interpolate.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/pool/interpolate_ops.h"

enum { RUN = 1 << 15, LINE = 64 };

typedef struct job {
    const tt_interpolate_t *t;
    const tt_interpolate_ops_t *ops;
    tt_places_t places[2];
    const char *from;
    char *to;
    void (*plane)(const struct job *job, char *scratch, int64_t plane);
    size_t bytes, wide_bytes; /* of an element, and of one that is computed with */
    tt_convert_fn_t widen, narrow;
    char *scratch;
    size_t plane_bytes, row_bytes, scratch_bytes;
    int64_t run;
    _Atomic int64_t next;
} job_t;

/* ---- places ---------------------------------------------------------------------------------- */

static double place_of(const tt_interpolate_t *t, int dim, int64_t i)
{
    const int64_t size = t->size[dim], out = t->out_size[dim];
    const double step = t->step[dim] > 0 ? t->step[dim] : (double)size / (double)out;
    if (t->align_corners) {
        return out == 1 ? 0 : (double)(size - 1) / (double)(out - 1) * (double)i;
    }
    const double place = step * ((double)i + 0.5) - 0.5;
    return place < 0 ? 0 : place;
}

/* Without a step of its own in integers, which round nothing. */
static int64_t nearest_to(const tt_interpolate_t *t, int dim, int64_t i)
{
    const int64_t last = t->size[dim] - 1;
    const double place = t->step[dim] * (double)i;
    return t->step[dim] <= 0      ? i * t->size[dim] / t->out_size[dim]
           : place < (double)last ? (int64_t)place
                                  : last;
}

static size_t places_bytes(const tt_interpolate_t *t, int dim)
{
    return tt_round_up((size_t)t->out_size[dim] * (sizeof(double) + sizeof(float) + 2 * 4), LINE);
}

static tt_places_t find_places(const tt_interpolate_t *t, int dim, char *block)
{
    const int64_t n = t->out_size[dim], last = t->size[dim] - 1;
    double *wide = (double *)(void *)block;
    float *weight = (float *)(void *)(wide + n);
    int32_t *lower = (int32_t *)(void *)(weight + n), *upper = lower + n;
    for (int64_t i = 0; i < n; i++) {
        const double place = t->is_linear ? place_of(t, dim, i) : (double)nearest_to(t, dim, i);
        const int64_t at = place < (double)last ? (int64_t)place : last;
        const double rest = place - (double)at;
        lower[i] = (int32_t)at;
        upper[i] = (int32_t)(at < last ? at + 1 : at);
        wide[i] = rest < 1 ? rest : 1;
        weight[i] = (float)wide[i];
    }
    const bool is_f64 = t->dtype == TUTTI_F64;
    return (tt_places_t){lower, upper, wide, is_f64 ? (const void *)wide : weight};
}

/* ---- one plane ------------------------------------------------------------------------------- */

/* Elements as they are computed with: where they lie, or a copy in `room`. */
static const char *widened(const job_t *job, const char *x, int64_t n, char *room)
{
    if (job->widen == NULL) {
        return x;
    }
    job->widen(room, x, (size_t)n);
    return room;
}

static void blend_plane(const job_t *job, char *scratch, int64_t plane)
{
    const tt_interpolate_t *t = job->t;
    const int64_t n = t->size[0] * t->size[1], width = t->size[1], out = t->out_size[1];
    const char *x = widened(job, job->from + (size_t)(plane * n) * job->bytes, n, scratch);
    char *row = scratch + job->plane_bytes, *narrow = row + job->row_bytes;
    for (int64_t i = 0; i < t->out_size[0]; i++) {
        char *y = job->to + (size_t)((plane * t->out_size[0] + i) * out) * job->bytes;
        const char *a = x + (size_t)(job->places[0].lower[i] * width) * job->wide_bytes;
        const char *b = x + (size_t)(job->places[0].upper[i] * width) * job->wide_bytes;
        job->ops->blend_rows(row, a, b, job->places[0].weight_f64[i], width);
        job->ops->blend_columns(job->narrow == NULL ? y : narrow, row, &job->places[1], out);
        if (job->narrow != NULL) {
            job->narrow(y, narrow, (size_t)out);
        }
    }
}

static void spread_plane(const job_t *job, char *scratch, int64_t plane)
{
    const tt_interpolate_t *t = job->t;
    const int64_t n = t->size[0] * t->size[1], width = t->size[1], out = t->out_size[1];
    char *dx = job->to + (size_t)(plane * n) * job->bytes;
    char *sums = job->narrow == NULL ? dx : scratch;
    char *row = scratch + job->plane_bytes, *wide = row + job->row_bytes;
    memset(sums, 0, (size_t)n * job->wide_bytes);
    for (int64_t i = 0; i < t->out_size[0]; i++) {
        const char *from = job->from + (size_t)((plane * t->out_size[0] + i) * out) * job->bytes;
        const char *dy = widened(job, from, out, wide);
        const double weight = job->places[0].weight_f64[i];
        char *lower = sums + (size_t)(job->places[0].lower[i] * width) * job->wide_bytes;
        char *upper = sums + (size_t)(job->places[0].upper[i] * width) * job->wide_bytes;
        if (!t->is_linear) {
            job->ops->spread_nearest(lower, dy, &job->places[1], out);
            continue;
        }
        memset(row, 0, (size_t)width * job->wide_bytes);
        job->ops->spread_columns(row, dy, &job->places[1], out);
        job->ops->add_row(lower, row, 1 - weight, width);
        job->ops->add_row(upper, row, weight, width);
    }
    if (job->narrow != NULL) {
        job->narrow(dx, sums, (size_t)n);
    }
}

static void take_elements(const job_t *job, char *y, const char *x)
{
    const int32_t *from = job->places[1].lower;
    const int64_t n = job->t->out_size[1];
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

static void take_plane(const job_t *job, char *scratch, int64_t plane)
{
    const tt_interpolate_t *t = job->t;
    const int32_t *rows = job->places[0].lower;
    const size_t width = (size_t)t->size[1] * job->bytes;
    const size_t out = (size_t)t->out_size[1] * job->bytes;
    const char *x = job->from + (size_t)(plane * t->size[0]) * width;
    char *y = job->to + (size_t)(plane * t->out_size[0]) * out;
    (void)scratch;
    for (int64_t i = 0; i < t->out_size[0]; i++, y += out) {
        if (i > 0 && rows[i] == rows[i - 1]) {
            memcpy(y, y - out, out);
        } else {
            take_elements(job, y, x + (size_t)rows[i] * width);
        }
    }
}

/* ---- all planes ------------------------------------------------------------------------------ */

static void run_piece(void *arg, size_t piece)
{
    job_t *job = arg;
    char *scratch = job->scratch + piece * job->scratch_bytes;
    int64_t first;
    while ((first = atomic_fetch_add(&job->next, job->run)) < job->t->planes) {
        const int64_t end = tt_min(first + job->run, job->t->planes);
        for (int64_t plane = first; plane < end; plane++) {
            job->plane(job, scratch, plane);
        }
    }
}

static void plan(job_t *job)
{
    const tt_interpolate_t *t = job->t;
    const tt_class_t class = tt_class_of(t->dtype);
    const int64_t widest = tt_max(t->size[1], t->out_size[1]);
    const int64_t elements = t->size[0] * t->size[1] + t->out_size[0] * t->out_size[1];
    job->ops = tt_kernels_of(t->dtype)->interpolate;
    job->bytes = tutti_dtype_bytes(t->dtype);
    job->wide_bytes = tutti_dtype_bytes(tt_class_dtype(class));
    if (job->bytes != job->wide_bytes) {
        job->widen = tt_convert_to(class, t->dtype);
        job->narrow = tt_convert_from(class, t->dtype);
        job->plane_bytes = tt_round_up((size_t)(t->size[0] * t->size[1]) * job->wide_bytes, LINE);
    }
    job->row_bytes = tt_round_up((size_t)widest * job->wide_bytes, LINE);
    job->scratch_bytes = job->plane_bytes + 2 * job->row_bytes;
    job->run = RUN / elements + 1;
}

static tutti_status_t run(tt_threads_t *threads, job_t *job)
{
    const tt_interpolate_t *t = job->t;
    if (t->planes == 0) {
        return TUTTI_OK;
    }
    plan(job);
    const int64_t workers = tt_min(tt_threads_count(threads), tt_pieces_of(t->planes, job->run));
    const size_t rows = places_bytes(t, 0), columns = places_bytes(t, 1);
    char *block = tt_threads_borrow(threads, rows + columns + (size_t)workers * job->scratch_bytes);
    TT_TRY_ALLOC(block);
    job->places[0] = find_places(t, 0, block);
    job->places[1] = find_places(t, 1, block + rows);
    job->scratch = block + rows + columns;
    tt_threads_run(threads, (size_t)workers, run_piece, job);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

typedef struct {
    tt_interpolate_t t;
    const void *from; /* x, or dy */
    void *to;         /* y, or dx */
} operands_t;

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    const operands_t *a = arguments;
    job_t job = {.t = &a->t,
                 .from = a->from,
                 .to = a->to,
                 .plane = a->t.is_linear ? blend_plane : take_plane};
    return run(threads, &job);
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    const operands_t *a = arguments;
    job_t job = {.t = &a->t, .from = a->from, .to = a->to, .plane = spread_plane};
    return run(threads, &job);
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
