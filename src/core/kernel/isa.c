/* Asks the CPU (cpuid, through the compiler's cache of it) and TUTTI_ISA. Cost: about 100 ns. */
#include "core/kernel/isa.h"

#include <string.h>

#include "core/base/config.h"

static const char *const names[TT_VARIANT_COUNT] = {"baseline", "avx2", "avx512"};

static tt_variant_t best_variant(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2")) {
        return TT_VARIANT_BASELINE;
    }
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    return wide ? TT_VARIANT_AVX512 : TT_VARIANT_AVX2;
#else
    return TT_VARIANT_BASELINE;
#endif
}

/* COUNT for "auto", -1 for an unknown name. */
static int wanted_variant(void)
{
    const char *text = tt_config_text(TT_CONFIG_ISA);
    for (int i = 0; i < TT_VARIANT_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    return strcmp(text, "auto") == 0 ? TT_VARIANT_COUNT : -1;
}

tt_variant_t tt_isa(void)
{
    const int wanted = wanted_variant();
    const tt_variant_t best = best_variant();
    return wanted < 0 || wanted > (int)best ? best : (tt_variant_t)wanted;
}

bool tt_isa_has_bf16(void)
{
#if defined(__x86_64__)
    return tt_isa() == TT_VARIANT_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

const char *tt_isa_variant_name(tt_variant_t variant)
{
    return names[variant];
}

tutti_status_t tt_isa_check(void)
{
    const int wanted = wanted_variant();
    if (wanted < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_ISA is \"%s\"; it can be auto, baseline, avx2, avx512",
                       tt_config_text(TT_CONFIG_ISA));
    }
    if (wanted < TT_VARIANT_COUNT && wanted > (int)best_variant()) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "TUTTI_ISA is %s, but this CPU has only %s",
                       names[wanted], names[best_variant()]);
    }
    return TUTTI_OK;
}
