/* The f32 and f64 loops of all element-wise kinds: one small function per line of maps.def. The
 * last, partial vector is computed in full lanes and stored in part, so position changes no bit. */
#include "core/kernel/elementwise/map_ops.h"

#include "core/kernel/kernels.h"
#include "core/kernel/vmath.h"

#define TT_NO 0

#define TT_UNARY(kind, name, about, real, i64)                                                     \
    static void unary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params)   \
    {                                                                                              \
        const tt_vf p = tt_vsplat((tt_real_t)params.p), q = tt_vsplat((tt_real_t)params.q);        \
        (void)p, (void)q;                                                                          \
        const tt_real_t *px = in[0];                                                               \
        tt_real_t *y = out;                                                                        \
        size_t i = 0;                                                                              \
        for (; i + TT_LANES <= n; i += TT_LANES) {                                                 \
            const tt_vf x = tt_vload(px + i);                                                      \
            tt_vstore(y + i, real);                                                                \
        }                                                                                          \
        if (i < n) {                                                                               \
            const tt_vf x = tt_vload_n(px + i, n - i);                                             \
            tt_vstore_n(y + i, real, n - i);                                                       \
        }                                                                                          \
    }

#define TT_BINARY(kind, name, about, real, i64)                                                    \
    static void binary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params)  \
    {                                                                                              \
        const tt_vf p = tt_vsplat((tt_real_t)params.p), q = tt_vsplat((tt_real_t)params.q);        \
        (void)p, (void)q;                                                                          \
        const tt_real_t *pa = in[0], *pb = in[1];                                                  \
        tt_real_t *y = out;                                                                        \
        size_t i = 0;                                                                              \
        for (; i + TT_LANES <= n; i += TT_LANES) {                                                 \
            const tt_vf a = tt_vload(pa + i), b = tt_vload(pb + i);                                \
            tt_vstore(y + i, real);                                                                \
        }                                                                                          \
        if (i < n) {                                                                               \
            const tt_vf a = tt_vload_n(pa + i, n - i), b = tt_vload_n(pb + i, n - i);              \
            tt_vstore_n(y + i, real, n - i);                                                       \
        }                                                                                          \
    }

#define TT_TERNARY(kind, name, about, real, i64)                                                   \
    static void ternary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params) \
    {                                                                                              \
        const tt_vf p = tt_vsplat((tt_real_t)params.p), q = tt_vsplat((tt_real_t)params.q);        \
        (void)p, (void)q;                                                                          \
        const tt_real_t *pa = in[0], *pb = in[1], *pc = in[2];                                     \
        tt_real_t *y = out;                                                                        \
        size_t i = 0;                                                                              \
        for (; i + TT_LANES <= n; i += TT_LANES) {                                                 \
            const tt_vf a = tt_vload(pa + i), b = tt_vload(pb + i), c = tt_vload(pc + i);          \
            tt_vstore(y + i, real);                                                                \
        }                                                                                          \
        if (i < n) {                                                                               \
            const tt_vf a = tt_vload_n(pa + i, n - i), b = tt_vload_n(pb + i, n - i);              \
            const tt_vf c = tt_vload_n(pc + i, n - i);                                             \
            tt_vstore_n(y + i, real, n - i);                                                       \
        }                                                                                          \
    }

#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
#undef TT_BINARY
#undef TT_TERNARY

extern const tt_map_ops_t TT_ISA_NAME(tt_map_ops);

const tt_map_ops_t TT_ISA_NAME(tt_map_ops) = {
#define TT_UNARY(kind, ...) .unary[TT_UNARY_##kind] = unary_##kind,
#define TT_BINARY(kind, ...) .binary[TT_BINARY_##kind] = binary_##kind,
#define TT_TERNARY(kind, ...) .ternary[TT_TERNARY_##kind] = ternary_##kind,
#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
#undef TT_BINARY
#undef TT_TERNARY
};
