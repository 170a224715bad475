/* Convolution on raw pointers, over height and width (1 of height: over a line), in groups; over
 * depth, too, where conv.depth says so.
 *
 *     y[n,o,i,j]  = bias[o] + Σ c,a,b  w[o,c,a,b] x[n, c, i s - p + a d, j s - p + b d]
 *     dx[n,c,…]   = what y's gradient gives x; with a bias, the transposed convolution
 *     dw[o,c,a,b] = Σ n,i,j  dy[n,o,i,j] x[n, c, i s - p + a d, …]
 *
 *     tt_conv_t conv = {.batch = 8, .groups = 1, .in = 3, .out = 16, .size = {32, 32},
 *                       .out_size = {32, 32}, .kernel = {3, 3}, .stride = {1, 1},
 *                       .padding = {1, 1}, .dilation = {1, 1}, .dtype = TUTTI_F32,
 *                       .out_dtype = TUTTI_F32};
 *     TT_TRY(tt_conv_forward(exec, &conv, x, weight, NULL, y));
 *
 * Bits: an element of y and of dx is one chain of sums over (a, c, b); one of dw is a sum over
 * fixed blocks of positions and fixed runs of images, added in order. The shapes fix both; threads
 * change no bit.
 */
#ifndef TT_CONV_H
#define TT_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

/* The first dimension of volumes. */
typedef struct {
    int64_t size, out_size; /* size 0: there are planes alone */
    int64_t kernel, stride, padding, dilation;
} tt_conv_depth_t;

typedef struct {
    int64_t batch, groups;
    int64_t in, out;              /* channels of a group, of x and of y */
    int64_t size[2], out_size[2]; /* height and width of x and of y */
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    tutti_dtype_t dtype;     /* of what is read: f32, f64, or what tt_conv_dtype() gives */
    tutti_dtype_t out_dtype; /* of what is written: f64 for f64, else f32, bf16 or f16 */
    tt_conv_depth_t depth;
} tt_conv_t;

/* The dtype to bring x and weights of a dtype into: itself, or f32 where the CPU cannot multiply
 * them. */
tutti_dtype_t tt_conv_dtype(tutti_dtype_t dtype);

/* Errors of all three: those of a launch; NOMEM, when they run.
 * bias: [groups out] of conv->dtype, or NULL. */
TT_LAUNCHES tutti_status_t tt_conv_forward(tt_exec_t *exec, const tt_conv_t *conv, const void *x,
                                           const void *weight, const void *bias, void *y);

/* bias: [groups in], or NULL: what is added to dx. */
TT_LAUNCHES tutti_status_t tt_conv_to_x(tt_exec_t *exec, const tt_conv_t *conv, const void *dy,
                                        const void *weight, const void *bias, void *dx);

TT_LAUNCHES tutti_status_t tt_conv_to_weight(tt_exec_t *exec, const tt_conv_t *conv, const void *x,
                                             const void *dy, void *dw);

#endif
