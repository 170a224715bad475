/* DDP when inputs run out at different times, and gradients that come to some or to nobody. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/log.h"
#include "core/base/testing.h"
#include "parallel/ddp/ddp_impl.h"

enum { SHARDS = 5, BATCH = 2, IN = 6, OUT = 3, ENDLESS = 100 };

typedef struct {
    tutti_ddp_uneven_t uneven;
    bool ends_with_first, is_static, no_rebuild;
    bool changes; /* of a static graph */
    size_t bucket_bytes;
    tutti_dtype_t dtype;
    int steps_done; /* out: steps that were not the end */
    int64_t weight; /* out: of the first step, all together */
    bool is_rebuilt;
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
} setting_t;

static tutti_status_t open_setting(tutti_group_t *world, const job_t *job, setting_t *set)
{
    TUTTI_CHECK(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 7}, &set->ctx));
    TUTTI_CHECK(tutti_module_create(set->ctx, &tutti_sequential_layer, NULL, &set->model));
    const tutti_linear_options_t up = {.in = IN, .out = 9, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_linear_options_t down = {.in = 9, .out = OUT};
    TUTTI_CHECK(tutti_sequential_add(set->model, &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_sequential_add(set->model, &tutti_linear_layer, &down, NULL));
    const tutti_ddp_options_t options = {.shards = SHARDS,
                                         .bucket_bytes = job->bucket_bytes,
                                         .first_bucket_bytes = job->bucket_bytes,
                                         .uneven = job->uneven,
                                         .ends_with_first = job->ends_with_first,
                                         .static_graph = job->is_static,
                                         .no_rebuild = job->no_rebuild};
    TUTTI_CHECK(tutti_ddp_create(set->ctx, set->model, world, &options, &set->ddp));
    TUTTI_CHECK(tutti_optim_create(set->ctx, &tutti_adamw, NULL, &set->opt));
    return tutti_optim_add_module(set->opt, set->model, NULL, NULL);
}

static void close_setting(setting_t *set)
{
    tutti_optim_release(set->opt);
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

/* Samples of a shard in a step: shard v has 2 v + 1 in all. */
static int64_t samples_of(int shard, int step)
{
    const int left = 2 * shard + 1 - step * BATCH;
    return left < 0 ? 0 : left < BATCH ? left : BATCH;
}

static tutti_status_t run_shard(setting_t *set, const job_t *job, int step)
{
    const int64_t n = samples_of(tutti_context_shard(set->ctx), step);
    if (job->uneven == TUTTI_DDP_WEIGHTED) {
        TUTTI_CHECK(tutti_ddp_set_weight(set->ddp, n));
    }
    if (n == 0) {
        return TUTTI_OK;
    }
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(n, IN), -1, 1);
    tutti_tensor_t *y = tutti_forward(s, set->model, x);
    (void)tutti_backward(
        s, tutti_mse_loss(s, y, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(n, OUT)), TUTTI_LOSS_MEAN));
    return tutti_scope_close(s);
}

static tutti_status_t train_epoch(setting_t *set, job_t *job)
{
    for (int step = 0; step < ENDLESS; step++) {
        tutti_context_set_step(set->ctx, step);
        while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
            TUTTI_CHECK(run_shard(set, job, step));
        }
        const tutti_status_t status = tutti_ddp_finish(set->ddp);
        if (status == TUTTI_END) {
            job->steps_done = step;
            return tutti_optim_step(set->opt); /* nothing has a gradient: no change */
        }
        TUTTI_CHECK(status);
        job->weight = step == 0 ? tutti_ddp_weight(set->ddp, -1) : job->weight;
        TUTTI_CHECK(tutti_optim_step(set->opt));
    }
    return TUTTI_ERR_STATE;
}

/* Behind an end there may be another beginning. */
static tutti_status_t train(setting_t *set, job_t *job)
{
    TUTTI_CHECK(train_epoch(set, job));
    return train_epoch(set, job);
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user, mine = *job;
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, job, &set) == TUTTI_OK);
    TT_EXPECT(m, train(&set, &mine) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(set.model, job->digests[m->rank]) == TUTTI_OK);
    if (m->rank == 0) {
        job->steps_done = mine.steps_done;
        job->weight = mine.weight;
        job->is_rebuilt = tutti_ddp_stats(set.ddp).is_rebuilt;
    }
    close_setting(&set);
}

