/* Pooling: threads take runs of planes; each has scratch for one plane.
 * Cost: x, y and the indices pass the memory once. Scratch: a thread's plane in f32, or in f64
 * where the loops over windows run. */
#include "core/kernel/pool/pooling.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/half.h"
#include "core/kernel/pool/pooling_ops.h"

enum { RUN = 1 << 15, LINE = TT_POOLING_SLACK };

/* ---- runs of planes -------------------------------------------------------------------------- */

typedef struct {
    tt_pooling_lines_t lines;
    const tt_pooling_ops_t *ops;   /* NULL: windows in f64 */
    int64_t from_plane, to_plane;  /* elements */
    tt_convert_fn_t widen, narrow; /* of windows in f64; NULL: the planes are f64 */
    char *scratch;
    size_t scratch_bytes; /* of a thread */
    int64_t run;          /* planes of a run */
    _Atomic int64_t next;
} job_t;

static bool uses_lines(const tt_pooling_t *p)
{
    return !p->is_adaptive && p->dtype != TUTTI_F64 && p->stride[1] <= TT_POOLING_STRIDE_MAX &&
           p->padding[1] <= p->size[1];
}

static void run_windows(const job_t *job, double *scratch, int64_t plane)
{
    const tt_pooling_lines_t *l = &job->lines;
    const size_t bytes = tutti_dtype_bytes(l->p->dtype), n = (size_t)job->from_plane;
    const void *from = (const char *)l->from + (size_t)plane * n * bytes;
    void *to = (char *)l->to + (size_t)(plane * job->to_plane) * bytes;
    int32_t *at = l->at == NULL ? NULL : l->at + plane * job->to_plane;
    if (job->widen == NULL) {
        tt_pooling_windows(l->p, l->step, from, to, at);
        return;
    }
    job->widen(scratch, from, n);
    tt_pooling_windows(l->p, l->step, scratch, scratch + n, at);
    job->narrow(to, scratch + n, (size_t)job->to_plane);
}

static void run_piece(void *arg, size_t piece)
{
    job_t *job = arg;
    const tt_pooling_t *p = job->lines.p;
    void *scratch = job->scratch + piece * job->scratch_bytes;
    int64_t first;
    while ((first = atomic_fetch_add(&job->next, job->run)) < p->planes) {
        const int64_t count = tt_min(job->run, p->planes - first);
        if (job->ops != NULL) {
            job->ops->run[p->dtype](&job->lines, scratch, first, count);
            continue;
        }
        for (int64_t plane = first; plane < first + count; plane++) {
            run_windows(job, scratch, plane);
        }
    }
}

static tt_pooling_part_t part_of(const tt_pooling_lines_t *l, int64_t phase)
{
    const tt_pooling_t *p = l->p;
    const int64_t stride = p->stride[1], before = p->padding[1] - phase;
    const int64_t first = before > 0 ? tt_pieces_of(before, stride) : 0;
    const int64_t end = tt_min(tt_pieces_of(p->size[1] + before, stride), l->reach);
    return (tt_pooling_part_t){tt_min(first, end), end, first * stride - before};
}

static size_t bytes_of(int64_t count, size_t each)
{
    return tt_round_up((size_t)count * each, 64);
}

typedef struct {
    size_t taps, spans, starts, columns, extents, end; /* where each begins, bytes */
} tables_t;

static tables_t lay_out_tables(const tt_pooling_t *p)
{
    const size_t columns = bytes_of(p->out_size[1] + TT_POOLING_SLACK, sizeof(int32_t));
    tables_t at = {.taps = 0};
    at.spans = at.taps + bytes_of(p->kernel[1], sizeof(int64_t));
    at.starts = at.spans + bytes_of(p->out_size[0], sizeof(tt_span_t));
    at.columns = at.starts + columns;
    at.extents = at.columns + columns;
    at.end = at.extents + columns;
    return at;
}

static void fill_tables(tt_pooling_lines_t *l, const tables_t *at, char *block)
{
    const tt_pooling_t *p = l->p;
    int64_t *taps = (int64_t *)(void *)(block + at->taps);
    tt_span_t *spans = (tt_span_t *)(void *)(block + at->spans);
    int32_t *starts = (int32_t *)(void *)(block + at->starts);
    int32_t *columns = (int32_t *)(void *)(block + at->columns);
    float *extents = (float *)(void *)(block + at->extents);
    for (int64_t b = 0; b < p->kernel[1]; b++) {
        const int64_t column = b * p->dilation[1];
        taps[b] = column % p->stride[1] * l->line + column / p->stride[1];
    }
    for (int64_t i = 0; i < p->out_size[0]; i++) {
        spans[i] = tt_pooling_span(p, 0, i);
    }
    for (int64_t j = 0; j < p->out_size[1] + TT_POOLING_SLACK; j++) {
        const tt_span_t span =
            j < p->out_size[1] ? tt_pooling_span(p, 1, j) : (tt_span_t){.count = 0};
        starts[j] = (int32_t)(j * p->stride[1] - p->padding[1]);
        columns[j] = span.count > 0 ? (int32_t)span.first : -1;
        extents[j] = span.extent > 0 ? (float)span.extent : 1;
    }
    l->taps = taps;
    l->spans = spans;
    l->starts = starts;
    l->columns = columns;
    l->extents = extents;
}

