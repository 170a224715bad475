/* DDP over modules that are recomputed in backward: the same bits, every gradient once, buffers
 * moved once, on any number of ranks, also with penalties on gradients; collectives inside a
 * recomputed forward meet. */
#include "core/base/testing.h"

#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/tensor.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "comm/group/group_team.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/ddp/ddp_impl.h"

enum { STEPS = 3, MICRO_BATCHES = 2, BLOCKS = 3, WIDTH = 12, BATCH = 4 };

typedef struct {
    bool recompute, syncs, has_penalty;
    int shards;
    tutti_dtype_t dtype;
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    bool has_penalty;  /* on the gradient of the input */
    int accumulations; /* of one parameter */
} setting_t;

static tutti_status_t subtract_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name;
    const tt_strided_t p = tt_tensor_strided(x), g = tt_tensor_strided(tutti_tensor_grad(x));
    tt_map_binary(NULL, TT_BINARY_ADD_SCALED, (tt_map_params_t){.p = -0.1}, &p, &p, &g);
    tt_tensor_touch(x);
    return TUTTI_OK;
}

static tutti_status_t add_norm(tutti_module_t *block, tutti_group_t *world, const job_t *job)
{
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = WIDTH}, .group = world};
    return job->syncs ? tutti_sequential_add(block, &tutti_sync_batch_norm_layer, &options, NULL)
                      : tutti_sequential_add(block, &tutti_batch_norm_layer, &options.norm, NULL);
}

/* linear, norm, dropout */
static tutti_status_t add_block(tutti_module_t *model, tutti_group_t *world, const job_t *job,
                                tutti_module_t **out)
{
    const tutti_linear_options_t linear = {
        .in = WIDTH, .out = WIDTH, .activation = TUTTI_ACTIVATION_GELU};
    const tutti_dropout_options_t dropout = {.p = 0.2f};
    TUTTI_CHECK(tutti_sequential_add(model, &tutti_sequential_layer, NULL, out));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &linear, NULL));
    TUTTI_CHECK(add_norm(*out, world, job));
    return tutti_sequential_add(*out, &tutti_dropout_layer, &dropout, NULL);
}

/* Blocks, of which the first comes once more at the end: its parameters are shared. */
static tutti_status_t make_model(tutti_context_t *ctx, tutti_group_t *world, const job_t *job,
                                 tutti_module_t **out)
{
    const tutti_sequential_options_t options = {.recompute = job->recompute};
    tutti_module_t *first = NULL, *block;
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, &options, out));
    for (int i = 0; i < BLOCKS; i++) {
        TUTTI_CHECK(add_block(*out, world, job, &block));
        first = first == NULL ? block : first;
    }
    return tutti_module_add_child(*out, "again", first);
}

static void count(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    ((setting_t *)user)->accumulations++;
}

static tutti_status_t open_setting(tutti_group_t *world, const job_t *job, setting_t *set)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    const tutti_ddp_options_t wanted = {
        .shards = job->shards, .bucket_bytes = 800, .first_bucket_bytes = 64};
    TUTTI_CHECK(tutti_context_create(&options, &set->ctx));
    (void)tutti_context_set_autocast(set->ctx, job->dtype);
    set->has_penalty = job->has_penalty;
    TUTTI_CHECK(make_model(set->ctx, world, job, &set->model));
    TUTTI_CHECK(
        tutti_tensor_on_accumulate(tutti_module_find(set->model, "0.0.weight"), count, set));
    return tutti_ddp_create(set->ctx, set->model, world, &wanted, &set->ddp);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

/* The loss, and a penalty on its slope, whose gradient comes by the same backward. */
static tutti_tensor_t *add_penalty(tutti_scope_t *s, tutti_tensor_t *loss, tutti_tensor_t *x)
{
    const tutti_backward_options_t options = {.create_graph = true};
    tutti_tensor_t *slope;
    const tutti_status_t status = tutti_grad(s, loss, &options, &x, 1, &slope);
    return status < 0 ? tutti_scope_fail(s, status)
                      : tutti_add(s, loss, tutti_mean(s, tutti_square(s, slope)));
}

