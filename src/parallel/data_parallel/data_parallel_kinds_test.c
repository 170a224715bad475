/* DataParallel of modules with several inputs and results, and what goes wrong. */
#include <tutti/nn_layers.h>

#include "parallel/data_parallel/data_parallel_testing.h"

/* ---- modules of unlike kinds ----------------------------------------------------------------- */

/* (a, b) -> (a + b, 2 a, the sum of a as a scalar), cut along dimension 1; fails where a holds a
 * 7, in backward where it holds an 8. */
static tutti_tensor_t *fail_in_backward(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)grad, (void)user;
    return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "no eight in backward"));
}

static void odd_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *in, int count,
                        tutti_tensor_t **out, int out_count)
{
    (void)m;
    assert_true(count == 2 && out_count == 3);
    out[0] = tutti_add(s, in[0], in[1]);
    out[1] = tutti_mul_scalar(s, in[0], 2);
    out[2] = tutti_sum(s, in[0]);
    for (int64_t i = 0; i < tutti_tensor_numel(in[0]); i++) {
        if (tutti_tensor_at(in[0], i) == 7) {
            (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "no seven here"));
        }
        if (tutti_tensor_at(in[0], i) == 8) {
            assert_int_equal(tutti_tensor_on_grad(out[1], fail_in_backward, NULL), TUTTI_OK);
        }
    }
}

static const tutti_module_ops_t odd_ops = {.name = "odd", .forward_many = odd_forward};

static tutti_status_t build_odd(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    (void)user;
    return tutti_module_create(ctx, &odd_ops, NULL, out);
}

typedef struct {
    rig_t rig;
    tutti_tensor_t *in[2], *out[3];
} odd_t;

