/* Winograd's convolution (conv_winograd.h): what y, dx and dw share, and y and dx.
 *
 *     a thread takes some images of a group, or one, at a time:
 *         for each chunk of tiles:
 *             V [16, channels, tiles], straight from the image        in the L2 cache
 *             for each 32 channels of the result, 16 times:
 *                 M [tiles, 32] = V · U, the transformed weights
 *             for each row of tiles: two rows of positions, stored
 *
 * dx is y of dy and the mirrored weights. Cost: 4/9 of the operations of a direct sum, and about
 * 100 for each 4 × 4 and channel; scratch: V and M a thread, and U. */
#include "core/kernel/conv/conv_winograd.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_impl.h"

enum { CHUNK_TILES = 64, CHANNELS_LEAST = 16, TILES_LEAST = 4 };

bool tt_winograd_suits(const tt_conv_t *c)
{
    bool suits = c->dtype == TUTTI_F32 && c->in >= CHANNELS_LEAST && c->out >= CHANNELS_LEAST;
    for (int i = 0; i < 2; i++) {
        suits = suits && c->kernel[i] == 3 && c->stride[i] == 1 && c->dilation[i] == 1 &&
                c->padding[i] <= 2 && c->out_size[i] >= TILES_LEAST;
    }
    return suits;
}

tt_winograd_t tt_winograd_plan(int64_t channels, const int64_t size[2], const int64_t padding[2],
                               const int64_t out_size[2])
{
    tt_winograd_t w = {.ops = tt_kernels()->conv, .channels = channels};
    for (int i = 0; i < 2; i++) {
        w.size[i] = size[i];
        w.before[i] = padding[i];
        w.tiles[i] = tt_pieces_of(out_size[i], 2);
    }
    const int64_t images = CHUNK_TILES / (w.tiles[0] * w.tiles[1]);
    const int64_t chunks = tt_pieces_of(w.tiles[0] * w.tiles[1], CHUNK_TILES);
    w.images = images < 1 ? 1 : images;
    w.rows = tt_pieces_of(w.tiles[0], tt_min(chunks, w.tiles[0]));
    const int64_t half = w.ops->columns / 4; /* of a vector */
    w.v_row = w.tiles[1] <= half ? half : w.tiles[1];
    w.v_pitch = w.images * w.rows * w.v_row + TT_CONV_SLACK / 4;
    w.v_step = tt_winograd_step(channels * w.v_pitch);
    return w;
}

int64_t tt_winograd_step(int64_t floats)
{
    return tt_pieces_of(floats, 64) * 64 + 16;
}

int64_t tt_winograd_tiles(const tt_winograd_t *w)
{
    return w->images * w->rows * w->tiles[1];
}

int64_t tt_winograd_v_floats(const tt_winograd_t *w)
{
    return TT_WINOGRAD_PLACES * w->v_step;
}

void tt_winograd_list(const tt_winograd_t *w, int64_t *tile_at, int64_t *channel_at)
{
    for (int64_t row = 0; row < w->images * w->rows; row++) {
        for (int64_t i = 0; i < w->tiles[1]; i++) {
            *tile_at++ = (row * w->v_row + i) * 4;
        }
    }
    for (int64_t channel = 0; channel < w->channels; channel++) {
        channel_at[channel] = channel * w->v_pitch * 4;
    }
}

/* Image after image, since each one's last vector reaches into the next. */
void tt_winograd_transform(const tt_winograd_t *w, const tt_winograd_chunk_t *c, float *v)
{
    for (int64_t channel = 0; channel < w->channels; channel++) {
        for (int64_t image = 0; image < c->images; image++) {
            w->ops->winograd->input(&(tt_conv_input_t){
                .image = c->image + image * c->image_floats + channel * w->size[0] * w->size[1],
                .size = {w->size[0], w->size[1]},
                .at = {2 * c->row - w->before[0], -w->before[1]},
                .rows = c->rows,
                .tiles = w->tiles[1],
                .v = v + channel * w->v_pitch + image * c->rows * w->v_row,
                .v_row = w->v_row,
                .v_step = w->v_step,
            });
        }
    }
}

