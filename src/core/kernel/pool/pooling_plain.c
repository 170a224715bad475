/* Pooling of one plane by plain loops in f64: for f64, for windows of unequal sizes and for strides
 * that leave most columns alone. */
#include "core/kernel/pool/pooling_ops.h"

#include <math.h>

static void max_window(const double *x, int64_t width, tt_span_t rows, tt_span_t columns, double *y,
                       int32_t *at)
{
    int64_t best = rows.count > 0 && columns.count > 0 ? rows.first * width + columns.first : -1;
    double largest = (double)-INFINITY;
    for (int64_t a = 0; a < rows.count; a++) {
        for (int64_t b = 0; b < columns.count; b++) {
            const int64_t i =
                (rows.first + a * rows.step) * width + columns.first + b * columns.step;
            if (x[i] > largest || isnan(x[i])) {
                largest = x[i];
                best = i;
            }
        }
    }
    *y = largest;
    if (at != NULL) {
        *at = (int32_t)best;
    }
}

void tt_pooling_max_plain(const tt_pooling_t *p, const double *x, double *y, int32_t *at)
{
    for (int64_t i = 0; i < p->out_size[0]; i++) {
        const tt_span_t rows = tt_pooling_span(p, 0, i);
        for (int64_t j = 0; j < p->out_size[1]; j++, y++) {
            max_window(x, p->size[1], rows, tt_pooling_span(p, 1, j), y, at);
            at = at == NULL ? NULL : at + 1;
        }
    }
}

static double divisor_of(const tt_pooling_t *p, tt_span_t rows, tt_span_t columns)
{
    return p->divisor != 0 ? (double)p->divisor : (double)rows.extent * (double)columns.extent;
}

void tt_pooling_average_plain(const tt_pooling_t *p, const double *x, double *y)
{
    for (int64_t i = 0; i < p->out_size[0]; i++) {
        const tt_span_t rows = tt_pooling_span(p, 0, i);
        for (int64_t j = 0; j < p->out_size[1]; j++) {
            const tt_span_t columns = tt_pooling_span(p, 1, j);
            double sum = 0;
            for (int64_t h = rows.first; h < rows.first + rows.count; h++) {
                for (int64_t w = columns.first; w < columns.first + columns.count; w++) {
                    sum += x[h * p->size[1] + w];
                }
            }
            *y++ = sum / divisor_of(p, rows, columns);
        }
    }
}

void tt_pooling_average_backward_plain(const tt_pooling_t *p, const double *dy, double *dx)
{
    for (int64_t i = 0; i < p->size[0] * p->size[1]; i++) {
        dx[i] = 0;
    }
    for (int64_t i = 0; i < p->out_size[0]; i++) {
        const tt_span_t rows = tt_pooling_span(p, 0, i);
        for (int64_t j = 0; j < p->out_size[1]; j++) {
            const tt_span_t columns = tt_pooling_span(p, 1, j);
            const double share = *dy++ / divisor_of(p, rows, columns);
            for (int64_t h = rows.first; h < rows.first + rows.count; h++) {
                for (int64_t w = columns.first; w < columns.first + columns.count; w++) {
                    dx[h * p->size[1] + w] += share;
                }
            }
        }
    }
}
