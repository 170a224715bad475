/* Interpolation on rows of f32, by loops that the compiler makes vectors of. */
#include "core/kernel/pool/interpolate_ops.h"

static void blend_rows(void *y, const void *a, const void *b, double weight, int64_t n)
{
    const float *first = a, *second = b;
    const float w = (float)weight;
    float *to = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (1 - w) * first[i] + w * second[i];
    }
}

static void blend_columns(void *y, const void *x, const tt_places_t *from, int64_t n)
{
    const float *row = x, *w = from->weight;
    const int32_t *lower = from->lower, *upper = from->upper;
    float *to = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (1 - w[i]) * row[lower[i]] + w[i] * row[upper[i]];
    }
}

static void spread_nearest(void *x, const void *dy, const tt_places_t *to, int64_t n)
{
    float *row = x;
    for (int64_t i = 0; i < n; i++) {
        row[to->lower[i]] += ((const float *)dy)[i];
    }
}

static void spread_columns(void *x, const void *dy, const tt_places_t *to, int64_t n)
{
    float *row = x;
    for (int64_t i = 0; i < n; i++) {
        const float g = ((const float *)dy)[i], w = to->weight[i];
        row[to->lower[i]] += (1 - w) * g;
        row[to->upper[i]] += w * g;
    }
}

static void add_row(void *x, const void *y, double factor, int64_t n)
{
    const float *from = y;
    const float f = (float)factor;
    float *to = x;
    for (int64_t i = 0; i < n; i++) {
        to[i] += f * from[i];
    }
}

extern const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops);

const tt_interpolate_ops_t TT_ISA_NAME(tt_interpolate_ops) = {
    blend_rows, blend_columns, spread_nearest, spread_columns, add_row,
};
