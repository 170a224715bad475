/* Convolutions as sums over planes, y and dx, some images at a time.
 *
 *     a thread takes images of a group that have about 16 tiles, or one image:
 *         planes of the images (conv_window.h)                      in the L2 cache
 *         for each run of 16 places of 14 positions
 *             for each 256 steps over kernel rows, channels, columns:
 *                 a panel for each place: what its positions see, read once
 *                 for each 32 channels, whose weights were packed once, and each place:
 *                     a tile (conv_ops.h), which goes on where the steps before ended
 *
 * Few channels do not pay for panels: positions are then read where they lie. Rows of the kernel
 * that see nothing but padding are left out.
 *
 * In dx with a stride, the positions of one remainder of the stride see the same taps of dy: they
 * are a correlation of their own, with those taps; where there are none (1 × 1 with a stride) the
 * image is zeros first. Cost: 2 · batch · out · in · kernel · positions
 * operations; scratch: planes a thread, and the weights. Source: see conv_simd.c.
 */
#include "core/kernel/conv/conv.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_correlation.h"
#include "core/kernel/conv/conv_depthwise.h"
#include "core/kernel/conv/conv_f64.h"
#include "core/kernel/conv/conv_winograd.h"
#include "core/kernel/matmul/gemm.h"
#include "core/kernel/half.h"

enum {
    IN_PLACE_BLOCKS = 2,   /* so few do not pay for a copy */
    IN_PLACE_BYTES = 4096, /* but for planes that have pages of their own */
};

tutti_dtype_t tt_conv_dtype(tutti_dtype_t dtype)
{
    const bool is_bf16 = dtype == TUTTI_BF16 && tt_gemm_ops(dtype) != NULL;
    return is_bf16 || dtype == TUTTI_F64 ? dtype : TUTTI_F32;
}

/* ---- what sees what -------------------------------------------------------------------------- */

static void list_reach(tt_correlation_t *c, int dim)
{
    const tt_conv_t *conv = c->conv;
    tt_conv_reach_t *to = c->reach[dim];
    for (int64_t i = 0; i < c->phase_count[dim]; i++) {
        tt_conv_phase_t *phase = &c->phases[dim][i];
        const int64_t step = c->phase_count[dim];
        *phase = (tt_conv_phase_t){i, step, (c->size[dim] - i + step - 1) / step, to, 0};
        for (int64_t tap = 0; tap < conv->kernel[dim]; tap++) {
            int64_t place = tap * conv->dilation[dim];
            if (!c->is_to_x || tt_conv_sees(conv, dim, i, tap, &place)) {
                place += c->is_to_x ? c->window.before[dim] : 0;
                to[phase->reaches++] = (tt_conv_reach_t){tap, place};
            }
        }
        to += phase->reaches;
    }
}

static void list_view(const tt_correlation_t *c, tt_conv_view_t *view)
{
    const tt_conv_phase_t *const *phase = view->phase;
    int64_t *row = c->row_at + view->first_position, *step = c->step_at + view->first_step;
    for (int64_t i = 0; i < phase[0]->count; i++) {
        for (int64_t j = 0; j < phase[1]->count; j++) {
            *row++ = tt_window_at(&c->window, i * c->window.stride[0], j * c->window.stride[1]);
        }
    }
    for (int64_t a = 0; a < phase[0]->reaches; a++) {
        for (int64_t unit = 0; unit < c->units; unit += tt_correlation_depth(c)) {
            for (int64_t b = 0; b < phase[1]->reaches; b++) {
                *step++ =
                    unit * tt_window_unit_bytes(&c->window) +
                    tt_window_at(&c->window, phase[0]->reach[a].place, phase[1]->reach[b].place);
            }
        }
    }
    view[1].first_position = row - c->row_at;
    view[1].first_step = step - c->step_at;
}

