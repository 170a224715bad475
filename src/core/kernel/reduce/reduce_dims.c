/* Reductions. What is folded into one output is a list of elements, row-major over the reduced
 * dims of x. Two ways, chosen by the shape alone:
 *
 *     rows      (the last dim is reduced): chunks of 4096 elements are folded in 16 lanes each and
 *               joined in order in f64; blocks of 16 chunks are joined in order again, so that one
 *               long row can be shared by threads.
 *     columns   (the last dim stays): up to 256 neighbouring outputs at once; 256 rows are folded
 *               in f32, such blocks are joined in f64.
 *
 * VAR needs a mean that is no worse than the elements: the sum of a block is rounded, by as much as
 * 10⁻⁵ of it. The differences from that mean are small and exact, and their own mean corrects it.
 *
 * Cost: reads x once (VAR three times).
 */
#include "core/kernel/reduce/reduce.h"

#include <math.h>
#include <string.h>

#include "core/kernel/kernels.h"
#include "core/kernel/load.h"
#include "core/kernel/reduce/reduce_ops.h"

enum { CHUNK = 4096, BLOCK = 16 * CHUNK, BATCH = 128, COLUMNS = TT_FOLD_COLUMNS, ROWS = 256 };

/* A partial or final result: in f64 for floats, in i64 for integers and indices. */
typedef struct {
    double value;
    int64_t whole;
    int64_t index; /* of ARGMAX and ARGMIN */
} partial_t;

typedef struct {
    tt_reduce_t kind;
    tt_fold_t fold;
    tt_class_t class;
    bool is_arg;
    double correction;
    int64_t count; /* elements per output */
    const tt_strided_t *out;
    tt_walk_t kept;    /* operand 0: out, 1: x; not joined over the columns */
    tt_walk_t reduced; /* operand 0: x */
    tt_walk_t columns; /* operand 0: out, 1: x: the dims behind the last reduced one */
    tt_source_t row, column;
    const tt_reduce_ops_t *ops;
    /* One long row shared by threads: */
    int64_t base, first_block;
    double mean;
    partial_t *partials;
    size_t group; /* outputs per piece */
} reduce_job_t;

typedef union {
    float f32[CHUNK];
    double f64[CHUNK];
    int64_t i64[CHUNK];
} chunk_t;

static partial_t identity(const reduce_job_t *job)
{
    const tt_fold_wide_t *wide = &tt_fold_wide[job->fold];
    return (partial_t){.value = wide->identity, .whole = wide->identity_i64, .index = -1};
}

/* Whether b beats a, which came before it. */
static bool is_better(const reduce_job_t *job, const partial_t *a, const partial_t *b)
{
    if (a->index < 0 || b->index < 0) {
        return a->index < 0;
    }
    const bool largest = job->fold == TT_FOLD_MAX;
    if (job->class == TT_CLASS_I64) {
        return largest ? b->whole > a->whole : b->whole < a->whole;
    }
    if (isnan(a->value) || isnan(b->value)) {
        return !isnan(a->value);
    }
    return largest ? b->value > a->value : b->value < a->value;
}

static partial_t join(const reduce_job_t *job, partial_t a, partial_t b)
{
    if (job->is_arg) {
        return is_better(job, &a, &b) ? b : a;
    }
    if (job->class == TT_CLASS_I64) {
        const tt_fold_t fold = job->fold == TT_FOLD_SQUARES ? TT_FOLD_SUM : job->fold;
        return (partial_t){.whole = tt_fold_wide[fold].row_i64(a.whole, &b.whole, 1)};
    }
    return (partial_t){.value = tt_fold_wide[job->fold].join(a.value, b.value)};
}

/* The first element that is the chunk's extreme. */
static int64_t find_first(const reduce_job_t *job, const void *x, int64_t n, const partial_t *best)
{
    for (int64_t i = 0; i < n; i++) {
        if (job->class == TT_CLASS_I64) {
            if (((const int64_t *)x)[i] == best->whole) {
                return i;
            }
            continue;
        }
        const double value =
            job->class == TT_CLASS_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
        if (value == best->value || (isnan(value) && isnan(best->value))) {
            return i;
        }
    }
    return 0;
}

