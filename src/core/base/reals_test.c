/* Numbers in text are the same in every locale. The C library's strtod() stands for one of a locale
 * with a comma, which this machine may not have. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/reals.h"

/* Stops at a point, as in de_DE. */
double strtod(const char *restrict text, char **restrict end)
{
    const double value = (double)strtoll(text, end, 10);
    return value;
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_read_whole)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
