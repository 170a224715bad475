/* The gradient of a convolution's weights. A thread takes a group and a run of images at a time:
 *
 *     for each block, of some images or of some rows of one:
 *         planes of the images (conv_window.h)
 *         for each 32 channels of dy: a panel of positions × channels, transposed from dy
 *             for each 14 taps: a tile (conv_ops.h) over the positions, added to a dwᵀ
 *             [taps, 32] of the run's own
 *
 * In AMX's tiles (conv_amx_simd.c) the taps of 16 channels are a tile's rows, one tap of the kernel
 * after the other, and positions lie as in the planes, with zeros of dy between two rows of them.
 *
 * At last those of the runs are added in their order, and transposed. The shapes alone cut runs and
 * blocks. Cost: 2 · batch · out · in · kernel · positions operations; scratch: planes and a panel a
 * thread, and a dw for each of at most 16 runs, 8 MiB unless one is larger. */
#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_depthwise.h"
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
    bool is_image;         /* x is its planes */
    bool is_in_tiles;      /* AMX's */
    int64_t tile_rows;     /* of these */
    tt_window_t dy_window; /* of these: dy with rows as long as those of x's planes */
    int64_t kernel;        /* taps of a channel */
    int64_t taps, blocks;  /* rows of sums; blocks of columns */
    int64_t runs, images_per_run;
    int64_t shares, blocks_per_share; /* of a run */
    int64_t images_per_block, rows_per_block;
    int64_t row_steps; /* steps of a row of positions; a pair may be half */
    int64_t *tap_at, *step_at, *panel_step_at;
    float *sums; /* [groups, runs, blocks, taps, columns] */
    char *slots; /* scratch of each thread: planes and a panel */
    size_t slot_bytes, dy_at, panel_at;
    atomic_size_t next;
} weight_job_t;

/* Steps of some rows of positions of an image. */
static int64_t steps_of(const weight_job_t *j, int64_t rows)
{
    return j->is_in_tiles ? tt_gemm_steps(j->gemm, rows * j->window.plane_size[1])
                          : rows * j->row_steps;
}

/* Floats of their panel. */
static int64_t panel_of(const weight_job_t *j, int64_t rows)
{
    return steps_of(j, rows) * j->gemm->floats_per_step * j->ops->columns;
}

static int64_t sums_of_run(const weight_job_t *j)
{
    return j->blocks * j->taps * j->ops->columns;
}

/* ---- the lists ------------------------------------------------------------------------------- */