static partial_t fold_chunk(const reduce_job_t *job, int64_t base, int64_t first, int64_t n,
                            double mean)
{
    chunk_t buffer, raw;
    const void *x = tt_load(&job->row, base, first, n, &buffer, &raw);
    partial_t result = identity(job);
    if (job->class == TT_CLASS_I64) {
        result.whole = tt_fold_wide[job->fold].row_i64(result.whole, x, (size_t)n);
    } else {
        result.value = job->ops->row[job->fold](x, (size_t)n, mean);
    }
    if (job->is_arg) {
        result.index = first + find_first(job, x, n, &result);
    }
    return result;
}

static partial_t fold_block(const reduce_job_t *job, int64_t base, int64_t block, double mean)
{
    partial_t result = identity(job);
    const int64_t first = block * BLOCK;
    const int64_t end = first + BLOCK < job->count ? first + BLOCK : job->count;
    for (int64_t i = first; i < end; i += CHUNK) {
        const int64_t n = end - i < CHUNK ? end - i : CHUNK;
        result = join(job, result, fold_chunk(job, base, i, n, mean));
    }
    return result;
}

static partial_t fold_row(const reduce_job_t *job, int64_t base, double mean)
{
    partial_t result = identity(job);
    for (int64_t block = 0; block * BLOCK < job->count; block++) {
        result = join(job, result, fold_block(job, base, block, mean));
    }
    return result;
}

/* What the kind makes of the folded value. */
static double finish(const reduce_job_t *job, double value)
{
    switch (job->kind) {
    case TT_REDUCE_MEAN:
        return value / (double)job->count;
    case TT_REDUCE_VAR:
        return value / fmax((double)job->count - job->correction, 0);
    default:
        return value;
    }
}

static void store(const reduce_job_t *job, int64_t offset, const partial_t *result)
{
    char *to = (char *)job->out->data + offset * (int64_t)tutti_dtype_bytes(job->out->dtype);
    const bool is_whole = job->is_arg || job->class == TT_CLASS_I64;
    int64_t whole = job->is_arg ? (result->index < 0 ? 0 : result->index) : result->whole;
    if (is_whole && !tutti_dtype_is_float(job->out->dtype) && job->kind != TT_REDUCE_MEAN) {
        tt_convert_from(TT_CLASS_I64, job->out->dtype)(to, &whole, 1);
        return;
    }
    const double value = finish(job, is_whole ? (double)whole : result->value);
    tt_convert_from(TT_CLASS_F64, job->out->dtype)(to, &value, 1);
}

/* A mean as the folds take it. */
static double about_mean(const reduce_job_t *job, double sum)
{
    const double mean = sum / (double)job->count;
    return job->class == TT_CLASS_F32 ? (double)(float)mean : mean;
}

/* The mean, by the sum of differences from about it. */
static double corrected(const reduce_job_t *job, double about, double differences)
{
    const double shift = differences / (double)job->count;
    return isfinite(shift) ? about + shift : about;
}

static double mean_of_row(const reduce_job_t *job, int64_t base)
{
    reduce_job_t sum = *job;
    sum.fold = TT_FOLD_SUM;
    const double about = about_mean(job, fold_row(&sum, base, 0).value);
    sum.fold = TT_FOLD_DIFFERENCES;
    return corrected(job, about, fold_row(&sum, base, about).value);
}

static void rows_piece(void *arg, size_t piece)
{
    const reduce_job_t *job = arg;
    const int64_t first = (int64_t)(piece * job->group);
    const int64_t left = job->kept.total - first;
    const int64_t n = left < (int64_t)job->group ? left : (int64_t)job->group;
    for (int64_t i = first; i < first + n; i++) {
        const int64_t base = tt_cursor_at(&job->kept, 1, i).offset;
        const double mean = job->kind == TT_REDUCE_VAR ? mean_of_row(job, base) : 0;
        const partial_t result = fold_row(job, base, mean);
        store(job, tt_cursor_at(&job->kept, 0, i).offset, &result);
    }
}

static void block_piece(void *arg, size_t piece)
{
    const reduce_job_t *job = arg;
    const int64_t block = job->first_block + (int64_t)piece;
    job->partials[piece] = fold_block(job, job->base, block, job->mean);
}

