/* Texts of sizes and spans of time: the edges of each unit. */
#include "core/base/testing.h"
#include "core/base/units.h"

static void bytes_have_the_largest_unit_of_which_there_is_one(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {1048523, "1023.9 KiB"},
                 {1048575, "1.0 MiB"},
                 {UINT64_C(1) << 30, "1.0 GiB"},
                 {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TT_UNITS_TEXT_BYTES];
        assert_string_equal(tt_units_bytes(cases[i].bytes, text), cases[i].text);
    }
}

static void spans_have_two_digits(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0.00 ms"},  {0.00031, "0.31 ms"}, {0.0023, "2.3 ms"}, {0.05, "50 ms"},
                 {0.2, "0.20 s"}, {0.996, "1.0 s"},     {2.31, "2.3 s"},    {89, "89 s"},
                 {90, "1.5 min"}, {1020, "17 min"},     {5399, "90 min"},   {5400, "1.5 h"},
                 {86400, "24 h"}, {172800, "2.0 days"}, {1e7, "116 days"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TT_UNITS_TEXT_BYTES];
        assert_string_equal(tt_units_seconds(cases[i].seconds, text), cases[i].text);
    }
}

static void shares_are_per_cent(void **state)
{
    (void)state;
    char text[TT_UNITS_TEXT_BYTES];
    assert_string_equal(tt_units_percent(0.00728, text), "0.73 %");
    assert_string_equal(tt_units_percent(0.0136, text), "1.4 %");
    assert_string_equal(tt_units_percent(0.999, text), "100 %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_the_largest_unit_of_which_there_is_one),
        cmocka_unit_test(spans_have_two_digits),
        cmocka_unit_test(shares_are_per_cent),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
