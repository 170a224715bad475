/* The gradient of a convolution's weights. A thread takes a group and a run of images at a time:
 *
 *     for each block, of some images or of some rows of one:
 *         planes of the images (conv_window.h)
 *         for each 32 channels of dy: a panel of positions × channels, transposed from dy
 *             for each 14 taps: a tile (conv_ops.h) over the positions, added to a dwᵀ
 *             [taps, 32] of the run's own
 *
 * At last those of the runs are added in their order, and transposed. The shapes alone cut runs and
 * blocks. Cost: 2 · batch · out · in · kernel · positions operations; scratch: planes and a panel a
 * thread, and a dw for each of at most 16 runs, 8 MiB unless one is larger. */
#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_f64.h"
#include "core/kernel/conv/conv_impl.h"
#include "core/kernel/conv/conv_ops.h"
#include "core/kernel/conv/conv_winograd.h"
#include "core/kernel/matmul/gemm.h"

enum { RUNS_MAX = 16, RUNS_BYTES_MAX = 8 << 20, BLOCK_POSITIONS = 512, RUN_POSITIONS = 1024 };

typedef struct {
    const tt_conv_t *conv;
    tt_window_t window;
    const tt_gemm_ops_t *gemm;
    const tt_conv_ops_t *ops;
    const char *x, *dy;
    char *dw;
    bool is_image;        /* x is its planes */
    int64_t taps, blocks; /* blocks: of columns */
    int64_t runs, images_per_run;
    int64_t shares, blocks_per_share; /* of a run */
    int64_t images_per_block, rows_per_block;
    int64_t row_steps; /* steps of a row of positions; a pair may be half */
    int64_t *tap_at, *step_at;
    float *sums; /* [groups, runs, blocks, taps, columns] */
    char *slots; /* scratch of each thread: planes and a panel */
    size_t slot_bytes, panel_at;
    atomic_size_t next;
} weight_job_t;

static int64_t sums_of_run(const weight_job_t *j)
{
    return j->blocks * j->taps * j->ops->columns;
}

/* ---- the lists ------------------------------------------------------------------------------- */

static void list_taps(const weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    int64_t *to = j->tap_at;
    for (int64_t channel = 0; channel < c->in; channel++) {
        for (int64_t a = 0; a < c->kernel[0]; a++) {
            for (int64_t b = 0; b < c->kernel[1]; b++) {
                *to++ = channel * tt_window_unit_bytes(&j->window) +
                        tt_window_at(&j->window, a * c->dilation[0], b * c->dilation[1]);
            }
        }
    }
}

/* Where position (row, column) of y begins to see its image. */
static int64_t position_at(const weight_job_t *j, int64_t row, int64_t column)
{
    return tt_window_at(&j->window, row * j->window.stride[0], column * j->window.stride[1]);
}

