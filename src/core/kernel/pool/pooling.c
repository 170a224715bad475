/* Pooling: threads take runs of planes; each has scratch for one plane.
 * Cost: x, y and the indices pass the memory once. Scratch: a thread's plane in f32, or in f64
 * where the plain loops run. */
#include "core/kernel/pool/pooling.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/half.h"
#include "core/kernel/pool/pooling_ops.h"

enum { RUN = 1 << 15, LINE = TT_POOLING_SLACK };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t up(int64_t count, int64_t per)
{
    return (count + per - 1) / per;
}

tt_span_t tt_pooling_span(const tt_pooling_t *p, int dim, int64_t i)
{
    const int64_t size = p->size[dim], out = p->out_size[dim];
    if (p->is_adaptive) {
        const int64_t first = i * size / out, end = up((i + 1) * size, out);
        return (tt_span_t){first, end - first, 1, end - first};
    }
    const int64_t kernel = p->kernel[dim], step = p->dilation[dim];
    const int64_t start = i * p->stride[dim] - p->padding[dim];
    const int64_t skipped = start < 0 ? up(-start, step) : 0;
    const int64_t end = start >= size ? 0 : least(kernel, up(size - start, step));
    const int64_t count = end > skipped ? end - skipped : 0;
    const int64_t extent = least(kernel, size + p->padding[dim] - start);
    return (tt_span_t){start + skipped * step, count, step, p->excludes_padding ? count : extent};
}

bool tt_pooling_is_disjoint(const tt_pooling_t *p)
{
    for (int i = 0; i < 2; i++) {
        const bool is_apart = p->is_adaptive
                                  ? p->size[i] % p->out_size[i] == 0
                                  : p->stride[i] >= p->dilation[i] * (p->kernel[i] - 1) + 1;
        if (!is_apart && p->out_size[i] > 1) {
            return false;
        }
    }
    return true;
}

/* ---- runs of planes -------------------------------------------------------------------------- */

typedef struct job {
    const tt_pooling_t *p;
    tt_pooling_fn_t fn; /* NULL: plain */
    void (*plain)(const struct job *job, double *scratch, int64_t plane);
    tt_pooling_lines_t lines;
    tt_convert_fn_t widen, narrow; /* of plain loops; NULL: the planes are f64 */
    char *scratch;
    size_t scratch_bytes; /* of a thread */
    int64_t run;          /* planes of a run */
    _Atomic int64_t next;
} job_t;

/* The planes of a job: x and dx, dy and y. */
static char *large_plane(const job_t *job, const void *data, int64_t plane)
{
    const tt_pooling_t *p = job->p;
    return (char *)(uintptr_t)data +
           (size_t)(plane * p->size[0] * p->size[1]) * tutti_dtype_bytes(p->dtype);
}

static char *small_plane(const job_t *job, const void *data, int64_t plane)
{
    const tt_pooling_t *p = job->p;
    return (char *)(uintptr_t)data +
           (size_t)(plane * p->out_size[0] * p->out_size[1]) * tutti_dtype_bytes(p->dtype);
}

static bool uses_lines(const tt_pooling_t *p)
{
    return !p->is_adaptive && p->dtype != TUTTI_F64 && p->stride[1] <= TT_POOLING_STRIDE_MAX &&
           p->padding[1] <= p->size[1];
}

static void run_piece(void *arg, size_t piece)
{
    job_t *job = arg;
    char *scratch = job->scratch + piece * job->scratch_bytes;
    int64_t first;
    while ((first = atomic_fetch_add(&job->next, job->run)) < job->p->planes) {
        const int64_t count = least(job->run, job->p->planes - first);
        if (job->fn != NULL) {
            job->fn(&job->lines, (float *)(void *)scratch, first, count);
            continue;
        }
        for (int64_t plane = first; plane < first + count; plane++) {
            job->plain(job, (double *)(void *)scratch, plane);
        }
    }
}

static tt_pooling_part_t part_of(const tt_pooling_lines_t *l, int64_t phase)
{
    const tt_pooling_t *p = l->p;
    const int64_t stride = p->stride[1], before = p->padding[1] - phase;
    const int64_t first = before > 0 ? up(before, stride) : 0;
    const int64_t end = least(up(p->size[1] + before, stride), l->reach);
    return (tt_pooling_part_t){least(first, end), end, first * stride - before};
}

