/* A module on meta under stage 3: made slice by slice with the bits of the whole construction, and
 * no more than one parameter at a time. */
#include "parallel/ddp/ddp_stages_testing.h"

#include <stdlib.h>

#include <tutti/devices.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

enum { LAYERS = 6, SIDE = 128, STEPS = 2, RANKS_MAX = 4, TIMEOUT_MS = 60000 };

typedef struct {
    tutti_device_t *meta;
    tutti_context_t *plan, *ctx; /* of meta, and of the host */
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} training_t;

static tutti_status_t open_contexts(training_t *t, uint64_t seed, bool is_on_meta)
{
    tutti_context_options_t options = {.threads = 1, .seed = seed};
    TUTTI_CHECK(tutti_device_open("meta", NULL, &t->meta));
    TUTTI_CHECK(tutti_context_create(&options, &t->ctx));
    options.device = is_on_meta ? t->meta : NULL;
    return tutti_context_create(&options, &t->plan);
}

static tutti_status_t open_optimizer(training_t *t)
{
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static void close_training(training_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->plan);
    tutti_context_release(t->ctx);
    tutti_device_release(t->meta);
}

/* ---- bits ------------------------------------------------------------------------------------ */

typedef struct {
    bool is_on_meta, freezes;
    tutti_dtype_t dtype, param_dtype;
    char digests[STEPS + 1][TUTTI_DIGEST_BYTES];
} job_t;

static tutti_status_t run_step(training_t *t, tutti_dtype_t dtype, int step)
{
    tutti_context_set_step(t->ctx, step);
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, dtype, TUTTI_SHAPE(2, TT_STAGES_IN), -1, 1);
        x = tutti_cast(s, tutti_ddp_forward(s, t->ddp, x), TUTTI_F32);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, x)));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    return tutti_optim_step(t->opt);
}

static tutti_status_t open_stages_net(training_t *t, const job_t *job)
{
    TUTTI_CHECK(open_contexts(t, 11, job->is_on_meta));
    TUTTI_CHECK(tutti_module_create(t->plan, &tt_stages_layer, &(bool){false}, &t->net));
    TUTTI_CHECK(tutti_module_cast(t->net, job->dtype));
    if (job->freezes) {
        const tt_stages_net_t *net = tutti_module_state(t->net);
        TUTTI_CHECK(tutti_module_set_requires_grad(net->blocks[0], false));
    }
    return open_optimizer(t);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    training_t t = {0};
    const tutti_ddp_options_t options = {.shards = 3,
                                         .stage = job->is_on_meta ? 3 : 0,
                                         .param_dtype = job->param_dtype,
                                         .units = {.kind = job->is_on_meta ? "block" : NULL},
                                         .persistence_bytes = job->freezes ? 100 : 0};
    TT_EXPECT(m, open_stages_net(&t, job) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_device_stats(t.meta).live_bytes == 0);
    for (int step = 0; step <= STEPS; step++) {
        char digest[TUTTI_DIGEST_BYTES];
        TT_EXPECT(m, step == 0 || run_step(&t, job->dtype, step) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_digest(t.ddp, digest) == TUTTI_OK);
        if (m->rank == 0) {
            memcpy(job->digests[step], digest, sizeof digest);
        }
    }
    close_training(&t);
}

static void slices_have_the_bits_of_the_whole_construction(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        job_t whole = {.freezes = i & 1,
                       .dtype = i / 2 == 1 ? TUTTI_BF16 : TUTTI_F32,
                       .param_dtype = i / 2 == 2 ? TUTTI_BF16 : TUTTI_F32};
        job_t job = whole;
        job.is_on_meta = true;
        tt_team_expect_quietly(1, TIMEOUT_MS, train, &whole);
        for (int ranks = 1; ranks <= 3; ranks++) {
            setenv("TUTTI_SHARED_PARAMETERS", ranks == 2 ? "0" : "1", 1);
            tt_team_expect_quietly(ranks, TIMEOUT_MS, train, &job);
            assert_memory_equal(job.digests, whole.digests, sizeof job.digests);
        }
    }
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { PARAM = SIDE * SIDE * (int)sizeof(float) };

