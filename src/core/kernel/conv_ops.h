/* What conv_simd.c exports per variant: panels for gemm.h's tiles, out of planes (conv_window.h).
 * Runs are copied in whole vectors of TT_CONV_SLACK bytes: what is read and written behind the last
 * one must be memory, and means nothing. */
#ifndef TT_CONV_OPS_H
#define TT_CONV_OPS_H

#include "core/kernel/conv_window.h"
#include "core/kernel/kernels.h"

enum { TT_CONV_SLACK = 64 };

/* Taps and runs that become a panel. */
typedef struct {
    const void *planes;
    const int64_t *taps;
    int64_t tap_count;
    const tt_window_run_t *runs;
    int run_count;
} tt_conv_panel_t;

struct tt_conv_ops {
    /* A panel of B: tap after tap, `columns` positions each; in bf16 pairs of taps, whose number
     * is even. */
    void (*pack_taps_f32)(const tt_conv_panel_t *panel, int columns, float *to);
    void (*pack_taps_bf16)(const tt_conv_panel_t *panel, int columns, float *to);
    /* A panel of A: a row of TT_GEMM_STRIDE floats for each tap, its positions in order. */
    void (*pack_rows_f32)(const tt_conv_panel_t *panel, float *to);
    void (*pack_rows_bf16)(const tt_conv_panel_t *panel, float *to);
};

#endif
