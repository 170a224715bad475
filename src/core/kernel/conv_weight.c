/* The gradient of a convolution's weights. A thread takes a group and a run of images at a time:
 *
 *     planes of the image (conv_window.h)
 *     for each block of positions                           gemm.h's K block
 *         panels of B: positions × 32 channels of dy
 *         for each 14 taps: a panel of A, packed from the planes; its tiles are added to a dwᵀ
 *         [taps, channels] of the run's own
 *
 * At last those of the runs are added in their order, and transposed. The shapes alone cut the
 * runs. Cost: 2 · batch · out · in · kernel · positions operations; scratch: planes and panels a
 * thread, and a dw for each of at most 16 runs, 8 MiB unless one is larger. */
#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv_f64.h"
#include "core/kernel/conv_impl.h"
#include "core/kernel/conv_ops.h"
#include "core/kernel/convert.h"
#include "core/kernel/gemm.h"

enum { RUNS_MAX = 16, RUNS_BYTES_MAX = 8 << 20, CONVERT_BLOCK = 256 };

typedef struct {
    const tt_conv_t *conv;
    tt_window_t window;
    const tt_gemm_ops_t *gemm;
    const char *x, *dy;
    char *dw;
    int64_t taps, positions, positions_per_block;
    int64_t runs, images_per_run;
    int64_t *tap_list;
    float *sums; /* [groups, runs, taps, out] */
    char *slots; /* scratch of each thread */
    size_t slot_bytes, rows_at, panels_at, list_at;
    atomic_size_t next;
} weight_job_t;

/* Some positions of one image, and where they are added. */
typedef struct {
    const weight_job_t *j;
    const char *planes, *dy;
    float *rows, *panels;
    tt_window_run_t *list;
    int list_count;
    float *sums;
    int64_t position, count;
    bool is_first; /* nothing is in sums yet */
} weight_block_t;

static void multiply_taps(const weight_block_t *b, int64_t tap, int rows)
{
    _Alignas(64) float tile[TT_GEMM_ROWS_MAX * TT_GEMM_COLUMNS_MAX];
    const weight_job_t *j = b->j;
    const int64_t steps = tt_conv_pieces(b->count, j->gemm->k_per_step), out = j->conv->out;
    for (int64_t column = 0; column < out; column += j->gemm->columns) {
        float *sums = b->sums + tap * out + column;
        j->gemm->multiply(rows, steps, b->rows, false, b->panels + column * steps, tile);
        j->gemm->finish(&(tt_gemm_finish_t){
            .rows = rows,
            .columns = (int)tt_conv_least(j->gemm->columns, out - column),
            .tile = tile,
            .add = b->is_first ? NULL : sums,
            .add_ld = out,
            .dtype = TUTTI_F32,
            .out = sums,
            .ld = out,
        });
    }
}

static void add_block(weight_block_t *b)
{
    const weight_job_t *j = b->j;
    const bool is_f32 = j->conv->dtype == TUTTI_F32;
    b->list_count = tt_window_list_runs(&j->window, b->position, b->count, b->list);
    j->gemm->pack_b(b->dy + b->position * (int64_t)j->window.element_bytes, j->positions, true,
                    b->count, j->conv->out, b->panels);
    for (int64_t tap = 0; tap < j->taps; tap += j->gemm->rows) {
        const int64_t rows = tt_conv_least(j->gemm->rows, j->taps - tap);
        const tt_conv_panel_t panel = {b->planes, j->tap_list + tap, rows, b->list, b->list_count};
        if (is_f32) {
            tt_kernels()->conv->pack_rows_f32(&panel, b->rows);
        } else {
            tt_kernels()->conv->pack_rows_bf16(&panel, b->rows);
        }
        multiply_taps(b, tap, (int)rows);
    }
    b->is_first = false;
}

static void add_run(weight_block_t *b, int64_t group, int64_t run, char *planes)
{
    const weight_job_t *j = b->j;
    const tt_conv_t *c = j->conv;
    const int64_t bytes = (int64_t)j->window.element_bytes;
    const int64_t first = run * j->images_per_run;
    const int64_t end = tt_conv_least(first + j->images_per_run, c->batch);
    b->sums = j->sums + (group * j->runs + run) * j->taps * c->out;
    b->is_first = true;
    for (int64_t image = first; image < end; image++) {
        const int64_t plane = image * c->groups + group;
        tt_window_arrange(&j->window, j->x + plane * c->in * c->size[0] * c->size[1] * bytes,
                          planes);
        b->dy = j->dy + plane * c->out * j->positions * bytes;
        for (b->position = 0; b->position < j->positions; b->position += b->count) {
            b->count = tt_conv_least(j->positions_per_block, j->positions - b->position);
            add_block(b);
        }
    }
}

static void add_runs_piece(void *arg, size_t piece)
{
    weight_job_t *j = arg;
    char *slot = j->slots + piece * j->slot_bytes;
    weight_block_t block = {
        .j = j,
        .planes = slot,
        .rows = (float *)(void *)(slot + j->rows_at),
        .panels = (float *)(void *)(slot + j->panels_at),
        .list = (tt_window_run_t *)(void *)(slot + j->list_at),
    };
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (next >= j->conv->groups * j->runs) {
            return;
        }
        add_run(&block, next / j->runs, next % j->runs, slot);
    }
}

