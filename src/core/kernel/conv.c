/* Convolutions as products, y and dx, image by image, whose panels are packed straight from the
 * image.
 *
 *     a thread takes an image and a group at a time:
 *         planes of the image (conv_window.h)                   in the L2 cache
 *         for each 128 positions, for each block of taps        gemm.h's K block
 *             panels of B: taps × 32 positions
 *             for each tile: rows of the weights × panel, written where y is
 *
 * dx is the correlation of dy, spread by the stride, with the mirrored weights. The bias is one
 * more tap, which sees a plane of ones. Cost: 2 · batch · out · in · kernel · positions operations,
 * dx times the stride's area; scratch: planes and 256 KiB of panels a thread, and the weights.
 */
#include "core/kernel/conv.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv_f64.h"
#include "core/kernel/conv_impl.h"
#include "core/kernel/conv_ops.h"
#include "core/kernel/gemm.h"
#include "core/kernel/half.h"

enum { PANELS = 4 };

tutti_dtype_t tt_conv_dtype(tutti_dtype_t dtype)
{
    const bool is_direct =
        dtype == TUTTI_F64 || (dtype == TUTTI_BF16 && tt_gemm_ops(dtype) != NULL);
    return is_direct ? dtype : TUTTI_F32;
}

typedef struct {
    tt_window_t window;
    const tt_gemm_ops_t *gemm;
    tutti_dtype_t dtype, out_dtype;
    int64_t images, groups, rows; /* images: batch × groups; rows: channels of a group's result */
    int64_t taps, padded_taps;    /* with the ones of the bias; and with a zero to make pairs */
    int64_t taps_per_block, blocks, positions;
    const char *image, *weight, *bias;
    bool mirrored; /* weights [window channels, rows, kernel], to be read backwards */
    char *out;
    float *weights; /* [groups, blocks, rows] rows of TT_GEMM_STRIDE */
    int64_t *tap_list;
    char *slots; /* scratch of each thread */
    size_t slot_bytes, panels_at, sums_at;
    atomic_size_t next;
} correlation_t;

static int64_t element_bytes(const correlation_t *c)
{
    return (int64_t)c->window.element_bytes;
}

/* Where in `weight` a tap of a row is. */
static int64_t weight_index(const correlation_t *c, int64_t group, int64_t row, int64_t tap)
{
    const int64_t kernel = c->window.kernel[0] * c->window.kernel[1];
    if (!c->mirrored) {
        return (group * c->rows + row) * c->window.channels * kernel + tap;
    }
    const int64_t channel = group * c->window.channels + tap / kernel;
    return (channel * c->rows + row) * kernel + kernel - 1 - tap % kernel;
}

static void put_weight(const correlation_t *c, int64_t group, int64_t row, int64_t tap, char *to)
{
    const int64_t bytes = element_bytes(c);
    if (tap < tt_window_taps(&c->window)) {
        memcpy(to, c->weight + weight_index(c, group, row, tap) * bytes, (size_t)bytes);
    } else if (tap < c->taps) {
        memcpy(to, c->bias + (group * c->rows + row) * bytes, (size_t)bytes);
    } else {
        memset(to, 0, (size_t)bytes);
    }
}

static void put_weights_piece(void *arg, size_t piece)
{
    const correlation_t *c = arg;
    const int64_t group = (int64_t)piece / c->rows, row = (int64_t)piece % c->rows;
    for (int64_t block = 0; block < c->blocks; block++) {
        const int64_t first = block * c->taps_per_block;
        const int64_t end = tt_conv_least(first + c->taps_per_block, c->padded_taps);
        char *to =
            (char *)(c->weights + ((group * c->blocks + block) * c->rows + row) * TT_GEMM_STRIDE);
        for (int64_t tap = first; tap < end; tap++, to += element_bytes(c)) {
            put_weight(c, group, row, tap, to);
        }
    }
}

/* Behind the planes of the image one of ones and one of zeros, for the last taps. */
static void fill_constants(const correlation_t *c, char *planes)
{
    const float one = 1;
    const uint16_t half = tt_bf16_from_f32(1);
    char *to = planes + tt_window_elements(&c->window) * element_bytes(c);
    for (int64_t i = 0; i < c->window.plane; i++, to += element_bytes(c)) {
        memcpy(to, element_bytes(c) == 4 ? (const void *)&one : &half, c->window.element_bytes);
    }
    memset(to, 0, (size_t)(c->window.plane * element_bytes(c)));
}

static void list_taps(const correlation_t *c)
{
    const int64_t elements = tt_window_elements(&c->window), taps = tt_window_taps(&c->window);
    tt_window_list_taps(&c->window, c->tap_list);
    for (int64_t tap = taps; tap < c->padded_taps; tap++) {
        c->tap_list[tap] = tap < c->taps ? elements : elements + c->window.plane;
    }
}