/* ---- y and dx -------------------------------------------------------------------------------- */

typedef struct {
    tt_winograd_t w;
    const tt_conv_t *conv;
    bool is_to_x;
    int64_t channels, out_size[2]; /* of a group's result */
    int64_t blocks, pieces;        /* pieces: of images of a group */
    int64_t u_step, m_step;        /* floats from place to place */
    const float *image, *weight, *bias;
    char *out;
    int64_t *tile_at, *channel_at;
    float *u, *biases; /* [groups, blocks, 16, u_step], [groups, blocks, columns] */
    char *slots;
    size_t slot_bytes, m_at, rows_at;
    atomic_size_t next;
} job_t;

static int64_t columns_of(const job_t *j, int64_t block)
{
    return tt_min(j->w.ops->columns, j->channels - block * j->w.ops->columns);
}

/* G of 3 numbers. */
static void weight_4(const float x[3], float y[4])
{
    y[0] = x[0];
    y[1] = (x[0] + x[1] + x[2]) * 0.5f;
    y[2] = (x[0] - x[1] + x[2]) * 0.5f;
    y[3] = x[2];
}

/* G w Gᵀ of 3 × 3 taps, written `step` floats apart. */
static void transform_weight(const float *w, bool mirrored, float *to, int64_t step)
{
    float half[3][4];
    for (int i = 0; i < 3; i++) {
        const float *row = w + 3 * (mirrored ? 2 - i : i);
        weight_4((const float[]){row[mirrored ? 2 : 0], row[1], row[mirrored ? 0 : 2]}, half[i]);
    }
    for (int j = 0; j < 4; j++) {
        float y[4];
        weight_4((const float[]){half[0][j], half[1][j], half[2][j]}, y);
        for (int i = 0; i < 4; i++) {
            to[(i * 4 + j) * step] = y[i];
        }
    }
}

/* Piece: group, block, channel of the image. */
static void put_weights_piece(void *arg, size_t piece)
{
    const job_t *j = arg;
    const int64_t in = j->w.channels, columns = j->w.ops->columns;
    const int64_t at = (int64_t)piece / in, channel = (int64_t)piece % in;
    const int64_t group = at / j->blocks, block = at % j->blocks;
    const float *from = j->weight + group * in * j->channels * TT_WINOGRAD_TAPS;
    float *to = j->u + at * TT_WINOGRAD_PLACES * j->u_step + channel * columns;
    for (int64_t i = 0; i < columns; i++) {
        const int64_t out = block * columns + i;
        const int64_t pair = j->is_to_x ? channel * j->channels + out : out * in + channel;
        if (out < j->channels) {
            transform_weight(from + pair * TT_WINOGRAD_TAPS, j->is_to_x, to + i, j->u_step);
        } else {
            transform_weight((const float[TT_WINOGRAD_TAPS]){0}, false, to + i, j->u_step);
        }
    }
}

static void put_biases(const job_t *j)
{
    const int64_t columns = j->w.ops->columns;
    for (int64_t i = 0; i < j->conv->groups * j->blocks * columns; i++) {
        const int64_t group = i / (j->blocks * columns), channel = i % (j->blocks * columns);
        const bool is_given = j->bias != NULL && channel < j->channels;
        j->biases[i] = is_given ? j->bias[group * j->channels + channel] : 0;
    }
}

/* A chunk of tiles, and where it is scratched. */
typedef struct {
    const job_t *j;
    float *v, *m, *rows_of_out; /* rows_of_out: two of them */
    int64_t group, image, images, row, rows, block;
} chunk_t;