static odd_t open_odd(int replicas)
{
    odd_t odd = {0};
    const tutti_context_options_t context = {.threads = 1};
    const tutti_data_parallel_options_t options = {
        .replicas = replicas, .threads = 1, .dim = 1, .build = build_odd};
    assert_int_equal(tutti_context_create(&context, &odd.rig.ctx), TUTTI_OK);
    assert_int_equal(build_odd(odd.rig.ctx, NULL, &odd.rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(odd.rig.module, &options, &odd.rig.model),
                     TUTTI_OK);
    assert_int_equal(tutti_scope_open(odd.rig.ctx, &odd.rig.s), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        odd.in[i] = tutti_zeros(odd.rig.s, TUTTI_F32, TUTTI_SHAPE(2, 5));
        assert_int_equal(tutti_tensor_set_requires_grad(odd.in[i], true), TUTTI_OK);
    }
    return odd;
}

static void set_first(tutti_tensor_t *x, float value)
{
    ((float *)tutti_tensor_data(x))[3] = value; /* x[0, 3], the second replica's of three */
}

static void several_inputs_and_results_are_cut_and_put_together(void **state)
{
    (void)state;
    odd_t odd = open_odd(3);
    for (int i = 0; i < 10; i++) {
        ((float *)tutti_tensor_data(odd.in[0]))[i] = (float)i / 16;
    }
    tutti_forward_many(odd.rig.s, odd.rig.model, odd.in, 2, odd.out, 3);
    expect_same_values(odd.out[1], tutti_mul_scalar(odd.rig.s, odd.in[0], 2));
    assert_true(tutti_shape_equal(tutti_tensor_shape(odd.out[2]), TUTTI_SHAPE(3)));
    assert_float_equal(tutti_tensor_at(odd.out[2], 2), (4 + 9) / 16.0, 0);
    tutti_tensor_t *weights = tutti_arange(odd.rig.s, TUTTI_F32, 0, 1, 3);
    tutti_tensor_t *loss =
        tutti_add(odd.rig.s, tutti_sum(odd.rig.s, odd.out[0]),
                  tutti_sum(odd.rig.s, tutti_mul(odd.rig.s, odd.out[2], weights)));
    assert_int_equal(tutti_backward(odd.rig.s, loss), TUTTI_OK);
    for (int i = 0; i < 10; i++) { /* columns 0 1, 2 3, 4 */
        const int replica = i % 5 / 2;
        assert_float_equal(tutti_tensor_at(tutti_tensor_grad(odd.in[0]), i), 1 + replica, 0);
        assert_float_equal(tutti_tensor_at(tutti_tensor_grad(odd.in[1]), i), 1, 0);
    }
    close_rig(&odd.rig);
}

/* Gradients that were cut for a backward without memory for the others' are no part of the next. */
static void a_backward_that_failed_leaves_no_gradient(void **state)
{
    (void)state;
    const tutti_backward_options_t again = {.retain_graph = true};
    tutti_status_t status = TUTTI_ERR_NOMEM;
    size_t nth = 0;
    while (status < 0) {
        odd_t odd = open_odd(2);
        tutti_scope_t *s;
        tutti_forward_many(odd.rig.s, odd.rig.model, odd.in, 2, odd.out, 3);
        tutti_tensor_t *alone = tutti_sum(odd.rig.s, odd.out[1]);
        tutti_tensor_t *both = tutti_add(odd.rig.s, tutti_sum(odd.rig.s, odd.out[0]), alone);
        assert_int_equal(tutti_scope_open(odd.rig.ctx, &s), TUTTI_OK);
        tt_alloc_fail_at(++nth);
        status = tutti_backward_with(s, both, &again);
        tt_alloc_fail_at(0);
        assert_int_equal(tutti_scope_close(s), status);
        tutti_tensor_zero_grad(odd.in[0]);
        tutti_tensor_zero_grad(odd.in[1]);
        assert_int_equal(tutti_backward(odd.rig.s, alone), TUTTI_OK);
        assert_float_equal(tutti_tensor_at(tutti_tensor_grad(odd.in[0]), 3), 2, 0);
        if (tutti_tensor_grad(odd.in[1]) != NULL) {
            assert_float_equal(tutti_tensor_at(tutti_tensor_grad(odd.in[1]), 3), 0, 0);
        }
        close_rig(&odd.rig);
    }
    assert_true(nth > 20);
}

/* [2, n] -> [1, 2, n]: the last dimension is another one of x than of y. */
static tutti_tensor_t *deepen(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    (void)m;
    return tutti_mul_scalar(s, tutti_unsqueeze(s, x, 0), 2);
}

static const tutti_module_ops_t deepen_ops = {.name = "deepen", .forward = deepen};

static tutti_status_t build_deepen(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    (void)user;
    return tutti_module_create(ctx, &deepen_ops, NULL, out);
}

static void the_last_dimension_is_each_tensors_own(void **state)
{
    (void)state;
    rig_t rig;
    const tutti_context_options_t context = {.threads = 1};
    const tutti_data_parallel_options_t options = {
        .replicas = 2, .threads = 1, .dim = -1, .build = build_deepen};
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build_deepen(rig.ctx, NULL, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
    tutti_tensor_t *x = tutti_uniform(rig.s, TUTTI_F32, TUTTI_SHAPE(2, 4), -1, 1);
    tutti_tensor_t *weights = tutti_uniform(rig.s, TUTTI_F32, TUTTI_SHAPE(1, 2, 4), -1, 1);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    tutti_tensor_t *y = tutti_forward(rig.s, rig.model, x);
    expect_same_values(y, tutti_forward(rig.s, rig.module, x));
    tutti_tensor_t *loss = tutti_sum(rig.s, tutti_mul(rig.s, y, weights));
    assert_int_equal(tutti_backward(rig.s, loss), TUTTI_OK);
    for (int i = 0; i < 8; i++) {
        const double wanted = 2 * tutti_tensor_at(weights, i);
        assert_true(tutti_tensor_at(tutti_tensor_grad(x), i) == wanted);
    }
    close_rig(&rig);
}

static void a_failure_names_its_replica(void **state)
{
    (void)state;
    odd_t odd = open_odd(3);
    tutti_scope_t *s;
    set_first(odd.in[0], 7);
    assert_int_equal(tutti_scope_open(odd.rig.ctx, &s), TUTTI_OK);
    tutti_forward_many(s, odd.rig.model, odd.in, 2, odd.out, 3);
    assert_true(tutti_tensor_status(odd.out[2]) == TUTTI_ERR_ARG);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tt_expect_error("replica 1: no seven here");
    set_first(odd.in[0], 0);
    tutti_forward_many(odd.rig.s, odd.rig.model, odd.in, 2, odd.out, 3);
    assert_int_equal(tutti_tensor_status(odd.out[2]), TUTTI_OK);
    close_rig(&odd.rig);
}

static void a_failure_in_backward_names_its_replica(void **state)
{
    (void)state;
    odd_t odd = open_odd(3);
    tutti_scope_t *s;
    set_first(odd.in[0], 8);
    assert_int_equal(tutti_scope_open(odd.rig.ctx, &s), TUTTI_OK);
    tutti_forward_many(s, odd.rig.model, odd.in, 2, odd.out, 3);
    assert_int_equal(tutti_backward(s, tutti_sum(s, odd.out[1])), TUTTI_ERR_ARG);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tt_expect_error("replica 1: no eight in backward");
    close_rig(&odd.rig);
}

static void inputs_that_cannot_be_cut_are_named(void **state)
{
    (void)state;
    odd_t odd = open_odd(2);
    tutti_tensor_t *two[] = {odd.in[0], tutti_zeros(odd.rig.s, TUTTI_F32, TUTTI_SHAPE(2, 4))};
    tutti_tensor_t *flat[] = {tutti_zeros(odd.rig.s, TUTTI_F32, TUTTI_SHAPE(2)), odd.in[1]};
    tutti_tensor_t *const *const wrong[] = {two, flat};
    const char *const texts[] = {
        "inputs 0 and 1, f32[2, 5] and f32[2, 4], must be cut in the same way",
        "f32[2] has no dimension 1 to cut"};
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(odd.rig.ctx, &s), TUTTI_OK);
        tutti_forward_many(s, odd.rig.model, wrong[i], 2, odd.out, 3);
        assert_true(tutti_scope_close(s) < 0);
        tt_expect_error(texts[i]);
    }
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(odd.rig.ctx, &s), TUTTI_OK);
    tutti_forward_many(s, odd.rig.model, odd.in, 2, NULL, 0);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tt_expect_error("2 inputs and 0 outputs: want at least one of each");
    close_rig(&odd.rig);
}

