/* options.exact and TUTTI_EXACT: the default keeps every bit on any number of ranks; without it,
 * averages are right but for rounding, and DDP says so. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/log.h"

enum { STEPS = 3, IN = 10, HIDDEN = 19, OUT = 5, BATCH = 3, SHARDS = 7 };

typedef struct {
    tutti_ddp_options_t options;
    tutti_dtype_t dtype; /* of the model */
    bool empties;        /* the last shard has no data */
    float weights[TT_TEAM_MAX][HIDDEN * IN];
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
    bool is_canonical;
} job_t;

static int told; /* lines of the log that speak of it */

static void count_lines(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)user;
    told += strstr(line, "not exact") != NULL;
}

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    told = 0;
    setenv("TUTTI_LOG", "info", 1);
    tt_log_set_sink(count_lines, NULL);
    const tt_team_result_t result = tt_team_run(size, 20000, body, user);
    tt_log_set_sink(NULL, NULL);
    unsetenv("TUTTI_LOG");
    if (result.text[0] != 0) {
        fail_msg("%s", result.text);
    }
}

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    const int shard = tutti_context_shard(ctx);
    const bool is_empty = job->empties && shard == SHARDS - 1;
    if (job->options.uneven == TUTTI_DDP_WEIGHTED) {
        TUTTI_CHECK(tutti_ddp_set_weight(ddp, is_empty ? 0 : 2 + shard));
    } else if (job->options.uneven != TUTTI_DDP_EVEN) {
        TUTTI_CHECK(tutti_ddp_set_weight(ddp, !is_empty));
    }
    if (is_empty) {
        return TUTTI_OK;
    }
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, job->dtype, TUTTI_SHAPE(BATCH, IN), -1, 1);
    tutti_tensor_t *y = tutti_forward(s, tutti_ddp_module(ddp), x);
    tutti_tensor_t *zero = tutti_zeros(s, job->dtype, TUTTI_SHAPE(BATCH, OUT));
    (void)tutti_backward(s, tutti_mse_loss(s, y, zero, TUTTI_LOSS_MEAN));
    return tutti_scope_close(s);
}

static tutti_status_t train(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    tutti_optim_t *opt;
    TUTTI_CHECK(tutti_optim_create(ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.1}, &opt));
    tutti_status_t status = tutti_optim_add_module(opt, tutti_ddp_module(ddp), NULL, NULL);
    for (int step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        while (status >= 0 && tutti_ddp_next_shard(ddp, ctx)) {
            status = run_shard(ddp, ctx, job);
        }
        status = status < 0 ? status : tutti_ddp_finish(ddp);
        status = status < 0 ? status : tutti_optim_step(opt);
    }
    tutti_optim_release(opt);
    return status;
}

static tutti_status_t make_model(tutti_context_t *ctx, tutti_dtype_t dtype, tutti_module_t **out)
{
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    const tutti_linear_options_t up = {
        .in = IN, .out = HIDDEN, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_linear_options_t down = {.in = HIDDEN, .out = OUT};
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &down, NULL));
    return tutti_module_cast(*out, dtype);
}

static void keep(job_t *job, int rank, tutti_module_t *model)
{
    const tutti_tensor_t *w = tutti_module_find(model, "0.weight");
    for (int64_t i = 0; i < HIDDEN * IN; i++) {
        job->weights[rank][i] = (float)tutti_tensor_at(w, i);
    }
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    tutti_context_t *ctx;
    tutti_module_t *model = NULL;
    tutti_ddp_t *ddp = NULL;
    const tutti_context_options_t options = {.threads = 1, .seed = 42};
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_model(ctx, job->dtype, &model) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(ctx, model, m->group, &job->options, &ddp) == TUTTI_OK);
    TT_EXPECT(m, train(ddp, ctx, job) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(model, job->digests[m->rank]) == TUTTI_OK);
    TT_EXPECT(m, strcmp(tutti_ddp_hook_name(ddp), "contributions") == 0);
    if (m->rank == 0) {
        job->is_canonical = tutti_ddp_stats(ddp).is_canonical;
    }
    if (job->options.uneven == TUTTI_DDP_EVEN) {
        TT_EXPECT(m, tutti_ddp_set_hook(ddp, &tutti_allreduce_hook, NULL) == TUTTI_OK);
        TT_EXPECT(m, !tutti_ddp_stats(ddp).is_canonical);
    }
    keep(job, m->rank, model);
    tutti_ddp_release(ddp);
    tutti_module_release(model);
    tutti_context_release(ctx);
}

