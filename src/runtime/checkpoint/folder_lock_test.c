/* Locks of folders: of one job at a time, until its processes end, whoever they have forked. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/launch.h>

#include "comm/group/rank_testing.h"
#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "runtime/checkpoint/folder_lock.h"

enum { TEXT_BYTES = 512 };

static char folder[TT_PLACE_BYTES];

static int begin(void **state)
{
    (void)state;
    tt_place_make(folder);
    setenv("TUTTI_CHECKPOINT_WAIT_MS", "20", 1);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_place_remove(folder);
    return 0;
}

/* ---- other processes ------------------------------------------------------------------------- */

typedef struct {
    pid_t pid;
    int end; /* of its pipe: it ends when that is closed */
    tutti_status_t status;
    char text[TEXT_BYTES]; /* of its failure */
} job_t;

/* As a launcher would: `attempt` of a job of two ranks; NULL: without one. */
static void launch(const char *attempt)
{
    if (attempt != NULL) {
        tt_be_rank(0, 2, 29500);
        setenv("TORCHELASTIC_RUN_ID", "symphony", 1);
        setenv("TORCHELASTIC_RESTART_COUNT", attempt, 1);
    }
}

/* Locks, says how that went, and stays. With a fork it leaves the staying to its child. */
static void live(int said, int end, const char *attempt, bool forks)
{
    char text[TEXT_BYTES] = "", byte;
    launch(attempt);
    const tutti_status_t status = tt_folder_lock(folder, NULL, true);
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    if (!forks || fork() == 0) {
        (void)!write(said, &status, sizeof status);
        (void)!write(said, text, sizeof text);
        (void)!read(end, &byte, 1);
    } else {
        (void)!read(end, &byte, 1);
    }
    _exit(0);
}

static job_t start(const char *attempt, bool forks)
{
    job_t job;
    int said[2], stay[2];
    assert_int_equal(pipe(said), 0);
    assert_int_equal(pipe(stay), 0);
    job.pid = fork();
    assert_true(job.pid >= 0);
    if (job.pid == 0) {
        close(stay[1]);
        live(said[1], stay[0], attempt, forks);
    }
    close(said[1]);
    close(stay[0]);
    assert_int_equal(read(said[0], &job.status, sizeof job.status), sizeof job.status);
    assert_int_equal(read(said[0], job.text, sizeof job.text), sizeof job.text);
    close(said[0]);
    job.end = stay[1];
    return job;
}

static void stop(const job_t *job)
{
    kill(job->pid, SIGKILL);
    assert_int_equal(waitpid(job->pid, NULL, 0), job->pid);
    close(job->end);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_held(const char *who)
{
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_ERR_STATE);
    tt_expect_error(folder);
    tt_expect_error(who);
    assert_int_equal(tt_folder_lock(folder, NULL, false), TUTTI_ERR_STATE);
}

static void another_job_is_named(void **state)
{
    (void)state;
    char who[128], host[64] = "";
    const job_t job = start(NULL, false);
    assert_int_equal(job.status, TUTTI_OK);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(who, sizeof who,
             "20 ms (TUTTI_CHECKPOINT_WAIT_MS): no launcher, host %s, process %d, "
             "since 20",
             host, (int)job.pid);
    expect_held(who);
    snprintf(who, sizeof who, "Z; process %d holds it; wait for its end", (int)job.pid);
    expect_held(who);
    stop(&job);
    assert_int_equal(tt_folder_lock(folder, NULL, false), TUTTI_OK);
}

static void what_this_process_has_it_has(void **state)
{
    (void)state;
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    const int before = tt_count_descriptors();
    assert_int_equal(tt_folder_lock(folder, NULL, false), TUTTI_OK);
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    assert_int_equal(tt_count_descriptors(), before);
    const job_t job = start(NULL, false);
    assert_int_equal(job.status, TUTTI_ERR_STATE);
    stop(&job);
}

static void the_end_of_another_job_is_waited_for(void **state)
{
    (void)state;
    job_t job = start(NULL, false);
    setenv("TUTTI_CHECKPOINT_WAIT_MS", "60000", 1);
    const pid_t killer = fork();
    if (killer == 0) {
        usleep(100000);
        kill(job.pid, SIGKILL);
        _exit(0);
    }
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    assert_int_equal(waitpid(killer, NULL, 0), killer);
    stop(&job);
}

static tutti_status_t want_it_together(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    const tutti_status_t status = tt_folder_lock(folder, world, true);
    const char *text = tutti_last_error();
    const bool is_told = status == TUTTI_ERR_STATE && strstr(text, " holds it; ") != NULL &&
                         (self->rank == 0 || strncmp(text, "rank 0: checkpoint: folder ", 27) == 0);
    const tutti_status_t told = is_told ? TUTTI_OK : TT_FAIL(TUTTI_ERR_STATE, "got %s", text);
    tutti_group_release(world);
    return told;
}

