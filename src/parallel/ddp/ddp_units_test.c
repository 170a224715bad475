/* Units of stage 3: when they come and go, what that costs on a wire, and what is refused. That
 * bits are those of stage 0 is ddp_stages_test.c's. */
#include "parallel/ddp/ddp_stages_testing.h"

#include <stdlib.h>

#include <tutti/devices.h>

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_layers_testing.h"

enum { BATCH = 2, RANKS_MAX = 4 };

static const tutti_linear_options_t LAYER = {.no_bias = true, .activation = TUTTI_ACTIVATION_TANH};

static tutti_tensor_t *input_of(tutti_scope_t *s)
{
    return tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, SIDE), -1, 1);
}

static tutti_status_t compute(tt_layers_job_t *job, tutti_module_t *net)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
    tutti_tensor_t *y = tutti_forward(s, net, input_of(s));
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, y)));
    return tutti_scope_close(s);
}

static tutti_status_t step(tt_layers_job_t *job)
{
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        TUTTI_CHECK(compute(job, job->net));
    }
    TUTTI_CHECK(tutti_ddp_finish(job->ddp));
    return tutti_optim_step(job->opt);
}

static void over_tcp(bool is_on)
{
    if (is_on) {
        setenv("TUTTI_WIRES", "tcp", 1);
        setenv("TUTTI_PROTECT", "off", 1);
    } else {
        unsetenv("TUTTI_WIRES");
        unsetenv("TUTTI_PROTECT");
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum { PSI = LAYERS * SIDE * SIDE * (int)sizeof(float) };

typedef struct {
    tutti_ddp_options_t options;
    int gathers; /* of each parameter in a step */
} cost_t;

static int64_t sent(const tt_layers_job_t *job, const char *call)
{
    return tutti_group_sent_bytes(job->ddp->group, call) +
           tutti_group_sent_bytes(job->ddp->units.group, call);
}

static void count_bytes(tt_member_t *m)
{
    const cost_t *cost = m->user;
    tt_layers_job_t job;
    tt_layers_open(m, &cost->options, LAYER, &job);
    const int64_t share = (int64_t)PSI * (m->size - 1) / m->size;
    for (int i = 0; i < 4; i++) {
        const int64_t gathered = sent(&job, "all_gather"), scattered = sent(&job, "reduce_scatter");
        const int64_t brought = tutti_ddp_memory(job.ddp, NULL).gathered_bytes;
        TT_EXPECT(m, step(&job) == TUTTI_OK);
        TT_EXPECT(m, sent(&job, "reduce_scatter") - scattered == share);
        TT_EXPECT(m, sent(&job, "all_gather") - gathered == cost->gathers * share);
        TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).gathered_bytes - brought ==
                         (cost->options.stage == 3 ? cost->gathers * share : 0));
    }
    tt_layers_close(&job);
}

/* V = W, every rank a host of its own: 2Ψ(W − 1)/W at stages 1 and 2, 3Ψ(W − 1)/W at stage 3; units
 * that stay for their backward cost what stage 2 does. What is started early is what is wanted. */
static void a_step_sends_what_the_formula_says(void **state)
{
    (void)state;
    static const cost_t costs[] = {
        {{.stage = 1}, 1},
        {{.stage = 2}, 1},
        {{.stage = 3, .units = {.kind = "linear"}}, 2},
        {{.stage = 3, .units = {.kind = "linear"}, .prefetch = 3}, 2},
        {{.stage = 3, .units = {.kind = "linear"}, .prefetch = -1}, 2},
        {{.stage = 3, .units = {.kind = "linear"}, .keep_after_forward = true}, 1},
        {{.stage = 3}, 1}, /* the root stays */
    };
    over_tcp(true);
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
            cost_t cost = costs[i];
            tt_team_expect_quietly(ranks, 60000, count_bytes, &cost);
        }
    }
    over_tcp(false);
}

/* ---- how many are there ---------------------------------------------------------------------- */

typedef struct {
    tt_member_t *m;
    tt_layers_job_t *job;
    int most; /* units that are there or coming */
} watch_t;

static int count_units(const tutti_ddp_t *ddp)
{
    int count = 0;
    for (int u = 0; u < ddp->units.count; u++) {
        count += ddp->units.units[u].states[TT_UNIT_FULL] != TT_UNIT_AWAY;
    }
    return count;
}

static tutti_status_t watch(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    watch_t *w = user;
    const int count = count_units(w->job->ddp);
    w->most = count > w->most ? count : w->most;
    return TUTTI_OK;
}

