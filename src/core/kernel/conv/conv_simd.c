/* Tiles of convolutions, and copies into and out of them (conv_ops.h).
 *
 * Cost: a tile 98 % of a core's peak from some 32 steps on; a copy a vector load and store for each
 * 16 elements; a store a transposition of 16 × 16, about a 30th of a tile of 256 steps. Source:
 * Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures"
 * (2018): output positions in rows, output channels in lanes, no copy of the image. */
#define CONV_TARGET
#define CONV_ADD(sum, x, y) tt_vfma(x, y, sum)
#include "core/kernel/conv/conv_lanes.h"

#include "core/kernel/matmul/gemm.h"
#include "core/kernel/matmul/gemm_transpose.h"
#include "core/kernel/half.h"
#include "core/kernel/isa.h"

/* ---- into planes ----------------------------------------------------------------------------- */

#if defined(__AVX512F__)
static __mmask16 first_lanes(int64_t count)
{
    return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

TT_INLINE void copy_row_f32(const float *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i += 16) {
        const __mmask16 mask = first_lanes(count - i);
        _mm512_mask_storeu_ps(to + i, mask, _mm512_maskz_loadu_ps(mask, from + i));
    }
}

/* Elements 0, 2, … to `to`, 1, 3, … to `odd`: as many of these, or one less. */
TT_INLINE void split_row_f32(const float *from, float *to, int64_t count, float *odd,
                             int64_t odd_count)
{
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    const int64_t words = 2 * count - 1 > 2 * odd_count ? 2 * count - 1 : 2 * odd_count;
    for (int64_t i = 0; 2 * i < words; i += 16) {
        const __m512 low = _mm512_maskz_loadu_ps(first_lanes(words - 2 * i), from + 2 * i);
        const __m512 high =
            words - 2 * i > 16
                ? _mm512_maskz_loadu_ps(first_lanes(words - 2 * i - 16), from + 2 * i + 16)
                : low;
        _mm512_mask_storeu_ps(to + i, first_lanes(count - i),
                              _mm512_permutex2var_ps(low, evens, high));
        if (odd != NULL) {
            _mm512_mask_storeu_ps(odd + i, first_lanes(odd_count - i),
                                  _mm512_permutex2var_ps(low, odds, high));
        }
    }
}

TT_INLINE void copy_row_bf16(const uint16_t *from, uint16_t *to, int64_t count)
{
    for (int64_t i = 0; i < count; i += 16) {
        const __mmask16 mask = first_lanes(count - i);
        _mm256_mask_storeu_epi16(to + i, mask, _mm256_maskz_loadu_epi16(mask, from + i));
    }
}

TT_INLINE void pair_row_bf16(const uint16_t *from, const uint16_t *second, uint32_t *to,
                             int64_t count)
{
    for (int64_t i = 0; i < count; i += 16) {
        const __mmask16 mask = first_lanes(count - i);
        __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + i));
        if (second != NULL) {
            const __m512i y = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second + i));
            x = _mm512_or_si512(x, _mm512_slli_epi32(y, 16));
        }
        _mm512_mask_storeu_epi32(to + i, mask, x);
    }
}
#else
TT_INLINE void copy_row_f32(const float *from, float *to, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof *to);
}

TT_INLINE void split_row_f32(const float *from, float *to, int64_t count, float *odd,
                             int64_t odd_count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = from[2 * i];
    }
    for (int64_t i = 0; odd != NULL && i < odd_count; i++) {
        odd[i] = from[2 * i + 1];
    }
}

TT_INLINE void copy_row_bf16(const uint16_t *from, uint16_t *to, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof *to);
}

TT_INLINE void pair_row_bf16(const uint16_t *from, const uint16_t *second, uint32_t *to,
                             int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = from[i] | (second == NULL ? 0 : (uint32_t)second[i] << 16);
    }
}
#endif

