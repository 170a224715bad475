/* DataParallel: results, gradients, buffers and random numbers are what they should be, and no bit
 * depends on threads. */
#include <sys/wait.h>

#include <tutti/modes.h>
#include <unistd.h>

#include "compute/nn/module_impl.h"
#include "parallel/data_parallel/data_parallel_testing.h"

/* ---- against the module alone ---------------------------------------------------------------- */

static void results_and_gradients_are_those_of_the_module(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 5; replicas++) {
        rig_t rig = open_rig(replicas);
        assert_int_equal(tutti_data_parallel_replicas(rig.model), replicas);
        for (int64_t rows = 1; rows <= 11; rows++) {
            tutti_tensor_t *x = rows_of(rig.s, rows);
            expect_same_values(tutti_forward(rig.s, rig.model, x),
                               tutti_forward(rig.s, rig.module, x));
            const grads_t alone = grads_of(&rig, rig.module, rows);
            const grads_t together = grads_of(&rig, rig.model, rows);
            assert_true(alone.count > 0 && alone.missing == 0);
            expect_close(&together, &alone);
        }
        close_rig(&rig);
    }
}

static void inputs_get_gradients(void **state)
{
    (void)state;
    rig_t rig = open_rig(3);
    tutti_tensor_t *x = rows_of(rig.s, 7);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    tutti_tensor_t *models[] = {tutti_forward(rig.s, rig.module, x),
                                tutti_forward(rig.s, rig.model, x)};
    tutti_tensor_t *grads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_grad(rig.s, mean_square(rig.s, models[i]), NULL, &x, 1, &grads[i]),
                         TUTTI_OK);
    }
    expect_same_values(grads[1], grads[0]);
    assert_int_equal(take_grads(rig.module).missing, 4); /* tutti_grad leaves leaves alone */
    close_rig(&rig);
}

static void no_samples_give_no_results_and_zero_gradients(void **state)
{
    (void)state;
    rig_t rig = open_rig(3);
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, rows_of(rig.s, 0));
    assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(0, OUT)));
    assert_int_equal(tutti_backward(rig.s, tutti_sum(rig.s, y)), TUTTI_OK);
    const grads_t grads = take_grads(rig.module);
    for (int64_t i = 0; i < grads.count; i++) {
        assert_true(grads.values[i] == 0);
    }
    close_rig(&rig);
}

static void any_number_of_parameters_gets_gradients(void **state)
{
    (void)state;
    static const plan_t deep = {.hidden = 2, .layers = 70};
    rig_t rig = open_rig_of(&deep, (tutti_data_parallel_options_t){.replicas = 2});
    assert_true(tutti_module_parameter_count(rig.model) > 2 * 64);
    const grads_t alone = grads_of(&rig, rig.module, 4), together = grads_of(&rig, rig.model, 4);
    expect_close(&together, &alone);
    close_rig(&rig);
}

static tutti_status_t build_gpt(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    (void)user;
    const tutti_gpt_options_t small = {
        .layers = 2, .width = 16, .heads = 2, .context = 8, .vocab = 11};
    return tutti_module_create(ctx, &tutti_gpt_layer, &small, out);
}

static void a_gpt_gives_the_same_under_autocast_too(void **state)
{
    (void)state;
    const tutti_data_parallel_options_t options = {.replicas = 3, .threads = 2, .build = build_gpt};
    for (int low = 0; low < 2; low++) {
        rig_t rig = open_rig(1);
        tutti_module_t *gpt, *model;
        assert_int_equal(build_gpt(rig.ctx, NULL, &gpt), TUTTI_OK);
        assert_int_equal(tutti_data_parallel_create(gpt, &options, &model), TUTTI_OK);
        tutti_context_set_autocast(rig.ctx, low ? TUTTI_BF16 : TUTTI_F32);
        tutti_tensor_t *tokens =
            tutti_view(rig.s, tutti_arange(rig.s, TUTTI_I64, 0, 1, 10), TUTTI_SHAPE(5, 2));
        tutti_tensor_t *y = tutti_forward(rig.s, model, tokens);
        assert_int_equal(tutti_tensor_dtype(y), low ? TUTTI_BF16 : TUTTI_F32);
        expect_same_values(y, tutti_forward(rig.s, gpt, tokens));
        assert_int_equal(tutti_backward(rig.s, mean_square(rig.s, y)), TUTTI_OK);
        assert_non_null(tutti_tensor_grad(tutti_module_find(gpt, "pos.weight")));
        tutti_module_release(model);
        tutti_module_release(gpt);
        close_rig(&rig);
    }
}