static void count_units_at_once(tt_member_t *m)
{
    const int *prefetch = m->user;
    tt_layers_job_t job;
    watch_t w = {.m = m, .job = &job};
    const tutti_module_hooks_t hooks = {.before_forward = watch, .before_backward = watch};
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "linear"}, .prefetch = *prefetch};
    tt_layers_open(m, &options, LAYER, &job);
    for (int i = 0; i < LAYERS; i++) { /* behind those of units */
        TT_EXPECT(m, tutti_module_add_hooks(job.layers[i], &hooks, &w) == TUTTI_OK);
    }
    for (int i = 0; i < 3; i++) {
        w.most = 0;
        TT_EXPECT(m, step(&job) == TUTTI_OK);
        const int ahead = *prefetch == 0 ? 1 : *prefetch < 0 ? 0 : *prefetch;
        TT_EXPECT(m, w.most == 1 + (i > 0 ? ahead : 0));
        TT_EXPECT(m, count_units(job.ddp) == 0);
    }
    const tutti_ddp_memory_t memory = tutti_ddp_memory(job.ddp, job.opt);
    TT_EXPECT(m, memory.units == 1 + LAYERS && memory.unit_bytes == 0);
    TT_EXPECT(m, memory.largest_unit_bytes == PSI / LAYERS);
    TT_EXPECT(m, memory.peak_unit_bytes == (size_t)w.most * (PSI / LAYERS));
    TT_EXPECT(m, memory.parameter_bytes == (size_t)PSI / (size_t)m->size);
    TT_EXPECT(m, memory.gradient_bytes == (size_t)PSI / (size_t)m->size);
    tt_layers_close(&job);
}

static void no_more_units_are_there_than_asked_for(void **state)
{
    (void)state;
    int wanted[] = {-1, 0, 1, 2}; /* 0: as 1 */
    for (int i = 0; i < 4; i++) {
        tt_team_expect_quietly(2, 20000, count_units_at_once, &wanted[i]);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *text)
{
    TT_EXPECT(m, status == want && strstr(tutti_last_error(), text) != NULL);
}

static const tutti_ddp_options_t by_layer = {.stage = 3, .units = {.kind = "linear"}};

static void read_and_write(tt_member_t *m)
{
    tt_layers_job_t job, whole;
    char digest[TUTTI_DIGEST_BYTES], want[TUTTI_DIGEST_BYTES];
    tt_layers_open(m, &by_layer, LAYER, &job);
    tt_layers_open(m, NULL, LAYER, &whole);
    tutti_tensor_t *x = tutti_module_find(job.net, "1.weight");
    expect_text(
        m, tutti_module_digest(job.net, digest), TUTTI_ERR_STATE,
        "0.weight f32[256, 256] is not in memory: unit 0 is sharded (options.stage 3): it is "
        "there while its module computes, or between tutti_ddp_unshard()");
    TT_EXPECT(m, tutti_tensor_data(x) == NULL);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, "1") == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(x, 77) ==
                     tutti_tensor_at(tutti_module_find(whole.net, "1.weight"), 77));
    TT_EXPECT(m, tutti_ddp_reshard(job.ddp, "1") == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_data(x) == NULL);
    /* what is written is lost, and that is said */
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, "1") == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, 2) == TUTTI_OK);
    expect_text(m, tutti_ddp_reshard(job.ddp, "1"), TUTTI_ERR_STATE,
                "parameter 1.weight was written while its unit was whole");
    /* but not of a summons */
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, "1", true) == TUTTI_OK);
    expect_text(m, tutti_ddp_summon(job.ddp, "2", true), TUTTI_ERR_STATE, "tutti_ddp_dismiss()");
    TT_EXPECT(m, tutti_tensor_fill(x, 0.01) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_data(x) == NULL);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(whole.net, "1.weight"), 0.01) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_ddp_digest(job.ddp, digest) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_digest(whole.ddp, want) == TUTTI_OK);
        TT_EXPECT(m, strcmp(digest, want) == 0);
        TT_EXPECT(m, step(&job) == TUTTI_OK && step(&whole) == TUTTI_OK);
    }
    expect_text(m, tutti_ddp_dismiss(job.ddp), TUTTI_ERR_STATE, "nothing is summoned");
    expect_text(m, tutti_ddp_unshard(job.ddp, "none"), TUTTI_ERR_NOT_FOUND, "called none");
    tutti_ddp_release(job.ddp);
    job.ddp = NULL;
    expect_text(m, tutti_module_digest(job.net, digest), TUTTI_ERR_STATE,
                "was released while it was sharded");
    tt_layers_close(&whole);
    tt_layers_close(&job);
}

