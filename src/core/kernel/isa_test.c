/* The choice of a kernel variant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
        cmocka_unit_test(isa_of_tiles_is_avx512_and_more),
        cmocka_unit_test(isa_refuses_what_is_unknown_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
