/* Sums over taps, in vectors of y: rows lie in order, columns are gathered. Taps are added in their
 * order, each product rounded. */
#include "core/kernel/pool/interpolate_ops.h"

#include "core/kernel/vector.h"

enum { BLOCK = TT_TAPS_BLOCK };

static void blend_rows(void *y, const void *x, int64_t n, const tt_taps_t *taps, int64_t i)
{
    for (int64_t at = 0; at < n; at += TT_LANES) {
        const size_t left = (size_t)(n - at);
        tt_vf sum = {0};
        for (int64_t k = i; k < taps->most * taps->stride; k += taps->stride) {
            const tt_real_t weight = ((const tt_real_t *)taps->weight)[k];
            const tt_real_t *row = (const tt_real_t *)x + taps->index[k] * n + at;
            if (weight != 0) {
                sum += weight * (left < TT_LANES ? tt_vload_n(row, left) : tt_vload(row));
            }
        }
        if (left < TT_LANES) {
            tt_vstore_n((tt_real_t *)y + at, sum, left);
        } else {
            tt_vstore((tt_real_t *)y + at, sum);
        }
    }
}

static void blend_block(tt_real_t *sum, const tt_real_t *x, const tt_taps_t *taps, int64_t at)
{
    for (int64_t k = 0; k < taps->most; k++, at += taps->stride) {
        const tt_real_t *weight = (const tt_real_t *)taps->weight + at;
        const int32_t *index = taps->index + at;
        for (int l = 0; l < BLOCK; l++) {
            const tt_real_t more = sum[l] + weight[l] * x[index[l]];
            sum[l] = weight[l] != 0 ? more : sum[l];
        }
    }
}

static void blend_columns(void *y, const void *x, const tt_taps_t *taps)
{
    for (int64_t at = 0; at < taps->n; at += BLOCK) {
        const int64_t left = taps->n - at;
        tt_real_t sum[BLOCK] = {0};
        blend_block(sum, x, taps, at);
        memcpy((tt_real_t *)y + at, sum, (size_t)(left < BLOCK ? left : BLOCK) * sizeof *sum);
    }
}

extern const tt_grid_ops_t TT_ISA_NAME(tt_grid_ops);
extern const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops);

const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops) = {blend_rows, blend_columns,
                                                              &TT_ISA_NAME(tt_grid_ops)};
