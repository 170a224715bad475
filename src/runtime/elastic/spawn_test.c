/* tutti_spawn: this program is executed again for its entries, which check what they were given and
 * fail in the ways that ranks fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/group.h>
#include <tutti/launch.h>

#include "core/base/clock.h"
#include "core/base/testing.h"
#include "runtime/elastic/spawn_impl.h"

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static tutti_status_t forget(const tutti_spawned_t *self)
{
    (void)self;
    return TUTTI_OK;
}

/* Each rank adds its rank + 1; wrong sums, sizes and arguments are failures. */
static tutti_status_t add_up(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_tensor_t *x = NULL;
    if (self->argument.bytes != 5 || strcmp(self->argument.data, "hello") != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "argument \"%s\"", (const char *)self->argument.data);
    }
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tutti_status_t status = tutti_group_tensor(world, TUTTI_F64, TUTTI_SHAPE(1), &x);
    if (status >= 0) {
        *(double *)tutti_tensor_data(x) = self->rank + 1;
        status = tutti_all_reduce(world, x, TUTTI_SUM, NULL);
    }
    const double want = self->size * (self->size + 1) / 2.0;
    if (status >= 0 && tutti_tensor_item(x) != want) {
        status = TT_FAIL(TUTTI_ERR_MISMATCH, "sum %g, want %g", tutti_tensor_item(x), want);
    }
    tutti_tensor_release(x);
    tutti_group_release(world);
    return status;
}

/* The others wait for rank 1 in a call, and notice. */
static tutti_status_t fail_in_a_group(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    const tutti_status_t status = self->rank == 1 ? TUTTI_OK : tutti_barrier(world, NULL);
    tutti_group_release(world);
    if (self->rank == 1) {
        nap_ms(100); /* the others notice, and return, before this rank does */
        return TT_FAIL(TUTTI_ERR_FORMAT, "no sense in line 7");
    }
    return status;
}

static tutti_status_t fail_before_meeting(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    if (self->rank == 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "rank one does not like it");
    }
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tutti_group_release(world);
    return TUTTI_OK;
}

/* As ps and top show it, although the process executes /proc/self/exe. */
static tutti_status_t tell_its_name(const tutti_spawned_t *self)
{
    char name[16] = "";
    (void)self;
    prctl(PR_GET_NAME, name);
    return strncmp(name, program_invocation_short_name, 15) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH, "the process is called %s", name);
}

static tutti_status_t die(const tutti_spawned_t *self)
{
    if (self->rank == 2) {
        raise(SIGKILL);
    }
    nap_ms(60000);
    return TUTTI_OK;
}

static tutti_status_t leave(const tutti_spawned_t *self)
{
    if (self->rank == 0) {
        fprintf(stderr, "first\noh dear\n");
        exit(3);
    }
    nap_ms(60000);
    return TUTTI_OK;
}

static tutti_status_t succeed_at_last(const tutti_spawned_t *self)
{
    return self->restart_count < 2 && self->rank == 1
               ? TT_FAIL(TUTTI_ERR_IO, "attempt %d", self->restart_count)
               : TUTTI_OK;
}

static tutti_status_t linger(const tutti_spawned_t *self)
{
    if (self->rank != 1) {
        nap_ms(60000);
    }
    return TUTTI_OK;
}

/* Writes its process's number into the file that the argument names. */
static tutti_status_t tell_and_linger(const tutti_spawned_t *self)
{
    char path[256];
    snprintf(path, sizeof path, "%s.%d", (const char *)self->argument.data, self->rank);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s", path);
    }
    fprintf(file, "%d", (int)getpid());
    fclose(file);
    nap_ms(60000);
    return TUTTI_OK;
}

/* A rank may spawn, too; and what it executes is not taken for a rank. */
static tutti_status_t spawn_again(const tutti_spawned_t *self)
{
    if (getenv("TUTTI_SPAWN") != NULL || strcmp(getenv("EXTRA"), "a=b") != 0) {
        return TT_FAIL(TUTTI_ERR_STATE, "TUTTI_SPAWN is handed on, or EXTRA is not");
    }
    return tutti_spawn(add_up, 2, &(tutti_spawn_options_t){.argument = self->argument});
}

