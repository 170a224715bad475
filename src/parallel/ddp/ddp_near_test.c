/* Units that stay near from their forward to their backward: what is refused, what goes wrong, and
 * what a program may do in between. Bits and bytes between hosts are ddp_hosts_test.c's. */
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_layers_testing.h"

enum { RANKS = 4, WEIGHT = SIDE * SIDE * (int)sizeof(float) };

static const tutti_linear_options_t LAYER = {.no_bias = true};

static void run(void (*body)(tt_member_t *m), void *user)
{
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    tt_team_expect_quietly(RANKS, 20000, body, user);
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_ddp_options_t near_options(void)
{
    return (tutti_ddp_options_t){.stage = 3, .units = {.kind = "linear"}, .reshard_ranks = 2};
}

static int count_in(const tutti_ddp_t *ddp, tt_unit_state_t state)
{
    int count = 0;
    for (int u = 0; u < ddp->units.count; u++) {
        count += ddp->units.units[u].states[TT_UNIT_FULL] == state;
    }
    return count;
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef struct {
    tutti_ddp_options_t options;
    int of_last; /* reshard_ranks of the last rank */
    tutti_status_t status;
    const char *text;
} refusal_t;

static void refuse(tt_member_t *m)
{
    const refusal_t *refusal = m->user;
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {.in = SIDE, .out = SIDE};
    tutti_ddp_options_t options = refusal->options;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    options.reshard_ranks =
        m->rank == m->size - 1 ? refusal->of_last : refusal->options.reshard_ranks;
    TT_EXPECT(m, tutti_context_create(&context, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_linear_layer, &layer, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, &options, &ddp) == refusal->status);
    TT_EXPECT(m, strstr(tutti_last_error(), refusal->text) != NULL);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void what_cannot_be_is_refused_on_all_ranks(void **state)
{
    (void)state;
    const refusal_t cases[] = {
        {{.stage = 3, .reshard_ranks = 3},
         3,
         TUTTI_ERR_ARG,
         "options.reshard_ranks is 3, and 4 ranks gather a unit: want a divisor of 4, as many as a "
         "host has; or 0"},
        {{.stage = 3, .reshard_ranks = 8}, 8, TUTTI_ERR_ARG, "is 8, and 4 ranks gather a unit"},
        {{.stage = 3, .reshard_ranks = -2}, -2, TUTTI_ERR_ARG, "is -2: want 0, or more"},
        {{.stage = 2, .reshard_ranks = 2},
         2,
         TUTTI_ERR_ARG,
         "is 2 at stage 2, where every rank has all parameters: take stage 3, or 0"},
        {{.stage = 3, .reshard_ranks = 2, .keep_after_forward = true},
         2,
         TUTTI_ERR_ARG,
         "is 2, and keep_after_forward keeps units whole on each rank: take one of them"},
        {{.stage = 3, .reshard_ranks = 2}, 3, TUTTI_ERR_ARG, "is 3, and 4 ranks gather a unit"},
        {{.stage = 3, .reshard_ranks = 2}, 0, TUTTI_ERR_MISMATCH, "resharded to 0 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refusal_t one = cases[i];
        run(refuse, &one);
    }
}

/* ---- a program in between -------------------------------------------------------------------- */

static tutti_tensor_t *forward(tutti_scope_t *s, const tt_layers_job_t *job)
{
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    return tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x)));
}

static void call(tt_member_t *m, const tt_layers_job_t *job, bool learns)
{
    tutti_scope_t *s;
    const bool was = tutti_context_set_grad_enabled(job->ctx, learns);
    TT_EXPECT(m, tutti_scope_open(job->ctx, &s) == TUTTI_OK);
    (void)forward(s, job);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    (void)tutti_context_set_grad_enabled(job->ctx, was);
}

/* What is evaluated between forward and backward is not near behind it: it goes as a forward that
 * no backward follows, but the backwards of the first one are still to come. What the user asks for
 * comes from near, and goes there. */
static void look_in_between(tt_member_t *m)
{
    const tutti_ddp_options_t options = near_options();
    tt_layers_job_t job;
    tutti_scope_t *s;
    tt_layers_open(m, &options, LAYER, &job);
    call(m, &job, true);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == 0); /* outside of a step */
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    call(m, &job, false);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == 0); /* nobody waits for it */
    TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
    tutti_tensor_t *loss = forward(s, &job);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == LAYERS);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).unit_bytes == LAYERS * WEIGHT / 2);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, "1") == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).near_bytes == WEIGHT / 2);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_THERE) == 1 + (job.ddp->units.units[0].states[0] != 0));
    TT_EXPECT(m, tutti_ddp_reshard(job.ddp, "1") == TUTTI_OK);
    call(m, &job, false);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == LAYERS);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).near_bytes == (1 + LAYERS) * WEIGHT / 2);
    (void)tutti_backward(s, loss);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == 0);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).unit_bytes == 0);
    TT_EXPECT(m, tutti_optim_step(job.opt) == TUTTI_OK);
    tt_layers_close(&job);
}

