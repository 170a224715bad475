/* A sample of CTC: the probabilities of its paths. See ctc.h. */
#ifndef TT_CTC_PATHS_H
#define TT_CTC_PATHS_H

#include <stddef.h>
#include <stdint.h>

#include "core/kernel/elementwise/map_ops.h"
#include "core/kernel/loss/ctc.h"

/* f × 2^(512 e), f being 0 or in [2^-256, 2^256), or not finite: no product of probabilities leaves
 * its range. Of 0 and NaN e counts for nothing. */
typedef struct {
    double f;
    int64_t e;
} tt_far_t;

/* A target of S labels becomes 2S + 1 places: a blank before, between and behind them. */
typedef struct {
    const tt_ctc_t *ctc;
    tt_map_fn_t exp; /* of f64, with the same bits everywhere */
    int64_t n, steps, labels;
    const int64_t *label; /* [labels] */
    tt_far_t *prob;       /* [labels + 1] of a step: those of the labels, and the blank's */
    tt_far_t *alpha;      /* [places], or of all steps, where there is a gradient */
    tt_far_t *beta;       /* [places] */
    double *row, *logs;   /* [classes], or [labels + 1] if that is more */
} tt_ctc_sample_t;

/* So many bytes of scratch the last five want; has_gradient: for tt_ctc_sample_backward(). */
size_t tt_ctc_room(const tt_ctc_t *ctc, int64_t labels, bool has_gradient);

/* The same, cut into them. */
void tt_ctc_cut(tt_ctc_sample_t *sample, int64_t labels, bool has_gradient, void *room);

/* -log of the probability of the target. */
double tt_ctc_sample_forward(tt_ctc_sample_t *sample);

/* Writes the rows of the gradient of all steps. */
void tt_ctc_sample_backward(tt_ctc_sample_t *sample);

#endif
