/* The element-wise machine.
 *
 *     operands -> joined dims -> pieces of 16384 elements for the threads -> chunks of 1024:
 *         load each operand into an L1 buffer in the class's type (no copy where it lies there
 *         contiguous already), call the kind's loop, store the result in the output's dtype
 *
 * A piece whose operands are all contiguous and of the class's type is one call of the loop.
 * Cost: reads every operand once, writes the output once.
 */
#include "core/kernel/elementwise/map.h"

#include <string.h>

#include "core/kernel/elementwise/copy.h"
#include "core/kernel/kernels.h"
#include "core/kernel/load.h"
#include "core/kernel/elementwise/map_ops.h"

enum { CHUNK = 1024, PIECE = 16 * CHUNK, ARITY_MAX = 3, RUN_MIN = 128 };

/* Room for a chunk in the widest type. */
typedef union {
    float f32[CHUNK];
    double f64[CHUNK];
    int64_t i64[CHUNK];
} chunk_t;

/* Operand 0 is the output. */
typedef struct {
    const tt_strided_t *operands[ARITY_MAX + 1];
    char *data[ARITY_MAX + 1];
    tt_source_t sources[ARITY_MAX + 1];
    tt_convert_fn_t convert;       /* the output's */
    bool is_direct[ARITY_MAX + 1]; /* contiguous and of the class's type */
    bool has_runs; /* all are of the class's type, in contiguous runs of RUN_MIN or more */
    int arity;
    tt_map_fn_t fn;
    tt_map_params_t params;
    tt_walk_t walk;
} map_job_t;

static char *at(const map_job_t *job, int k, int64_t offset)
{
    const size_t bytes = tutti_dtype_bytes(job->operands[k]->dtype);
    return job->data[k] + offset * (int64_t)bytes;
}

static void store(const map_job_t *job, int64_t first, int64_t n, const chunk_t *buffer)
{
    if (job->walk.is_dense[0]) {
        job->convert(at(job, 0, first), buffer, (size_t)n);
        return;
    }
    chunk_t raw;
    const size_t bytes = tutti_dtype_bytes(job->operands[0]->dtype);
    const int64_t stride = tt_walk_inner_stride(&job->walk, 0);
    job->convert(&raw, buffer, (size_t)n);
    tt_cursor_t cursor = tt_cursor_at(&job->walk, 0, first);
    for (int64_t done = 0; done < n;) {
        int64_t offset;
        const int64_t run = tt_cursor_next(&cursor, n - done, &offset);
        tt_scatter_bytes(at(job, 0, offset), stride, (char *)&raw + (size_t)done * bytes,
                         (size_t)run, bytes);
        done += run;
    }
}

static void map_chunk(const map_job_t *job, int64_t first, int64_t n, chunk_t *buffers)
{
    const void *in[ARITY_MAX];
    chunk_t raw;
    for (int k = 1; k <= job->arity; k++) {
        /* What repeats one element was loaded with the piece's first chunk. */
        const bool is_loaded = job->walk.is_single[k] && first % PIECE != 0;
        in[k - 1] =
            is_loaded ? &buffers[k] : tt_load(&job->sources[k], 0, first, n, &buffers[k], &raw);
    }
    void *out = job->is_direct[0] ? at(job, 0, first) : (void *)&buffers[0];
    job->fn(out, in, (size_t)n, job->params);
    if (!job->is_direct[0]) {
        store(job, first, n, &buffers[0]);
    }
}

static void map_direct(const map_job_t *job, int64_t first, int64_t n)
{
    const void *in[ARITY_MAX];
    for (int k = 1; k <= job->arity; k++) {
        in[k - 1] = at(job, k, first);
    }
    job->fn(at(job, 0, first), in, (size_t)n, job->params);
}

