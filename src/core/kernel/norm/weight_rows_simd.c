/* Weight norm of one row. Sums are in 16 lanes on every instruction set, which have the same bits;
 * the operation waits for memory anyway. */
#include <math.h>

#include "core/kernel/norm/weight_rows.h"
#include "core/kernel/vector.h"

enum { LANES = 16 };

static tt_real_t dot(const tt_real_t *a, const tt_real_t *b, size_t n)
{
    tt_real_t sum[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            sum[i] += a[at + i] * b[at + i];
        }
    }
    for (size_t i = 0; at + i < n; i++) {
        sum[i] += a[at + i] * b[at + i];
    }
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            sum[i] += sum[i + width];
        }
    }
    return sum[0];
}

/* out = factor (a - slope b) */
static void combine(tt_real_t *restrict out, tt_real_t factor, const tt_real_t *a, tt_real_t slope,
                    const tt_real_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = factor * (a[i] - slope * b[i]);
    }
}

static void scale(tt_real_t *restrict out, tt_real_t factor, const tt_real_t *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = factor * a[i];
    }
}

static void forward(const tt_weight_norm_t *norm, size_t row)
{
    const size_t n = norm->n;
    const tt_real_t *v = (const tt_real_t *)norm->v + row * n;
    const tt_real_t length = (tt_real_t)sqrt((double)dot(v, v, n));
    scale((tt_real_t *)norm->w + row * n, ((const tt_real_t *)norm->g)[row] / length, v, n);
    if (norm->length != NULL) {
        ((tt_real_t *)norm->length)[row] = length;
    }
}

static void backward(const tt_weight_norm_t *norm, size_t row)
{
    const size_t n = norm->n;
    const tt_real_t *v = (const tt_real_t *)norm->v + row * n;
    const tt_real_t *dw = (const tt_real_t *)norm->dw + row * n;
    const tt_real_t length = ((const tt_real_t *)norm->length)[row], dg = dot(dw, v, n) / length;
    if (norm->dg != NULL) {
        ((tt_real_t *)norm->dg)[row] = dg;
    }
    if (norm->dv != NULL) {
        const tt_real_t factor = ((const tt_real_t *)norm->g)[row] / length;
        combine((tt_real_t *)norm->dv + row * n, factor, dw, dg / length, v, n);
    }
}

extern const tt_weight_rows_ops_t TT_ISA_NAME(tt_weight_rows_ops);

const tt_weight_rows_ops_t TT_ISA_NAME(tt_weight_rows_ops) = {forward, backward};
