/* Settings: the table, defaults, the environment, and values that are refused. */
#include "core/base/testing.h"

#include <stdlib.h>

#include "core/base/config.h"

static void every_setting_has_a_variable_and_a_description(void **state)
{
    (void)state;
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        assert_true(strlen(tt_config_table[i].variable) > 0);
        assert_true(strlen(tt_config_table[i].about) > 0);
        assert_non_null(tt_config_table[i].fallback);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(tt_config_table[i].variable, tt_config_table[j].variable);
        }
    }
}

static void the_default_holds_until_the_environment_says_otherwise(void **state)
{
    (void)state;
    unsetenv("TUTTI_LOG");
    assert_false(tt_config_is_set(TT_CONFIG_LOG));
    assert_string_equal(tt_config_text(TT_CONFIG_LOG), "warn");
    setenv("TUTTI_LOG", "debug", 1);
    assert_true(tt_config_is_set(TT_CONFIG_LOG));
    assert_string_equal(tt_config_text(TT_CONFIG_LOG), "debug");
    setenv("TUTTI_LOG", "", 1); /* empty is not set */
    assert_false(tt_config_is_set(TT_CONFIG_LOG));
    assert_string_equal(tt_config_text(TT_CONFIG_LOG), "warn");
    unsetenv("TUTTI_LOG");
}

static void a_number_must_be_whole_and_within_its_limits(void **state)
{
    (void)state;
    int64_t value = 77;
    setenv("WORLD_SIZE", "4", 1);
    assert_int_equal(tt_config_int(TT_CONFIG_WORLD_SIZE, 1, 1024, &value), TUTTI_OK);
    assert_int_equal(value, 4);
    const char *const bad[] = {"0", "1025", "4x", " 4", "4 ", "x", "-1", "4.0", "0x4", "+4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("WORLD_SIZE", bad[i], 1);
        assert_int_equal(tt_config_int(TT_CONFIG_WORLD_SIZE, 1, 1024, &value), TUTTI_ERR_ARG);
        tt_expect_error("WORLD_SIZE=");
        tt_expect_error(bad[i]);
        tt_expect_error("an integer from 1 to 1024");
        assert_int_equal(value, 4);
    }
    unsetenv("WORLD_SIZE");
}

static void whole_numbers_are_read_strictly(void **state)
{
    (void)state;
    int64_t value = 0;
    assert_true(tt_parse_int("-12", &value));
    assert_int_equal(value, -12);
    assert_true(tt_parse_int("9223372036854775807", &value));
    assert_true(value == INT64_MAX);
    const char *const bad[] = {"", "-", "--1", "9223372036854775808", "1e3", "one", "\t1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(tt_parse_int(bad[i], &value));
    }
}

static void an_invalid_value_names_variable_value_and_what_is_allowed(void **state)
{
    (void)state;
    const char *const bad[][3] = {
        {"TUTTI_LOG", "verbose", "TUTTI_LOG=verbose: want off, error, warn, info or debug"},
        {"TUTTI_LOG", "war", "TUTTI_LOG=war: "},
        {"TUTTI_ISA", "avx9", "TUTTI_ISA=avx9: want auto, baseline, avx2, avx512, amx or bf16"},
        {"TUTTI_TIMEOUT_MS", "1s", "TUTTI_TIMEOUT_MS=1s: want an integer from 1 to 2147483647"},
        {"TUTTI_TIMEOUT_MS", "0", "TUTTI_TIMEOUT_MS=0: "},
        {"TUTTI_EXACT", "yes", "TUTTI_EXACT=yes: want an integer from 0 to 1"},
        {"TUTTI_MPI", "intel", "TUTTI_MPI=intel: want openmpi or mpich"}};
    assert_int_equal(tt_config_check(), TUTTI_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv(bad[i][0], bad[i][1], 1);
        assert_int_equal(tt_config_check(), TUTTI_ERR_ARG);
        tt_expect_error(bad[i][2]);
        unsetenv(bad[i][0]);
    }
    setenv("TUTTI_LOG", "off", 1);
    setenv("TUTTI_MPI", "", 1); /* empty is not set */
    setenv("RANK", "x", 1);     /* others' variables are checked where they are read */
    assert_int_equal(tt_config_check(), TUTTI_OK);
    unsetenv("TUTTI_LOG");
    unsetenv("TUTTI_MPI");
    unsetenv("RANK");
}

static void every_fallback_is_allowed(void **state)
{
    (void)state;
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        if (tt_config_table[i].fallback[0] != 0) {
            setenv(tt_config_table[i].variable, tt_config_table[i].fallback, 1);
            assert_int_equal(tt_config_check(), TUTTI_OK);
            unsetenv(tt_config_table[i].variable);
        }
    }
}

static void an_unknown_name_is_told_with_the_nearest_one(void **state)
{
    (void)state;
    char text[256];
    size_t at = 0;
    assert_false(tt_config_next_unknown(&at, text, sizeof text));
    setenv("TUTTI_TIMEOUTMS", "5", 1);
    setenv("TUTTIX", "5", 1); /* not ours */
    at = 0;
    assert_true(tt_config_next_unknown(&at, text, sizeof text));
    assert_non_null(strstr(text, "TUTTI_TIMEOUTMS is set, but Tutti knows no such variable; did "
                                 "you mean TUTTI_TIMEOUT_MS?"));
    assert_false(tt_config_next_unknown(&at, text, sizeof text));
    unsetenv("TUTTI_TIMEOUTMS");
    unsetenv("TUTTIX");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_has_a_variable_and_a_description),
        cmocka_unit_test(the_default_holds_until_the_environment_says_otherwise),
        cmocka_unit_test(a_number_must_be_whole_and_within_its_limits),
        cmocka_unit_test(whole_numbers_are_read_strictly),
        cmocka_unit_test(an_invalid_value_names_variable_value_and_what_is_allowed),
        cmocka_unit_test(every_fallback_is_allowed),
        cmocka_unit_test(an_unknown_name_is_told_with_the_nearest_one),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
