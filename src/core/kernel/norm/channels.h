/* Norms over channels: batch norm and group norm of contiguous x [batch, channels, n].
 *
 * dtype (f32, f64, bf16, f16) is that of x, y and their gradients; everything that there is one of
 * per channel or group is double. Sums run over fixed blocks of 16 lanes, blocks and samples are
 * added in order, in double; threads take whole channels (or groups) and change no bit.
 */
#ifndef TT_CHANNELS_H
#define TT_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/dtype.h>

#include "core/base/threads.h"

/* A batch norm: a channel's statistics are over batch and n. */
typedef struct {
    tutti_dtype_t dtype;
    size_t batch, channels, n;
    double eps;
    const void *x;
    const double *gamma, *beta; /* [channels]; NULL: 1 and 0 */
    double *mean, *variance;    /* [channels]; the variance is divided by the count itself */
    const void *residual;       /* like x, is added to y; or NULL */
    bool relu;                  /* y is then 0 where it is below 0 */
    void *y;
    /* Backward, which reads y with relu only; dz is dy, with relu 0 where y <= 0. */
    const void *dy;
    double *sum, *dot; /* [channels] Σ dz and Σ dz (x - mean) */
    void *dz;          /* with relu: where it goes; may be dx, or NULL without dx */
    void *dx;
    double count; /* elements that the statistics are over; 0: they are constants */
} tt_channels_t;

/* Mean and variance of x's channels; both 0 where there are no elements. */
void tt_channels_measure(tt_threads_t *threads, const tt_channels_t *c);

/* y = (x - mean) / √(variance + eps) gamma + beta; the residual is added to what this is in the
 * dtype, so that the bits are those of three operations. */
void tt_channels_normalize(tt_threads_t *threads, const tt_channels_t *c);

/* Both, channel by channel, so that x comes from memory once. */
void tt_channels_forward(tt_threads_t *threads, const tt_channels_t *c);

/* sum and dot, and dz. */
void tt_channels_dot(tt_threads_t *threads, const tt_channels_t *c);

/* With r = 1/√(variance + eps): dx = gamma r (dz - sum / count - (x - mean) r² dot / count). */
void tt_channels_slope(tt_threads_t *threads, const tt_channels_t *c);

/* Both; dx may be NULL. */
void tt_channels_backward(tt_threads_t *threads, const tt_channels_t *c);

/* A group norm: statistics are over the elements of a sample's group of channels. */
typedef struct {
    tutti_dtype_t dtype;
    size_t batch, groups, channels, n; /* groups divide channels */
    double eps;
    const void *x;
    const double *gamma, *beta; /* [channels]; NULL: 1 and 0 */
    double *mean, *rstd;        /* [batch, groups]; forward writes */
    void *y;
    /* Backward: */
    const void *dy;
    double *sum, *dot; /* [batch, channels] Σ dy and Σ dy (x - mean) r */
    void *dx;          /* NULL: not wanted */
} tt_groups_t;

void tt_groups_forward(tt_threads_t *threads, const tt_groups_t *g);
void tt_groups_backward(tt_threads_t *threads, const tt_groups_t *g);

#endif
