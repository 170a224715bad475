/* What recurrent_simd.c exports per variant and class: one row. */
#ifndef TT_RECURRENT_OPS_H
#define TT_RECURRENT_OPS_H

#include "core/kernel/kernels.h"
#include "core/kernel/recurrent/recurrent.h"

typedef void (*tt_recurrent_row_t)(const tt_recurrent_step_t *step, size_t row);

struct tt_recurrent_ops {
    tt_recurrent_row_t forward[TUTTI_DTYPE_COUNT], backward[TUTTI_DTYPE_COUNT];
};

#endif
