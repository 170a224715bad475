/* The transforms of conv_winograd.h, by additions of vectors: of neighbouring tiles in `input`, of
 * channels in the others. Cost: 8 loads and shuffles, 24 additions and 16 stores a vector of 4 × 4
 * (input; twice as many of the first where rows are short), 16 loads, 24 additions and 4 stores
 * (output), 4 loads, 12 additions, 16 stores (gradient). The order of additions is the same for
 * every width. */
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

/* Which of some neighbours are columns of the image. */
#if defined(__AVX512F__)
typedef __mmask16 lanes_t;

TT_INLINE lanes_t lanes_inside(int64_t at, int64_t width)
{
    const int64_t skip = at < 0 ? (at < -16 ? 16 : -at) : 0;
    const int64_t end = width - at > 16 ? 16 : width > at ? width - at : 0;
    return (__mmask16)(((1u << end) - 1) & ~((1u << skip) - 1));
}

TT_INLINE tt_vf load_inside(const float *from, lanes_t lanes)
{
    return (tt_vf)_mm512_maskz_loadu_ps(lanes, from);
}
#elif defined(__AVX2__)
typedef __m256i lanes_t;

TT_INLINE lanes_t lanes_inside(int64_t at, int64_t width)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i first = _mm256_set1_epi32((int)(at < 0 ? -at : 0));
    const __m256i end = _mm256_set1_epi32((int)(width - at > TT_LANES ? TT_LANES : width - at));
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(first, lane), _mm256_cmpgt_epi32(end, lane));
}

TT_INLINE tt_vf load_inside(const float *from, lanes_t lanes)
{
    return (tt_vf)_mm256_maskload_ps(from, lanes);
}
#else
typedef struct {
    int64_t skip, end;
} lanes_t;

TT_INLINE lanes_t lanes_inside(int64_t at, int64_t width)
{
    return (lanes_t){at < 0 ? -at : 0, width - at > TT_LANES ? TT_LANES : width - at};
}

TT_INLINE tt_vf load_inside(const float *from, lanes_t lanes)
{
    float x[TT_LANES] = {0};
    if (lanes.skip == 0 && lanes.end == TT_LANES) {
        return tt_vload(from);
    }
    for (int64_t i = lanes.skip; i < lanes.end; i++) {
        x[i] = from[i];
    }
    return tt_vload(x);
}
#endif

/* Elements 0, 2, 4, … of a, then of b; and 1, 3, 5, … */
#if defined(__AVX512F__)
#define EVENS(a, b)                                                                                \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODDS(a, b)                                                                                 \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif defined(__AVX2__)
#define EVENS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODDS(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define EVENS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODDS(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/* Columns of a vector of tiles: of one row the first half of them and the second, or of two. */
typedef struct {
    int64_t at[2];
    lanes_t lanes[2][2]; /* from there on, and from two columns on */
    int64_t down;        /* rows of the image from the one to the other */
} columns_t;

/* Row `row` of the tiles, times B. */
TT_INLINE void input_row(const tt_conv_input_t *in, const columns_t *c, int64_t row, tt_vf x[4])
{
    tt_vf half[2][2];
    for (int i = 0; i < 2; i++) {
        const int64_t h = in->at[0] + row + i * c->down;
        const float *from = in->image + h * in->size[1] + c->at[i];
        const bool is_inside = h >= 0 && h < in->size[0];
        half[i][0] = is_inside ? load_inside(from, c->lanes[i][0]) : tt_vsplat(0);
        half[i][1] = is_inside ? load_inside(from + 2, c->lanes[i][1]) : tt_vsplat(0);
    }
    x[0] = EVENS(half[0][0], half[1][0]);
    x[1] = ODDS(half[0][0], half[1][0]);
    x[2] = EVENS(half[0][1], half[1][1]);
    x[3] = ODDS(half[0][1], half[1][1]);
    input_4(x);
}

/* Tiles of a row share two of their rows with those below. is_paired: two rows at once. */
TT_INLINE void input_rows(const tt_conv_input_t *in, const columns_t *c, float *v,
                          const bool is_paired)
{
    tt_vf x[4][4], column[4];
    for (int64_t row = 0; row < in->rows; row += 1 + is_paired) {
        if (is_paired || row == 0) {
            input_row(in, c, 2 * row, x[0]);
            input_row(in, c, 2 * row + 1, x[1]);
        }
        input_row(in, c, 2 * row + 2, x[2]);
        input_row(in, c, 2 * row + 3, x[3]);
        for (int j = 0; j < 4; j++) {
            for (int i = 0; i < 4; i++) {
                column[i] = x[i][j];
            }
            input_4(column);
            for (int i = 0; i < 4; i++) {
                tt_vstore(v + (i * 4 + j) * in->v_step + row * in->v_row, column[i]);
            }
            x[0][j] = x[2][j];
            x[1][j] = x[3][j];
        }
    }
}

static void winograd_input(const tt_conv_input_t *in)
{
    const bool is_paired = 2 * in->tiles <= TT_LANES;
    /* From the last on: what it writes too much belongs to the first of the row below. */
    for (int64_t t = (in->tiles - 1) / TT_LANES * TT_LANES; t >= 0; t -= TT_LANES) {
        columns_t c = {.down = is_paired ? 2 : 0};
        for (int i = 0; i < 2; i++) {
            c.at[i] = in->at[1] + 2 * t + (is_paired ? 0 : i * TT_LANES);
            c.lanes[i][0] = lanes_inside(c.at[i], in->size[1]);
            c.lanes[i][1] = lanes_inside(c.at[i] + 2, in->size[1]);
        }
        if (is_paired) {
            input_rows(in, &c, in->v + t, true);
        } else {
            input_rows(in, &c, in->v + t, false);
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
