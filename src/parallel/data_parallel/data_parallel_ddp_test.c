/* DataParallel over V replicas against DDP over V shards: the same bits. */
#include <tutti/ddp.h>

#include "core/kernel/elementwise/map.h"
#include "parallel/data_parallel/data_parallel_testing.h"

/* ---- against DDP ----------------------------------------------------------------------------- */

typedef struct {
    int shards, steps;
    bool is_mean; /* of the gathered results; else each replica's, summed */
    const plan_t *plan;
    tutti_module_t *ddp_model, *model; /* after training */
    tutti_context_t *ctx;
    grads_t ddp_grads, grads; /* of the last step */
} race_t;

static tutti_status_t subtract_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    const tt_strided_t p = tt_tensor_strided(x), g = tt_tensor_strided(tutti_tensor_grad(x));
    tt_map_binary(NULL, TT_BINARY_ADD_SCALED, (tt_map_params_t){.p = *(const double *)user}, &p, &p,
                  &g);
    tt_tensor_touch(x);
    return TUTTI_OK;
}

static tutti_status_t copy_grad(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_tensor_t *grad = tutti_tensor_retain(tutti_tensor_grad(x));
    const tutti_status_t status = take_grad(user, name, x);
    (void)tutti_tensor_set_grad(x, grad);
    tutti_tensor_release(grad);
    return status;
}

/* Rows of a step that every shard has its own four of. */
static tutti_tensor_t *shard_rows(tutti_scope_t *s, const race_t *race, int shard)
{
    tutti_tensor_t *x = rows_of(s, (int64_t)4 * race->shards);
    return shard < 0 ? x : tutti_narrow(s, x, 0, (int64_t)4 * shard, 4);
}

/* The rows are those of shard 0's stream. */
static tutti_tensor_t *draw_rows(tutti_scope_t *s, const race_t *race, int shard)
{
    const int64_t own = s->ctx->shard;
    s->ctx->shard = 0;
    tutti_tensor_t *x = shard_rows(s, race, shard);
    s->ctx->shard = own;
    return x;
}

static tutti_status_t ddp_shard(tutti_ddp_t *ddp, const race_t *race)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(race->ctx, &s));
    const int shard = (int)tutti_context_shard(race->ctx);
    tutti_tensor_t *x = draw_rows(s, race, shard);
    (void)tutti_backward(s, mean_square(s, tutti_forward(s, tutti_ddp_module(ddp), x)));
    return tutti_scope_close(s);
}

static tutti_status_t ddp_train(race_t *race, tutti_ddp_t *ddp)
{
    double rate = -0.1;
    for (int step = 0; step < race->steps; step++) {
        tutti_context_set_step(race->ctx, step);
        while (tutti_ddp_next_shard(ddp, race->ctx)) {
            TUTTI_CHECK(ddp_shard(ddp, race));
        }
        TUTTI_CHECK(tutti_ddp_finish(ddp));
        TUTTI_CHECK(tutti_module_each_parameter(race->ddp_model, subtract_gradient, &rate));
    }
    tutti_context_set_shard(race->ctx, 0);
    return tutti_module_each_parameter(race->ddp_model, copy_grad, &race->ddp_grads);
}