/* The first is known to the program that spawns, and not to its ranks. */
static const tutti_spawn_entry_t entries[] = {{"forget", forget},
                                              {"add_up", add_up},
                                              {"fail_in_a_group", fail_in_a_group},
                                              {"fail_before_meeting", fail_before_meeting},
                                              {"tell_its_name", tell_its_name},
                                              {"die", die},
                                              {"leave", leave},
                                              {"succeed_at_last", succeed_at_last},
                                              {"linger", linger},
                                              {"tell_and_linger", tell_and_linger},
                                              {"spawn_again", spawn_again},
                                              {NULL, NULL}};

/* Takes the place of the C library's, in launchers too: a group whose leader has been reaped may be
 * another's by now. */
int kill(pid_t pid, int number)
{
    if (pid < -1 && syscall(SYS_kill, pid, 0) != 0 && errno == ESRCH) {
        abort();
    }
    return (int)syscall(SYS_kill, pid, number);
}

static const tutti_spawn_options_t hello = {.argument = {"hello", 5}};
static const tutti_spawn_options_t hello_threads = {.argument = {"hello", 5}, .threads = true};

static void ranks_meet_and_nothing_is_left(void **state)
{
    (void)state;
    const int before = tt_count_descriptors();
    assert_int_equal(tutti_spawn(add_up, 3, &hello), TUTTI_OK);
    assert_int_equal(tutti_spawn(add_up, 1, &hello), TUTTI_OK);
    assert_int_equal(tutti_spawn(add_up, 3, &hello_threads), TUTTI_OK);
    assert_int_equal(tt_count_descriptors(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child */
}

static void an_error_comes_back_with_its_rank_and_its_text(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const tutti_spawn_options_t options = {.threads = threads != 0};
        assert_int_equal(tutti_spawn(add_up, 2, &options), TUTTI_ERR_ARG);
        tt_expect_error(": argument \"\"");
        assert_int_equal(tutti_spawn(fail_before_meeting, 3, &options), TUTTI_ERR_ARG);
        assert_string_equal(tutti_last_error(), "rank 1: rank one does not like it");
    }
}

static void the_cause_is_told_and_not_who_noticed(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const tutti_spawn_options_t options = {.threads = threads != 0};
        assert_int_equal(tutti_spawn(fail_in_a_group, 3, &options), TUTTI_ERR_FORMAT);
        assert_string_equal(tutti_last_error(), "rank 1: no sense in line 7");
    }
}

static void a_rank_that_dies_is_named_and_ends_the_others(void **state)
{
    (void)state;
    tutti_spawn_t *spawn;
    const int64_t begin_ns = tt_clock_ns();
    assert_int_equal(tutti_spawn(die, 3, NULL), TUTTI_ERR_PEER);
    assert_string_equal(tutti_last_error(), "rank 2: killed by SIGKILL");
    assert_int_equal(tutti_spawn_start(leave, 2, NULL, &spawn), TUTTI_OK);
    assert_null(tutti_spawn_report(spawn));
    for (int i = 0; i < 2; i++) { /* the same again */
        assert_int_equal(tutti_spawn_join(spawn, 0), TUTTI_ERR_PEER);
        assert_string_equal(tutti_last_error(), "rank 0: exit code 3; its last words: oh dear");
    }
    assert_int_equal(tutti_spawn_failed_rank(spawn), 0);
    assert_int_equal(tutti_spawn_report(spawn)->exit_code, 3);
    tutti_spawn_release(spawn);
    assert_true(tt_clock_ns() - begin_ns < 30 * TT_NS_PER_S);
}

static void ranks_are_called_after_the_program(void **state)
{
    (void)state;
    assert_int_equal(tutti_spawn(tell_its_name, 1, NULL), TUTTI_OK);
}

/* Where a page ends, too; and its end is marked as a text's is. */
static void an_argument_of_any_size_has_room(void **state)
{
    (void)state;
    static char text[5000];
    memset(text, 'x', sizeof text);
    for (size_t bytes = 1; bytes <= 4097; bytes += bytes < 4000 ? 61 : 1) {
        const tutti_spawn_options_t options = {.argument = {text, bytes}};
        tt_spawn_block_t *block;
        int fd;
        assert_int_equal(tt_spawn_block_create("entry", 1, &options, &block, &fd), TUTTI_OK);
        const char *end = (const char *)block + block->bytes;
        assert_int_equal(end[-1], 0);
        assert_memory_equal(end - 1 - bytes, text, bytes);
        tt_spawn_block_close(block);
        close(fd);
    }
}

