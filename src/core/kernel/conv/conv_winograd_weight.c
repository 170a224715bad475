/* The gradient of weights by Winograd (conv_winograd.h). A thread takes a group and a run of images
 * at a time; of a run, chunk after chunk of tiles:
 *
 *     V [16, channels of x, tiles]
 *     for each 32 channels of dy:
 *         rows of positions × 32, transposed from dy; W = A dy Aᵀ [16, tiles, 32]
 *         16 times: S [channels of x, 32] += V · W, the run's own S
 *
 * At last those of the runs are added in their order, and become dw. The shapes alone cut runs and
 * chunks. Cost: 4/9 of the operations of a direct sum; scratch: V and W a thread, and an S
 * for each of at most 16 runs, 16 MiB unless one is larger. */
#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_impl.h"
#include "core/kernel/conv/conv_winograd.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/matmul/gemm.h"

enum { RUNS_MAX = 16, RUNS_BYTES_MAX = 16 << 20 };

typedef struct {
    tt_winograd_t w;
    const tt_conv_t *conv;
    const tt_gemm_ops_t *gemm;
    const float *x, *dy;
    char *dw;
    int64_t blocks, runs, images_per_run;
    int64_t w_step, s_step; /* floats from place to place */
    int64_t *tile_at, *channel_at;
    float *sums; /* [groups, runs, blocks, 16, s_step] */
    char *slots;
    size_t slot_bytes, w_at, rows_at;
    atomic_size_t next;
} job_t;

static int64_t sums_of_block(const job_t *j)
{
    return TT_WINOGRAD_PLACES * j->s_step;
}

typedef struct {
    const job_t *j;
    float *v, *w, *rows_of_dy, *sums;
    int64_t group, image, images, row, rows, block;
    bool is_first; /* nothing is in sums yet */
} chunk_t;

/* Two rows of positions for each row of tiles of one image: zeros where dy has none. */
static void pack_image(const chunk_t *c, int64_t image, float *to)
{
    const job_t *j = c->j;
    const int64_t columns = j->w.ops->columns, width = j->conv->out_size[1];
    const int64_t height = j->conv->out_size[0], pitch = 2 * j->w.tiles[1] * columns;
    const int64_t first = 2 * c->row, rows = tt_min(2 * c->rows, height - first);
    const int64_t channel =
        (image * j->conv->groups + c->group) * j->conv->out + c->block * columns;
    const int64_t count = tt_min(columns, j->conv->out - c->block * columns);
    const float *from = j->dy + (channel * height + first) * width;
    const bool is_even = width % 2 == 0;
    for (int64_t row = 0; row < (is_even ? 1 : rows); row++) {
        j->gemm->pack_b(from + row * width, height * width, true, is_even ? rows * width : width,
                        count, to + row * pitch);
        if (!is_even) {
            memset(to + (row + 1) * pitch - columns, 0, (size_t)columns * sizeof *to);
        }
    }
    memset(to + rows * pitch, 0, (size_t)((2 * c->rows - rows) * pitch) * sizeof *to);
}

static void transform_dy(const chunk_t *c)
{
    const job_t *j = c->j;
    const int64_t columns = j->w.ops->columns, width = j->w.tiles[1];
    for (int64_t image = 0; image < c->images; image++) {
        pack_image(c, c->image + image, c->rows_of_dy + image * c->rows * 4 * width * columns);
    }
    for (int64_t row = 0; row < c->images * c->rows; row++) {
        float *from = c->rows_of_dy + row * 4 * width * columns;
        j->w.ops->winograd->gradient(&(tt_conv_output_t){
            .tiles = width,
            .is_narrow = 2 * (j->conv->out - c->block * columns) <= columns,
            .m = c->w + row * width * columns,
            .m_step = j->w_step,
            .rows = {from, from + 2 * width * columns},
        });
    }
}

static void multiply(const chunk_t *c)
{
    const job_t *j = c->j;
    const int64_t columns = j->w.ops->columns, channels = j->w.channels;
    tt_conv_tile_t t = {
        .is_narrow = 2 * (j->conv->out - c->block * columns) <= columns,
        .is_added = !c->is_first,
        .step_at = j->tile_at,
        .steps = c->images * c->rows * j->w.tiles[1],
    };
    for (int place = 0; place < TT_WINOGRAD_PLACES; place++) {
        float *sums = c->sums + c->block * sums_of_block(j) + place * j->s_step;
        t.planes = (const char *)(c->v + place * j->w.v_step);
        t.b = c->w + place * j->w_step;
        for (int64_t channel = 0; channel < channels; channel += t.rows) {
            t.rows = (int)tt_min(j->w.ops->rows, channels - channel);
            t.row_at = j->channel_at + channel;
            t.tile = sums + channel * columns;
            j->w.ops->multiply_f32(&t);
        }
    }
}

static void add_images(chunk_t *c)
{
    const job_t *j = c->j;
    const int64_t floats = j->w.channels * j->w.size[0] * j->w.size[1];
    const float *image = j->x + (c->image * j->conv->groups + c->group) * floats;
    for (c->row = 0; c->row < j->w.tiles[0]; c->row += c->rows) {
        c->rows = tt_min(j->w.rows, j->w.tiles[0] - c->row);
        const tt_winograd_chunk_t some = {image, j->conv->groups * floats, c->images, c->row,
                                          c->rows};
        tt_winograd_transform(&j->w, &some, c->v);
        for (c->block = 0; c->block < j->blocks; c->block++) {
            transform_dy(c);
            multiply(c);
        }
        c->is_first = false;
    }
}