static const char *digest_on(int ranks, job_t *job)
{
    tt_team_expect_quietly(ranks, 20000, train_member, job);
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

static void shards_that_run_out_give_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    const tutti_ddp_uneven_t kinds[] = {TUTTI_DDP_WEIGHTED, TUTTI_DDP_INITIAL, TUTTI_DDP_ACTIVE};
    char digests[3][TUTTI_DIGEST_BYTES];
    for (int k = 0; k < 3; k++) {
        job_t one = {.uneven = kinds[k]};
        memcpy(digests[k], digest_on(1, &one), sizeof digests[k]);
        assert_int_equal(one.steps_done, SHARDS); /* shard 4 has 9 samples */
        for (int ranks = 2; ranks <= 7; ranks++) {
            job_t job = {.uneven = kinds[k], .bucket_bytes = 64};
            assert_string_equal(digest_on(ranks, &job), digests[k]);
        }
    }
    assert_string_not_equal(digests[0], digests[1]);
    assert_string_not_equal(digests[1], digests[2]);
    assert_string_not_equal(digests[0], digests[2]);
}

static void the_first_that_runs_out_may_end_it_for_all(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        job_t job = {.uneven = TUTTI_DDP_WEIGHTED, .ends_with_first = true};
        (void)digest_on(ranks, &job);
        assert_int_equal(job.steps_done, 1); /* shard 0 has one sample */
        assert_int_equal(job.weight, 1 + 4 * BATCH);
    }
}

/* ---- what a weight is worth ------------------------------------------------------------------ */

/* Gradient of (weight's sum × value): value everywhere. */
static tutti_status_t backward_of(setting_t *set, const char *parameter, double value)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *x = tutti_module_find(set->model, parameter);
    (void)tutti_backward(s, tutti_sum(s, tutti_mul_scalar(s, x, value)));
    return tutti_scope_close(s);
}

static double gradient(const setting_t *set, const char *parameter)
{
    return tutti_tensor_at(tutti_tensor_grad(tutti_module_find(set->model, parameter)), 0);
}

/* Shard v has gradient v + 1, and weight v (so that shard 0 has no data). A rank without shards has
 * nothing to weigh. */
static void average(tt_member_t *m)
{
    const job_t *job = m->user;
    setting_t set = {0};
    int first, count;
    TT_EXPECT(m, open_setting(m->group, job, &set) == TUTTI_OK);
    while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
        const int shard = tutti_context_shard(set.ctx);
        if (job->uneven == TUTTI_DDP_WEIGHTED) {
            TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, shard) == TUTTI_OK);
        }
        TT_EXPECT(m, shard == 0 || backward_of(&set, "1.bias", shard + 1) == TUTTI_OK);
    }
    tutti_ddp_local_shards(set.ddp, &first, &count);
    TT_EXPECT(m, count > 0 || tutti_ddp_set_weight(set.ddp, 1) == TUTTI_ERR_STATE);
    TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    const double want = job->uneven == TUTTI_DDP_WEIGHTED  ? (2 + 2 * 3 + 3 * 4 + 4 * 5) / 10.0
                        : job->uneven == TUTTI_DDP_INITIAL ? (2 + 3 + 4 + 5) / 5.0
                                                           : (2 + 3 + 4 + 5) / 4.0;
    TT_EXPECT(m, fabs(gradient(&set, "1.bias") - want) < 1e-6);
    TT_EXPECT(m, tutti_ddp_weight(set.ddp, 0) == 0 && tutti_ddp_weight(set.ddp, SHARDS) == 0);
    TT_EXPECT(m, tutti_ddp_weight(set.ddp, 4) == (job->uneven == TUTTI_DDP_WEIGHTED ? 4 : 1));
    close_setting(&set);
}

static void averages_are_what_they_say(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 6; ranks++) {
        for (int kind = TUTTI_DDP_WEIGHTED; kind <= TUTTI_DDP_ACTIVE; kind++) {
            job_t job = {.uneven = (tutti_ddp_uneven_t)kind};
            tt_team_expect_quietly(ranks, 20000, average, &job);
        }
    }
}

static void misuse_weights(tt_member_t *m)
{
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, m->user, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, 1) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "no shard is under way") != NULL);
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, -1) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, 1 << 24) == TUTTI_ERR_ARG);
    TT_EXPECT(m, backward_of(&set, "0.bias", 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, 1) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "0.bias has got its gradient") != NULL);
    close_setting(&set);
}

/* Where shards have data or none, nothing counts twice. */
static void misuse_flags(tt_member_t *m)
{
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, m->user, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, 2) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "2; want 0 to 1") != NULL);
    TT_EXPECT(m, tutti_ddp_set_weight(set.ddp, 1) == TUTTI_OK);
    close_setting(&set);
}

