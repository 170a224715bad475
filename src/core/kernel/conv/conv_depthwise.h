/* Convolutions whose groups have one channel each (depthwise), f32: no matrix products, so that
 * positions are in lanes, and a channel is read once for all taps.
 *
 *     y[u][i][j] = bias + Σ k  w[k] · planes[u][i pitch + j + tap_at[k]]
 *
 * A unit u is one channel of one image; its planes are those of conv_window.h, one behind the
 * other. An element is one chain of sums over the taps, as in conv.c; one of dw is a sum over 16
 * lanes of positions as they lie in the planes, image after image: a NaN of x may reach taps of its
 * own channel that do not see it, but those of no other. Source: Zhang et al., "High Performance
 * Depthwise and Pointwise Convolutions on Mobile Devices" (2020).
 */
#ifndef TT_CONV_DEPTHWISE_H
#define TT_CONV_DEPTHWISE_H

#include <stdbool.h>

#include "core/kernel/conv/conv.h"
#include "core/kernel/conv/conv_ops.h"

enum { TT_DEPTHWISE_TAPS_MAX = 128, TT_DEPTHWISE_LANES = 16 };

/* Numbers are in floats. */
typedef struct {
    int64_t units, first, groups; /* unit `first` is the first one, of channel first % groups */
    const float *planes;          /* what lies behind the last plane is read: TT_CONV_SLACK bytes */
    int64_t unit, pitch;          /* from unit to unit, and row to row */
    int64_t rows, width;          /* of positions */
    int64_t taps;
    const int64_t *tap_at, *tap; /* their place in planes, and in weight */
    const float *weight;         /* [groups, kernel] */
    const float *bias;           /* [groups], or NULL */
    int64_t kernel;
    float *out;                          /* the first unit's */
    int64_t out_unit, out_row, out_step; /* from one to the next */
} tt_depthwise_t;

/* sums[u][tap][lane] += dy · x, of dy in rows as long as those of planes, with zeros between. */
typedef struct {
    int64_t units;
    const float *planes, *dy;
    int64_t unit, dy_unit, count; /* count: elements of dy, a multiple of the lanes */
    int64_t taps;
    const int64_t *tap_at;
    float *sums;
} tt_depthwise_weight_t;

/* What conv_depthwise_simd.c exports per variant. */
struct tt_depthwise_ops {
    void (*correlate)(const tt_depthwise_t *depthwise);
    void (*add_weights)(const tt_depthwise_weight_t *weight);
    void (*fold)(const float *sums, int64_t taps, float *dw);
};

/* Whether it can be had. */
bool tt_depthwise_suits(const tt_conv_t *conv);

tutti_status_t tt_depthwise_forward(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                    const float *weight, const float *bias, float *y);
tutti_status_t tt_depthwise_to_x(tt_threads_t *threads, const tt_conv_t *conv, const float *dy,
                                 const float *weight, const float *bias, float *dx);
tutti_status_t tt_depthwise_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                      const float *dy, float *dw);

#endif
