/* Connectionist temporal classification (Graves et al., ICML 2006): the probability of all paths
 * through T steps that read as a target, and its gradient. */
#ifndef TT_CTC_H
#define TT_CTC_H

#include <stdbool.h>

#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef struct {
    tutti_dtype_t dtype;           /* f32 or f64: of log_probs, losses and gradients */
    const void *log_probs;         /* [T, N, V] */
    const int64_t *targets;        /* [N, S], or one behind the other (target_stride 0) */
    const int64_t *input_lengths;  /* [N]; NULL: all are T */
    const int64_t *target_lengths; /* [N]; NULL: all are S */
    void *losses;                  /* [N], out */
    const void *grad_losses;       /* [N], of the gradient alone */
    void *grad_log_probs;          /* [T, N, V], out */
    int64_t steps, samples, classes, target_count, target_stride, blank;
    bool zero_infinity;
} tt_ctc_t;

/* losses. Errors: ARG (a length, or a target, that is outside: which), NOMEM (scratch). */
TT_LAUNCHES tutti_status_t tt_ctc(tt_exec_t *exec, const tt_ctc_t *ctc);

/* grad_log_probs = (e^log_prob - the probability of being there) grad_loss, 0 behind a sample's
 * steps. Of an infinite loss NaN, or 0 with zero_infinity. */
TT_LAUNCHES tutti_status_t tt_ctc_backward(tt_exec_t *exec, const tt_ctc_t *ctc);

#endif
