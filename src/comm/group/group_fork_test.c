/* Children of ranks: what a child made by fork() inherits stays its parent's. The ranks are
 * processes, and so are their children. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "comm/net/job_key_test.h"
#include "core/base/clock.h"
#include "core/base/testing.h"
#include "core/tensor/tensor_impl.h"

enum { RANKS = 2, COUNT = 1 << 20, GUARD_S = 20 };

/* A number, for a look at the code; 0: all is well. */
static int code_of(pid_t child)
{
    int status = 0;
    const bool has_ended = waitpid(child, &status, 0) == child;
    return !has_ended ? 200 : WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static bool holds(const tutti_tensor_t *x, float value)
{
    const float *data = tutti_tensor_data(x);
    for (int i = 0; i < COUNT; i++) {
        if (data[i] != value) {
            return false;
        }
    }
    return true;
}

/* What the parent has when it forks. */
typedef struct {
    tutti_group_t *world;
    tutti_tensor_t *x, *y;
    tutti_work_t *work; /* a receive under way, into y */
    tutti_prepared_t *prepared;
    tutti_device_t *device;
    tutti_tensor_t *z; /* there; of a call that has been made */
} inherited_t;

static bool is_refused(tutti_status_t status, const char *call)
{
    char text[200];
    snprintf(text, sizeof text,
             "%s: this process was forked from the one that made group world; a forked child must "
             "not use its parent's groups",
             call);
    return status == TUTTI_ERR_STATE && strcmp(tutti_last_error(), text) == 0;
}

/* Calls that it would take part in, and waits for those of its parent. The number of the first
 * that is not refused; 0: all are. */
static int call_all(const inherited_t *its)
{
    tutti_group_t *world = its->world, *part;
    tutti_tensor_t *x = its->x;
    tutti_message_info_t info;
    tutti_work_t *work;
    tutti_buffer_t bytes;
    int index;
    const int peer = 1 - tutti_group_rank(world);
    const bool are_refused[] = {
        is_refused(tutti_all_reduce(world, x, TUTTI_SUM, NULL), "all_reduce"),
        is_refused(tutti_all_reduce(world, x, TUTTI_SUM, &work), "all_reduce"),
        is_refused(tutti_barrier(world, NULL), "barrier"),
        is_refused(tutti_all_reduce(world, its->z, TUTTI_SUM, NULL), "all_reduce"),
        is_refused(tutti_send(world, x, peer, 1, NULL), "send"),
        is_refused(tutti_recv(world, x, peer, 1, NULL), "recv"),
        is_refused(tutti_probe(world, peer, 1, &info), "probe"),
        is_refused(tutti_iprobe(world, peer, 1, &info), "iprobe"),
        is_refused(tutti_recv_bytes(world, peer, 1, NULL, &bytes), "recv_bytes"),
        is_refused(tutti_coalesce_begin(world), "coalesce_begin"),
        is_refused(tutti_prepared_start(its->prepared, NULL), "prepared_start"),
        is_refused(tutti_group_new(world, NULL, 0, NULL, &part), "group_new"),
        is_refused(tutti_monitored_barrier(world, 0), "monitored_barrier"),
        is_refused(tutti_group_dump(world, "/dev/null"), "group_dump"),
        is_refused(tutti_work_wait(its->work, 0), "work_wait"),
        is_refused(tutti_work_test(its->work), "work_test"),
        is_refused(tutti_work_wait_any(&its->work, 1, &index), "work_wait_any"),
        is_refused(tutti_work_wait_all(&its->work, 1), "work_wait_all"),
    };
    for (size_t i = 0; i < sizeof are_refused / sizeof are_refused[0]; i++) {
        if (!are_refused[i]) {
            return 20 + (int)i;
        }
    }
    return 0;
}

/* All that a program gives back at its end; what it asks for is refused. */
static int end_as_a_program(const inherited_t *its)
{
    tutti_tensor_t *more;
    alarm(GUARD_S);
    if (!holds(its->x, 3)) {
        return 10;
    }
    if (tutti_group_tensor(its->world, TUTTI_F32, TUTTI_SHAPE(COUNT), &more) >= 0 ||
        strstr(tutti_last_error(), "forked") == NULL) {
        return 11;
    }
    const int code = call_all(its);
    if (code != 0) {
        return code;
    }
    tutti_group_progress(its->world);
    tutti_group_abort(its->world);
    tutti_prepared_release(its->prepared);
    tutti_work_release(its->work);
    tutti_tensor_release(its->x);
    tutti_tensor_release(its->y);
    tutti_tensor_release(its->z);
    tutti_device_release(its->device);
    tutti_group_release(its->world);
    return 0;
}

/* What the child leaves is as it was: the receive under way ends, too. */
static int go_on(const inherited_t *its, int rank)
{
    if (!holds(its->x, 3)) {
        return 3;
    }
    if (tutti_barrier(its->world, NULL) < 0 || /* both children have found it under way */
        tutti_send(its->world, its->x, 1 - rank, 1, NULL) < 0 ||
        tutti_work_wait(its->work, 0) < 0 || !holds(its->y, 3)) {
        return 4;
    }
    if (tutti_prepared_start(its->prepared, NULL) < 0 || !holds(its->x, 6)) {
        return 5;
    }
    return 0;
}

/* The groups have a thread of their own from here on, which the child has not. */
static bool call_on_device(inherited_t *its)
{
    return tutti_device_open("strict:0", NULL, &its->device) >= 0 &&
           tt_tensor_new(its->device, TUTTI_F32, TUTTI_SHAPE(4), true, &its->z) >= 0 &&
           tutti_all_reduce(its->world, its->z, TUTTI_SUM, NULL) >= 0;
}

static int inherit(int rank, inherited_t *its)
{
    if (tutti_init(NULL, &its->world) < 0 ||
        tutti_group_tensor(its->world, TUTTI_F32, TUTTI_SHAPE(COUNT), &its->x) < 0 ||
        tutti_group_tensor(its->world, TUTTI_F32, TUTTI_SHAPE(COUNT), &its->y) < 0 ||
        tutti_prepare_all_reduce(its->world, its->x, TUTTI_SUM, &its->prepared) < 0 ||
        !call_on_device(its)) {
        return 1;
    }
    (void)tutti_tensor_fill(its->x, rank + 1);
    return tutti_prepared_start(its->prepared, NULL) < 0 || tutti_barrier(its->world, NULL) < 0 ||
                   tutti_recv(its->world, its->y, 1 - rank, 1, &its->work) < 0
               ? 2
               : 0;
}

static int be_rank(int rank, int port)
{
    inherited_t its;
    alarm(3 * GUARD_S);
    tt_be_rank(rank, 2, port);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    int code = inherit(rank, &its);
    if (code != 0) {
        return code;
    }
    const pid_t child = fork();
    if (child == 0) {
        _exit(end_as_a_program(&its));
    }
    code = code_of(child);
    code = code == 0 ? go_on(&its, rank) : code;
    if (code != 0) {
        return code;
    }
    tutti_work_release(its.work);
    tutti_prepared_release(its.prepared);
    tutti_tensor_release(its.x);
    tutti_tensor_release(its.y);
    tutti_tensor_release(its.z);
    tutti_device_release(its.device);
    tutti_group_release(its.world);
    return 0;
}

static void release_in_children(const char *wires)
{
    const int port = tt_free_port();
    pid_t ranks[RANKS];
    setenv("TUTTI_WIRES", wires, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] == 0) {
            _exit(be_rank(rank, port));
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(code_of(ranks[rank]), 0);
    }
    unsetenv("TUTTI_WIRES");
}

