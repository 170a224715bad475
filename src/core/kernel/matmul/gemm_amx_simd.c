/* The bf16 product's inner part (gemm.h) on AMX, whose tiles hold 16 rows of 64 bytes: a step is 32
 * elements along K, one tile of A (16 rows) by two of B (16 pairs × 16 columns each).
 *
 *     A panel: rows of 16 pairs a step, also from an A stored transposed
 *     B panel: as that of pairs (gemm_pairs.h), zeros up to a whole step
 *
 * A step sums the products of even and of odd elements in two chains, and adds both sums to the
 * tile (TDPBF16PS). Cost: 32 cycles a step, 16 times less than vdpbf16ps. Numbers below 2^-126
 * count as zero. Source: Intel, "Architecture instruction set extensions", chapter on AMX.
 */
#include "core/kernel/matmul/gemm_pairs.h"

#include "core/base/integers.h"

#if defined(__AVX512F__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))

enum { AMX_ROWS = 16, PAIRS = 16, ELEMENTS = 2 * PAIRS };

/* What LDTILECFG reads. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config_t;

TARGET void tt_gemm_amx_begin_avx512(int rows, int pairs)
{
    tile_config_t config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? 4 * pairs : 64);
        config.rows[i] = (uint8_t)(i < 6 ? rows : pairs);
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); /* all of it is read, not one word */
    _tile_loadconfig(&config);
}

static void begin(void)
{
    tt_gemm_amx_begin_avx512(AMX_ROWS, PAIRS);
}

TARGET void tt_gemm_amx_end_avx512(void)
{
    _tile_release();
}

/* Tiles 0 and 1: the sums; 2 and 5: A; 3, 4 and 6, 7: B, in turns. */
TARGET static void multiply(int rows, int64_t steps, const float *a, bool transposed,
                            const float *b, float *tile, tt_gemm_ahead_t *ahead)
{
    (void)ahead;
    (void)rows;
    (void)transposed;
    const int64_t a_pitch = STRIDE * (int64_t)sizeof *a, pitch = COLUMNS * (int64_t)sizeof *b;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t step = 0; step + 2 <= steps; step += 2, a += 2 * PAIRS) {
        _tile_loadd(2, a, a_pitch);
        _tile_loadd(3, b, pitch);
        _tile_loadd(4, b + PAIRS, pitch);
        b += PAIRS * COLUMNS;
        _tile_dpbf16ps(0, 2, 3);
        _tile_dpbf16ps(1, 2, 4);
        _tile_loadd(5, a + PAIRS, a_pitch);
        _tile_loadd(6, b, pitch);
        _tile_loadd(7, b + PAIRS, pitch);
        b += PAIRS * COLUMNS;
        _tile_dpbf16ps(0, 5, 6);
        _tile_dpbf16ps(1, 5, 7);
    }
    if (steps % 2 != 0) {
        _tile_loadd(2, a, a_pitch);
        _tile_loadd(3, b, pitch);
        _tile_loadd(4, b + PAIRS, pitch);
        _tile_dpbf16ps(0, 2, 3);
        _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, tile, pitch);
    _tile_stored(1, tile + PAIRS, pitch);
}

/* Up to 16 rows of one step: words of pairs are transposed. */
static void pack_a_step(const uint16_t *a, int64_t ld, int64_t rows, int64_t k, float *to)
{
    const __mmask16 mask = tt_first_lanes(rows);
    __m512 x[PAIRS];
    for (int64_t i = 0; i < PAIRS; i++) {
        const uint16_t *row = a + 2 * i * ld;
        x[i] = 2 * i >= k
                   ? _mm512_setzero_ps()
                   : _mm512_castsi512_ps(tt_load_pairs(row, 2 * i + 1 < k ? row + ld : NULL, mask));
    }
    transpose_16(x, rows, to, STRIDE);
}

static void pack_a_transposed(const uint16_t *a, int64_t ld, int64_t rows, int64_t k, float *to)
{
    for (int64_t at = 0; at < k; at += ELEMENTS) {
        for (int64_t row = 0; row < rows; row += AMX_ROWS) {
            pack_a_step(a + at * ld + row, ld, tt_min(rows - row, AMX_ROWS), k - at,
                        to + row / AMX_ROWS * TT_GEMM_A_PANEL + at / 2);
        }
    }
}

static void pack_a(const void *a, int64_t ld, bool transposed, int64_t rows, int64_t k, float *to)
{
    if (transposed) {
        pack_a_transposed(a, ld, rows, k, to);
        return;
    }
    const int64_t whole = (k + ELEMENTS - 1) / ELEMENTS * ELEMENTS;
    for (int64_t row = 0; row < rows; row++) {
        uint16_t *panel = (void *)(to + row / AMX_ROWS * TT_GEMM_A_PANEL + row % AMX_ROWS * STRIDE);
        memcpy(panel, (const uint16_t *)a + row * ld, (size_t)k * sizeof *panel);
        memset(panel + k, 0, (size_t)(whole - k) * sizeof *panel);
    }
}

static void pack_b(const void *b, int64_t ld, bool transposed, int64_t k, int64_t columns,
                   float *to)
{
    const uint16_t *from = b;
    const int64_t pairs = (k + 1) / 2, whole = (k + ELEMENTS - 1) / ELEMENTS * PAIRS;
    for (int64_t column = 0; column < columns; column += COLUMNS, to += whole * COLUMNS) {
        if (transposed) {
            tt_pack_pairs_transposed(from + column * ld, ld, k, columns - column, to);
        } else {
            tt_pack_pairs(from + column, ld, k, columns - column, to);
        }
        memset(to + pairs * COLUMNS, 0, (size_t)((whole - pairs) * COLUMNS) * sizeof *to);
    }
}

const tt_gemm_ops_t TT_ISA_NAME(tt_gemm_amx) = {
    .rows = AMX_ROWS,
    .columns = COLUMNS,
    .k_per_step = ELEMENTS,
    .floats_per_step = PAIRS,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .begin = begin,
    .end = tt_gemm_amx_end_avx512,
    .multiply = multiply,
    .finish = TT_ISA_NAME(tt_gemm_finish),
};

#endif
