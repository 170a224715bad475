/**
 * @file op_index.h
 * Order, running sums, and writing by index.
 *
 * Example:
 *
 *     tutti_tensor_t *scores = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(8, 100), 0, 1), *classes;
 *     tutti_tensor_t *best = tutti_topk(s, scores, 5, -1, &classes);  // [8, 5], and where
 *     tutti_tensor_t *wanted = tutti_one_hot(s, classes, 100);        // [8, 5, 100]
 *     tutti_tensor_t *sums = tutti_cumsum(s, tutti_softmax(s, best, -1), -1);
 *     tutti_tensor_t *next = tutti_multinomial(s, tutti_softmax(s, scores, -1), 1, true);
 *
 * Sorting is stable: of equal elements the earlier one comes first, in either direction, and so do
 * they in topk. NaN counts as larger than every number; 0 and -0 are equal. Dimensions count from
 * the end when negative. In the formulas g is the gradient of the result, and dx that of x.
 */
#ifndef TUTTI_OP_INDEX_H
#define TUTTI_OP_INDEX_H

#include <tutti/op_shape.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- order ----------------------------------------------------------------------------------- */

/**
 * The elements of each line along a dimension in order.
 *
 * @param indices  out, i64, of x's shape: where each of them was; NULL: not wanted
 * @return         [x's shape], any dtype. dx = g where each element was
 * @thread         the scope's
 * @cost           up to 1,024 elements of a line n log n, of more three passes (64-bit types: six)
 * @errors         ARG (dim), NOMEM
 * @source         torch.sort with stable=True
 */
TUTTI_API tutti_tensor_t *tutti_sort(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool descending,
                                     tutti_tensor_t **indices);

/** Where the elements in order were; i64, of x's shape. @thread the scope's
 *  @errors ARG (dim), NOMEM @source torch.argsort with stable=True */
TUTTI_API tutti_tensor_t *tutti_argsort(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                        bool descending);

/**
 * The k largest elements of each line, the largest first.
 *
 * @param k        at most the size of the dimension; 0 gives nothing
 * @param indices  out, i64, of the result's shape: where each of them was; NULL: not wanted
 * @return         as x, with k at dim. dx = g where each element was, 0 elsewhere
 * @thread         the scope's
 * @cost           one pass where k is a small part, else a sort
 * @errors         ARG (dim, k), NOMEM
 * @source         torch.topk
 */
TUTTI_API tutti_tensor_t *tutti_topk(tutti_scope_t *s, tutti_tensor_t *x, int64_t k, int dim,
                                     tutti_tensor_t **indices);

/** The same for the k smallest elements, the smallest first. @thread the scope's
 *  @errors ARG (dim, k), NOMEM @source torch.topk with largest=False */
TUTTI_API tutti_tensor_t *tutti_topk_smallest(tutti_scope_t *s, tutti_tensor_t *x, int64_t k,
                                              int dim, tutti_tensor_t **indices);

/* ---- running sums and products --------------------------------------------------------------- */

/**
 * The sum of all elements up to each one, along a dimension. Floats are added up in f64 and rounded
 * once for each element.
 *
 * @return  [x's shape]; integers and bool give i64. dx[j] = Σ g[i] over i ≥ j
 * @thread  the scope's
 * @cost    one pass
 * @errors  ARG (dim), NOMEM
 * @source  torch.cumsum
 */
