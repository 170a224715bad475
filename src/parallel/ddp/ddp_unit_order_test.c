/* The order of units where ranks gather them: who announces, who follows, what is started early. */
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_layers_testing.h"

enum { HALF = SIDE * SIDE * (int)sizeof(float) / 2, STEPS = 3, RANKS = 2 };

static const tutti_linear_options_t LAYER = {.no_bias = true};

/* Forward through some layers, in an order, and back. */
static tutti_status_t compute(const tt_layers_job_t *job, const int *order, int count)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    for (int i = 0; i < count; i++) {
        x = tutti_forward(s, job->layers[order[i]], x);
    }
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, x)));
    return tutti_scope_close(s);
}

static const int all[LAYERS] = {0, 1, 2, 3}, other_way[LAYERS] = {0, 2, 1, 3};

static tutti_status_t step(const tt_layers_job_t *job, const int *order, int count)
{
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        TUTTI_CHECK(compute(job, order, count));
    }
    TUTTI_CHECK(tutti_ddp_finish(job->ddp));
    return tutti_optim_step(job->opt);
}

static void gather(bool is_on)
{
    if (is_on) {
        setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    } else {
        unsetenv("TUTTI_SHARED_PARAMETERS");
    }
}

static void run(int ranks, void (*body)(tt_member_t *m), void *user)
{
    gather(true);
    tt_team_expect_quietly(ranks, 20000, body, user);
    gather(false);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static const tutti_ddp_options_t by_layer = {.stage = 3, .units = {.kind = "linear"}};

/* ---- ranks without data ---------------------------------------------------------------------- */

typedef struct {
    tutti_ddp_uneven_t uneven;
    int stage;
    char digests[RANKS][TUTTI_DIGEST_BYTES];
} uneven_t;

/* Rank 1 has as many shards as rank 0, but no data for them in the second step. */
static void step_without_data(tt_member_t *m)
{
    uneven_t *u = m->user;
    tutti_ddp_options_t options = {.stage = u->stage, .uneven = u->uneven};
    options.units.kind = u->stage == 3 ? "linear" : NULL;
    tt_layers_job_t job;
    tt_layers_open(m, &options, LAYER, &job);
    for (int i = 0; i < STEPS; i++) {
        const bool is_empty = m->rank == 1 && i == 1;
        tutti_context_set_step(job.ctx, i);
        while (tutti_ddp_next_shard(job.ddp, job.ctx)) {
            TT_EXPECT(m, tutti_ddp_set_weight(job.ddp, is_empty ? 0 : 1) == TUTTI_OK);
            TT_EXPECT(m, is_empty || compute(&job, all, LAYERS) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
        TT_EXPECT(m, tutti_optim_step(job.opt) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_digest(job.ddp, u->digests[m->rank]) == TUTTI_OK);
    tt_layers_close(&job);
}

static void a_rank_without_data_follows(void **state)
{
    (void)state;
    uneven_t want = {.uneven = TUTTI_DDP_WEIGHTED}, got = {.uneven = TUTTI_DDP_WEIGHTED};
    got.stage = 3;
    run(RANKS, step_without_data, &want);
    run(RANKS, step_without_data, &got);
    for (int r = 0; r < RANKS; r++) {
        assert_string_equal(got.digests[r], want.digests[0]);
    }
}

static void go_other_ways(tt_member_t *m)
{
    tutti_ddp_options_t options = by_layer;
    options.uneven = TUTTI_DDP_WEIGHTED;
    tt_layers_job_t job;
    tt_layers_open(m, &options, LAYER, &job);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    (void)compute(&job, m->rank == 0 ? all : other_way, LAYERS);
    const tutti_status_t status = tutti_ddp_finish(job.ddp);
    TT_EXPECT(m, status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, status == TUTTI_ERR_ABORTED ||
                     strstr(tutti_last_error(),
                            "to 1 and to 2: every rank must call them in one") != NULL);
    tt_layers_close(&job);
}

/* Nobody announces: the tags of the gathers differ, at once, and each rank says where it came. A
 * rank that hears of the other's failure says what that one came to. */
static void go_other_ways_evenly(tt_member_t *m)
{
    tt_layers_job_t job;
    char own[64], others[64];
    tt_layers_open(m, &by_layer, LAYER, &job);
    const int64_t start_ns = tt_clock_ns();
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    (void)compute(&job, m->rank == 0 ? all : other_way, LAYERS);
    const tutti_status_t status = tutti_ddp_finish(job.ddp);
    TT_EXPECT(m, status == TUTTI_ERR_MISMATCH);
    snprintf(own, sizeof own, "rank %d came to %d, and another", m->rank, 1 + m->rank);
    snprintf(others, sizeof others, "rank %d came to %d, and another", 1 - m->rank, 2 - m->rank);
    TT_EXPECT(m, strstr(tutti_last_error(), own) != NULL || strstr(tutti_last_error(), others));
    TT_EXPECT(m, tt_clock_ns() - start_ns < 10 * TT_NS_PER_S);
    tt_layers_close(&job);
}

static void ranks_that_gather_other_units_are_told(void **state)
{
    (void)state;
    run(RANKS, go_other_ways_evenly, NULL);
}

/* Forward through all layers, and back through the last two. */
static tutti_status_t compute_half(const tt_layers_job_t *job)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    for (int i = 0; i < LAYERS; i++) {
        x = tutti_forward(s, job->layers[i], i == 2 ? tutti_detach(s, x) : x);
    }
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, x)));
    return tutti_scope_close(s);
}