/* The runs of a group added to its first, some rows [taps, out] at a time. */
static void add_sums_piece(void *arg, size_t piece)
{
    const weight_job_t *j = arg;
    const int64_t rows = j->conv->groups * j->taps, row = (int64_t)piece % rows;
    const int64_t n = j->conv->out, stride = j->taps * n;
    float *sums = j->sums + row / j->taps * j->runs * stride + row % j->taps * n;
    for (int64_t run = 1; run < j->runs; run++) {
        const float *more = sums + run * stride;
        for (int64_t i = 0; i < n; i++) {
            sums[i] += more[i];
        }
    }
}

/* Row `piece` of dw [groups out, taps]. */
static void write_row_piece(void *arg, size_t piece)
{
    const weight_job_t *j = arg;
    const int64_t out = j->conv->out, group = (int64_t)piece / out;
    const float *from = j->sums + group * j->runs * j->taps * out + (int64_t)piece % out;
    const size_t bytes = tutti_dtype_bytes(j->conv->out_dtype);
    char *to = j->dw + piece * (size_t)j->taps * bytes;
    const tt_convert_fn_t convert = tt_convert_from(TT_CLASS_F32, j->conv->out_dtype);
    float row[CONVERT_BLOCK];
    for (int64_t tap = 0; tap < j->taps; tap += CONVERT_BLOCK) {
        const int64_t count = tt_conv_least(CONVERT_BLOCK, j->taps - tap);
        for (int64_t i = 0; i < count; i++) {
            row[i] = from[(tap + i) * out];
        }
        convert(to + (size_t)tap * bytes, row, (size_t)count);
    }
}

static void plan_slot(weight_job_t *j)
{
    size_t bytes = 0;
    const int64_t columns = j->gemm->columns;
    const int64_t width = tt_conv_pieces(j->conv->out, columns) * columns;
    const int64_t block = tt_conv_least(j->positions_per_block, j->positions);
    tt_conv_reserve(&bytes, tt_window_elements(&j->window) * (int64_t)j->window.element_bytes +
                                TT_CONV_SLACK);
    j->rows_at = tt_conv_reserve(&bytes, TT_GEMM_A_PANEL * 4 + TT_CONV_SLACK);
    j->panels_at = tt_conv_reserve(&bytes, width * TT_GEMM_STEPS * 4);
    j->list_at = tt_conv_reserve(&bytes, block * (int64_t)sizeof(tt_window_run_t));
    j->slot_bytes = bytes;
}

/* As many runs as there is room for, each of as many images as the others. */
static void cut_runs(weight_job_t *j)
{
    const int64_t bytes = j->conv->groups * j->taps * j->conv->out * 4;
    int64_t runs = RUNS_BYTES_MAX / bytes;
    runs = runs < 1 ? 1 : tt_conv_least(runs, RUNS_MAX);
    j->images_per_run = tt_conv_pieces(j->conv->batch, runs);
    j->runs = tt_conv_pieces(j->conv->batch, j->images_per_run);
}

static tutti_status_t run_job(tt_pool_t *pool, weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    const int64_t threads = tt_conv_least(tt_pool_threads(pool), c->groups * j->runs);
    size_t bytes = 0;
    plan_slot(j);
    const size_t taps_at = tt_conv_reserve(&bytes, j->taps * (int64_t)sizeof *j->tap_list);
    const size_t sums_at = tt_conv_reserve(&bytes, c->groups * j->runs * j->taps * c->out * 4);
    const size_t slots_at = tt_conv_reserve(&bytes, threads * (int64_t)j->slot_bytes);
    char *block = tt_pool_borrow(pool, bytes);
    TT_TRY_ALLOC(block);
    j->tap_list = (int64_t *)(void *)(block + taps_at);
    j->sums = (float *)(void *)(block + sums_at);
    j->slots = block + slots_at;
    tt_window_list_taps(&j->window, j->tap_list);
    tt_pool_run(pool, (size_t)threads, add_runs_piece, j);
    tt_pool_run(pool, (size_t)(c->groups * j->taps), add_sums_piece, j);
    tt_pool_run(pool, (size_t)(c->groups * c->out), write_row_piece, j);
    tt_pool_give_back(pool, block);
    return TUTTI_OK;
}

tutti_status_t tt_conv_to_weight(tt_pool_t *pool, const tt_conv_t *conv, const void *x,
                                 const void *dy, void *dw)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_to_weight_f64(conv, x, dy, dw);
        return TUTTI_OK;
    }
    weight_job_t j = {.conv = conv,
                      .window = tt_conv_window(conv),
                      .gemm = tt_gemm_ops(conv->dtype),
                      .x = x,
                      .dy = dy,
                      .dw = dw,
                      .positions = conv->out_size[0] * conv->out_size[1]};
    j.taps = tt_window_taps(&j.window);
    j.positions_per_block = (int64_t)TT_GEMM_STEPS * j.gemm->k_per_step;
    if (conv->batch == 0) {
        memset(dw, 0,
               (size_t)(conv->groups * conv->out * j.taps) * tutti_dtype_bytes(conv->out_dtype));
        return TUTTI_OK;
    }
    cut_runs(&j);
    return run_job(pool, &j);
}
