/* Interpolation on rows, by loops that the compiler makes vectors of. */
#include "core/kernel/pool/interpolate_ops.h"

#include "core/kernel/vector.h"

static void blend_rows(void *y, const void *a, const void *b, double weight, int64_t n)
{
    const tt_real_t *first = a, *second = b;
    const tt_real_t w = (tt_real_t)weight;
    tt_real_t *to = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (1 - w) * first[i] + w * second[i];
    }
}

static void blend_columns(void *y, const void *x, const tt_places_t *from, int64_t n)
{
    const tt_real_t *row = x, *w = from->weight;
    const int32_t *lower = from->lower, *upper = from->upper;
    tt_real_t *to = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (1 - w[i]) * row[lower[i]] + w[i] * row[upper[i]];
    }
}

static void spread_nearest(void *x, const void *dy, const tt_places_t *to, int64_t n)
{
    tt_real_t *row = x;
    for (int64_t i = 0; i < n; i++) {
        row[to->lower[i]] += ((const tt_real_t *)dy)[i];
    }
}

static void spread_columns(void *x, const void *dy, const tt_places_t *to, int64_t n)
{
    const tt_real_t *from = dy, *w = to->weight;
    tt_real_t *row = x;
    for (int64_t i = 0; i < n; i++) {
        row[to->lower[i]] += (1 - w[i]) * from[i];
        row[to->upper[i]] += w[i] * from[i];
    }
}

static void add_row(void *x, const void *y, double factor, int64_t n)
{
    const tt_real_t *from = y;
    const tt_real_t f = (tt_real_t)factor;
    tt_real_t *to = x;
    for (int64_t i = 0; i < n; i++) {
        to[i] += f * from[i];
    }
}

extern const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops);

const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops) = {
    blend_rows, blend_columns, spread_nearest, spread_columns, add_row,
};
