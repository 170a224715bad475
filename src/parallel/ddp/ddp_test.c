/* DDP: the same bits on any number of ranks, the model check, no_sync, unused parameters. */
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
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/testing.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

enum { STEPS = 3, IN = 10, HIDDEN = 19, OUT = 5, BATCH = 3 };

typedef struct {
    int shards;
    int micro_batches;
    size_t bucket_bytes;
    bool no_overlap, leave_one_out;
    int odd_rank;              /* its model has another shape; 0: none */
    size_t failing_allocation; /* of a torture */
    bool has_failed;
    tutti_status_t statuses[TT_TEAM_MAX];
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
    double drawn[TT_TEAM_MAX]; /* a random number behind the last step */
} job_t;

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect(size, 20000, body, user);
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
}

static tutti_status_t subtract_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name;
    const tt_strided_t p = tt_tensor_strided(x), g = tt_tensor_strided(tutti_tensor_grad(x));
    tt_map_binary(NULL, TT_BINARY_ADD_SCALED, (tt_map_params_t){.p = -0.1}, &p, &p, &g);
    tt_tensor_touch(x);
    return TUTTI_OK;
}

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    for (int i = 0; i < job->micro_batches; i++) {
        tutti_scope_t *s;
        tutti_ddp_no_sync(ddp, i + 1 < job->micro_batches);
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, IN), -1, 1);
        tutti_tensor_t *y = tutti_forward(s, tutti_ddp_module(ddp), x);
        (void)tutti_backward(s, tutti_mse_loss(s, y,
                                               tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(BATCH, OUT)),
                                               TUTTI_LOSS_MEAN));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return TUTTI_OK;
}

static tutti_status_t train(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(ctx, step);
        while (tutti_ddp_next_shard(ddp, ctx)) {
            TUTTI_CHECK(run_shard(ddp, ctx, job));
        }
        TUTTI_CHECK(tutti_ddp_finish(ddp));
        TUTTI_CHECK(tutti_module_each_parameter(tutti_ddp_module(ddp), subtract_gradient, NULL));
    }
    return TUTTI_OK;
}

static tutti_status_t make_model(tutti_context_t *ctx, int hidden, tutti_module_t **out)
{
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    const tutti_linear_options_t up = {
        .in = IN, .out = hidden, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_linear_options_t down = {.in = hidden, .out = OUT};
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &up, NULL));
    return tutti_sequential_add(*out, &tutti_linear_layer, &down, NULL);
}

static tutti_status_t draw(tutti_context_t *ctx, double *number)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    *number = tutti_tensor_item(tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(1), 0, 1));
    return tutti_scope_close(s);
}

static tutti_status_t train_alone(tutti_group_t *world, job_t *job)
{
    const int rank = tutti_group_rank(world);
    tutti_context_t *ctx;
    tutti_module_t *model = NULL;
    tutti_ddp_t *ddp = NULL;
    /* every rank begins elsewhere: rank 0's weights are what counts */
    const tutti_context_options_t options = {.threads = 1, .seed = (uint64_t)rank};
    TUTTI_CHECK(tutti_context_create(&options, &ctx));
    ctx->seed = (uint64_t)rank;
    tutti_status_t status = make_model(ctx, rank > 0 && rank == job->odd_rank ? 7 : HIDDEN, &model);
    ctx->seed = 42;
    if (status >= 0) {
        const tutti_ddp_options_t wanted = {.shards = job->shards,
                                            .bucket_bytes = job->bucket_bytes,
                                            .first_bucket_bytes = 64,
                                            .no_overlap = job->no_overlap};
        status = tutti_ddp_create(ctx, model, world, &wanted, &ddp);
    }
    if (status >= 0) {
        status = train(ddp, ctx, job);
    }
    if (status >= 0) {
        status = tutti_module_digest(model, job->digests[rank]);
    }
    if (status >= 0) {
        status = draw(ctx, &job->drawn[rank]);
    }
    tutti_ddp_release(ddp);
    tutti_module_release(model);
    tutti_context_release(ctx);
    return status;
}