static void multiply(const chunk_t *c)
{
    const job_t *j = c->j;
    const int64_t columns = j->w.ops->columns, in = j->w.channels;
    const int64_t tiles = c->images * c->rows * j->w.tiles[1];
    const int64_t at = (c->group * j->blocks + c->block) * TT_WINOGRAD_PLACES;
    tt_conv_tile_t t = {
        .is_narrow = 2 * columns_of(j, c->block) <= columns,
        .step_at = j->channel_at,
        .steps = in,
    };
    for (int place = 0; place < TT_WINOGRAD_PLACES; place++) {
        t.planes = (const char *)(c->v + place * j->w.v_step);
        t.b = j->u + (at + place) * j->u_step;
        for (int64_t tile = 0; tile < tiles; tile += t.rows) {
            t.rows = (int)tt_min(j->w.ops->rows, tiles - tile);
            t.row_at = j->tile_at + tile;
            t.tile = c->m + place * j->m_step + tile * columns;
            j->w.ops->multiply_f32(&t);
        }
    }
}

/* Some positions of an image, from its row `row` on. */
static void store_positions(const chunk_t *c, int64_t image, int64_t row, int64_t count)
{
    const job_t *j = c->j;
    const int64_t columns = j->w.ops->columns, positions = j->out_size[0] * j->out_size[1];
    const int64_t channel = (image * j->conv->groups + c->group) * j->channels + c->block * columns;
    const int64_t at = channel * positions + row * j->out_size[1];
    for (int64_t i = 0; i < count; i += TT_CONV_STORED_MAX) {
        j->w.ops->store(&(tt_conv_store_t){
            .rows = (int)tt_min(TT_CONV_STORED_MAX, count - i),
            .columns = (int)columns_of(j, c->block),
            .tile = c->rows_of_out + i * columns,
            .dtype = j->conv->out_dtype,
            .out = j->out + (at + i) * (int64_t)tutti_dtype_bytes(j->conv->out_dtype),
            .step = 1,
            .ld = positions,
        });
    }
}

/* Row `row` of the chunk's tiles, over all its images. */
static void store_tiles(const chunk_t *c, int64_t row)
{
    const job_t *j = c->j;
    const int64_t columns = j->w.ops->columns, width = j->out_size[1];
    const int64_t first = 2 * (c->row + row % c->rows), image = c->image + row / c->rows;
    j->w.ops->winograd->output(&(tt_conv_output_t){
        .tiles = j->w.tiles[1],
        .width = width,
        .is_narrow = 2 * columns_of(j, c->block) <= columns,
        .m = c->m + row * j->w.tiles[1] * columns,
        .m_step = j->m_step,
        .bias = j->biases + (c->group * j->blocks + c->block) * columns,
        .rows = {c->rows_of_out, c->rows_of_out + width * columns},
    });
    store_positions(c, image, first, tt_min(2, j->out_size[0] - first) * width);
}

static void correlate_images(chunk_t *c)
{
    const job_t *j = c->j;
    const int64_t floats = j->w.channels * j->w.size[0] * j->w.size[1];
    const float *image = j->image + (c->image * j->conv->groups + c->group) * floats;
    for (c->row = 0; c->row < j->w.tiles[0]; c->row += c->rows) {
        c->rows = tt_min(j->w.rows, j->w.tiles[0] - c->row);
        const tt_winograd_chunk_t some = {image, j->conv->groups * floats, c->images, c->row,
                                          c->rows};
        tt_winograd_transform(&j->w, &some, c->v);
        for (c->block = 0; c->block < j->blocks; c->block++) {
            multiply(c);
            for (int64_t row = 0; row < c->images * c->rows; row++) {
                store_tiles(c, row);
            }
        }
    }
}

