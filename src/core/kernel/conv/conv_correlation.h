/* A convolution as sums over planes while it runs: what conv.c lists and packs, and conv_run.c goes
 * through. */
#ifndef TT_CONV_CORRELATION_H
#define TT_CONV_CORRELATION_H

#include <stdatomic.h>
#include <string.h>

#include "core/kernel/conv/conv_impl.h"
#include "core/kernel/conv/conv_ops.h"

/* What is worked on together: places of a tile's positions, steps, blocks of columns. */
enum {
    TT_CONV_RUN_PLACES = 16,
    TT_CONV_RUN_STEPS = 256,
    TT_CONV_RUN_BLOCKS = 16,
    TT_CONV_TILE_FLOATS = TT_CONV_ROWS_MAX * TT_CONV_COLUMNS_MAX,
};

/* A tap of the kernel along a dimension, and the place of the padded image it sees at first. */
typedef struct {
    int64_t tap, place;
} tt_conv_reach_t;

/* Positions start, start + step, … along a dimension, and what they see. */
typedef struct {
    int64_t start, step, count;
    const tt_conv_reach_t *reach;
    int64_t reaches;
} tt_conv_phase_t;

/* Positions of the result that see the same taps. */
typedef struct {
    const tt_conv_phase_t *phase[2];
    int64_t first_position, first_step;
} tt_conv_view_t;

typedef struct {
    const tt_conv_t *conv;
    bool is_to_x;
    tt_window_t window;
    const tt_conv_ops_t *ops;
    bool is_in_tiles;                 /* AMX's: conv_tiles.c */
    int64_t channels;                 /* of a group's result */
    int64_t size[2], positions;       /* of the result */
    int64_t units, unit_steps, steps; /* steps of a tap; of all views */
    int64_t columns, blocks;          /* channels of a block of the result */
    int64_t step_floats;              /* of a block's weights; in AMX's tiles a channel is a row */
    bool is_gathered;                 /* planes are copied to panels, else read where they lie */
    int64_t pieces, images_per_piece;
    int64_t phase_count[2];
    const char *image, *weight, *bias;
    char *out;
    tt_conv_reach_t *reach[2];
    tt_conv_phase_t *phases[2];
    tt_conv_view_t *views, *views_end;
    bool is_cleared; /* the result is zeros first: no view has the positions that see nothing */
    int64_t *row_at, *step_at; /* of positions and steps, view after view */
    int64_t *weight_at;        /* of steps, where AMX has their weights */
    float *weights, *biases;   /* [groups, blocks, steps, step_floats], [groups, blocks, columns] */
    char *slots;               /* scratch of each thread: planes, panels, sums */
    size_t slot_bytes, panels_at, sums_at; /* sums: behind planes and panels */
    atomic_size_t next;
} tt_correlation_t;

static inline int64_t tt_correlation_columns(const tt_correlation_t *c, int64_t block)
{
    return tt_min(c->columns, c->channels - block * c->columns);
}

/* Units of a step. */
static inline int64_t tt_correlation_depth(const tt_correlation_t *c)
{
    return tt_pieces_of(c->units, c->unit_steps);
}

/* image: of a group. */
static inline void tt_correlation_clear(const tt_correlation_t *c, int64_t image)
{
    const int64_t bytes =
        c->channels * c->positions * (int64_t)tutti_dtype_bytes(c->conv->out_dtype);
    if (c->is_cleared) {
        memset(c->out + image * bytes, 0, (size_t)bytes);
    }
}

/* Of AMX's sums: floats from channel to channel. */
int64_t tt_correlation_pitch(const tt_correlation_t *c);
void tt_correlation_tiles_piece(void *arg, size_t piece);

/* Thread `piece` of those that share the images. arg: tt_correlation_t. */
void tt_correlation_piece(void *arg, size_t piece);

#endif
