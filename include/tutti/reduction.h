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

#include <tutti/status.h>

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
    X(TUTTI_PREMUL_SUM, "premul_sum", "the sum of contributions times factors (collectives.h)")

typedef enum tutti_reduction {
#define X(identifier, name, about) identifier,
    TUTTI_REDUCTION_LIST(X)
#undef X
        TUTTI_REDUCTION_COUNT
} tutti_reduction_t;

/** The short name, such as "avg"; "?" for an unknown value. @thread any @errors none */
TUTTI_API const char *tutti_reduction_name(tutti_reduction_t reduction);

#ifdef __cplusplus
}
#endif

#endif
