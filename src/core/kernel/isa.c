/* Asks the CPU (cpuid, through the compiler's cache of it; on ARM what the kernel says of it), the
 * kernel and TUTTI_ISA. Cost: about 100 ns. */
#include "core/kernel/isa.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "core/base/config.h"

/* What may run: the variants, and above them what widens products of bf16. */
#if defined(__aarch64__)
enum { LEVEL_BASELINE, LEVEL_BF16, LEVEL_COUNT };

static const char *const names[LEVEL_COUNT] = {"baseline", "bf16"};
#else
enum { LEVEL_AMX = TT_VARIANT_COUNT, LEVEL_COUNT };

static const char *const names[LEVEL_COUNT] = {"baseline", "avx2", "avx512", "amx"};
#endif

#if defined(__x86_64__)
/* AMX's tiles are state that a process must ask the kernel for (Linux 5.16); its threads and
 * children have it too. */
static bool ask_for_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    enum { AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24 };
    unsigned eax, ebx, ecx, edx = 0;
    const bool has_amx = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
                         (edx & AMX_BF16) != 0 && (edx & AMX_TILE) != 0;
    return has_amx && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_tiles(void)
{
    static atomic_int answer; /* 0: not asked, 1: no, 2: yes */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        known = ask_for_tiles() ? 2 : 1;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 2;
}
#endif

static int best_level(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2")) {
        return TT_VARIANT_BASELINE;
    }
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    if (wide && __builtin_cpu_supports("avx512bf16") && has_tiles()) {
        return LEVEL_AMX;
    }
    return wide ? TT_VARIANT_AVX512 : TT_VARIANT_AVX2;
#elif defined(__aarch64__)
    enum { HAS_BF16 = 1 << 14 }; /* HWCAP2_BF16 */
    return (getauxval(AT_HWCAP2) & HAS_BF16) != 0 ? LEVEL_BF16 : LEVEL_BASELINE;
#else
    return TT_VARIANT_BASELINE;
#endif
}

/* COUNT for "auto", -1 for an unknown name. */
static int wanted_level(void)
{
    const char *text = tt_config_text(TT_CONFIG_ISA);
    for (int i = 0; i < LEVEL_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    return strcmp(text, "auto") == 0 ? LEVEL_COUNT : -1;
}

static int level(void)
{
    const int wanted = wanted_level(), best = best_level();
    return wanted < 0 || wanted > best ? best : wanted;
}

tt_variant_t tt_isa(void)
{
#if defined(__aarch64__)
    return TT_VARIANT_BASELINE;
#else
    const int now = level();
    return now == LEVEL_AMX ? TT_VARIANT_AVX512 : (tt_variant_t)now;
#endif
}

bool tt_isa_has_bf16(void)
{
#if defined(__x86_64__)
    return tt_isa() == TT_VARIANT_AVX512 && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    return level() == LEVEL_BF16;
#else
    return false;
#endif
}

bool tt_isa_has_amx(void)
{
#if defined(__aarch64__)
    return false;
#else
    return level() == LEVEL_AMX;
#endif
}

const char *tt_isa_variant_name(tt_variant_t variant)
{
    static const char *const variants[TT_VARIANT_COUNT] = {"baseline", "avx2", "avx512"};
    return variants[variant];
}

const char *tt_isa_name(void)
{
    return names[level()];
}

tutti_status_t tt_isa_check(void)
{
    const int wanted = wanted_level();
    if (wanted < 0) {
        char known[64] = "auto";
        for (int i = 0; i < LEVEL_COUNT; i++) {
            const size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, ", %s", names[i]);
        }
        return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_ISA is \"%s\"; it can be %s",
                       tt_config_text(TT_CONFIG_ISA), known);
    }
    if (wanted < LEVEL_COUNT && wanted > best_level()) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "TUTTI_ISA is %s, but this CPU has only %s",
                       names[wanted], names[best_level()]);
    }
    return TUTTI_OK;
}
