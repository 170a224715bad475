/**
 * @file reduction.h
 * How the contributions of several ranks become one value.
 *
 * Example:
 *
 *     printf("%s: %d ways to reduce\n", tutti_reduction_name(TUTTI_AVG), TUTTI_REDUCTION_COUNT);
 */
#ifndef TUTTI_REDUCTION_H
#define TUTTI_REDUCTION_H

#include <stdint.h>

#include <tutti/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Every reduction: X(identifier, name, what it does).
 *
 * Floats take SUM to MAX; whole numbers all but AVG; bool PRODUCT (all), MIN (all), MAX (any) and
 * the bitwise ones. PREMUL_SUM is for floats, in calls that take a factor. 16-bit floats are
 * combined in f32 and rounded once. MIN and MAX give NaN when any contribution is NaN. Sums of
 * whole numbers wrap around.
 *
 * MINLOC and MAXLOC, for floats, i32 and i64, combine pairs: element 2 i is a value, element 2 i +
 * 1 its index, of the same dtype (f32 holds whole numbers up to 2^24 exactly, f64 up to 2^53, bf16
 * up to 2^8). Of equal values the lower index stays, so also of -0 and 0. A NaN is smaller than
 * everything in MINLOC and larger in MAXLOC; of several the one with the lowest index stays. Every
 * part that is reduced has whole pairs.
 */
#define TUTTI_REDUCTION_LIST(X)                                                                    \
    X(TUTTI_SUM, "sum", "the sum, in the canonical order")                                         \
    X(TUTTI_AVG, "avg", "the sum divided once by the number of contributions")                     \
    X(TUTTI_PRODUCT, "product", "the product, in the canonical order")                             \
    X(TUTTI_MIN, "min", "the smallest")                                                            \
    X(TUTTI_MAX, "max", "the largest")                                                             \
    X(TUTTI_BAND, "band", "bitwise and")                                                           \
    X(TUTTI_BOR, "bor", "bitwise or")                                                              \
    X(TUTTI_BXOR, "bxor", "bitwise exclusive or")                                                  \
    X(TUTTI_PREMUL_SUM, "premul_sum", "the sum of contributions times factors (collectives.h)")    \
    X(TUTTI_MINLOC, "minloc", "of pairs (value, index): the smallest value, with its index")       \
    X(TUTTI_MAXLOC, "maxloc", "of pairs (value, index): the largest value, with its index")        \
    X(TUTTI_CUSTOM, "custom", "a function of the program's own (tutti_custom_reduction_t)")

typedef enum tutti_reduction {
#define X(identifier, name, about) identifier,
    TUTTI_REDUCTION_LIST(X)
#undef X
        TUTTI_REDUCTION_COUNT
} tutti_reduction_t;

/**
 * Combine `count` elements: inout[i] becomes inout[i] combined with in[i]. inout holds what lower
 * ranks contributed, in what higher ones did. The two do not overlap.
 *
 * It is associative, and a pure function of the two: it is called for parts of a tensor, in any
 * order of parts, on any rank, and maybe again for the same ones. It runs in the thread of the
 * group, inside whatever call starts, tests or waits for something of that group or of one made of
 * the same world. It calls nothing of Tutti's and waits for nothing, as other ranks wait for it.
 *
 * @param dtype  of the tensor; f32 for 16-bit floats, which are rounded once, at the end
 * @param user   as it was given on this rank
 */
typedef void (*tutti_combine_fn_t)(void *inout, const void *in, int64_t count, tutti_dtype_t dtype,
                                   void *user);

/**
 * A reduction of the program's own; all but `combine` and `user` is the same on every rank. The
 * call that it is passed to copies it. What `combine` and `user` point to must be there until the
 * call is done; of a prepared call, until it is released and its last start is done.
 */
typedef struct tutti_custom_reduction {
    const char *name;           /**< 1 to 15 bytes; ranks that pass different ones get MISMATCH */
    tutti_combine_fn_t combine; /**< not NULL */
    void *user;                 /**< handed to combine */
    int width;                  /**< numbers of an element: 1, 2, 4, … 64; 0 means 1 */
    uint32_t dtypes;            /**< what it takes: 1u << TUTTI_F32 | …; 0: every dtype */
    bool commutes;              /**< a with b is b with a: algorithms that do not keep the order
                                     of ranks may be forced (TUTTI_ALGO); else they are not used */
} tutti_custom_reduction_t;

/** The short name, such as "avg"; "?" for an unknown value. @thread any @errors none */
TUTTI_API const char *tutti_reduction_name(tutti_reduction_t reduction);

#ifdef __cplusplus
}
#endif

#endif
