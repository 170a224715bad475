/* A rank that dies in the middle of an action: all others end with an error that says where they
 * were, and whose action they waited for. Each action of each rank is one case. */
#include "parallel/pipeline/pipeline_versions_testing.h"

#include <tutti/own_optimizer.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "comm/net/job_key_test.h"
#include "core/base/clock.h"

enum { RANKS = 3, STEPS = 8, LAST_STEP = 2, GUARD_S = 60 };

typedef struct {
    _Atomic int64_t killed_ns, told_ns[RANKS];
    int status[RANKS];
    char errors[RANKS][1024];
} report_t;

/* Who dies, and where. */
typedef struct {
    int victim;
    char action; /* 'F', 'B' (or I), 'W', 'S': a step inside a batch */
    bool is_async;
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

static tutti_status_t on_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
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

/* On a linear of the victim's own stage: 0, 4 and 8 of the mlp's 9 parts. */
static tutti_status_t arm(tutti_module_t *net, death_t *death)
{
    char name[16];
    tutti_chain_link_t link;
    const int part = 4 * death->victim;
    const tutti_module_hooks_t hooks = death->action == 'F'
                                           ? (tutti_module_hooks_t){.before_forward = on_forward}
                                           : (tutti_module_hooks_t){.before_backward = on_forward};
    if (death->action == 'W') {
        snprintf(name, sizeof name, "%d.weight", part);
        return tutti_tensor_on_accumulate(tutti_module_find(net, name), on_weight, death);
    }
    return tutti_module_kind(net)->chain(net, part, &link)
               ? tutti_module_add_hooks(link.module, &hooks, death)
               : TUTTI_ERR_STATE;
}

static const tt_training_t training = {.model = "mlp", .schedule = "zb-h1", .micro_batches = 4};
static const tt_async_t async = {
    .model = "mlp", .optimizer = "sgd", .ranks = RANKS, .micro_batches = 4, .rows = 9};

static tutti_status_t train_until_failure(tt_trainer_t *t, death_t *death)
{
    for (death->step = 0; death->step < STEPS; death->step++) {
        double loss;
        TT_TRY(death->is_async ? tt_async_batch(t, &async, death->step, &loss)
                               : tt_train_step(t, &training, death->step, &loss));
    }
    return TUTTI_OK;
}

static death_t *stepping; /* of this process */

static void step_or_die(const tutti_optim_piece_t *piece)
{
    if (stepping->action == 'S') {
        die(stepping);
    }
    tutti_sgd.update(piece);
}

/* The optimizer is one that may die. */
static tutti_status_t open_async(tt_trainer_t *t, tutti_group_t *world, death_t *death)
{
    static tutti_optim_ops_t kind;
    static tt_training_t of_async; /* the loss looks at it in each step */
    of_async = tt_training_of(&async);
    TT_TRY(tt_async_open(t, &async, &of_async, world));
    TT_TRY(tutti_pipeline_set_optimizer(t->pipeline, NULL));
    tutti_optim_release(t->opt);
    stepping = death;
    kind = tutti_sgd;
    kind.update = step_or_die;
    TT_TRY(tutti_optim_create(t->ctx, &kind, NULL, &t->opt));
    TT_TRY(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    return tutti_pipeline_set_optimizer(t->pipeline, t->opt);
}

static tutti_status_t be_rank(int rank, int port, death_t *death)
{
    tt_trainer_t t;
    tutti_group_t *world;
    tt_be_rank(rank, RANKS, port);
    TT_TRY(tutti_init(NULL, &world));
    TT_TRY(death->is_async ? open_async(&t, world, death) : tt_trainer_open(&t, &training, world));
    if (rank != death->victim) {
        death->action = 0;
    }
    TT_TRY(strchr("FBW", death->action) != NULL && death->action != 0 ? arm(t.net, death)
                                                                      : TUTTI_OK);
    const tutti_status_t status = train_until_failure(&t, death);
    atomic_store(&death->report->told_ns[rank], tt_clock_ns());
    return status;
}

static void start(int rank, int port, death_t *death)
{
    alarm(GUARD_S);
    report_t *report = death->report;
    report->status[rank] = be_rank(rank, port, death);
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    _exit(1); /* without a goodbye */
}

static void expect_blame(const death_t *death, int rank)
{
    char here[64];
    const char *said = death->report->errors[rank];
    const int status = death->report->status[rank];
    snprintf(here, sizeof here, "pipeline: rank %d, step %d, ", rank, LAST_STEP);
    if ((status != TUTTI_ERR_PEER && status != TUTTI_ERR_ABORTED) || strstr(said, here) == NULL ||
        strstr(said, "micro-batch ") == NULL || strstr(said, " of stage ") == NULL) {
        fail_msg("rank %d died in %c %d; rank %d says (%d): %s", death->victim, death->action,
                 death->micro_batch, rank, status, said);
    }
}

static void kill_one(int victim, char action, int micro_batch, bool is_async)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    death_t death = {.victim = victim,
                     .action = action,
                     .micro_batch = micro_batch,
                     .report = report,
                     .is_async = is_async};
    const int port = tt_free_port();
    pid_t children[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            start(rank, port, &death);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_true(rank == victim ? WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL
                                   : WIFEXITED(ended));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
            expect_blame(&death, rank);
            assert_true(report->told_ns[rank] - report->killed_ns < 20 * TT_NS_PER_S);
        }
    }
    munmap(report, sizeof *report);
}

static void a_death_in_any_action_is_told_to_all(void **state)
{
    (void)state;
    uint64_t number = 0;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBW"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < training.micro_batches; micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch, false);
                }
            }
        }
    }
}

static void so_is_one_that_is_always_looked_at(void **state)
{
    (void)state;
    kill_one(1, 'F', 2, false);
    kill_one(2, 'B', 0, false);
}

/* Of a schedule that steps inside a batch: a step is an action, too. */
static void a_death_in_a_step_is_told_to_all(void **state)
{
    (void)state;
    uint64_t number = 1000;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBWS"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < async.micro_batches; micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch, true);
                }
            }
        }
    }
    kill_one(1, 'S', 3, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_any_action_is_told_to_all),
        cmocka_unit_test(so_is_one_that_is_always_looked_at),
        cmocka_unit_test(a_death_in_a_step_is_told_to_all),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
