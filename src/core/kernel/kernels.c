/* The tables of all variants, and the name of the set that runs. */
#include "core/kernel/kernels.h"

#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <string.h>
#endif

#define TT_IF_F32(...)
#define TT_IF_F64(...) __VA_ARGS__

#define TT_KERNELS(kind, classes)                                                                  \
    extern const tt_##kind##_ops_t tt_##kind##_ops_baseline, tt_##kind##_ops_avx2,                 \
        tt_##kind##_ops_avx512;                                                                    \
    TT_IF_##classes(extern const tt_##kind##_ops_t tt_##kind##_ops_f64_baseline,                   \
                    tt_##kind##_ops_f64_avx2, tt_##kind##_ops_f64_avx512;)
#include "core/kernel/kernels.def"
#undef TT_KERNELS

static const tt_kernels_t tables[TT_VARIANT_COUNT] = {
    [TT_VARIANT_BASELINE] =
        {
#define TT_KERNELS(kind, classes) .kind = &tt_##kind##_ops_baseline,
#include "core/kernel/kernels.def"
#undef TT_KERNELS
        },
#if defined(__x86_64__)
    [TT_VARIANT_AVX2] =
        {
#define TT_KERNELS(kind, classes) .kind = &tt_##kind##_ops_avx2,
#include "core/kernel/kernels.def"
#undef TT_KERNELS
        },
    [TT_VARIANT_AVX512] =
        {
#define TT_KERNELS(kind, classes) .kind = &tt_##kind##_ops_avx512,
#include "core/kernel/kernels.def"
#undef TT_KERNELS
        },
#endif
};

static const tt_kernels_t tables_f64[TT_VARIANT_COUNT] = {
    [TT_VARIANT_BASELINE] =
        {
#define TT_KERNELS(kind, classes) TT_IF_##classes(.kind = &tt_##kind##_ops_f64_baseline, )
#include "core/kernel/kernels.def"
#undef TT_KERNELS
        },
#if defined(__x86_64__)
    [TT_VARIANT_AVX2] =
        {
#define TT_KERNELS(kind, classes) TT_IF_##classes(.kind = &tt_##kind##_ops_f64_avx2, )
#include "core/kernel/kernels.def"
#undef TT_KERNELS
        },
    [TT_VARIANT_AVX512] =
        {
#define TT_KERNELS(kind, classes) TT_IF_##classes(.kind = &tt_##kind##_ops_f64_avx512, )
#include "core/kernel/kernels.def"
#undef TT_KERNELS
        },
#endif
};

const tt_kernels_t *tt_kernels(void)
{
    return &tables[tt_isa()];
}

const tt_kernels_t *tt_kernels_of(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? &tables_f64[tt_isa()] : tt_kernels();
}

void tt_kernels_id(char *text, size_t text_bytes)
{
    char cpu[64] = "cpu";
#if defined(__x86_64__)
    unsigned eax = 0, part[3] = {0}, ignored;
    char vendor[13] = "";
    if (__get_cpuid(0, &eax, &part[0], &part[2], &part[1])) {
        memcpy(vendor, part, sizeof part);
    }
    if (__get_cpuid(1, &eax, &ignored, &ignored, &ignored)) {
        const unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
        snprintf(cpu, sizeof cpu, "%s %u.%u", vendor, family, (eax >> 4 & 15) | (eax >> 12 & 240));
    }
#endif
    snprintf(text, text_bytes, "%s %s, built by %s", cpu, tt_isa_name(), __VERSION__);
}
