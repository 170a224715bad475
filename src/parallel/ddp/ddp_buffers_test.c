/* Buffers under DDP: the same bits on any number of ranks, and they are those of shard 0. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include <tutti/ddp.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/ddp/ddp_testing.h"

enum { STEPS = 3, IN = 10, HIDDEN = 19, OUT = 5, BATCH = 4, STATE_BYTES = 4096 };

/* What is left of a run: parameters and buffers, byte by byte. */
typedef struct {
    char bytes[STATE_BYTES];
    size_t count;
} state_t;

typedef struct {
    int shards, micro_batches;
    bool is_uneven; /* step k has no data for the first k shards */
    state_t states[TT_TEAM_MAX];
} job_t;

/* ---- a module that reads the buffer it writes: y = x counter / 8 ----------------------------- */

static tutti_status_t counting_init(tutti_module_t *m, const void *options)
{
    (void)options;
    tutti_tensor_t *x;
    TUTTI_CHECK(tt_tensor_new(NULL, TUTTI_F32, TUTTI_SCALAR, true, &x));
    const tutti_status_t status = tutti_module_add_buffer(m, "counter", x);
    *(tutti_tensor_t **)tutti_module_state(m) = x; /* the module's */
    tutti_tensor_release(x);
    return status;
}

static tutti_tensor_t *counting_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    float *counter = tutti_tensor_data(*(tutti_tensor_t **)tutti_module_state(m));
    *counter += 1;
    return tutti_mul_scalar(s, x, (double)*counter / 8);
}

static const tutti_module_ops_t counting_layer = {.name = "counting",
                                                  .state_bytes = sizeof(tutti_tensor_t *),
                                                  .init = counting_init,
                                                  .forward = counting_forward};

/* ---- training -------------------------------------------------------------------------------- */

static tutti_status_t make_model(tutti_context_t *ctx, tutti_module_t **out)
{
    return tt_test_net(ctx, (int64_t[]){IN, HIDDEN, OUT}, &counting_layer, out);
}

static tutti_status_t run_micro_batch(tutti_module_t *model, tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(BATCH, IN), 0.5, 1);
    tutti_tensor_t *wanted = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(BATCH, OUT));
    (void)tutti_backward(s, tutti_mse_loss(s, tutti_forward(s, model, x), wanted, TUTTI_LOSS_MEAN));
    return tutti_scope_close(s);
}

static tutti_status_t run_step(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    while (tutti_ddp_next_shard(ddp, ctx)) {
        if (job->is_uneven && tutti_context_shard(ctx) < tutti_context_step(ctx)) {
            TUTTI_CHECK(tutti_ddp_set_weight(ddp, 0));
            continue;
        }
        for (int i = 0; i < job->micro_batches; i++) {
            tutti_ddp_no_sync(ddp, i + 1 < job->micro_batches);
            TUTTI_CHECK(run_micro_batch(tutti_ddp_module(ddp), ctx));
        }
    }
    return tutti_ddp_finish(ddp);
}

static tutti_status_t append_bytes(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    state_t *state = user;
    const size_t bytes = (size_t)tutti_tensor_numel(x) * tutti_dtype_bytes(tutti_tensor_dtype(x));
    assert_true(state->count + bytes <= sizeof state->bytes);
    memcpy(state->bytes + state->count, tutti_tensor_data(x), bytes);
    state->count += bytes;
    return TUTTI_OK;
}

static tutti_status_t train(tutti_group_t *group, tutti_context_t *ctx, tutti_module_t *model,
                            job_t *job)
{
    tutti_ddp_t *ddp;
    tutti_optim_t *optim = NULL;
    const tutti_ddp_options_t options = {
        .shards = job->shards, .uneven = job->is_uneven ? TUTTI_DDP_WEIGHTED : TUTTI_DDP_EVEN};
    TUTTI_CHECK(tutti_ddp_create(ctx, model, group, &options, &ddp));
    tutti_status_t status =
        tutti_optim_create(ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.1}, &optim);
    if (status >= 0) {
        status = tutti_optim_add_module(optim, model, NULL, NULL);
    }
    for (int step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        status = run_step(ddp, ctx, job);
        if (status >= 0) {
            status = tutti_optim_step(optim);
        }
    }
    tutti_optim_release(optim);
    tutti_ddp_release(ddp);
    return status;
}

static tutti_status_t train_alone(tutti_group_t *group, job_t *job)
{
    tutti_context_t *ctx;
    tutti_module_t *model = NULL;
    const tutti_context_options_t options = {.threads = 1, .seed = 42};
    TUTTI_CHECK(tutti_context_create(&options, &ctx));
    tutti_status_t status = make_model(ctx, &model);
    if (status >= 0) {
        status = train(group, ctx, model, job);
    }
    if (status >= 0) {
        status =
            tutti_module_each_tensor(model, append_bytes, &job->states[tutti_group_rank(group)]);
    }
    tutti_module_release(model);
    tutti_context_release(ctx);
    return status;
}