static void without_gradients_nothing_is_recorded(void **state)
{
    (void)state;
    rig_t rig = open_rig(2);
    (void)tutti_context_set_grad_enabled(rig.ctx, false);
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, rows_of(rig.s, 4));
    assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
    assert_false(tutti_tensor_requires_grad(y));
    assert_int_equal(tutti_data_parallel_replica(rig.model, 0)->ctx->node_sequence, 0);
    (void)tutti_context_set_grad_enabled(rig.ctx, true);
    assert_true(tutti_tensor_requires_grad(tutti_forward(rig.s, rig.model, rows_of(rig.s, 4))));
    close_rig(&rig);
}

/* A row for each; nobody looks behind the last one. */
static void as_many_replicas_as_there_may_be_learn_or_do_not(void **state)
{
    (void)state;
    rig_t rig = open_rig(TUTTI_DATA_PARALLEL_MAX);
    const grads_t want = grads_of(&rig, rig.module, TUTTI_DATA_PARALLEL_MAX),
                  got = grads_of(&rig, rig.model, TUTTI_DATA_PARALLEL_MAX);
    expect_close(&got, &want);
    assert_int_equal(tutti_module_set_requires_grad(rig.module, false), TUTTI_OK);
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, rows_of(rig.s, TUTTI_DATA_PARALLEL_MAX));
    assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
    assert_false(tutti_tensor_requires_grad(y));
    close_rig(&rig);
}

/* ---- the graph ------------------------------------------------------------------------------- */

static void a_graph_runs_as_often_as_it_is_kept(void **state)
{
    (void)state;
    rig_t rig = open_rig(2);
    const grads_t once = grads_of(&rig, rig.model, 5);
    tutti_tensor_t *x = rows_of(rig.s, 5);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    tutti_tensor_t *loss = mean_square(rig.s, tutti_forward(rig.s, rig.model, x));
    const tutti_backward_options_t keep = {.retain_graph = true};
    assert_int_equal(tutti_backward_with(rig.s, loss, &keep), TUTTI_OK);
    const double first = tutti_tensor_at(tutti_tensor_grad(x), 0);
    assert_int_equal(tutti_backward(rig.s, loss), TUTTI_OK);
    assert_float_equal(tutti_tensor_at(tutti_tensor_grad(x), 0), 2 * first, 0);
    grads_t twice = take_grads(rig.module);
    for (int64_t i = 0; i < twice.count; i++) {
        twice.values[i] /= 2;
    }
    expect_same(&twice, &once);
    close_rig(&rig);
}

static void two_forwards_may_precede_their_backwards(void **state)
{
    (void)state;
    static const plan_t plan = {.has_norm = true};
    rig_t rig = open_rig_of(&plan, (tutti_data_parallel_options_t){.replicas = 2});
    tutti_context_set_training(rig.ctx, false);
    const grads_t apart[] = {grads_of(&rig, rig.model, 5), grads_of(&rig, rig.model, 8)};
    tutti_tensor_t *losses[] = {
        mean_square(rig.s, tutti_forward(rig.s, rig.model, rows_of(rig.s, 5))),
        mean_square(rig.s, tutti_forward(rig.s, rig.model, rows_of(rig.s, 8)))};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_backward(rig.s, losses[i]), TUTTI_OK);
        const grads_t grads = take_grads(rig.module);
        expect_same(&grads, &apart[i]);
    }
    close_rig(&rig);
}

static void a_graph_outlives_the_wrapper(void **state)
{
    (void)state;
    rig_t rig = open_rig(2);
    const grads_t expected = grads_of(&rig, rig.model, 5);
    tutti_tensor_t *loss = mean_square(rig.s, tutti_forward(rig.s, rig.model, rows_of(rig.s, 5)));
    tutti_module_release(rig.model);
    rig.model = NULL;
    assert_int_equal(tutti_backward(rig.s, loss), TUTTI_OK);
    const grads_t grads = take_grads(rig.module);
    expect_same(&grads, &expected);
    close_rig(&rig);
}

/* ---- replicas and parts ---------------------------------------------------------------------- */

static void replicas_have_the_original_in_one_place(void **state)
{
    (void)state;
    static const plan_t plan = {.has_norm = true};
    rig_t rig = open_rig_of(&plan, (tutti_data_parallel_options_t){.replicas = 3});
    const void *weight = tutti_tensor_data(tutti_module_find(rig.module, "0.weight"));
    const void *mean = tutti_tensor_data(tutti_module_find(rig.module, "1.running_mean"));
    for (int i = 0; i < 3; i++) {
        tutti_module_t *replica = tutti_data_parallel_replica(rig.model, i);
        assert_ptr_equal(tutti_tensor_data(tutti_module_find(replica, "0.weight")), weight);
        assert_true((tutti_tensor_data(tutti_module_find(replica, "1.running_mean")) == mean) ==
                    (i == 0));
    }
    assert_null(tutti_data_parallel_replica(rig.model, 3));
    assert_null(tutti_data_parallel_replica(rig.module, 0));
    assert_ptr_equal(tutti_data_parallel_module(rig.model), rig.module);
    close_rig(&rig);
}