static size_t bytes_of(int64_t count, size_t each)
{
    return (size_t)up(count * (int64_t)each, 64) * 64;
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
    return up(floats, LINE) * LINE;
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

static tutti_status_t run_lines(tt_threads_t *threads, job_t *job)
{
    const tt_pooling_t *p = job->p;
    const int64_t workers = least(tt_threads_count(threads), up(p->planes, job->run));
    const tables_t tables = lay_out_tables(p);
    job->lines.p = p;
    job->scratch_bytes = bytes_of(plan_lines(&job->lines), sizeof(float));
    char *block = tt_threads_borrow(threads, tables.end + (size_t)workers * job->scratch_bytes);
    TT_TRY_ALLOC(block);
    fill_tables(&job->lines, &tables, block);
    job->scratch = block + tables.end;
    tt_threads_run(threads, (size_t)workers, run_piece, job);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

static tutti_status_t run_plain(tt_threads_t *threads, job_t *job)
{
    const tt_pooling_t *p = job->p;
    const int64_t workers = least(tt_threads_count(threads), up(p->planes, job->run));
    const int64_t elements = p->size[0] * p->size[1] + p->out_size[0] * p->out_size[1];
    job->fn = NULL;
    if (p->dtype != TUTTI_F64) {
        job->widen = tt_convert_to(TT_CLASS_F64, p->dtype);
        job->narrow = tt_convert_from(TT_CLASS_F64, p->dtype);
        job->scratch_bytes = bytes_of(elements, sizeof(double));
    }
    job->scratch = tt_threads_borrow(threads, (size_t)workers * job->scratch_bytes + 1);
    TT_TRY_ALLOC(job->scratch);
    tt_threads_run(threads, (size_t)workers, run_piece, job);
    tt_threads_give_back(threads, job->scratch);
    return TUTTI_OK;
}

static tutti_status_t run(tt_threads_t *threads, job_t *job)
{
    if (job->p->planes == 0) {
        return TUTTI_OK;
    }
    job->run = RUN / (job->p->size[0] * job->p->size[1]) + 1;
    return uses_lines(job->p) ? run_lines(threads, job) : run_plain(threads, job);
}

/* ---- the largest ----------------------------------------------------------------------------- */

static void max_plane(const job_t *job, double *scratch, int64_t plane)
{
    const tt_pooling_t *p = job->p;
    const int64_t size = p->size[0] * p->size[1], out = p->out_size[0] * p->out_size[1];
    char *x = large_plane(job, job->lines.from, plane);
    char *y = small_plane(job, job->lines.to, plane);
    int32_t *at = job->lines.at == NULL ? NULL : job->lines.at + plane * out;
    if (job->widen == NULL) {
        tt_pooling_max_plain(p, (const double *)(void *)x, (double *)(void *)y, at);
        return;
    }
    job->widen(scratch, x, (size_t)size);
    tt_pooling_max_plain(p, scratch, scratch + size, at);
    job->narrow(y, scratch + size, (size_t)out);
}

tutti_status_t tt_pooling_max(tt_threads_t *threads, const tt_pooling_t *p, const void *x, void *y,
                              int32_t *at)
{
    job_t job = {.p = p,
                 .fn = tt_kernels()->pooling->max,
                 .plain = max_plane,
                 .lines = {.from = x, .to = y, .at = at}};
    return run(threads, &job);
}

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
    const int64_t first = (int64_t)piece * job->run, end = least(first + job->run, p->planes);
    for (int64_t plane = first; plane < end; plane++) {
        char *dx = job->dx + (size_t)(plane * size) * job->dx_bytes;
        memset(dx, 0, (size_t)size * job->dx_bytes);
        job->spread(job->dy + (size_t)(plane * out) * job->bytes, job->at + plane * out, dx, out);
    }
}

void tt_pooling_max_backward(tt_threads_t *threads, const tt_pooling_t *p, const void *dy,
                             const int32_t *at, void *dx)
{
    const bool is_disjoint = tt_pooling_is_disjoint(p), is_f64 = p->dtype == TUTTI_F64;
    const size_t bytes = tutti_dtype_bytes(p->dtype);
    spread_t job = {.p = p,
                    .dy = dy,
                    .at = at,
                    .dx = dx,
                    .bytes = bytes,
                    .dx_bytes = is_disjoint || is_f64 ? bytes : sizeof(float),
                    .run = RUN / (p->size[0] * p->size[1]) + 1};
    job.spread = is_f64                      ? add_f64
                 : is_disjoint && bytes == 2 ? put_2
                 : is_disjoint               ? put_4
                 : p->dtype == TUTTI_BF16    ? add_bf16
                 : p->dtype == TUTTI_F16     ? add_f16
                                             : add_f32;
    tt_threads_run(threads, (size_t)up(p->planes, job.run), spread_piece, &job);
}

/* ---- averages -------------------------------------------------------------------------------- */

static tutti_status_t run_whole(tt_threads_t *threads, job_t *job)
{
    char none = 0;
    job->run = RUN / (job->p->size[0] * job->p->size[1]) + 1;
    job->lines.p = job->p;
    job->scratch = &none;
    const int64_t workers = least(tt_threads_count(threads), up(job->p->planes, job->run));
    tt_threads_run(threads, (size_t)workers, run_piece, job);
    return TUTTI_OK;
}

/* Whether one window is the whole plane: then neighbours in memory are added, not windows. */
static bool is_whole(const tt_pooling_t *p)
{
    const bool is_one = p->out_size[0] == 1 && p->out_size[1] == 1;
    const bool is_all = p->is_adaptive || (p->kernel[0] == p->size[0] && p->padding[0] == 0 &&
                                           p->kernel[1] == p->size[1] && p->padding[1] == 0);
    return is_one && is_all && p->dtype != TUTTI_F64;
}

static void average_plane(const job_t *job, double *scratch, int64_t plane)
{
    const tt_pooling_t *p = job->p;
    const int64_t size = p->size[0] * p->size[1];
    char *x = large_plane(job, job->lines.from, plane);
    char *y = small_plane(job, job->lines.to, plane);
    if (job->widen == NULL) {
        tt_pooling_average_plain(p, (const double *)(void *)x, (double *)(void *)y);
        return;
    }
    job->widen(scratch, x, (size_t)size);
    tt_pooling_average_plain(p, scratch, scratch + size);
    job->narrow(y, scratch + size, (size_t)(p->out_size[0] * p->out_size[1]));
}

static void average_backward_plane(const job_t *job, double *scratch, int64_t plane)
{
    const tt_pooling_t *p = job->p;
    const int64_t size = p->size[0] * p->size[1];
    char *dy = small_plane(job, job->lines.from, plane);
    char *dx = large_plane(job, job->lines.to, plane);
    if (job->widen == NULL) {
        tt_pooling_average_backward_plain(p, (const double *)(void *)dy, (double *)(void *)dx);
        return;
    }
    job->widen(scratch + size, dy, (size_t)(p->out_size[0] * p->out_size[1]));
    tt_pooling_average_backward_plain(p, scratch + size, scratch);
    job->narrow(dx, scratch, (size_t)size);
}

static tutti_status_t run_average(tt_threads_t *threads, job_t *job)
{
    const tt_pooling_ops_t *ops = tt_kernels()->pooling;
    const bool is_forward = job->plain == average_plane;
    if (!is_whole(job->p)) {
        job->fn = is_forward ? ops->average : ops->average_backward;
        return run(threads, job);
    }
    job->fn = is_forward ? ops->whole : ops->whole_backward;
    return run_whole(threads, job);
}

tutti_status_t tt_pooling_average(tt_threads_t *threads, const tt_pooling_t *p, const void *x,
                                  void *y)
{
    job_t job = {.p = p, .plain = average_plane, .lines = {.from = x, .to = y}};
    return run_average(threads, &job);
}

tutti_status_t tt_pooling_average_backward(tt_threads_t *threads, const tt_pooling_t *p,
                                           const void *dy, void *dx)
{
    job_t job = {.p = p, .plain = average_backward_plane, .lines = {.from = dy, .to = dx}};
    return run_average(threads, &job);
}