enum { MANY = 70 };

/* [2] each -> each, times its number */
static void count_up(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                     int input_count, tutti_tensor_t **outputs, int output_count)
{
    (void)m;
    assert_int_equal(input_count, output_count);
    for (int i = 0; i < output_count; i++) {
        outputs[i] = tutti_mul_scalar(s, inputs[i], i + 1);
    }
}

static const tutti_module_ops_t count_ops = {.name = "count_up", .forward_many = count_up};

static tutti_status_t build_count(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    (void)user;
    return tutti_module_create(ctx, &count_ops, NULL, out);
}

static void any_number_of_inputs_and_outputs_is_cut_and_put_together(void **state)
{
    (void)state;
    rig_t rig;
    const tutti_context_options_t context = {.threads = 1};
    const tutti_data_parallel_options_t options = {
        .replicas = 2, .threads = 1, .build = build_count};
    tutti_tensor_t *in[MANY], *out[MANY];
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build_count(rig.ctx, NULL, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        in[i] = tutti_arange(rig.s, TUTTI_F32, i, 1, 2);
        assert_int_equal(tutti_tensor_set_requires_grad(in[i], true), TUTTI_OK);
    }
    tutti_forward_many(rig.s, rig.model, in, MANY, out, MANY);
    tutti_tensor_t *loss = tutti_sum(rig.s, tutti_cat(rig.s, out, MANY, 0));
    assert_int_equal(tutti_backward(rig.s, loss), TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        assert_float_equal(tutti_tensor_at(out[i], 1), (i + 1) * (i + 1), 0);
        assert_float_equal(tutti_tensor_at(tutti_tensor_grad(in[i]), 0), i + 1, 0);
    }
    close_rig(&rig);
}