typedef struct {
    size_t in_use[LAYERS]; /* bytes of the process, as each parameter is made */
    int made;
} probe_t;

static _Thread_local probe_t *probe; /* of this rank */

static tutti_status_t fill_and_count(tutti_context_t *ctx, tutti_tensor_t *x,
                                     const tt_initializer_t *init)
{
    (void)ctx;
    probe->in_use[probe->made++] = tt_alloc_stats().bytes;
    return tutti_tensor_fill(x, init->numbers[0]);
}

/* Layers of one weight, which is one section: one rank has all of it, another one the next. Each
 * initial value tells which it is. */
static tutti_status_t open_layers(training_t *t, uint64_t seed, bool is_on_meta)
{
    const tutti_linear_options_t linear = {.in = SIDE, .out = SIDE, .no_bias = true};
    TUTTI_CHECK(open_contexts(t, seed, is_on_meta));
    TUTTI_CHECK(tutti_module_create(t->plan, &tutti_sequential_layer, NULL, &t->net));
    for (int i = 0; i < LAYERS; i++) {
        TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &linear, NULL));
    }
    return open_optimizer(t);
}

static tutti_status_t count_it(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    return tt_storage_keep(x->storage, &(tt_initializer_t){.run = fill_and_count,
                                                           .numbers = {name[0] - '0' + 1},
                                                           .dtype = TUTTI_F32});
}

typedef struct {
    size_t most;    /* in use while some rank makes a parameter */
    size_t at_last; /* when all ranks have made all */
    int made[RANKS_MAX];
} peak_t;

static const tutti_ddp_options_t by_layer = {.stage = 3, .units = {.kind = "linear"}};

/* Those that this rank has a slice of. */
static int count_own(const training_t *t)
{
    int count = 0;
    for (int i = 0; i < t->ddp->units.param_count; i++) {
        count += t->ddp->units.params[i].tensor->slice->values->numel > 0;
    }
    return count;
}