/* Some positions of one image, and some of its taps. */
typedef struct {
    const correlation_t *c;
    const char *planes;
    float *panels, *sums;
    int64_t image, position, width, tap, tap_count;
} block_t;

static int64_t steps_of(const block_t *b)
{
    return tt_conv_pieces(b->tap_count, b->c->gemm->k_per_step);
}

static void pack_panels(const block_t *b)
{
    const correlation_t *c = b->c;
    const int columns = c->gemm->columns;
    tt_window_run_t runs[TT_GEMM_COLUMNS_MAX];
    for (int64_t column = 0; column < b->width; column += columns) {
        const tt_conv_panel_t panel = {
            .planes = b->planes,
            .taps = c->tap_list + b->tap,
            .tap_count = b->tap_count,
            .runs = runs,
            .run_count = tt_window_list_runs(&c->window, b->position + column,
                                             tt_conv_least(columns, b->width - column), runs),
        };
        float *to = b->panels + column * steps_of(b);
        if (c->dtype == TUTTI_F32) {
            tt_kernels()->conv->pack_taps_f32(&panel, columns, to);
        } else {
            tt_kernels()->conv->pack_taps_bf16(&panel, columns, to);
        }
    }
}

/* Where the tile of (row, column) goes, and what is there already. */
static void finish_tile(const block_t *b, int64_t row, int64_t column, tt_gemm_finish_t *f)
{
    const correlation_t *c = b->c;
    float *sums = b->sums + row * PANELS * c->gemm->columns + column;
    f->columns = (int)tt_conv_least(c->gemm->columns, b->width - column);
    f->add = b->tap > 0 ? sums : NULL;
    f->add_ld = (int64_t)PANELS * c->gemm->columns;
    if (b->tap + b->tap_count < c->padded_taps) {
        f->out = sums;
        f->ld = f->add_ld;
        f->dtype = TUTTI_F32;
    } else {
        const int64_t at = (b->image * c->rows + row) * c->positions + b->position + column;
        f->out = c->out + at * (int64_t)tutti_dtype_bytes(c->out_dtype);
        f->ld = c->positions;
        f->dtype = c->out_dtype;
    }
    c->gemm->finish(f);
}

static void multiply_block(const block_t *b)
{
    _Alignas(64) float tile[TT_GEMM_ROWS_MAX * TT_GEMM_COLUMNS_MAX];
    const correlation_t *c = b->c;
    const int64_t at = b->image % c->groups * c->blocks + b->tap / c->taps_per_block;
    const float *weights = c->weights + at * c->rows * TT_GEMM_STRIDE;
    for (int64_t row = 0; row < c->rows; row += c->gemm->rows) {
        tt_gemm_finish_t finish = {.rows = (int)tt_conv_least(c->gemm->rows, c->rows - row),
                                   .tile = tile};
        for (int64_t column = 0; column < b->width; column += c->gemm->columns) {
            c->gemm->multiply(finish.rows, steps_of(b), weights + row * TT_GEMM_STRIDE, false,
                              b->panels + column * steps_of(b), tile);
            finish_tile(b, row, column, &finish);
        }
    }
}

static void correlate_image(block_t *b)
{
    const correlation_t *c = b->c;
    const int64_t stride = (int64_t)PANELS * c->gemm->columns;
    for (b->position = 0; b->position < c->positions; b->position += stride) {
        b->width = tt_conv_least(stride, c->positions - b->position);
        for (b->tap = 0; b->tap < c->padded_taps; b->tap += c->taps_per_block) {
            b->tap_count = tt_conv_least(c->taps_per_block, c->padded_taps - b->tap);
            pack_panels(b);
            multiply_block(b);
        }
    }
}

static void correlate_piece(void *arg, size_t piece)
{
    correlation_t *c = arg;
    char *slot = c->slots + piece * c->slot_bytes;
    const int64_t image_bytes =
        c->window.channels * c->window.size[0] * c->window.size[1] * element_bytes(c);
    block_t block = {.c = c,
                     .planes = slot,
                     .panels = (float *)(void *)(slot + c->panels_at),
                     .sums = (float *)(void *)(slot + c->sums_at)};
    fill_constants(c, slot);
    for (;;) {
        block.image = (int64_t)atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (block.image >= c->images) {
            return;
        }
        tt_window_arrange(&c->window, c->image + block.image * image_bytes, slot);
        correlate_image(&block);
    }
}