static void train_member(tt_member_t *member)
{
    TT_EXPECT(member, train_alone(member->group, member->user) == TUTTI_OK);
}

/* The digest after training on `ranks`; all ranks must agree. */
static const char *digest_on(int ranks, job_t *job)
{
    run_team(ranks, train_member, job);
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

static void shards_give_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    for (int shards = 5; shards <= 12; shards += 7) {
        job_t one = {.shards = shards, .micro_batches = 1};
        const char *expected = digest_on(1, &one);
        for (int ranks = 2; ranks <= 5; ranks++) {
            job_t job = {.shards = shards, .micro_batches = 1};
            assert_string_equal(digest_on(ranks, &job), expected);
        }
    }
}

static void more_ranks_than_shards_change_no_bit(void **state)
{
    (void)state;
    job_t one = {.shards = 2, .micro_batches = 1}, three = one;
    assert_string_equal(digest_on(3, &three), digest_on(1, &one));
}

/* A program that samples from its model between steps, or draws what all ranks are to have. */
static void random_numbers_between_steps_are_alike_on_any_number_of_ranks(void **state)
{
    (void)state;
    job_t one = {.shards = 4, .micro_batches = 1};
    (void)digest_on(1, &one);
    for (int ranks = 2; ranks <= 5; ranks++) {
        job_t job = {.shards = 4, .micro_batches = 1};
        (void)digest_on(ranks, &job);
        for (int rank = 0; rank < ranks; rank++) {
            assert_true(job.drawn[rank] == one.drawn[0]);
        }
    }
}

static void buckets_and_overlap_change_no_bit(void **state)
{
    (void)state;
    job_t plain = {.shards = 4, .micro_batches = 1};
    const char *expected = digest_on(2, &plain);
    job_t small = {.shards = 4, .micro_batches = 1, .bucket_bytes = 64};
    assert_string_equal(digest_on(2, &small), expected);
    job_t late = {.shards = 4, .micro_batches = 1, .no_overlap = true};
    assert_string_equal(digest_on(2, &late), expected);
}

static void micro_batches_accumulate_in_a_shard(void **state)
{
    (void)state;
    job_t one = {.shards = 3, .micro_batches = 3}, two = one;
    assert_string_equal(digest_on(2, &two), digest_on(1, &one));
    job_t fewer = {.shards = 3, .micro_batches = 2};
    assert_string_not_equal(digest_on(1, &fewer), one.digests[0]);
}

