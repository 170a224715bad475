/* A rank of a mesh that dies in the middle of an action: all others end with an error that says
 * where they were, also those that share neither a stage, nor a layer, nor data with it. Each
 * action of each rank is one case. Prints how long it took until the last one was told. */
#include "parallel/pipeline/pipeline_mesh_testing.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/net/job_key_test.h"
#include "core/base/clock.h"

enum { RANKS = 8, STEPS = 8, LAST_STEP = 2, GUARD_S = 60 };

typedef struct {
    _Atomic int64_t killed_ns, told_ns[RANKS];
    int status[RANKS];
    char errors[RANKS][1024];
} report_t;

/* Who dies, and where. */
typedef struct {
    int victim;
    char action;     /* 'F', 'B' (or I), 'W' */
    int micro_batch; /* the how manyeth of the step */
    report_t *report;
    int step, seen;
} death_t;

static void die(death_t *death)
{
    if (death->step == LAST_STEP && death->seen++ == death->micro_batch) {
        atomic_store(&death->report->killed_ns, tt_clock_ns());
        (void)kill(getpid(), SIGKILL);
    }
}

static tutti_status_t on_module(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    die(user);
    return TUTTI_OK;
}

static void on_weight(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    die(user);
}

static tutti_status_t find_module(void *user, const char *name, tutti_module_t *m)
{
    const char *const *wanted = ((void **)user)[0];
    if (strcmp(name, *wanted) == 0) {
        ((void **)user)[1] = m;
    }
    return TUTTI_OK;
}

/* In the middle of a block of the victim's own stage, between collectives of its layers. */
static tutti_status_t arm(const tt_mesh_trainer_t *t, death_t *death)
{
    const bool is_first = tutti_mesh_coordinate(t->mesh, "pp") == 0;
    const char *name = is_first ? "blocks.1.up" : "blocks.2.up";
    void *search[] = {(void *)(uintptr_t)&name, NULL};
    const tutti_module_hooks_t hooks = death->action == 'F'
                                           ? (tutti_module_hooks_t){.before_forward = on_module}
                                           : (tutti_module_hooks_t){.before_backward = on_module};
    if (death->action == 'W') {
        return tutti_tensor_on_accumulate(
            tutti_module_find(t->net, is_first ? "blocks.1.up.weight" : "blocks.2.up.weight"),
            on_weight, death);
    }
    TT_TRY(tutti_module_apply(t->net, find_module, search));
    return search[1] == NULL ? TUTTI_ERR_STATE : tutti_module_add_hooks(search[1], &hooks, death);
}

static const tt_mesh_training_t training = {.shards = 2,
                                            .tp_shards = 2,
                                            .micro_batches = 3,
                                            .clips = true,
                                            .dp = 2,
                                            .tp = 2,
                                            .pp = 2,
                                            .stage = 1,
                                            .schedule = "zb-h1"};

static tutti_status_t train_until_failure(tt_mesh_trainer_t *t, death_t *death)
{
    double losses[TT_MESH_SHARDS_MAX];
    for (death->step = 0; death->step < STEPS; death->step++) {
        TT_TRY(tt_mesh_step(t, death->step, losses));
    }
    return TUTTI_OK;
}

static tutti_status_t be_rank(int rank, const char *path, death_t *death)
{
    tt_mesh_trainer_t t;
    tutti_group_t *world;
    tutti_init_options_t options = {.rank = rank, .world_size = RANKS};
    TT_TRY(tutti_store_file_open(path, &options.store));
    TT_TRY(tutti_init(&options, &world));
    TT_TRY(tt_mesh_open(&t, &training, world));
    TT_TRY(rank == death->victim ? arm(&t, death) : TUTTI_OK);
    const tutti_status_t status = train_until_failure(&t, death);
    atomic_store(&death->report->told_ns[rank], tt_clock_ns());
    return status;
}

static void start(int rank, const char *path, death_t *death)
{
    alarm(GUARD_S);
    report_t *report = death->report;
    report->status[rank] = be_rank(rank, path, death);
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    _exit(1); /* without a goodbye */
}

/* Who shares neither row nor replica with a rank that dies in its last action may have gone on to
 * the optimizer, whose calls have no action. */
static bool may_be_behind(const death_t *death, const char *said)
{
    return death->micro_batch == training.micro_batches - 1 && strstr(said, "pipeline: ") == NULL &&
           strstr(said, "gave the group up") != NULL;
}

static void expect_blame(const death_t *death, int rank)
{
    char here[64];
    const char *said = death->report->errors[rank];
    const int status = death->report->status[rank];
    snprintf(here, sizeof here, "pipeline: rank %d, step %d, ", rank, LAST_STEP);
    if (status == TUTTI_ERR_ABORTED && may_be_behind(death, said)) {
        return;
    }
    if ((status != TUTTI_ERR_PEER && status != TUTTI_ERR_ABORTED) ||
        strncmp(said, here, strlen(here)) != 0 || strstr(said, " of stage ") == NULL ||
        strstr(said, "micro-batch ") == NULL) {
        fail_msg("rank %d died in %c %d; rank %d says (%d): %s", death->victim, death->action,
                 death->micro_batch, rank, status, said);
    }
}

static void expect_told(const death_t *death)
{
    int64_t last_ns = 0;
    int last = 0;
    const report_t *report = death->report;
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != death->victim) {
            const int64_t told_ns = report->told_ns[rank] - report->killed_ns;
            expect_blame(death, rank);
            last = told_ns > last_ns ? rank : last;
            last_ns = told_ns > last_ns ? told_ns : last_ns;
        }
    }
    print_message("rank %d died in %c %d: all knew after %.1f ms, last rank %d: %s\n",
                  death->victim, death->action, death->micro_batch, (double)last_ns * 1e-6, last,
                  report->errors[last]);
    assert_true(last_ns < 20 * TT_NS_PER_S);
}

static void kill_one(int victim, char action, int micro_batch)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    death_t death = {
        .victim = victim, .action = action, .micro_batch = micro_batch, .report = report};
    char path[] = "/tmp/tutti_pipeline_mesh_XXXXXX"; /* of the store */
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    pid_t children[RANKS];
    int ended[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            start(rank, path, &death);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(children[rank], &ended[rank], 0), children[rank]);
    }
    unlink(path);
    for (int rank = 0; rank < RANKS; rank++) {
        const bool is_killed = WIFSIGNALED(ended[rank]) && WTERMSIG(ended[rank]) == SIGKILL;
        if (rank == victim ? !is_killed : !WIFEXITED(ended[rank])) {
            fail_msg("rank %d was to die in %c %d; rank %d ended with %d: %s", victim, action,
                     micro_batch, rank, ended[rank], report->errors[rank]);
        }
    }
    expect_told(&death);
    munmap(report, sizeof *report);
}

static void a_death_in_any_action_is_told_to_the_whole_mesh(void **state)
{
    (void)state;
    uint64_t number = 0;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBW"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < training.micro_batches; micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch);
                }
            }
        }
    }
}

static void so_is_one_that_is_always_looked_at(void **state)
{
    (void)state;
    kill_one(5, 'B', 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_any_action_is_told_to_the_whole_mesh),
        cmocka_unit_test(so_is_one_that_is_always_looked_at),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
