/* Convolutions of 3 × 3 taps and stride 1 by Winograd's F(2 × 2, 3 × 3): 16 products for 4 elements
 * instead of 36. In f32 only: the sums it takes before and after the products would cost bf16 its
 * last bits. An infinity may become NaN, and does so for its neighbours within a tile too.
 *
 *     y = Aᵀ [Σ c (G w Gᵀ) ∘ (Bᵀ x B)] A           x: 4 × 4, from every second row and column
 *     dw = Gᵀ [Σ tiles (A dy Aᵀ) ∘ (Bᵀ x B)] G
 *
 * Each of the 16 places is a matrix product of its own, done in tiles (conv_ops.h). What is common:
 * images cut into chunks of about 64 such 4 × 4, whose V = Bᵀ x B is [16, channels, v_pitch].
 * Places are never a power of two apart, lest they all fall into one set of the cache.
 * Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016).
 */
#ifndef TT_CONV_WINOGRAD_H
#define TT_CONV_WINOGRAD_H

#include <stdbool.h>

#include "core/kernel/conv/conv.h"
#include "core/kernel/conv/conv_ops.h"

enum { TT_WINOGRAD_PLACES = 16, TT_WINOGRAD_TAPS = 9 };

typedef struct {
    const tt_conv_ops_t *ops;
    int64_t channels, size[2], before[2]; /* of the image, and zeros in front */
    int64_t tiles[2];                     /* of an image */
    int64_t images, rows;           /* of a chunk: several images whole, or rows of tiles of one */
    int64_t v_row, v_pitch, v_step; /* floats from row to row, channel to channel, place to place */
} tt_winograd_t;

/* Whether it can be had and pays. */
bool tt_winograd_suits(const tt_conv_t *conv);

/* Of images of `channels` and `size`, `padding` zeros in front, that give `out_size`. */
tt_winograd_t tt_winograd_plan(int64_t channels, const int64_t size[2], const int64_t padding[2],
                               const int64_t out_size[2]);

/* Floats from place to place of matrices of so many floats. */
int64_t tt_winograd_step(int64_t floats);

/* Tiles in a full chunk, and floats of its V. */
int64_t tt_winograd_tiles(const tt_winograd_t *winograd);
int64_t tt_winograd_v_floats(const tt_winograd_t *winograd);

/* Where V has each tile of a chunk, and each channel, in bytes. */
void tt_winograd_list(const tt_winograd_t *winograd, int64_t *tile_at, int64_t *channel_at);

/* Some rows of tiles of some images, `image_floats` from one to the next. */
typedef struct {
    const float *image;
    int64_t image_floats, images, row, rows;
} tt_winograd_chunk_t;

/* V of them. */
void tt_winograd_transform(const tt_winograd_t *winograd, const tt_winograd_chunk_t *chunk,
                           float *v);

tutti_status_t tt_winograd_forward(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                   const float *weight, const float *bias, void *y);
tutti_status_t tt_winograd_to_x(tt_threads_t *threads, const tt_conv_t *conv, const float *dy,
                                const float *weight, const float *bias, void *dx);
tutti_status_t tt_winograd_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                     const float *dy, void *dw);

#endif
