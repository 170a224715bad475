/**
 * @file op_pad.h
 * The same elements at other places: padding, rolling, flipping, triangles, windows; and einsum.
 *
 * Example:
 *
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 32, 32));
 *     tutti_tensor_t *wide = tutti_pad(s, image, TUTTI_PADDING(1, 1, 2, 2), // width, then height
 *                                      TUTTI_PAD_REFLECT, 0);               // [8, 3, 36, 34]
 *     tutti_tensor_t *mirrored = tutti_flip(s, image, TUTTI_DIMS(-1));
 *     tutti_tensor_t *patches = tutti_unfold(s, image,
 *         &(tutti_unfold_options_t){.kernel = {4, 4}, .stride = {4, 4}}); // [8, 48, 64]
 *     tutti_tensor_t *gram = tutti_einsum(s, "nchw,ndhw->ncd",
 *                                         (tutti_tensor_t *[]){image, image}, 2);
 *
 * In the formulas g is the gradient of the result, and dx that of x.
 */
#ifndef TUTTI_OP_PAD_H
#define TUTTI_OP_PAD_H

#include <tutti/op_shape.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- padding --------------------------------------------------------------------------------- */

/** How many elements before and after the last dimension, then those of the one before it, … */
typedef struct tutti_padding {
    int count; /**< two for each dimension */
    int64_t sizes[2 * TUTTI_RANK_MAX];
} tutti_padding_t;

/** A padding from its sizes, in PyTorch's order: TUTTI_PADDING(left, right, top, bottom). */
#define TUTTI_PADDING(...)                                                                         \
    ((tutti_padding_t){.count = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),         \
                       .sizes = {__VA_ARGS__}})

/** What stands beside x. */
typedef enum tutti_pad_mode {
    TUTTI_PAD_CONSTANT,  /**< a value */
    TUTTI_PAD_REFLECT,   /**< x mirrored at its first and last element, which is not repeated */
    TUTTI_PAD_REPLICATE, /**< its first and its last element */
    TUTTI_PAD_CIRCULAR   /**< x again, from the other end */
} tutti_pad_mode_t;

/**
 * x with elements beside it, or, where a size is negative, without some of its own. What is cut
 * away is not repeated by TUTTI_PAD_CIRCULAR.
 *
 * @param value  of TUTTI_PAD_CONSTANT, as x's dtype holds it
 * @return       a copy of any dtype. dx = g of each element of x, added up over where it stands
 * @thread       the scope's
 * @cost         one pass; backward one, in f32 (f64)
 * @errors       ARG (an odd number of sizes, more than x has dimensions, a size that is more than
 *               is cut away or reflected, a value that the dtype does not hold), SHAPE (nothing to
 *               replicate), NOMEM
 * @source       torch.nn.functional.pad
 */
TUTTI_API tutti_tensor_t *tutti_pad(tutti_scope_t *s, tutti_tensor_t *x, tutti_padding_t padding,
                                    tutti_pad_mode_t mode, double value);

/* ---- other orders ---------------------------------------------------------------------------- */

/**
 * Elements moved along dimensions, and around the end: y[i] = x[(i - shift) mod n].
 *
 * @param shifts  one for each dimension, such as TUTTI_SHAPE(1, -2)
 * @param dims    such as TUTTI_DIMS(0, 2); TUTTI_ALL_DIMS with one shift: all elements in a row
 * @return        [x's shape], a copy. dx is g rolled back
 * @thread        the scope's
 * @cost          one pass
 * @errors        ARG (not a shift for each dimension, no such dimension), NOMEM
 * @source        torch.roll
 */
TUTTI_API tutti_tensor_t *tutti_roll(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shifts,
                                     tutti_dims_t dims);

/** A copy in which the order of some dimensions is reversed; of none by TUTTI_ALL_DIMS. dx is g
 *  flipped. @thread the scope's @errors ARG (no such dimension, one twice), NOMEM
 *  @source torch.flip */
TUTTI_API tutti_tensor_t *tutti_flip(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims);

