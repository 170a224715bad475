/* The environment of a rank: ours, its own variables over it, and the user's over those. */
#include "core/base/testing.h"

#include <unistd.h>

#include "runtime/elastic/launch_environment.h"

/* The list, which is released, is exactly this one. */
static void expect_list(char **list, const char *const *want)
{
    size_t count = 0;
    for (; list[count] != NULL && want[count] != NULL; count++) {
        assert_string_equal(list[count], want[count]);
    }
    assert_null(list[count]);
    assert_null(want[count]);
    tt_free(list);
}

/* In the place of this process's own. */
static const char *const inherited[] = {"PATH=/bin", "RANK=99",     "RANKS=1",
                                        "EXTRA=old", "EXTRA_NAME=", NULL};

static void a_rank_has_torchruns_variables_and_the_users(void **state)
{
    (void)state;
    const char *const more[] = {"EXTRA=new", "ROLE_NAME=mine", NULL};
    tt_rank_facts_t facts = {.rank = 5,
                             .world_size = 8,
                             .local_rank = 1,
                             .local_count = 4,
                             .node_rank = 2,
                             .node_count = 3,
                             .cores = 6,
                             .master_port = 29500,
                             .master_host = "host",
                             .run_id = "job",
                             .begin_s = INT64_C(1790000000),
                             .attempt = 7,
                             .max_restarts = 9,
                             .more = more,
                             .key_fd = 10,
                             .is_watched = true};
    char **list;
    assert_int_equal(tt_environment_create(&facts, &list), TUTTI_OK);
    expect_list(list, (const char *const[]){"PATH=/bin",
                                            "RANKS=1",
                                            "EXTRA_NAME=",
                                            "RANK=5",
                                            "WORLD_SIZE=8",
                                            "ROLE_RANK=5",
                                            "ROLE_WORLD_SIZE=8",
                                            "LOCAL_RANK=1",
                                            "LOCAL_WORLD_SIZE=4",
                                            "GROUP_RANK=2",
                                            "GROUP_WORLD_SIZE=3",
                                            "MASTER_ADDR=host",
                                            "MASTER_PORT=29500",
                                            "TORCHELASTIC_RESTART_COUNT=7",
                                            "TORCHELASTIC_MAX_RESTARTS=9",
                                            "TORCHELASTIC_RUN_ID=job",
                                            "TUTTI_AGENT_STORE=1",
                                            "TUTTI_JOB_BEGIN=1790000000",
                                            "TUTTI_TERMINAL=1",
                                            "TUTTI_KEY_FD=10",
                                            "TUTTI_THREADS=6",
                                            "EXTRA=new",
                                            "ROLE_NAME=mine",
                                            NULL});
}

static void more_variables_take_the_place_of_those_of_the_same_name(void **state)
{
    (void)state;
    char **list;
    assert_int_equal(tt_environment_with(NULL, &list), TUTTI_OK);
    expect_list(list, inherited);
    assert_int_equal(tt_environment_with((const char *const[]){"EXTRA=new", "X=", NULL}, &list),
                     TUTTI_OK);
    expect_list(list, (const char *const[]){"PATH=/bin", "RANK=99", "RANKS=1",
                                            "EXTRA_NAME=", "EXTRA=new", "X=", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_has_torchruns_variables_and_the_users),
        cmocka_unit_test(more_variables_take_the_place_of_those_of_the_same_name),
    };
    environ = (char **)(uintptr_t)inherited;
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