static void replicas_follow_casts_and_freezes(void **state)
{
    (void)state;
    static const plan_t plan = {.has_norm = true};
    rig_t rig = open_rig_of(&plan, (tutti_data_parallel_options_t){.replicas = 2});
    assert_int_equal(tutti_module_cast(rig.model, TUTTI_BF16), TUTTI_OK);
    assert_int_equal(
        tutti_tensor_set_requires_grad(tutti_module_find(rig.module, "0.weight"), false), TUTTI_OK);
    tutti_context_set_training(rig.ctx, false);
    tutti_tensor_t *x = tutti_cast(rig.s, rows_of(rig.s, 6), TUTTI_BF16);
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, x);
    assert_int_equal(tutti_tensor_dtype(y), TUTTI_BF16);
    expect_same_values(y, tutti_forward(rig.s, rig.module, x));
    assert_int_equal(tutti_backward(rig.s, tutti_mean(rig.s, y)), TUTTI_OK);
    assert_int_equal(take_grads(rig.module).missing, 1);
    assert_int_equal(tutti_module_set_requires_grad(rig.module, true), TUTTI_OK);
    assert_int_equal(tutti_backward(rig.s, tutti_mean(rig.s, tutti_forward(rig.s, rig.model, x))),
                     TUTTI_OK);
    assert_int_equal(take_grads(rig.module).missing, 0);
    close_rig(&rig);
}

static void parts_by_themselves_are_a_forward(void **state)
{
    (void)state;
    rig_t rig = open_rig(4);
    tutti_tensor_t *parts[4], *results[4];
    const grads_t expected = grads_of(&rig, rig.model, 9);
    const int count = tutti_data_parallel_scatter(rig.s, rows_of(rig.s, 9), 0, 4, parts);
    assert_int_equal(count, 3); /* 3 3 3 */
    tutti_data_parallel_apply(rig.s, rig.model, parts, count, results);
    tutti_tensor_t *y = tutti_data_parallel_gather(rig.s, results, count, 0);
    expect_same_values(y, tutti_forward(rig.s, rig.model, rows_of(rig.s, 9)));
    assert_int_equal(tutti_backward(rig.s, mean_square(rig.s, y)), TUTTI_OK);
    const grads_t grads = take_grads(rig.module);
    expect_same(&grads, &expected);
    close_rig(&rig);
}

static void scatter_cuts_as_torch_chunk(void **state)
{
    (void)state;
    static const struct {
        int64_t size;
        int count, parts;
        int64_t first, last;
    } cases[] = {{10, 4, 4, 3, 1}, {9, 4, 3, 3, 3}, {3, 4, 3, 1, 1},
                 {8, 4, 4, 2, 2},  {0, 4, 1, 0, 0}, {5, 1, 1, 5, 5}};
    rig_t rig = open_rig(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_tensor_t *parts[4], *x = rows_of(rig.s, cases[i].size);
        const int count = tutti_data_parallel_scatter(rig.s, x, -2, cases[i].count, parts);
        assert_int_equal(count, cases[i].parts);
        assert_int_equal(tutti_tensor_dim(parts[0], 0), cases[i].first);
        assert_int_equal(tutti_tensor_dim(parts[count - 1], 0), cases[i].last);
        expect_same_values(tutti_data_parallel_gather(rig.s, parts, count, 0), x);
    }
    close_rig(&rig);
}

/* ---- randomness, buffers, threads ------------------------------------------------------------ */

static void replicas_draw_their_own_numbers_each_once(void **state)
{
    (void)state;
    static const plan_t plan = {.dropout = 0.5F};
    rig_t rig = open_rig_of(&plan, (tutti_data_parallel_options_t){.replicas = 2});
    tutti_tensor_t *x = tutti_ones(rig.s, TUTTI_F32, TUTTI_SHAPE(2, IN));
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, x);
    tutti_tensor_t *again = tutti_forward(rig.s, rig.model, x); /* goes on in the streams */
    tutti_context_set_step(rig.ctx, 0);
    tutti_tensor_t *repeated = tutti_forward(rig.s, rig.model, x);
    expect_same_values(repeated, y);
    assert_true(tutti_tensor_at(y, 0) != tutti_tensor_at(y, OUT));
    assert_true(tutti_tensor_at(y, 0) != tutti_tensor_at(again, 0));
    close_rig(&rig);
}