static void what_stays_near_is_there_for_all_who_ask(void **state)
{
    (void)state;
    run(look_in_between, NULL);
}

/* In the scope of a step's shard. */
static tutti_scope_t *begin(tt_member_t *m, tt_layers_job_t *job)
{
    const tutti_ddp_options_t options = near_options();
    tutti_scope_t *s;
    tt_layers_open(m, &options, LAYER, job);
    TT_EXPECT(m, tutti_ddp_next_shard(job->ddp, job->ctx));
    TT_EXPECT(m, tutti_scope_open(job->ctx, &s) == TUTTI_OK);
    return s;
}

/* Two losses, whose forwards come before both backwards. */
static void go_back_twice(tt_member_t *m)
{
    tt_layers_job_t job;
    tutti_scope_t *s = begin(m, &job);
    tutti_tensor_t *first = forward(s, &job), *second = forward(s, &job);
    tutti_ddp_no_sync(job.ddp, true);
    (void)tutti_backward(s, first);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == LAYERS);
    tutti_ddp_no_sync(job.ddp, false);
    (void)tutti_backward(s, second);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == 0);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).near_bytes == 3 * LAYERS * WEIGHT / 2);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
    tt_layers_close(&job);
}

static void what_stays_near_waits_for_both_backwards(void **state)
{
    (void)state;
    run(go_back_twice, NULL);
}

/* A step ends, also one in which a forward's backward never came; the next one waits for none of
 * it. */
static void forget_a_backward(tt_member_t *m)
{
    tt_layers_job_t job;
    tutti_scope_t *s = begin(m, &job);
    (void)tutti_backward(s, forward(s, &job));
    (void)forward(s, &job);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == LAYERS);
    TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == 0);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).unit_bytes == 0);
    TT_EXPECT(m, tutti_optim_step(job.opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    call(m, &job, false);
    TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == 0);
    tt_layers_close(&job);
}

static void what_stays_near_goes_with_the_step(void **state)
{
    (void)state;
    run(forget_a_backward, NULL);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

typedef struct {
    size_t nth;
    bool has_failed;
    atomic_int done;
    pthread_barrier_t start;
    tutti_status_t status[RANKS];
} lack_t;

static tutti_status_t step(const tt_layers_job_t *job)
{
    tutti_scope_t *s;
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
        (void)tutti_backward(s, forward(s, job));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return tutti_ddp_finish(job->ddp);
}

/* A rank has no memory, at whatever place: nobody waits for it to the deadline. Where ddp knows of
 * it, it has told the others before it goes. */
static void lack_memory(tt_member_t *m)
{
    const tutti_ddp_options_t options = near_options();
    lack_t *lack = m->user;
    tt_layers_job_t job;
    tt_layers_open(m, &options, LAYER, &job);
    pthread_barrier_wait(&lack->start);
    if (m->rank == 1) {
        tt_alloc_fail_at(lack->nth);
    }
    pthread_barrier_wait(&lack->start);
    lack->status[m->rank] = step(&job);
    const bool has_told = job.ddp->step.status < 0; /* else an operation failed: who goes tells */
    if (!has_told) {
        tt_layers_close(&job);
    }
    if (atomic_fetch_add(&lack->done, 1) == RANKS - 1) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(&lack->start);
    if (has_told) {
        tt_layers_close(&job);
    }
}

static void all_ranks_hear_of_lack_of_memory(void **state)
{
    (void)state;
    lack_t lack = {.nth = 1, .has_failed = true};
    pthread_barrier_init(&lack.start, NULL, RANKS);
    for (; lack.has_failed; lack.nth += 83) {
        lack.has_failed = false;
        lack.done = 0;
        run(lack_memory, &lack);
        for (int rank = 0; rank < RANKS; rank++) {
            if (lack.status[rank] == TUTTI_ERR_TIMEOUT) {
                fail_msg("allocation %zu: rank %d waits to its deadline", lack.nth, rank);
            }
        }
    }
    pthread_barrier_destroy(&lack.start);
    assert_true(lack.nth > 400);
}

/* Its user is a barrier of all ranks. */
static void run_abreast(void (*train)(tt_member_t *))
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, RANKS);
    run(train, &barrier);
    pthread_barrier_destroy(&barrier);
}