static const char *digest_on(int ranks, job_t *job)
{
    run_team(ranks, train_member, job);
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

static void expect_near(const job_t *got, const job_t *want)
{
    const double tolerance = got->dtype == TUTTI_F32 ? 1e-6 : 1.0 / 128;
    for (int i = 0; i < HIDDEN * IN; i++) {
        const double a = (double)got->weights[0][i], b = (double)want->weights[0][i];
        if (!(fabs(a - b) <= tolerance)) {
            fail_msg("weight %d is %.9g instead of %.9g", i, a, b);
        }
    }
}

static const job_t plain = {.options = {.shards = SHARDS, .bucket_bytes = 256}};

static void the_default_keeps_every_bit(void **state)
{
    (void)state;
    job_t one = plain;
    const char *wanted = digest_on(1, &one);
    for (int ranks = 2; ranks <= 4; ranks++) {
        job_t job = plain;
        assert_string_equal(digest_on(ranks, &job), wanted);
        assert_true(job.is_canonical);
        assert_int_equal(told, 0);
    }
}

static void what_is_not_exact_is_right_and_says_so(void **state)
{
    (void)state;
    const tutti_ddp_uneven_t kinds[] = {TUTTI_DDP_EVEN, TUTTI_DDP_WEIGHTED, TUTTI_DDP_INITIAL,
                                        TUTTI_DDP_ACTIVE};
    for (int k = 0; k < 4; k++) {
        job_t one = plain;
        one.options.uneven = kinds[k];
        one.empties = kinds[k] != TUTTI_DDP_EVEN;
        (void)digest_on(1, &one);
        for (int ranks = 1; ranks <= 4; ranks++) {
            job_t job = one;
            job.options.exact = TUTTI_DDP_EXACT_OFF;
            (void)digest_on(ranks, &job);
            expect_near(&job, &one);
            assert_false(job.is_canonical);
            assert_int_equal(told, 1);
        }
    }
}

/* Of seven shards rank 1 of 4 hosts 1 and 2, which are no node of the tree: that it adds them up
 * shows in the bits. */
static void the_sum_of_a_rank_is_another_one(void **state)
{
    (void)state;
    job_t one = plain, four = plain;
    four.options.exact = TUTTI_DDP_EXACT_OFF;
    assert_string_not_equal(digest_on(4, &four), digest_on(1, &one));
}

static void gradients_of_16_bits_are_rounded_once(void **state)
{
    (void)state;
    job_t one = plain;
    one.dtype = TUTTI_BF16;
    (void)digest_on(1, &one);
    for (int ranks = 2; ranks <= 4; ranks++) {
        job_t job = one;
        job.options.exact = TUTTI_DDP_EXACT_OFF;
        (void)digest_on(ranks, &job);
        expect_near(&job, &one);
    }
}

static void the_setting_counts_where_the_option_says_nothing(void **state)
{
    (void)state;
    job_t one = plain, off = plain, on = plain;
    on.options.exact = TUTTI_DDP_EXACT_ON;
    (void)digest_on(1, &one);
    setenv("TUTTI_EXACT", "0", 1);
    (void)digest_on(4, &off);
    assert_int_equal(told, 1);
    assert_false(off.is_canonical);
    assert_string_not_equal(off.digests[0], one.digests[0]);
    expect_near(&off, &one);
    assert_string_equal(digest_on(4, &on), one.digests[0]);
    assert_true(on.is_canonical);
    assert_int_equal(told, 0);
    unsetenv("TUTTI_EXACT");
}

/* A shard for each rank, as ring wants it. */
static void an_algorithm_that_is_forced_is_seen_through(void **state)
{
    (void)state;
    const char *const names[] = {"ring", "pairwise"};
    for (int i = 0; i < 2; i++) {
        job_t job = plain;
        job.options.shards = 3;
        setenv("TUTTI_ALGO", names[i], 1);
        (void)digest_on(3, &job);
        unsetenv("TUTTI_ALGO");
        assert_int_equal(job.is_canonical, i == 1);
    }
}

static void expect_mismatch(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *model = NULL;
    tutti_ddp_t *ddp = NULL;
    const tutti_ddp_options_t options = {.exact = m->rank == 1 ? TUTTI_DDP_EXACT_OFF
                                                               : TUTTI_DDP_EXACT_DEFAULT};
    TT_EXPECT(m, tutti_context_create(NULL, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_model(ctx, TUTTI_F32, &model) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(ctx, model, m->group, &options, &ddp) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, m->rank == 0 || strstr(tutti_last_error(), ", not exact") != NULL);
    tutti_module_release(model);
    tutti_context_release(ctx);
}

static void ranks_that_differ_are_told(void **state)
{
    (void)state;
    run_team(2, expect_mismatch, NULL);
}

static void expect_refusal(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *model = NULL;
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(m, tutti_context_create(NULL, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_model(ctx, TUTTI_F32, &model) == TUTTI_OK);
    const tutti_ddp_options_t options = {.exact = (tutti_ddp_exact_t)3};
    TT_EXPECT(m, tutti_ddp_create(ctx, model, m->group, &options, &ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "no option exact 3") != NULL);
    setenv("TUTTI_EXACT", "yes", 1);
    TT_EXPECT(m, tutti_ddp_create(ctx, model, m->group, NULL, &ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "TUTTI_EXACT=yes: want an integer") != NULL);
    unsetenv("TUTTI_EXACT");
    tutti_module_release(model);
    tutti_context_release(ctx);
}

static void what_is_no_option_is_refused(void **state)
{
    (void)state;
    run_team(1, expect_refusal, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_keeps_every_bit),
        cmocka_unit_test(what_is_not_exact_is_right_and_says_so),
        cmocka_unit_test(the_sum_of_a_rank_is_another_one),
        cmocka_unit_test(gradients_of_16_bits_are_rounded_once),
        cmocka_unit_test(the_setting_counts_where_the_option_says_nothing),
        cmocka_unit_test(an_algorithm_that_is_forced_is_seen_through),
        cmocka_unit_test(ranks_that_differ_are_told),
        cmocka_unit_test(what_is_no_option_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
