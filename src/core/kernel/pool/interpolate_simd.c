/* Sums over taps, in vectors of y: rows lie in order, columns are gathered. Taps are added in their
 * order, each product rounded. */
#include "core/kernel/pool/interpolate_ops.h"

#include "core/kernel/vector.h"

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

/* A vector of y, from element i on. */
TT_INLINE tt_vf blend_vector(const tt_real_t *x, const tt_taps_t *taps, int64_t i)
{
    tt_vf sum = {0};
    for (int64_t k = i; k < taps->most * taps->stride; k += taps->stride) {
        const tt_vf weight = tt_vload((const tt_real_t *)taps->weight + k);
        sum = tt_vsel(weight != 0, sum + weight * tt_vgather(x, taps->index + k), sum);
    }
    return sum;
}

static void blend_columns(void *y, const void *x, const tt_taps_t *taps)
{
    int64_t i = 0;
    for (; i + TT_LANES <= taps->n; i += TT_LANES) {
        tt_vstore((tt_real_t *)y + i, blend_vector(x, taps, i));
    }
    if (i < taps->n) {
        tt_vstore_n((tt_real_t *)y + i, blend_vector(x, taps, i), (size_t)(taps->n - i));
    }
}

extern const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops);

const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops) = {blend_rows, blend_columns};
