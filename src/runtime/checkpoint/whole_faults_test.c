/* A process that is killed while parts of whole tensors travel: the others are told, and what is
 * left does not stand in the way of the next save. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/checkpoint.h>
#include <tutti/collectives.h>

#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "core/base/place_testing.h"

enum { RANKS = 3, ROWS = 3, COLUMNS = 400000, GUARD_S = 60 };

typedef struct {
    char folder[TT_PLACE_BYTES];
    bool is_background;
    int victim, round;
    tutti_status_t met[RANKS];
    char texts[RANKS][TT_ERROR_TEXT_BYTES];
} job_t;

static job_t *job; /* of all processes */
static int rounds; /* of this one */

tutti_status_t __real_tutti_all_to_all_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                              const int64_t *output_counts, tutti_tensor_t *input,
                                              const int64_t *input_counts, tutti_work_t **work);
tutti_status_t __wrap_tutti_all_to_all_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                              const int64_t *output_counts, tutti_tensor_t *input,
                                              const int64_t *input_counts, tutti_work_t **work);

tutti_status_t __wrap_tutti_all_to_all_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                              const int64_t *output_counts, tutti_tensor_t *input,
                                              const int64_t *input_counts, tutti_work_t **work)
{
    if (tutti_group_rank(group) == job->victim && ++rounds == job->round) {
        kill(getpid(), SIGKILL);
    }
    return __real_tutti_all_to_all_uneven(group, output, output_counts, input, input_counts, work);
}

static tutti_status_t save(const tutti_checkpoint_t *checkpoint)
{
    tutti_saver_t *saver;
    if (!job->is_background) {
        return tutti_checkpoint_save(checkpoint, 1);
    }
    TT_TRY(tutti_saver_create(checkpoint, &saver));
    tutti_status_t status = tutti_saver_save(saver, 1);
    status = status < 0 ? status : tutti_saver_wait(saver);
    tutti_saver_release(saver);
    return status;
}

static void be_rank(int rank, int port)
{
    tutti_group_t *world;
    tutti_tensor_t *x;
    alarm(GUARD_S);
    tt_be_rank(rank, RANKS, port);
    if (tutti_init(NULL, &world) < 0 ||
        tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ROWS, COLUMNS), &x) < 0) {
        _exit(1);
    }
    const tutti_slice_t slice =
        tutti_slice_box("w", x, TUTTI_SHAPE(RANKS * ROWS, COLUMNS), (int64_t[]){rank * ROWS, 0});
    const tutti_checkpoint_t checkpoint = {
        .folder = job->folder, .group = world, .slices = &slice, .slice_count = 1, .whole = true};
    job->met[rank] = save(&checkpoint);
    snprintf(job->texts[rank], TT_ERROR_TEXT_BYTES, "%s", tutti_last_error());
    _exit(0);
}

static void run_ranks(void)
{
    const int port = tt_free_port();
    pid_t children[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            be_rank(rank, port);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_true(rank == job->victim ? WIFSIGNALED(ended) : WIFEXITED(ended));
        assert_true(rank == job->victim || WEXITSTATUS(ended) == 0);
    }
}

static bool has(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", job->folder, name);
    return access(path, F_OK) == 0;
}

/* Rank 0 removes what was begun; if it has died, the next save does. */
static void kill_one(int victim, int round, bool is_background)
{
    char blame[16];
    tt_place_make(job->folder);
    job->victim = victim;
    job->round = round;
    job->is_background = is_background;
    run_ranks();
    snprintf(blame, sizeof blame, "rank %d", victim);
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
            assert_int_equal(job->met[rank], TUTTI_ERR_PEER);
            assert_non_null(strstr(job->texts[rank], blame));
        }
    }
    assert_false(has("step-000000000001"));
    assert_int_equal(has(".half-000000000001"), victim == 0);
    job->victim = -1;
    run_ranks();
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(job->met[rank], TUTTI_OK);
    }
    assert_true(has("step-000000000001") && !has(".half-000000000001"));
    tt_place_remove(job->folder);
}

static void a_rank_that_dies_on_the_way_is_named(void **state)
{
    (void)state;
    job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job != MAP_FAILED);
    kill_one(2, 1, false);
    kill_one(1, 2, true);
    kill_one(0, 2, false);
    munmap(job, sizeof *job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_on_the_way_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