static void list_steps(const weight_job_t *j)
{
    int64_t *to = j->step_at;
    for (int64_t image = 0; image < j->images_per_block; image++) {
        for (int64_t row = 0; row < j->rows_per_block; row++) {
            for (int64_t step = 0; step < j->row_steps; step++) {
                *to++ = image * tt_window_bytes(&j->window) +
                        position_at(j, row, step * j->gemm->k_per_step);
            }
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Some images, or some rows of positions of one, and where they are added. */
typedef struct {
    const weight_job_t *j;
    char *slot;
    const char *planes;
    float *panel, *sums;
    int64_t group, image, images, row, rows;
    int64_t block, blocks; /* of the share */
    bool is_first;         /* nothing is in sums yet */
} weight_block_t;

/* Row after row where a row's last pair is half, else at once. */
static void pack_image(const weight_block_t *b, int64_t image, int64_t block, float *to)
{
    const weight_job_t *j = b->j;
    const tt_conv_t *c = j->conv;
    const int64_t columns = j->ops->columns, width = c->out_size[1];
    const int64_t positions = c->out_size[0] * width;
    const bool is_even = width % j->gemm->k_per_step == 0;
    const int64_t rows = is_even ? 1 : b->rows, count = is_even ? b->rows * width : width;
    const int64_t channel = (image * c->groups + b->group) * c->out + block * columns;
    const char *from =
        j->dy + (channel * positions + b->row * width) * (int64_t)j->window.element_bytes;
    for (int64_t row = 0; row < rows; row++) {
        j->gemm->pack_b(from, positions, true, count,
                        tt_conv_least(columns, c->out - block * columns), to);
        from += width * (int64_t)j->window.element_bytes;
        to += j->row_steps * columns;
    }
}

static void multiply_taps(const weight_block_t *b, int64_t block)
{
    const weight_job_t *j = b->j;
    const int64_t columns = j->ops->columns;
    tt_conv_tile_t t = {
        .is_narrow = 2 * (j->conv->out - block * columns) <= columns,
        .is_added = !b->is_first,
        .step_at = j->step_at,
        .steps = b->images * b->rows * j->row_steps,
        .planes = b->planes + position_at(j, b->row, 0),
        .b = b->panel,
    };
    for (int64_t tap = 0; tap < j->taps; tap += t.rows) {
        t.rows = (int)tt_conv_least(j->ops->rows, j->taps - tap);
        t.row_at = j->tap_at + tap;
        t.tile = b->sums + (block * j->taps + tap) * columns;
        (j->window.element_bytes == 2 ? j->ops->multiply_bf16 : j->ops->multiply_f32)(&t);
    }
}

static void add_block(weight_block_t *b)
{
    const weight_job_t *j = b->j;
    const int64_t steps = b->rows * j->row_steps * j->ops->columns;
    for (int64_t block = b->block; block < b->block + b->blocks; block++) {
        for (int64_t i = 0; i < b->images; i++) {
            pack_image(b, b->image + i, block, b->panel + i * steps);
        }
        multiply_taps(b, block);
    }
    b->is_first = false;
}

static void arrange_images(weight_block_t *b)
{
    const weight_job_t *j = b->j;
    const tt_conv_t *c = j->conv;
    const int64_t bytes = c->in * c->size[0] * c->size[1] * (int64_t)j->window.element_bytes;
    const char *x = j->x + (b->image * c->groups + b->group) * bytes;
    b->planes = j->is_image ? x : b->slot;
    for (int64_t i = 0; i < b->images && !j->is_image; i++) {
        tt_window_arrange(&j->window, x + i * c->groups * bytes,
                          b->slot + i * tt_window_bytes(&j->window));
    }
}

static void add_run(weight_block_t *b, int64_t run)
{
    const weight_job_t *j = b->j;
    const tt_conv_t *c = j->conv;
    const int64_t first = run * j->images_per_run;
    const int64_t end = tt_conv_least(first + j->images_per_run, c->batch);
    b->sums = j->sums + (b->group * j->runs + run) * sums_of_run(j);
    b->is_first = true;
    for (b->image = first; b->image < end; b->image += b->images) {
        b->images = tt_conv_least(j->images_per_block, end - b->image);
        arrange_images(b);
        for (b->row = 0; b->row < c->out_size[0]; b->row += b->rows) {
            b->rows = tt_conv_least(j->rows_per_block, c->out_size[0] - b->row);
            add_block(b);
        }
    }
}

static void add_runs_piece(void *arg, size_t piece)
{
    weight_job_t *j = arg;
    char *slot = j->slots + piece * j->slot_bytes;
    weight_block_t block = {.j = j, .slot = slot, .panel = (float *)(void *)(slot + j->panel_at)};
    memset(slot, 0, j->panel_at);
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (next >= j->conv->groups * j->runs * j->shares) {
            return;
        }
        block.block = next % j->shares * j->blocks_per_share;
        block.blocks = tt_conv_least(j->blocks_per_share, j->blocks - block.block);
        block.group = next / j->shares / j->runs;
        add_run(&block, next / j->shares % j->runs);
    }
}

/* Some taps of a block of columns: the runs added to the first, then to where dw has them. */
static void finish_piece(void *arg, size_t piece)
{
    const weight_job_t *j = arg;
    const int64_t parts = tt_conv_pieces(j->taps, TT_CONV_STORED_MAX), columns = j->ops->columns;
    const int64_t group = (int64_t)piece / parts / j->blocks;
    const int64_t block = (int64_t)piece / parts % j->blocks;
    const int64_t tap = (int64_t)piece % parts * TT_CONV_STORED_MAX;
    const int64_t taps = tt_conv_least(TT_CONV_STORED_MAX, j->taps - tap);
    float *sums = j->sums + group * j->runs * sums_of_run(j) + (block * j->taps + tap) * columns;
    for (int64_t run = 1; run < j->runs; run++) {
        const float *more = sums + run * sums_of_run(j);
        for (int64_t i = 0; i < taps * columns; i++) {
            sums[i] += more[i];
        }
    }
    const int64_t channel = group * j->conv->out + block * columns;
    j->ops->store(&(tt_conv_store_t){
        .rows = (int)taps,
        .columns = (int)tt_conv_least(columns, j->conv->out - block * columns),
        .tile = sums,
        .dtype = j->conv->out_dtype,
        .out = j->dw + (channel * j->taps + tap) * (int64_t)tutti_dtype_bytes(j->conv->out_dtype),
        .step = 1,
        .ld = j->taps,
    });
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* As many runs as there is room for, each of as many images as the others; enough of them that its
 * sums cost little beside what they are sums of. */
static void cut_runs(weight_job_t *j)
{
    const int64_t bytes = j->conv->groups * j->taps * j->conv->out * 4;
    const int64_t positions = j->conv->out_size[0] * j->conv->out_size[1];
    const int64_t most = tt_conv_least(RUNS_MAX, j->conv->batch * positions / RUN_POSITIONS);
    const int64_t runs = tt_conv_least(RUNS_BYTES_MAX / bytes, most);
    j->images_per_run = tt_conv_pieces(j->conv->batch, runs < 1 ? 1 : runs);
    j->runs = tt_conv_pieces(j->conv->batch, j->images_per_run);
}

/* Blocks of about BLOCK_POSITIONS positions, as large as each other. */
static void cut_blocks(weight_job_t *j)
{
    const int64_t height = j->conv->out_size[0], positions = height * j->conv->out_size[1];
    const int64_t parts = tt_conv_least(tt_conv_pieces(positions, BLOCK_POSITIONS), height);
    const int64_t images = positions < BLOCK_POSITIONS ? BLOCK_POSITIONS / positions : 1;
    j->images_per_block =
        tt_conv_pieces(j->images_per_run, tt_conv_pieces(j->images_per_run, images));
    j->rows_per_block = tt_conv_pieces(height, parts);
}

/* Where runs are fewer than threads, some threads share one: each has some blocks of columns. */
static void cut_shares(weight_job_t *j, int workers)
{
    const int64_t shares = tt_conv_pieces(workers, j->conv->groups * j->runs);
    j->blocks_per_share = tt_conv_pieces(j->blocks, tt_conv_least(shares, j->blocks));
    j->shares = tt_conv_pieces(j->blocks, j->blocks_per_share);
}

static void plan_slot(weight_job_t *j)
{
    const int64_t steps = j->images_per_block * j->rows_per_block * j->row_steps;
    size_t bytes = 0; /* a half pair reads an element behind the planes */
    const int64_t planes = j->is_image ? 0 : j->images_per_block * tt_window_bytes(&j->window);
    tt_conv_reserve(&bytes, planes + TT_CONV_LINE);
    j->panel_at = tt_conv_reserve(&bytes, steps * j->ops->columns * 4);
    j->slot_bytes = bytes;
}

static void lay_out(weight_job_t *j, int64_t workers, char *block, size_t *bytes)
{
    const int64_t steps = j->images_per_block * j->rows_per_block * j->row_steps;
    j->tap_at = tt_conv_part(block, bytes, j->taps * (int64_t)sizeof(int64_t));
    j->step_at = tt_conv_part(block, bytes, steps * (int64_t)sizeof(int64_t));
    j->sums = tt_conv_part(block, bytes, j->conv->groups * j->runs * sums_of_run(j) * 4);
    j->slots = tt_conv_part(block, bytes, workers * (int64_t)j->slot_bytes);
}

static tutti_status_t run_job(tt_threads_t *threads, weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    cut_shares(j, tt_threads_count(threads));
    const int64_t workers =
        tt_conv_least(tt_threads_count(threads), c->groups * j->runs * j->shares);
    size_t bytes = 0;
    plan_slot(j);
    lay_out(j, workers, NULL, &bytes);
    char *block = tt_threads_borrow(threads, bytes);
    TT_TRY_ALLOC(block);
    bytes = 0;
    lay_out(j, workers, block, &bytes);
    list_taps(j);
    list_steps(j);
    tt_threads_run(threads, (size_t)workers, add_runs_piece, j);
    const int64_t parts = tt_conv_pieces(j->taps, TT_CONV_STORED_MAX);
    tt_threads_run(threads, (size_t)(c->groups * j->blocks * parts), finish_piece, j);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

tutti_status_t tt_conv_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                 const void *dy, void *dw)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_to_weight_f64(conv, x, dy, dw);
        return TUTTI_OK;
    }
    weight_job_t j = {.conv = conv,
                      .window = tt_conv_window(conv),
                      .gemm = tt_gemm_pair_ops(conv->dtype),
                      .ops = tt_kernels()->conv,
                      .x = x,
                      .dy = dy,
                      .dw = dw,
                      .taps = conv->in * conv->kernel[0] * conv->kernel[1]};
    if (conv->batch == 0) {
        memset(dw, 0,
               (size_t)(conv->groups * conv->out * j.taps) * tutti_dtype_bytes(conv->out_dtype));
        return TUTTI_OK;
    }
    if (tt_winograd_suits(conv)) {
        return tt_winograd_to_weight(threads, conv, x, dy, dw);
    }
    j.blocks = tt_conv_pieces(conv->out, j.ops->columns);
    j.is_image = tt_window_is_image(&j.window) && conv->groups == 1;
    j.row_steps = tt_conv_pieces(conv->out_size[1], j.gemm->k_per_step);
    cut_runs(&j);
    cut_blocks(&j);
    return run_job(threads, &j);
}