/* One row, `from` and `to` in elements of the image and of the planes. */
TT_INLINE void copy_row(const tt_conv_copy_t *c, int64_t from, int64_t to)
{
    const float *x = (const float *)c->from + from;
    float *y = (float *)c->to + to;
    if (c->step == 1) {
        copy_row_f32(x, y, c->count);
    } else if (c->step == 2) {
        split_row_f32(x, y, c->count, c->odd == NULL ? NULL : (float *)c->odd + to, c->odd_count);
    } else {
        for (int64_t i = 0; i < c->count; i++) {
            y[i] = x[i * c->step];
        }
    }
}

TT_INLINE void copy_half_row(const tt_conv_copy_t *c, int64_t from, int64_t to)
{
    const uint16_t *x = (const uint16_t *)c->from + from;
    uint16_t *y = (uint16_t *)c->to + to;
    if (c->step == 1) {
        copy_row_bf16(x, y, c->count);
        return;
    }
    for (int64_t i = 0; i < c->count; i++) {
        y[i] = x[i * c->step];
    }
}

TT_INLINE void pair_row(const tt_conv_copy_t *c, int64_t from, int64_t to)
{
    const uint16_t *low = (const uint16_t *)c->from + from;
    const uint16_t *high = c->second == 0 ? NULL : low + c->second;
    uint32_t *y = (uint32_t *)c->to + to;
    if (c->step == 1) {
        pair_row_bf16(low, high, y, c->count);
        return;
    }
    for (int64_t i = 0; i < c->count; i++) {
        y[i] = low[i * c->step] | (high == NULL ? 0 : (uint32_t)high[i * c->step] << 16);
    }
}

#define CONV_COPY(name, row_of)                                                                    \
    static void name(const tt_conv_copy_t *c)                                                      \
    {                                                                                              \
        for (int64_t unit = 0; unit < c->units; unit++) {                                          \
            for (int64_t row = 0; row < c->rows; row++) {                                          \
                row_of(c, unit * c->from_unit + row * c->from_pitch,                               \
                       unit * c->to_unit + row * c->to_pitch);                                     \
            }                                                                                      \
        }                                                                                          \
    }

CONV_COPY(copy_f32, copy_row)
CONV_COPY(copy_bf16, copy_half_row)
CONV_COPY(pair_bf16, pair_row)

/* ---- into panels ----------------------------------------------------------------------------- */

enum { STEPS_AHEAD = 4 };

TT_INLINE void gather_piece(const tt_conv_piece_t *p, int64_t at, float *to)
{
#if defined(__AVX512F__)
    const __mmask16 mask = first_lanes(p->count);
    _mm512_mask_storeu_ps(to, mask, _mm512_maskz_loadu_ps(mask, p->from + at));
#else
    memcpy(to, p->from + at, (size_t)p->count * sizeof *to);
#endif
}

static void gather(const tt_conv_gather_t *g)
{
    for (int64_t k = 0; k < g->steps; k++) {
        const int64_t next = g->step_at[k + STEPS_AHEAD < g->steps ? k + STEPS_AHEAD : k];
        for (int i = 0; i < g->pieces; i++) {
            __builtin_prefetch(g->piece[i].from + next);
            gather_piece(&g->piece[i], g->step_at[k], g->piece[i].to + k * TT_CONV_PITCH);
        }
    }
}

/* ---- out of tiles ---------------------------------------------------------------------------- */

static void store_each(const float *x, int64_t count, tutti_dtype_t dtype, int64_t step, void *to)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TUTTI_F32) {
            ((float *)to)[i * step] = x[i];
        } else {
            ((uint16_t *)to)[i * step] =
                dtype == TUTTI_BF16 ? tt_bf16_from_f32(x[i]) : tt_f16_from_f32(x[i]);
        }
    }
}

#if defined(__AVX512F__)
enum { AHEAD = 256 }; /* bytes: what is soon written is fetched before it is needed */

/* tt_bf16_from_f32 of each lane. */
static __m256i to_bf16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(near, is_nan, quiet), 16));
}

/* The first lanes to elements that are `step`, 1 or 2, apart. */
static void store_f32(__m512 x, int count, int64_t step, float *to)
{
    if (step == 1) {
        _mm512_mask_storeu_ps(to, first_lanes(count), x);
    } else {
        const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        const __mmask16 first = first_lanes(2 * count), second = first_lanes(2 * count - 16);
        _mm512_mask_storeu_ps(to, first & 0x5555, _mm512_permutexvar_ps(low, x));
        if (count > 8) {
            _mm512_mask_storeu_ps(to + 16, second & 0x5555, _mm512_permutexvar_ps(high, x));
        }
    }
}