/* The others wait for rank 0 in an agreement: not longer than a group waits. */
static void a_wait_beyond_the_groups_timeout_ends_with_the_holders_name(void **state)
{
    (void)state;
    const job_t job = start(NULL, false);
    setenv("TUTTI_CHECKPOINT_WAIT_MS", "2200", 1);
    setenv("TUTTI_TIMEOUT_MS", "2000", 1);
    if (tutti_spawn(want_it_together, 3, &(tutti_spawn_options_t){.threads = true}) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    unsetenv("TUTTI_TIMEOUT_MS");
    stop(&job);
}

/* A child has the descriptor, and no lock. */
static void a_forked_child_holds_nothing(void **state)
{
    (void)state;
    const job_t job = start(NULL, true);
    kill(job.pid, SIGKILL);
    assert_int_equal(waitpid(job.pid, NULL, 0), job.pid);
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    close(job.end); /* the child ends now */
}

/* What the table says is its parent's; and its closing costs the parent nothing. */
static void a_forked_child_is_another_job(void **state)
{
    (void)state;
    char who[64];
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    const job_t child = start(NULL, false);
    snprintf(who, sizeof who, "process %d holds it", (int)getpid());
    assert_int_equal(child.status, TUTTI_ERR_STATE);
    assert_non_null(strstr(child.text, who));
    stop(&child);
    const job_t other = start(NULL, false);
    assert_int_equal(other.status, TUTTI_ERR_STATE);
    stop(&other);
}

static void processes_of_a_job_share_it(void **state)
{
    (void)state;
    char who[64];
    const job_t one = start("0", false), two = start("0", false), restarted = start("1", false);
    assert_int_equal(one.status, TUTTI_OK);
    assert_int_equal(two.status, TUTTI_OK);
    assert_int_equal(restarted.status, TUTTI_ERR_STATE);
    assert_non_null(strstr(restarted.text, ": run symphony, "));
    stop(&one);
    snprintf(who, sizeof who, "process %d holds it", (int)two.pid);
    expect_held(who);
    stop(&two);
    stop(&restarted);
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
}

/* As if the process that holds it were on another host. */
static void move_holder(void)
{
    char path[96], line[1024], host[64] = "", moved[2048] = "";
    snprintf(path, sizeof path, "%s/.lock", folder);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    for (const char *at = line; *at != 0;) {
        const size_t bytes = strlen(moved), name = strlen(host);
        const bool is_host = strncmp(at, host, name) == 0 && at[name] == ',' && at[-1] == ' ';
        snprintf(moved + bytes, sizeof moved - bytes, "%.*s", is_host ? 9 : 1,
                 is_host ? "elsewhere" : at);
        at += is_host ? name : 1;
    }
    rewind(file);
    assert_true(fputs(moved, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A loopback address and a port tell jobs of one host apart, and no hosts. */
static void another_hosts_job_is_another_job(void **state)
{
    (void)state;
    const job_t one = start("0", false);
    assert_int_equal(one.status, TUTTI_OK);
    move_holder();
    const job_t two = start("0", false);
    assert_int_equal(two.status, TUTTI_ERR_STATE);
    assert_non_null(strstr(two.text, "host elsewhere, process "));
    stop(&one);
    stop(&two);
}

static void a_lock_goes_with_its_folder(void **state)
{
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    const int before = tt_count_descriptors();
    for (int i = 0; i < 70; i++) {
        assert_int_equal(end(state), 0);
        assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_OK);
    }
    assert_int_equal(tt_count_descriptors(), before);
}

static void where_nothing_can_be_written_nothing_is_locked(void **state)
{
    (void)state;
    assert_int_equal(tt_folder_lock("/proc/self", NULL, false), TUTTI_OK);
    assert_int_equal(tt_folder_lock("/nonexistent", NULL, false), TUTTI_OK);
    assert_int_equal(tt_folder_lock("/proc/self", NULL, true), TUTTI_ERR_IO);
    tt_expect_error("/proc/self/.lock: cannot open it: ");
    assert_int_equal(access("/nonexistent", F_OK), -1);
}

/* A folder of strangers has a link of that name, to a file of this user's. */
static void a_link_is_not_followed(void **state)
{
    (void)state;
    char link[96], other[96], text[16] = "";
    snprintf(link, sizeof link, "%s/.lock", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    FILE *file = fopen(other, "w+");
    assert_non_null(file);
    assert_true(fputs("precious", file) >= 0 && fflush(file) == 0);
    assert_int_equal(symlink("other", link), 0);
    assert_int_equal(tt_folder_lock(folder, NULL, false), TUTTI_OK);
    assert_int_equal(tt_folder_lock(folder, NULL, true), TUTTI_ERR_IO);
    tt_expect_error("/.lock: cannot open it: ");
    rewind(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 8);
    assert_string_equal(text, "precious");
    assert_int_equal(fclose(file), 0);
}

static void count(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    *(int *)user += strstr(line, "cannot lock it: Too many open files") != NULL;
}

static void more_folders_than_it_can_hold_are_told(void **state)
{
    (void)state;
    char path[96];
    int lines = 0;
    tt_log_set_sink(count, &lines);
    for (int i = 0; i < 66; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        assert_int_equal(tt_folder_lock(path, NULL, true), TUTTI_OK);
    }
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_job_is_named, begin, end),
        cmocka_unit_test_setup_teardown(what_this_process_has_it_has, begin, end),
        cmocka_unit_test_setup_teardown(the_end_of_another_job_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_beyond_the_groups_timeout_ends_with_the_holders_name,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_forked_child_holds_nothing, begin, end),
        cmocka_unit_test_setup_teardown(a_forked_child_is_another_job, begin, end),
        cmocka_unit_test_setup_teardown(processes_of_a_job_share_it, begin, end),
        cmocka_unit_test_setup_teardown(another_hosts_job_is_another_job, begin, end),
        cmocka_unit_test_setup_teardown(a_lock_goes_with_its_folder, begin, end),
        cmocka_unit_test_setup_teardown(where_nothing_can_be_written_nothing_is_locked, begin, end),
        cmocka_unit_test_setup_teardown(a_link_is_not_followed, begin, end),
        cmocka_unit_test_setup_teardown(more_folders_than_it_can_hold_are_told, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
