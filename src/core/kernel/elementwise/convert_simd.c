/* f32 from and to every dtype, one loop each out of convert.def; the compiler vectorises them.
 * Cost: f32 and bf16 run at the speed of the L1 cache. */
#include "core/kernel/elementwise/convert.h"

#include <string.h>

#include "core/kernel/half.h"
#include "core/kernel/kernels.h"
#include "core/kernel/elementwise/saturate.h"

#define TT_CONVERT(DTYPE, suffix, type, number, from_float, from_double)                           \
    static void load_##suffix(void *out, const void *in, size_t n)                                 \
    {                                                                                              \
        float *restrict y = out;                                                                   \
        const type *restrict x = in;                                                               \
        for (size_t i = 0; i < n; i++) {                                                           \
            const type v = x[i];                                                                   \
            y[i] = (float)(number);                                                                \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void store_##suffix(void *out, const void *in, size_t n)                                \
    {                                                                                              \
        type *restrict y = out;                                                                    \
        const float *restrict x = in;                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const float f = x[i];                                                                  \
            y[i] = (type)(from_float);                                                             \
        }                                                                                          \
    }
#include "core/kernel/elementwise/convert.def"
#undef TT_CONVERT

extern const tt_convert_ops_t TT_ISA_NAME(tt_convert_ops);

const tt_convert_ops_t TT_ISA_NAME(tt_convert_ops) = {
    .to_f32 =
        {
#define TT_CONVERT(DTYPE, suffix, ...) [TUTTI_##DTYPE] = load_##suffix,
#include "core/kernel/elementwise/convert.def"
#undef TT_CONVERT
        },
    .from_f32 =
        {
#define TT_CONVERT(DTYPE, suffix, ...) [TUTTI_##DTYPE] = store_##suffix,
#include "core/kernel/elementwise/convert.def"
#undef TT_CONVERT
        },
};
