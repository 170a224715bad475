/* Copying with other indices. See remap.h.
 *
 * A row is what the last dimension has at one index of all others. Along it there are few runs, in
 * which the source moves by one step (or stays, or is outside): they are found once, and each row
 * is copied run by run.
 */
#include "core/kernel/index/remap.h"

#include <string.h>

#include "core/base/alloc.h"

enum { ELEMENTS = 16384 };

/* The source of index i of a dimension with n elements; -1: outside. */
static int64_t source_of(const tt_remap_dim_t *dim, int64_t n, int64_t i)
{
    const int64_t at = i - dim->before;
    switch (dim->mode) {
    case TT_REMAP_REFLECT:
        return at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
    case TT_REMAP_REPLICATE:
        return at < 0 ? 0 : at >= n ? n - 1 : at;
    case TT_REMAP_CIRCULAR: {
        const int64_t rest = (at - dim->first) % dim->length;
        return dim->first + rest + (rest < 0 ? dim->length : 0);
    }
    case TT_REMAP_FLIP:
        return n - 1 - i;
    default:
        return at < 0 || at >= n ? -1 : at;
    }
}

/* So many elements of a row from `to` on come from `from`, from + step, …; from -1: from nowhere.
 */
typedef struct {
    int64_t to, from, step, count;
} run_t;

/* The run that begins at index i. */
static run_t run_at(const tt_remap_dim_t *dim, int64_t n, int64_t size, int64_t i)
{
    run_t run = {.to = i, .from = source_of(dim, n, i), .count = 1};
    if (i + 1 == size) {
        return run;
    }
    run.step = source_of(dim, n, i + 1) - run.from;
    if ((run.from < 0) != (run.from + run.step < 0) || run.step > 1 || run.step < -1) {
        run.step = 0;
        return run;
    }
    while (i + run.count < size &&
           source_of(dim, n, i + run.count) == run.from + run.step * run.count) {
        run.count++;
    }
    return run;
}

typedef struct {
    const tt_remap_t *remap;
    const run_t *runs; /* of a row */
    size_t run_count;
    int64_t rows, per_piece;
    int64_t to_stride, from_stride, bytes;
} job_t;

/* Where a row begins in out and in x, in elements; from is -1 where its source is outside. */
typedef struct {
    int64_t to, from;
} row_t;

/* The index of dimension d moves a row on. */
static void move_row(const tt_remap_t *remap, int d, int64_t i, row_t *row)
{
    const int64_t source = source_of(&remap->dims[d], remap->x.shape[d], i);
    row->to += i * remap->out.strides[d]; /* matters where the source is outside, too */
    row->from = row->from < 0 || source < 0 ? -1 : row->from + source * remap->x.strides[d];
}

/* Rows are counted along the last dimension but one first: where those of its index 0 begin. */
static row_t find_rows(const tt_remap_t *remap, int64_t group)
{
    row_t row = {0, 0};
    for (int d = remap->out.rank - 2; d-- > 0;) {
        move_row(remap, d, group % remap->out.shape[d], &row);
        group /= remap->out.shape[d];
    }
    return row;
}

typedef void (*row_fn_t)(const job_t *job, row_t row);

static void each_row(const job_t *job, size_t piece, row_fn_t fn)
{
    const tt_remap_t *remap = job->remap;
    const int near = remap->out.rank - 2;
    const int64_t size = near < 0 ? 1 : remap->out.shape[near];
    int64_t i = (int64_t)piece * job->per_piece;
    const int64_t end = i + job->per_piece < job->rows ? i + job->per_piece : job->rows;
    while (i < end) {
        const row_t first = find_rows(remap, i / size);
        for (int64_t at = i % size; at < size && i < end; at++, i++) {
            row_t row = first;
            if (near >= 0) {
                move_row(remap, near, at, &row);
            }
            fn(job, row);
        }
    }
}

/* ---- copying --------------------------------------------------------------------------------- */

static void copy_1(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] = from[i * from_step];
    }
}

static void copy_2(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step,
                   int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] = from[i * from_step];
    }
}

/* Four elements in the other order at a time. */
static void copy_4_back(uint32_t *to, const uint32_t *from, int64_t n)
{
    typedef uint32_t four_t __attribute__((vector_size(16)));
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        four_t v;
        memcpy(&v, from - i - 3, sizeof v);
        v = (four_t){v[3], v[2], v[1], v[0]};
        memcpy(to + i, &v, sizeof v);
    }
    for (; i < n; i++) {
        to[i] = from[-i];
    }
}

static void copy_4(uint32_t *to, int64_t to_step, const uint32_t *from, int64_t from_step,
                   int64_t n)
{
    if (to_step == 1 && from_step == -1) {
        copy_4_back(to, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] = from[i * from_step];
    }
}

static void copy_8(uint64_t *to, int64_t to_step, const uint64_t *from, int64_t from_step,
                   int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] = from[i * from_step];
    }
}

/* Steps are in elements; 0 repeats the first one. */
static void copy_steps(const job_t *job, void *to, const void *from, int64_t from_step, int64_t n)
{
    const int64_t to_step = job->to_stride;
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)(n * job->bytes));
        return;
    }
    switch (job->bytes) {
    case 1:
        copy_1(to, to_step, from, from_step, n);
        return;
    case 2:
        copy_2(to, to_step, from, from_step, n);
        return;
    case 4:
        copy_4(to, to_step, from, from_step, n);
        return;
    default:
        copy_8(to, to_step, from, from_step, n);
    }
}

