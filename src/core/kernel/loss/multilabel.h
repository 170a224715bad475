/* Margins between the classes of a row that are its targets and those that are not, in f32 or f64.
 *
 *     loss = Σ_t Σ_c max(0, 1 - x[t] + x[c]) / n     t: targets up to the first -1, again if they
 *                                                    occur again; c: classes that are no target
 *     slope[c] = |{t : 1 - x[t] + x[c] > 0}| / n     slope[t]: the same of classes, negative
 */
#ifndef TT_MULTILABEL_H
#define TT_MULTILABEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/exec/exec.h"
#include "core/kernel/kernels.h"

/* x, slope: [rows, n]; targets: [rows, n], in [-1, n); loss: [rows]. */
typedef struct {
    bool is_wide; /* all but the targets are f64, not f32 */
    size_t rows, n;
    const void *x;
    const int64_t *targets;
    void *loss, *slope;
} tt_multilabel_t;

/* What multilabel_simd.c exports per variant and class: work on one row. */
struct tt_multilabel_ops {
    void (*row)(const tt_multilabel_t *job, size_t row);
};

/* ARG names the first target outside, before anything is written. */
TT_LAUNCHES tutti_status_t tt_multilabel(tt_exec_t *exec, const tt_multilabel_t *job);

#endif
