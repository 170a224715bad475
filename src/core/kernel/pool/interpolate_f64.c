/* Interpolation on rows of f64: for gradient checks. */
#include "core/kernel/pool/interpolate_ops.h"

static void blend_rows(void *y, const void *a, const void *b, double weight, int64_t n)
{
    const double *first = a, *second = b;
    const double w = weight;
    double *to = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (1 - w) * first[i] + w * second[i];
    }
}

static void blend_columns(void *y, const void *x, const tt_places_t *from, int64_t n)
{
    const double *row = x, *w = from->weight_f64;
    const int32_t *lower = from->lower, *upper = from->upper;
    double *to = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (1 - w[i]) * row[lower[i]] + w[i] * row[upper[i]];
    }
}

static void spread_nearest(void *x, const void *dy, const tt_places_t *to, int64_t n)
{
    double *row = x;
    for (int64_t i = 0; i < n; i++) {
        row[to->lower[i]] += ((const double *)dy)[i];
    }
}

static void spread_columns(void *x, const void *dy, const tt_places_t *to, int64_t n)
{
    double *row = x;
    for (int64_t i = 0; i < n; i++) {
        const double g = ((const double *)dy)[i], w = to->weight_f64[i];
        row[to->lower[i]] += (1 - w) * g;
        row[to->upper[i]] += w * g;
    }
}

static void add_row(void *x, const void *y, double factor, int64_t n)
{
    const double *from = y;
    const double f = factor;
    double *to = x;
    for (int64_t i = 0; i < n; i++) {
        to[i] += f * from[i];
    }
}

const tt_interpolate_ops_t tt_interpolate_ops_f64 = {
    blend_rows, blend_columns, spread_nearest, spread_columns, add_row,
};