static void race_ddp(tt_member_t *member)
{
    race_t *race = member->user;
    tutti_ddp_t *ddp;
    const tutti_ddp_options_t options = {.shards = race->shards};
    TT_EXPECT(member, tutti_ddp_create(race->ctx, race->ddp_model, member->group, &options, &ddp) ==
                          TUTTI_OK);
    TT_EXPECT(member, ddp_train(race, ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
}

static tutti_tensor_t *race_loss(tutti_scope_t *s, const race_t *race, tutti_module_t *model)
{
    tutti_tensor_t *x = draw_rows(s, race, -1), *parts[8], *results[8];
    if (race->is_mean) {
        return mean_square(s, tutti_forward(s, model, x));
    }
    const int count = tutti_data_parallel_scatter(s, x, 0, race->shards, parts);
    tutti_data_parallel_apply(s, model, parts, count, results);
    for (int i = 0; i < count; i++) {
        results[i] = mean_square(s, results[i]);
    }
    return tutti_sum(s, tutti_data_parallel_gather(s, results, count, 0));
}

static void race_replicas(race_t *race, tutti_module_t *model)
{
    double rate = -0.1;
    for (int step = 0; step < race->steps; step++) {
        tutti_scope_t *s;
        tutti_context_set_step(race->ctx, step);
        assert_int_equal(tutti_scope_open(race->ctx, &s), TUTTI_OK);
        tutti_module_zero_grad(model);
        assert_int_equal(tutti_backward(s, race_loss(s, race, model)), TUTTI_OK);
        assert_int_equal(tutti_scope_close(s), TUTTI_OK);
        assert_int_equal(tutti_module_each_parameter(model, subtract_gradient, &rate), TUTTI_OK);
    }
    assert_int_equal(tutti_module_each_parameter(model, copy_grad, &race->grads), TUTTI_OK);
}

static void digests_of(const race_t *race, char texts[2][TUTTI_DIGEST_BYTES])
{
    assert_int_equal(tutti_module_digest(race->ddp_model, texts[0]), TUTTI_OK);
    assert_int_equal(tutti_module_digest(race->model, texts[1]), TUTTI_OK);
}

/* Both begin in the same way: with the same number of parameters made before. */
static void run_race(race_t *race)
{
    tutti_module_t *wrapper;
    const tutti_context_options_t context = {.threads = 1, .seed = 42};
    const tutti_data_parallel_options_t options = {.replicas = race->shards,
                                                   .threads = 1,
                                                   .build = build,
                                                   .user = (void *)(uintptr_t)race->plan};
    assert_int_equal(tutti_context_create(&context, &race->ctx), TUTTI_OK);
    assert_int_equal(build(race->ctx, options.user, &race->ddp_model), TUTTI_OK);
    race->ctx->parameter_count = 0;
    assert_int_equal(build(race->ctx, options.user, &race->model), TUTTI_OK);
    tt_team_expect(1, 20000, race_ddp, race);
    assert_int_equal(tutti_data_parallel_create(race->model, &options, &wrapper), TUTTI_OK);
    race_replicas(race, wrapper);
    tutti_module_release(wrapper);
}

static void end_race(race_t *race)
{
    tutti_module_release(race->model);
    tutti_module_release(race->ddp_model);
    tutti_context_release(race->ctx);
}

static void a_power_of_two_of_replicas_has_the_bits_of_ddp(void **state)
{
    (void)state;
    static const plan_t plan = {.dropout = 0.25F, .has_norm = true};
    char texts[2][TUTTI_DIGEST_BYTES];
    for (int shards = 2; shards <= 8; shards *= 2) {
        race_t race = {.shards = shards, .steps = 3, .is_mean = true, .plan = &plan};
        run_race(&race);
        digests_of(&race, texts);
        assert_string_equal(texts[1], texts[0]);
        expect_same_values(tutti_module_find(race.model, "1.running_var"),
                           tutti_module_find(race.ddp_model, "1.running_var"));
        end_race(&race);
    }
}

static void summed_losses_have_the_gradients_of_ddp(void **state)
{
    (void)state;
    static const plan_t plan = {.dropout = 0.25F};
    for (int shards = 3; shards <= 7; shards += 2) {
        race_t race = {.shards = shards, .steps = 1, .plan = &plan};
        run_race(&race);
        for (int64_t i = 0; i < race.grads.count; i++) {
            race.grads.values[i] /= (float)shards;
        }
        expect_same(&race.grads, &race.ddp_grads);
        end_race(&race);
    }
}

/* ---- DDP over DataParallel ------------------------------------------------------------------- */

typedef struct {
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} nested_t;

static tutti_status_t train_nested(tutti_group_t *world, race_t *race)
{
    tutti_ddp_t *ddp;
    const tutti_ddp_options_t options = {.shards = race->shards};
    const tutti_data_parallel_options_t two = {
        .replicas = 2, .threads = 1, .build = build, .user = (void *)(uintptr_t)race->plan};
    TUTTI_CHECK(tutti_data_parallel_create(race->model, &two, &race->ddp_model));
    TUTTI_CHECK(tutti_ddp_create(race->ctx, race->ddp_model, world, &options, &ddp));
    const tutti_status_t status = ddp_train(race, ddp);
    tutti_ddp_release(ddp);
    return status;
}

static void join_nested(tt_member_t *member)
{
    static const plan_t plan = {.dropout = 0.25F, .has_norm = true};
    nested_t *nested = member->user;
    race_t race = {.shards = 2, .steps = 2, .plan = &plan};
    const tutti_context_options_t context = {.threads = 1, .seed = 42};
    TT_EXPECT(member, tutti_context_create(&context, &race.ctx) == TUTTI_OK);
    TT_EXPECT(member, build(race.ctx, (void *)(uintptr_t)&plan, &race.model) == TUTTI_OK);
    TT_EXPECT(member, train_nested(member->group, &race) == TUTTI_OK);
    TT_EXPECT(member, tutti_module_digest(race.model, nested->digests[member->rank]) == TUTTI_OK);
    end_race(&race);
}

static void ddp_over_replicas_has_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    nested_t one = {0}, two = {0};
    tt_team_expect(1, 20000, join_nested, &one);
    tt_team_expect(2, 20000, join_nested, &two);
    assert_int_equal(strlen(one.digests[0]), TUTTI_DIGEST_BYTES - 1);
    assert_string_equal(two.digests[0], one.digests[0]);
    assert_string_equal(two.digests[1], one.digests[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_power_of_two_of_replicas_has_the_bits_of_ddp),
        cmocka_unit_test(summed_losses_have_the_gradients_of_ddp),
        cmocka_unit_test(ddp_over_replicas_has_the_same_bits_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