/* Every operand is of the class's type and contiguous along the innermost dim. */
static void map_runs(const map_job_t *job, int64_t first, int64_t n)
{
    tt_cursor_t cursors[ARITY_MAX + 1];
    for (int k = 0; k <= job->arity; k++) {
        cursors[k] = tt_cursor_at(&job->walk, k, first);
    }
    for (int64_t done = 0, run; done < n; done += run) {
        const void *in[ARITY_MAX];
        int64_t offset;
        run = tt_cursor_next(&cursors[0], n - done, &offset);
        void *out = at(job, 0, offset);
        for (int k = 1; k <= job->arity; k++) {
            tt_cursor_next(&cursors[k], n - done, &offset);
            in[k - 1] = at(job, k, offset);
        }
        job->fn(out, in, (size_t)run, job->params);
    }
}

static void map_piece(void *arg, size_t piece)
{
    const map_job_t *job = arg;
    const int64_t first = (int64_t)piece * PIECE;
    const int64_t end = first + PIECE < job->walk.total ? first + PIECE : job->walk.total;
    bool all_direct = true;
    for (int k = 0; k <= job->arity; k++) {
        all_direct = all_direct && job->is_direct[k];
    }
    if (all_direct) {
        map_direct(job, first, end - first);
        return;
    }
    if (job->has_runs) {
        map_runs(job, first, end - first);
        return;
    }
    chunk_t buffers[ARITY_MAX + 1];
    for (int64_t i = first; i < end; i += CHUNK) {
        map_chunk(job, i, end - i < CHUNK ? end - i : CHUNK, buffers);
    }
}

/* The widest class among the operands: f64, f32, i64. */
static tt_class_t common_class(const map_job_t *job)
{
    tt_class_t class = TT_CLASS_I64;
    for (int k = 0; k <= job->arity; k++) {
        const tt_class_t own = tt_class_of(job->operands[k]->dtype);
        class = own > class ? own : class;
    }
    return class;
}

static const tt_map_ops_t *ops_of(tt_class_t class)
{
    return class == TT_CLASS_I64 ? &tt_map_ops_i64 : tt_kernels_of(tt_class_dtype(class))->map;
}

static void run_job(tt_threads_t *threads, map_job_t *job, tt_class_t class)
{
    tt_walk_init(&job->walk, job->operands, job->arity + 1, true);
    const int rank = job->walk.rank;
    job->has_runs = rank > 0 && job->walk.shape[rank - 1] >= RUN_MIN;
    for (int k = 0; k <= job->arity; k++) {
        const tutti_dtype_t dtype = job->operands[k]->dtype;
        job->data[k] = (char *)(uintptr_t)tt_strided_data(job->operands[k]);
        job->sources[k] = tt_source(job->operands[k], class, &job->walk, k);
        job->has_runs &= dtype == tt_class_dtype(class) && tt_walk_inner_stride(&job->walk, k) == 1;
        job->is_direct[k] = job->walk.is_dense[k] && dtype == tt_class_dtype(class);
    }
    job->convert = tt_convert_from(class, job->operands[0]->dtype);
    tt_threads_run(threads, (size_t)((job->walk.total + PIECE - 1) / PIECE), map_piece, job);
}

/* The loop of a kind in a class, and whether it has one for integers. */
static tt_map_fn_t loop_of(tt_class_t class, int arity, int kind)
{
    const tt_map_ops_t *ops = ops_of(class);
    TT_ASSERT(class != TT_CLASS_I64 || (arity == 1   ? tt_unary_takes_ints((tt_unary_t)kind)
                                        : arity == 2 ? tt_binary_takes_ints((tt_binary_t)kind)
                                                     : tt_ternary_takes_ints((tt_ternary_t)kind)));
    return arity == 1 ? ops->unary[kind] : arity == 2 ? ops->binary[kind] : ops->ternary[kind];
}