static void weights_are_checked(void **state)
{
    (void)state;
    job_t job = {.uneven = TUTTI_DDP_WEIGHTED};
    tt_team_expect_quietly(1, 20000, misuse_weights, &job);
    job.uneven = TUTTI_DDP_INITIAL;
    tt_team_expect_quietly(1, 20000, misuse_flags, &job);
    job.uneven = TUTTI_DDP_ACTIVE;
    tt_team_expect_quietly(1, 20000, misuse_flags, &job);
}

/* Shard 3 runs no backward. */
static void leave_a_shard_out(tt_member_t *m)
{
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, m->user, &set) == TUTTI_OK);
    bool goes_on = true;
    while (goes_on && tutti_ddp_next_shard(set.ddp, set.ctx)) {
        goes_on = tutti_context_shard(set.ctx) == 3 || backward_of(&set, "0.bias", 1) == TUTTI_OK;
    }
    TT_EXPECT(m, tutti_ddp_finish(set.ddp) < 0);
    TT_EXPECT(m, m->size > 1 || strstr(tutti_last_error(), "no backward of shard 3") != NULL);
    close_setting(&set);
}

static void an_even_shard_must_run_a_backward(void **state)
{
    (void)state;
    job_t job = {0};
    for (int ranks = 1; ranks <= 2; ranks++) {
        tt_team_expect_quietly(ranks, 20000, leave_a_shard_out, &job);
    }
}

/* ---- gradients that come to nobody ----------------------------------------------------------- */

static void step_with(tt_member_t *m, setting_t *set, const char *parameter)
{
    while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
        TT_EXPECT(m, backward_of(set, parameter, 1) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(set->ddp) == TUTTI_OK);
}

/* AdamW shrinks what has a gradient, be it zero; 0.weight has none. */
static void leave_a_parameter_out(tt_member_t *m)
{
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, m->user, &set) == TUTTI_OK);
    tutti_tensor_t *unused = tutti_module_find(set.model, "0.weight");
    const double before = tutti_tensor_at(unused, 0);
    for (int step = 0; step < 3; step++) {
        step_with(m, &set, "0.bias");
        TT_EXPECT(m, tutti_optim_step(set.opt) == TUTTI_OK);
    }
    TT_EXPECT(m, before != 0 && tutti_tensor_at(unused, 0) == before);
    TT_EXPECT(m, tutti_ddp_stats(set.ddp).steps == 3);
    close_setting(&set);
}

static void who_gets_no_gradient_anywhere_is_left_alone(void **state)
{
    (void)state;
    for (int is_static = 0; is_static < 2; is_static++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            job_t job = {.is_static = is_static != 0};
            tt_team_expect_quietly(ranks, 20000, leave_a_parameter_out, &job);
        }
    }
}

static void change_the_graph(tt_member_t *m)
{
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, m->user, &set) == TUTTI_OK);
    step_with(m, &set, "0.bias");
    tutti_status_t status = TUTTI_OK;
    while (status >= 0 && tutti_ddp_next_shard(set.ddp, set.ctx)) {
        status = backward_of(&set, "1.bias", 1);
    }
    status = tutti_ddp_finish(set.ddp);
    TT_EXPECT(m, status == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "0.bias got no gradient in step 2 of shard 0 and one "
                                            "in the first one") != NULL);
    close_setting(&set);
}

static void a_static_graph_that_changes_is_an_error(void **state)
{
    (void)state;
    job_t job = {.is_static = true};
    tt_team_expect_quietly(1, 20000, change_the_graph, &job);
}

/* Shard v uses 0.weight if v is even, else 1.weight; in the second of two runs another one in the
 * last step, of the same rank or not. */
static void use_by_shard(tt_member_t *m)
{
    setting_t set = {0};
    const job_t *job = m->user;
    tutti_status_t status = TUTTI_OK;
    TT_EXPECT(m, open_setting(m->group, job, &set) == TUTTI_OK);
    for (int step = 0; step < 3 && status >= 0; step++) {
        while (status >= 0 && tutti_ddp_next_shard(set.ddp, set.ctx)) {
            const int shift = job->changes && step == 2;
            const bool is_even = (tutti_context_shard(set.ctx) + shift) % 2 == 0;
            status = backward_of(&set, is_even ? "0.weight" : "1.weight", 1);
        }
        status = tutti_ddp_finish(set.ddp);
        TT_EXPECT(m, step == 2 || status == TUTTI_OK);
    }
    TT_EXPECT(m, job->changes ? status < 0 : status == TUTTI_OK);
    TT_EXPECT(m, job->changes || gradient(&set, "0.weight") == (float)3 / SHARDS);
    close_setting(&set);
}

static void shards_of_a_static_graph_use_what_they_used_before(void **state)
{
    (void)state;
    for (int changes = 0; changes < 2; changes++) {
        for (int ranks = 1; ranks <= 5; ranks += 2) {
            job_t job = {.is_static = true, .changes = changes != 0};
            tt_team_expect_quietly(ranks, 20000, use_by_shard, &job);
        }
    }
}