/* A rank has no memory for its part, and its program does nothing more: the others hear of it. */
static void lack_a_part(tt_member_t *m)
{
    const tutti_ddp_options_t options = near_options();
    pthread_barrier_t *barrier = m->user;
    tt_layers_job_t job;
    tutti_scope_t *s;
    tt_layers_open(m, &options, LAYER, &job);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
    tutti_tensor_t *loss = forward(s, &job);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, "1") == TUTTI_OK);
    pthread_barrier_wait(barrier);
    if (m->rank == 1) {
        tt_alloc_fail_at(1);
        TT_EXPECT(m, tutti_ddp_reshard(job.ddp, "1") == TUTTI_ERR_NOMEM);
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(barrier);
    if (m->rank != 1) {
        const tutti_status_t status = tutti_backward(s, loss);
        TT_EXPECT(m, status < 0 && status != TUTTI_ERR_TIMEOUT);
    }
    (void)tutti_scope_close(s);
    pthread_barrier_wait(barrier);
    tt_layers_close(&job);
}

static void a_part_that_has_no_memory_ends_the_step_for_all(void **state)
{
    (void)state;
    run_abreast(lack_a_part);
}

/* A rank has no memory for the whole, and lets it go although its backward is still to come: there
 * is nothing to be kept. */
static void lack_a_whole(tt_member_t *m)
{
    const tutti_ddp_options_t options = near_options();
    pthread_barrier_t *barrier = m->user;
    tt_layers_job_t job;
    tutti_scope_t *s;
    tt_layers_open(m, &options, LAYER, &job);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
    (void)forward(s, &job);
    pthread_barrier_wait(barrier);
    if (m->rank == 1) {
        tt_alloc_fail_at(1);
        TT_EXPECT(m, tutti_ddp_unshard(job.ddp, "1") == TUTTI_ERR_NOMEM);
        tt_alloc_fail_at(0);
        TT_EXPECT(m, tutti_ddp_reshard(job.ddp, "1") == TUTTI_OK);
        TT_EXPECT(m, count_in(job.ddp, TT_UNIT_NEAR) == LAYERS - 1);
        TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_ERR_NOMEM);
        TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).unit_bytes == 0);
    }
    pthread_barrier_wait(barrier);
    (void)tutti_scope_close(s);
    tt_layers_close(&job);
}

static void a_whole_that_has_no_memory_is_not_kept(void **state)
{
    (void)state;
    run_abreast(lack_a_whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused_on_all_ranks),
        cmocka_unit_test(what_stays_near_is_there_for_all_who_ask),
        cmocka_unit_test(what_stays_near_waits_for_both_backwards),
        cmocka_unit_test(what_stays_near_goes_with_the_step),
        cmocka_unit_test(a_part_that_has_no_memory_ends_the_step_for_all),
        cmocka_unit_test(a_whole_that_has_no_memory_is_not_kept),
        cmocka_unit_test(all_ranks_hear_of_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
