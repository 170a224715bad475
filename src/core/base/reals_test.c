/* Numbers in text are the same in every locale. */
#include "core/base/comma_testing.h"

#include <math.h>

#include "core/base/reals.h"
#include "core/base/units.h"

static void numbers_are_read_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1.5", 1.5},
                {"-0.25e2", -25},
                {"+7", 7},
                {".5", 0.5},
                {"1.", 1},
                {"1e-3", 1e-3},
                {"0.1", 0.1},
                {"1E5", 1e5},
                {"1e999", INFINITY},
                {"1e-999", 0},
                {"9007199254740993", 0x1p53},
                {"2.2250738585072011e-308", 2.2250738585072011e-308}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double value = NAN;
        assert_true(tt_parse_real(good[i].text, &value));
        assert_true(value == good[i].value);
    }
    static const char *const bad[] = {"",   "1,5", " 1",    "1 ",  "0x10", "nan",   "inf",
                                      "1e", "e5",  "1.5.2", "--1", "-",    "1_000", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value = 77;
        assert_false(tt_parse_real(bad[i], &value));
    }
}

/* The program's locale, or the thread's own, which stays. */
static void a_locale_changes_no_number(void **state)
{
    (void)state;
    char format[32], units[TT_UNITS_TEXT_BYTES], own[32];
    double value = 0;
    tt_comma_begin();
    const locale_t comma = duplocale(LC_GLOBAL_LOCALE);
    assert_int_equal(tt_format(format, sizeof format, "%.2f %g %d%%", 0.5, 1e-7, 12345), 17);
    tt_units_bytes(1536, units);
    (void)TT_FAIL(TUTTI_ERR_ARG, "%g", 2.5);
    const bool is_read = tt_parse_real("1.5", &value);
    tt_comma_end();
    const locale_t before = uselocale(comma);
    tt_format(own, sizeof own, "%.1f", 3.5);
    assert_true(uselocale(before) == comma);
    freelocale(comma);
    assert_string_equal(format, "0.50 1e-07 12345%");
    assert_string_equal(units, "1.5 KiB");
    assert_string_equal(tutti_last_error(), "2.5");
    assert_true(is_read && value == 1.5);
    assert_string_equal(own, "3.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_whole),
        cmocka_unit_test(a_locale_changes_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