static void plan_slot(correlation_t *c)
{
    size_t bytes = 0;
    const int64_t planes = tt_window_elements(&c->window) + 2 * c->window.plane;
    const int64_t width = (int64_t)PANELS * c->gemm->columns;
    const int64_t steps =
        tt_conv_least(TT_GEMM_STEPS, tt_conv_pieces(c->padded_taps, c->gemm->k_per_step));
    tt_conv_reserve(&bytes, planes * element_bytes(c) + TT_CONV_SLACK);
    c->panels_at = tt_conv_reserve(&bytes, width * steps * 4 + TT_CONV_SLACK);
    c->sums_at = tt_conv_reserve(&bytes, c->blocks > 1 ? c->rows * width * 4 : 0);
    c->slot_bytes = bytes;
}

static tutti_status_t correlate(tt_pool_t *pool, correlation_t *c)
{
    const int64_t threads = tt_conv_least(tt_pool_threads(pool), c->images);
    size_t bytes = 0;
    c->window.element_bytes = tutti_dtype_bytes(c->dtype);
    tt_window_init(&c->window);
    c->gemm = tt_gemm_ops(c->dtype);
    c->positions = c->window.out_size[0] * c->window.out_size[1];
    c->taps = tt_window_taps(&c->window) + (c->bias != NULL);
    c->padded_taps = tt_conv_pieces(c->taps, c->gemm->k_per_step) * c->gemm->k_per_step;
    c->taps_per_block = (int64_t)TT_GEMM_STEPS * c->gemm->k_per_step;
    c->blocks = tt_conv_pieces(c->padded_taps, c->taps_per_block);
    plan_slot(c);
    const size_t taps_at = tt_conv_reserve(&bytes, c->padded_taps * (int64_t)sizeof *c->tap_list);
    const size_t weights_at =
        tt_conv_reserve(&bytes, c->groups * c->blocks * c->rows * TT_GEMM_STRIDE * 4);
    const size_t slots_at = tt_conv_reserve(&bytes, threads * (int64_t)c->slot_bytes);
    char *block = tt_pool_borrow(pool, bytes);
    TT_TRY_ALLOC(block);
    c->tap_list = (int64_t *)(void *)(block + taps_at);
    c->weights = (float *)(void *)(block + weights_at);
    c->slots = block + slots_at;
    list_taps(c);
    tt_pool_run(pool, (size_t)(c->groups * c->rows), put_weights_piece, c);
    tt_pool_run(pool, (size_t)threads, correlate_piece, c);
    tt_pool_give_back(pool, block);
    return TUTTI_OK;
}

tt_window_t tt_conv_window(const tt_conv_t *conv)
{
    tt_window_t w = {.channels = conv->in, .element_bytes = tutti_dtype_bytes(conv->dtype)};
    for (int i = 0; i < 2; i++) {
        w.size[i] = conv->size[i];
        w.spread[i] = 1;
        w.before[i] = conv->padding[i];
        w.kernel[i] = conv->kernel[i];
        w.stride[i] = conv->stride[i];
        w.dilation[i] = conv->dilation[i];
        w.out_size[i] = conv->out_size[i];
    }
    tt_window_init(&w);
    return w;
}

tutti_status_t tt_conv_forward(tt_pool_t *pool, const tt_conv_t *conv, const void *x,
                               const void *weight, const void *bias, void *y)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_forward_f64(conv, x, weight, bias, y);
        return TUTTI_OK;
    }
    correlation_t c = {.dtype = conv->dtype,
                       .out_dtype = conv->out_dtype,
                       .images = conv->batch * conv->groups,
                       .groups = conv->groups,
                       .rows = conv->out,
                       .image = x,
                       .weight = weight,
                       .bias = bias,
                       .out = y};
    c.window = tt_conv_window(conv);
    return correlate(pool, &c);
}

tutti_status_t tt_conv_to_x(tt_pool_t *pool, const tt_conv_t *conv, const void *dy,
                            const void *weight, const void *bias, void *dx)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_to_x_f64(conv, dy, weight, bias, dx);
        return TUTTI_OK;
    }
    correlation_t c = {.dtype = conv->dtype,
                       .out_dtype = conv->out_dtype,
                       .images = conv->batch * conv->groups,
                       .groups = conv->groups,
                       .rows = conv->in,
                       .image = dy,
                       .weight = weight,
                       .bias = bias,
                       .mirrored = true,
                       .out = dx};
    c.window.channels = conv->out;
    for (int i = 0; i < 2; i++) {
        c.window.size[i] = conv->out_size[i];
        c.window.spread[i] = conv->stride[i];
        c.window.before[i] = conv->dilation[i] * (conv->kernel[i] - 1) - conv->padding[i];
        c.window.kernel[i] = conv->kernel[i];
        c.window.stride[i] = 1;
        c.window.dilation[i] = conv->dilation[i];
        c.window.out_size[i] = conv->size[i];
    }
    return correlate(pool, &c);
}
