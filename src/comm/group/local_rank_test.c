/* The number of a rank on its host: as the launcher says, else counted; the same in all groups. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/group/group_team.h"
#include "comm/net/free_port_test.h"
#include "core/base/testing.h"

static void expect_counted(tt_member_t *m)
{
    const int others[] = {2, 0};
    TT_EXPECT(m, tutti_group_local_rank(m->group) == m->rank);
    TT_EXPECT(m, tutti_group_local_size(m->group) == 3);
    if (m->rank != 1) {
        tutti_group_t *pair = NULL;
        TT_EXPECT(m, tutti_group_new(m->group, others, 2, NULL, &pair) == TUTTI_OK);
        TT_EXPECT(m, tutti_group_rank(pair) == (m->rank == 2 ? 0 : 1));
        TT_EXPECT(m, tutti_group_local_rank(pair) == m->rank);
        TT_EXPECT(m, tutti_group_local_size(pair) == 3);
        tutti_group_release(pair);
    }
}

static void without_a_launcher_ranks_of_a_machine_are_counted(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(3, 0, expect_counted, NULL).text, "");
    setenv("TUTTI_WIRES", "tcp", 1); /* hosts of their own, but one machine */
    setenv("TUTTI_PROTECT", "off", 1);
    assert_string_equal(tt_team_run(3, 0, expect_counted, NULL).text, "");
    unsetenv("TUTTI_WIRES");
    unsetenv("TUTTI_PROTECT");
}

static void who_is_alone_is_the_only_one(void **state)
{
    (void)state;
    tutti_group_t *world;
    assert_int_equal(tutti_init(NULL, &world), TUTTI_OK);
    assert_int_equal(tutti_group_local_rank(world), 0);
    assert_int_equal(tutti_group_local_size(world), 1);
    tutti_group_release(world);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* A process of a launcher that has put four ranks on hosts of two. */
static int be_launched(int rank, int port)
{
    set_number("RANK", rank);
    set_number("WORLD_SIZE", 4);
    set_number("LOCAL_RANK", rank % 2);
    set_number("LOCAL_WORLD_SIZE", 2);
    set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    tutti_group_t *world;
    if (tutti_init(&(tutti_init_options_t){.timeout_ms = 20000}, &world) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
        return 1;
    }
    const bool is_right =
        tutti_group_local_rank(world) == rank % 2 && tutti_group_local_size(world) == 2;
    tutti_group_release(world);
    return is_right ? 0 : 2;
}

static void the_launchers_word_counts(void **state)
{
    (void)state;
    pid_t ranks[4];
    int held;
    const int port = tt_hold_port(&held);
    for (int rank = 0; rank < 4; rank++) {
        ranks[rank] = fork();
        assert_true(ranks[rank] >= 0);
        if (ranks[rank] == 0) {
            _exit(be_launched(rank, port));
        }
    }
    for (int rank = 0; rank < 4; rank++) {
        int end;
        assert_int_equal(waitpid(ranks[rank], &end, 0), ranks[rank]);
        assert_true(WIFEXITED(end));
        assert_int_equal(WEXITSTATUS(end), 0);
    }
    close(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_launchers_word_counts),
        cmocka_unit_test(without_a_launcher_ranks_of_a_machine_are_counted),
        cmocka_unit_test(who_is_alone_is_the_only_one),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
