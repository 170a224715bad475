/**
 * @file op_reduce.h
 * Sums, means, extremes and their like, over all elements or over chosen dimensions.
 *
 * Example:
 *
 *     tutti_tensor_t *best;
 *     tutti_tensor_t *all = tutti_sum(s, x);                               // a scalar
 *     tutti_tensor_t *rows = tutti_mean_over(s, x, TUTTI_DIMS(-1), false); // [B,T,C] -> [B,T]
 *     tutti_tensor_t *top = tutti_max_along(s, x, -1, false, &best);       // values, and where
 *
 * Reduced dimensions disappear, or stay with size 1 where `keepdim` is true. An empty list of
 * dimensions (TUTTI_ALL_DIMS) means all of them. In the formulas g is the gradient of the result
 * y, spread over the reduced dimensions again; n counts the elements behind one result.
 *
 * Sums are made in f32 (f64 for f64, i64 for integers) in an order that depends on the shape
 * alone, and rounded once: neither threads nor strides change a bit. Cost of each: one pass over x.
 */
#ifndef TUTTI_OP_REDUCE_H
#define TUTTI_OP_REDUCE_H

#include <tutti/op_shape.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sums ------------------------------------------------------------------------------------ */

/** Sum of everything, a scalar; integers and bool give i64. dx = g. @thread the scope's
 *  @errors NOMEM @source torch.sum */
TUTTI_API tutti_tensor_t *tutti_sum(tutti_scope_t *s, tutti_tensor_t *x);
/** Sum over dimensions. dx = g. @thread the scope's @errors ARG (dims), NOMEM
 *  @source torch.sum */
TUTTI_API tutti_tensor_t *tutti_sum_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                         bool keepdim);

/** Mean of everything, a scalar; integers give f32; NaN of nothing. dx = g / n.
 *  @thread the scope's @errors NOMEM @source torch.mean */
TUTTI_API tutti_tensor_t *tutti_mean(tutti_scope_t *s, tutti_tensor_t *x);
/** Mean over dimensions. dx = g / n. @thread the scope's @errors ARG (dims), NOMEM
 *  @source torch.mean */
TUTTI_API tutti_tensor_t *tutti_mean_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                          bool keepdim);

/**
 * Variance over dimensions: sum of (x - mean)² / (n - correction), about a mean that
 * is corrected by its differences from x.
 * dx = g 2 (x - mean) / (n - correction).
 *
 * @param correction  1: unbiased (PyTorch's default); 0: of the population
 * @return            integers give f32; NaN where n ≤ correction
 * @thread            the scope's
 * @errors            ARG (dims), NOMEM
 * @source            torch.var
 */
TUTTI_API tutti_tensor_t *tutti_var_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                         bool keepdim, double correction);
/** Variance of everything, unbiased. @thread the scope's @errors NOMEM @source torch.var */
TUTTI_API tutti_tensor_t *tutti_var(tutti_scope_t *s, tutti_tensor_t *x);

/** Product of everything; integers and bool give i64. dx = g × the product of the others.
 *  @thread the scope's @errors NOMEM @source torch.prod */
TUTTI_API tutti_tensor_t *tutti_prod(tutti_scope_t *s, tutti_tensor_t *x);
/** Product over dimensions. dx = g × the product of the others (also where some are 0).
 *  @thread the scope's @errors ARG (dims), NOMEM @source torch.prod */
TUTTI_API tutti_tensor_t *tutti_prod_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                          bool keepdim);

/* ---- extremes -------------------------------------------------------------------------------- */

/** The largest element; NaN if there is one. g is shared evenly by all that are equal to it.
 *  @thread the scope's @errors SHAPE (of nothing), NOMEM @source torch.amax */
TUTTI_API tutti_tensor_t *tutti_max(tutti_scope_t *s, tutti_tensor_t *x);
/** The largest over dimensions. @thread the scope's @errors ARG (dims), SHAPE (of nothing), NOMEM
 *  @source torch.amax */
TUTTI_API tutti_tensor_t *tutti_max_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                         bool keepdim);
/** The smallest element; NaN if there is one. g is shared evenly by all that are equal to it.
 *  @thread the scope's @errors SHAPE (of nothing), NOMEM @source torch.amin */
TUTTI_API tutti_tensor_t *tutti_min(tutti_scope_t *s, tutti_tensor_t *x);
/** The smallest over dimensions. @thread the scope's @errors ARG (dims), SHAPE (of nothing), NOMEM
 *  @source torch.amin */
TUTTI_API tutti_tensor_t *tutti_min_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                         bool keepdim);

/**
 * The largest along one dimension, and where it is.
 *
 * @param indices  out, i64, of the result's shape; the first of equal ones; NULL: not wanted
 * @return         the values. dx = g at the index, 0 elsewhere
 * @thread         the scope's
 * @errors         ARG (dim), SHAPE (of nothing), NOMEM
 * @source         torch.max with dim
 */
TUTTI_API tutti_tensor_t *tutti_max_along(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                          bool keepdim, tutti_tensor_t **indices);

/**
 * The smallest along one dimension, and where it is.
 *
 * @param indices  out, i64, of the result's shape; the first of equal ones; NULL: not wanted
 * @return         the values. dx = g at the index, 0 elsewhere
 * @thread         the scope's
 * @errors         ARG (dim), SHAPE (of nothing), NOMEM
 * @source         torch.min with dim
 */
TUTTI_API tutti_tensor_t *tutti_min_along(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                          bool keepdim, tutti_tensor_t **indices);

/** Index of the largest along one dimension, the first of equal ones (a NaN counts as largest);
 *  i64. @thread the scope's @errors ARG (dim), SHAPE (of nothing), NOMEM @source torch.argmax */
TUTTI_API tutti_tensor_t *tutti_argmax(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool keepdim);
/** Index of the smallest along one dimension, the first of equal ones (a NaN counts as smallest);
 *  i64. @thread the scope's @errors ARG (dim), SHAPE (of nothing), NOMEM @source torch.argmin */
TUTTI_API tutti_tensor_t *tutti_argmin(tutti_scope_t *s, tutti_tensor_t *x, int dim, bool keepdim);

/* ---- logic: bool, without gradients --------------------------------------------------------- */

/** Whether any element is not zero; false of nothing. @thread the scope's @errors NOMEM
 *  @source torch.any */
TUTTI_API tutti_tensor_t *tutti_any(tutti_scope_t *s, tutti_tensor_t *x);
/** The same over dimensions. @thread the scope's @errors ARG (dims), NOMEM @source torch.any */
TUTTI_API tutti_tensor_t *tutti_any_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                         bool keepdim);
/** Whether no element is zero; true of nothing. @thread the scope's @errors NOMEM
 *  @source torch.all */
TUTTI_API tutti_tensor_t *tutti_all(tutti_scope_t *s, tutti_tensor_t *x);
/** The same over dimensions. @thread the scope's @errors ARG (dims), NOMEM @source torch.all */
TUTTI_API tutti_tensor_t *tutti_all_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,
                                         bool keepdim);

#ifdef __cplusplus
}
#endif

#endif
