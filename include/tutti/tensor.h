/**
 * @file tensor.h
 * Tensors: strided views of typed memory.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(2, 2), (float[]){1, 2, 3, 4});
 *     const float *p = tutti_tensor_data(x);
 *     printf("%lld rows, first element %g\n", (long long)tutti_tensor_dim(x, 0), p[0]);
 *
 * After a failure an operation returns the scope's null tensor: rank 0, no data, no elements,
 * and tutti_tensor_status() is the failure. It is safe to pass on.
 */
#ifndef TUTTI_TENSOR_H
#define TUTTI_TENSOR_H

#include <stddef.h>

#include <tutti/context.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_RANK_MAX = 8 };

/** Sizes of up to eight dimensions. Rank 0 is a scalar: one element. */
typedef struct tutti_shape {
    int rank;
    int64_t dims[TUTTI_RANK_MAX];
} tutti_shape_t;

/** A shape from its sizes: TUTTI_SHAPE(2, 3). */
#define TUTTI_SHAPE(...)                                                                           \
    ((tutti_shape_t){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),            \
                     .dims = {__VA_ARGS__}})

/** The shape of a scalar. */
#define TUTTI_SCALAR ((tutti_shape_t){.rank = 0})

/** Number of elements. @thread any @errors none */
TUTTI_API int64_t tutti_shape_numel(tutti_shape_t shape);
/** Whether two shapes are equal. @thread any @errors none */
TUTTI_API bool tutti_shape_equal(tutti_shape_t a, tutti_shape_t b);
/** "[2, 3]" into text (at most bytes, always ended); returns text. @thread any @errors none */
TUTTI_API char *tutti_shape_format(tutti_shape_t shape, char *text, size_t bytes);

/* ---- made in a scope, which owns them; the null tensor on failure ------------------------- */

/** Uninitialised memory. @thread the scope's @errors ARG, NOMEM, through the scope */
TUTTI_API tutti_tensor_t *tutti_empty(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape);
/** Uninitialised memory of the host, whatever the context's device is, that is pinned: copies
 *  between it and a device return at once, as of tutti_tensor_pin() (devices.h).
 *  @thread the scope's @errors ARG, NOMEM, through the scope @source torch.empty(pin_memory=True)
 */
TUTTI_API tutti_tensor_t *tutti_empty_pinned(tutti_scope_t *s, tutti_dtype_t dtype,
                                             tutti_shape_t shape);
/** All zero. @thread the scope's @errors ARG, NOMEM, through the scope */
TUTTI_API tutti_tensor_t *tutti_zeros(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape);
/** All one. @thread the scope's @errors ARG, NOMEM, through the scope */
TUTTI_API tutti_tensor_t *tutti_ones(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape);
/** All `value`. @thread the scope's @errors ARG, NOMEM, through the scope */
TUTTI_API tutti_tensor_t *tutti_full(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                     double value);
/** [n] start, start + step, … below n elements. @thread the scope's @errors ARG, NOMEM */
TUTTI_API tutti_tensor_t *tutti_arange(tutti_scope_t *s, tutti_dtype_t dtype, double start,
                                       double step, int64_t n);
/** A copy of shape-many contiguous elements. @thread the scope's @errors ARG, NOMEM */
TUTTI_API tutti_tensor_t *tutti_from_data(tutti_scope_t *s, tutti_dtype_t dtype,
                                          tutti_shape_t shape, const void *data);

/* ---- owned by the caller ------------------------------------------------------------------ */

/**
 * A tensor of zeros that belongs to no scope, such as a parameter.
 *
 * @param out  owned by the caller, to be released with tutti_tensor_release
 * @thread     any
 * @errors     ARG, NOMEM
 */
TUTTI_API tutti_status_t tutti_tensor_create(tutti_dtype_t dtype, tutti_shape_t shape,
                                             tutti_tensor_t **out);

/**
 * A tensor over the caller's memory, which must outlive it and every view of it. Tensors that wrap
 * the same memory do not know of each other: a write through one is not seen by the others.
 *
 * @param data  borrowed, shape-many contiguous elements, aligned as C wants elements of dtype
 * @thread      any
 * @errors      ARG (the shape, the alignment), NOMEM
 */