TUTTI_API tutti_tensor_t *tutti_cumsum(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/**
 * The product of all elements up to each one, along a dimension, in f64 and rounded once for each
 * element.
 *
 * @return  [x's shape]; integers and bool give i64. dx[j] = Σ g[i] Π x[k] over i ≥ j, and k ≤ i but
 *          j: exact where some x are 0, and where products leave the range of floats and come back
 * @thread  the scope's
 * @cost    one pass; backward two, in f64
 * @errors  ARG (dim), NOMEM
 * @source  torch.cumprod
 */
TUTTI_API tutti_tensor_t *tutti_cumprod(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/* ---- classes --------------------------------------------------------------------------------- */

/**
 * Classes as rows with a single 1.
 *
 * @param x        [...], i64, i32 or u8, in [0, classes)
 * @param classes  at least 1; PyTorch's default, one more than the largest of x, would have to wait
 *                 for x: tutti_tensor_item(tutti_max(s, x)) + 1
 * @return         [..., classes], i64
 * @thread         the scope's
 * @cost           one pass over the result
 * @errors         ARG (classes; a class outside: its element and value), DTYPE, NOMEM
 * @source         torch.nn.functional.one_hot
 */
TUTTI_API tutti_tensor_t *tutti_one_hot(tutti_scope_t *s, tutti_tensor_t *x, int64_t classes);

/**
 * Indices, each drawn with the probability that its weight has among those of its row. Weights of 0
 * are never drawn. Numbers come from the context's next stream (tensor.h), the same for any number
 * of threads; PyTorch draws others.
 *
 * @param weights      [..., C], floating, finite and not below 0; they need not add up to 1
 * @param count        how many draws of each row, at least 1
 * @param replacement  false: each index at most once, and count no more than the weights above 0
 * @return             [..., count], i64
 * @thread             the scope's
 * @cost               C and count log C for each row; without replacement C log C
 * @errors             ARG (count; a weight or row that cannot be drawn from: which), SHAPE, DTYPE,
 *                     NOMEM
 * @source             torch.multinomial; Efraimidis and Spirakis, "Weighted random sampling with a
 *                     reservoir" (2006)
 */
TUTTI_API tutti_tensor_t *tutti_multinomial(tutti_scope_t *s, tutti_tensor_t *weights,
                                            int64_t count, bool replacement);

/* ---- writing by index ------------------------------------------------------------------------ */

/**
 * x with a source added at chosen indices of a dimension: y[index[i]][j] += source[i][j] for dim 0.
 * Equal indices add in their order; 16-bit floats are added up in f32. PyTorch's alpha is
 * tutti_mul_scalar() of the source.
 *
 * @param index   i64 or i32, [N]
 * @param source  of x's dtype and shape, but with N at dim
 * @return        [x's shape]. dx = g, and the gradient of the source is g at the indices
 * @thread        the scope's
 * @cost          one pass over x and one over the source
 * @errors        ARG (dim, an index out of range), SHAPE, DTYPE, NOMEM
 * @source        torch.index_add
 */
TUTTI_API tutti_tensor_t *tutti_index_add(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                          tutti_tensor_t *index, tutti_tensor_t *source);

/**
 * x with elements of a source at chosen places: y[i][index[i][j][k]][k] = source[i][j][k] for
 * dim 1. Of elements with one place the last one stands there. (tutti_scatter() is the collective.)
 *
 * @param index   i64 or i32, of x's rank, no larger than the source, nor than x but at dim
 * @param source  of x's dtype and rank; what lies outside the index's sizes is not used
 * @return        [x's shape]. dx = g, 0 at the places; to the source goes g at the place where an
 *                element stands, and 0 if it was overwritten (PyTorch: g to all of them)
 * @thread        the scope's
 * @cost          one pass over x and one over the index
 * @errors        ARG (dim, an index out of range), SHAPE, DTYPE, NOMEM
 * @source        torch.scatter
 */
TUTTI_API tutti_tensor_t *tutti_scatter_along(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                              tutti_tensor_t *index, tutti_tensor_t *source);

/** The same, but added to what is there; sums as in tutti_index_add(). dx = g, and to the source
 *  goes g at the places. @thread the scope's
 *  @errors ARG (dim, an index out of range), SHAPE, DTYPE, NOMEM @source torch.scatter_add */
TUTTI_API tutti_tensor_t *tutti_scatter_along_add(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                                  tutti_tensor_t *index, tutti_tensor_t *source);

#ifdef __cplusplus
}
#endif

#endif
