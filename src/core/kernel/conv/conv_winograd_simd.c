/* The transforms of conv_winograd.h, by additions of vectors: of neighbouring tiles in `input`, of
 * channels in the others. Cost: 16 loads and stores and 32 additions a vector of 4 × 4 (input), 16
 * loads, 24 additions and 4 stores (output), 4 loads, 12 additions, 16 stores (gradient). The
 * order of additions is the same for every width. */
#include "core/kernel/conv/conv_ops.h"
#include "core/kernel/isa.h"
#include "core/kernel/vmath.h"

enum { COLUMNS = 2 * TT_LANES };

/* Bᵀ of 4 vectors. */
TT_INLINE void input_4(tt_vf x[4])
{
    const tt_vf a = x[0] - x[2], b = x[1] + x[2], c = x[2] - x[1], d = x[1] - x[3];
    x[0] = a;
    x[1] = b;
    x[2] = c;
    x[3] = d;
}

static void winograd_input(const tt_conv_input_t *in)
{
    const int64_t plane = in->plane, pitch = in->pitch;
    for (int64_t t = 0; t < in->tiles; t += TT_LANES) {
        tt_vf x[4][4], column[4];
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 4; j++) {
                const int64_t phase = i % 2 * 2 + j % 2;
                x[i][j] = tt_vload(in->planes + phase * plane + t + i / 2 * pitch + j / 2);
            }
            input_4(x[i]);
        }
        for (int j = 0; j < 4; j++) {
            for (int i = 0; i < 4; i++) {
                column[i] = x[i][j];
            }
            input_4(column);
            for (int i = 0; i < 4; i++) {
                tt_vstore(in->v + (i * 4 + j) * in->v_step + t, column[i]);
            }
        }
    }
}

/* Aᵀ of 4 vectors. */
TT_INLINE void output_2(const tt_vf x[4], tt_vf y[2])
{
    y[0] = x[0] + x[1] + x[2];
    y[1] = x[1] - x[2] - x[3];
}

static void winograd_output(const tt_conv_output_t *out)
{
    const int lanes = out->is_narrow ? TT_LANES : COLUMNS;
    for (int64_t t = 0; t < out->tiles; t++) {
        for (int lane = 0; lane < lanes; lane += TT_LANES) {
            const float *m = out->m + t * COLUMNS + lane;
            const tt_vf bias = tt_vload(out->bias + lane);
            tt_vf half[2][4];
            for (int j = 0; j < 4; j++) {
                tt_vf x[4], y[2];
                for (int i = 0; i < 4; i++) {
                    x[i] = tt_vload(m + (i * 4 + j) * out->m_step);
                }
                output_2(x, y);
                half[0][j] = y[0];
                half[1][j] = y[1];
            }
            for (int i = 0; i < 2; i++) {
                tt_vf y[2];
                output_2(half[i], y);
                float *to = out->rows[i] + 2 * t * COLUMNS + lane;
                tt_vstore(to, y[0] + bias);
                if (2 * t + 1 < out->width) {
                    tt_vstore(to + COLUMNS, y[1] + bias);
                }
            }
        }
    }
}

/* A of 2 vectors. */
TT_INLINE void gradient_4(tt_vf a, tt_vf b, tt_vf y[4])
{
    y[0] = a;
    y[1] = a + b;
    y[2] = a - b;
    y[3] = -b;
}

static void winograd_gradient(const tt_conv_output_t *in)
{
    const int lanes = in->is_narrow ? TT_LANES : COLUMNS;
    for (int64_t t = 0; t < in->tiles; t++) {
        for (int lane = 0; lane < lanes; lane += TT_LANES) {
            tt_vf half[2][4];
            for (int i = 0; i < 2; i++) {
                const float *from = in->rows[i] + 2 * t * COLUMNS + lane;
                gradient_4(tt_vload(from), tt_vload(from + COLUMNS), half[i]);
            }
            for (int j = 0; j < 4; j++) {
                tt_vf y[4];
                gradient_4(half[0][j], half[1][j], y);
                for (int i = 0; i < 4; i++) {
                    tt_vstore(in->m + (i * 4 + j) * in->m_step + t * COLUMNS + lane, y[i]);
                }
            }
        }
    }
}

/* Gᵀ of 4 vectors. */
TT_INLINE void taps_3(const tt_vf x[4], tt_vf y[3])
{
    const tt_vf sum = (x[1] + x[2]) * tt_vsplat(0.5f);
    y[0] = x[0] + sum;
    y[1] = (x[1] - x[2]) * tt_vsplat(0.5f);
    y[2] = sum + x[3];
}

static void winograd_taps(const tt_conv_taps_t *t)
{
    for (int lane = 0; lane < COLUMNS; lane += TT_LANES) {
        tt_vf half[3][4];
        for (int j = 0; j < 4; j++) {
            tt_vf x[4], y[3];
            for (int i = 0; i < 4; i++) {
                const float *from = t->sums + (i * 4 + j) * t->step + lane;
                x[i] = tt_vload(from);
                for (int64_t run = 1; run < t->runs; run++) {
                    x[i] += tt_vload(from + run * t->run_step);
                }
            }
            taps_3(x, y);
            for (int i = 0; i < 3; i++) {
                half[i][j] = y[i];
            }
        }
        for (int i = 0; i < 3; i++) {
            tt_vf y[3];
            taps_3(half[i], y);
            for (int j = 0; j < 3; j++) {
                tt_vstore(t->taps + (i * 3 + j) * COLUMNS + lane, y[j]);
            }
        }
    }
}

const tt_conv_winograd_ops_t TT_ISA_NAME(tt_conv_winograd_ops) = {
    .input = winograd_input,
    .output = winograd_output,
    .gradient = winograd_gradient,
    .taps = winograd_taps,
};