void tt_map_now(tt_threads_t *threads, int arity, int kind, tt_map_params_t params,
                const tt_strided_t *const *operands)
{
    if (arity == 1 && kind == TT_UNARY_COPY && operands[0]->dtype == operands[1]->dtype) {
        tt_copy_now(threads, operands[0], operands[1]);
        return;
    }
    if (arity == 1 && kind == TT_UNARY_POW && (params.p == 2.0 || params.p == 0.5)) {
        kind = params.p == 2.0 ? TT_UNARY_SQUARE : TT_UNARY_SQRT;
    }
    map_job_t job = {.arity = arity, .params = params};
    for (int k = 0; k <= arity; k++) {
        job.operands[k] = operands[k];
    }
    const tt_class_t class = common_class(&job);
    job.fn = loop_of(class, arity, kind);
    run_job(threads, &job, class);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* Of the operands, 1 + arity are there. */
typedef struct {
    int arity, kind;
    tt_map_params_t params;
    tt_strided_t operands[ARITY_MAX + 1];
} map_t;

static tutti_status_t run_map(tt_threads_t *threads, const void *arguments)
{
    const map_t *map = arguments;
    const tt_strided_t *operands[ARITY_MAX + 1];
    for (int k = 0; k <= map->arity; k++) {
        operands[k] = &map->operands[k];
    }
    tt_map_now(threads, map->arity, map->kind, map->params, operands);
    return TUTTI_OK;
}

/* Those that a kernel of fewer operands has are the last ones. */
static const tt_pointer_t pointers[] = {
    TT_POINTER(map_t, operands[3].data), TT_POINTER(map_t, operands[2].data),
    TT_POINTER(map_t, operands[1].data), TT_POINTER(map_t, operands[0].data), TT_NO_POINTER};
static const tt_kernel_t map_kernels[ARITY_MAX] = {
    {"map_unary", offsetof(map_t, operands[2]), run_map, pointers + 2, false},
    {"map_binary", offsetof(map_t, operands[3]), run_map, pointers + 1, false},
    {"map_ternary", sizeof(map_t), run_map, pointers, false},
};

tutti_status_t tt_map_unary(tt_exec_t *exec, tt_unary_t kind, tt_map_params_t params,
                            const tt_strided_t *out, const tt_strided_t *x)
{
    map_t map;
    map.arity = 1;
    map.kind = (int)kind;
    map.params = params;
    map.operands[0] = *out;
    map.operands[1] = *x;
    return tt_launch(exec, &map_kernels[0], &map);
}

tutti_status_t tt_map_binary(tt_exec_t *exec, tt_binary_t kind, tt_map_params_t params,
                             const tt_strided_t *out, const tt_strided_t *a, const tt_strided_t *b)
{
    map_t map;
    map.arity = 2;
    map.kind = (int)kind;
    map.params = params;
    map.operands[0] = *out;
    map.operands[1] = *a;
    map.operands[2] = *b;
    return tt_launch(exec, &map_kernels[1], &map);
}

tutti_status_t tt_map_ternary(tt_exec_t *exec, tt_ternary_t kind, tt_map_params_t params,
                              const tt_strided_t *out, const tt_strided_t *a, const tt_strided_t *b,
                              const tt_strided_t *c)
{
    return tt_launch(exec, &map_kernels[2], &(map_t){3, (int)kind, params, {*out, *a, *b, *c}});
}

/* A number, seen in out's shape with strides 0. */
static tt_strided_t repeat(const tt_strided_t *out)
{
    tt_strided_t x = {.dtype = out->dtype, .rank = out->rank};
    memcpy(x.shape, out->shape, sizeof x.shape);
    return x;
}

tutti_status_t tt_fill(tt_exec_t *exec, const tt_strided_t *out, double value)
{
    tt_strided_t x = repeat(out);
    tt_convert_from(TT_CLASS_F64, out->dtype)(&x.number, &value, 1);
    return tt_copy(exec, out, &x);
}

tutti_status_t tt_fill_int(tt_exec_t *exec, const tt_strided_t *out, int64_t value)
{
    if (tutti_dtype_is_float(out->dtype)) {
        return tt_fill(exec, out, (double)value);
    }
    tt_strided_t x = repeat(out);
    tt_convert_from(TT_CLASS_I64, out->dtype)(&x.number, &value, 1);
    return tt_copy(exec, out, &x);
}
