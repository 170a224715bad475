/* What becomes of a tile of sums: added to what was there, biased, activated, rounded, stored.
 * An activation has the bits of the operation of the same name (vmath.h).
 * Source: Hendrycks and Gimpel, "Gaussian error linear units" (2016). */
#include <string.h>

#include "core/kernel/matmul/gemm_lanes.h"
#include "core/kernel/half.h"
#include "core/kernel/vmath.h"

static void activate(tt_real_t *row, tt_epilogue_t epilogue)
{
    for (int i = 0; i < COLUMNS; i += TT_LANES) {
        const tt_vf x = tt_vload(row + i);
        tt_vstore(row + i, epilogue == TT_EPILOGUE_GELU_ERF ? tt_vgelu(x) : tt_vgelu_tanh(x));
    }
}

static void store_row(const tt_real_t *row, int columns, tutti_dtype_t dtype, void *out, int64_t at)
{
    if (dtype == TT_REAL) {
        memcpy((tt_real_t *)out + at, row, (size_t)columns * sizeof *row);
    } else if (dtype == TUTTI_BF16) {
        for (int i = 0; i < columns; i++) {
            ((uint16_t *)out)[at + i] = tt_bf16_from_f32((float)row[i]);
        }
    } else {
        for (int i = 0; i < columns; i++) {
            ((uint16_t *)out)[at + i] = tt_f16_from_f32((float)row[i]);
        }
    }
}

static void add_row(tt_real_t *row, const tt_real_t *to_add, int columns)
{
    for (int i = 0; i < columns; i++) {
        row[i] += to_add[i];
    }
}

/* Full rows of f32 or f64. has_add, has_bias and is_sum, no more than these, are constants where
 * this is inlined. */
TT_INLINE void finish_rows(const tt_gemm_finish_t *f, bool has_add, bool has_bias, bool is_sum)
{
    const tt_real_t *tile = f->tile, *add = f->add, *bias = f->bias;
    for (int r = 0; r < f->rows; r++) {
        for (int i = 0; i < COLUMNS; i += TT_LANES) {
            const int64_t at = r * f->ld + i;
            tt_vf x = tt_vload(tile + r * COLUMNS + i);
            x = has_add ? x + tt_vload(add + r * f->add_ld + i) : x;
            x = has_bias ? x + tt_vload(bias + i) : x;
            if (!is_sum && f->pre != NULL) {
                tt_vstore((tt_real_t *)f->pre + at, x);
            }
            if (!is_sum && f->epilogue != TT_EPILOGUE_NONE) {
                x = f->epilogue == TT_EPILOGUE_GELU_ERF ? tt_vgelu(x) : tt_vgelu_tanh(x);
            }
            tt_vstore((tt_real_t *)f->out + at, x);
        }
    }
}

/* The common case: f32, full rows. */
static void finish_tile(const tt_gemm_finish_t *f)
{
    if (f->pre != NULL || f->epilogue != TT_EPILOGUE_NONE) {
        finish_rows(f, f->add != NULL, f->bias != NULL, false);
    } else if (f->add != NULL) {
        finish_rows(f, true, f->bias != NULL, true);
    } else if (f->bias != NULL) {
        finish_rows(f, false, true, true);
    } else {
        finish_rows(f, false, false, true);
    }
}

static void finish_row(const tt_gemm_finish_t *f, int r)
{
    tt_real_t row[COLUMNS];
    memcpy(row, (const tt_real_t *)f->tile + (ptrdiff_t)r * COLUMNS, sizeof row);
    if (f->add != NULL) {
        add_row(row, (const tt_real_t *)f->add + r * f->add_ld, f->columns);
    }
    if (f->bias != NULL) {
        add_row(row, f->bias, f->columns);
    }
    if (f->pre != NULL) {
        store_row(row, f->columns, f->dtype, f->pre, r * f->ld);
    }
    if (f->epilogue != TT_EPILOGUE_NONE) {
        activate(row, f->epilogue);
    }
    store_row(row, f->columns, f->dtype, f->out, r * f->ld);
}

void TT_ISA_NAME(tt_gemm_finish)(const tt_gemm_finish_t *f)
{
    if (f->dtype == TT_REAL && f->columns == COLUMNS) {
        finish_tile(f);
        return;
    }
    for (int r = 0; r < f->rows; r++) {
        finish_row(f, r);
    }
}