static void expect_mismatch(tt_member_t *member)
{
    const job_t *job = member->user;
    const bool is_odd = member->rank == job->odd_rank;
    TT_EXPECT(member, train_alone(member->group, member->user) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(member, strstr(tutti_last_error(),
                             "rank 1 has \"0.weight f32[7, 10]\" where rank 0 has \"0.weight "
                             "f32[19, 10]\"") != NULL);
    TT_EXPECT(member, is_odd == (strncmp(tutti_last_error(), "rank 1: ", 8) != 0));
}

static void a_model_of_another_shape_is_named_on_every_rank(void **state)
{
    (void)state;
    job_t job = {.shards = 3, .micro_batches = 1, .odd_rank = 1};
    run_team(3, expect_mismatch, &job);
}

/* ---- torture -------------------------------------------------------------------------------- */

/* The nth allocation fails somewhere between the making of the model and the last digest: a status
 * on its rank, and as that rank leaves, one on the others. */
static void train_or_fail(tt_member_t *member)
{
    job_t *job = member->user;
    const tutti_status_t status = train_alone(member->group, job);
    if (status < 0) {
        TT_EXPECT(member, tutti_last_error()[0] != 0);
        tutti_group_abort(member->group);
    }
    job->statuses[member->rank] = status;
}

static void arm_and_train(tt_member_t *member)
{
    const job_t *job = member->user;
    TT_EXPECT(member, tutti_barrier(member->group, NULL) == TUTTI_OK);
    if (member->rank == 0) {
        tt_alloc_fail_at(job->failing_allocation);
    }
    TT_EXPECT(member, tutti_barrier(member->group, NULL) == TUTTI_OK);
    train_or_fail(member);
}

/* A device that gives back what it has cached can survive a failure: then nothing was lost. */
static void expect_nomem_or_nothing(const job_t *job, int ranks, const char *digest)
{
    bool is_told = false;
    for (int rank = 0; rank < ranks; rank++) {
        is_told = is_told || job->statuses[rank] == TUTTI_ERR_NOMEM;
    }
    for (int rank = 0; rank < ranks && !is_told; rank++) {
        if (job->statuses[rank] < 0 || strcmp(job->digests[rank], digest) != 0) {
            fail_msg("allocation %zu failed; rank %d returned %d and digest %s instead of %s",
                     job->failing_allocation, rank, job->statuses[rank], job->digests[rank],
                     digest);
        }
    }
}

static void a_failed_allocation_is_a_status_or_does_no_harm(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        job_t whole = {.shards = 2, .micro_batches = 1};
        const char *digest = digest_on(ranks, &whole);
        size_t nth = 0; /* two ranks wait for each other: every other one is enough */
        for (int has_failed = 1; has_failed;) {
            job_t job = {
                .shards = 2, .micro_batches = 1, .failing_allocation = nth += (size_t)ranks};
            run_team(ranks, arm_and_train, &job);
            has_failed = tt_alloc_has_failed();
            tt_alloc_fail_at(0);
            expect_nomem_or_nothing(&job, ranks, digest);
        }
        assert_true(nth > 100);
    }
}

/* ---- misuse and faults: a model of two parts, and what a rank does with it ------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
} setting_t;

static tutti_status_t open_setting_with(tutti_group_t *world, const tutti_ddp_options_t *wanted,
                                        setting_t *set)
{
    const tutti_context_options_t options = {.threads = 1};
    TUTTI_CHECK(tutti_context_create(&options, &set->ctx));
    TUTTI_CHECK(make_model(set->ctx, HIDDEN, &set->model));
    return tutti_ddp_create(set->ctx, set->model, world, wanted, &set->ddp);
}

static tutti_status_t open_setting(tutti_group_t *world, setting_t *set)
{
    return open_setting_with(world, NULL, set);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

/* Backward of the sum of one parameter's squares: only that one gets a gradient. */
static tutti_status_t backward_of(setting_t *set, const char *parameter)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *x = tutti_module_find(set->model, parameter);
    (void)tutti_backward(s, tutti_sum(s, tutti_mul(s, x, x)));
    return tutti_scope_close(s);
}

static void use_one_parameter(tt_member_t *member)
{
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, backward_of(&set, member->rank == 0 ? "0.weight" : "0.bias") == TUTTI_OK);
    TT_EXPECT(member, strcmp(tutti_ddp_unused(set.ddp), member->rank == 0
                                                            ? "0.bias 1.weight 1.bias"
                                                            : "0.weight 1.weight 1.bias") == 0);
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    /* rank 0's gradient 2w, averaged with rank 1's zero */
    tutti_tensor_t *w = tutti_module_find(set.model, "0.weight");
    TT_EXPECT(member, tutti_tensor_at(tutti_tensor_grad(w), 3) == tutti_tensor_at(w, 3));
    tutti_tensor_t *unused = tutti_module_find(set.model, "1.bias");
    TT_EXPECT(member, tutti_tensor_grad(unused) == NULL); /* on no rank */
    close_setting(&set);
}