static void parameters_are_read_and_written_as_a_whole(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        tt_team_expect_quietly(ranks, 20000, read_and_write, NULL);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* What is held over a step is not held behind it, for it would be what the parameters were. */
static void hold_over_a_step(tt_member_t *m)
{
    tt_layers_job_t job, whole;
    char digest[TUTTI_DIGEST_BYTES], want[TUTTI_DIGEST_BYTES];
    tt_layers_open(m, &by_layer, LAYER, &job);
    tt_layers_open(m, NULL, LAYER, &whole);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, NULL) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, step(&job) == TUTTI_OK && step(&whole) == TUTTI_OK);
        TT_EXPECT(m, count_units(job.ddp) == 0);
    }
    TT_EXPECT(m, tutti_ddp_reshard(job.ddp, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(job.net, digest) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(whole.net, want) == TUTTI_OK && strcmp(digest, want) == 0);
    tt_layers_close(&whole);
    tt_layers_close(&job);
}

static void a_step_ends_what_is_held(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, hold_over_a_step, NULL);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static tutti_status_t evaluate(tt_layers_job_t *job, double *result)
{
    tutti_scope_t *s;
    const bool was = tutti_context_set_grad_enabled(job->ctx, false);
    TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
    tutti_tensor_t *y = tutti_forward(s, job->net, input_of(s));
    *result = tutti_tensor_status(y) < 0 ? 0 : tutti_tensor_item(tutti_mean(s, y));
    (void)tutti_context_set_grad_enabled(job->ctx, was);
    return tutti_scope_close(s);
}

static void evaluate_between_steps(tt_member_t *m)
{
    tt_layers_job_t job, whole;
    tt_layers_open(m, &by_layer, LAYER, &job);
    tt_layers_open(m, NULL, LAYER, &whole);
    for (int i = 0; i < 3; i++) {
        double got = 0, want = 1;
        TT_EXPECT(m, evaluate(&job, &got) == TUTTI_OK && evaluate(&whole, &want) == TUTTI_OK);
        TT_EXPECT(m, got == want);
        TT_EXPECT(m, count_units(job.ddp) == 0);
        TT_EXPECT(m, step(&job) == TUTTI_OK && step(&whole) == TUTTI_OK);
    }
    tt_layers_close(&whole);
    tt_layers_close(&job);
}

/* That ranks differ; or, on a rank that hears of it from another one, that this one gave up, or
 * went. */
static bool is_told(tutti_status_t status)
{
    return status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER;
}

/* Rank 0 evaluates, the others go on: all are told. */
static void evaluate_alone(tt_member_t *m)
{
    tt_layers_job_t job;
    double result;
    tt_layers_open(m, &by_layer, LAYER, &job);
    const tutti_status_t status = m->rank == 0 ? evaluate(&job, &result) : step(&job);
    TT_EXPECT(m, is_told(status));
    TT_EXPECT(m, strstr(tutti_last_error(), "rank ") != NULL);
    tt_layers_close(&job);
}

static void evaluation_is_all_ranks(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, evaluate_between_steps, NULL);
    tt_team_expect_quietly(3, 20000, evaluate_alone, NULL);
}

/* ---- another order --------------------------------------------------------------------------- */

/* Two layers of one shape: what came would be the wrong weights. */
static void turn_around(tt_member_t *m)
{
    const tutti_ddp_options_t *options = m->user;
    tt_layers_job_t job;
    tt_layers_open(m, options, LAYER, &job);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    tutti_status_t status = TUTTI_OK;
    while (status >= 0 && tutti_ddp_next_shard(job.ddp, job.ctx)) {
        tutti_scope_t *s;
        TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
        tutti_tensor_t *x = tutti_forward(s, job.layers[m->rank], input_of(s));
        x = tutti_forward(s, job.layers[1 - m->rank], x);
        (void)tutti_backward(s, tutti_mean(s, x));
        status = tutti_scope_close(s);
    }
    const tutti_status_t end = tutti_ddp_finish(job.ddp);
    status = status < 0 ? status : end;
    TT_EXPECT(m, is_told(status));
    TT_EXPECT(m, strstr(tutti_last_error(), "rank") != NULL);
    tt_layers_close(&job);
}

static void ranks_in_other_orders_are_told(void **state)
{
    (void)state;
    tutti_ddp_options_t options = by_layer;
    tt_team_expect_quietly(2, 20000, turn_around, &options);
    options.uneven = TUTTI_DDP_WEIGHTED; /* each start is announced */
    tt_team_expect_quietly(2, 20000, turn_around, &options);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void misuse(tt_member_t *m)
{
    static const char *const names[] = {"0", "7"};
    tutti_ddp_t *ddp;
    tt_layers_job_t job;
    char text[2000];
    tt_layers_open(m, &by_layer, LAYER, &job);
    const char *const described = tutti_ddp_describe(job.ddp, text, sizeof text);
    TT_EXPECT(m, strstr(described, "the root unit: 0 parameters, 0 bytes\n"
                                   "unit 0: 1 parameters, 262144 bytes\n") != NULL);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, NULL, false) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    tutti_ddp_release(job.ddp);
    job.ddp = NULL;
    tt_layers_close(&job);
    tt_layers_open(m, NULL, LAYER, &job);
    tutti_ddp_release(job.ddp);
    job.ddp = NULL;
    tutti_ddp_options_t options = {.stage = 3, .units = {.kind = "conv9d"}};
    expect_text(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &ddp), TUTTI_ERR_ARG,
                "no module of kind conv9d");
    options.units = (tutti_ddp_units_t){.names = names, .name_count = 2};
    expect_text(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &ddp), TUTTI_ERR_ARG,
                "no module called 7");
    tt_layers_close(&job);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, misuse, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* A module that went to a device and came back has other memory: what is stepped would not be it.
 */