static void add_runs_piece(void *arg, size_t piece)
{
    job_t *j = arg;
    char *slot = j->slots + piece * j->slot_bytes;
    chunk_t chunk = {
        .j = j,
        .v = (float *)(void *)slot,
        .w = (float *)(void *)(slot + j->w_at),
        .rows_of_dy = (float *)(void *)(slot + j->rows_at),
    };
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (next >= j->conv->groups * j->runs) {
            return;
        }
        const int64_t first = next % j->runs * j->images_per_run;
        const int64_t end = tt_min(first + j->images_per_run, j->conv->batch);
        chunk.group = next / j->runs;
        chunk.sums = j->sums + next * j->blocks * sums_of_block(j);
        chunk.is_first = true;
        for (chunk.image = first; chunk.image < end; chunk.image += chunk.images) {
            chunk.images = tt_min(j->w.images, end - chunk.image);
            add_images(&chunk);
        }
    }
}

/* Piece: group, block, channel of x. */
static void write_piece(void *arg, size_t piece)
{
    const job_t *j = arg;
    const int64_t channels = j->w.channels, columns = j->w.ops->columns;
    const int64_t channel = (int64_t)piece % channels,
                  block = (int64_t)piece / channels % j->blocks;
    const int64_t group = (int64_t)piece / channels / j->blocks;
    const size_t bytes = tutti_dtype_bytes(j->conv->out_dtype);
    const tt_convert_fn_t convert = tt_convert_from(TT_CLASS_F32, j->conv->out_dtype);
    float taps[TT_WINOGRAD_TAPS * TT_CONV_COLUMNS_MAX];
    j->w.ops->winograd->taps(&(tt_conv_taps_t){
        .runs = j->runs,
        .run_step = j->blocks * sums_of_block(j),
        .step = j->s_step,
        .sums =
            j->sums + (group * j->runs * j->blocks + block) * sums_of_block(j) + channel * columns,
        .taps = taps,
    });
    for (int64_t i = 0; i < columns && block * columns + i < j->conv->out; i++) {
        const int64_t out = group * j->conv->out + block * columns + i;
        float row[TT_WINOGRAD_TAPS];
        for (int tap = 0; tap < TT_WINOGRAD_TAPS; tap++) {
            row[tap] = taps[tap * columns + i];
        }
        convert(j->dw + (size_t)((out * channels + channel) * TT_WINOGRAD_TAPS) * bytes, row,
                TT_WINOGRAD_TAPS);
    }
}

/* Of whole chunks, as many as there is room for. */
static void cut_runs(job_t *j)
{
    const int64_t bytes = j->conv->groups * TT_WINOGRAD_PLACES * j->w.channels * j->conv->out * 4;
    const int64_t chunks = tt_pieces_of(j->conv->batch, j->w.images);
    int64_t runs = RUNS_BYTES_MAX / bytes;
    runs = runs < 1 ? 1 : tt_min(runs, RUNS_MAX);
    j->images_per_run = tt_pieces_of(chunks, runs) * j->w.images;
    j->runs = tt_pieces_of(j->conv->batch, j->images_per_run);
}

static void plan_slot(job_t *j)
{
    const int64_t columns = j->w.ops->columns, tiles = tt_winograd_tiles(&j->w);
    size_t bytes = 0;
    tt_conv_reserve(&bytes, tt_winograd_v_floats(&j->w) * 4);
    j->w_at = tt_conv_reserve(&bytes, TT_WINOGRAD_PLACES * j->w_step * 4);
    j->rows_at = tt_conv_reserve(&bytes, 4 * tiles * columns * 4);
    j->slot_bytes = bytes;
}

static void lay_out(job_t *j, int64_t workers, char *block, size_t *bytes)
{
    const int64_t word = (int64_t)sizeof(int64_t);
    j->tile_at = tt_conv_part(block, bytes, tt_winograd_tiles(&j->w) * word);
    j->channel_at = tt_conv_part(block, bytes, j->w.channels * word);
    j->sums =
        tt_conv_part(block, bytes, j->conv->groups * j->runs * j->blocks * sums_of_block(j) * 4);
    j->slots = tt_conv_part(block, bytes, workers * (int64_t)j->slot_bytes);
}

tutti_status_t tt_winograd_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                     const float *dy, void *dw)
{
    job_t j = {.w = tt_winograd_plan(conv->in, conv->size, conv->padding, conv->out_size),
               .conv = conv,
               .gemm = tt_gemm_ops(TUTTI_F32),
               .x = x,
               .dy = dy,
               .dw = dw};
    const int64_t columns = j.w.ops->columns;
    j.blocks = tt_pieces_of(conv->out, columns);
    j.w_step = tt_winograd_step(tt_winograd_tiles(&j.w) * columns);
    j.s_step = tt_winograd_step(conv->in * columns);
    cut_runs(&j);
    plan_slot(&j);
    const int64_t workers = tt_min(tt_threads_count(threads), conv->groups * j.runs);
    size_t bytes = 0;
    lay_out(&j, workers, NULL, &bytes);
    char *block = tt_threads_borrow(threads, bytes);
    TT_TRY_ALLOC(block);
    bytes = 0;
    lay_out(&j, workers, block, &bytes);
    tt_winograd_list(&j.w, j.tile_at, j.channel_at);
    tt_threads_run(threads, (size_t)workers, add_runs_piece, &j);
    tt_threads_run(threads, (size_t)(conv->groups * j.blocks * conv->in), write_piece, &j);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}
