/* The i64 loops of all element-wise kinds, for whole numbers and bool: exact, wrapping. Kinds that
 * make no sense here (TT_NO in maps.def) exist and give 0; tt_unary_takes_ints tells. */
#include "core/kernel/elementwise/map_ops.h"
#include "core/kernel/elementwise/saturate.h"

#define TT_NO 0

/* Wraps; a negative power gives 0 but for 1 and -1. */
static int64_t tt_int_pow(int64_t x, int64_t power)
{
    if (power < 0) {
        return x == 1 ? 1 : (x == -1 ? (power % 2 ? -1 : 1) : 0);
    }
    uint64_t result = 1;
    for (uint64_t base = (uint64_t)x; power > 0; power /= 2, base *= base) {
        result *= power % 2 ? base : 1;
    }
    return (int64_t)result;
}

#define TT_UNARY(kind, name, about, real, i64)                                                     \
    static void unary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params)   \
    {                                                                                              \
        const int64_t p = tt_int_from_double(params.p), q = tt_int_from_double(params.q);          \
        (void)p, (void)q;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const int64_t x = ((const int64_t *)in[0])[i];                                         \
            (void)x;                                                                               \
            ((int64_t *)out)[i] = (i64);                                                           \
        }                                                                                          \
    }

#define TT_BINARY(kind, name, about, real, i64)                                                    \
    static void binary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params)  \
    {                                                                                              \
        const int64_t p = tt_int_from_double(params.p), q = tt_int_from_double(params.q);          \
        (void)p, (void)q;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const int64_t a = ((const int64_t *)in[0])[i], b = ((const int64_t *)in[1])[i];        \
            (void)a, (void)b;                                                                      \
            ((int64_t *)out)[i] = (i64);                                                           \
        }                                                                                          \
    }

#define TT_TERNARY(kind, name, about, real, i64)                                                   \
    static void ternary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params) \
    {                                                                                              \
        const int64_t p = tt_int_from_double(params.p), q = tt_int_from_double(params.q);          \
        (void)p, (void)q;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const int64_t a = ((const int64_t *)in[0])[i], b = ((const int64_t *)in[1])[i];        \
            const int64_t c = ((const int64_t *)in[2])[i];                                         \
            (void)a, (void)b, (void)c;                                                             \
            ((int64_t *)out)[i] = (i64);                                                           \
        }                                                                                          \
    }

#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
#undef TT_BINARY
#undef TT_TERNARY

const struct tt_map_ops tt_map_ops_i64 = {
#define TT_UNARY(kind, ...) .unary[TT_UNARY_##kind] = unary_##kind,
#define TT_BINARY(kind, ...) .binary[TT_BINARY_##kind] = binary_##kind,
#define TT_TERNARY(kind, ...) .ternary[TT_TERNARY_##kind] = ternary_##kind,
#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
#undef TT_BINARY
#undef TT_TERNARY
};
