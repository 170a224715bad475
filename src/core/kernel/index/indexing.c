/* Indexing. Whole rows are copied or added by memcpy and axpy; what adds is cut by columns, never
 * by indices, so that equal indices add in order. gather and scatter_add walk element by element:
 * the operand that is indexed has stride 0 along the dim, and the index times its true stride is
 * added to each offset.
 */
#include "core/kernel/index/indexing.h"

#include <stdio.h>
#include <string.h>

#include "core/kernel/elementwise/copy.h"
#include "core/kernel/optim/flat.h"
#include "core/kernel/kernels.h"
#include "core/kernel/elementwise/map_ops.h"
#include "core/kernel/elementwise/walk.h"

enum { PIECE = 16384, COLUMNS = 128, ADDED_COLUMNS = 512, SHORT_ROW = 16 };

static tutti_status_t check_list(const char *what, const int64_t *indices, size_t count,
                                 int64_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (indices[i] < 0 || indices[i] >= size) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: index %zu is %lld, outside [0, %lld)", what, i,
                           (long long)indices[i], (long long)size);
        }
    }
    return TUTTI_OK;
}

/* The place of a flat index, as "[1, 3]". */
static char *format_place(const tt_rows_by_index_t *at, size_t flat, char *text, size_t bytes)
{
    int64_t place[TT_RANK_MAX], rest = (int64_t)flat;
    for (int i = at->rank - 1; i >= 0; i--) {
        place[i] = rest % at->shape[i];
        rest /= at->shape[i];
    }
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < at->rank; i++) {
        used += (size_t)snprintf(text + used, bytes - used, i > 0 ? ", %lld" : "%lld",
                                 (long long)place[i]);
    }
    snprintf(text + used, bytes - used, "]");
    return text;
}

static tutti_status_t check_rows(const char *what, const tt_rows_by_index_t *at)
{
    const size_t rows = at->whole_rows > 0 ? at->whole_rows : at->table_rows;
    char place[TT_RANK_MAX * 22];
    for (size_t i = 0; i < at->count; i++) {
        if (at->indices[i] < 0 || at->indices[i] >= (int64_t)rows) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: index %lld at %s is outside a vocabulary of %zu",
                           what, (long long)at->indices[i],
                           format_place(at, i, place, sizeof place), rows);
        }
    }
    return TUTTI_OK;
}

/* The table's row for an index that was checked; table_rows and more: it is not here. */
static size_t row_of(const tt_rows_by_index_t *at, size_t i)
{
    return (size_t)at->indices[i] - at->first;
}

/* Arguments of the kernels on rows. */
typedef struct {
    tt_rows_by_index_t at;
    void *out;
    const void *in;
} rows_t;

typedef struct {
    const tt_rows_by_index_t *at;
    char *out;
    const char *in;
    const tt_flat_ops_t *flat;
    size_t row_bytes, group;
} rows_job_t;

static void take_piece(void *arg, size_t piece)
{
    const rows_job_t *job = arg;
    const size_t first = piece * job->group;
    for (size_t i = first; i < first + job->group && i < job->at->count; i++) {
        const size_t row = row_of(job->at, i);
        char *out = job->out + i * job->row_bytes;
        if (row < job->at->table_rows) {
            memcpy(out, job->in + row * job->row_bytes, job->row_bytes);
        } else {
            memset(out, 0, job->row_bytes);
        }
    }
}

static tutti_status_t run_take_rows(tt_threads_t *threads, const void *arguments)
{
    const rows_t *rows = arguments;
    const tt_rows_by_index_t *at = &rows->at;
    TT_TRY(check_rows("embedding", at));
    rows_job_t job = {.at = at,
                      .out = rows->out,
                      .in = rows->in,
                      .row_bytes = at->columns * tutti_dtype_bytes(at->dtype),
                      .group = PIECE / (at->columns + 1) + 1};
    tt_threads_run(threads, (at->count + job.group - 1) / job.group, take_piece, &job);
    return TUTTI_OK;
}

static void add_columns(const rows_job_t *job, size_t row, size_t i, size_t column, size_t n)
{
    const size_t columns = job->at->columns, to = row * columns + column,
                 from = i * columns + column;
    if (job->at->dtype == TUTTI_F32) {
        job->flat->axpy((float *)(void *)job->out + to, (const float *)(const void *)job->in + from,
                        n, 1.0f);
        return;
    }
    for (size_t j = 0; j < n; j++) {
        ((double *)(void *)job->out)[to + j] += ((const double *)(const void *)job->in)[from + j];
    }
}

