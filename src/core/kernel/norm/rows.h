/* Operations on the rows of contiguous [rows, n] matrices: softmax, losses, norms.
 *
 * dtype (f32, f64, bf16, f16) is that of the large operands: x, y and their gradients. What is
 * saved or summed per row or column (max, sum, mean, rstd, gamma, losses, parameter gradients) has
 * the accumulation type tt_accum_dtype(dtype): f64 for f64, else f32. Each row is reduced in 16
 * fixed lanes; parameter gradients are summed over fixed blocks of rows in order. Threads change no
 * bit. Each function is a launch, whose errors it has.
 */
#ifndef TT_ROWS_H
#define TT_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

tutti_dtype_t tt_accum_dtype(tutti_dtype_t dtype);

typedef struct {
    tutti_dtype_t dtype;
    size_t rows, n;
} tt_rows_t;

/* y = e^(x - max) / sum e^(x - max); y may be x. */
TT_LAUNCHES tutti_status_t tt_softmax(tt_exec_t *exec, tt_rows_t shape, void *y, const void *x);

/* dx = y (dy - sum(dy y)); dx may be dy. */
TT_LAUNCHES tutti_status_t tt_softmax_backward(tt_exec_t *exec, tt_rows_t shape, void *dx,
                                               const void *dy, const void *y);

/* y = x - lse(x); y may be x. */
TT_LAUNCHES tutti_status_t tt_log_softmax(tt_exec_t *exec, tt_rows_t shape, void *y, const void *x);

/* dx = dy - e^y sum(dy); dx may be dy. */
TT_LAUNCHES tutti_status_t tt_log_softmax_backward(tt_exec_t *exec, tt_rows_t shape, void *dx,
                                                   const void *dy, const void *y);

/* Cross entropy of logits[rows, n] against targets[rows], with label smoothing s:
 * loss = (1 - s) (lse - x[target]) + s (lse - mean(x)), lse = max + log sum e^(x - max); rows whose
 * target is ignore_index give 0.
 */
typedef struct {
    tt_rows_t shape;
    const void *logits;
    const int64_t *targets;
    int64_t ignore_index;
    double label_smoothing;
    void *loss; /* [rows], accumulation type; forward writes */
    /* [rows, 2], accumulation type: the largest logit and the sum of e^(x - it). Forward writes
     * them, backward reads them. Two numbers: lse, their one, has no digits behind the point where
     * logits are large, and e^(x - lse) is then no softmax. */
    void *max_sum;
    /* [1], accumulation type: 1 / the number of rows that are not ignored. Forward writes it;
     * backward multiplies each scale by it. NULL: not wanted, and 1. */
    void *weight;
    /* Accumulation type, without parts: a weight of each class, [n], or NULL; with it targets may
     * be probabilities, [rows, n], instead. The loss is then Σ q (lse - x) over the classes, with
     * q = weight ((1 - s) probs + s / n), and the gradient q's sum times the softmax, less q. */
    const void *class_weight, *probs;
    /* Backward: */
    void *dlogits;        /* [rows, n], may be logits */
    void *dprobs;         /* [rows, n], accumulation type; NULL: not wanted */
    const void *scale;    /* accumulation type: the loss's incoming gradient per row, NULL: 1, */
    bool scale_is_shared; /* or scale[0] for all */
    /* Of logits that are a part of the classes, from class `first` on: how many there are. 0: the
     * part is the whole. Forward is of the whole. */
    size_t first, classes;
} tt_cross_entropy_t;

/* Forward of a part of the classes, whose numbers meet those of the others in between. */
typedef struct {
    tutti_dtype_t dtype;
    size_t rows, n, stride; /* elements from one row to the next */
    const void *logits;
    const int64_t *targets; /* [rows] */
    size_t first;           /* class of logits[0] */
    bool has_total;
    void *max;  /* [rows], accumulation type: written first, then read as that of all parts */
    void *sums; /* [3, rows] (2 without total), the same type: Σ e^(x - max); x[target] - max where
                   the target is here, else 0; Σ x - max. Written */
} tt_cross_entropy_part_t;

TT_LAUNCHES tutti_status_t tt_cross_entropy_max(tt_exec_t *exec, const tt_cross_entropy_part_t *p);
TT_LAUNCHES tutti_status_t tt_cross_entropy_sums(tt_exec_t *exec, const tt_cross_entropy_part_t *p);

/* Losses, max_sum and weight from the numbers of all classes; logits are not read. ARG as below. */
TT_LAUNCHES tutti_status_t tt_cross_entropy_finish(tt_exec_t *exec, const tt_cross_entropy_t *ce,
                                                   const void *max, const void *sums);

/* ARG, where it runs, names the first target that is neither in [0, n) nor ignore_index. */
TT_LAUNCHES tutti_status_t tt_cross_entropy(tt_exec_t *exec, const tt_cross_entropy_t *ce);
TT_LAUNCHES tutti_status_t tt_cross_entropy_backward(tt_exec_t *exec, const tt_cross_entropy_t *ce);

/* Before rows go to the two above in pieces: the targets' check, and `weight`, here [3]. First 1 /
 * the class weights of the targets that are not ignored, or their number; of probabilities 1 /
 * rows. Then the same in two factors, the first of which is for backward's scale, so that ignored
 * rows, and they alone, have 0 where nothing weighs anything: 1 and that; NaN and 0 where it is
 * not finite. Only they are written, and logits are not read. */
TT_LAUNCHES tutti_status_t tt_cross_entropy_weight(tt_exec_t *exec, const tt_cross_entropy_t *ce);

/* y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(var + eps). rms: y = x rstd gamma with
 * rstd = 1 / sqrt(mean(x²) + eps); mean and dbeta are NULL then, beta is not used. */
typedef struct {
    tt_rows_t shape;
    double eps;
    size_t run, stride; /* rows lie in runs of so many, whose first ones are `stride` rows apart, in
                           x, y, dy, dx, mean and rstd. 0: side by side */
    const void *x;
    const void *gamma, *beta; /* [n], accumulation type; NULL: 1 and 0 */
    void *y;                  /* forward writes */
    void *mean, *rstd;        /* [rows], accumulation type; forward writes (NULL: not kept) */
    /* Backward: */
    const void *dy;
    void *dx;             /* may be dy; NULL: not wanted */
    void *dgamma, *dbeta; /* [n], accumulation type, overwritten; NULL: not wanted */
} tt_norm_t;

TT_LAUNCHES tutti_status_t tt_layer_norm(tt_exec_t *exec, const tt_norm_t *norm);
TT_LAUNCHES tutti_status_t tt_rms_norm(tt_exec_t *exec, const tt_norm_t *norm);

/* NOMEM: partial sums of dgamma and dbeta need 2 n numbers per block of rows. */
TT_LAUNCHES tutti_status_t tt_layer_norm_backward(tt_exec_t *exec, const tt_norm_t *norm);
TT_LAUNCHES tutti_status_t tt_rms_norm_backward(tt_exec_t *exec, const tt_norm_t *norm);

#endif
