/* Explanations of plans: what they say of algorithms, costs and hosts, and what they refuse. */
#include "core/base/testing.h"

#include <limits.h>

#include <tutti/diagnose.h>

#include "comm/plan/plan.h"

/* The explanation has this part. */
static void expect_text(const tutti_explain_options_t *options, const char *part)
{
    tutti_buffer_t text;
    assert_int_equal(tutti_explain(options, &text), TUTTI_OK);
    if (strstr(text.data, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, (const char *)text.data);
    }
    tutti_buffer_release(&text);
}

static void expect_refused(const tutti_explain_options_t *options, const char *why)
{
    tutti_buffer_t text;
    assert_int_equal(tutti_explain(options, &text), TUTTI_ERR_ARG);
    tt_expect_error(why);
    assert_int_equal(tutti_explain_draw(options, &text), TUTTI_ERR_ARG);
    tt_expect_error(why);
}

/* two_level is for several hosts alone, flag and staged for one. */
static void an_algorithm_names_what_it_does(void **state)
{
    (void)state;
    static const char *const does[][2] = {
        {"flag", "all_reduce reduce_scatter all_gather broadcast barrier reduce gather scatter "
                 "all_to_all scan exscan"},
        {"staged", "all_reduce reduce_scatter all_gather broadcast barrier reduce gather scatter "
                   "all_to_all"},
        {"prefix", "scan exscan"},
        {"two_level", "all_reduce reduce_scatter all_gather broadcast barrier"},
        {"dissemination", "barrier"},
    };
    tutti_algorithm_t algorithm;
    size_t found = 0;
    for (size_t i = 0; tutti_explain_algorithm(i, &algorithm) == TUTTI_OK; i++) {
        for (size_t j = 0; j < sizeof does / sizeof does[0]; j++) {
            if (strcmp(does[j][0], algorithm.name) == 0) {
                assert_string_equal(algorithm.collectives, does[j][1]);
                found++;
            }
        }
    }
    assert_int_equal(found, sizeof does / sizeof does[0]);
}

/* Of a broadcast it is the root, rank 0, that sends most; the others nothing. */
static void the_head_has_the_call_and_the_largest_cost_of_any_rank(void **state)
{
    (void)state;
    const tutti_explain_options_t options = {
        .collective = "broadcast", .algorithm = "pairwise", .ranks = 3, .count = 5};
    expect_text(&options, "broadcast of 3 ranks, 5 elements of f32: pairwise\n"
                          "  chosen by  asked for\n");
    expect_text(&options, "  cost       2 rounds; a rank sends at most 10 elements, reads 0 of ");
}

static void what_is_no_collective_is_answered_with_all_of_them(void **state)
{
    (void)state;
    tutti_buffer_t text;
    const char *names = NULL;
    assert_int_equal(tutti_explain(&(tutti_explain_options_t){.collective = "sum"}, &text),
                     TUTTI_ERR_ARG);
    tt_expect_error("there is no collective \"sum\"; there are all_reduce, reduce_scatter, ");
    names = strstr(tutti_last_error(), "there are ") + strlen("there are ");
    for (int i = 0; i < TT_COLLECTIVE_COUNT; i++) {
        const char *name = tt_collective_name((tt_collective_t)i);
        assert_memory_equal(names, name, strlen(name));
        names += strlen(name) + strlen(", ");
    }
    assert_string_equal(names - strlen(", "), "");
}

/* 4 × (2³⁰ + 1) and 2 × (2³¹ - 1) are 4 and -2 in an int. */
static void numbers_of_hosts_and_ranks_agree(void **state)
{
    (void)state;
    tutti_explain_options_t options = {.collective = "all_reduce", .hosts = 2, .per_host = 2};
    expect_text(&options, "all_reduce of 4 ranks");
    options = (tutti_explain_options_t){
        .collective = "all_reduce", .hosts = 4, .per_host = (1 << 30) + 1};
    expect_refused(&options, "explain: 4294967300 ranks; want 1 to 4096");
    options.ranks = 4;
    expect_refused(&options, "explain: 4 hosts of 1073741825 ranks are not 4 ranks");
    options = (tutti_explain_options_t){
        .collective = "all_reduce", .hosts = INT_MAX, .per_host = INT_MAX};
    expect_refused(&options, "explain: 4611686014132420609 ranks; want 1 to 4096");
    options = (tutti_explain_options_t){.collective = "all_reduce", .hosts = -2, .per_host = -2};
    expect_refused(&options, "explain: -2 hosts of -2 ranks are not 4 ranks");
    options = (tutti_explain_options_t){.collective = "all_reduce", .ranks = -1};
    expect_refused(&options, "explain: -1 ranks; want 1 to 4096");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_algorithm_names_what_it_does),
        cmocka_unit_test(the_head_has_the_call_and_the_largest_cost_of_any_rank),
        cmocka_unit_test(what_is_no_collective_is_answered_with_all_of_them),
        cmocka_unit_test(numbers_of_hosts_and_ranks_agree),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