static int64_t whole_lines(int64_t floats)
{
    return tt_pieces_of(floats, LINE) * LINE;
}

/* Returns the floats of a thread's scratch: a row, and the lines. */
static int64_t plan_lines(tt_pooling_lines_t *l)
{
    const tt_pooling_t *p = l->p;
    l->reach = p->out_size[1] + (p->kernel[1] - 1) * p->dilation[1] / p->stride[1];
    l->row = whole_lines(p->size[1] + 2 * TT_POOLING_SLACK);
    l->line = whole_lines(l->reach) + TT_POOLING_SLACK;
    for (int64_t phase = 0; phase < p->stride[1]; phase++) {
        l->parts[phase] = part_of(l, phase);
    }
    return l->row + p->size[0] * p->stride[1] * l->line + TT_POOLING_SLACK;
}

/* Whether one window is the whole plane: then neighbours in memory are added, not windows. */
static bool is_whole(const tt_pooling_t *p)
{
    const bool is_one = p->out_size[0] == 1 && p->out_size[1] == 1;
    const bool is_all = p->is_adaptive || (p->kernel[0] == p->size[0] && p->padding[0] == 0 &&
                                           p->kernel[1] == p->size[1] && p->padding[1] == 0);
    return is_one && is_all && p->dtype != TUTTI_F64;
}

/* Returns the bytes of a thread's scratch. */
static size_t plan_windows(job_t *job)
{
    const tt_pooling_t *p = job->lines.p;
    const int64_t size = p->size[0] * p->size[1], out = p->out_size[0] * p->out_size[1];
    const bool is_backward = job->lines.step == TT_POOLING_AVERAGE_BACKWARD;
    job->ops = NULL;
    job->from_plane = is_backward ? out : size;
    job->to_plane = is_backward ? size : out;
    if (p->dtype == TUTTI_F64) {
        return 0;
    }
    job->widen = tt_convert_to(TT_CLASS_F64, p->dtype);
    job->narrow = tt_convert_from(TT_CLASS_F64, p->dtype);
    return bytes_of(size + out, sizeof(double));
}

/* The largest and averages: by averages of whole planes, lines, or windows in f64. */
static tutti_status_t run(tt_threads_t *threads, job_t *job)
{
    const tt_pooling_t *p = job->lines.p;
    tt_pooling_step_t *step = &job->lines.step;
    tables_t tables = {.end = 0};
    if (p->planes == 0) {
        return TUTTI_OK;
    }
    job->ops = tt_kernels()->pooling;
    if (*step != TT_POOLING_MAX && is_whole(p)) {
        *step = *step == TT_POOLING_AVERAGE ? TT_POOLING_WHOLE : TT_POOLING_WHOLE_BACKWARD;
    } else if (uses_lines(p)) {
        tables = lay_out_tables(p);
        job->scratch_bytes = bytes_of(plan_lines(&job->lines), sizeof(float));
    } else {
        job->scratch_bytes = plan_windows(job);
    }
    job->run = RUN / (p->size[0] * p->size[1]) + 1;
    const int64_t workers = tt_min(tt_threads_count(threads), tt_pieces_of(p->planes, job->run));
    char *block = tt_threads_borrow(threads, tables.end + (size_t)workers * job->scratch_bytes + 1);
    TT_TRY_ALLOC(block);
    if (tables.end > 0) {
        fill_tables(&job->lines, &tables, block);
    }
    job->scratch = block + tables.end;
    tt_threads_run(threads, (size_t)workers, run_piece, job);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

/* ---- the largest, backward ------------------------------------------------------------------- */

typedef struct {
    const tt_pooling_t *p;
    const char *dy;
    const int32_t *at;
    char *dx;
    size_t bytes, dx_bytes; /* of an element */
    int64_t run;
    void (*spread)(const void *dy, const int32_t *at, void *dx, int64_t n);
} spread_t;

static void put_2(const void *dy, const int32_t *at, void *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] >= 0) {
            ((uint16_t *)dx)[at[i]] = ((const uint16_t *)dy)[i];
        }
    }
}

static void put_4(const void *dy, const int32_t *at, void *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] >= 0) {
            ((float *)dx)[at[i]] = ((const float *)dy)[i];
        }
    }
}

static void add_f32(const void *dy, const int32_t *at, void *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] >= 0) {
            ((float *)dx)[at[i]] += ((const float *)dy)[i];
        }
    }
}

static void add_f64(const void *dy, const int32_t *at, void *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] >= 0) {
            ((double *)dx)[at[i]] += ((const double *)dy)[i];
        }
    }
}

static void add_bf16(const void *dy, const int32_t *at, void *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] >= 0) {
            ((float *)dx)[at[i]] += tt_bf16_to_f32(((const uint16_t *)dy)[i]);
        }
    }
}