typedef struct {
    tutti_ddp_options_t options;
    bool is_half;     /* rank 0 goes back through half of the layers; else through two at all */
    const char *unit; /* that others come to */
} early_t;

/* Rank 0 is at the end of its step, while the others gather. */
static void stop_early(tt_member_t *m)
{
    const early_t *early = m->user;
    tt_layers_job_t job;
    char text[128];
    tt_layers_open(m, &early->options, LAYER, &job);
    const int64_t start_ns = tt_clock_ns();
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    const bool is_half = m->rank == 0 && early->is_half;
    (void)(is_half ? compute_half(&job) : compute(&job, all, m->rank == 0 ? 2 : LAYERS));
    const tutti_status_t status = tutti_ddp_finish(job.ddp);
    TT_EXPECT(m, status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED);
    snprintf(text, sizeof text,
             "came to %s, and another rank to another unit, or to its step's end", early->unit);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
    TT_EXPECT(m, strstr(tutti_last_error(), "rank 0 called barrier") != NULL);
    TT_EXPECT(m, tt_clock_ns() - start_ns < 10 * TT_NS_PER_S);
    tt_layers_close(&job);
}

/* In the second step the others come to a unit once more when all their buckets have left, and what
 * a step's first control says is known: no bucket keeps rank 0. */
static void look_once_more(tt_member_t *m)
{
    tutti_ddp_options_t options = by_layer;
    options.static_graph = true;
    tt_layers_job_t job;
    tutti_scope_t *s;
    tt_layers_open(m, &options, LAYER, &job);
    TT_EXPECT(m, step(&job, all, LAYERS) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, compute(&job, all, LAYERS) == TUTTI_OK);
    if (m->rank != 0) {
        TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
        (void)tutti_forward(s, job.layers[0], x);
        TT_EXPECT(m, tutti_scope_close(s) < 0);
    }
    TT_EXPECT(m, tutti_ddp_finish(job.ddp) < 0);
    TT_EXPECT(m, strstr(tutti_last_error(), "rank 0 called barrier") != NULL);
    tt_layers_close(&job);
}

static void a_unit_that_others_come_to_behind_their_buckets_is_named(void **state)
{
    (void)state;
    run(RANKS, look_once_more, NULL);
}

static void a_rank_that_ends_its_step_while_others_gather_is_told(void **state)
{
    (void)state;
    early_t early = {.options = by_layer, .is_half = true, .unit = "1"};
    run(RANKS, stop_early, &early);
    early = (early_t){.options = by_layer, .unit = "2"};
    early.options.keep_after_forward = true;
    run(RANKS, stop_early, &early);
    run(RANKS + 1, stop_early, &early);
    early = (early_t){.options = by_layer, .is_half = true, .unit = "1"};
    early.options.reshard_ranks = 2; /* of two sets the one gathers alone */
    run(2 * RANKS, stop_early, &early);
}

static void ranks_that_announce_other_units_are_told(void **state)
{
    (void)state;
    run(RANKS, go_other_ways, NULL);
}

/* ---- what is started early ------------------------------------------------------------------- */

static int64_t gathered(const tt_layers_job_t *job)
{
    return tutti_ddp_memory(job->ddp, NULL).gathered_bytes / HALF;
}

/* From the first layer straight to the last one. The second one was gathered in vain, so that the
 * next step begins without an order. */