/* ---- parameters that not every replica uses -------------------------------------------------- */

/* y = x a, and + x b where x[0] is positive; c is never used. All times the last
 * element of a buffer, d, of ones. */
enum { WIDE = 9 };

typedef struct {
    tutti_tensor_t *a, *b, *c, *d;
} picky_t;

static tutti_status_t picky_init(tutti_module_t *m, const void *options)
{
    (void)options;
    picky_t *picky = tutti_module_state(m);
    const tutti_init_t ones = {TUTTI_INIT_CONSTANT, 1, 0};
    TUTTI_CHECK(tutti_module_new_parameter(m, "a", TUTTI_SHAPE(1), ones, &picky->a));
    TUTTI_CHECK(tutti_module_new_parameter(m, "b", TUTTI_SHAPE(1), ones, &picky->b));
    TUTTI_CHECK(tutti_module_new_parameter(m, "c", TUTTI_SHAPE(1), ones, &picky->c));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(WIDE), &picky->d));
    const tutti_status_t status = tutti_module_add_buffer(m, "d", picky->d);
    tutti_tensor_release(picky->d); /* the module's, or gone */
    return status < 0 ? status : tutti_tensor_fill(picky->d, 1);
}

static tutti_tensor_t *picky_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const picky_t *picky = tutti_module_state(m);
    tutti_tensor_t *last = tutti_select(s, picky->d, 0, WIDE - 1);
    tutti_tensor_t *y = tutti_mul(s, tutti_mul(s, x, picky->a), last);
    return tutti_tensor_at(x, 0) > 0 ? tutti_add(s, y, tutti_mul(s, x, picky->b)) : y;
}

static tutti_status_t build_picky(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    static const tutti_module_ops_t ops = {.name = "picky",
                                           .state_bytes = sizeof(picky_t),
                                           .init = picky_init,
                                           .forward = picky_forward};
    (void)user;
    return tutti_module_create(ctx, &ops, NULL, out);
}

static void count_call(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    ++*(int *)user;
}

static rig_t open_picky(int replicas)
{
    rig_t rig;
    const tutti_context_options_t context = {.threads = 1};
    const tutti_data_parallel_options_t options = {
        .replicas = replicas, .threads = 1, .build = build_picky};
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build_picky(rig.ctx, NULL, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
    return rig;
}

/* Replicas 2 and 4 of five use b. */
static tutti_tensor_t *picky_sum(rig_t *rig)
{
    static const float values[] = {-1, -2, 4, -8, 0.5F};
    tutti_tensor_t *x = tutti_from_data(rig->s, TUTTI_F32, TUTTI_SHAPE(5), values);
    return tutti_sum(rig->s, tutti_forward(rig->s, rig->model, x));
}

static void parameters_get_gradients_from_the_replicas_that_use_them(void **state)
{
    (void)state;
    rig_t rig = open_picky(5);
    int calls = 0;
    tutti_tensor_t *a = tutti_module_find(rig.module, "a"), *b = tutti_module_find(rig.module, "b");
    assert_int_equal(tutti_tensor_on_accumulate(a, count_call, &calls), TUTTI_OK);
    assert_int_equal(tutti_backward(rig.s, picky_sum(&rig)), TUTTI_OK);
    assert_float_equal(tutti_tensor_item(tutti_tensor_grad(a)), -6.5, 0);
    assert_float_equal(tutti_tensor_item(tutti_tensor_grad(b)), 4.5, 0);
    assert_null(tutti_tensor_grad(tutti_module_find(rig.module, "c")));
    assert_int_equal(calls, 1);
    close_rig(&rig);
}

/* Or its backward would find that what it saved was written since. */
static void a_buffer_is_copied_only_if_it_changed(void **state)
{
    (void)state;
    rig_t rig = open_picky(5);
    tutti_tensor_t *first = picky_sum(&rig), *second = picky_sum(&rig);
    assert_int_equal(tutti_backward(rig.s, first), TUTTI_OK);
    assert_int_equal(tutti_backward(rig.s, second), TUTTI_OK);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(rig.module, "d"), 2), TUTTI_OK);
    assert_float_equal(tutti_tensor_item(picky_sum(&rig)), 2 * -6.5 + 4.5, 0);
    float *d = tutti_tensor_data(tutti_module_find(rig.module, "d"));
    d[WIDE - 1] = 3; /* and nothing else */
    assert_float_equal(tutti_tensor_item(picky_sum(&rig)), 3 * -6.5 + 4.5, 0);
    close_rig(&rig);
}