TUTTI_API tutti_status_t tutti_tensor_wrap(tutti_dtype_t dtype, tutti_shape_t shape, void *data,
                                           tutti_tensor_t **out);

/** Share a tensor; it then outlives its scope. @thread any @errors none */
TUTTI_API tutti_tensor_t *tutti_tensor_retain(tutti_tensor_t *x);
/** Give a tensor back; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_tensor_release(tutti_tensor_t *x);

/* ---- looking ------------------------------------------------------------------------------ */

/** TUTTI_OK, or the failure that a null tensor stands for. @thread any @errors none */
TUTTI_API tutti_status_t tutti_tensor_status(const tutti_tensor_t *x);
/** Type of the elements. @thread any @errors none */
TUTTI_API tutti_dtype_t tutti_tensor_dtype(const tutti_tensor_t *x);
/** Number of dimensions. @thread any @errors none */
TUTTI_API int tutti_tensor_rank(const tutti_tensor_t *x);
/** All sizes. @thread any @errors none */
TUTTI_API tutti_shape_t tutti_tensor_shape(const tutti_tensor_t *x);
/** Size of a dimension; negative counts from the end; 0 outside. @thread any @errors none */
TUTTI_API int64_t tutti_tensor_dim(const tutti_tensor_t *x, int dim);
/** Step of a dimension, in elements; negative counts from the end. @thread any @errors none */
TUTTI_API int64_t tutti_tensor_stride(const tutti_tensor_t *x, int dim);
/** Number of elements. @thread any @errors none */
TUTTI_API int64_t tutti_tensor_numel(const tutti_tensor_t *x);
/** numel × bytes of the dtype. @thread any @errors none */
TUTTI_API size_t tutti_tensor_bytes(const tutti_tensor_t *x);
/** Whether the elements lie in order without gaps. @thread any @errors none */
TUTTI_API bool tutti_tensor_is_contiguous(const tutti_tensor_t *x);
/** The first element; NULL for a null tensor. A write through this pointer is not seen: a backward
 *  that needs the old values runs with the new ones, and an optimizer's f32 master of a 16-bit
 *  parameter stays as it was. tutti_tensor_copy_from() is seen, and so is every other call that
 *  writes a tensor, collectives and messages too. @thread any @errors none */
TUTTI_API void *tutti_tensor_data(const tutti_tensor_t *x);
/** The only element, as a double; NaN if there is not exactly one. Waits where x lies on a device;
 *  NaN where it cannot be had: tutti_last_error() says why. A failure of the device's work stays
 * for tutti_device_synchronize(), and what is launched is skipped meanwhile. @thread any @errors
 * none */
TUTTI_API double tutti_tensor_item(const tutti_tensor_t *x);
/** The element at a flat (row-major) index, as a double; NaN outside, and as tutti_tensor_item().
 *  @thread any @errors none */
TUTTI_API double tutti_tensor_at(const tutti_tensor_t *x, int64_t index);
/** "f32[2, 3]" into text; returns text. @thread any @errors none */
TUTTI_API char *tutti_tensor_describe(const tutti_tensor_t *x, char *text, size_t bytes);

/** How tutti_tensor_format() writes. */
typedef struct tutti_format_options {
    int precision;      /**< most digits behind the point, 1 to 15; 0: 8 */
    int64_t threshold;  /**< of more elements only the outer ones are shown; 0: 1000 */
    int64_t edge_items; /**< of these, so many at each end of a dimension; 0: 3 */
    int line_width;     /**< columns; 0: 75 */
} tutti_format_options_t;

/**
 * The numbers, as NumPy prints an array: the fewest digits that tell each from its neighbours in
 * x's dtype, in columns, with an exponent where they differ by more than 1000.
 *
 *     char text[4096];
 *     (void)tutti_tensor_format(x, NULL, text, sizeof text);
 *     puts(text); // [[ 1.   2.5 -3. ]
 *                 //  [ 4.   0.   6. ]]
 *
 * @param options  NULL: the defaults
 * @param text     [bytes], out: as much as there is room for, with a 0 at its end
 * @return         the length of the whole, without the 0; 0 where there is no value to read
 *                 (tutti_last_error())
 * @thread         any
 * @cost           a copy of x, where it lies on a device or is not contiguous
 * @errors         none but that
 * @source         numpy.array2string
 */