static void add_f16(const void *dy, const int32_t *at, void *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] >= 0) {
            ((float *)dx)[at[i]] += tt_f16_to_f32(((const uint16_t *)dy)[i]);
        }
    }
}

static void spread_piece(void *arg, size_t piece)
{
    const spread_t *job = arg;
    const tt_pooling_t *p = job->p;
    const int64_t size = p->size[0] * p->size[1], out = p->out_size[0] * p->out_size[1];
    const int64_t first = (int64_t)piece * job->run, end = tt_min(first + job->run, p->planes);
    for (int64_t plane = first; plane < end; plane++) {
        char *dx = job->dx + (size_t)(plane * size) * job->dx_bytes;
        memset(dx, 0, (size_t)size * job->dx_bytes);
        job->spread(job->dy + (size_t)(plane * out) * job->bytes, job->at + plane * out, dx, out);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

typedef struct {
    tt_pooling_t p;
    tt_pooling_step_t step;
    const void *from; /* x, or dy */
    void *to;         /* y, or dx */
    int32_t *at;
} pool_t;

static tutti_status_t run_pool(tt_threads_t *threads, const void *arguments)
{
    const pool_t *a = arguments;
    job_t job = {.lines = {.p = &a->p, .step = a->step, .from = a->from, .to = a->to, .at = a->at}};
    return run(threads, &job);
}

static const tt_pointer_t pool_pointers[] = {TT_POINTER(pool_t, from), TT_POINTER(pool_t, to),
                                             TT_POINTER(pool_t, at), TT_NO_POINTER};
static const tt_kernel_t pool_kernels[] = {
    [TT_POOLING_MAX] = TT_KERNEL("max_pool", pool_t, run_pool, pool_pointers),
    [TT_POOLING_AVERAGE] = TT_KERNEL("avg_pool", pool_t, run_pool, pool_pointers),
    [TT_POOLING_AVERAGE_BACKWARD] = TT_KERNEL("avg_pool_backward", pool_t, run_pool, pool_pointers),
};

tutti_status_t tt_pooling_max(tt_exec_t *exec, const tt_pooling_t *p, const void *x, void *y,
                              int32_t *at)
{
    const pool_t pool = {*p, TT_POOLING_MAX, x, y, at};
    return tt_launch(exec, &pool_kernels[pool.step], &pool);
}

tutti_status_t tt_pooling_average(tt_exec_t *exec, const tt_pooling_t *p, const void *x, void *y)
{
    const pool_t pool = {*p, TT_POOLING_AVERAGE, x, y, NULL};
    return tt_launch(exec, &pool_kernels[pool.step], &pool);
}

tutti_status_t tt_pooling_average_backward(tt_exec_t *exec, const tt_pooling_t *p, const void *dy,
                                           void *dx)
{
    const pool_t pool = {*p, TT_POOLING_AVERAGE_BACKWARD, dy, dx, NULL};
    return tt_launch(exec, &pool_kernels[pool.step], &pool);
}

typedef struct {
    tt_pooling_t p;
    const void *dy;
    const int32_t *at;
    void *dx;
} max_backward_t;

static tutti_status_t run_max_backward(tt_threads_t *threads, const void *arguments)
{
    const max_backward_t *a = arguments;
    const tt_pooling_t *p = &a->p;
    const bool is_disjoint = tt_pooling_is_disjoint(p), is_f64 = p->dtype == TUTTI_F64;
    const size_t bytes = tutti_dtype_bytes(p->dtype);
    spread_t job = {.p = p,
                    .dy = a->dy,
                    .at = a->at,
                    .dx = a->dx,
                    .bytes = bytes,
                    .dx_bytes = is_disjoint || is_f64 ? bytes : sizeof(float),
                    .run = RUN / (p->size[0] * p->size[1]) + 1};
    job.spread = is_f64                      ? add_f64
                 : is_disjoint && bytes == 2 ? put_2
                 : is_disjoint               ? put_4
                 : p->dtype == TUTTI_BF16    ? add_bf16
                 : p->dtype == TUTTI_F16     ? add_f16
                                             : add_f32;
    tt_threads_run(threads, (size_t)tt_pieces_of(p->planes, job.run), spread_piece, &job);
    return TUTTI_OK;
}

static const tt_pointer_t max_backward_pointers[] = {TT_POINTER(max_backward_t, dy),
                                                     TT_POINTER(max_backward_t, at),
                                                     TT_POINTER(max_backward_t, dx), TT_NO_POINTER};
static const tt_kernel_t max_backward_kernel =
    TT_KERNEL("max_pool_backward", max_backward_t, run_max_backward, max_backward_pointers);

tutti_status_t tt_pooling_max_backward(tt_exec_t *exec, const tt_pooling_t *p, const void *dy,
                                       const int32_t *at, void *dx)
{
    return tt_launch(exec, &max_backward_kernel, &(max_backward_t){*p, dy, at, dx});
}
