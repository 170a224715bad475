/* Pairs turned by their angles, which are f32's in f64 too. Source: rotary.h. */
#include "core/kernel/attention/rotary.h"

#include "core/kernel/kernels.h"
#include "core/kernel/vector.h"

/* step, from pair to pair, and apart, inside one, are known where this is inlined. Sums alone: of a
 * difference beside a sum gcc 12 makes vfmaddsub, which rounds once, whatever -ffp-contract says.
 */
TT_INLINE void rotate_pairs(tt_real_t *restrict y, const tt_real_t *x, size_t n,
                            const tt_turn_t *by, size_t step, size_t apart)
{
    for (size_t i = 0; i < n; i++) {
        const tt_real_t a = x[i * step], b = x[i * step + apart];
        const tt_real_t c = (tt_real_t)by->cosine[i];
        y[i * step] = a * c + b * (tt_real_t)by->minus[i];
        y[i * step + apart] = b * c + a * (tt_real_t)by->sine[i];
    }
}

static void rotate(void *y, const void *x, size_t n, const tt_turn_t *by)
{
    const tt_turn_t turn = *by;
    rotate_pairs(y, x, n, &turn, 1, n);
}

static void rotate_interleaved(void *y, const void *x, size_t n, const tt_turn_t *by)
{
    const tt_turn_t turn = *by;
    rotate_pairs(y, x, n, &turn, 2, 1);
}

extern const tt_rotary_ops_t TT_ISA_NAME(tt_rotary_ops);

const tt_rotary_ops_t TT_ISA_NAME(tt_rotary_ops) = {
    .rotate = rotate,
    .rotate_interleaved = rotate_interleaved,
};
