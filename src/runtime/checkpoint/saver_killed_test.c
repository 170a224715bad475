/* A rank that is killed while it saves in the background: the others hear of it from the next call,
 * long before the group's timeout. */
#include <signal.h>
#include <stdatomic.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/checkpoint.h>
#include <tutti/launch.h>

#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "core/base/place_testing.h"

enum { RANKS = 3, GUARD_S = 120 }; /* a fifth of the timeout */

typedef struct {
    _Atomic int saved; /* ranks that have begun, and are on their way to wait */
    _Atomic int told;  /* that have heard of the death */
    _Atomic bool is_dead;
    char errors[RANKS][512];
    int failed_line[RANKS]; /* 0: all is well */
} report_t;

static report_t *report;
static _Atomic bool is_dying, is_late;

/* Takes the place of the C library's. */
int fsync(int fd)
{
    while (is_dying) {
        if (report->saved == RANKS) {
            (void)raise(SIGKILL);
        }
        sched_yield();
    }
    while (is_late && !report->is_dead) {
        sched_yield();
    }
    return (int)syscall(SYS_fsync, fd);
}

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

/* How the others come to hear of it. */
typedef struct {
    bool again; /* the next save waits for the one before */
    bool late;  /* they write until it is dead: what they have to tell, they tell a store that has
                   gone with rank 0 */
} how_t;

static int save(const char *folder, int rank, int victim, how_t how)
{
    tutti_group_t *world;
    tutti_tensor_t *x;
    tutti_saver_t *saver;
    WANT(tutti_init(NULL, &world) == TUTTI_OK);
    WANT(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == TUTTI_OK);
    const tutti_slice_t slice =
        tutti_slice_box("x", x, TUTTI_SHAPE(4 * RANKS), (int64_t[]){4 * rank});
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .group = world, .slices = &slice, .slice_count = 1};
    WANT(tutti_saver_create(&checkpoint, &saver) == TUTTI_OK);
    is_dying = rank == victim;
    is_late = how.late && rank != victim;
    WANT(tutti_saver_save(saver, 1) == TUTTI_OK);
    report->saved++;
    WANT((how.again ? tutti_saver_save(saver, 2) : tutti_saver_wait(saver)) == TUTTI_ERR_PEER);
    return 0;
}

static void kill_one(int victim, how_t how)
{
    char place[TT_PLACE_BYTES];
    pid_t children[RANKS];
    int held;
    const int port = tt_hold_port(&held);
    tt_place_make(place);
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            alarm(GUARD_S);
            tt_be_rank(rank, RANKS, port);
            report->failed_line[rank] = save(place, rank, victim, how);
            snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
            report->told++;
            while (report->told < RANKS - 1) { /* rank 0 has the store of the others */
                sched_yield();
            }
            _exit(0);
        }
    }
    for (int i = 0; i < RANKS; i++) { /* the victim first */
        const int rank = (victim + i) % RANKS;
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_true(rank == victim ? WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL
                                   : WIFEXITED(ended));
        report->is_dead = true;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        char name[16];
        snprintf(name, sizeof name, "rank %d", victim);
        if (rank != victim &&
            (report->failed_line[rank] != 0 || strstr(report->errors[rank], name) == NULL)) {
            fail_msg("rank %d, line %d: %s", rank, report->failed_line[rank], report->errors[rank]);
        }
    }
    munmap(report, sizeof *report);
    close(held);
    tt_place_remove(place);
}

static void a_rank_that_dies_is_named_by_those_that_wait(void **state)
{
    (void)state;
    kill_one(1, (how_t){0});
    kill_one(2, (how_t){.again = true});
}

static void so_is_rank_0_which_has_the_store(void **state)
{
    (void)state;
    kill_one(0, (how_t){0});
    kill_one(0, (how_t){.late = true});
    kill_one(0, (how_t){.late = true, .again = true});
}

static void so_is_one_of_another_host(void **state)
{
    (void)state;
    setenv("TUTTI_WIRES", "tcp", 1);
    kill_one(1, (how_t){0});
    kill_one(0, (how_t){.late = true});
    unsetenv("TUTTI_WIRES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_is_named_by_those_that_wait),
        cmocka_unit_test(so_is_rank_0_which_has_the_store),
        cmocka_unit_test(so_is_one_of_another_host),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