static void ignore_log(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

static void parameters_without_a_gradient_count_as_zero_and_are_named(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    run_team(2, use_one_parameter, NULL);
    tt_log_set_sink(NULL, NULL);
}

static void misuse_alone(tt_member_t *member)
{
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, backward_of(&set, "1.weight") == TUTTI_OK);
    TT_EXPECT(member, backward_of(&set, "1.weight") == TUTTI_ERR_STATE);
    TT_EXPECT(member, strstr(tutti_last_error(), "1.weight got another gradient") != NULL);
    TT_EXPECT(member, !tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_ERR_STATE);
    close_setting(&set);
}

static void a_second_backward_needs_no_sync(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    run_team(1, misuse_alone, NULL);
    tt_log_set_sink(NULL, NULL);
}

/* As when another model's loss goes back through this one. */
static void go_back_between_steps(tt_member_t *member)
{
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, backward_of(&set, "1.weight") == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    TT_EXPECT(member, backward_of(&set, "1.weight") == TUTTI_ERR_STATE);
    TT_EXPECT(member, strstr(tutti_last_error(), "1.weight got a gradient between steps") != NULL);
    close_setting(&set);
}

static void a_backward_between_steps_is_told_so(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    run_team(1, go_back_between_steps, NULL);
    tt_log_set_sink(NULL, NULL);
}

/* The gradients are 2 x, so often as their backward ran. */
static void expect_times(tt_member_t *member, const setting_t *set, const char *parameter,
                         double times)
{
    tutti_tensor_t *x = tutti_module_find(set->model, parameter), *grad = tutti_tensor_grad(x);
    TT_EXPECT(member, grad != NULL);
    for (int64_t i = 0; grad != NULL && i < 5; i++) {
        TT_EXPECT(member,
                  fabs(tutti_tensor_at(grad, i) - 2 * times * tutti_tensor_at(x, i)) < 1e-5);
    }
}