static void list_views(tt_correlation_t *c)
{
    list_reach(c, 0);
    list_reach(c, 1);
    tt_conv_view_t *view = c->views;
    view->first_position = view->first_step = 0;
    for (int64_t i = 0; i < c->phase_count[0] * c->phase_count[1]; i++) {
        view->phase[0] = &c->phases[0][i / c->phase_count[1]];
        view->phase[1] = &c->phases[1][i % c->phase_count[1]];
        if (c->bias == NULL && view->phase[0]->reaches * view->phase[1]->reaches == 0) {
            c->is_cleared = true;
        } else {
            list_view(c, view++);
        }
    }
    c->views_end = view;
}

/* ---- the weights ----------------------------------------------------------------------------- */

typedef struct {
    const char *from;
    int64_t lane, unit_half; /* elements from lane to lane, from channel to channel of a pair */
    int64_t columns, pitch;  /* floats from lane to lane of what is written */
} weights_t;

static void put_f32(const weights_t *w, float *to, int64_t columns)
{
    const float *from = (const float *)(const void *)w->from;
    for (int64_t i = 0; i < w->columns; i++) {
        to[i] = from[i * w->lane];
    }
    memset(to + w->columns, 0, (size_t)(columns - w->columns) * sizeof *to);
}

/* unit_half 0: the unit has one channel, or without columns none. */
static void put_pairs(const weights_t *w, float *to, int64_t columns)
{
    const uint16_t *from = (const uint16_t *)(const void *)w->from;
    uint32_t *pairs = (uint32_t *)(void *)to;
    for (int64_t i = 0; i < w->columns; i++) {
        const uint32_t high = w->unit_half == 0 ? 0 : from[i * w->lane + w->unit_half];
        pairs[i * w->pitch] = from[i * w->lane] | high << 16;
    }
    for (int64_t i = w->columns; i < columns; i++) {
        pairs[i * w->pitch] = 0;
    }
}

/* The steps of one view that belong to one kernel row and one unit. */
static void put_steps(const tt_correlation_t *c, const tt_conv_view_t *view, int64_t row,
                      int64_t unit, weights_t w, float *to)
{
    const tt_conv_phase_t *across = view->phase[1];
    const int64_t depth = tt_correlation_depth(c);
    const int64_t at = (row * c->unit_steps + unit / depth) * across->reaches;
    const int64_t tap = view->phase[0]->reach[row].tap * c->conv->kernel[1];
    const char *from = w.from;
    to += (view->first_step + at) * c->step_floats + unit % depth;
    for (int64_t b = 0; b < across->reaches; b++, to += c->step_floats) {
        w.from = from + (tap + across->reach[b].tap) * (int64_t)c->window.element_bytes;
        (c->window.in_pairs ? put_pairs : put_f32)(&w, to, c->columns);
    }
}

/* Piece: group, block, unit. */
static void put_weights_piece(void *arg, size_t piece)
{
    const tt_correlation_t *c = arg;
    const int64_t units = c->unit_steps * tt_correlation_depth(c);
    const int64_t unit = (int64_t)piece % units, at = (int64_t)piece / units;
    const int64_t group = at / c->blocks, block = at % c->blocks;
    const int64_t kernel = c->conv->kernel[0] * c->conv->kernel[1];
    const int64_t channel = c->window.in_pairs ? 2 * unit : unit;
    const int64_t lane = c->is_to_x ? kernel : c->window.channels * kernel;
    const int64_t next = c->is_to_x ? c->channels * kernel : kernel;
    const int64_t first = group * c->window.channels * c->channels * kernel +
                          block * c->columns * lane + channel * next;
    const weights_t w = {
        .from = c->weight + first * (int64_t)c->window.element_bytes,
        .lane = lane,
        .unit_half = channel + 1 < c->window.channels ? next : 0,
        .columns = unit < c->units ? tt_correlation_columns(c, block) : 0,
        .pitch = c->is_in_tiles ? TT_CONV_PITCH : 1,
    };
    for (const tt_conv_view_t *view = c->views; view < c->views_end; view++) {
        for (int64_t row = 0; row < view->phase[0]->reaches; row++) {
            put_steps(c, view, row, unit, w, c->weights + at * c->steps * c->step_floats);
        }
    }
}