static void add_piece(void *arg, size_t piece)
{
    const rows_job_t *job = arg;
    const size_t column = piece * COLUMNS, left = job->at->columns - column;
    for (size_t i = 0; i < job->at->count; i++) {
        const size_t row = row_of(job->at, i);
        if (row < job->at->table_rows) {
            add_columns(job, row, i, column, left < COLUMNS ? left : COLUMNS);
        }
    }
}

static tutti_status_t run_add_rows(tt_threads_t *threads, const void *arguments)
{
    const rows_t *rows = arguments;
    const tt_rows_by_index_t *at = &rows->at;
    TT_TRY(check_rows("embedding_backward", at));
    TT_ASSERT(at->dtype == TUTTI_F32 || at->dtype == TUTTI_F64);
    rows_job_t job = {.at = at, .out = rows->out, .in = rows->in, .flat = tt_kernels()->flat};
    tt_threads_run(threads, (at->columns + COLUMNS - 1) / COLUMNS, add_piece, &job);
    return TUTTI_OK;
}

static const tt_pointer_t rows_pointers[] = {
    TT_POINTER(rows_t, at.indices), TT_POINTER(rows_t, out), TT_POINTER(rows_t, in), TT_NO_POINTER};

tutti_status_t tt_take_rows(tt_exec_t *exec, const tt_rows_by_index_t *at, void *out,
                            const void *table)
{
    static const tt_kernel_t kernel = TT_KERNEL("embedding", rows_t, run_take_rows, rows_pointers);
    return tt_launch(exec, &kernel, &(rows_t){*at, out, table});
}

tutti_status_t tt_add_rows(tt_exec_t *exec, const tt_rows_by_index_t *at, void *table,
                           const void *rows)
{
    static const tt_kernel_t kernel =
        TT_KERNEL("embedding_backward", rows_t, run_add_rows, rows_pointers);
    return tt_launch(exec, &kernel, &(rows_t){*at, table, rows});
}

/* ---- along a dimension ----------------------------------------------------------------------- */

/* Arguments of all that follow; the index is i64. */
typedef struct {
    tt_strided_t out, x, index;
    int dim;
} along_t;

/* x at one index of a dim, which is dropped. */
static tt_strided_t slice(const tt_strided_t *x, int dim, int64_t index)
{
    tt_strided_t part = *x;
    part.data = (char *)x->data + index * x->strides[dim] * (int64_t)tutti_dtype_bytes(x->dtype);
    part.rank--;
    for (int d = dim; d < part.rank; d++) {
        part.shape[d] = x->shape[d + 1];
        part.strides[d] = x->strides[d + 1];
    }
    return part;
}

/* Whether elements lie in row-major order without gaps. */
static bool is_dense(const tt_strided_t *x)
{
    int64_t step = 1;
    for (int d = x->rank; d-- > 0;) {
        if (x->shape[d] != 1 && x->strides[d] != step) {
            return false;
        }
        step *= x->shape[d];
    }
    return true;
}

/* out and x as they are indexed along a dim: [outer, size there, inner] where both are dense. */
typedef struct {
    const tt_strided_t *out, *x;
    int dim;
    const int64_t *indices;
    tt_map_fn_t add;
    int64_t outer, inner; /* inner 0: one of them is not dense */
    int64_t count, out_size, x_size, per_piece;
} lines_job_t;

static lines_job_t lines_of(const along_t *at, int64_t count)
{
    lines_job_t job = {.out = &at->out,
                       .x = &at->x,
                       .dim = at->dim,
                       .indices = at->index.data,
                       .outer = 1,
                       .count = count,
                       .out_size = at->out.shape[at->dim],
                       .x_size = at->x.shape[at->dim]};
    job.inner = is_dense(&at->out) && is_dense(&at->x);
    for (int d = 0; d < at->out.rank; d++) {
        job.outer *= d < at->dim ? at->out.shape[d] : 1;
        job.inner *= d > at->dim ? at->out.shape[d] : 1;
    }
    return job;
}

/* ---- index_select ---------------------------------------------------------------------------- */

static void select_piece(void *arg, size_t piece)
{
    const lines_job_t *job = arg;
    const int64_t bytes = job->inner * (int64_t)tutti_dtype_bytes(job->x->dtype);
    const int64_t first = (int64_t)piece * job->per_piece;
    for (int64_t i = first; i < first + job->per_piece && i < job->outer * job->count; i++) {
        const int64_t from = i / job->count * job->x_size + job->indices[i % job->count];
        memcpy((char *)job->out->data + i * bytes, (const char *)job->x->data + from * bytes,
               (size_t)bytes);
    }
}