static void a_rank_that_lacks_the_entry_says_so(void **state)
{
    (void)state;
    assert_int_equal(tutti_spawn(forget, 2, NULL), TUTTI_ERR_PEER);
    tt_expect_error("exit code 126");
    tt_expect_error("\"forget\" is not among the entries");
}

static void ranks_start_again(void **state)
{
    (void)state;
    assert_int_equal(tutti_spawn(succeed_at_last, 2, &(tutti_spawn_options_t){.max_restarts = 2}),
                     TUTTI_OK);
    assert_int_equal(tutti_spawn(succeed_at_last, 2, &(tutti_spawn_options_t){.max_restarts = 1}),
                     TUTTI_ERR_IO);
    assert_string_equal(tutti_last_error(), "rank 1: attempt 1");
}

static void a_join_may_end_early(void **state)
{
    (void)state;
    tutti_spawn_t *spawn;
    assert_int_equal(tutti_spawn_start(linger, 1, NULL, &spawn), TUTTI_OK);
    assert_int_equal(tutti_spawn_join(spawn, 300), TUTTI_PENDING);
    assert_int_equal(tutti_spawn_kill(spawn, 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_spawn_kill(spawn, 65), TUTTI_ERR_ARG);
    tt_expect_error("65 is no signal");
    assert_int_equal(tutti_spawn_kill(spawn, SIGTERM), TUTTI_OK);
    assert_int_equal(tutti_spawn_join(spawn, 0), TUTTI_ERR_ABORTED);
    tt_expect_error("stopped by SIGTERM (rank 0: killed by SIGTERM)");
    tutti_spawn_release(spawn);
    assert_int_equal(tutti_spawn_start(linger, 2, NULL, &spawn), TUTTI_OK);
    assert_int_equal(tutti_spawn_kill(spawn, SIGHUP), TUTTI_OK);
    tutti_spawn_release(spawn); /* kills */
}

/* In a launcher that SLOW is set for, before it begins: until a signal waits for it. */
static void await_signal(void)
{
    const char *role = getenv("TUTTI_SPAWN");
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    sigset_t pending;
    if (getenv("SLOW") == NULL || role == NULL || strncmp(role, "launcher", 8) != 0) {
        return;
    }
    do {
        nap_ms(1);
        sigpending(&pending);
    } while (sigisemptyset(&pending) && !tt_deadline_is_past(deadline));
}

static void a_signal_that_comes_before_the_launcher_is_ready_counts(void **state)
{
    (void)state;
    tutti_spawn_t *spawn;
    const tutti_spawn_options_t options = {.environment = (const char *const[]){"SLOW=1", NULL}};
    assert_int_equal(tutti_spawn_start(linger, 1, &options, &spawn), TUTTI_OK);
    assert_int_equal(tutti_spawn_kill(spawn, SIGHUP), TUTTI_OK);
    assert_int_equal(tutti_spawn_join(spawn, 0), TUTTI_ERR_ABORTED);
    tt_expect_error("stopped by SIGHUP (rank 0: killed by SIGHUP)");
    tutti_spawn_release(spawn);
}

/* It waits like any other while it is blocked. */
static void one_that_the_program_ignores_does_not(void **state)
{
    (void)state;
    tutti_spawn_t *spawn;
    const tutti_spawn_options_t options = {.environment = (const char *const[]){"SLOW=1", NULL},
                                           .grace_ms = 50};
    signal(SIGHUP, SIG_IGN);
    assert_int_equal(tutti_spawn_start(linger, 1, &options, &spawn), TUTTI_OK);
    assert_int_equal(tutti_spawn_kill(spawn, SIGHUP), TUTTI_OK);
    assert_int_equal(tutti_spawn_join(spawn, 500), TUTTI_PENDING);
    tutti_spawn_release(spawn);
    signal(SIGHUP, SIG_DFL);
}

/* On a busy machine rank 1 may not have begun by then, either: then there is more time. */
static void who_is_late_is_named(void **state)
{
    (void)state;
    const char *want = "spawn: 2 of 3 ranks have not ended in time: 0, 2";
    for (int64_t timeout_ms = 500; timeout_ms < 40000; timeout_ms *= 4) {
        const tutti_spawn_options_t options = {.timeout_ms = timeout_ms};
        assert_int_equal(tutti_spawn(linger, 3, &options), TUTTI_ERR_TIMEOUT);
        if (strcmp(tutti_last_error(), want) == 0) {
            return;
        }
    }
    assert_string_equal(tutti_last_error(), want);
}

static void a_rank_may_spawn_with_more_environment(void **state)
{
    (void)state;
    const char *const environment[] = {"EXTRA=a=b", NULL};
    tutti_spawn_options_t options = hello;
    options.environment = environment;
    assert_int_equal(tutti_spawn(spawn_again, 2, &options), TUTTI_OK);
    assert_int_equal(
        tutti_spawn(add_up, 2,
                    &(tutti_spawn_options_t){.environment = (const char *const[]){"EXTRA", NULL}}),
        TUTTI_ERR_ARG);
    tt_expect_error("NAME=value");
}

static void *spawn_in_a_thread(void *user)
{
    *(tutti_status_t *)user = tutti_spawn(add_up, 2, &hello);
    return NULL;
}

/* Bits of the standard streams that are closed. */
static void a_program_may_have_closed_its_streams(void **state)
{
    (void)state;
    const tutti_spawn_options_t options = {.argument = tutti_text("hello")};
    for (int closed = 1; closed < 8; closed++) {
        int status = -1;
        const pid_t program = fork();
        if (program == 0) {
            for (int fd = 0; fd < 3; fd++) {
                (void)((closed & 1 << fd) != 0 && close(fd));
            }
            _exit(tutti_spawn(add_up, 2, &options) == TUTTI_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(program, &status, 0), program);
        assert_int_equal(status, 0);
    }
}

static void threads_spawn_at_once(void **state)
{
    (void)state;
    pthread_t threads[3];
    tutti_status_t results[3] = {TUTTI_ERR_STATE, TUTTI_ERR_STATE, TUTTI_ERR_STATE};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, spawn_in_a_thread, &results[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], TUTTI_OK);
    }
}

