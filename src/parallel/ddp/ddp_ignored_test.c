/* Tensors that DDP leaves alone: each rank has its own, of its own shape, and steps them whole;
 * what is not ignored does not notice. */
#include "core/base/testing.h"

#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"
#include "parallel/ddp/ddp_impl.h"

enum { RANKS = 2, STEPS = 3, WIDTH = 6, BATCH = 4, HIDDEN = 8, TIMEOUT_MS = 60000 };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} training_t;

/* The mlp's shape is the rank's. */
static tutti_status_t make_net(training_t *t, int rank)
{
    const tutti_linear_options_t linear = {
        .in = WIDTH, .out = WIDTH, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_mlp_options_t mlp = {.width = WIDTH, .hidden = HIDDEN + rank};
    const tutti_batch_norm_layer_options_t norm = {.width = WIDTH};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_sequential_layer, NULL, &t->net));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &linear, NULL));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_mlp_layer, &mlp, NULL));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_batch_norm_layer, &norm, NULL));
    return tutti_sequential_add(t->net, &tutti_linear_layer, &linear, NULL);
}

static tutti_status_t open_training(training_t *t, int rank)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 21};
    TUTTI_CHECK(tutti_context_create(&options, &t->ctx));
    TUTTI_CHECK(make_net(t, rank));
    TUTTI_CHECK(tutti_tensor_fill(tutti_module_find(t->net, "0.bias"), 1 + rank));
    TUTTI_CHECK(tutti_tensor_fill(tutti_module_find(t->net, "2.running_mean"), 1 + rank));
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static void close_training(training_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static tutti_status_t run_shards(training_t *t, int step)
{
    tutti_context_set_step(t->ctx, step);
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH), -1, 1);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_forward(s, t->net, x))));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return tutti_ddp_finish(t->ddp);
}

/* ---- a training ------------------------------------------------------------------------------ */

enum { WEIGHTS_MAX = 4 * WIDTH * WIDTH + 2 * WIDTH * (HIDDEN + RANKS) };

typedef struct {
    int stage;
    bool is_inside;
    float weights[RANKS][WEIGHTS_MAX]; /* of all tensors, as this rank has them */
    int64_t counts[RANKS];
    double means[RANKS], vars[RANKS]; /* running statistics, of which the first are ignored */
} job_t;

static const char *const ignored[] = {"1", "2.running_m???"};

static tutti_status_t read_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    float **to = user;
    (void)name;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        *(*to)++ = (float)tutti_tensor_at(x, i);
    }
    return TUTTI_OK;
}

static void expect_own_values(tt_member_t *m, const training_t *t)
{
    TT_EXPECT(m, tutti_tensor_at(tutti_module_find(t->net, "2.running_mean"), 0) == 1 + m->rank);
    TT_EXPECT(m, tutti_tensor_numel(tutti_module_find(t->net, "1.up.bias")) == HIDDEN + m->rank);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    training_t t = {0};
    TT_EXPECT(m, open_training(&t, m->rank) == TUTTI_OK);
    const tutti_ddp_options_t options = {.stage = job->stage,
                                         .units = {.kind = job->stage == 3 ? "linear" : NULL},
                                         .optimizer = job->is_inside ? t.opt : NULL,
                                         .ignored = ignored,
                                         .ignored_count = 2};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    expect_own_values(m, &t);
    for (int step = 0; step < STEPS; step++) {
        TT_EXPECT(m, run_shards(&t, step) == TUTTI_OK);
        TT_EXPECT(m, job->is_inside || tutti_optim_step(t.opt) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_unshard(t.ddp, NULL) == TUTTI_OK);
    float *to = job->weights[m->rank];
    TT_EXPECT(m, tutti_module_each_tensor(t.net, read_tensor, &to) == TUTTI_OK);
    job->means[m->rank] = tutti_tensor_at(tutti_module_find(t.net, "2.running_mean"), 0);
    job->vars[m->rank] = tutti_tensor_at(tutti_module_find(t.net, "2.running_var"), 0);
    job->counts[m->rank] = to - job->weights[m->rank];
    close_training(&t);
}

/* ---- state ----------------------------------------------------------------------------------- */

typedef struct {
    int count;
    int64_t own, others; /* elements of moments of what is ignored, and of the rest */
} states_t;

static tutti_status_t count_state(void *user, const char *name, tutti_tensor_t *x)
{
    states_t *states = user;
    states->count++;
    if (tutti_tensor_rank(x) > 0) {
        *(strncmp(name, "1.", 2) == 0 ? &states->own : &states->others) += tutti_tensor_numel(x);
    }
    return TUTTI_OK;
}

/* Two moments and a count of steps of each parameter; the mlp's of rank 1, which gets them. */
static void consolidate(tt_member_t *m)
{
    const int *stage = m->user;
    training_t t = {0};
    states_t states = {0};
    TT_EXPECT(m, open_training(&t, m->rank) == TUTTI_OK);
    const tutti_ddp_options_t options = {.stage = *stage, .ignored = ignored, .ignored_count = 2};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, run_shards(&t, 0) == TUTTI_OK && tutti_optim_step(t.opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_consolidate(t.ddp, t.opt, 1, count_state, &states) == TUTTI_OK);
    const int64_t hidden = HIDDEN + 1;
    TT_EXPECT(m, states.count == (m->rank == 1 ? 3 * 10 : 0));
    TT_EXPECT(m, m->rank == 0 || states.own == 2 * (2 * WIDTH * hidden + hidden + WIDTH));
    TT_EXPECT(m, m->rank == 0 || states.others == 2 * (2 * WIDTH * WIDTH + 4 * WIDTH));
    close_training(&t);
}

static void state_of_what_is_ignored_is_the_ranks_own(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        tt_team_expect_quietly(RANKS, TIMEOUT_MS, consolidate, &stage);
    }
}

