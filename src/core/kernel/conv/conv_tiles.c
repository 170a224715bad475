/* Convolutions of bf16 in AMX's tiles (conv_amx_simd.c): y and dx, an image at a time.
 *
 *     planes of the image, of pairs of channels (conv_window.h)
 *     for each rows of positions, of about 256 positions:
 *         for each 2 blocks of channels of the result:
 *             sums [channels, positions as they lie in the planes], 2 × 2 tiles at a time
 *             rows of them to where the image has them
 *
 * A tile's 16 positions are neighbours in a plane, so that some of them are those of the padding
 * between two rows: they are not stored. Nothing is transposed. What conv.c lists and packs, and
 * the scratch, are those of conv_run.c. */
#include "core/kernel/conv/conv_correlation.h"

#include <string.h>

enum { POSITIONS = 256, LANES = 16 };

/* Rows of positions that are worked on together. */
static int64_t rows_of(const tt_correlation_t *c)
{
    const int64_t rows = POSITIONS / c->window.plane_size[1];
    return rows < 1 ? 1 : rows;
}

/* No power of two: lines of neighbours would fall into one set of the cache. */
int64_t tt_correlation_pitch(const tt_correlation_t *c)
{
    const int64_t positions = rows_of(c) * c->window.plane_size[1];
    return tt_pieces_of(positions, 2 * LANES) * 2 * LANES + LANES;
}

/* Rows of positions of a view. */
typedef struct {
    const tt_correlation_t *c;
    const tt_conv_view_t *view;
    int64_t image, group;
    const char *planes;
    float *sums;
    int64_t pitch;
    int64_t row, rows;
} run_t;

static void multiply(const run_t *r, int64_t block, int blocks)
{
    const tt_correlation_t *c = r->c;
    const tt_conv_view_t *view = r->view;
    const int64_t width = c->window.plane_size[1];
    const int64_t positions = (r->rows - 1) * width + view->phase[1]->count;
    const int64_t at = (r->group * c->blocks + block) * c->steps + view->first_step;
    tt_conv_product_t p = {
        .blocks = blocks,
        .steps = c->unit_steps * view->phase[0]->reaches * view->phase[1]->reaches,
        .a_at = c->weight_at,
        .b_at = c->step_at + view->first_step,
        .a = (const char *)(c->weights + at * c->step_floats),
        .b = r->planes + tt_window_at(&c->window, r->row * c->window.stride[0], 0),
        .a_block = c->steps * c->step_floats * 4,
        .a_pitch = TT_CONV_PITCH * 4,
        .b_pitch = tt_window_unit_bytes(&c->window),
        .tile = (char *)r->sums,
        .tile_block = c->columns * r->pitch * 4,
        .tile_pitch = r->pitch * 4,
    };
    const int64_t bytes = 4 * 2 * LANES;
    for (int64_t first = 0; first < positions; first += 2 * LANES, p.b += bytes, p.tile += bytes) {
        p.vectors = positions - first > LANES ? 2 : 1;
        c->ops->multiply_amx(&p);
    }
}

static void store(const run_t *r, int64_t block, int blocks)
{
    const tt_correlation_t *c = r->c;
    const tt_conv_phase_t *down = r->view->phase[0], *across = r->view->phase[1];
    const int64_t first = block * c->columns;
    const int64_t channel = (r->image * c->conv->groups + r->group) * c->channels + first;
    const int64_t position = (down->start + r->row * down->step) * c->size[1] + across->start;
    const int64_t bytes = (int64_t)tutti_dtype_bytes(c->conv->out_dtype);
    c->ops->store_rows(&(tt_conv_rows_t){
        .channels = tt_min(blocks * c->columns, c->channels - first),
        .rows = r->rows,
        .count = across->count,
        .from = r->sums,
        .bias = c->biases + (r->group * c->blocks + block) * c->columns,
        .from_channel = r->pitch,
        .from_row = c->window.plane_size[1],
        .dtype = c->conv->out_dtype,
        .out = c->out + (channel * c->positions + position) * bytes,
        .channel = c->positions,
        .row = down->step * c->size[1],
        .step = across->step,
    });
}

static void correlate_view(run_t *r)
{
    const int64_t count = r->view->phase[0]->count;
    for (r->row = 0; r->row < count; r->row += r->rows) {
        r->rows = tt_min(rows_of(r->c), count - r->row);
        for (int64_t block = 0; block < r->c->blocks; block += 2) {
            const int blocks = block + 1 < r->c->blocks ? 2 : 1;
            multiply(r, block, blocks);
            store(r, block, blocks);
        }
    }
}

void tt_correlation_tiles_piece(void *arg, size_t piece)
{
    tt_correlation_t *c = arg;
    const int64_t bytes = c->window.channels * c->window.size[0] * c->window.size[1] * 2;
    char *slot = c->slots + piece * c->slot_bytes;
    run_t run = {.c = c,
                 .planes = slot,
                 .sums = (float *)(void *)(slot + c->sums_at),
                 .pitch = tt_correlation_pitch(c)};
    memset(slot, 0, c->panels_at);
    c->ops->begin_amx((int)c->columns, (int)tt_correlation_depth(c));
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (next >= c->pieces) {
            break;
        }
        run.image = next / c->conv->groups;
        run.group = next % c->conv->groups;
        tt_window_arrange(&c->window, c->image + next * bytes, slot);
        tt_correlation_clear(c, next);
        for (run.view = c->views; run.view < c->views_end; run.view++) {
            correlate_view(&run);
        }
    }
    c->ops->end_amx();
}