static void an_ignored_sigchld_does_not_matter(void **state)
{
    (void)state;
    tutti_spawn_t *spawn;
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(tutti_spawn(add_up, 2, &hello), TUTTI_OK);
    assert_int_equal(tutti_spawn_start(add_up, 2, &hello, &spawn), TUTTI_OK);
    assert_int_equal(tutti_spawn_join(spawn, 0), TUTTI_OK);
    assert_int_equal(tutti_spawn_kill(spawn, SIGTERM), TUTTI_OK); /* there is nobody any more */
    tutti_spawn_release(spawn);
    signal(SIGCHLD, SIG_DFL);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    int code;
    assert_int_equal(tutti_spawn(add_up, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_spawn(add_up, 1, &(tutti_spawn_options_t){.timeout_ms = -1}),
                     TUTTI_ERR_ARG);
    assert_false(tutti_spawned(entries + 2, &code));
    assert_int_equal(tutti_spawn(add_up, 2, &hello), TUTTI_ERR_NOT_FOUND);
    assert_false(tutti_spawned(NULL, &code));
    assert_int_equal(tutti_spawn(add_up, 2, &hello), TUTTI_ERR_STATE);
    tt_expect_error("main() must begin with");
    assert_false(tutti_spawned(entries, &code));
    setenv("TUTTI_SPAWN", "rank 0", 1); /* as if main() had not begun with it */
    assert_int_equal(tutti_spawn(add_up, 2, &hello), TUTTI_ERR_STATE);
    unsetenv("TUTTI_SPAWN");
}

/* The nth allocation fails, for every n. */
static void nothing_is_lost_when_memory_runs_out(void **state)
{
    (void)state;
    const int before = tt_count_descriptors();
    for (int threads = 0; threads < 2; threads++) {
        const tutti_spawn_options_t options = {.threads = threads != 0};
        bool has_failed = true;
        size_t nth = 0;
        while (has_failed) {
            tt_alloc_fail_at(++nth);
            const tutti_status_t status = tutti_spawn(succeed_at_last, 1, &options);
            has_failed = tt_alloc_has_failed() != 0;
            tt_alloc_fail_at(0);
            assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        }
        assert_in_range(nth, 3, 100);
    }
    assert_int_equal(tt_count_descriptors(), before);
}

/* ---- the death of the program ---------------------------------------------------------------- */

static int read_pid(const char *base, int rank)
{
    char path[256];
    int pid = 0;
    snprintf(path, sizeof path, "%s.%d", base, rank);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%9d", &pid) != 1) {
            pid = 0;
        }
        fclose(file);
    }
    return pid;
}

