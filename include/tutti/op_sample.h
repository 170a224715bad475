/**
 * @file op_sample.h
 * Sampling at places that are computed: grids, and the grids of affine maps.
 *
 * Example:
 *
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 32, 32));
 *     tutti_tensor_t *theta = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 2, 3)); // a layer's result
 *     tutti_tensor_t *grid = tutti_affine_grid(s, theta, TUTTI_SHAPE(8, 3, 24, 24), false);
 *     tutti_tensor_t *y = tutti_grid_sample(s, image, grid, NULL);            // [8, 3, 24, 24]
 *     y = tutti_grid_sample(s, image, grid, &(tutti_grid_sample_options_t){
 *         .mode = TUTTI_GRID_BICUBIC, .padding = TUTTI_GRID_REFLECTION});
 *
 * Places are from -1 to 1 over the width, height and depth of x, in this order. Both functions have
 * gradients of any order. What is of 16 bits is computed in f32 and rounded once. Interpolation to
 * another size is tutti_interpolate() (op_conv.h).
 */
#ifndef TUTTI_OP_SAMPLE_H
#define TUTTI_OP_SAMPLE_H

#include <stdbool.h>

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What y is between elements of x. */
typedef enum tutti_grid_mode {
    TUTTI_GRID_BILINEAR, /**< between two in each dimension (of volumes: trilinear) */
    TUTTI_GRID_NEAREST,  /**< the nearest, of two the one whose index is even */
    TUTTI_GRID_BICUBIC,  /**< of four in each dimension, by cubic convolution with a = -0.75 */
} tutti_grid_mode_t;

/** What is outside of x. */
typedef enum tutti_grid_padding {
    TUTTI_GRID_ZEROS,
    TUTTI_GRID_BORDER,     /**< the nearest element at the edge */
    TUTTI_GRID_REFLECTION, /**< x mirrored, at its outer edges, or with align_corners at the middles
                                of its first and last elements */
} tutti_grid_padding_t;

typedef struct tutti_grid_sample_options {
    tutti_grid_mode_t mode;
    tutti_grid_padding_t padding;
    bool align_corners; /**< -1 and 1 are the middles of the first and last elements; else their
                             outer edges */
} tutti_grid_sample_options_t;

/**
 * x at the places of a grid: y[n,c,i,j] = x[n, c] at the column ((g[n,i,j,0] + 1) W - 1) / 2 and
 * the row ((g[n,i,j,1] + 1) H - 1) / 2, or with align_corners (g + 1) (size - 1) / 2.
 *
 * @param x        [N, C, H, W] or [N, C, D, H, W], floating
 * @param grid     [N, H', W', 2] or [N, D', H', W', 3], floating; infinite places are far outside
 *                   (of reflection they are none). A NaN gives NaN, where no padding or rounding
 *                   moves it to an element, and dx nothing
 * @param options  borrowed; NULL: bilinear, zeros
 * @return         [N, C, H', W'] or [N, C, D', H', W'] of the dtype that holds both;
 *                 dx = Σ weight dy, dgrid = Σ over c of dy × the slope of x there, 0 where padding
 *                 moved the place to an edge, and of the nearest
 * @thread         the scope's
 * @cost           4 gathers an element of y (nearest 1, bicubic 16; of volumes 8 and 64), as many
 *                 scatters for dx, as many gathers for dgrid; dx is computed by up to N C threads.
 *                 Keeps x, if the grid needs a gradient, and the grid; in f32 what is of 16 bits
 * @errors         SHAPE, DTYPE, ARG (the options), UNSUPPORTED (more than 2^31 - 1 elements in a
 *                 channel)
 * @source         torch.nn.functional.grid_sample; Jaderberg et al. 2015
 */
TUTTI_API tutti_tensor_t *tutti_grid_sample(tutti_scope_t *s, tutti_tensor_t *x,
                                            tutti_tensor_t *grid,
                                            const tutti_grid_sample_options_t *options);

/**
 * The grid of an affine map: grid[n,i,j] = theta[n] (x_j, y_i, 1), where x and y are the middles of
 * the columns and rows of a plane from -1 to 1, or with align_corners go from -1 to 1 (0 of one
 * alone); of volumes (x, y, z, 1).
 *
 * @param theta          [N, 2, 3] or [N, 3, 4], floating
 * @param size           of what will be sampled: [N, C, H', W'] or [N, C, D', H', W']; C counts for
 *                       nothing
 * @param align_corners  as in tutti_grid_sample_options_t
 * @return               [N, H', W', 2] or [N, D', H', W', 3] of theta's dtype;
 *                       dtheta = Σ g (x, y, 1)
 * @thread               the scope's
 * @cost                 two passes over the grid
 * @errors               SHAPE, DTYPE
 * @source               torch.nn.functional.affine_grid
 */
TUTTI_API tutti_tensor_t *tutti_affine_grid(tutti_scope_t *s, tutti_tensor_t *theta,
                                            tutti_shape_t size, bool align_corners);

#ifdef __cplusplus
}
#endif

#endif
