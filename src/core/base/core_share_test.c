/* Who started a rank, and its share of the cores. */
#include "core/base/testing.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/core_share.h"

static int count_cores(void)
{
    cpu_set_t own;
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    return CPU_COUNT(&own);
}

static int least_1(int value)
{
    return value > 0 ? value : 1;
}

static void the_launcher_is_the_first_ancestor_without_the_variable(void **state)
{
    (void)state;
    const tt_launcher_t launcher = tt_launcher_find("TT_NOBODY_HAS_THIS");
    assert_int_equal(launcher.pid, getppid());
    assert_true(launcher.started > 0);
}

/* torchrun and MPICH's mpirun bind nobody. */
static void ranks_that_are_not_bound_share_the_cores(void **state)
{
    (void)state;
    const char *const launchers[][3] = {
        {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}};
    const int cores = count_cores();
    assert_int_equal(tt_core_share(), cores);
    for (int i = 0; i < 4; i++) {
        setenv(launchers[i][0], "0", 1);
        setenv(launchers[i][1], "2", 1);
        setenv(launchers[i][2], "2", 1);
        assert_int_equal(tt_core_share(), least_1(cores / 2));
        setenv(launchers[i][2], "60000", 1);
        assert_int_equal(tt_core_share(), 1);
        setenv(launchers[i][2], "1", 1);
        assert_int_equal(tt_core_share(), cores);
        for (int j = 0; j < 3; j++) {
            unsetenv(launchers[i][j]);
        }
    }
}

/* Slurm says how many ranks each node has, and which node this is. */
static void a_node_that_slurm_does_not_number_counts_as_one_rank(void **state)
{
    (void)state;
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1,2", 1);
    setenv("SLURM_NODEID", "1", 1);
    assert_int_equal(tt_core_share(), least_1(count_cores() / 2));
    setenv("SLURM_NODEID", "second", 1);
    assert_int_equal(tt_core_share(), count_cores());
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    unsetenv("SLURM_NODEID");
}

/* In a child, whose launcher is this process: one core of its own is all its own. */
static void a_rank_that_is_bound_has_its_cores_for_itself(void **state)
{
    (void)state;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "3", 1);
    setenv("LOCAL_WORLD_SIZE", "3", 1);
    const pid_t child = fork();
    if (child == 0) {
        cpu_set_t most;
        sched_getaffinity(0, sizeof most, &most);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&most) > 1; cpu++) {
            if (CPU_ISSET(cpu, &most)) {
                CPU_CLR(cpu, &most); /* all but one of them */
                break;
            }
        }
        sched_setaffinity(0, sizeof most, &most);
        _exit(tt_core_share() == CPU_COUNT(&most) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_WORLD_SIZE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_launcher_is_the_first_ancestor_without_the_variable),
        cmocka_unit_test(ranks_that_are_not_bound_share_the_cores),
        cmocka_unit_test(a_node_that_slurm_does_not_number_counts_as_one_rank),
        cmocka_unit_test(a_rank_that_is_bound_has_its_cores_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
