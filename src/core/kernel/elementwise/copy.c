/* Strided copies. Runs that are contiguous on both sides are memcpy; where x is contiguous along
 * another dim than out (a transpose), blocks of 16 × 16 are moved, so that every cache line of
 * both sides is used whole while it is in L1. Cost: reads and writes every element once.
 */
#include "core/kernel/elementwise/copy.h"

#include <stdbool.h>
#include <string.h>

#include "core/kernel/elementwise/convert.h"
#include "core/kernel/elementwise/walk.h"

enum { PIECE = 16384, TILE = 16 };

typedef struct {
    const char *from;
    char *to;
    size_t bytes;
    tt_walk_t walk; /* operand 0: out, 1: x */
    int cross;      /* the dim along which x is contiguous, but not out; -1: none */
} copy_job_t;

static void fill_run(char *to, const char *from, int64_t n, size_t bytes)
{
    if (bytes == 4) {
        uint32_t value, *out = (uint32_t *)(void *)to;
        memcpy(&value, from, sizeof value);
        for (int64_t i = 0; i < n; i++) {
            out[i] = value;
        }
        return;
    }
    tt_gather_bytes(to, from, 0, (size_t)n, bytes);
}

static void copy_run(const copy_job_t *job, int64_t to, int64_t from, int64_t n)
{
    const int64_t bytes = (int64_t)job->bytes;
    const int64_t to_stride = tt_walk_inner_stride(&job->walk, 0);
    const int64_t from_stride = tt_walk_inner_stride(&job->walk, 1);
    char *out = job->to + to * bytes;
    const char *in = job->from + from * bytes;
    if (to_stride == 1 && from_stride == 1) {
        memcpy(out, in, (size_t)(n * bytes));
    } else if (to_stride == 1 && from_stride == 0) {
        fill_run(out, in, n, job->bytes);
    } else if (to_stride == 1) {
        tt_gather_bytes(out, in, from_stride, (size_t)n, job->bytes);
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(out + i * to_stride * bytes, in + i * from_stride * bytes, job->bytes);
        }
    }
}

static void copy_piece(void *arg, size_t piece)
{
    const copy_job_t *job = arg;
    const int64_t first = (int64_t)piece * PIECE;
    const int64_t left = job->walk.total - first;
    const int64_t n = left < PIECE ? left : PIECE;
    tt_cursor_t to = tt_cursor_at(&job->walk, 0, first);
    tt_cursor_t from = tt_cursor_at(&job->walk, 1, first);
    for (int64_t done = 0; done < n;) {
        int64_t to_offset, from_offset;
        const int64_t run = tt_cursor_next(&to, n - done, &to_offset);
        tt_cursor_next(&from, n - done, &from_offset);
        copy_run(job, to_offset, from_offset, run);
        done += run;
    }
}

/* One tile: rows along the innermost dim of out, columns along the crossing dim. */
static void copy_tile(const copy_job_t *job, const int64_t offset[2], int64_t columns, int64_t n)
{
    const tt_walk_t *walk = &job->walk;
    for (int64_t c = 0; c < columns; c++) {
        copy_run(job, offset[0] + c * walk->strides[0][job->cross],
                 offset[1] + c * walk->strides[1][job->cross], n);
    }
}

/* A piece is one strip: TILE steps of the crossing dim, the whole innermost dim. */
static void copy_strip(void *arg, size_t piece)
{
    const copy_job_t *job = arg;
    const tt_walk_t *walk = &job->walk;
    const int inner = walk->rank - 1;
    int64_t rest = (int64_t)piece, offset[2] = {0, 0}, columns = 0;
    for (int d = inner - 1; d >= 0; d--) {
        const bool crosses = d == job->cross;
        const int64_t steps = crosses ? (walk->shape[d] + TILE - 1) / TILE : walk->shape[d];
        const int64_t at = rest % steps * (crosses ? TILE : 1);
        rest /= steps;
        offset[0] += at * walk->strides[0][d];
        offset[1] += at * walk->strides[1][d];
        columns = !crosses ? columns : walk->shape[d] - at < TILE ? walk->shape[d] - at : TILE;
    }
    for (int64_t i = 0; i < walk->shape[inner]; i += TILE) {
        const int64_t left = walk->shape[inner] - i;
        const int64_t corner[2] = {offset[0] + i * walk->strides[0][inner],
                                   offset[1] + i * walk->strides[1][inner]};
        copy_tile(job, corner, columns, left < TILE ? left : TILE);
    }
}

static int find_cross(const tt_walk_t *walk)
{
    if (walk->rank < 2 || walk->strides[1][walk->rank - 1] <= 1) {
        return -1;
    }
    for (int d = 0; d < walk->rank - 1; d++) {
        if (walk->strides[1][d] == 1 && walk->shape[d] >= 4) {
            return d;
        }
    }
    return -1;
}

void tt_copy_now(tt_threads_t *threads, const tt_strided_t *out, const tt_strided_t *x)
{
    const tt_strided_t *operands[2] = {out, x};
    copy_job_t job = {
        .to = out->data, .from = tt_strided_data(x), .bytes = tutti_dtype_bytes(out->dtype)};
    tt_walk_init(&job.walk, operands, 2, true);
    job.cross = find_cross(&job.walk);
    if (job.walk.total == 0 ||
        (out->data == x->data && job.walk.is_dense[0] && job.walk.is_dense[1])) {
        return;
    }
    if (job.cross < 0) {
        tt_threads_run(threads, (size_t)((job.walk.total + PIECE - 1) / PIECE), copy_piece, &job);
        return;
    }
    int64_t strips = (job.walk.shape[job.cross] + TILE - 1) / TILE;
    for (int d = 0; d < job.walk.rank - 1; d++) {
        strips *= d == job.cross ? 1 : job.walk.shape[d];
    }
    tt_threads_run(threads, (size_t)strips, copy_strip, &job);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct {
    tt_strided_t out, x;
} copy_t;

static tutti_status_t run_copy(tt_threads_t *threads, const void *arguments)
{
    const copy_t *copy = arguments;
    tt_copy_now(threads, &copy->out, &copy->x);
    return TUTTI_OK;
}

static const tt_pointer_t copy_pointers[] = {TT_POINTER(copy_t, out.data),
                                             TT_POINTER(copy_t, x.data), TT_NO_POINTER};
static const tt_kernel_t copy_kernel = TT_KERNEL("copy", copy_t, run_copy, copy_pointers);

/* Of a number. */
static const tt_kernel_t fill_kernel = TT_KERNEL_ALWAYS("fill", copy_t, run_copy, copy_pointers);

tutti_status_t tt_copy(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x)
{
    return tt_launch(exec, x->data == NULL ? &fill_kernel : &copy_kernel, &(copy_t){*out, *x});
}