/* fold_row with its blocks shared by the threads; the order of joining is the same. */
static partial_t fold_long_row(tt_threads_t *threads, reduce_job_t *job)
{
    partial_t partials[BATCH], result = identity(job);
    job->partials = partials;
    const int64_t blocks = (job->count + BLOCK - 1) / BLOCK;
    for (job->first_block = 0; job->first_block < blocks; job->first_block += BATCH) {
        const int64_t left = blocks - job->first_block;
        const size_t batch = left < BATCH ? (size_t)left : BATCH;
        tt_threads_run(threads, batch, block_piece, job);
        for (size_t i = 0; i < batch; i++) {
            result = join(job, result, partials[i]);
        }
    }
    return result;
}

static void reduce_long_rows(tt_threads_t *threads, reduce_job_t *job)
{
    const tt_fold_t fold = job->fold;
    for (int64_t i = 0; i < job->kept.total; i++) {
        job->base = tt_cursor_at(&job->kept, 1, i).offset;
        if (job->kind == TT_REDUCE_VAR) {
            job->fold = TT_FOLD_SUM;
            job->mean = about_mean(job, fold_long_row(threads, job).value);
            job->fold = TT_FOLD_DIFFERENCES;
            job->mean = corrected(job, job->mean, fold_long_row(threads, job).value);
            job->fold = fold;
        }
        const partial_t result = fold_long_row(threads, job);
        store(job, tt_cursor_at(&job->kept, 0, i).offset, &result);
    }
}

static void reduce_rows(tt_threads_t *threads, reduce_job_t *job)
{
    if (job->count > 2 * BLOCK && job->kept.total < 64) {
        reduce_long_rows(threads, job);
        return;
    }
    const int64_t count = job->count > 0 ? job->count : 1;
    job->group = (size_t)(count < BLOCK / 4 ? BLOCK / 4 / count : 1);
    tt_threads_run(threads, ((size_t)job->kept.total + job->group - 1) / job->group, rows_piece,
                   job);
}

/* Up to COLUMNS outputs side by side. */
typedef struct {
    int64_t base, first; /* x's offset of the outer dims; first column */
    size_t n;
    float mean[COLUMNS];
    double mean_f64[COLUMNS];
    double total[COLUMNS];
    int64_t total_i64[COLUMNS];
} strip_t;

static void fold_rows(const reduce_job_t *job, strip_t *strip, int64_t offset, int64_t stride,
                      int64_t rows, void *acc)
{
    chunk_t buffer, raw;
    tt_fold_block_t block = {
        .row_stride = stride, .rows = (size_t)rows, .n = strip->n, .mean = strip->mean};
    if (job->class == TT_CLASS_F64) {
        block.mean = strip->mean_f64;
    }
    const int64_t n = (int64_t)strip->n;
    if (job->column.convert == NULL && job->columns.is_dense[1]) {
        block.x = tt_load(&job->column, strip->base + offset, strip->first, n, &buffer, &raw);
        job->ops->column[job->fold](acc, &block);
        return;
    }
    block.rows = 1;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t base = strip->base + offset + r * stride;
        block.x = tt_load(&job->column, base, strip->first, n, &buffer, &raw);
        job->ops->column[job->fold](acc, &block);
    }
}

static void fold_rows_i64(const reduce_job_t *job, strip_t *strip, int64_t offset, int64_t stride,
                          int64_t rows)
{
    chunk_t buffer, raw;
    const tt_fold_wide_t *wide = &tt_fold_wide[job->fold];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t base = strip->base + offset + r * stride;
        const void *x = tt_load(&job->column, base, strip->first, (int64_t)strip->n, &buffer, &raw);
        for (size_t j = 0; j < strip->n; j++) {
            strip->total_i64[j] = wide->row_i64(strip->total_i64[j], (const int64_t *)x + j, 1);
        }
    }
}

/* ROWS rows (fewer at the end) from row `first` on. */
static void fold_row_block(const reduce_job_t *job, strip_t *strip, int64_t first, int64_t rows)
{
    float acc[COLUMNS];
    const bool is_f32 = job->class == TT_CLASS_F32;
    const tt_fold_wide_t *wide = &tt_fold_wide[job->fold];
    for (size_t j = 0; j < strip->n; j++) {
        acc[j] = (float)wide->identity;
    }
    const int64_t stride = tt_walk_inner_stride(&job->reduced, 0);
    tt_cursor_t cursor = tt_cursor_at(&job->reduced, 0, first);
    for (int64_t done = 0; done < rows;) {
        int64_t offset;
        const int64_t run = tt_cursor_next(&cursor, rows - done, &offset);
        if (job->class == TT_CLASS_I64) {
            fold_rows_i64(job, strip, offset, stride, run);
        } else {
            fold_rows(job, strip, offset, stride, run, is_f32 ? acc : (void *)strip->total);
        }
        done += run;
    }
    if (is_f32) {
        wide->join_all(strip->total, acc, strip->n);
    }
}