/* Forward of all micro-batches first, so that the random numbers of the last are the newest. */
static tutti_status_t run_shard(setting_t *set)
{
    tutti_scope_t *s;
    tutti_tensor_t *losses[MICRO_BATCHES];
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    for (int i = 0; i < MICRO_BATCHES; i++) {
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH), -1, 1);
        TUTTI_CHECK(tutti_tensor_set_requires_grad(x, set->has_penalty));
        losses[i] = tutti_mse_loss(s, tutti_forward(s, set->model, x), x, TUTTI_LOSS_MEAN);
        losses[i] = set->has_penalty ? add_penalty(s, losses[i], x) : losses[i];
    }
    for (int i = 0; i < MICRO_BATCHES; i++) {
        tutti_ddp_no_sync(set->ddp, i + 1 < MICRO_BATCHES);
        (void)tutti_backward(s, losses[i]);
    }
    return tutti_scope_close(s);
}

static tutti_status_t train(setting_t *set)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(set->ctx, step);
        while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
            TUTTI_CHECK(run_shard(set));
        }
        TUTTI_CHECK(tutti_ddp_finish(set->ddp));
        TUTTI_CHECK(tutti_module_each_parameter(set->model, subtract_gradient, NULL));
    }
    return TUTTI_OK;
}

static void train_member(tt_member_t *member)
{
    job_t *job = member->user;
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, job, &set) == TUTTI_OK);
    TT_EXPECT(member, train(&set) == TUTTI_OK);
    TT_EXPECT(member, set.accumulations == STEPS * MICRO_BATCHES * tt_ddp_shard_count(set.ddp));
    /* as often as in one shard: the buffers are shard 0's; the shared norm runs twice */
    const tutti_tensor_t *batches = tutti_module_find(set.model, "0.1.num_batches_tracked");
    TT_EXPECT(member, tutti_tensor_at(batches, 0) == STEPS * MICRO_BATCHES * 2);
    TT_EXPECT(member, tutti_module_digest(set.model, job->digests[member->rank]) == TUTTI_OK);
    close_setting(&set);
}

static const char *digest_on(int ranks, job_t *job)
{
    const tt_team_result_t result = tt_team_run(ranks, 20000, train_member, job);
    if (result.text[0] != 0) {
        fail_msg("%s", result.text);
    }
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

static void recomputed_models_learn_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int i = 0; i < 2; i++) {
        job_t kept = {.shards = 3, .dtype = dtypes[i]};
        const char *expected = digest_on(2, &kept);
        for (int ranks = 1; ranks <= 3; ranks++) {
            job_t again = {.shards = 3, .dtype = dtypes[i], .recompute = true};
            assert_string_equal(digest_on(ranks, &again), expected);
        }
    }
}

static void penalties_on_gradients_are_learned_in_the_same_bits(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int i = 0; i < 2; i++) {
        job_t plain = {.shards = 3, .dtype = dtypes[i]}, kept = plain;
        kept.has_penalty = true;
        char expected[TUTTI_DIGEST_BYTES];
        snprintf(expected, sizeof expected, "%s", digest_on(2, &kept));
        assert_string_not_equal(digest_on(1, &plain), expected);
        for (int ranks = 1; ranks <= 3; ranks++) {
            job_t again = kept;
            again.recompute = true;
            assert_string_equal(digest_on(ranks, &kept), expected);
            assert_string_equal(digest_on(ranks, &again), expected);
        }
    }
}

/* Each forward, also the second, is a call that all ranks make. */
static void statistics_of_all_ranks_are_shared_again(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++) {
        job_t kept = {.shards = ranks, .syncs = true, .dtype = TUTTI_F32}, again = kept;
        again.recompute = true;
        assert_string_equal(digest_on(ranks, &again), digest_on(ranks, &kept));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed_models_learn_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(penalties_on_gradients_are_learned_in_the_same_bits),
        cmocka_unit_test(statistics_of_all_ranks_are_shared_again),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