static void move_and_back(tt_member_t *m)
{
    const tutti_ddp_options_t *options = m->user;
    tt_layers_job_t job;
    tutti_device_t *device;
    char name[32];
    snprintf(name, sizeof name, "strict:%d", m->rank);
    tt_layers_open(m, options, LAYER, &job);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    TT_EXPECT(m, tutti_device_open(name, NULL, &device) == TUTTI_OK);
    tutti_status_t status = tutti_module_to(job.net, device);
    if (status >= 0) {
        TT_EXPECT(m, tutti_module_to(job.net, NULL) == TUTTI_OK);
        status = step(&job);
    }
    expect_text(m, status, TUTTI_ERR_STATE,
                options->stage == 3 ? "is not in memory"
                                    : "has other memory than when ddp was made");
    tt_layers_close(&job);
    tutti_device_release(device);
}

static void a_module_that_was_moved_is_not_trained(void **state)
{
    (void)state;
    for (int stage = 1; stage <= 3; stage++) {
        tutti_ddp_options_t options = by_layer;
        options.stage = stage;
        tt_team_expect_quietly(2, 20000, move_and_back, &options);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct {
    size_t nth;
    bool has_failed;
    tutti_status_t statuses[2];
    bool names_rank[2];
} lack_t;

static void step_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    tt_layers_job_t job;
    tt_layers_open(m, &by_layer, LAYER, &job);
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
    tutti_status_t status = TUTTI_OK;
    while (status >= 0 && tutti_ddp_next_shard(job.ddp, job.ctx)) {
        status = compute(&job, job.net);
    }
    const tutti_status_t end = tutti_ddp_finish(job.ddp);
    status = status < 0 ? status : end;
    status = status < 0 ? status : tutti_optim_step(job.opt);
    lack->statuses[m->rank] = status;
    lack->names_rank[m->rank] =
        status == TUTTI_ERR_NOMEM || strstr(tutti_last_error(), "rank ") != NULL;
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
    tt_layers_close(&job);
}

static void a_rank_without_memory_for_a_unit_stops_all(void **state)
{
    (void)state;
    int failed = 0;
    lack_t lack = {.nth = 1, .has_failed = true};
    for (; lack.has_failed; lack.nth += 23) {
        tt_team_expect_quietly(2, 20000, step_without_memory, &lack);
        const int count = (lack.statuses[0] < 0) + (lack.statuses[1] < 0);
        assert_true(count != 1);
        failed += count == 2;
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
    assert_true(failed > 5);
}

/* ---- released in a step ---------------------------------------------------------------------- */

enum { LONG_MS = 30000 };

static void release_while_one_comes(tt_member_t *m)
{
    tt_layers_job_t job;
    const tutti_ddp_options_t options = {.stage = 3, .units = {.kind = "linear"}};
    tt_layers_open(m, &options, LAYER, &job);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    if (m->rank == 1) {
        tt_member_await(m, 1);
    } else {
        TT_EXPECT(m, tt_ddp_unit_start(job.ddp, 1, TT_UNIT_FULL) == TUTTI_OK);
    }
    const int64_t begin = tt_clock_ns();
    tutti_ddp_release(job.ddp);
    TT_EXPECT(m, tt_clock_ns() - begin < LONG_MS / 2 * TT_NS_PER_MS);
    tt_member_tell(m);
    job.ddp = NULL;
    tt_layers_close(&job);
}

/* A unit is coming, and its other rank does something else. */
static void a_release_in_a_step_waits_for_nobody(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, LONG_MS, release_while_one_comes, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Units are gathered here; ddp_share_test looks at ranks that share them. */
int main(void)
{
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_sends_what_the_formula_says),
        cmocka_unit_test(no_more_units_are_there_than_asked_for),
        cmocka_unit_test(parameters_are_read_and_written_as_a_whole),
        cmocka_unit_test(a_step_ends_what_is_held),
        cmocka_unit_test(evaluation_is_all_ranks),
        cmocka_unit_test(ranks_in_other_orders_are_told),
        cmocka_unit_test(a_module_that_was_moved_is_not_trained),
        cmocka_unit_test(a_rank_without_memory_for_a_unit_stops_all),
        cmocka_unit_test(a_release_in_a_step_waits_for_nobody),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
