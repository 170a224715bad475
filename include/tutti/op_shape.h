/**
 * @file op_shape.h
 * Other shapes, types and selections of the same elements.
 *
 * Example:
 *
 *     // [4, 16, 3, 2, 8]: queries, keys, values of [4, 2, 16, 8], without copying
 *     tutti_tensor_t *qkv = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 16, 3, 2, 8)), *part[3];
 *     tutti_split(s, qkv, 2, 3, part);
 *     tutti_tensor_t *q = tutti_transpose(s, tutti_squeeze(s, part[0], 2), 1, 2);
 *     tutti_tensor_t *rows = tutti_reshape(s, q, TUTTI_SHAPE(8, 16, -1)); // this one copies
 *
 * Dimensions count from 0, or from the end when negative (-1 is the last). A *view* shares its
 * memory with x and costs no more than a small struct; it sees what is written to x later. In the
 * formulas g is the gradient of the result, and dx that of x.
 */
#ifndef TUTTI_OP_SHAPE_H
#define TUTTI_OP_SHAPE_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A list of up to eight dimensions. Where it chooses what to reduce, an empty one means all. */
typedef struct tutti_dims {
    int count;
    int dims[TUTTI_RANK_MAX];
} tutti_dims_t;

/** Dimensions from their numbers: TUTTI_DIMS(0, -1). */
#define TUTTI_DIMS(...)                                                                            \
    ((tutti_dims_t){.count = (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)),                    \
                    .dims = {__VA_ARGS__}})

/** All dimensions. */
#define TUTTI_ALL_DIMS ((tutti_dims_t){.count = 0})

/* ---- views: the same elements in the same order -------------------------------------------- */

/**
 * A view of another shape. One size may be -1: whatever is left.
 *
 * @return  [shape], dx = g in x's shape
 * @thread  the scope's
 * @cost    O(1)
 * @errors  SHAPE (another number of elements; x's strides do not allow a view), NOMEM
 * @source  torch.Tensor.view
 */
TUTTI_API tutti_tensor_t *tutti_view(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape);

/**
 * The same elements in another shape: a view if x's strides allow one, else a copy.
 *
 * @return  [shape], dx = g in x's shape
 * @thread  the scope's
 * @cost    O(1), or one pass
 * @errors  SHAPE (another number of elements), NOMEM
 * @source  torch.reshape
 */
TUTTI_API tutti_tensor_t *tutti_reshape(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape);

/**
 * Dimensions first … last as one: [A, B, C, D] with 1, 2 gives [A, B × C, D]. A scalar gives [1].
 * A view if x's strides allow one, else a copy.
 *
 * @thread  the scope's
 * @errors  ARG (no such dimension, last before first), NOMEM
 * @source  torch.flatten
 */
TUTTI_API tutti_tensor_t *tutti_flatten(tutti_scope_t *s, tutti_tensor_t *x, int first, int last);

/** A view without dimension `dim`, which must have size 1 (PyTorch: else nothing happens).
 *  @thread the scope's @errors ARG, SHAPE, NOMEM @source torch.squeeze */