static void store_bf16(__m512 x, int count, int64_t step, uint16_t *to)
{
    const __m256i half = to_bf16(x);
    if (step == 1) {
        _mm256_mask_storeu_epi16(to, first_lanes(count), half);
    } else {
        const __mmask32 first = (__mmask32)((1ull << 2 * count) - 1);
        _mm512_mask_storeu_epi16(to, first & 0x55555555, _mm512_cvtepu16_epi32(half));
    }
}

static void store_lanes(__m512 x, int count, tutti_dtype_t dtype, int64_t step, void *to)
{
    if (dtype == TUTTI_F32 && step <= 2) {
        store_f32(x, count, step, to);
    } else if (dtype == TUTTI_BF16 && step <= 2) {
        store_bf16(x, count, step, to);
    } else {
        float one[16];
        _mm512_storeu_ps(one, x);
        store_each(one, count, dtype, step, to);
    }
}

static void store_columns(const tt_conv_store_t *s, int first, int columns)
{
    __m512 x[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        x[i] = i < s->rows ? _mm512_loadu_ps(s->tile + i * COLUMNS + first) : _mm512_setzero_ps();
    }
    transpose_words(x);
    for (int i = 0; i < columns; i++) {
        char *to = (char *)s->out + (first + i) * s->ld * (s->dtype == TUTTI_F32 ? 4 : 2);
        __builtin_prefetch(to + AHEAD, 1);
        store_lanes(x[i], s->rows, s->dtype, s->step, to);
    }
}

static void store(const tt_conv_store_t *s)
{
    for (int first = 0; first < s->columns; first += 16) {
        store_columns(s, first, s->columns - first < 16 ? s->columns - first : 16);
    }
}

static void store_rows(const tt_conv_rows_t *r)
{
    const int64_t bytes = r->dtype == TUTTI_F32 ? 4 : 2;
    for (int64_t channel = 0; channel < r->channels; channel++) {
        const __m512 bias = _mm512_set1_ps(r->bias[channel]);
        for (int64_t row = 0; row < r->rows; row++) {
            const float *from = r->from + channel * r->from_channel + row * r->from_row;
            char *to = (char *)r->out + (channel * r->channel + row * r->row) * bytes;
            for (int64_t at = 0; at < r->count; at += 16) {
                const int count = r->count - at < 16 ? (int)(r->count - at) : 16;
                const __m512 x = _mm512_maskz_loadu_ps(first_lanes(count), from + at);
                store_lanes(x + bias, count, r->dtype, r->step, to + at * r->step * bytes);
            }
        }
    }
}
#else
static void store(const tt_conv_store_t *s)
{
    float column[TT_CONV_STORED_MAX];
    for (int i = 0; i < s->columns; i++) {
        for (int row = 0; row < s->rows; row++) {
            column[row] = s->tile[row * COLUMNS + i];
        }
        store_each(column, s->rows, s->dtype, s->step,
                   (char *)s->out + i * s->ld * (s->dtype == TUTTI_F32 ? 4 : 2));
    }
}
#endif

const tt_conv_ops_t TT_ISA_NAME(tt_conv_ops) = {
    .rows = ROWS,
    .columns = COLUMNS,
    .winograd = &TT_ISA_NAME(tt_conv_winograd_ops),
    .depthwise = &TT_ISA_NAME(tt_depthwise_ops),
    .multiply_f32 = multiply,
#if defined(__AVX512F__)
    .multiply_bf16 = tt_conv_multiply_bf16_avx512,
    .begin_amx = tt_gemm_amx_begin_avx512,
    .end_amx = tt_gemm_amx_end_avx512,
    .multiply_amx = tt_conv_amx_multiply_avx512,
    .store_rows = store_rows,
#endif
    .gather = gather,
    .copy_f32 = copy_f32,
    .copy_bf16 = copy_bf16,
    .pair_bf16 = pair_bf16,
    .store = store,
};