static void select_slice(void *arg, size_t i)
{
    const lines_job_t *job = arg;
    const tt_strided_t to = slice(job->out, job->dim, (int64_t)i);
    const tt_strided_t from = slice(job->x, job->dim, job->indices[i]);
    tt_copy_now(NULL, &to, &from);
}

static tutti_status_t run_index_select(tt_threads_t *threads, const void *arguments)
{
    const along_t *at = arguments;
    const int64_t count = at->out.shape[at->dim];
    TT_TRY(check_list("index_select", at->index.data, (size_t)count, at->x.shape[at->dim]));
    lines_job_t job = lines_of(at, count);
    if (job.inner == 0) {
        tt_threads_run(threads, (size_t)count, select_slice, &job);
        return TUTTI_OK;
    }
    job.per_piece = PIECE / (job.inner + 1) + 1;
    tt_threads_run(threads, (size_t)((job.outer * count + job.per_piece - 1) / job.per_piece),
                   select_piece, &job);
    return TUTTI_OK;
}

/* ---- index_add ------------------------------------------------------------------------------- */

/* NULL: of a dtype that has no kernel of its own. */
static tt_map_fn_t add_of(tutti_dtype_t dtype)
{
    if (dtype == TUTTI_F32 || dtype == TUTTI_F64) {
        return tt_kernels_of(dtype)->map->binary[TT_BINARY_ADD];
    }
    return dtype == TUTTI_I64 ? tt_map_ops_i64.binary[TT_BINARY_ADD] : NULL;
}

static void add_row(const lines_job_t *job, int64_t to, int64_t from, int64_t n)
{
    if (job->out->dtype == TUTTI_F32 && n < SHORT_ROW) {
        for (int64_t i = 0; i < n; i++) {
            ((float *)job->out->data)[to + i] += ((const float *)job->x->data)[from + i];
        }
        return;
    }
    const int64_t bytes = (int64_t)tutti_dtype_bytes(job->out->dtype);
    char *out = (char *)job->out->data + to * bytes;
    const void *operands[] = {out, (const char *)job->x->data + from * bytes};
    job->add(out, operands, (size_t)n, (tt_map_params_t){0});
}

/* Some columns of all rows at one outer index, in the order of the indices. */
static void add_lines_piece(void *arg, size_t piece)
{
    const lines_job_t *job = arg;
    const int64_t parts = (job->inner + job->per_piece - 1) / job->per_piece;
    const int64_t outer = (int64_t)piece / parts, column = (int64_t)piece % parts * job->per_piece;
    const int64_t left = job->inner - column, n = left < job->per_piece ? left : job->per_piece;
    for (int64_t i = 0; i < job->count; i++) {
        add_row(job, (outer * job->out_size + job->indices[i]) * job->inner + column,
                (outer * job->x_size + i) * job->inner + column, n);
    }
}

static void add_slices(tt_threads_t *threads, const lines_job_t *job)
{
    for (int64_t i = 0; i < job->count; i++) {
        const tt_strided_t to = slice(job->out, job->dim, job->indices[i]),
                           from = slice(job->x, job->dim, i);
        const tt_strided_t *operands[] = {&to, &to, &from};
        tt_map_now(threads, 2, TT_BINARY_ADD, (tt_map_params_t){0}, operands);
    }
}

static tutti_status_t run_index_add(tt_threads_t *threads, const void *arguments)
{
    const along_t *at = arguments;
    const int64_t count = at->x.shape[at->dim];
    TT_TRY(check_list("index_add", at->index.data, (size_t)count, at->out.shape[at->dim]));
    lines_job_t job = lines_of(at, count);
    job.add = add_of(at->out.dtype);
    if (job.inner == 0 || job.add == NULL || at->x.dtype != at->out.dtype) {
        add_slices(threads, &job);
        return TUTTI_OK;
    }
    job.per_piece = ADDED_COLUMNS;
    const int64_t parts = (job.inner + job.per_piece - 1) / job.per_piece;
    tt_threads_run(threads, (size_t)(job.outer * parts), add_lines_piece, &job);
    return TUTTI_OK;
}

/* ---- gather, scatter ------------------------------------------------------------------------- */

