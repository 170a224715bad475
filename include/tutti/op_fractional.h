/**
 * @file op_fractional.h
 * Fractional max pooling: windows whose distances vary, so that sizes shrink by any factor.
 *
 * Example:
 *
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 50, 32)), *indices;
 *     tutti_tensor_t *y = tutti_fractional_max_pool2d(s, image, NULL,
 *         &(tutti_fractional_pool_options_t){.kernel = {3, 3}, .ratio = {0.7, 0.7}},
 *         &indices); // [8, 3, 35, 22]
 */
#ifndef TUTTI_OP_FRACTIONAL_H
#define TUTTI_OP_FRACTIONAL_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Over planes {height, width}, over volumes {depth, height, width}. */
typedef struct tutti_fractional_pool_options {
    int64_t kernel[3]; /**< size of the windows */
    int64_t size[3];   /**< of y; 0: by the ratio */
    double ratio[3];   /**< in (0, 1): y has the whole part of ratio L */
} tutti_fractional_pool_options_t;

/**
 * The largest of each window of planes. With u of the plane's samples and a = (L - kernel) /
 * (size - 1), window i begins at ⌊(i + u) a⌋ - ⌊u a⌋, and the last one at L - kernel.
 *
 * @param x        [N, C, H, W] or [C, H, W], floating
 * @param samples  [N, C, 2] in [0, 1), floating: u of the width and of the height of each plane, in
 *                 PyTorch's order; NULL: drawn from the call's stream, as tutti_uniform() draws
 * @param options  borrowed
 * @param indices  out, i64, of y's shape: places in a plane, as tutti_max_unpool2d() wants them;
 * may
 *                 be NULL
 * @return         [N, C, H', W'] or [C, H', W']; dx = g at the indices, added up
 * @thread         the scope's
 * @cost           the windows are gathered: kernel H kernel W elements and indices for each of y's
 * @errors         SHAPE (also size + kernel - 1 > L), DTYPE, ARG (the options), NOMEM
 * @source         torch.nn.functional.fractional_max_pool2d; Graham, "Fractional max-pooling"
 *                 (2014)
 */
TUTTI_API tutti_tensor_t *
tutti_fractional_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *samples,
                            const tutti_fractional_pool_options_t *options,
                            tutti_tensor_t **indices);

/** The same over volumes [N, C, D, H, W] or [C, D, H, W]; samples [N, C, 3] of the depth, the
 * height and the width. @thread the scope's @errors SHAPE, DTYPE, ARG, NOMEM
 *  @source torch.nn.functional.fractional_max_pool3d */
TUTTI_API tutti_tensor_t *
tutti_fractional_max_pool3d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *samples,
                            const tutti_fractional_pool_options_t *options,
                            tutti_tensor_t **indices);

#ifdef __cplusplus
}
#endif

#endif
