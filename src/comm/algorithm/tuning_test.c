/* Reading tuning files: which lines are rules, whose rules they are, and what is refused. */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/tuning.h"

#include <stdlib.h>
#include <unistd.h>

#include "comm/algorithm/choice.h"
#include "core/base/testing.h"

/* The rules for a group, out of a file with this text. */
static tutti_status_t load(const char *text, int ranks, const char *wire,
                           char rules[TT_TUNING_BYTES])
{
    char path[] = "/tmp/tutti_tuning_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    setenv("TUTTI_TUNE", path, 1);
    const tutti_status_t status = tt_tuning_load(ranks, wire, rules);
    unlink(path);
    return status;
}

static void rules_are_those_of_ranks_and_wire(void **state)
{
    (void)state;
    static const char text[] = "# a comment\n\n  2 shm all_reduce:0-4k:flag\r\n"
                               "2 tcp ring\n3 shm ring\n2\tshm\tall_reduce:4k-:direct";
    char rules[TT_TUNING_BYTES];
    assert_int_equal(load(text, 2, "shm", rules), TUTTI_OK);
    assert_string_equal(rules, "all_reduce:0-4k:flag,all_reduce:4k-:direct");
    assert_int_equal(load(text, 2, "tcp", rules), TUTTI_OK);
    assert_string_equal(rules, "ring");
    assert_int_equal(load(text, 4, "tcp", rules), TUTTI_OK);
    assert_string_equal(rules, "");
}

static void what_is_no_rule_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"2 shm",        "shm ring",       "2 shm ring ring",
                                        "0 shm ring",   "-2 shm ring",    "99999999999 shm ring",
                                        "2 shm nought", "2 shm 5z-:ring", "2 shm 4k-2k:ring",
                                        "2 pipe ring",  "2 shm+ ring",    "2 sh ring"};
    char rules[TT_TUNING_BYTES];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(load(texts[i], 2, "shm", rules), TUTTI_ERR_ARG);
        tt_expect_error("/tmp/tutti_tuning_");
        assert_string_equal(rules, "");
    }
}

static void rules_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    static char text[TT_TUNING_FILE_BYTES_MAX + 64];
    char rules[TT_TUNING_BYTES];
    static const char line[] = "2 shm ring\n";
    size_t length = 0;
    while (length + sizeof line < 3 * TT_TUNING_BYTES) {
        memcpy(text + length, line, sizeof line);
        length += sizeof line - 1;
    }
    assert_int_equal(load(text, 2, "shm", rules), TUTTI_ERR_ARG);
    tt_expect_error("bytes of rules for 2 ranks over shm");
    memset(text, '#', sizeof text - 1);
    assert_int_equal(load(text, 2, "shm", rules), TUTTI_ERR_ARG);
    tt_expect_error("want at most");
}

static void a_file_that_was_asked_for_must_exist(void **state)
{
    (void)state;
    char rules[TT_TUNING_BYTES];
    setenv("TUTTI_TUNE", "/nowhere/tune", 1);
    assert_int_equal(tt_tuning_load(2, "shm", rules), TUTTI_ERR_IO);
    tt_expect_error("/nowhere/tune");
    setenv("TUTTI_TUNE", "off", 1);
    assert_int_equal(tt_tuning_load(2, "shm", rules), TUTTI_OK);
    assert_string_equal(rules, "");
}

/* What cannot do a call is passed over; the first that can wins. */
static void the_first_rule_that_fits_wins(void **state)
{
    (void)state;
    tt_coll_rules_t rules = {0};
    assert_int_equal(tt_coll_rules_add(&rules, "all_reduce:flag", "mine"), TUTTI_OK);
    assert_int_equal(tt_coll_rules_add(&rules, "all_reduce:0-1M:pairwise", "yours"), TUTTI_OK);
    tt_plan_request_t request = {.collective = TT_ALL_REDUCE, .size = 2, .count = 1};
    tt_choice_t choice = tt_coll_choose(&rules, &request, 4);
    assert_ptr_equal(choice.algorithm, &tt_algorithm_flag);
    assert_string_equal(choice.why, "mine");
    request.count = 100000; /* more than flags hold */
    choice = tt_coll_choose(&rules, &request, 4);
    assert_ptr_equal(choice.algorithm, &tt_algorithm_pairwise);
    assert_string_equal(choice.why, "yours");
    request.count = 1 << 20;
    choice = tt_coll_choose(&rules, &request, 4);
    assert_ptr_equal(choice.algorithm, &tt_algorithm_direct);
}

