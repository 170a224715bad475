/* Segments of channels in f64, by plain loops: for gradient checks. */
#include "core/kernel/norm/channels_f64.h"

static double sum(const void *x, size_t n, tutti_dtype_t dtype)
{
    (void)dtype;
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        total += ((const double *)x)[i];
    }
    return total;
}

static double squares(const void *x, size_t n, double mean, tutti_dtype_t dtype)
{
    (void)dtype;
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = ((const double *)x)[i] - mean;
        total += d * d;
    }
    return total;
}

static void dot(const void *dy, const void *x, size_t n, double mean, double sums[2],
                tutti_dtype_t dtype)
{
    (void)dtype;
    for (size_t i = 0; i < n; i++) {
        const double g = ((const double *)dy)[i];
        sums[0] += g;
        sums[1] += g * (((const double *)x)[i] - mean);
    }
}

static void scale(void *y, const void *x, size_t n, const tt_segment_scale_t *to,
                  tutti_dtype_t dtype)
{
    (void)dtype;
    for (size_t i = 0; i < n; i++) {
        ((double *)y)[i] = (((const double *)x)[i] - to->mean) * to->factor + to->plus;
    }
}

static void slope(void *dx, const void *dy, const void *x, size_t n, const tt_segment_slope_t *to,
                  tutti_dtype_t dtype)
{
    (void)dtype;
    for (size_t i = 0; i < n; i++) {
        const double d = ((const double *)x)[i] - to->mean;
        ((double *)dx)[i] = to->of_dy * ((const double *)dy)[i] + to->of_x * d + to->plus;
    }
}

const tt_channels_ops_t tt_channels_ops_f64 = {sum, squares, dot, scale, slope};