static void put_biases(const tt_correlation_t *c)
{
    const int64_t columns = c->columns;
    for (int64_t i = 0; i < c->conv->groups * c->blocks * columns; i++) {
        const int64_t group = i / (c->blocks * columns), channel = i % (c->blocks * columns);
        const int64_t at = group * c->channels + channel;
        float value = 0;
        if (c->bias != NULL && channel < c->channels) {
            value = c->window.element_bytes == 2
                        ? tt_bf16_to_f32(((const uint16_t *)(const void *)c->bias)[at])
                        : ((const float *)(const void *)c->bias)[at];
        }
        c->biases[i] = value + 0.0f; /* no -0, which adding zeros changes: find_steps() */
    }
}

/* ---- scratch --------------------------------------------------------------------------------- */

static void lay_out(tt_correlation_t *c, int64_t workers, char *block, size_t *bytes)
{
    const int64_t blocks = c->conv->groups * c->blocks;
    const int64_t views = c->phase_count[0] * c->phase_count[1];
    for (int i = 0; i < 2; i++) {
        c->reach[i] =
            tt_conv_part(block, bytes,
                         c->phase_count[i] * c->conv->kernel[i] * (int64_t)sizeof(tt_conv_reach_t));
        c->phases[i] =
            tt_conv_part(block, bytes, c->phase_count[i] * (int64_t)sizeof(tt_conv_phase_t));
    }
    c->views = tt_conv_part(block, bytes, (views + 1) * (int64_t)sizeof(tt_conv_view_t));
    c->row_at = tt_conv_part(block, bytes, c->positions * (int64_t)sizeof(int64_t));
    c->step_at = tt_conv_part(block, bytes, c->steps * (int64_t)sizeof(int64_t));
    c->weight_at = tt_conv_part(block, bytes, c->steps * (int64_t)sizeof(int64_t));
    c->weights = tt_conv_part(block, bytes, blocks * c->steps * c->step_floats * 4);
    c->biases = tt_conv_part(block, bytes, blocks * c->columns * 4);
    c->slots = tt_conv_part(block, bytes, workers * (int64_t)c->slot_bytes);
}

/* Small images go together, so that a run is full. By the shape alone: a tile that belongs to two
 * images sees all rows of the kernel. */
static void cut_pieces(tt_correlation_t *c)
{
    const int64_t images = tt_min(TT_CONV_RUN_PLACES * c->ops->rows / c->positions, c->conv->batch);
    c->images_per_piece = images < 1 || c->is_in_tiles ? 1 : images;
    c->pieces = tt_pieces_of(c->conv->batch, c->images_per_piece) * c->conv->groups;
}

static void plan_slot(tt_correlation_t *c)
{
    const int64_t blocks = tt_min(c->blocks, TT_CONV_RUN_BLOCKS);
    const bool has_planes = !tt_window_is_image(&c->window);
    size_t bytes = 0;
    tt_conv_reserve(&bytes, has_planes ? c->images_per_piece * tt_window_bytes(&c->window) : 0);
    if (c->is_in_tiles) { /* units of zeros to a whole step, and what the last sums read too much */
        const int64_t more = c->unit_steps * tt_correlation_depth(c) - c->units;
        tt_conv_reserve(&bytes, more * tt_window_unit_bytes(&c->window) + 2 * TT_CONV_SLACK);
    }
    c->panels_at = tt_conv_reserve(
        &bytes, c->is_gathered ? TT_CONV_RUN_PLACES * TT_CONV_RUN_STEPS * TT_CONV_PITCH * 4 : 0);
    c->sums_at = tt_conv_reserve(
        &bytes, 4 * (c->is_in_tiles ? 2 * c->columns * tt_correlation_pitch(c)
                                    : blocks * TT_CONV_RUN_PLACES * TT_CONV_TILE_FLOATS));
    c->slot_bytes = bytes;
}