TUTTI_API size_t tutti_tensor_format(const tutti_tensor_t *x, const tutti_format_options_t *options,
                                     char *text, size_t bytes);

/* ---- writing, outside autograd: a backward that needs the old values fails with STATE ------- */

/** Set every element. @thread one at a time per tensor @errors STATE */
TUTTI_API tutti_status_t tutti_tensor_fill(tutti_tensor_t *x, double value);
/** Copy values; equal shapes, any dtypes and strides. Both may share memory, and are then copied by
 *  way of more. A float that becomes an integer is cut to an i64 first: its fraction goes, NaN is
 * 0, what is larger is the largest one. Of an integer a narrower one keeps the low bits; a float
 * that is too large for its dtype is infinite (as in PyTorch, where the first is undefined).
 *  @thread one at a time @errors SHAPE, STATE, NOMEM */
TUTTI_API tutti_status_t tutti_tensor_copy(tutti_tensor_t *to, const tutti_tensor_t *from);
/** Copy numel contiguous elements of x's dtype from memory. @thread one at a time @errors STATE */
TUTTI_API tutti_status_t tutti_tensor_copy_from(tutti_tensor_t *x, const void *data);

/* ---- random tensors -------------------------------------------------------------------------- */

/* Random tensors, the same on every machine and for every number of threads.
 *
 * Example:
 *
 *     tutti_tensor_t *w = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, 3), 0, 0.02);
 *     tutti_tensor_t *coins = tutti_bernoulli(s, TUTTI_BOOL, TUTTI_SHAPE(10), 0.5);
 *
 * Element i of a call is number i of a Philox stream that is named by the context's seed, step
 * and shard and by the number of random calls made since step or shard were set. So numbers
 * do not depend on what else was computed, and a repeated step repeats them. Unlike PyTorch there
 * is no generator with a state to be saved.
 *
 * Cost of each: one pass over the result.
 */

/** Uniform in [low, high), a floating type; low itself if both are equal. A number of the type that
 *  rounding would put outside becomes the nearest inside. @thread the scope's @errors ARG
 *  (low > high, no number of the type between them, a width that is not finite), DTYPE, NOMEM
 *  @source torch.Tensor.uniform_; Salmon et al., SC 2011 */
TUTTI_API tutti_tensor_t *tutti_uniform(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                        double low, double high);

/** Normal with mean and standard deviation, a floating type. @thread the scope's
 *  @errors ARG (std < 0), DTYPE, NOMEM @source torch.Tensor.normal_; Box and Muller, 1958 */
TUTTI_API tutti_tensor_t *tutti_normal(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                       double mean, double std);

/** Integers in [low, high), any type that holds them. @thread the scope's
 *  @errors ARG (low ≥ high, or beyond the type's range), NOMEM @source torch.randint */
TUTTI_API tutti_tensor_t *tutti_randint(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                        int64_t low, int64_t high);

/** One with the given probability, else zero; any type. @thread the scope's
 *  @errors ARG (outside [0, 1]), NOMEM @source torch.bernoulli */
TUTTI_API tutti_tensor_t *tutti_bernoulli(tutti_scope_t *s, tutti_dtype_t dtype,
                                          tutti_shape_t shape, double probability);

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
/* C++ has no compound literals: the same macros, by functions. */
template <typename... Sizes> inline tutti_shape_t tutti_shape_of(Sizes... sizes)
{
    static_assert(sizeof...(sizes) <= TUTTI_RANK_MAX, "a shape has at most eight dimensions");
    return tutti_shape_t{static_cast<int>(sizeof...(sizes)), {static_cast<int64_t>(sizes)...}};
}
#undef TUTTI_SHAPE
#define TUTTI_SHAPE(...) tutti_shape_of(__VA_ARGS__)
#undef TUTTI_SCALAR
#define TUTTI_SCALAR tutti_shape_of()
#endif

#endif
