/* A process that is killed in a call on a device: the others are told by their devices and groups,
 * and their devices work on. */
#include "core/base/testing.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/devices.h>

#include "comm/group/group_impl.h"
#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "comm/net/job_key_test.h"
#include "core/base/clock.h"
#include "core/tensor/tensor_impl.h"

enum { RANKS = 3, STEPS_BEFORE = 20, STEPS_AHEAD = 4, GUARD_S = 30 };

typedef struct {
    _Atomic int steps[RANKS]; /* that each rank has made */
    _Atomic int64_t told_ns[RANKS];
    char errors[RANKS][512];
    int failed_line[RANKS]; /* 0: all is well */
} report_t;

typedef struct {
    tutti_group_t *world;
    tutti_device_t *device;
    tutti_tensor_t *x;
} rank_t;

static tutti_status_t begin(rank_t *r, int rank, int port)
{
    tt_be_rank(rank, RANKS, port);
    TT_TRY(tutti_init(NULL, &r->world));
    const tutti_device_options_t options = {.threads = 1};
    TT_TRY(tutti_device_open("strict:0", &options, &r->device));
    TT_TRY(tt_tensor_new(r->device, TUTTI_F32, TUTTI_SHAPE(1000), false, &r->x));
    return tutti_tensor_fill(r->x, 1);
}

/* Calls ahead of the device until one fails. */
static tutti_status_t step_until_failure(const rank_t *r, _Atomic int *steps)
{
    for (;;) {
        for (int i = 0; i < STEPS_AHEAD; i++) {
            TT_TRY(tutti_all_reduce(r->world, r->x, TUTTI_AVG, NULL));
        }
        TT_TRY(tutti_device_synchronize(r->device, 0));
        atomic_fetch_add(steps, STEPS_AHEAD);
    }
}

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

static int train(int rank, int port, report_t *report)
{
    rank_t r = {0};
    WANT(begin(&r, rank, port) == TUTTI_OK);
    WANT(step_until_failure(&r, &report->steps[rank]) == TUTTI_ERR_PEER);
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    atomic_store(&report->told_ns[rank], tt_clock_ns());
    WANT(tutti_barrier(r.world, NULL) == TUTTI_ERR_PEER);
    (void)tutti_device_synchronize(r.device, 0); /* calls that were issued behind the failure */
    WANT(tutti_tensor_fill(r.x, 2) == TUTTI_OK);
    WANT(tutti_device_synchronize(r.device, 0) == TUTTI_OK);
    return 0;
}

static void start(int rank, int port, report_t *report)
{
    alarm(GUARD_S);
    report->failed_line[rank] = train(rank, port, report);
    if (report->failed_line[rank] != 0) {
        snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    }
    _exit(1); /* without a goodbye */
}

static void expect_blame(const report_t *report, int rank, int victim, pid_t process)
{
    char blame[64], blame_from_afar[64];
    snprintf(blame, sizeof blame, "rank %d (process %d) died", victim, (int)process);
    snprintf(blame_from_afar, sizeof blame_from_afar, "rank %d is gone", victim);
    const char *said = report->errors[rank];
    if (report->failed_line[rank] != 0) {
        fail_msg("rank %d, line %d: %s", rank, report->failed_line[rank], said);
    }
    if (strstr(said, blame) == NULL && strstr(said, blame_from_afar) == NULL) {
        fail_msg("rank %d says: %s", rank, said);
    }
    assert_non_null(strstr(said, "f32[1000] of group "));
}

static void kill_one(int victim)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    const int port = tt_free_port();
    pid_t children[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            start(rank, port, report);
        }
    }
    for (int i = 0; i < 10000 && atomic_load(&report->steps[victim]) < STEPS_BEFORE; i++) {
        usleep(1000);
    }
    kill(children[victim], SIGKILL);
    const int64_t killed_ns = tt_clock_ns();
    for (int rank = 0; rank < RANKS; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_true(rank == victim ? WIFSIGNALED(ended) : WIFEXITED(ended));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
            expect_blame(report, rank, victim, children[victim]);
            assert_true(report->told_ns[rank] - killed_ns < 5 * TT_NS_PER_S);
        }
    }
    munmap(report, sizeof *report);
}

static void a_rank_that_is_killed_in_a_call_on_a_device_is_named(void **state)
{
    (void)state;
    kill_one(1);
    kill_one(0); /* the one with the store */
}

static void so_is_one_of_another_host(void **state)
{
    (void)state;
    setenv("TUTTI_WIRES", "tcp", 1);
    kill_one(2);
    unsetenv("TUTTI_WIRES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_killed_in_a_call_on_a_device_is_named),
        cmocka_unit_test(so_is_one_of_another_host),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