/* What goes together in a block and in a step. AMX's tiles are as large as each other. */
static void cut_steps(tt_correlation_t *c)
{
    c->units = tt_window_units(&c->window);
    c->unit_steps = c->is_in_tiles ? tt_pieces_of(c->units, TT_CONV_PITCH) : c->units;
    c->steps = c->unit_steps * c->conv->kernel[0] * c->conv->kernel[1];
    c->blocks = tt_pieces_of(c->channels, c->is_in_tiles ? TT_CONV_PITCH : c->ops->columns);
    c->columns = c->is_in_tiles ? tt_pieces_of(c->channels, c->blocks) : c->ops->columns;
    c->step_floats = c->is_in_tiles ? TT_CONV_PITCH * TT_CONV_PITCH : c->columns;
}

static tutti_status_t correlate(tt_threads_t *threads, tt_correlation_t *c)
{
    c->ops = tt_kernels()->conv;
    c->positions = c->size[0] * c->size[1];
    c->window.in_pairs = c->conv->dtype == TUTTI_BF16;
    c->is_in_tiles = c->window.in_pairs && tt_isa_has_amx();
    cut_steps(c);
    c->is_gathered =
        !c->is_in_tiles && (c->blocks > (tt_window_is_image(&c->window) ? 1 : IN_PLACE_BLOCKS) ||
                            tt_window_unit_bytes(&c->window) > IN_PLACE_BYTES);
    cut_pieces(c);
    plan_slot(c);
    const int64_t workers = tt_min(tt_threads_count(threads), c->pieces);
    size_t bytes = 0;
    lay_out(c, workers, NULL, &bytes);
    char *block = tt_threads_borrow(threads, bytes);
    TT_TRY_ALLOC(block);
    bytes = 0;
    lay_out(c, workers, block, &bytes);
    list_views(c);
    for (int64_t step = 0; step < c->steps; step++) {
        c->weight_at[step] = step * c->step_floats * 4;
    }
    put_biases(c);
    const int64_t units = c->unit_steps * tt_correlation_depth(c);
    tt_threads_run(threads, (size_t)(c->conv->groups * c->blocks * units), put_weights_piece, c);
    tt_threads_run(threads, (size_t)workers,
                   c->is_in_tiles ? tt_correlation_tiles_piece : tt_correlation_piece, c);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

/* ---- planes ---------------------------------------------------------------------------------- */

tutti_status_t tt_planes_forward(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                 const void *weight, const void *bias, void *y)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_forward_f64(conv, x, weight, bias, y);
        return TUTTI_OK;
    }
    if (tt_depthwise_suits(conv)) {
        return tt_depthwise_forward(threads, conv, x, weight, bias, y);
    }
    if (tt_winograd_suits(conv)) {
        return tt_winograd_forward(threads, conv, x, weight, bias, y);
    }
    tt_correlation_t c = {.conv = conv,
                          .window = tt_conv_window(conv),
                          .channels = conv->out,
                          .size = {conv->out_size[0], conv->out_size[1]},
                          .phase_count = {1, 1},
                          .image = x,
                          .weight = weight,
                          .bias = bias,
                          .out = y};
    return correlate(threads, &c);
}

tutti_status_t tt_planes_to_x(tt_threads_t *threads, const tt_conv_t *conv, const void *dy,
                              const void *weight, const void *bias, void *dx)
{
    if (conv->dtype == TUTTI_F64) {
        tt_conv_to_x_f64(conv, dy, weight, bias, dx);
        return TUTTI_OK;
    }
    if (tt_depthwise_suits(conv)) {
        return tt_depthwise_to_x(threads, conv, dy, weight, bias, dx);
    }
    if (tt_winograd_suits(conv)) {
        return tt_winograd_to_x(threads, conv, dy, weight, bias, dx);
    }
    tt_correlation_t c = {.conv = conv,
                          .is_to_x = true,
                          .window = tt_conv_window_of_dy(conv),
                          .channels = conv->in,
                          .size = {conv->size[0], conv->size[1]},
                          .image = dy,
                          .weight = weight,
                          .bias = bias,
                          .out = dx};
    for (int i = 0; i < 2; i++) {
        c.phase_count[i] = tt_min(conv->stride[i], conv->size[i]);
    }
    return correlate(threads, &c);
}