static void a_shard_of_replicas_is_as_many_shards(void **state)
{
    (void)state;
    static const plan_t plan = {.dropout = 0.5F};
    rig_t rig = open_rig_of(&plan, (tutti_data_parallel_options_t){.replicas = 2});
    tutti_tensor_t *x = rows_of(rig.s, 2), *rows[2];
    tutti_context_set_shard(rig.ctx, 3);
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, x);
    for (int i = 0; i < 2; i++) {
        tutti_context_set_shard(rig.ctx, 6 + i);
        rows[i] = tutti_forward(rig.s, rig.module, tutti_narrow(rig.s, x, 0, i, 1));
    }
    expect_same_values(y, tutti_cat(rig.s, rows, 2, 0));
    close_rig(&rig);
}

static void buffers_are_the_first_replicas(void **state)
{
    (void)state;
    static const plan_t plan = {.has_norm = true};
    rig_t rig = open_rig_of(&plan, (tutti_data_parallel_options_t){.replicas = 2});
    tutti_module_t *twin;
    rig.ctx->parameter_count = 0;
    assert_int_equal(build(rig.ctx, (void *)(uintptr_t)&plan, &twin), TUTTI_OK);
    for (int i = 0; i < 3; i++) {
        tutti_tensor_t *x = rows_of(rig.s, 8);
        (void)tutti_forward(rig.s, rig.model, x);
        (void)tutti_forward(rig.s, twin, tutti_narrow(rig.s, x, 0, 0, 4));
    }
    static const char *const names[] = {"1.running_mean", "1.running_var", "1.num_batches_tracked"};
    for (int i = 0; i < 3; i++) {
        expect_same_values(tutti_module_find(rig.module, names[i]),
                           tutti_module_find(twin, names[i]));
    }
    assert_int_equal(tutti_tensor_at(tutti_module_find(twin, names[2]), 0), 3);
    tutti_module_release(twin);
    close_rig(&rig);
}

static void no_bit_depends_on_threads_or_on_who_is_first(void **state)
{
    (void)state;
    static const plan_t plan = {.hidden = 33, .dropout = 0.1F, .has_norm = true};
    grads_t first = {0};
    for (int run = 0; run < 20; run++) {
        rig_t rig = open_rig_of(
            &plan, (tutti_data_parallel_options_t){.replicas = 3, .threads = 1 + run % 2});
        const grads_t grads = grads_of(&rig, rig.model, 14);
        first = run == 0 ? grads : first;
        expect_same(&grads, &first);
        close_rig(&rig);
    }
}

static void a_wrapper_is_a_module_by_the_same_names(void **state)
{
    (void)state;
    rig_t rig = open_rig(2);
    char inner[TUTTI_DIGEST_BYTES], outer[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_module_digest(rig.module, inner), TUTTI_OK);
    assert_int_equal(tutti_module_digest(rig.model, outer), TUTTI_OK);
    assert_string_equal(outer, inner);
    assert_ptr_equal(tutti_module_find(rig.model, "1.bias"),
                     tutti_module_find(rig.module, "1.bias"));
    close_rig(&rig);
}

static void a_forked_child_runs_replicas_by_itself(void **state)
{
    (void)state;
    rig_t rig = open_rig(2);
    const pid_t child = fork();
    if (child == 0) {
        tutti_tensor_t *y = tutti_forward(rig.s, rig.model, rows_of(rig.s, 5));
        _exit(tutti_backward(rig.s, mean_square(rig.s, y)) == TUTTI_OK ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_and_gradients_are_those_of_the_module),
        cmocka_unit_test(inputs_get_gradients),
        cmocka_unit_test(no_samples_give_no_results_and_zero_gradients),
        cmocka_unit_test(any_number_of_parameters_gets_gradients),
        cmocka_unit_test(a_gpt_gives_the_same_under_autocast_too),
        cmocka_unit_test(without_gradients_nothing_is_recorded),
        cmocka_unit_test(as_many_replicas_as_there_may_be_learn_or_do_not),
        cmocka_unit_test(a_graph_runs_as_often_as_it_is_kept),
        cmocka_unit_test(two_forwards_may_precede_their_backwards),
        cmocka_unit_test(a_graph_outlives_the_wrapper),
        cmocka_unit_test(replicas_have_the_original_in_one_place),
        cmocka_unit_test(replicas_follow_casts_and_freezes),
        cmocka_unit_test(parts_by_themselves_are_a_forward),
        cmocka_unit_test(scatter_cuts_as_torch_chunk),
        cmocka_unit_test(replicas_draw_their_own_numbers_each_once),
        cmocka_unit_test(a_shard_of_replicas_is_as_many_shards),
        cmocka_unit_test(buffers_are_the_first_replicas),
        cmocka_unit_test(no_bit_depends_on_threads_or_on_who_is_first),
        cmocka_unit_test(a_wrapper_is_a_module_by_the_same_names),
        cmocka_unit_test(a_forked_child_runs_replicas_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