static void make_slices(tt_member_t *m)
{
    peak_t *peak = m->user;
    training_t t = {0};
    probe_t own = {.made = 0};
    probe = &own;
    TT_EXPECT(m, open_layers(&t, 7, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_each_parameter(t.net, count_it, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &by_layer, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, own.made > 0 && own.made == count_own(&t));
    TT_EXPECT(m, tutti_ddp_memory(t.ddp, NULL).parameter_bytes <=
                     (size_t)LAYERS * PARAM / (size_t)m->size + PARAM / 2);
    for (int i = 0; i < own.made; i++) { /* nothing is left of one when the next is made */
        TT_EXPECT(m, m->size > 1 || own.in_use[i] == own.in_use[0]);
    }
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        peak->at_last = tt_alloc_stats().bytes;
    }
    peak->made[m->rank] = own.made;
    pthread_barrier_wait(m->start);
    for (int rank = 0; rank < m->size; rank++) { /* one after the other */
        for (int i = 0; i < own.made && rank == m->rank; i++) {
            peak->most = own.in_use[i] > peak->most ? own.in_use[i] : peak->most;
        }
        pthread_barrier_wait(m->start);
    }
    TT_EXPECT(m, tutti_ddp_unshard(t.ddp, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(tutti_module_find(t.net, "4.weight"), PARAM / 4 - 1) == 5);
    close_training(&t);
}

enum { NOTES = 1024 }; /* of what is remembered until all are made */

/* All that is there when a parameter is made is there at the end, too, but for one of each rank. No
 * rank makes what others alone keep. */
static void no_rank_has_more_than_its_slices_and_one_parameter(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        peak_t peak = {0};
        int made = 0;
        tt_team_expect_quietly(ranks, TIMEOUT_MS, make_slices, &peak);
        for (int rank = 0; rank < ranks; rank++) {
            made += peak.made[rank];
        }
        print_message("%d ranks: %d parameters made, %lld bytes above the end's at most\n", ranks,
                      made, (long long)peak.most - (long long)peak.at_last);
        assert_int_equal(made, LAYERS);
        assert_true(peak.most > 0 && peak.most <= peak.at_last + (size_t)ranks * (PARAM + NOTES));
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- without values -------------------------------------------------------------------------- */

static void wait_for_values(tt_member_t *m)
{
    training_t t = {0};
    tutti_ddp_options_t options = by_layer;
    options.no_init = true;
    probe_t own = {.made = 0};
    probe = &own;
    TT_EXPECT(m, open_layers(&t, 7 + (uint64_t)m->rank, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_each_parameter(t.net, count_it, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, own.made == 0);
    TT_EXPECT(m, tutti_ddp_unshard(t.ddp, "0") == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(tutti_module_find(t.net, "0.weight"), 7) == 0);
    TT_EXPECT(m, tutti_ddp_reshard(t.ddp, "0") == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_summon(t.ddp, NULL, true) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, tutti_tensor_fill(t.ddp->units.params[i].tensor, 0.001) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_dismiss(t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    close_training(&t);
}

static void step_without_values(tt_member_t *m)
{
    training_t t = {0};
    tutti_ddp_options_t options = by_layer;
    options.no_init = true;
    TT_EXPECT(m, open_layers(&t, 7, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, !tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tutti_ddp_finish(t.ddp) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "have no values yet (options.no_init)") != NULL);
    close_training(&t);
}

/* An optimizer's step without gradients brings none. */
static void step_nothing(tt_member_t *m)
{
    training_t t = {0};
    tutti_optim_t *opt;
    tutti_ddp_options_t options = by_layer;
    options.no_init = true;
    TT_EXPECT(m, open_layers(&t, 7, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(t.ctx, &tutti_sgd, NULL, &opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(opt, t.net, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_step(opt) == TUTTI_OK);
    TT_EXPECT(m, !tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tutti_ddp_finish(t.ddp) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "have no values yet (options.no_init)") != NULL);
    tutti_optim_release(opt);
    close_training(&t);
}

static void step_with_values_of_one_unit(tt_member_t *m)
{
    training_t t = {0};
    tutti_ddp_options_t options = by_layer;
    options.no_init = true;
    TT_EXPECT(m, open_layers(&t, 7, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_summon(t.ddp, "0", true) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(t.net, "0.weight"), 0.001) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_dismiss(t.ddp) == TUTTI_OK);
    TT_EXPECT(m, !tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tutti_ddp_finish(t.ddp) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "parameters of unit 1 have no values yet") != NULL);
    close_training(&t);
}

static void step_with_values_of_each_unit(tt_member_t *m)
{
    training_t t = {0};
    tutti_ddp_options_t options = by_layer;
    options.no_init = true;
    TT_EXPECT(m, open_layers(&t, 7, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++) {
        const char name[] = {(char)('0' + i), 0};
        TT_EXPECT(m, tutti_ddp_summon(t.ddp, name, true) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_fill(t.ddp->units.params[i].tensor, 0.001) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_dismiss(t.ddp) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    close_training(&t);
}

static void values_may_come_later_but_before_a_step(void **state)
{
    (void)state;
    tt_team_expect_quietly(3, TIMEOUT_MS, wait_for_values, NULL);
    tt_team_expect_quietly(2, TIMEOUT_MS, step_without_values, NULL);
    tt_team_expect_quietly(2, TIMEOUT_MS, step_nothing, NULL);
    tt_team_expect_quietly(2, TIMEOUT_MS, step_with_values_of_one_unit, NULL);
    tt_team_expect_quietly(2, TIMEOUT_MS, step_with_values_of_each_unit, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct {
    size_t nth, persistence_bytes;
    bool has_failed;
    tutti_status_t statuses[2];
} lack_t;

/* What could not be wrapped is on meta as before, and what it would have been. */
static void wrap_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    training_t t = {0};
    char made[TUTTI_DIGEST_BYTES], want[TUTTI_DIGEST_BYTES];
    const job_t on_meta = {.is_on_meta = true}, whole = {.is_on_meta = false};
    TT_EXPECT(m, open_stages_net(&t, &on_meta) == TUTTI_OK);
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "block"}, .persistence_bytes = lack->persistence_bytes};
    lack->statuses[m->rank] = tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp);
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
    if (lack->statuses[m->rank] < 0) {
        training_t other = {0};
        TT_EXPECT(m, tutti_module_materialize(t.net, NULL) == TUTTI_OK);
        TT_EXPECT(m, open_stages_net(&other, &whole) == TUTTI_OK);
        TT_EXPECT(m, tutti_module_digest(t.net, made) == TUTTI_OK);
        TT_EXPECT(m, tutti_module_digest(other.net, want) == TUTTI_OK);
        TT_EXPECT(m, strcmp(made, want) == 0);
        close_training(&other);
    }
    close_training(&t);
}

static void a_failure_leaves_the_module_on_meta(void **state)
{
    (void)state;
    int failed = 0;
    for (int gathers = 0; gathers < 2; gathers++) { /* then small parameters come at once */
        lack_t lack = {.nth = 1, .persistence_bytes = gathers ? 100 : 0, .has_failed = true};
        setenv("TUTTI_SHARED_PARAMETERS", gathers ? "0" : "1", 1);
        for (; lack.has_failed; lack.nth += gathers ? 13 : 41) {
            tt_team_expect_quietly(2, TIMEOUT_MS, wrap_without_memory, &lack);
            assert_true((lack.statuses[0] < 0) == (lack.statuses[1] < 0));
            failed += lack.statuses[0] < 0;
        }
    }
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_int_equal(tt_alloc_stats().blocks, 0);
    print_message("%d failed\n", failed);
    assert_true(failed > 5);
}

typedef struct {
    const char *text;
    tutti_status_t status;
    tutti_ddp_options_t options;
    uint64_t seeds[2];
    bool are_on_host[2], is_written;
} misuse_t;

static void misuse(tt_member_t *m)
{
    const misuse_t *misuse = m->user;
    training_t t = {0};
    TT_EXPECT(m, open_layers(&t, misuse->seeds[m->rank], !misuse->are_on_host[m->rank]) == 0);
    if (misuse->is_written) {
        tt_tensor_touch(tutti_module_find(t.net, "2.weight"));
    }
    const tutti_status_t status =
        tutti_ddp_create(t.ctx, t.net, m->group, &misuse->options, &t.ddp);
    TT_EXPECT(m, status == misuse->status);
    TT_EXPECT(m, strstr(tutti_last_error(), misuse->text) != NULL);
    close_training(&t);
}

static void what_would_not_be_the_whole_is_refused(void **state)
{
    (void)state;
    const misuse_t all[] = {{.text = "parameter 0.weight lies on meta: call",
                             .status = TUTTI_ERR_STATE,
                             .options = {.stage = 0},
                             .seeds = {1, 1}},
                            {.text = "or take options.stage 3",
                             .status = TUTTI_ERR_STATE,
                             .options = {.stage = 2},
                             .seeds = {1, 1}},
                            {.text = "rank 1 has \"0.weight f32[128, 128], on meta, from draw",
                             .status = TUTTI_ERR_MISMATCH,
                             .options = by_layer,
                             .seeds = {1, 2}},
                            {.text = "where rank 0 has \"0.weight f32[128, 128]\"",
                             .status = TUTTI_ERR_MISMATCH,
                             .options = by_layer,
                             .seeds = {1, 1},
                             .are_on_host = {true, false}},
                            {.text = "the values of 2.weight",
                             .status = TUTTI_ERR_STATE,
                             .options = by_layer,
                             .seeds = {1, 1},
                             .is_written = true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        misuse_t one = all[i];
        tt_team_expect_quietly(2, TIMEOUT_MS, misuse, &one);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_have_the_bits_of_the_whole_construction),
        cmocka_unit_test(no_rank_has_more_than_its_slices_and_one_parameter),
        cmocka_unit_test(values_may_come_later_but_before_a_step),
        cmocka_unit_test(a_failure_leaves_the_module_on_meta),
        cmocka_unit_test(what_would_not_be_the_whole_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