static void list_taps(const weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    int64_t *to = j->tap_at;
    for (int64_t channel = 0; channel < (j->is_in_tiles ? 1 : c->in); channel++) {
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

/* The last pair of a row of odd length is half, and what stands behind the row is a neighbour's,
 * perhaps a NaN, which a zero of dy does not keep out. So the pair is the last two positions, of
 * which the first has been: that has the zero. A row of one position has no such pair. */
static bool has_late_pair(const weight_job_t *j)
{
    return j->gemm->k_per_step == 2 && j->conv->out_size[1] % 2 != 0 && j->conv->out_size[1] > 1;
}

static void list_steps(const weight_job_t *j)
{
    int64_t *to = j->step_at;
    const int64_t steps = steps_of(j, j->rows_per_block), bytes = 4 * j->gemm->floats_per_step;
    for (int64_t i = 0; i < (j->is_in_tiles ? j->images_per_block * steps : 0); i++) {
        j->step_at[i] = i / steps * tt_window_bytes(&j->window) + i % steps * bytes;
        j->panel_step_at[i] = i * bytes * j->ops->columns;
    }
    for (int64_t image = 0; image < (j->is_in_tiles ? 0 : j->images_per_block); image++) {
        for (int64_t row = 0; row < j->rows_per_block; row++) {
            for (int64_t step = 0; step < j->row_steps; step++) {
                const bool is_late = has_late_pair(j) && step + 1 == j->row_steps;
                *to++ = image * tt_window_bytes(&j->window) +
                        position_at(j, row, step * j->gemm->k_per_step - is_late);
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
    char *dy; /* planes of it */
    float *panel, *sums;
    int64_t group, image, images, row, rows;
    int64_t block, blocks; /* of the share */
    bool is_first;         /* nothing is in sums yet */
} weight_block_t;

/* The last step of a row: its position is the second of the pair, not the first. */
static void pack_late_pair(const weight_job_t *j, float *row)
{
    float *last = row + (j->row_steps - 1) * j->ops->columns;
    for (int64_t i = 0; i < j->ops->columns; i++) {
        uint32_t pair;
        memcpy(&pair, last + i, sizeof pair);
        pair <<= 16;
        memcpy(last + i, &pair, sizeof pair);
    }
}

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
        j->gemm->pack_b(from, positions, true, count, tt_min(columns, c->out - block * columns),
                        to);
        if (has_late_pair(j)) {
            pack_late_pair(j, to);
        }
        from += width * (int64_t)j->window.element_bytes;
        to += j->row_steps * columns;
    }
}

/* The same, of planes of dy. */
static void pack_planes(const weight_block_t *b, int64_t image, int64_t block, float *to)
{
    const weight_job_t *j = b->j;
    const int64_t columns = j->ops->columns, width = j->window.plane_size[1];
    const char *from = b->dy + image * tt_window_bytes(&j->dy_window) +
                       block * columns * tt_window_unit_bytes(&j->dy_window) +
                       tt_window_at(&j->dy_window, b->row, 0);
    j->gemm->pack_b(from, j->dy_window.plane_size[0] * width, true, b->rows * width,
                    tt_min(columns, j->conv->out - block * columns), to);
}

/* Two tiles of channels by one or two of columns at a time. */
static void multiply_tiles(const weight_block_t *b, int64_t block)
{
    const weight_job_t *j = b->j;
    const int64_t row = j->ops->columns * 4, in = j->taps / j->kernel;
    const int64_t unit = tt_window_unit_bytes(&j->window);
    tt_conv_product_t p = {
        .vectors = 2 * (j->conv->out - block * j->ops->columns) <= j->ops->columns ? 1 : 2,
        .steps = b->images * steps_of(j, b->rows),
        .a_at = j->step_at,
        .b_at = j->panel_step_at,
        .b = (const char *)b->panel,
        .a_block = j->tile_rows * unit,
        .a_pitch = unit,
        .b_pitch = row,
        .is_added = !b->is_first,
        .tile_block = j->tile_rows * row,
        .tile_pitch = row,
    };
    for (int64_t channel = 0; channel < in; channel += p.blocks * j->tile_rows) {
        p.blocks = channel + j->tile_rows < in ? 2 : 1;
        for (int64_t tap = 0; tap < j->kernel; tap++) {
            p.a = b->planes + position_at(j, b->row, 0) + j->tap_at[tap] + channel * unit;
            p.tile = (char *)b->sums + ((block * j->kernel + tap) * in + channel) * row;
            j->ops->multiply_amx(&p);
        }
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
        t.rows = (int)tt_min(j->ops->rows, j->taps - tap);
        t.row_at = j->tap_at + tap;
        t.tile = b->sums + (block * j->taps + tap) * columns;
        (j->window.element_bytes == 2 ? j->ops->multiply_bf16 : j->ops->multiply_f32)(&t);
    }
}

static void add_block(weight_block_t *b)
{
    const weight_job_t *j = b->j;
    for (int64_t block = b->block; block < b->block + b->blocks; block++) {
        for (int64_t i = 0; i < b->images; i++) {
            float *panel = b->panel + i * panel_of(j, b->rows);
            if (j->is_in_tiles) {
                pack_planes(b, i, block, panel);
            } else {
                pack_image(b, b->image + i, block, panel);
            }
        }
        (j->is_in_tiles ? multiply_tiles : multiply_taps)(b, block);
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
    for (int64_t i = 0; i < b->images && j->is_in_tiles; i++) {
        const int64_t image = (b->image + i) * c->groups + b->group;
        tt_window_arrange(&j->dy_window,
                          j->dy + image * c->out * c->out_size[0] * c->out_size[1] * 2,
                          b->dy + i * tt_window_bytes(&j->dy_window));
    }
}

static void add_run(weight_block_t *b, int64_t run)
{
    const weight_job_t *j = b->j;
    const tt_conv_t *c = j->conv;
    const int64_t first = run * j->images_per_run;
    const int64_t end = tt_min(first + j->images_per_run, c->batch);
    b->sums = j->sums + (b->group * j->runs + run) * sums_of_run(j);
    b->is_first = true;
    for (b->image = first; b->image < end; b->image += b->images) {
        b->images = tt_min(j->images_per_block, end - b->image);
        arrange_images(b);
        for (b->row = 0; b->row < c->out_size[0]; b->row += b->rows) {
            b->rows = tt_min(j->rows_per_block, c->out_size[0] - b->row);
            add_block(b);
        }
    }
}

static void add_runs_piece(void *arg, size_t piece)
{
    weight_job_t *j = arg;
    char *slot = j->slots + piece * j->slot_bytes;
    weight_block_t block = {.j = j,
                            .slot = slot,
                            .dy = slot + j->dy_at,
                            .panel = (float *)(void *)(slot + j->panel_at)};
    memset(slot, 0, j->panel_at);
    if (j->is_in_tiles) {
        j->ops->begin_amx((int)j->tile_rows, j->gemm->floats_per_step);
    }
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (next >= j->conv->groups * j->runs * j->shares) {
            break;
        }
        block.block = next % j->shares * j->blocks_per_share;
        block.blocks = tt_min(j->blocks_per_share, j->blocks - block.block);
        block.group = next / j->shares / j->runs;
        add_run(&block, next / j->shares % j->runs);
    }
    if (j->is_in_tiles) {
        j->ops->end_amx();
    }
}

/* Some rows of a block of columns: the runs added to the first, then to where dw has them. */
static void finish_piece(void *arg, size_t piece)
{
    const weight_job_t *j = arg;
    const tt_conv_t *c = j->conv;
    const int64_t outer = j->is_in_tiles ? j->kernel : 1, rows = j->taps / outer;
    const int64_t parts = tt_pieces_of(rows, TT_CONV_STORED_MAX), columns = j->ops->columns;
    const int64_t at = (int64_t)piece / parts, tap = at % outer;
    const int64_t block = at / outer % j->blocks, group = at / outer / j->blocks;
    const int64_t row = (int64_t)piece % parts * TT_CONV_STORED_MAX, all = c->in * j->kernel;
    const int64_t count = tt_min(TT_CONV_STORED_MAX, all / outer - row);
    float *sums =
        j->sums + group * j->runs * sums_of_run(j) + (block * j->taps + tap * rows + row) * columns;
    for (int64_t run = 1; run < j->runs; run++) {
        const float *more = sums + run * sums_of_run(j);
        for (int64_t i = 0; i < count * columns; i++) {
            sums[i] += more[i];
        }
    }
    const int64_t to = (group * c->out + block * columns) * all + tap + row * outer;
    j->ops->store(&(tt_conv_store_t){
        .rows = (int)count,
        .columns = (int)tt_min(columns, c->out - block * columns),
        .tile = sums,
        .dtype = c->out_dtype,
        .out = j->dw + to * (int64_t)tutti_dtype_bytes(c->out_dtype),
        .step = outer,
        .ld = all,
    });
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* As many runs as there is room for, each of as many images as the others; enough of them that its
 * sums cost little beside what they are sums of. */
static void cut_runs(weight_job_t *j)
{
    const int64_t bytes = j->conv->groups * j->taps * j->conv->out * 4;
    const int64_t positions = j->conv->out_size[0] * j->conv->out_size[1];
    const int64_t most = tt_min(RUNS_MAX, j->conv->batch * positions / RUN_POSITIONS);
    const int64_t runs = tt_min(RUNS_BYTES_MAX / bytes, most);
    j->images_per_run = tt_pieces_of(j->conv->batch, runs < 1 ? 1 : runs);
    j->runs = tt_pieces_of(j->conv->batch, j->images_per_run);
}

/* Blocks of about BLOCK_POSITIONS positions, as large as each other. */
static void cut_blocks(weight_job_t *j)
{
    const int64_t height = j->conv->out_size[0], positions = height * j->conv->out_size[1];
    const int64_t parts = tt_min(tt_pieces_of(positions, BLOCK_POSITIONS), height);
    const int64_t images = positions < BLOCK_POSITIONS ? BLOCK_POSITIONS / positions : 1;
    j->images_per_block = tt_pieces_of(j->images_per_run, tt_pieces_of(j->images_per_run, images));
    j->rows_per_block = tt_pieces_of(height, parts);
}

/* Where runs are fewer than threads, some threads share one: each has some blocks of columns. */
static void cut_shares(weight_job_t *j, int workers)
{
    const int64_t shares = tt_pieces_of(workers, j->conv->groups * j->runs);
    j->blocks_per_share = tt_pieces_of(j->blocks, tt_min(shares, j->blocks));
    j->shares = tt_pieces_of(j->blocks, j->blocks_per_share);
}

/* Tiles of channels as large as each other. A step may read behind the last positions: zeros, lest
 * it be somebody's NaN. */
static void plan_tiles(weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    tt_window_t *w = &j->window;
    const int64_t tiles = tt_pieces_of(c->in, TT_CONV_STORED_MAX);
    j->tile_rows = tt_pieces_of(c->in, tiles);
    j->taps = tiles * j->tile_rows * j->kernel;
    w->plane_size[0] += tt_pieces_of(j->gemm->k_per_step, w->plane_size[1]) + 1;
    j->dy_window = (tt_window_t){.channels = c->out,
                                 .size = {c->out_size[0], c->out_size[1]},
                                 .stride = {1, 1},
                                 .phases = {1, 1},
                                 .plane_size = {c->out_size[0], w->plane_size[1]},
                                 .element_bytes = 2};
}

static void plan_slot(weight_job_t *j)
{
    size_t bytes = 0; /* a half pair reads an element behind the planes */
    const int64_t planes = j->is_image ? 0 : j->images_per_block * tt_window_bytes(&j->window);
    tt_conv_reserve(&bytes, planes + TT_CONV_LINE);
    if (j->is_in_tiles) { /* rows of the last tile that are none */
        const int64_t more = j->taps / j->kernel - j->conv->in;
        tt_conv_reserve(&bytes, more * tt_window_unit_bytes(&j->window));
    }
    j->dy_at = tt_conv_reserve(
        &bytes, j->is_in_tiles ? j->images_per_block * tt_window_bytes(&j->dy_window) : 0);
    j->panel_at = tt_conv_reserve(&bytes, j->images_per_block * panel_of(j, j->rows_per_block) * 4);
    j->slot_bytes = bytes;
}

static void lay_out(weight_job_t *j, int64_t workers, char *block, size_t *bytes)
{
    const int64_t steps = j->images_per_block * steps_of(j, j->rows_per_block);
    j->tap_at = tt_conv_part(block, bytes, j->taps * (int64_t)sizeof(int64_t));
    j->step_at = tt_conv_part(block, bytes, steps * (int64_t)sizeof(int64_t));
    j->panel_step_at = tt_conv_part(block, bytes, steps * (int64_t)sizeof(int64_t));
    j->sums = tt_conv_part(block, bytes, j->conv->groups * j->runs * sums_of_run(j) * 4);
    j->slots = tt_conv_part(block, bytes, workers * (int64_t)j->slot_bytes);
}

static tutti_status_t run_job(tt_threads_t *threads, weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    cut_shares(j, tt_threads_count(threads));
    const int64_t workers = tt_min(tt_threads_count(threads), c->groups * j->runs * j->shares);
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
    const int64_t outer = j->is_in_tiles ? j->kernel : 1;
    const int64_t parts = outer * tt_pieces_of(j->taps / outer, TT_CONV_STORED_MAX);
    tt_threads_run(threads, (size_t)(c->groups * j->blocks * parts), finish_piece, j);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

tutti_status_t tt_planes_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                   const void *dy, void *dw)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_to_weight_f64(conv, x, dy, dw);
        return TUTTI_OK;
    }
    weight_job_t j = {.conv = conv,
                      .window = tt_conv_window(conv),
                      .gemm = tt_gemm_ops(conv->dtype),
                      .ops = tt_kernels()->conv,
                      .x = x,
                      .dy = dy,
                      .dw = dw,
                      .kernel = conv->kernel[0] * conv->kernel[1],
                      .taps = conv->in * conv->kernel[0] * conv->kernel[1]};
    if (conv->batch == 0) {
        memset(dw, 0,
               (size_t)(conv->groups * conv->out * j.taps) * tutti_dtype_bytes(conv->out_dtype));
        return TUTTI_OK;
    }
    if (tt_depthwise_suits(conv)) {
        return tt_depthwise_to_weight(threads, conv, x, dy, dw);
    }
    if (tt_winograd_suits(conv)) {
        return tt_winograd_to_weight(threads, conv, x, dy, dw);
    }
    j.blocks = tt_pieces_of(conv->out, j.ops->columns);
    j.is_image = tt_window_is_image(&j.window) && conv->groups == 1;
    j.row_steps = tt_pieces_of(conv->out_size[1], j.gemm->k_per_step);
    j.is_in_tiles = conv->dtype == TUTTI_BF16 && tt_isa_has_amx();
    if (j.is_in_tiles) {
        plan_tiles(&j);
    }
    cut_runs(&j);
    cut_blocks(&j);
    return run_job(threads, &j);
}
