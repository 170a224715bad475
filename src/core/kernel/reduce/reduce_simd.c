/* The folds of floats. Rows: lane l takes elements l, l + 16, …; lanes past the end keep what they
 * have. Columns: 16 vectors of them at a time stay in registers while the rows go by. */
#include "core/kernel/reduce/reduce_ops.h"

#include <math.h>

#include "core/kernel/kernels.h"
#include "core/kernel/vmath.h"

enum { STRIP_PARTS = 16, STRIP = STRIP_PARTS * TT_LANES };

static tt_real_t tt_v16_product(tt_v16_t v)
{
    tt_real_t x[16];
    memcpy(x, &v, sizeof x);
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            x[i] *= x[i + width];
        }
    }
    return x[0];
}

#define TT_FOLD(fold, identity, step, lanes, i64, join)                                            \
    static double row_##fold(const void *x_row, size_t n, double mean)                             \
    {                                                                                              \
        const tt_real_t *px = x_row;                                                               \
        const tt_vf m = tt_vsplat((tt_real_t)mean);                                                \
        (void)m;                                                                                   \
        tt_v16_t sum = tt_v16_splat((tt_real_t)(identity));                                        \
        size_t i = 0;                                                                              \
        for (; i + 16 <= n; i += 16) {                                                             \
            for (int part = 0; part < TT_PARTS; part++) {                                          \
                const tt_vf x = tt_vload(px + i + part * TT_LANES), acc = sum.part[part];          \
                sum.part[part] = step;                                                             \
            }                                                                                      \
        }                                                                                          \
        for (int part = 0; i < n; part++, i += TT_LANES) {                                         \
            const size_t left = n - i < TT_LANES ? n - i : TT_LANES;                               \
            const tt_vf x = tt_vload_n(px + i, left), acc = sum.part[part], all = step;            \
            tt_vstore_n((tt_real_t *)&sum.part[part], all, left);                                  \
        }                                                                                          \
        return (double)lanes(sum);                                                                 \
    }                                                                                              \
                                                                                                   \
    static void strip_##fold(tt_real_t *pacc, const tt_fold_block_t *block, size_t at)             \
    {                                                                                              \
        tt_vf keep[STRIP_PARTS];                                                                   \
        const tt_real_t *rows = block->x, *mean = block->mean;                                     \
        memcpy(keep, pacc + at, sizeof keep);                                                      \
        for (size_t r = 0; r < block->rows; r++) {                                                 \
            const tt_real_t *px = rows + (int64_t)r * block->row_stride + at;                      \
            for (int part = 0; part < STRIP_PARTS; part++) {                                       \
                const tt_vf x = tt_vload(px + part * TT_LANES), acc = keep[part];                  \
                const tt_vf m = tt_vload(mean + at + part * TT_LANES);                             \
                (void)m;                                                                           \
                keep[part] = step;                                                                 \
            }                                                                                      \
        }                                                                                          \
        memcpy(pacc + at, keep, sizeof keep);                                                      \
    }                                                                                              \
                                                                                                   \
    static void column_##fold(void *acc_row, const tt_fold_block_t *block)                         \
    {                                                                                              \
        const tt_real_t *rows = block->x, *mean = block->mean;                                     \
        tt_real_t *pacc = acc_row;                                                                 \
        size_t at = 0;                                                                             \
        for (; at + STRIP <= block->n; at += STRIP) {                                              \
            strip_##fold(pacc, block, at);                                                         \
        }                                                                                          \
        for (; at < block->n; at += TT_LANES) {                                                    \
            const size_t left = block->n - at < TT_LANES ? block->n - at : TT_LANES;               \
            const tt_vf m = tt_vload_n(mean + at, left);                                           \
            (void)m;                                                                               \
            tt_vf acc = tt_vload_n(pacc + at, left);                                               \
            for (size_t r = 0; r < block->rows; r++) {                                             \
                const tt_vf x = tt_vload_n(rows + (int64_t)r * block->row_stride + at, left);      \
                acc = step;                                                                        \
            }                                                                                      \
            tt_vstore_n(pacc + at, acc, left);                                                     \
        }                                                                                          \
    }
#include "core/kernel/reduce/folds.def"
#undef TT_FOLD

extern const tt_reduce_ops_t TT_ISA_NAME(tt_reduce_ops);

const tt_reduce_ops_t TT_ISA_NAME(tt_reduce_ops) = {
#define TT_FOLD(fold, ...)                                                                         \
    .row[TT_FOLD_##fold] = row_##fold, .column[TT_FOLD_##fold] = column_##fold,
#include "core/kernel/reduce/folds.def"
#undef TT_FOLD
};
