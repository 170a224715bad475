/* A model whose parameters are four times what each of four ranks may have trains at stage 3 with
 * them on a disk, and ends with the bits that it has without a budget. */
#include "comm/group/group_team.h"

#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/sharded.h>

#include "core/base/alloc.h"
#include "core/base/memory_limit.h"
#include "core/base/place_testing.h"

enum { TIMEOUT_MS = 120000, RANKS_MAX = 4 };

static char folder[TT_PLACE_BYTES];

/* ---- a model that is cut evenly -------------------------------------------------------------- */

enum { LAYERS = 128, SIDE = 256, PSI = LAYERS * SIDE * SIDE * (int)sizeof(float) };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} job_t;

static void open_net(tt_member_t *m, int layers, job_t *job)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {
        .in = SIDE, .out = SIDE, .no_bias = true, .activation = TUTTI_ACTIVATION_TANH};
    *job = (job_t){0};
    TT_EXPECT(m, tutti_context_create(&context, &job->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job->ctx, &tutti_sequential_layer, NULL, &job->net) == 0);
    for (int i = 0; i < layers; i++) {
        TT_EXPECT(m, tutti_sequential_add(job->net, &tutti_linear_layer, &layer, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_optim_create(job->ctx, &tutti_adamw, NULL, &job->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job->opt, job->net, NULL, NULL) == TUTTI_OK);
}

static void close_job(job_t *job)
{
    tutti_ddp_release(job->ddp);
    tutti_optim_release(job->opt);
    tutti_module_release(job->net);
    tutti_context_release(job->ctx);
}

static tutti_status_t step(job_t *job, int number)
{
    tutti_context_set_step(job->ctx, number);
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x))));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(job->ddp));
    return tutti_optim_step(job->opt);
}

/* ---- a budget -------------------------------------------------------------------------------- */

typedef struct {
    uint64_t budget, peak; /* 0: none */
    bool is_offloaded;
    tutti_status_t status;
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
} budget_t;

/* All ranks are one process here, whose limit is that of all of them together. It holds from when
 * parameters have been dealt out: before, each rank has made all of them. */
static void train_within(tt_member_t *m)
{
    budget_t *budget = m->user;
    job_t job;
    const tutti_ddp_options_t options = {.stage = 3,
                                         .units = {.kind = "linear"},
                                         .prefetch = -1,
                                         .offload = budget->is_offloaded ? folder : NULL};
    tutti_status_t status = TUTTI_OK;
    open_net(m, LAYERS, &job);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_memory_set_limit(budget->budget, tt_memory_taken());
    }
    pthread_barrier_wait(m->start);
    for (int i = 0; i < 2 && status >= 0; i++) {
        status = step(&job, i);
    }
    status = status < 0 ? status : tutti_ddp_digest(job.ddp, budget->digests[m->rank]);
    if (status < 0) {
        print_message("rank %d: %s\n", m->rank, tutti_last_error());
    }
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        budget->status = status;
        tt_memory_set_limit(UINT64_MAX / 2, tt_memory_taken());
    }
    pthread_barrier_wait(m->start);
    close_job(&job);
}

static void run_within(uint64_t budget, bool is_offloaded, budget_t *out)
{
    *out = (budget_t){.budget = budget, .is_offloaded = is_offloaded};
    tt_memory_set_limit(UINT64_MAX / 2, 0);
    tt_team_expect_quietly(RANKS_MAX, TIMEOUT_MS, train_within, out);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    tt_memory_set_limit(0, 0);
}

/* Four ranks, each of which may have a quarter of what the parameters take: room for its slice of
 * them, and for nothing else. */
static void parameters_are_four_times_what_a_rank_may_have(void **state)
{
    (void)state;
    budget_t whole, within, without;
    tt_needs_shared_memory("the limit counts shared heaps");
    run_within(UINT64_MAX / 2, false, &whole);
    run_within(PSI, true, &within);
    assert_int_equal(within.status, TUTTI_OK);
    assert_string_equal(within.digests[0], whole.digests[0]);
    assert_string_equal(within.digests[RANKS_MAX - 1], whole.digests[0]);
    run_within(PSI, false, &without);
    assert_true(without.status < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_four_times_what_a_rank_may_have),
    };
    tt_place_make_quick(folder);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    tt_place_remove(folder);
    return failures;
}
