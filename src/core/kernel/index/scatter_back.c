/* Line by line along the dimension, from the end: an element whose place is not marked yet is the
 * last one there. Marks of a line are taken away behind it, so that a thread needs as many as a
 * line is long. Cost: two passes over the index.
 */
#include "core/kernel/index/scatter_back.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/index/lines.h"

enum { PIECES = 16 };

typedef struct {
    const tt_scatter_back_t *back;
    int64_t lines, per_piece, length, size;
    uint8_t *marks; /* [pieces, size], 0 between lines */
} job_t;

/* Elements of one line; pointers are NULL where nothing is wanted. Steps are in elements. */
typedef struct {
    char *dx, *dsource;
    const char *g;
    const int64_t *index;
    int64_t dx_step, dsource_step, g_step, index_step, count;
    uint8_t *marks;
} line_t;

static inline __attribute__((always_inline)) void do_line(const line_t *l, int64_t bytes)
{
    for (int64_t i = l->count; i-- > 0;) {
        const int64_t place = l->index[i * l->index_step];
        if (l->dsource != NULL && l->marks[place] != 0) {
            memset(l->dsource + i * l->dsource_step * bytes, 0, (size_t)bytes);
        } else if (l->dsource != NULL) {
            memcpy(l->dsource + i * l->dsource_step * bytes, l->g + place * l->g_step * bytes,
                   (size_t)bytes);
        }
        if (l->dx != NULL) {
            memset(l->dx + place * l->dx_step * bytes, 0, (size_t)bytes);
        }
        l->marks[place] = 1;
    }
    for (int64_t i = 0; i < l->count; i++) {
        l->marks[l->index[i * l->index_step]] = 0;
    }
}

static char *line_of(const tt_strided_t *x, int dim, int64_t line)
{
    return x->data == NULL ? NULL : tt_line_data(x, dim, line);
}

static void do_piece(void *arg, size_t piece)
{
    const job_t *job = arg;
    const tt_scatter_back_t *b = job->back;
    const int64_t first = (int64_t)piece * job->per_piece;
    const size_t bytes = tutti_dtype_bytes(b->g.dtype);
    for (int64_t i = first; i < first + job->per_piece && i < job->lines; i++) {
        const line_t line = {.dx = line_of(&b->dx, b->dim, i),
                             .dsource = line_of(&b->dsource, b->dim, i),
                             .g = line_of(&b->g, b->dim, i),
                             .index = tt_line_data(&b->index, b->dim, i),
                             .dx_step = b->dx.strides[b->dim],
                             .dsource_step = b->dsource.strides[b->dim],
                             .g_step = b->g.strides[b->dim],
                             .index_step = b->index.strides[b->dim],
                             .count = job->length,
                             .marks = job->marks + (int64_t)piece * job->size};
        if (bytes == 4) {
            do_line(&line, 4);
        } else {
            do_line(&line, (int64_t)bytes);
        }
    }
}

static tutti_status_t run(tt_threads_t *threads, const void *arguments)
{
    const tt_scatter_back_t *back = arguments;
    job_t job = {.back = back,
                 .lines = tt_line_count(&back->index, back->dim),
                 .length = back->index.shape[back->dim],
                 .size = back->g.shape[back->dim]};
    const int64_t pieces = job.lines < PIECES ? job.lines : PIECES;
    if (pieces == 0 || job.length == 0) {
        return TUTTI_OK;
    }
    job.per_piece = (job.lines + pieces - 1) / pieces;
    job.marks = tt_threads_borrow(threads, (size_t)(pieces * job.size));
    TT_TRY_ALLOC(job.marks);
    memset(job.marks, 0, (size_t)(pieces * job.size));
    tt_threads_run(threads, (size_t)pieces, do_piece, &job);
    tt_threads_give_back(threads, job.marks);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_scatter_back_t, dx.data),
                                        TT_POINTER(tt_scatter_back_t, g.data),
                                        TT_POINTER(tt_scatter_back_t, dsource.data),
                                        TT_POINTER(tt_scatter_back_t, index.data), TT_NO_POINTER};

TT_LAUNCHER(tt_scatter_back, "scatter_along_backward", tt_scatter_back_t, run, pointers)
