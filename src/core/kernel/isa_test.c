/* The choice of a kernel variant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/kernel/isa.h"

static void isa_obeys_the_environment(void **state)
{
    (void)state;
    setenv("TUTTI_ISA", "baseline", 1);
    assert_int_equal(tt_isa(), TT_VARIANT_BASELINE);
    assert_false(tt_isa_has_bf16());
    assert_false(tt_isa_has_amx());
    assert_string_equal(tt_isa_name(), "baseline");
    assert_int_equal(tt_isa_check(), TUTTI_OK);
    unsetenv("TUTTI_ISA");
    assert_int_equal(tt_isa_check(), TUTTI_OK);
}

#if defined(__aarch64__)
static void isa_of_pairs_is_the_best_that_the_kernel_names(void **state)
{
    (void)state;
    char line[4096];
    bool is_known = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    assert_non_null(file);
    while (!is_known && fgets(line, sizeof line, file) != NULL) {
        is_known = strncmp(line, "Features", 8) == 0 && strstr(line, " bf16") != NULL;
    }
    (void)fclose(file);
    setenv("TUTTI_ISA", "bf16", 1);
    assert_int_equal(tt_isa_check(), tt_isa_has_bf16() ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED);
    assert_string_equal(tt_isa_name(), tt_isa_has_bf16() ? "bf16" : "baseline");
    unsetenv("TUTTI_ISA");
    assert_true(tt_isa_has_bf16() || !is_known);
    assert_int_equal(tt_isa(), TT_VARIANT_BASELINE);
}
#else
static void isa_of_tiles_is_avx512_and_more(void **state)
{
    (void)state;
    const bool has_amx = tt_isa_has_amx();
    setenv("TUTTI_ISA", "amx", 1);
    assert_true(tt_isa_has_amx() == has_amx);
    assert_int_equal(tt_isa_check(), has_amx ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED);
    if (has_amx) {
        assert_int_equal(tt_isa(), TT_VARIANT_AVX512);
        assert_true(tt_isa_has_bf16());
        assert_string_equal(tt_isa_name(), "amx");
    }
    setenv("TUTTI_ISA", "avx512", 1);
    assert_false(tt_isa_has_amx());
    unsetenv("TUTTI_ISA");
}
#endif

#if defined(__x86_64__)
static bool cpu_says(const char *flag)
{
    char line[8192];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    assert_non_null(file);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        const char *at = strncmp(line, "flags", 5) == 0 ? strstr(line, flag) : NULL;
        found = at != NULL && at[-1] == ' ' && strchr(" \n", at[strlen(flag)]) != NULL;
    }
    (void)fclose(file);
    return found;
}

/* A container may forbid tiles although the processor has them. */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static void isa_is_the_best_that_the_kernel_names(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const bool has_bf16 = cpu_says("avx512_bf16");
    const bool has_amx = cpu_says("amx_tile") && cpu_says("amx_bf16") && may_use_tiles();
    assert_int_equal(tt_isa() >= TT_VARIANT_AVX2, cpu_says("avx2"));
    assert_int_equal(tt_isa() >= TT_VARIANT_AVX512, cpu_says("avx512vl"));
    assert_int_equal(tt_isa_has_bf16(), has_bf16);
    assert_int_equal(tt_isa_has_amx(), has_amx && has_bf16);
}
#endif

static void isa_refuses_what_is_unknown_and_goes_on(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const tt_variant_t best = tt_isa();
    setenv("TUTTI_ISA", "avx9", 1);
    assert_int_equal(tt_isa_check(), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "avx9"));
    assert_int_equal(tt_isa(), best);
    unsetenv("TUTTI_ISA");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isa_obeys_the_environment),
#if defined(__aarch64__)
        cmocka_unit_test(isa_of_pairs_is_the_best_that_the_kernel_names),
#else
        cmocka_unit_test(isa_of_tiles_is_avx512_and_more),
#endif
#if defined(__x86_64__)
        cmocka_unit_test(isa_is_the_best_that_the_kernel_names),
#endif
        cmocka_unit_test(isa_refuses_what_is_unknown_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