/* ---- buckets rebuilt --------------------------------------------------------------------- */

/* Gradients come in the order of registration, the other way round than expected. */
static void use_backwards(tt_member_t *m)
{
    static const char *const names[] = {"0.weight", "0.bias", "1.weight", "1.bias"};
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, m->user, &set) == TUTTI_OK);
    char before[512], after[512];
    tutti_ddp_describe(set.ddp, before, sizeof before);
    for (int step = 0; step < 2; step++) {
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            tutti_scope_t *s;
            TT_EXPECT(m, tutti_scope_open(set.ctx, &s) == TUTTI_OK);
            tutti_tensor_t *sum = NULL;
            for (int i = 0; i < 4; i++) { /* what was added last comes first in a backward */
                tutti_tensor_t *x = tutti_module_find(set.model, names[3 - i]);
                tutti_tensor_t *term = tutti_sum(s, tutti_mul_scalar(s, x, i + 2));
                sum = sum == NULL ? term : tutti_add(s, sum, term);
            }
            TT_EXPECT(m, tutti_backward(s, sum) == TUTTI_OK);
            TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        for (int i = 0; i < 4; i++) {
            TT_EXPECT(m, gradient(&set, names[3 - i]) == i + 2);
        }
    }
    tutti_ddp_describe(set.ddp, after, sizeof after);
    TT_EXPECT(m, strstr(before, "bucket 0: f32, 64 bytes, parameters 3\n") != NULL);
    TT_EXPECT(m, strstr(after, "bucket 0: f32, 256 bytes, parameters 0\n") != NULL);
    TT_EXPECT(m, tutti_ddp_stats(set.ddp).is_rebuilt);
    close_setting(&set);
}

static void buckets_follow_the_order_that_was_seen(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks += 3) {
        job_t job = {.bucket_bytes = 64};
        tt_team_expect_quietly(ranks, 20000, use_backwards, &job);
    }
}

/* ---- bucket sizes ---------------------------------------------------------------------------- */

static void open_with_auto(tt_member_t *m)
{
    setting_t set = {0};
    job_t job = {.bucket_bytes = TUTTI_DDP_BUCKET_AUTO};
    TT_EXPECT(m, open_setting(m->group, &job, &set) == TUTTI_OK);
    step_with(m, &set, "0.bias");
    TT_EXPECT(m, gradient(&set, "0.bias") == 1);
    close_setting(&set);
}

static void open_with_defaults(tt_member_t *m)
{
    setting_t set = {0};
    job_t job = {0};
    TT_EXPECT(m, open_setting(m->group, &job, &set) == TUTTI_OK);
    TT_EXPECT(m, set.ddp->options.bucket_bytes == 25 << 20);
    TT_EXPECT(m, set.ddp->options.first_bucket_bytes == 1 << 20);
    TT_EXPECT(m, tutti_ddp_bucket_count(set.ddp) == 1);
    close_setting(&set);
}

static void a_bucket_has_25_mib_by_default_and_the_first_one_mib(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, open_with_defaults, NULL);
}

static void bucket_sizes_follow_the_wire(void **state)
{
    (void)state;
    assert_int_equal(tt_ddp_auto_bytes(1000, 100000), 256 << 10);      /* shared memory */
    assert_int_equal(tt_ddp_auto_bytes(50000, 9000000), 256 << 10);    /* 1 Gbit/s, near */
    assert_int_equal(tt_ddp_auto_bytes(1000000, 9000000), 2 << 20);    /* 1 Gbit/s, far */
    assert_int_equal(tt_ddp_auto_bytes(10000000, 10900000), 25 << 20); /* all latency */
    assert_int_equal(tt_ddp_auto_bytes(10, 10), 25 << 20);
    tt_team_expect_quietly(3, 20000, open_with_auto, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_that_run_out_give_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(the_first_that_runs_out_may_end_it_for_all),
        cmocka_unit_test(averages_are_what_they_say),
        cmocka_unit_test(weights_are_checked),
        cmocka_unit_test(an_even_shard_must_run_a_backward),
        cmocka_unit_test(who_gets_no_gradient_anywhere_is_left_alone),
        cmocka_unit_test(a_static_graph_that_changes_is_an_error),
        cmocka_unit_test(shards_of_a_static_graph_use_what_they_used_before),
        cmocka_unit_test(buckets_follow_the_order_that_was_seen),
        cmocka_unit_test(a_bucket_has_25_mib_by_default_and_the_first_one_mib),
        cmocka_unit_test(bucket_sizes_follow_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