/** Matrices [..., H, W] without what is above a diagonal: 0 where column - row > diagonal. dx = g
 *  where x is kept. @thread the scope's @errors SHAPE (no matrix), NOMEM @source torch.tril */
TUTTI_API tutti_tensor_t *tutti_tril(tutti_scope_t *s, tutti_tensor_t *x, int64_t diagonal);

/** Matrices [..., H, W] without what is below a diagonal: 0 where column - row < diagonal. dx = g
 *  where x is kept. @thread the scope's @errors SHAPE (no matrix), NOMEM @source torch.triu */
TUTTI_API tutti_tensor_t *tutti_triu(tutti_scope_t *s, tutti_tensor_t *x, int64_t diagonal);

/* ---- windows --------------------------------------------------------------------------------- */

/** Where windows lie, {height, width}. */
typedef struct tutti_unfold_options {
    int64_t kernel[2];
    int64_t stride[2];   /**< 0: 1 */
    int64_t padding[2];  /**< zeros on either side */
    int64_t dilation[2]; /**< between the elements of a window; 0: 1 */
} tutti_unfold_options_t;

/**
 * Windows of planes as columns.
 *
 * @param x  [N, C, H, W] or [C, H, W], any dtype
 * @return   [N, C kH kW, L], or without N, L windows in row-major order. dx = g added up where each
 *           element came from: tutti_fold()
 * @thread   the scope's
 * @cost     one pass over the result
 * @errors   SHAPE, ARG (no window fits), NOMEM
 * @source   torch.nn.functional.unfold
 */
TUTTI_API tutti_tensor_t *tutti_unfold(tutti_scope_t *s, tutti_tensor_t *x,
                                       const tutti_unfold_options_t *options);

/**
 * Columns added up as the windows of planes [height, width]; in f32 (f64), rounded once.
 *
 * @param x  [N, C kH kW, L] or [C kH kW, L], floating, as tutti_unfold() gives it
 * @return   [N, C, height, width], or without N. dx = the windows of g: tutti_unfold()
 * @thread   the scope's
 * @cost     one pass over x
 * @errors   SHAPE, DTYPE, ARG (no window fits), NOMEM
 * @source   torch.nn.functional.fold
 */
TUTTI_API tutti_tensor_t *tutti_fold(tutti_scope_t *s, tutti_tensor_t *x, int64_t height,
                                     int64_t width, const tutti_unfold_options_t *options);

/* ---- sums of products ------------------------------------------------------------------------ */

/**
 * Sums of products by names of dimensions: "bij,bjk->bik" is a batch of matrix products. A letter
 * that the result lacks is summed over; one that a term has twice stands for its diagonal; "..."
 * for all dimensions that have no letter, which are broadcast. Without "->" the result has, behind
 * those of "...", the letters that occur once, in alphabetical order.
 *
 * Terms are taken from left to right, two at a time, as matrix products where letters are summed.
 *
 * @param equation  letters a to z and A to Z; blanks are skipped
 * @param terms     [count], of one dtype or promoted; no step may need more than eight dimensions
 * @return          of the promoted dtype, of integers that are summed i64; its gradients are those
 *                  of the operations that it consists of
 * @thread          the scope's
 * @cost            that of the products; terms whose dimensions lie in another order are copied
 * @errors          ARG (the equation: what is wrong with it), SHAPE (sizes of one letter differ, a
 *                  term has another number of dimensions), NOMEM
 * @source          torch.einsum
 */
TUTTI_API tutti_tensor_t *tutti_einsum(tutti_scope_t *s, const char *equation,
                                       tutti_tensor_t *const *terms, int count);

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
/* C++ has no compound literals: the same macros, by functions. */
template <typename... Sizes> inline tutti_padding_t tutti_padding_of(Sizes... sizes)
{
    static_assert(sizeof...(sizes) <= 2 * TUTTI_RANK_MAX, "a padding has at most sixteen sizes");
    return tutti_padding_t{static_cast<int>(sizeof...(sizes)), {static_cast<int64_t>(sizes)...}};
}
#undef TUTTI_PADDING
#define TUTTI_PADDING(...) tutti_padding_of(__VA_ARGS__)
#endif

#endif