/* Operands: 0 the one that has the index's shape, 1 the index, 2 the one that is indexed. */
typedef struct {
    tt_walk_t walk;
    const tt_strided_t *plain, *indexed;
    const int64_t *index;
    int64_t indexed_stride;
    size_t bytes;
} pick_job_t;

static tutti_status_t pick_job(const char *what, const tt_strided_t *plain,
                               const tt_strided_t *index, const tt_strided_t *indexed, int dim,
                               pick_job_t *job)
{
    tt_strided_t flat = *indexed;
    flat.strides[dim] = 0;
    const tt_strided_t *operands[3] = {plain, index, &flat};
    *job = (pick_job_t){.plain = plain,
                        .indexed = indexed,
                        .index = index->data,
                        .indexed_stride = indexed->strides[dim],
                        .bytes = tutti_dtype_bytes(plain->dtype)};
    TT_ASSERT(index->dtype == TUTTI_I64);
    tt_walk_init(&job->walk, operands, 3, false);
    if (job->walk.total == 0) {
        return TUTTI_OK;
    }
    const int64_t stride = tt_walk_inner_stride(&job->walk, 1), size = indexed->shape[dim];
    tt_cursor_t cursor = tt_cursor_at(&job->walk, 1, 0);
    for (int64_t done = 0; done < job->walk.total;) {
        int64_t offset;
        const int64_t run = tt_cursor_next(&cursor, job->walk.total - done, &offset);
        for (int64_t i = 0; i < run; i++) {
            const int64_t value = job->index[offset + i * stride];
            if (value < 0 || value >= size) {
                return TT_FAIL(TUTTI_ERR_ARG, "%s: index %lld at element %lld is outside [0, %lld)",
                               what, (long long)value, (long long)(done + i), (long long)size);
            }
        }
        done += run;
    }
    return TUTTI_OK;
}

/* The offsets of element i of a run in the plain and the indexed operand. */
typedef struct {
    int64_t plain, indexed;
} pair_t;

typedef void (*pair_fn_t)(const pick_job_t *job, pair_t at);

/* Inline, so that fn and what it does for the job's dtype are decided outside of the loop. */
static inline __attribute__((always_inline)) void walk_pairs(const pick_job_t *job, int64_t first,
                                                             int64_t n, pair_fn_t fn)
{
    tt_cursor_t cursors[3];
    int64_t stride[3], offset[3];
    for (int k = 0; k < 3; k++) {
        cursors[k] = tt_cursor_at(&job->walk, k, first);
        stride[k] = tt_walk_inner_stride(&job->walk, k);
    }
    for (int64_t done = 0; done < n;) {
        int64_t run = 0;
        for (int k = 0; k < 3; k++) {
            run = tt_cursor_next(&cursors[k], n - done, &offset[k]);
        }
        for (int64_t i = 0; i < run; i++) {
            const int64_t index = job->index[offset[1] + i * stride[1]];
            fn(job, (pair_t){offset[0] + i * stride[0],
                             offset[2] + i * stride[2] + index * job->indexed_stride});
        }
        done += run;
    }
}

/* An element of job->bytes; a copy of a length that is known is no call. */
static inline __attribute__((always_inline)) void copy_element(const pick_job_t *job, char *to,
                                                               const char *from)
{
    switch (job->bytes) {
    case 4:
        memcpy(to, from, 4);
        return;
    case 8:
        memcpy(to, from, 8);
        return;
    default:
        memcpy(to, from, job->bytes);
    }
}

static void copy_pair(const pick_job_t *job, pair_t at)
{
    copy_element(job, (char *)job->plain->data + at.plain * (int64_t)job->bytes,
                 (const char *)job->indexed->data + at.indexed * (int64_t)job->bytes);
}

static void add_pair(const pick_job_t *job, pair_t at)
{
    switch (job->plain->dtype) {
    case TUTTI_F32:
        ((float *)job->indexed->data)[at.indexed] += ((const float *)job->plain->data)[at.plain];
        return;
    case TUTTI_F64:
        ((double *)job->indexed->data)[at.indexed] += ((const double *)job->plain->data)[at.plain];
        return;
    default:
        TT_ASSERT(job->plain->dtype == TUTTI_I64);
        ((int64_t *)job->indexed->data)[at.indexed] +=
            ((const int64_t *)job->plain->data)[at.plain];
    }
}

static void gather_piece(void *arg, size_t piece)
{
    const pick_job_t *job = arg;
    const int64_t first = (int64_t)piece * PIECE, left = job->walk.total - first;
    walk_pairs(job, first, left < PIECE ? left : PIECE, copy_pair);
}

