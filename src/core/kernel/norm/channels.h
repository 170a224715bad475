/* Norms over channels: batch norm and group norm of contiguous x [batch, channels, n].
 *
 * dtype (f32, f64, bf16, f16) is that of x, y and their gradients; everything that there is one of
 * per channel or group is double. Sums run over fixed blocks of 16 lanes, blocks and samples are
 * added in order, in double; threads take whole channels (or groups) and change no bit. Each
 * function is a launch, whose errors it has.
 */
#ifndef TT_CHANNELS_H
#define TT_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

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
    double *sum, *dot;      /* [channels] Σ dz and Σ dz (x - mean) */
    double *dgamma, *dbeta; /* [channels] Σ dz (x - mean) / √(variance + eps) and Σ dz, or NULL */
    void *dz;               /* with relu: where it goes; may be dx, or NULL without dx */
    void *dx;
    double count; /* elements that the statistics are over; 0: they are constants */
} tt_channels_t;

/* Mean and variance of x's channels; both 0 where there are no elements. */
TT_LAUNCHES tutti_status_t tt_channels_measure(tt_exec_t *exec, const tt_channels_t *c);

/* y = (x - mean) / √(variance + eps) gamma + beta; the residual is added to what this is in the
 * dtype, so that the bits are those of three operations. */
TT_LAUNCHES tutti_status_t tt_channels_normalize(tt_exec_t *exec, const tt_channels_t *c);

/* Both, channel by channel, so that x comes from memory once. */
TT_LAUNCHES tutti_status_t tt_channels_forward(tt_exec_t *exec, const tt_channels_t *c);

/* sum and dot, dgamma and dbeta, and dz. */
TT_LAUNCHES tutti_status_t tt_channels_dot(tt_exec_t *exec, const tt_channels_t *c);

/* With r = 1/√(variance + eps): dx = gamma r (dz - sum / count - (x - mean) r² dot / count). */
TT_LAUNCHES tutti_status_t tt_channels_slope(tt_exec_t *exec, const tt_channels_t *c);

/* Both; dx may be NULL. */
TT_LAUNCHES tutti_status_t tt_channels_backward(tt_exec_t *exec, const tt_channels_t *c);

/* to = weights[0] to + weights[1] from, [n]: of running statistics. */
TT_LAUNCHES tutti_status_t tt_channels_move(tt_exec_t *exec, size_t n, double *to,
                                            const double *from, const double weights[2]);

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

TT_LAUNCHES tutti_status_t tt_groups_forward(tt_exec_t *exec, const tt_groups_t *g);
TT_LAUNCHES tutti_status_t tt_groups_backward(tt_exec_t *exec, const tt_groups_t *g);

#endif
