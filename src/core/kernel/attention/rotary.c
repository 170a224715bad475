/* Rotary embeddings: one row [D] after the other, 512 pairs at a time through buffers of f32 (f64
 * of f64). Cost: reads and writes every element once. */
#include "core/kernel/attention/rotary.h"

#include <math.h>
#include <string.h>

#include "core/kernel/kernels.h"
#include "core/kernel/load.h"

enum { PAIRS = 512, PIECE = 16384 };

/* ---- the table ------------------------------------------------------------------------------- */

static tutti_status_t run_table(tt_threads_t *threads, const void *arguments)
{
    const tt_rotary_table_t *table = arguments;
    const int64_t pairs = table->pairs;
    (void)threads;
    for (int64_t t = 0; t < table->positions; t++) {
        for (int64_t i = 0; i < pairs; i++) {
            const double angle =
                ((double)table->first + (double)t) * pow(table->base, -(double)i / (double)pairs);
            table->cosine[t * pairs + i] = (float)cos(angle);
            table->sine[t * pairs + i] = (float)sin(angle);
        }
    }
    return TUTTI_OK;
}

static const tt_pointer_t table_pointers[] = {TT_POINTER(tt_rotary_table_t, cosine),
                                              TT_POINTER(tt_rotary_table_t, sine), TT_NO_POINTER};
TT_LAUNCHER(tt_rotary_table, "rotary_table", tt_rotary_table_t, run_table, table_pointers)

/* ---- turning --------------------------------------------------------------------------------- */

typedef struct {
    tt_rotary_t rotary;
    tt_strided_t out, x;
} turn_t;

typedef struct {
    const tt_rotary_t *rotary;
    const tt_strided_t *out, *x;
    tt_walk_t outer;                  /* all dims but the last; operand 0: out, 1: x */
    size_t width, bytes, class_bytes; /* of an element, and of what it is turned as */
    int64_t positions, group;
    tt_convert_fn_t load, store;
    tt_rotate_fn_t rotate;
} rotary_job_t;

static void *at(const tt_strided_t *x, int64_t offset)
{
    return (char *)x->data + offset * (int64_t)tutti_dtype_bytes(x->dtype);
}

/* One row [D] of out and x, and its angles. */
typedef struct {
    char *to;
    const char *from;
    int64_t to_stride, from_stride;
    const float *cosine, *sine;
} line_t;

/* Pairs first … first + n - 1, which are two runs of n elements. */
static void rotate_pairs(const rotary_job_t *job, const line_t *line, size_t first, size_t n)
{
    const size_t bytes = job->bytes;
    const bool mixed = job->rotary->interleaved;
    const size_t runs[2] = {mixed ? 2 * first : first,
                            mixed ? 2 * first + n : first + job->width / 2};
    double x[2 * PAIRS], y[2 * PAIRS], raw[PAIRS]; /* room for either class */
    const float *sine = line->sine + first;
    float minus[PAIRS];
    for (size_t i = 0; i < n; i++) {
        minus[i] = -sine[i];
    }
    for (size_t run = 0; run < 2; run++) {
        const int64_t at = (int64_t)(runs[run] * bytes) * line->from_stride;
        tt_gather_bytes(raw, line->from + at, line->from_stride, n, bytes);
        job->load((char *)x + run * n * job->class_bytes, raw, n);
    }
    const bool inverse = job->rotary->inverse;
    job->rotate(y, x, n,
                &(tt_turn_t){line->cosine + first, inverse ? minus : sine, inverse ? sine : minus});
    for (size_t run = 0; run < 2; run++) {
        const int64_t at = (int64_t)(runs[run] * bytes) * line->to_stride;
        job->store(raw, (char *)y + run * n * job->class_bytes, n);
        tt_scatter_bytes(line->to + at, line->to_stride, raw, n, bytes);
    }
}

static void rotate_row(const rotary_job_t *job, int64_t row)
{
    const size_t pairs = job->width / 2, angle = (size_t)(row % job->positions) * pairs;
    const int last = job->x->rank - 1;
    const line_t line = {
        .to = at(job->out, tt_cursor_at(&job->outer, 0, row).offset),
        .from = at(job->x, tt_cursor_at(&job->outer, 1, row).offset),
        .to_stride = job->out->strides[last],
        .from_stride = job->x->strides[last],
        .cosine = job->rotary->cosine + angle,
        .sine = job->rotary->sine + angle,
    };
    for (size_t first = 0; first < pairs; first += PAIRS) {
        rotate_pairs(job, &line, first, pairs - first < PAIRS ? pairs - first : PAIRS);
    }
}

static void rotary_piece(void *arg, size_t piece)
{
    const rotary_job_t *job = arg;
    const int64_t first = (int64_t)piece * job->group;
    for (int64_t row = first; row < first + job->group && row < job->outer.total; row++) {
        rotate_row(job, row);
    }
}

static tutti_status_t run_turn(tt_threads_t *threads, const void *arguments)
{
    const turn_t *turn = arguments;
    const tt_rotary_t *rotary = &turn->rotary;
    const tt_strided_t *out = &turn->out, *x = &turn->x;
    const int last = x->rank - 1;
    const tt_class_t class = tt_class_of(x->dtype);
    const tt_rotary_ops_t *ops = tt_kernels_of(x->dtype)->rotary;
    rotary_job_t job = {.rotary = rotary,
                        .out = out,
                        .x = x,
                        .width = (size_t)x->shape[last],
                        .bytes = tutti_dtype_bytes(x->dtype),
                        .class_bytes = tutti_dtype_bytes(tt_class_dtype(class)),
                        .positions = x->shape[last - 1],
                        .group = PIECE / (x->shape[last] + 1) + 1,
                        .load = tt_convert_to(class, x->dtype),
                        .store = tt_convert_from(class, x->dtype),
                        .rotate = rotary->interleaved ? ops->rotate_interleaved : ops->rotate};
    tt_strided_t outer_out = *out, outer_x = *x;
    outer_out.rank = outer_x.rank = last;
    const tt_strided_t *operands[2] = {&outer_out, &outer_x};
    tt_walk_init(&job.outer, operands, 2, false);
    tt_threads_run(threads, (size_t)((job.outer.total + job.group - 1) / job.group), rotary_piece,
                   &job);
    return TUTTI_OK;
}

static const tt_pointer_t turn_pointers[] = {
    TT_POINTER(turn_t, rotary.cosine), TT_POINTER(turn_t, rotary.sine),
    TT_POINTER(turn_t, out.data), TT_POINTER(turn_t, x.data), TT_NO_POINTER};
static const tt_kernel_t turn_kernel = TT_KERNEL("rotary", turn_t, run_turn, turn_pointers);

tutti_status_t tt_rotary(tt_exec_t *exec, const tt_rotary_t *rotary, const tt_strided_t *out,
                         const tt_strided_t *x)
{
    TT_ASSERT(x->rank >= 2 && x->shape[x->rank - 1] % 2 == 0);
    return tt_launch(exec, &turn_kernel, &(turn_t){*rotary, *out, *x});
}
