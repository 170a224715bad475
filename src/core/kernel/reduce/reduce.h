/* Reductions over any set of dimensions of an operand of any strides.
 *
 *     // x[B,T,C] -> out[1,1,C]: dims 0 and 1
 *     tt_reduce(exec, TT_REDUCE_SUM, (tt_reduce_params_t){0}, out, x, 1u << 0 | 1u << 1);
 *
 * out has x's rank, with size 1 in the reduced dims. Sums run in f32 for f32, bf16 and f16, in
 * f64 for f64, in i64 for integers, and are rounded once. The order of every sum is a
 * function of shape and dims alone: neither strides nor threads change a bit. NaN wins max, min,
 * argmax and argmin. Over nothing: sum 0, prod 1, any 0, all 1, max -inf, min inf, mean and var
 * NaN, arg 0; for integers max and min give the lowest and the highest i64.
 */
#ifndef TT_REDUCE_H
#define TT_REDUCE_H

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* X(KIND, name, what it computes) */
#define TT_REDUCE_LIST(X)                                                                          \
    X(SUM, "sum", "sum of x")                                                                      \
    X(MEAN, "mean", "sum of x / count; in floats")                                                 \
    X(SUM_SQUARES, "sum_squares", "sum of x²")                                                     \
    X(PROD, "prod", "product of x")                                                                \
    X(MAX, "max", "largest x")                                                                     \
    X(MIN, "min", "smallest x")                                                                    \
    X(ANY, "any", "whether an x is not 0")                                                         \
    X(ALL, "all", "whether no x is 0")                                                             \
    X(ARGMAX, "argmax", "index of the first largest x, row-major over the reduced dims")           \
    X(ARGMIN, "argmin", "index of the first smallest x")                                           \
    X(VAR, "var", "sum of (x - mean)² / (count - correction), in three passes")

typedef enum {
#define X(kind, name, about) TT_REDUCE_##kind,
    TT_REDUCE_LIST(X)
#undef X
        TT_REDUCE_COUNT
} tt_reduce_t;

typedef struct {
    double correction; /* of VAR */
} tt_reduce_params_t;

/* out's dtype is free: the result is converted (ARGMAX and ARGMIN: i64 or i32). Errors: those of a
 * launch, none on a CPU. */
TT_LAUNCHES tutti_status_t tt_reduce(tt_exec_t *exec, tt_reduce_t kind, tt_reduce_params_t params,
                                     const tt_strided_t *out, const tt_strided_t *x, unsigned dims);

const char *tt_reduce_name(tt_reduce_t kind);

#endif
