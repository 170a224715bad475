/* Heads of large vocabularies, and fractional max pooling, where PyTorch's samples do not reach:
 * what they refuse, what is drawn, and functions of modules. */
#include <math.h>

#include "compute/autograd/op_testing.h"
#include "compute/nn/module_impl.h"

static tutti_module_t *make(fixture_t *f, const tutti_module_ops_t *ops, const void *options)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, ops, options, &m), 0);
    return m;
}

static void expect_failure(fixture_t *f, const tutti_module_ops_t *ops, const void *options,
                           const char *text)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, ops, options, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), text));
}

/* ---- adaptive_log_softmax -------------------------------------------------------------------- */

static const tutti_adaptive_log_softmax_options_t clusters = {
    .in = 16, .classes = 12, .cutoffs = {4, 9}, .has_bias = true};

static void probabilities_of_all_classes_add_up_to_one(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, &tutti_adaptive_log_softmax_layer, &clusters);
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(2, 6, 16), 0, 1);
    tutti_tensor_t *logs = tutti_adaptive_log_prob(f->s, m, x);
    tutti_tensor_t *sums = tutti_sum_over(f->s, tutti_exp(f->s, logs), TUTTI_DIMS(-1), false);
    assert_true(tutti_shape_equal(tutti_tensor_shape(sums), TUTTI_SHAPE(2, 6)));
    for (int i = 0; i < 12; i++) {
        assert_true(fabs(tutti_tensor_at(sums, i) - 1) < 1e-5);
    }
    tutti_module_release(m);
}

/* One target of each class: the output is that of the whole, and its mean the loss. */
static void outputs_are_those_of_all_classes(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_module_t *m = make(f, &tutti_adaptive_log_softmax_layer, &clusters);
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(12, 16), 0, 1), *out[2];
    tutti_tensor_t *targets = tutti_arange(s, TUTTI_I32, 11, -1, 12);
    tutti_forward_many(s, m, (tutti_tensor_t *[]){x, targets}, 2, out, 2);
    tutti_tensor_t *logs = tutti_adaptive_log_prob(s, m, x);
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        const double want = tutti_tensor_at(logs, 12 * i + 11 - i);
        assert_true(fabs(tutti_tensor_at(out[0], i) - want) < 1e-5);
        sum += want;
    }
    assert_true(fabs(tutti_tensor_item(out[1]) + sum / 12) < 1e-5);
    tutti_module_release(m);
}

static tutti_status_t count_rows(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    *(int64_t *)user += tutti_tensor_numel(call->inputs[0]) / clusters.in;
    return TUTTI_OK;
}

/* How many rows clusters were computed for, of those that are predicted. */
static int64_t expect_likeliest(fixture_t *f, tutti_module_t *m, tutti_tensor_t *x, int *rare)
{
    tutti_scope_t *s = f->s;
    const tutti_module_hooks_t hooks = {.before_forward = count_rows};
    const tutti_tensor_t *want = tutti_argmax(s, tutti_adaptive_log_prob(s, m, x), -1, false);
    int64_t rows = 0;
    tutti_module_t *tail = m->children[1].module->children[1].module /* "tail.1" */;
    assert_int_equal(tutti_module_add_hooks(tail, &hooks, &rows), 0);
    const tutti_tensor_t *got = tutti_adaptive_predict(s, m, x);
    tutti_module_remove_hooks(tail, &rows);
    assert_int_equal(tutti_scope_status(s), 0);
    assert_int_equal(tutti_tensor_dtype(got), TUTTI_I64);
    assert_true(tutti_shape_equal(tutti_tensor_shape(got), tutti_tensor_shape(want)));
    for (int64_t i = 0; i < tutti_tensor_numel(want); i++) {
        assert_true(tutti_tensor_at(got, i) == tutti_tensor_at(want, i));
        *rare += tutti_tensor_at(want, i) >= clusters.cutoffs[0];
    }
    return rows;
}

/* Clusters are computed for rows alone whose best entry of the head is one. */
static void the_likeliest_class_is_predicted(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_module_t *m = make(f, &tutti_adaptive_log_softmax_layer, &clusters);
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2, 20, 16), 0, 5);
    int rare = 0;
    const int64_t rows = expect_likeliest(f, m, x, &rare);
    assert_in_range(rare, 1, 39);
    assert_in_range(rows, rare, 39);
    (void)expect_likeliest(f, m, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(0, 16)), &rare);
    (void)expect_likeliest(f, m, tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(16), 0, 5), &rare);
    tutti_tensor_t *bias = tutti_module_find(m, "head.bias");
    for (int at = 0; at < 2; at++) { /* a class of the head always, or a cluster */
        double values[6] = {0};
        values[at == 0 ? 2 : 5] = 1e6;
        tutti_tensor_t *begin = tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(6), values);
        assert_int_equal(tutti_tensor_copy(bias, begin), 0);
        assert_int_equal(expect_likeliest(f, m, x, &rare), at * 40);
    }
    tutti_module_release(m);
}