static void run_job(job_t *job)
{
    tt_team_expect_quietly(RANKS, TIMEOUT_MS, train, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void every_stage_leaves_them_alone(void **state)
{
    (void)state;
    static job_t plain, job;
    enum { FIRST = WIDTH * WIDTH + WIDTH };
    plain = (job_t){.stage = 0};
    run_job(&plain);
    /* what both average is the same; what each has is not */
    assert_memory_equal(plain.weights[0], plain.weights[1], FIRST * sizeof(float));
    assert_true(plain.counts[1] == plain.counts[0] + 2 * WIDTH + 1);
    assert_true(plain.weights[0][FIRST] != plain.weights[1][FIRST]);
    assert_true(plain.means[0] != plain.means[1] && plain.vars[0] == plain.vars[1]);
    for (int i = 1; i < 8; i++) {
        job = (job_t){.stage = i % 4, .is_inside = i >= 4};
        run_job(&job);
        assert_memory_equal(job.weights, plain.weights, sizeof job.weights);
    }
}

/* ---- a step that has no memory --------------------------------------------------------------- */

typedef struct {
    size_t nth, allocations;
    tutti_status_t status;
    char digest[TUTTI_DIGEST_BYTES];
} lack_t;

static void step_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    training_t t = {0};
    TT_EXPECT(m, open_training(&t, m->rank) == TUTTI_OK);
    const tutti_ddp_options_t options = {
        .optimizer = t.opt, .ignored = ignored, .ignored_count = 2};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    const size_t before = tt_alloc_stats().allocations;
    tt_alloc_fail_at(lack->nth);
    lack->status = run_shards(&t, 0);
    tt_alloc_fail_at(0);
    lack->allocations = tt_alloc_stats().allocations - before;
    TT_EXPECT(m, tutti_module_digest(t.net, lack->digest) == TUTTI_OK);
    close_training(&t);
}

/* Either all parameters are stepped, ignored ones too, or the step has failed. */
static void a_step_inside_backward_without_memory_says_so(void **state)
{
    (void)state;
    lack_t want = {.nth = 0}, got;
    tt_team_expect_quietly(1, TIMEOUT_MS, step_without_memory, &want);
    assert_int_equal(want.status, TUTTI_OK);
    for (size_t n = 1; n <= want.allocations; n++) {
        got = (lack_t){.nth = n};
        tt_team_expect_quietly(1, TIMEOUT_MS, step_without_memory, &got);
        if (got.status == TUTTI_OK ? strcmp(got.digest, want.digest) != 0
                                   : got.status != TUTTI_ERR_NOMEM) {
            fail_msg("allocation %zu: %d, %s", n, (int)got.status, got.digest);
        }
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

enum { SIDE = WIDTH * HIDDEN };

static void gradients_of(tutti_group_t *world, bool is_ignored, float grads[STEPS][SIDE])
{
    training_t t = {0};
    const tutti_ddp_options_t options = {
        .shards = 2, .ignored = ignored, .ignored_count = is_ignored};
    assert_int_equal(open_training(&t, 0), TUTTI_OK);
    assert_int_equal(tutti_ddp_create(t.ctx, t.net, world, &options, &t.ddp), TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(run_shards(&t, step), TUTTI_OK);
        const tutti_tensor_t *grad = tutti_tensor_grad(tutti_module_find(t.net, "1.up.weight"));
        assert_non_null(grad);
        memcpy(grads[step], tutti_tensor_data(grad), sizeof grads[step]);
    }
    close_training(&t);
}

/* Of one step: forgotten when the next one begins. Of two shards, whose average is half of it. */
static void a_gradient_is_the_sum_over_the_ranks_shards(void **state)
{
    (void)state;
    float sums[STEPS][SIDE], averages[STEPS][SIDE];
    tutti_group_t *world;
    assert_int_equal(tutti_init(&(tutti_init_options_t){.world_size = 1}, &world), TUTTI_OK);
    gradients_of(world, true, sums);
    gradients_of(world, false, averages);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < SIDE; i++) {
            assert_true(sums[step][i] == 2 * averages[step][i]);
        }
    }
    tutti_group_release(world);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- memory, dtypes -------------------------------------------------------------------------- */

/* Parameters of the two linear layers and of the norm are dealt out; the mlp's are not. */
static void look_at_memory(tt_member_t *m)
{
    training_t t = {0};
    static const char *const norm[] = {"1", "2"};
    const tutti_ddp_options_t options = {.stage = 3,
                                         .param_dtype = TUTTI_BF16,
                                         .buffer_dtype = TUTTI_BF16,
                                         .ignored = norm,
                                         .ignored_count = 2};
    TT_EXPECT(m, open_training(&t, m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    const tutti_tensor_t *mean = tutti_module_find(t.net, "2.running_mean");
    TT_EXPECT(m, tutti_tensor_dtype(mean) == TUTTI_F32);
    TT_EXPECT(m, tutti_tensor_at(mean, 0) == 1 + m->rank);
    size_t slices = 0;
    for (int f = 0; f < t.ddp->units.source.flat_count; f++) {
        slices += (size_t)t.ddp->units.source.flats[f].own->numel * (4 + 2);
    }
    const size_t mlp = 4 * (size_t)((2 * WIDTH + 1) * (HIDDEN + m->rank) + WIDTH);
    TT_EXPECT(m, tutti_ddp_memory(t.ddp, NULL).parameter_bytes == slices + mlp + 4 * 2 * WIDTH);
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tutti_tensor_dtype(tutti_module_find(t.net, "1.up.weight")) == TUTTI_F32);
    TT_EXPECT(m, tutti_tensor_dtype(tutti_module_find(t.net, "0.weight")) == TUTTI_BF16);
    close_training(&t);
}

static void they_are_neither_cast_nor_dealt_out(void **state)
{
    (void)state;
    tt_team_expect_quietly(RANKS, TIMEOUT_MS, look_at_memory, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void expect_refused(tt_member_t *m, training_t *t, const char *name, tutti_status_t status,
                           const char *text)
{
    const tutti_ddp_options_t options = {.ignored = &name, .ignored_count = 1};
    TT_EXPECT(m, tutti_ddp_create(t->ctx, t->net, m->group, &options, &t->ddp) == status);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
}

static void misuse(tt_member_t *m)
{
    training_t t = {0};
    TT_EXPECT(m, open_training(&t, 0) == TUTTI_OK);
    expect_refused(m, &t, "7", TUTTI_ERR_ARG, "options.ignored: no parameter, buffer or module");
    expect_refused(m, &t, "1.u", TUTTI_ERR_ARG, "called 1.u");
    expect_refused(m, &t, NULL, TUTTI_ERR_ARG, "options.ignored: name 0 is NULL");
    expect_refused(m, &t, "?", TUTTI_ERR_ARG, "requires a gradient and is not ignored");
    expect_refused(m, &t, m->rank == 1 ? "3.bias" : "3.weight", TUTTI_ERR_MISMATCH,
                   "rank 1 has \"3.weight f32[6, 6]\" where rank 0 has \"3.weight, ignored\"");
    close_training(&t);
}

static void ranks_that_differ_and_names_of_nothing_are_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(RANKS, TIMEOUT_MS, misuse, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_leaves_them_alone),
        cmocka_unit_test(state_of_what_is_ignored_is_the_ranks_own),
        cmocka_unit_test(a_step_inside_backward_without_memory_says_so),
        cmocka_unit_test(a_gradient_is_the_sum_over_the_ranks_shards),
        cmocka_unit_test(they_are_neither_cast_nor_dealt_out),
        cmocka_unit_test(ranks_that_differ_and_names_of_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