static void correlate_piece(void *arg, size_t piece)
{
    job_t *j = arg;
    char *slot = j->slots + piece * j->slot_bytes;
    chunk_t chunk = {
        .j = j,
        .v = (float *)(void *)slot,
        .m = (float *)(void *)(slot + j->m_at),
        .rows_of_out = (float *)(void *)(slot + j->rows_at),
    };
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (next >= j->conv->groups * j->pieces) {
            return;
        }
        chunk.group = next / j->pieces;
        chunk.image = next % j->pieces * j->w.images;
        chunk.images = tt_min(j->w.images, j->conv->batch - chunk.image);
        correlate_images(&chunk);
    }
}

static void plan_slot(job_t *j)
{
    const int64_t row = 2 * j->w.tiles[1] * j->w.ops->columns;
    size_t bytes = 0;
    tt_conv_reserve(&bytes, tt_winograd_v_floats(&j->w) * 4);
    j->m_at = tt_conv_reserve(&bytes, TT_WINOGRAD_PLACES * j->m_step * 4);
    j->rows_at = tt_conv_reserve(&bytes, 2 * row * 4);
    j->slot_bytes = bytes;
}

static void lay_out(job_t *j, int64_t workers, char *block, size_t *bytes)
{
    const int64_t columns = j->conv->groups * j->blocks * j->w.ops->columns;
    const int64_t word = (int64_t)sizeof(int64_t);
    j->tile_at = tt_conv_part(block, bytes, tt_winograd_tiles(&j->w) * word);
    j->channel_at = tt_conv_part(block, bytes, j->w.channels * word);
    j->u = tt_conv_part(block, bytes,
                        j->conv->groups * j->blocks * TT_WINOGRAD_PLACES * j->u_step * 4);
    j->biases = tt_conv_part(block, bytes, columns * 4);
    j->slots = tt_conv_part(block, bytes, workers * (int64_t)j->slot_bytes);
}

static tutti_status_t correlate(tt_threads_t *threads, job_t *j)
{
    j->pieces = tt_pieces_of(j->conv->batch, j->w.images);
    j->blocks = tt_pieces_of(j->channels, j->w.ops->columns);
    const int64_t workers = tt_min(tt_threads_count(threads), j->conv->groups * j->pieces);
    j->u_step = tt_winograd_step(j->w.channels * j->w.ops->columns);
    j->m_step = tt_winograd_step(tt_winograd_tiles(&j->w) * j->w.ops->columns);
    size_t bytes = 0;
    plan_slot(j);
    lay_out(j, workers, NULL, &bytes);
    char *block = tt_threads_borrow(threads, bytes);
    TT_TRY_ALLOC(block);
    bytes = 0;
    lay_out(j, workers, block, &bytes);
    tt_winograd_list(&j->w, j->tile_at, j->channel_at);
    put_biases(j);
    tt_threads_run(threads, (size_t)(j->conv->groups * j->blocks * j->w.channels),
                   put_weights_piece, j);
    tt_threads_run(threads, (size_t)workers, correlate_piece, j);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

tutti_status_t tt_winograd_forward(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                   const float *weight, const float *bias, void *y)
{
    job_t j = {.w = tt_winograd_plan(conv->in, conv->size, conv->padding, conv->out_size),
               .conv = conv,
               .channels = conv->out,
               .out_size = {conv->out_size[0], conv->out_size[1]},
               .image = x,
               .weight = weight,
               .bias = bias,
               .out = y};
    return correlate(threads, &j);
}

tutti_status_t tt_winograd_to_x(tt_threads_t *threads, const tt_conv_t *conv, const float *dy,
                                const float *weight, const float *bias, void *dx)
{
    const int64_t padding[] = {2 - conv->padding[0], 2 - conv->padding[1]};
    job_t j = {.w = tt_winograd_plan(conv->out, conv->out_size, padding, conv->size),
               .conv = conv,
               .is_to_x = true,
               .channels = conv->in,
               .out_size = {conv->size[0], conv->size[1]},
               .image = dy,
               .weight = weight,
               .bias = bias,
               .out = dx};
    return correlate(threads, &j);
}