static void fold_strip(const reduce_job_t *job, strip_t *strip)
{
    const tt_fold_wide_t *wide = &tt_fold_wide[job->fold];
    for (size_t j = 0; j < strip->n; j++) {
        strip->total[j] = wide->identity;
        strip->total_i64[j] = wide->identity_i64;
    }
    for (int64_t r = 0; r < job->count; r += ROWS) {
        fold_row_block(job, strip, r, job->count - r < ROWS ? job->count - r : ROWS);
    }
}

static void mean_of_strip(const reduce_job_t *job, strip_t *strip)
{
    reduce_job_t sum = *job;
    sum.fold = TT_FOLD_SUM;
    fold_strip(&sum, strip);
    for (size_t j = 0; j < strip->n; j++) {
        strip->mean_f64[j] = about_mean(job, strip->total[j]);
        strip->mean[j] = (float)strip->mean_f64[j];
    }
    sum.fold = TT_FOLD_DIFFERENCES;
    fold_strip(&sum, strip);
    for (size_t j = 0; j < strip->n; j++) {
        strip->mean_f64[j] = corrected(job, strip->mean_f64[j], strip->total[j]);
        strip->mean[j] = (float)strip->mean_f64[j];
    }
}

static void store_strip(const reduce_job_t *job, strip_t *strip, int64_t out)
{
    if (job->class != TT_CLASS_I64 && job->columns.is_dense[0]) {
        for (size_t j = 0; j < strip->n; j++) {
            strip->total[j] = finish(job, strip->total[j]);
        }
        const int64_t bytes = (int64_t)tutti_dtype_bytes(job->out->dtype);
        char *to = (char *)job->out->data + (out + strip->first) * bytes;
        tt_convert_from(TT_CLASS_F64, job->out->dtype)(to, strip->total, strip->n);
        return;
    }
    for (size_t j = 0; j < strip->n; j++) {
        const partial_t result = {.value = strip->total[j], .whole = strip->total_i64[j]};
        store(job, out + tt_cursor_at(&job->columns, 0, strip->first + (int64_t)j).offset, &result);
    }
}

static void columns_piece(void *arg, size_t piece)
{
    const reduce_job_t *job = arg;
    const int64_t strips = (job->columns.total + COLUMNS - 1) / COLUMNS;
    const int64_t outer = (int64_t)piece / strips;
    strip_t strip = {.base = tt_cursor_at(&job->kept, 1, outer).offset,
                     .first = (int64_t)piece % strips * COLUMNS};
    const int64_t left = job->columns.total - strip.first;
    strip.n = left < COLUMNS ? (size_t)left : COLUMNS;
    if (job->kind == TT_REDUCE_VAR) {
        mean_of_strip(job, &strip);
    }
    fold_strip(job, &strip);
    store_strip(job, &strip, tt_cursor_at(&job->kept, 0, outer).offset);
}

static const tt_fold_t folds[TT_REDUCE_COUNT] = {
    [TT_REDUCE_SUM] = TT_FOLD_SUM,        [TT_REDUCE_MEAN] = TT_FOLD_SUM,
    [TT_REDUCE_PROD] = TT_FOLD_PROD,      [TT_REDUCE_SUM_SQUARES] = TT_FOLD_SQUARES,
    [TT_REDUCE_MAX] = TT_FOLD_MAX,        [TT_REDUCE_MIN] = TT_FOLD_MIN,
    [TT_REDUCE_ANY] = TT_FOLD_ANY,        [TT_REDUCE_ALL] = TT_FOLD_ALL,
    [TT_REDUCE_ARGMAX] = TT_FOLD_MAX,     [TT_REDUCE_ARGMIN] = TT_FOLD_MIN,
    [TT_REDUCE_VAR] = TT_FOLD_DEVIATIONS,
};

