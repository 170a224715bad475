/* The product of a convolution of bf16 (conv_ops.h) in AMX's tiles, which are read where they lie:
 *
 *     y, dx    A: weights      B: planes of pairs of channels, whose 16 neighbours are a row
 *     dw       A: planes, whose 32 neighbours are a row           B: dy as gemm.h packs it
 *
 * Tiles 0 to 3 are the sums, block by vector. A step's sums and cost are those of gemm_amx_simd.c,
 * whatever its tiles' sizes. */
#include "core/kernel/conv/conv_ops.h"
#include "core/kernel/vmath.h"

#if defined(__AVX512F__)

#define TARGET __attribute__((target("amx-tile,amx-bf16")))

/* blocks and vectors are constants where this is inlined. */
TARGET static inline __attribute__((always_inline)) void
multiply(const tt_conv_product_t *p, const int blocks, const int vectors)
{
    char *const tile = p->tile, *const below = tile + p->tile_block;
    if (p->is_added) {
        _tile_loadd(0, tile, p->tile_pitch);
        if (vectors > 1) {
            _tile_loadd(1, tile + 64, p->tile_pitch);
        }
        if (blocks > 1) {
            _tile_loadd(2, below, p->tile_pitch);
        }
        if (blocks > 1 && vectors > 1) {
            _tile_loadd(3, below + 64, p->tile_pitch);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < p->steps; k++) {
        const char *a = p->a + p->a_at[k], *b = p->b + p->b_at[k];
        _tile_loadd(4, a, p->a_pitch);
        _tile_loadd(6, b, p->b_pitch);
        _tile_dpbf16ps(0, 4, 6);
        if (vectors > 1) {
            _tile_loadd(7, b + 64, p->b_pitch);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (blocks > 1) {
            _tile_loadd(5, a + p->a_block, p->a_pitch);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (blocks > 1 && vectors > 1) {
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, tile, p->tile_pitch);
    if (vectors > 1) {
        _tile_stored(1, tile + 64, p->tile_pitch);
    }
    if (blocks > 1) {
        _tile_stored(2, below, p->tile_pitch);
    }
    if (blocks > 1 && vectors > 1) {
        _tile_stored(3, below + 64, p->tile_pitch);
    }
}

TARGET void tt_conv_amx_multiply_avx512(const tt_conv_product_t *p)
{
    if (p->blocks == 1 && p->vectors == 1) {
        multiply(p, 1, 1);
    } else if (p->blocks == 1) {
        multiply(p, 1, 2);
    } else if (p->vectors == 1) {
        multiply(p, 2, 1);
    } else {
        multiply(p, 2, 2);
    }
}

#endif
