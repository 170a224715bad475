/* Triangles, row by row: what is kept is copied, the rest is cleared. See triangle.h. */
#include "core/kernel/index/triangle.h"

#include <string.h>

#include "core/kernel/elementwise/copy.h"
#include "core/kernel/index/lines.h"

enum { ELEMENTS = 16384 };

typedef struct {
    const tt_triangle_t *triangle;
    int64_t rows, per_piece;
} job_t;

/* Columns [from, to) of a row are copied, or cleared. */
static void write_columns(const tt_triangle_t *triangle, int64_t row, int64_t from, int64_t to,
                          bool clears)
{
    const int last = triangle->out.rank - 1;
    const int64_t bytes = (int64_t)tutti_dtype_bytes(triangle->out.dtype);
    char *out = tt_line_data(&triangle->out, last, row);
    char *x = tt_line_data(&triangle->x, last, row);
    const tt_strided_t zero = {
        .data = NULL, .dtype = triangle->out.dtype, .rank = 1, .shape = {to - from}};
    tt_strided_t y = tt_strided_row(out + from * triangle->out.strides[last] * bytes,
                                    triangle->out.dtype, to - from);
    tt_strided_t in = tt_strided_row(x + from * triangle->x.strides[last] * bytes,
                                     triangle->out.dtype, to - from);
    y.strides[0] = triangle->out.strides[last];
    in.strides[0] = triangle->x.strides[last];
    if (from >= to) {
        return;
    }
    if (y.strides[0] == 1 && (clears || in.strides[0] == 1)) {
        if (clears) {
            memset(y.data, 0, (size_t)((to - from) * bytes));
        } else {
            memcpy(y.data, in.data, (size_t)((to - from) * bytes));
        }
        return;
    }
    tt_copy_now(NULL, &y, clears ? &zero : &in);
}

static int64_t within(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

static void triangle_piece(void *arg, size_t piece)
{
    const job_t *job = arg;
    const tt_triangle_t *triangle = job->triangle;
    const int last = triangle->out.rank - 1;
    const int64_t first = (int64_t)piece * job->per_piece, columns = triangle->out.shape[last],
                  height = triangle->out.shape[last - 1];
    for (int64_t row = first; row < first + job->per_piece && row < job->rows; row++) {
        const int64_t i = row % height;
        /* The diagonal is at most the largest size away: the sum is small. */
        const int64_t edge = within(i + triangle->diagonal + (triangle->is_upper ? 0 : 1), columns);
        write_columns(triangle, row, 0, edge, triangle->is_upper);
        write_columns(triangle, row, edge, columns, !triangle->is_upper);
    }
}

static tutti_status_t run_triangle(tt_threads_t *threads, const void *arguments)
{
    const tt_triangle_t *triangle = arguments;
    const int last = triangle->out.rank - 1;
    job_t job = {triangle, tt_line_count(&triangle->out, last),
                 tt_lines_per_piece(triangle->out.shape[last], ELEMENTS)};
    tt_threads_run(threads, (size_t)((job.rows + job.per_piece - 1) / job.per_piece),
                   triangle_piece, &job);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_triangle_t, out.data),
                                        TT_POINTER(tt_triangle_t, x.data), TT_NO_POINTER};

TT_LAUNCHER(tt_triangle, "triangle", tt_triangle_t, run_triangle, pointers)