static bool await(bool (*is_so)(const int *pids, const char *base), int *pids, const char *base)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    while (!is_so(pids, base)) {
        if (tt_deadline_is_past(deadline)) {
            return false;
        }
        nap_ms(5);
    }
    return true;
}

static bool have_started(const int *pids, const char *base)
{
    (void)pids;
    return read_pid(base, 0) > 0 && read_pid(base, 1) > 0;
}

static bool are_gone(const int *pids, const char *base)
{
    (void)base;
    return kill(pids[0], 0) != 0 && kill(pids[1], 0) != 0;
}

/* The program's child gives back what it has a copy of, and lives on. */
static void spawn_and_fork(const tutti_spawn_options_t *options, _Atomic pid_t *child)
{
    tutti_spawn_t *spawn;
    if (tutti_spawn_start(tell_and_linger, 2, options, &spawn) == TUTTI_OK) {
        if (fork() == 0) {
            alarm(60);
            tutti_spawn_release(spawn);
            atomic_store(child, getpid());
            pause();
        }
        (void)tutti_spawn_join(spawn, 0);
    }
}

static void no_rank_outlives_a_program_that_is_killed(void **state)
{
    (void)state;
    _Atomic pid_t *child =
        mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(child != MAP_FAILED);
    char folder[] = "/tmp/tutti_spawn_XXXXXX", base[64], path[80];
    assert_non_null(mkdtemp(folder));
    snprintf(base, sizeof base, "%s/pid", folder);
    const pid_t program = fork();
    if (program == 0) {
        spawn_and_fork(&(tutti_spawn_options_t){.argument = tutti_text(base)}, child);
        _exit(0);
    }
    int pids[2] = {0};
    const bool started = await(have_started, pids, base);
    const tt_deadline_t deadline = tt_deadline_in_ms(5000);
    while (atomic_load(child) == 0 && !tt_deadline_is_past(deadline)) {
        nap_ms(5);
    }
    pids[0] = read_pid(base, 0);
    pids[1] = read_pid(base, 1);
    const bool live = started && atomic_load(child) > 0 && !are_gone(pids, base);
    kill(program, SIGKILL);
    waitpid(program, NULL, 0);
    const bool have_gone = await(are_gone, pids, base);
    if (atomic_load(child) > 0) {
        kill(atomic_load(child), SIGKILL);
    }
    assert_true(live);
    assert_true(have_gone);
    munmap(child, sizeof *child);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s.%d", base, i);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    int code;
    await_signal();
    if (tutti_spawned(entries + (getenv("TUTTI_SPAWN") != NULL), &code)) {
        return code;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_and_nothing_is_left),
        cmocka_unit_test(an_error_comes_back_with_its_rank_and_its_text),
        cmocka_unit_test(the_cause_is_told_and_not_who_noticed),
        cmocka_unit_test(a_rank_that_dies_is_named_and_ends_the_others),
        cmocka_unit_test(a_rank_that_lacks_the_entry_says_so),
        cmocka_unit_test(ranks_are_called_after_the_program),
        cmocka_unit_test(an_argument_of_any_size_has_room),
        cmocka_unit_test(ranks_start_again),
        cmocka_unit_test(a_join_may_end_early),
        cmocka_unit_test(a_signal_that_comes_before_the_launcher_is_ready_counts),
        cmocka_unit_test(one_that_the_program_ignores_does_not),
        cmocka_unit_test(who_is_late_is_named),
        cmocka_unit_test(a_rank_may_spawn_with_more_environment),
        cmocka_unit_test(a_program_may_have_closed_its_streams),
        cmocka_unit_test(threads_spawn_at_once),
        cmocka_unit_test(an_ignored_sigchld_does_not_matter),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(nothing_is_lost_when_memory_runs_out),
        cmocka_unit_test(no_rank_outlives_a_program_that_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