static void copy_row(const job_t *job, row_t row)
{
    const tt_remap_t *remap = job->remap;
    const bool is_inside = row.from >= 0;
    char *out = (char *)remap->out.data + row.to * job->bytes;
    const char *x = (const char *)remap->x.data + (is_inside ? row.from : 0) * job->bytes;
    for (size_t k = 0; k < job->run_count; k++) {
        const run_t *run = &job->runs[k];
        char *at = out + run->to * job->to_stride * job->bytes;
        if (is_inside && run->from >= 0) {
            copy_steps(job, at, x + run->from * job->from_stride * job->bytes,
                       run->step * job->from_stride, run->count);
        } else {
            copy_steps(job, at, remap->value.bytes, 0, run->count);
        }
    }
}

static void copy_piece(void *arg, size_t piece)
{
    each_row(arg, piece, copy_row);
}

/* ---- adding ---------------------------------------------------------------------------------- */

static void add_f32(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] += from[i * from_step];
    }
}

static void add_f64(double *to, int64_t to_step, const double *from, int64_t from_step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] += from[i * from_step];
    }
}

static void add_row(const job_t *job, row_t row)
{
    const tt_remap_t *remap = job->remap;
    if (row.from < 0) {
        return;
    }
    for (size_t k = 0; k < job->run_count; k++) {
        const run_t *run = &job->runs[k];
        if (run->from < 0) {
            continue;
        }
        const int64_t in = row.to + run->to * job->to_stride,
                      out = row.from + run->from * job->from_stride,
                      step = run->step * job->from_stride;
        if (remap->out.dtype == TUTTI_F32) {
            add_f32((float *)remap->x.data + out, step, (const float *)remap->out.data + in,
                    job->to_stride, run->count);
        } else {
            add_f64((double *)remap->x.data + out, step, (const double *)remap->out.data + in,
                    job->to_stride, run->count);
        }
    }
}

/* A piece is one index of the first dimension. */
static void add_piece(void *arg, size_t piece)
{
    each_row(arg, piece, add_row);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static int64_t count_rows(const tt_strided_t *x)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < x->rank; d++) {
        rows *= x->shape[d];
    }
    return rows;
}

/* The runs of a row: counted, and with `runs` written. */
static size_t list_runs(const tt_remap_t *remap, run_t *runs)
{
    const int last = remap->out.rank - 1;
    const int64_t size = remap->out.shape[last];
    size_t count = 0;
    for (int64_t i = 0; i < size; count++) {
        const run_t run = run_at(&remap->dims[last], remap->x.shape[last], size, i);
        if (runs != NULL) {
            runs[count] = run;
        }
        i += run.count;
    }
    return count;
}

static tutti_status_t run_rows(tt_threads_t *threads, const tt_remap_t *remap, tt_piece_fn_t fn,
                               int64_t per_piece)
{
    const int last = remap->out.rank - 1;
    job_t job = {.remap = remap,
                 .rows = count_rows(&remap->out),
                 .per_piece = per_piece,
                 .to_stride = remap->out.strides[last],
                 .from_stride = remap->x.strides[last],
                 .bytes = (int64_t)tutti_dtype_bytes(remap->x.dtype)};
    if (job.rows == 0 || remap->out.shape[last] == 0) {
        return TUTTI_OK;
    }
    job.run_count = list_runs(remap, NULL);
    run_t *runs = tt_alloc_raw(job.run_count * sizeof *runs, "scratch");
    TT_TRY_ALLOC(runs);
    (void)list_runs(remap, runs);
    job.runs = runs;
    tt_threads_run(threads, (size_t)((job.rows + per_piece - 1) / per_piece), fn, &job);
    tt_free(runs);
    return TUTTI_OK;
}

static tutti_status_t run_remap(tt_threads_t *threads, const void *arguments)
{
    const tt_remap_t *remap = arguments;
    const int64_t size = remap->out.shape[remap->out.rank - 1];
    return run_rows(threads, remap, copy_piece, ELEMENTS / (size + 1) + 1);
}

static tutti_status_t run_remap_add(tt_threads_t *threads, const void *arguments)
{
    const tt_remap_t *remap = arguments;
    const tt_remap_dim_t *first = &remap->dims[0];
    const int64_t rows = count_rows(&remap->out);
    TT_ASSERT(remap->out.dtype == TUTTI_F32 || remap->out.dtype == TUTTI_F64);
    const bool is_apart =
        remap->out.rank > 1 && first->mode == TT_REMAP_PLAIN && remap->out.shape[0] > 0;
    return run_rows(threads, remap, add_piece,
                    is_apart ? rows / remap->out.shape[0] + (rows == 0) : rows + (rows == 0));
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_remap_t, out.data),
                                        TT_POINTER(tt_remap_t, x.data), TT_NO_POINTER};

TT_LAUNCHER(tt_remap, "remap", tt_remap_t, run_remap, pointers)
TT_LAUNCHER(tt_remap_add, "remap_add", tt_remap_t, run_remap_add, pointers)