static void targets_outside_and_wrong_cutoffs_are_refused(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, &tutti_adaptive_log_softmax_layer, &clusters);
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 16)), *out[2];
    tutti_tensor_t *targets = tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){3, 12});
    tutti_forward_many(f->s, m, (tutti_tensor_t *[]){x, targets}, 2, out, 2);
    assert_int_equal(tutti_scope_status(f->s), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_scope_error(f->s),
                           "adaptive_log_softmax: target 1 is 12, outside the 12 classes"));
    tutti_module_release(m);
    expect_failure(
        f, &tutti_adaptive_log_softmax_layer,
        &(tutti_adaptive_log_softmax_options_t){.in = 4, .classes = 5, .cutoffs = {3, 3}},
        "cutoff 1 is 3: they must rise, in [1, 5)");
    expect_failure(f, &tutti_adaptive_log_softmax_layer,
                   &(tutti_adaptive_log_softmax_options_t){.in = 4, .classes = 5, .cutoffs = {5}},
                   "cutoff 0 is 5: they must rise, in [1, 5)");
    expect_failure(
        f, &tutti_adaptive_log_softmax_layer,
        &(tutti_adaptive_log_softmax_options_t){.in = 8, .classes = 100, .cutoffs = {10, 20}},
        "cluster 2 of 2 would have 0 features, 8 / 4^2: choose another div_value, fewer");
}

static void log_prob_of_another_module_is_refused(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, &tutti_linear_layer, &(tutti_linear_options_t){.in = 2, .out = 3});
    (void)tutti_adaptive_predict(f->s, m, tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(1, 2)));
    assert_non_null(strstr(tutti_scope_error(f->s), "want an adaptive_log_softmax, not a linear"));
    tutti_module_release(m);
}

static void a_head_without_classes_is_refused(void **state)
{
    expect_failure(*state, &tutti_linear_cross_entropy_layer,
                   &(tutti_linear_cross_entropy_layer_options_t){.in = 3},
                   "in 3, classes 0: both must be at least 1");
}

/* 3 times this size is 2 in 64 bits. */
static void a_head_of_more_outputs_than_can_be_counted_is_refused(void **state)
{
    const tutti_linear_cross_entropy_layer_options_t wrapped = {
        .in = 3, .classes = 3, .sizes = {INT64_MAX / 3 * 2 + 2}};
    expect_failure(*state, &tutti_linear_cross_entropy_layer, &wrapped,
                   "in 3, classes 3: both must be at least 1");
}

/* ---- fractional max pooling ------------------------------------------------------------------ */

static const tutti_fractional_pool_options_t halves = {.kernel = {2, 2, 2},
                                                       .ratio = {0.5, 0.5, 0.5}};

/* Drawn in a context of so many threads; the values are their places. */
static tutti_tensor_t *pool_places(tutti_scope_t *s, tutti_tensor_t **indices)
{
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, 0, 1, 3 * 9 * 8);
    x = tutti_reshape(s, x, TUTTI_SHAPE(3, 9, 8));
    return tutti_fractional_max_pool2d(s, x, NULL, &halves, indices);
}

static void maxima_stand_at_their_indices(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *indices, *y = pool_places(f->s, &indices);
    assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(3, 4, 4)));
    for (int i = 0; i < 3 * 4 * 4; i++) {
        assert_true(tutti_tensor_at(y, i) == tutti_tensor_at(indices, i) + (double)(i / 16 * 72));
        const bool is_last = i % 16 == 15;
        assert_true(!is_last || tutti_tensor_at(indices, i) == 71);
    }
}

static void planes_draw_windows_of_their_own_on_any_number_of_threads(void **state)
{
    (void)state;
    double seen[3 * 16];
    bool differ = false;
    for (int threads = 1; threads <= 3; threads++) {
        tutti_context_t *ctx;
        tutti_scope_t *s;
        assert_int_equal(
            tt_test_context(&(tutti_context_options_t){.threads = threads, .seed = 5}, &ctx), 0);
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        tutti_tensor_t *indices;
        (void)pool_places(s, &indices);
        for (int i = 0; i < 3 * 16; i++) {
            const double at = tutti_tensor_at(indices, i);
            assert_true(threads == 1 || at == seen[i]);
            seen[i] = at;
            differ = differ || (i >= 16 && at != seen[i - 16]);
        }
        (void)tutti_scope_close(s);
        tutti_context_release(ctx);
    }
    assert_true(differ);
}

static void windows_that_do_not_fit_are_refused(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(1, 4, 4, 4));
    const tutti_fractional_pool_options_t large = {.kernel = {2, 2, 2}, .size = {4, 2, 2}};
    (void)tutti_fractional_max_pool3d(f->s, x, NULL, &large, NULL);
    assert_int_equal(tutti_scope_status(f->s), TUTTI_ERR_SHAPE);
    assert_non_null(strstr(tutti_scope_error(f->s),
                           "fractional_max_pool3d: 4 windows of 2 do not fit into 4 elements"));
}

static void samples_are_one_for_each_dimension_of_a_plane(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3, 4, 4));
    tutti_tensor_t *samples = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    (void)tutti_fractional_max_pool2d(f->s, x, samples, &halves, NULL);
    assert_non_null(
        strstr(tutti_scope_error(f->s), "want 2 floating samples for each of 6 planes"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(probabilities_of_all_classes_add_up_to_one),
        TEST(outputs_are_those_of_all_classes),
        TEST(the_likeliest_class_is_predicted),
        TEST(targets_outside_and_wrong_cutoffs_are_refused),
        TEST(log_prob_of_another_module_is_refused),
        TEST(a_head_without_classes_is_refused),
        TEST(a_head_of_more_outputs_than_can_be_counted_is_refused),
        TEST(maxima_stand_at_their_indices),
        TEST(planes_draw_windows_of_their_own_on_any_number_of_threads),
        TEST(windows_that_do_not_fit_are_refused),
        TEST(samples_are_one_for_each_dimension_of_a_plane),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
