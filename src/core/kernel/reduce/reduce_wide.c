/* Folds in i64, element by element in order, and how results of floats join in f64. */
#include <math.h>

#include "core/kernel/reduce/reduce_ops.h"

#define TT_FOLD(fold, identity, step, lanes, i64, how)                                             \
    static int64_t row_i64_##fold(int64_t acc, const int64_t *px, size_t n)                        \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const int64_t x = px[i];                                                               \
            (void)x;                                                                               \
            acc = (i64);                                                                           \
        }                                                                                          \
        return acc;                                                                                \
    }                                                                                              \
                                                                                                   \
    static double join_##fold(double a, double b)                                                  \
    {                                                                                              \
        return how;                                                                                \
    }                                                                                              \
                                                                                                   \
    static void join_all_##fold(double *total, const float *part, size_t n)                        \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const double a = total[i], b = (double)part[i];                                        \
            total[i] = (how);                                                                      \
        }                                                                                          \
    }
#include "core/kernel/reduce/folds.def"
#undef TT_FOLD

const tt_fold_wide_t tt_fold_wide[TT_FOLD_COUNT] = {
#define TT_FOLD(fold, identity, ...)                                                               \
    [TT_FOLD_##fold] = {(identity),                                                                \
                        (identity) < -1  ? INT64_MIN                                               \
                        : (identity) > 1 ? INT64_MAX                                               \
                        : (identity) > 0 ? 1                                                       \
                                         : 0,                                                      \
                        row_i64_##fold, join_##fold, join_all_##fold},
#include "core/kernel/reduce/folds.def"
#undef TT_FOLD
};