/* What tuning found is used as far as it changes no bit; a rule of the user's holds as it is. */
static void what_is_not_canonical_must_be_asked_for(void **state)
{
    (void)state;
    static const char *const text = "all_reduce:0-1k:ring,all_reduce:1k-:pairwise";
    const tt_plan_request_t request = {.collective = TT_ALL_REDUCE, .size = 2, .count = 1};
    tt_coll_rules_t exact = {0}, free = {.is_free = true}, own = {0};
    assert_int_equal(tt_coll_rules_add_tuned(&exact, text), TUTTI_OK);
    assert_int_equal(exact.count, 1);
    assert_true(tt_coll_choose(&exact, &request, 4).algorithm->is_canonical);
    assert_int_equal(tt_coll_rules_add_tuned(&free, text), TUTTI_OK);
    assert_ptr_equal(tt_coll_choose(&free, &request, 4).algorithm, &tt_algorithm_ring);
    assert_int_equal(tt_coll_rules_add(&own, text, "TUTTI_ALGO"), TUTTI_OK);
    assert_int_equal(tt_coll_rules_add_tuned(&own, text), TUTTI_OK);
    assert_int_equal(own.count, 3);
    assert_ptr_equal(tt_coll_choose(&own, &request, 4).algorithm, &tt_algorithm_ring);
}

static void sizes_have_digits_and_a_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t from, to;
    } good[] = {{"all_reduce:0-4k:flag", 0, 4096},
                {"9-99:flag", 9, 99},
                {"1k-2M:flag", 1 << 10, 2 << 20},
                {"1K-3G:flag", 1 << 10, (size_t)3 << 30},
                {"7-17179869183G:flag", 7, (size_t)17179869183 << 30},
                {"5M-:flag", 5 << 20, SIZE_MAX}};
    static const char *const bad[] = {
        "4k-4k:flag", "5k-4k:flag", "-4k:flag",   "/-4k:flag", ":-4k:flag",
        "0-4kk:flag", "0-4 k:flag", "0-+4k:flag", "0-4T:flag", "0-17179869184G:flag"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tt_coll_rules_t rules = {0};
        assert_int_equal(tt_coll_rules_add(&rules, good[i].text, "mine"), TUTTI_OK);
        assert_int_equal(rules.count, 1);
        assert_true(rules.rules[0].bytes_min == good[i].from);
        assert_true(rules.rules[0].bytes_max == good[i].to);
        assert_ptr_equal(rules.rules[0].algorithm, &tt_algorithm_flag);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tt_coll_rules_t rules = {0};
        assert_int_equal(tt_coll_rules_add(&rules, bad[i], "mine"), TUTTI_ERR_ARG);
        assert_int_equal(rules.count, 0);
    }
}

static void a_rule_holds_from_its_first_byte_to_before_its_last(void **state)
{
    (void)state;
    const tt_plan_request_t request = {.collective = TT_ALL_REDUCE, .size = 2, .count = 1};
    tt_coll_rules_t rules = {0};
    assert_int_equal(tt_coll_rules_add(&rules, "all_reduce:8-16:pairwise", "mine"), TUTTI_OK);
    assert_false(tt_coll_rule_matches(&rules.rules[0], &request, 7));
    assert_true(tt_coll_rule_matches(&rules.rules[0], &request, 8));
    assert_true(tt_coll_rule_matches(&rules.rules[0], &request, 15));
    assert_false(tt_coll_rule_matches(&rules.rules[0], &request, 16));
}

static void a_group_has_up_to_a_million_ranks(void **state)
{
    (void)state;
    char rules[TT_TUNING_BYTES];
    assert_int_equal(load("1048576 tcp ring\n", 1 << 20, "tcp", rules), TUTTI_OK);
    assert_string_equal(rules, "ring");
    assert_int_equal(load("1048577 tcp ring\n", 2, "tcp", rules), TUTTI_ERR_ARG);
    tt_expect_error("is no line RANKS WIRE RULE");
}

static void what_does_not_commute_keeps_its_order_whatever_a_rule_says(void **state)
{
    (void)state;
    tt_plan_request_t request = {.collective = TT_ALL_REDUCE, .size = 3, .count = 1 << 20};
    tt_coll_rules_t rules = {.is_free = true};
    assert_int_equal(tt_coll_rules_add(&rules, "ring", "TUTTI_ALGO"), TUTTI_OK);
    assert_ptr_equal(tt_coll_choose(&rules, &request, 4).algorithm, &tt_algorithm_ring);
    request.keeps_order = true;
    assert_ptr_equal(tt_coll_choose(&rules, &request, 4).algorithm, &tt_algorithm_direct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_those_of_ranks_and_wire),
        cmocka_unit_test(what_is_no_rule_is_refused),
        cmocka_unit_test(rules_beyond_the_limit_are_refused),
        cmocka_unit_test(a_file_that_was_asked_for_must_exist),
        cmocka_unit_test(the_first_rule_that_fits_wins),
        cmocka_unit_test(what_is_not_canonical_must_be_asked_for),
        cmocka_unit_test(sizes_have_digits_and_a_unit),
        cmocka_unit_test(a_rule_holds_from_its_first_byte_to_before_its_last),
        cmocka_unit_test(a_group_has_up_to_a_million_ranks),
        cmocka_unit_test(what_does_not_commute_keeps_its_order_whatever_a_rule_says),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