TUTTI_API tutti_tensor_t *tutti_squeeze(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/** A view with a new dimension of size 1 at position `dim` of the result. @thread the scope's
 *  @errors ARG, NOMEM @source torch.unsqueeze */
TUTTI_API tutti_tensor_t *tutti_unsqueeze(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/* ---- views: other orders, parts, repetitions ------------------------------------------------- */

/** A view with two dimensions exchanged. dx = the same of g. @thread the scope's
 *  @errors ARG, NOMEM @source torch.transpose */
TUTTI_API tutti_tensor_t *tutti_transpose(tutti_scope_t *s, tutti_tensor_t *x, int a, int b);

/** A view whose dimension i is x's dimension order[i]. dx = the inverse of g. @thread the scope's
 *  @errors ARG (not each dimension once), NOMEM @source torch.permute */
TUTTI_API tutti_tensor_t *tutti_permute(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t order);

/** Start, stop (not included) and step of a slice. */
typedef struct tutti_range {
    int64_t start, stop; /**< negative: from the end; beyond an end: that end */
    int64_t step;        /**< positive; 0 means 1 */
} tutti_range_t;

/** A range: TUTTI_RANGE(2, 5) is 2, 3, 4. */
#define TUTTI_RANGE(from, to) ((tutti_range_t){.start = (from), .stop = (to)})

/** A range from somewhere to the end. */
#define TUTTI_RANGE_FROM(from) ((tutti_range_t){.start = (from), .stop = INT64_MAX})

/**
 * A view of some indices of a dimension, as x[start:stop:step] in Python.
 *
 * @return  as x, with ⌈(stop - start) / step⌉ at dim. dx = g there, 0 elsewhere
 * @thread  the scope's
 * @cost    O(1); backward writes all of dx
 * @errors  ARG (no such dimension, negative step), NOMEM
 * @source  Python's slices
 */
TUTTI_API tutti_tensor_t *tutti_slice(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                      tutti_range_t range);

/** A view of `length` indices of a dimension from `start` on, all of which must exist.
 *  @thread the scope's @errors ARG, NOMEM @source torch.narrow */
TUTTI_API tutti_tensor_t *tutti_narrow(tutti_scope_t *s, tutti_tensor_t *x, int dim, int64_t start,
                                       int64_t length);

/** A view of one index (negative: from the end) of a dimension, which is dropped. dx = g there, 0
 *  elsewhere. @thread the scope's @errors ARG, NOMEM @source torch.select */
TUTTI_API tutti_tensor_t *tutti_select(tutti_scope_t *s, tutti_tensor_t *x, int dim, int64_t index);

/**
 * Cut a dimension into `count` views of equal size. The gradients of up to four parts are put
 * together in one tensor in one pass; those of more in log4(count) passes.
 *
 * @param count    divides the size of the dimension
 * @param outputs  out, [count]; the scope's
 * @thread         the scope's
 * @errors         ARG, SHAPE (count does not divide it), NOMEM
 * @source         torch.chunk
 */
TUTTI_API void tutti_split(tutti_scope_t *s, tutti_tensor_t *x, int dim, int count,
                           tutti_tensor_t **outputs);

/**
 * Cut a dimension into views of the given sizes, which add up to its size.
 *
 * @param sizes    such as TUTTI_SHAPE(3, 1, 4)
 * @param outputs  out, [sizes.rank]; the scope's
 * @thread         the scope's
 * @errors         ARG, SHAPE, NOMEM
 * @source         torch.split
 */
TUTTI_API void tutti_split_sizes(tutti_scope_t *s, tutti_tensor_t *x, int dim, tutti_shape_t sizes,
                                 tutti_tensor_t **outputs);

/**
 * A view in which dimensions of size 1, and missing leading ones, are repeated. A size of -1
 * keeps x's.
 *
 * @return  [shape]. dx = the sum of g over the repetitions
 * @thread  the scope's
 * @cost    O(1)
 * @errors  SHAPE, NOMEM
 * @source  torch.Tensor.expand
 */
TUTTI_API tutti_tensor_t *tutti_expand(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shape);

/* ---- copies ---------------------------------------------------------------------------------- */

/**
 * Tensors one behind the other along a dimension.
 *
 * @param tensors  [count], with the same sizes in all other dimensions; mixed types are promoted
 * @return         with the sum of their sizes at dim. The gradient of each is its slice of g
 * @thread         the scope's
 * @cost           one pass
 * @errors         ARG (none given, no such dimension), SHAPE, NOMEM
 * @source         torch.cat
 */
TUTTI_API tutti_tensor_t *tutti_cat(tutti_scope_t *s, tutti_tensor_t *const *tensors, int count,
                                    int dim);

/** Tensors of one shape along a new dimension, at position `dim` of the result. The gradient of
 *  each is its part of g. @thread the scope's @errors ARG, SHAPE, NOMEM @source torch.stack */
TUTTI_API tutti_tensor_t *tutti_stack(tutti_scope_t *s, tutti_tensor_t *const *tensors, int count,
                                      int dim);

/**
 * One element for each place of `index`: y[i][j][k] = x[i][index[i][j][k]][k] for dim 1.
 *
 * @param index  i64 or i32, of x's rank, no larger than x but at dim
 * @return       [index's shape]. dx = g added up at the chosen places
 * @thread       the scope's
 * @cost         one pass over index; backward zeroes dx first
 * @errors       ARG (an index out of range), SHAPE, DTYPE (index), NOMEM
 * @source       torch.gather
 */
TUTTI_API tutti_tensor_t *tutti_gather_along(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                             tutti_tensor_t *index);

/**
 * The chosen indices of a dimension: y[i][j] = x[index[i]][j] for dim 0.
 *
 * @param index  i64 or i32, [N]
 * @return       as x, with N at dim. dx = g added up at the chosen indices
 * @thread       the scope's
 * @cost         one pass over the result; backward zeroes dx first
 * @errors       ARG (an index out of range), SHAPE, DTYPE (index), NOMEM
 * @source       torch.index_select
 */
TUTTI_API tutti_tensor_t *tutti_index_select(tutti_scope_t *s, tutti_tensor_t *x, int dim,
                                             tutti_tensor_t *index);

/** The same values in another type; x itself if it has it. Floats are cut to integers toward
 *  zero. dx = g in x's type. @thread the scope's @errors NOMEM @source torch.Tensor.to */
TUTTI_API tutti_tensor_t *tutti_cast(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype);

/** A contiguous copy. dx = g. @thread the scope's @errors NOMEM @source torch.clone */
TUTTI_API tutti_tensor_t *tutti_clone(tutti_scope_t *s, tutti_tensor_t *x);

/** x itself if it is contiguous, else a contiguous copy. @thread the scope's @errors NOMEM
 *  @source torch.Tensor.contiguous */
TUTTI_API tutti_tensor_t *tutti_contiguous(tutti_scope_t *s, tutti_tensor_t *x);

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
/* C++ has no compound literals: the same macros, by functions. */
template <typename... Dims> inline tutti_dims_t tutti_dims_of(Dims... dims)
{
    static_assert(sizeof...(dims) <= TUTTI_RANK_MAX, "a tensor has at most eight dimensions");
    return tutti_dims_t{static_cast<int>(sizeof...(dims)), {static_cast<int>(dims)...}};
}
inline tutti_range_t tutti_range_of(int64_t from, int64_t to)
{
    return tutti_range_t{from, to, 0};
}
#undef TUTTI_DIMS
#define TUTTI_DIMS(...) tutti_dims_of(__VA_ARGS__)
#undef TUTTI_ALL_DIMS
#define TUTTI_ALL_DIMS tutti_dims_of()
#undef TUTTI_RANGE
#define TUTTI_RANGE(from, to) tutti_range_of(from, to)
#undef TUTTI_RANGE_FROM
#define TUTTI_RANGE_FROM(from) tutti_range_of(from, INT64_MAX)
#endif

#endif