static void train_member(tt_member_t *member)
{
    TT_EXPECT(member, train_alone(member->group, member->user) == TUTTI_OK);
}

/* The state after training on `ranks`; all ranks must agree. */
static const state_t *state_on(int ranks, job_t *job)
{
    const tt_team_result_t result = tt_team_run(ranks, 20000, train_member, job);
    assert_string_equal(result.text, "");
    for (int rank = 0; rank < ranks; rank++) {
        assert_true(job->states[rank].count > 0);
        assert_memory_equal(&job->states[rank], &job->states[0], sizeof(state_t));
    }
    return &job->states[0];
}

static job_t one, many;

static void buffers_have_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    for (int shards = 2; shards <= 5; shards += 3) {
        one = (job_t){.shards = shards, .micro_batches = 1};
        const state_t *expected = state_on(1, &one);
        for (int ranks = 2; ranks <= 5; ranks++) {
            many = (job_t){.shards = shards, .micro_batches = 1};
            assert_memory_equal(state_on(ranks, &many), expected, sizeof *expected);
        }
    }
}

static void micro_batches_update_in_their_order(void **state)
{
    (void)state;
    one = (job_t){.shards = 3, .micro_batches = 2};
    many = one;
    const state_t *expected = state_on(1, &one);
    assert_memory_equal(state_on(3, &many), expected, sizeof *expected);
}

static void the_first_shard_with_data_counts(void **state)
{
    (void)state;
    one = (job_t){.shards = 4, .micro_batches = 1, .is_uneven = true};
    const state_t expected = *state_on(1, &one);
    for (int ranks = 2; ranks <= 5; ranks++) {
        many = (job_t){.shards = 4, .micro_batches = 1, .is_uneven = true};
        assert_memory_equal(state_on(ranks, &many), &expected, sizeof expected);
    }
    /* every step had a batch that counted: num_batches_tracked, one of the buffers, says so */
    const int64_t steps = STEPS;
    assert_non_null(memmem(expected.bytes, expected.count, &steps, sizeof steps));
}

/* ---- whose they are -------------------------------------------------------------------------- */

/* Running means after a forward of shard 0, without DDP. */
static tutti_status_t forward_shard_0(tutti_context_t *ctx, float means[HIDDEN])
{
    tutti_module_t *model;
    TUTTI_CHECK(make_model(ctx, &model));
    tutti_context_set_shard(ctx, 0);
    tutti_status_t status = run_micro_batch(model, ctx);
    memcpy(means, tutti_tensor_data(tutti_module_find(model, "1.running_mean")),
           HIDDEN * sizeof *means);
    tutti_module_release(model);
    return status;
}

static tutti_status_t compare_with_shard_0(tutti_group_t *group)
{
    tutti_context_t *ctx, *alone;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    float expected[HIDDEN];
    const tutti_context_options_t options = {.threads = 1, .seed = 42};
    TUTTI_CHECK(tutti_context_create(&options, &alone));
    TUTTI_CHECK(forward_shard_0(alone, expected));
    tutti_context_release(alone);
    TUTTI_CHECK(tutti_context_create(&options, &ctx));
    TUTTI_CHECK(make_model(ctx, &model));
    TUTTI_CHECK(tutti_ddp_create(ctx, model, group, &(tutti_ddp_options_t){.shards = 4}, &ddp));
    tutti_status_t status = run_step(ddp, ctx, &(job_t){.micro_batches = 1});
    const tutti_tensor_t *mean = tutti_module_find(model, "1.running_mean");
    if (status >= 0 && memcmp(tutti_tensor_data(mean), expected, sizeof expected) != 0) {
        status = TT_FAIL(TUTTI_ERR_STATE, "the running means are not shard 0's");
    }
    if (status >= 0 && tutti_tensor_at(tutti_module_find(model, "1.num_batches_tracked"), 0) != 1) {
        status = TT_FAIL(TUTTI_ERR_STATE, "not one batch was counted");
    }
    tutti_ddp_release(ddp);
    tutti_module_release(model);
    tutti_context_release(ctx);
    return status;
}

static void compare_member(tt_member_t *member)
{
    TT_EXPECT(member, compare_with_shard_0(member->group) == TUTTI_OK);
}

static void buffers_are_those_of_shard_0(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        assert_string_equal(tt_team_run(ranks, 20000, compare_member, NULL).text, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_have_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(micro_batches_update_in_their_order),
        cmocka_unit_test(the_first_shard_with_data_counts),
        cmocka_unit_test(buffers_are_those_of_shard_0),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