/* Four backwards of one parameter, of four in all; then, in buckets that are rebuilt, two. */
static void go_back_often(tt_member_t *member)
{
    static const char *const names[] = {"0.weight", "0.bias", "1.weight", "1.bias"};
    setting_t set = {0};
    const tutti_ddp_options_t late = {
        .no_overlap = true, .first_bucket_bytes = 64, .bucket_bytes = 64};
    TT_EXPECT(member, open_setting_with(member->group, &late, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    for (int i = 0; i < 4; i++) {
        TT_EXPECT(member, backward_of(&set, "1.weight") == TUTTI_OK);
    }
    TT_EXPECT(member, !tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    expect_times(member, &set, "1.weight", 4);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    for (int i = 0; i < 8; i++) {
        TT_EXPECT(member, backward_of(&set, names[i % 4]) == TUTTI_OK);
    }
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    for (int i = 0; i < 4; i++) {
        expect_times(member, &set, names[i], 2);
    }
    close_setting(&set);
}

static void without_overlap_backwards_of_a_shard_add_up(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    run_team(2, go_back_often, NULL);
    tt_log_set_sink(NULL, NULL);
}

static void finish_at_once(tt_member_t *member)
{
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_ERR_STATE);
    TT_EXPECT(member, strstr(tutti_last_error(), "after 0 of 1 shards") != NULL);
    close_setting(&set);
}

static void a_step_needs_its_shards(void **state)
{
    (void)state;
    run_team(1, finish_at_once, NULL);
}

/* Rank 1's forward fails, and it gives up; nobody waits for it. */
static void fail_on_one_rank(tt_member_t *member)
{
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    if (member->rank == 1) {
        tutti_ddp_release(set.ddp); /* in the middle of a step: aborts */
        set.ddp = NULL;
    } else {
        TT_EXPECT(member, backward_of(&set, "0.weight") == TUTTI_OK);
        TT_EXPECT(member, tutti_ddp_finish(set.ddp) < 0);
        TT_EXPECT(member, strstr(tutti_last_error(), "rank 1") != NULL);
        TT_EXPECT(member, tutti_ddp_stats(set.ddp).steps == 0);
    }
    close_setting(&set);
}

static void a_rank_that_gives_up_ends_the_others(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    run_team(2, fail_on_one_rank, NULL);
    tt_log_set_sink(NULL, NULL);
}

/* The nth allocation of the second step fails, also one of the buckets that are filled again; a
 * backward that comes all the same fails, too. */
static void go_on_without_buckets(tt_member_t *member)
{
    job_t *job = member->user;
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, backward_of(&set, "0.weight") == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    tt_alloc_fail_at(job->failing_allocation);
    const bool is_open = tutti_ddp_next_shard(set.ddp, set.ctx);
    job->has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    const tutti_status_t status = backward_of(&set, "0.weight");
    TT_EXPECT(member, is_open ? status == TUTTI_OK : status == TUTTI_ERR_NOMEM);
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == status);
    close_setting(&set);
}

static void after_a_failure_backwards_say_what_has_failed(void **state)
{
    (void)state;
    job_t job = {.has_failed = true};
    tt_log_set_sink(ignore_log, NULL);
    while (job.has_failed) {
        job.failing_allocation++;
        run_team(1, go_on_without_buckets, &job);
    }
    tt_log_set_sink(NULL, NULL);
    assert_true(job.failing_allocation > 10);
}

static void change_after_create(tt_member_t *member)
{
    setting_t set = {0};
    const bool casts = *(const bool *)member->user;
    TT_EXPECT(member,
              tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set.ctx) == 0);
    TT_EXPECT(member, make_model(set.ctx, HIDDEN, &set.model) == TUTTI_OK);
    const tutti_batch_norm_layer_options_t norm = {.width = OUT};
    TT_EXPECT(member, tutti_sequential_add(set.model, &tutti_batch_norm_layer, &norm, NULL) == 0);
    TT_EXPECT(member, !casts || tutti_module_cast(set.model, TUTTI_BF16) == TUTTI_OK);
    tutti_tensor_t *w = tutti_module_find(set.model, "1.weight");
    TT_EXPECT(member, tutti_tensor_set_requires_grad(w, casts) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_create(set.ctx, set.model, member->group, NULL, &set.ddp) == 0);
    TT_EXPECT(member, !casts || tutti_module_cast(set.model, TUTTI_F32) == TUTTI_OK);
    TT_EXPECT(member, tutti_tensor_set_requires_grad(w, true) == TUTTI_OK);
    TT_EXPECT(member, !tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_ERR_STATE);
    TT_EXPECT(member, strstr(tutti_last_error(), casts ? "0.weight is f32, and was bf16"
                                                       : "1.weight requires a gradient") != NULL);
    close_setting(&set);
}

/* A cast would have buffers copied into places that are too small; who begins to learn would not be
 * averaged. */
static void a_module_that_changed_since_is_named(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    for (int casts = 0; casts < 2; casts++) {
        run_team(1, change_after_create, &(bool){casts != 0});
    }
    tt_log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_give_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(more_ranks_than_shards_change_no_bit),
        cmocka_unit_test(random_numbers_between_steps_are_alike_on_any_number_of_ranks),
        cmocka_unit_test(buckets_and_overlap_change_no_bit),
        cmocka_unit_test(micro_batches_accumulate_in_a_shard),
        cmocka_unit_test(a_model_of_another_shape_is_named_on_every_rank),
        cmocka_unit_test(parameters_without_a_gradient_count_as_zero_and_are_named),
        cmocka_unit_test(a_second_backward_needs_no_sync),
        cmocka_unit_test(a_backward_between_steps_is_told_so),
        cmocka_unit_test(without_overlap_backwards_of_a_shard_add_up),
        cmocka_unit_test(a_step_needs_its_shards),
        cmocka_unit_test(a_rank_that_gives_up_ends_the_others),
        cmocka_unit_test(after_a_failure_backwards_say_what_has_failed),
        cmocka_unit_test(a_module_that_changed_since_is_named),
        cmocka_unit_test(a_failed_allocation_is_a_status_or_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