/* ---- wrapping that fails --------------------------------------------------------------------- */

static tutti_status_t build_nothing(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    (void)ctx, (void)user, (void)out;
    return TT_FAIL(TUTTI_ERR_IO, "nothing to build from");
}

static void wrapping_says_what_is_wrong(void **state)
{
    (void)state;
    plan_t wider = {.hidden = 7}, deeper = {.layers = 1};
    const struct {
        tutti_data_parallel_options_t options;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {{.replicas = 0}, TUTTI_ERR_ARG, "0 replicas: want 1 to 63"},
        {{.replicas = 64, .build = build}, TUTTI_ERR_ARG, "64 replicas: want 1 to 63"},
        {{.replicas = 2}, TUTTI_ERR_ARG, "options.build, which makes them, is missing"},
        {{.replicas = 2, .threads = -1, .build = build}, TUTTI_ERR_ARG, "-1 threads"},
        {{.replicas = 2, .threads = 1, .build = build, .user = &wider},
         TUTTI_ERR_MISMATCH,
         "parameter 0 of replica 0 is \"0.weight\" f32[7, 10], but \"0.weight\" f32[19, 10]"},
        {{.replicas = 2, .threads = 1, .build = build, .user = &deeper},
         TUTTI_ERR_MISMATCH,
         "parameter 2 of replica 0"},
        {{.replicas = 2, .threads = 1, .build = build_nothing}, TUTTI_ERR_IO, "nothing to build"},
    };
    rig_t rig = open_rig(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_module_t *model = NULL;
        assert_int_equal(tutti_data_parallel_create(rig.module, &cases[i].options, &model),
                         cases[i].status);
        tt_expect_error(cases[i].text);
        assert_null(model);
    }
    assert_int_equal(tutti_data_parallel_replicate(rig.module), TUTTI_ERR_ARG);
    tt_expect_error("a module of kind sequential was passed");
    close_rig(&rig);
}

static void wrap_sync_batch_norm(tt_member_t *member)
{
    tutti_context_t *ctx;
    tutti_module_t *norm, *model;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = 3}, .group = member->group};
    TT_EXPECT(member, tutti_context_create(NULL, &ctx) == TUTTI_OK);
    TT_EXPECT(member,
              tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm) == TUTTI_OK);
    const tutti_data_parallel_options_t two = {.replicas = 2, .build = build};
    TT_EXPECT(member, tutti_data_parallel_create(norm, &two, &model) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(member, strstr(tutti_last_error(), "the module is a sync_batch_norm") != NULL);
    tutti_module_release(norm);
    tutti_context_release(ctx);
}

static void sync_batch_norm_is_refused(void **state)
{
    (void)state;
    tt_team_expect(1, 20000, wrap_sync_batch_norm, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_inputs_and_results_are_cut_and_put_together),
        cmocka_unit_test(a_backward_that_failed_leaves_no_gradient),
        cmocka_unit_test(the_last_dimension_is_each_tensors_own),
        cmocka_unit_test(a_failure_names_its_replica),
        cmocka_unit_test(a_failure_in_backward_names_its_replica),
        cmocka_unit_test(inputs_that_cannot_be_cut_are_named),
        cmocka_unit_test(any_number_of_inputs_and_outputs_is_cut_and_put_together),
        cmocka_unit_test(parameters_get_gradients_from_the_replicas_that_use_them),
        cmocka_unit_test(a_buffer_is_copied_only_if_it_changed),
        cmocka_unit_test(wrapping_says_what_is_wrong),
        cmocka_unit_test(sync_batch_norm_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
