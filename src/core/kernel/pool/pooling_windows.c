/* What windows see, and loops over them in f64, plane by plane: for f64, for windows of unequal
 * sizes and for strides that leave most columns alone. */
#include "core/kernel/pool/pooling_ops.h"

#include <math.h>

#include "core/base/integers.h"

tt_span_t tt_pooling_span(const tt_pooling_t *p, int dim, int64_t i)
{
    const int64_t size = p->size[dim], out = p->out_size[dim];
    if (p->is_adaptive) {
        const int64_t first = i * size / out, end = tt_pieces_of((i + 1) * size, out);
        return (tt_span_t){first, end - first, 1, end - first};
    }
    const int64_t kernel = p->kernel[dim], step = p->dilation[dim];
    const int64_t start = i * p->stride[dim] - p->padding[dim];
    const int64_t skipped = start < 0 ? tt_pieces_of(-start, step) : 0;
    const int64_t end = start >= size ? 0 : tt_min(kernel, tt_pieces_of(size - start, step));
    const int64_t count = end > skipped ? end - skipped : 0;
    const int64_t extent = tt_min(kernel, size + p->padding[dim] - start);
    return (tt_span_t){start + skipped * step, count, step, p->excludes_padding ? count : extent};
}

bool tt_pooling_is_disjoint(const tt_pooling_t *p)
{
    for (int i = 0; i < 2; i++) {
        const bool is_apart = p->is_adaptive
                                  ? p->size[i] % p->out_size[i] == 0
                                  : p->stride[i] >= p->dilation[i] * (p->kernel[i] - 1) + 1;
        if (!is_apart && p->out_size[i] > 1) {
            return false;
        }
    }
    return true;
}

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

static void find_largest(const tt_pooling_t *p, const double *x, double *y, int32_t *at)
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

static void average(const tt_pooling_t *p, const double *x, double *y)
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

static void average_backward(const tt_pooling_t *p, const double *dy, double *dx)
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

void tt_pooling_windows(const tt_pooling_t *p, tt_pooling_step_t step, const double *from,
                        double *to, int32_t *at)
{
    if (step == TT_POOLING_MAX) {
        find_largest(p, from, to, at);
    } else if (step == TT_POOLING_AVERAGE) {
        average(p, from, to);
    } else {
        average_backward(p, from, to);
    }
}