static void a_child_is_refused_what_it_calls_and_takes_nothing_from_a_world(void **state)
{
    (void)state;
    release_in_children("shm");
    release_in_children("tcp");
}

static void a_child_does_not_use_its_parents_store(void **state)
{
    (void)state;
    tutti_store_t *store;
    const tutti_bytes_t key = tutti_text("key");
    assert_int_equal(tutti_store_hash_create(&store), TUTTI_OK);
    const pid_t child = fork();
    if (child == 0) {
        alarm(GUARD_S);
        const bool is_refused = tutti_store_set(store, key, key) == TUTTI_ERR_STATE;
        tutti_store_release(store);
        _exit(!is_refused);
    }
    assert_int_equal(code_of(child), 0);
    assert_int_equal(tutti_store_set(store, key, key), TUTTI_OK);
    tutti_store_release(store);
}

/* The descriptor of a file that this process has open. */
static int find_open(const char *path)
{
    for (int fd = 3; fd < 256; fd++) {
        char link[32], target[128] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0 && strcmp(target, path) == 0) {
            return fd;
        }
    }
    return -1;
}

/* Killed with the lock in hand, while a child of its own lives on. */
static void lock_and_fork(const char *path, int told)
{
    tutti_store_t *store;
    alarm(GUARD_S);
    if (tutti_store_file_open(path, &store) == TUTTI_OK && flock(find_open(path), LOCK_EX) == 0) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(GUARD_S);
        } else {
            (void)!write(told, &child, sizeof child);
        }
        pause();
    }
    _exit(1);
}

static void a_dead_process_gives_up_the_lock_though_its_child_lives(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti_fork_XXXXXX";
    int told[2];
    pid_t child = 0;
    tutti_store_t *store;
    const tutti_bytes_t key = tutti_text("key");
    close(mkstemp(path));
    assert_int_equal(pipe(told), 0);
    const pid_t owner = fork();
    if (owner == 0) {
        lock_and_fork(path, told[1]);
    }
    assert_int_equal(read(told[0], &child, sizeof child), sizeof child);
    kill(owner, SIGKILL);
    assert_int_equal(waitpid(owner, NULL, 0), owner);
    assert_int_equal(kill(child, 0), 0);
    const int64_t start_ns = tt_clock_ns();
    assert_int_equal(tutti_store_file_open(path, &store), TUTTI_OK);
    assert_int_equal(tutti_store_set(store, key, key), TUTTI_OK);
    assert_true(tt_clock_ns() - start_ns < GUARD_S / 2 * TT_NS_PER_S);
    tutti_store_release(store);
    kill(child, SIGKILL);
    close(told[0]);
    close(told[1]);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_what_it_calls_and_takes_nothing_from_a_world),
        cmocka_unit_test(a_child_does_not_use_its_parents_store),
        cmocka_unit_test(a_dead_process_gives_up_the_lock_though_its_child_lives),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