static tutti_status_t run_gather(tt_threads_t *threads, const void *arguments)
{
    const along_t *at = arguments;
    pick_job_t job;
    TT_TRY(pick_job("gather", &at->out, &at->index, &at->x, at->dim, &job));
    tt_threads_run(threads, (size_t)((job.walk.total + PIECE - 1) / PIECE), gather_piece, &job);
    return TUTTI_OK;
}

/* In one thread: equal targets add in order. */
static tutti_status_t run_scatter_add(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    const along_t *at = arguments;
    pick_job_t job;
    TT_TRY(pick_job("scatter_along_add", &at->x, &at->index, &at->out, at->dim, &job));
    if (job.walk.total > 0) {
        walk_pairs(&job, 0, job.walk.total, add_pair);
    }
    return TUTTI_OK;
}

/* In one thread: of equal targets the last one counts. */
static void put_pair(const pick_job_t *job, pair_t at)
{
    copy_element(job, (char *)job->indexed->data + at.indexed * (int64_t)job->bytes,
                 (const char *)job->plain->data + at.plain * (int64_t)job->bytes);
}

static tutti_status_t run_scatter(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    const along_t *at = arguments;
    pick_job_t job;
    TT_TRY(pick_job("scatter_along", &at->x, &at->index, &at->out, at->dim, &job));
    if (job.walk.total > 0) {
        walk_pairs(&job, 0, job.walk.total, put_pair);
    }
    return TUTTI_OK;
}

static tutti_status_t run_one_hot(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    const along_t *at = arguments;
    const int64_t *index = at->index.data, count = at->out.shape[0], classes = at->out.shape[1];
    int64_t *out = at->out.data;
    for (int64_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= classes) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "one_hot: class %lld at element %lld is outside [0, %lld)",
                           (long long)index[i], (long long)i, (long long)classes);
        }
    }
    if (count * classes > 0) {
        memset(out, 0, (size_t)(count * classes) * sizeof *out);
    }
    for (int64_t i = 0; i < count; i++) {
        out[i * classes + index[i]] = 1;
    }
    return TUTTI_OK;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static const tt_pointer_t along_pointers[] = {TT_POINTER(along_t, out.data),
                                              TT_POINTER(along_t, x.data),
                                              TT_POINTER(along_t, index.data), TT_NO_POINTER};
static const tt_kernel_t select_kernel =
    TT_KERNEL("index_select", along_t, run_index_select, along_pointers);
static const tt_kernel_t add_kernel =
    TT_KERNEL("index_add", along_t, run_index_add, along_pointers);
static const tt_kernel_t gather_kernel = TT_KERNEL("gather", along_t, run_gather, along_pointers);
static const tt_kernel_t scatter_kernel =
    TT_KERNEL("scatter_along_add", along_t, run_scatter_add, along_pointers);
static const tt_kernel_t put_kernel =
    TT_KERNEL("scatter_along", along_t, run_scatter, along_pointers);
static const tt_kernel_t one_hot_kernel =
    TT_KERNEL("one_hot", along_t, run_one_hot, along_pointers);

static tt_strided_t list_of(const int64_t *indices, int64_t count)
{
    union {
        const int64_t *read;
        void *data;
    } list = {.read = indices}; /* it is only read */
    return tt_strided_row(list.data, TUTTI_I64, count);
}

tutti_status_t tt_index_select(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x,
                               int dim, const int64_t *indices)
{
    return tt_launch(exec, &select_kernel,
                     &(along_t){*out, *x, list_of(indices, out->shape[dim]), dim});
}

tutti_status_t tt_index_add(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x,
                            int dim, const int64_t *indices)
{
    return tt_launch(exec, &add_kernel, &(along_t){*out, *x, list_of(indices, x->shape[dim]), dim});
}

tutti_status_t tt_gather(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x, int dim,
                         const tt_strided_t *index)
{
    return tt_launch(exec, &gather_kernel, &(along_t){*out, *x, *index, dim});
}

tutti_status_t tt_scatter_add(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x,
                              int dim, const tt_strided_t *index)
{
    return tt_launch(exec, &scatter_kernel, &(along_t){*out, *x, *index, dim});
}

tutti_status_t tt_scatter(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x, int dim,
                          const tt_strided_t *index)
{
    return tt_launch(exec, &put_kernel, &(along_t){*out, *x, *index, dim});
}

tutti_status_t tt_one_hot(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *index)
{
    return tt_launch(exec, &one_hot_kernel, &(along_t){.out = *out, .index = *index});
}
