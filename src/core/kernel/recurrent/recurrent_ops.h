/* What recurrent_simd.c exports per variant (f32, bf16, f16), and the f64 loops: one row. */
#ifndef TT_RECURRENT_OPS_H
#define TT_RECURRENT_OPS_H

#include "core/kernel/kernels.h"
#include "core/kernel/recurrent/recurrent.h"

struct tt_recurrent_ops {
    void (*forward)(const tt_recurrent_step_t *step, size_t row);
    void (*backward)(const tt_recurrent_step_t *step, size_t row);
};

extern const tt_recurrent_ops_t tt_recurrent_ops_f64;

#endif