/* x's dims (and out's) of which `mask` has the bit. */
static tt_strided_t pick(const tt_strided_t *x, unsigned mask)
{
    tt_strided_t picked = {.data = x->data, .dtype = x->dtype};
    for (int d = 0; d < x->rank; d++) {
        if (mask >> d & 1) {
            picked.shape[picked.rank] = x->shape[d];
            picked.strides[picked.rank++] = x->strides[d];
        }
    }
    return picked;
}

static void walk_kept(tt_walk_t *walk, const tt_strided_t *out, const tt_strided_t *x,
                      unsigned mask)
{
    const tt_strided_t outputs = pick(out, mask), inputs = pick(x, mask);
    const tt_strided_t *operands[2] = {&outputs, &inputs};
    tt_walk_init(walk, operands, 2, false);
}

/* The dims behind the last reduced one that is longer than 1. */
static unsigned trailing_dims(const tt_strided_t *x, unsigned dims)
{
    unsigned trailing = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
        if (dims >> d & 1 && x->shape[d] != 1) {
            break;
        }
        trailing |= dims >> d & 1 ? 0 : 1u << d;
    }
    return trailing;
}

/* The variance of integers is not whole. */
static tt_class_t class_for(tt_reduce_t kind, tutti_dtype_t dtype)
{
    const tt_class_t class = tt_class_of(dtype);
    return kind == TT_REDUCE_VAR && class == TT_CLASS_I64 ? TT_CLASS_F64 : class;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct {
    tt_reduce_t kind;
    tt_reduce_params_t params;
    unsigned dims;
    tt_strided_t out, x;
} reduce_t;

static tutti_status_t run_reduce(tt_threads_t *threads, const void *arguments)
{
    const reduce_t *reduce = arguments;
    const tt_reduce_t kind = reduce->kind;
    const tt_strided_t *out = &reduce->out, *x = &reduce->x;
    const unsigned dims = reduce->dims;
    reduce_job_t job = {
        .kind = kind,
        .fold = folds[kind],
        .class = class_for(kind, x->dtype),
        .is_arg = kind == TT_REDUCE_ARGMAX || kind == TT_REDUCE_ARGMIN,
        .correction = reduce->params.correction,
        .out = out,
    };
    job.ops = tt_kernels_of(tt_class_dtype(job.class))->reduce;
    const unsigned all = (1u << x->rank) - 1;
    const tt_strided_t reduced = pick(x, dims);
    const tt_strided_t *operands[1] = {&reduced};
    tt_walk_init(&job.reduced, operands, 1, false);
    job.count = job.reduced.total;
    job.row = tt_source(x, job.class, &job.reduced, 0);
    const unsigned columns = trailing_dims(x, dims) & all;
    walk_kept(&job.columns, out, x, columns);
    if (job.columns.total <= 1 || job.is_arg) {
        walk_kept(&job.kept, out, x, all & ~dims);
        reduce_rows(threads, &job);
        return TUTTI_OK;
    }
    job.column = tt_source(x, job.class, &job.columns, 1);
    walk_kept(&job.kept, out, x, all & ~dims & ~columns);
    const int64_t strips = (job.columns.total + COLUMNS - 1) / COLUMNS;
    tt_threads_run(threads, (size_t)(job.kept.total * strips), columns_piece, &job);
    return TUTTI_OK;
}

static const tt_pointer_t reduce_pointers[] = {TT_POINTER(reduce_t, out.data),
                                               TT_POINTER(reduce_t, x.data), TT_NO_POINTER};
static const tt_kernel_t reduce_kernel = TT_KERNEL("reduce", reduce_t, run_reduce, reduce_pointers);

tutti_status_t tt_reduce(tt_exec_t *exec, tt_reduce_t kind, tt_reduce_params_t params,
                         const tt_strided_t *out, const tt_strided_t *x, unsigned dims)
{
    return tt_launch(exec, &reduce_kernel, &(reduce_t){kind, params, dims, *out, *x});
}

const char *tt_reduce_name(tt_reduce_t kind)
{
    static const char *const names[TT_REDUCE_COUNT] = {
#define X(identifier, name, about) [TT_REDUCE_##identifier] = name,
        TT_REDUCE_LIST(X)
#undef X
    };
    return names[kind];
}