static void change_the_way(tt_member_t *m)
{
    static const int short_way[] = {0, LAYERS - 1};
    const tutti_ddp_options_t *options = m->user;
    tt_layers_job_t job;
    tt_layers_open(m, options, LAYER, &job);
    const tt_unit_turns_t *order = &job.ddp->order.turns;
    TT_EXPECT(m, step(&job, all, LAYERS) == TUTTI_OK);
    TT_EXPECT(m, gathered(&job) == 2 * LAYERS && order->now.count == 2 * LAYERS);
    TT_EXPECT(m, step(&job, short_way, 2) == TUTTI_OK);
    TT_EXPECT(m, gathered(&job) == 2 * LAYERS + 4);
    TT_EXPECT(m, order->has_changed && order->now.count == 0);
    TT_EXPECT(m, step(&job, all, LAYERS) == TUTTI_OK);
    TT_EXPECT(m, !order->has_changed && order->now.count == 2 * LAYERS);
    tt_layers_close(&job);
}

static void what_was_gathered_in_vain_ends_the_order(void **state)
{
    (void)state;
    tutti_ddp_options_t options = by_layer;
    run(RANKS, change_the_way, &options);
    options.uneven = TUTTI_DDP_WEIGHTED; /* each start is announced */
    run(RANKS, change_the_way, &options);
}

/* ---- between steps --------------------------------------------------------------------------- */

static int count_there(const tt_layers_job_t *job)
{
    int count = 0;
    for (int u = 0; u < job->ddp->units.count; u++) {
        count += job->ddp->units.units[u].states[TT_UNIT_FULL] != TT_UNIT_AWAY;
    }
    return count;
}

/* A forward whose backward never comes: its units go when a step begins. */
static void forward_between_steps(tt_member_t *m)
{
    tutti_ddp_options_t options = by_layer;
    options.keep_after_forward = true;
    tt_layers_job_t job;
    tutti_scope_t *s;
    tt_layers_open(m, &options, LAYER, &job);
    TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    (void)tutti_forward(s, job.net, x);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    TT_EXPECT(m, count_there(&job) == LAYERS);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, count_there(&job) == 0);
    TT_EXPECT(m, compute(&job, all, LAYERS) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
    tt_layers_close(&job);
}

static void a_step_begins_without_units_of_before(void **state)
{
    (void)state;
    run(RANKS, forward_between_steps, NULL);
}

/* ---- behind a failure ------------------------------------------------------------------------ */

/* The other rank's failure may come first. */
static void go_on_behind_a_failure(tt_member_t *m)
{
    tt_layers_job_t job;
    tutti_scope_t *s;
    char text[TT_ERROR_TEXT_BYTES];
    tt_layers_open(m, &by_layer, LAYER, &job);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, compute(&job, all, LAYERS) == TUTTI_OK);
    pthread_barrier_wait(m->start);
    const tutti_status_t status = compute(&job, all, LAYERS); /* buckets have left */
    snprintf(text, sizeof text, "%s", tutti_last_error());
    TT_EXPECT(m, status == TUTTI_ERR_STATE || status == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    (void)tutti_forward(s, job.layers[0], x);
    TT_EXPECT(m, tutti_scope_close(s) == status && strncmp(tutti_last_error(), text, 40) == 0);
    tt_layers_close(&job);
}

/* No unit comes any more, whether it would be gathered or lies there. */
static void units_say_what_has_failed(void **state)
{
    (void)state;
    run(RANKS, go_on_behind_a_failure, NULL);
    tt_team_expect_quietly(RANKS, 20000, go_on_behind_a_failure, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void turns_without_memory_are_none(void **state)
{
    (void)state;
    tt_unit_turns_t turns = {0};
    tt_alloc_fail_at(1);
    assert_int_equal(tt_unit_turns_open(&turns, LAYERS), TUTTI_ERR_NOMEM);
    tt_unit_turns_rest(&turns, false);
    tt_unit_turns_let_go(&turns);
    tt_unit_turns_close(&turns);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_data_follows),
        cmocka_unit_test(ranks_that_announce_other_units_are_told),
        cmocka_unit_test(ranks_that_gather_other_units_are_told),
        cmocka_unit_test(a_rank_that_ends_its_step_while_others_gather_is_told),
        cmocka_unit_test(a_unit_that_others_come_to_behind_their_buckets_is_named),
        cmocka_unit_test(what_was_gathered_in_vain_ends_the_order),
        cmocka_unit_test(a_step_begins_without_units_of_before),
        cmocka_unit_test(units_say_what_has_failed),
        cmocka_unit_test(turns_without_memory_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
