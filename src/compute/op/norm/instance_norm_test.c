/* Instance norm: running statistics against sums by hand, evaluation by them, samples without a
 * batch, and what is refused. PyTorch's values: tests/golden. */
#include <math.h>

#include <tutti/averaged.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>

#include "compute/autograd/op_testing.h"

enum { N = 3, C = 2, L = 5 };

static tutti_module_t *make(fixture_t *f, const tutti_instance_norm_options_t *options)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &tutti_instance_norm_layer, options, &m), 0);
    return m;
}

static tutti_tensor_t *numbers(fixture_t *f)
{
    return tutti_normal(f->s, TUTTI_F64, TUTTI_SHAPE(N, C, L), 2, 3);
}

/* Means over samples of a channel's mean and variance, the latter of a sample. */
static void measure(const tutti_tensor_t *x, int channel, double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int n = 0; n < N; n++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < L; i++) {
            sum += tutti_tensor_at(x, (n * C + channel) * L + i) / L;
        }
        for (int i = 0; i < L; i++) {
            const double off = tutti_tensor_at(x, (n * C + channel) * L + i) - sum;
            squares += off * off / (L - 1);
        }
        *mean += sum / N;
        *variance += squares / N;
    }
}

static void expect_running(tutti_module_t *m, const tutti_tensor_t *x, double momentum)
{
    for (int c = 0; c < C; c++) {
        double mean, variance;
        measure(x, c, &mean, &variance);
        const double got_mean = tutti_tensor_at(tutti_module_find(m, "running_mean"), c);
        const double got = tutti_tensor_at(tutti_module_find(m, "running_var"), c);
        assert_true(fabs(got_mean - momentum * mean) < 1e-6);
        assert_true(fabs(got - (1 - momentum + momentum * variance)) < 1e-6);
    }
}

static void running_statistics_move_towards_means_over_samples(void **state)
{
    fixture_t *f = *state;
    const double momenta[] = {0, 0.25, TUTTI_ZERO};
    for (int i = 0; i < 3; i++) {
        tutti_module_t *m = make(f, &(tutti_instance_norm_options_t){
                                        .width = C, .running = true, .momentum = momenta[i]});
        tutti_tensor_t *x = numbers(f);
        tutti_tensor_t *y = tutti_forward(f->s, m, x);
        expect_running(m, x, i == 0 ? 0.1 : i == 1 ? 0.25 : 0);
        assert_true(tutti_tensor_at(tutti_module_find(m, "num_batches_tracked"), 0) == 0);
        tutti_tensor_t *plain = tutti_group_norm(f->s, x, C, NULL, NULL, 0);
        for (int k = 0; k < N * C * L; k++) {
            assert_true(tutti_tensor_at(y, k) == tutti_tensor_at(plain, k));
        }
        tutti_module_release(m);
    }
}

static void they_move_once_where_forward_is_run_again(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m =
        make(f, &(tutti_instance_norm_options_t){.width = C, .running = true, .affine = true});
    tutti_tensor_t *x = numbers(f);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *y = tutti_recompute(f->s, m, x);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_square(f->s, y))), 0);
    expect_running(m, x, 0.1);
    tutti_module_release(m);
}

static void evaluation_takes_the_running_ones(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, &(tutti_instance_norm_options_t){.width = C, .running = true});
    tutti_tensor_t *x = numbers(f), *mean = tutti_module_find(m, "running_mean");
    assert_int_equal(tutti_tensor_fill(mean, 2), 0);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(m, "running_var"), 4), 0);
    tutti_context_set_training(f->ctx, false);
    tutti_tensor_t *y = tutti_forward(f->s, m, x);
    for (int k = 0; k < N * C * L; k++) {
        const double want = (tutti_tensor_at(x, k) - 2) / sqrt(4 + 1e-5);
        assert_true(fabs(tutti_tensor_at(y, k) - want) < 1e-12);
    }
    assert_true(tutti_tensor_at(mean, 0) == 2);
    tutti_context_set_training(f->ctx, true);
    tutti_module_release(m);
}

/* They are no batch norm's: torch.optim.swa_utils.update_bn leaves them, too. */
static void norm_statistics_leave_them_alone(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, &(tutti_instance_norm_options_t){.width = C, .running = true});
    tutti_tensor_t *mean = tutti_module_find(m, "running_mean");
    assert_int_equal(tutti_tensor_fill(mean, 7), 0);
    assert_int_equal(tutti_norm_statistics_begin(m), 0);
    assert_true(tutti_tensor_at(mean, 0) == 7);
    assert_int_equal(tutti_norm_statistics_end(m), 0);
    tutti_module_release(m);
}

static void a_sample_needs_no_batch(void **state)
{
    fixture_t *f = *state;
    static const tutti_shape_t samples[] = {{.rank = 2, .dims = {C, 6}},
                                            {.rank = 3, .dims = {C, 2, 3}},
                                            {.rank = 4, .dims = {C, 1, 2, 3}}};
    for (int i = 0; i < 3; i++) {
        const tutti_instance_norm_options_t options = {
            .width = C, .spatial_dims = i + 1, .affine = true, .running = true};
        tutti_module_t *m = make(f, &options), *same = make(f, &options);
        tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, samples[i], 0, 1);
        tutti_tensor_t *y = tutti_forward(f->s, m, x);
        tutti_tensor_t *batch = tutti_forward(f->s, same, tutti_unsqueeze(f->s, x, 0));
        assert_int_equal(tutti_scope_status(f->s), 0);
        assert_true(tutti_shape_equal(tutti_tensor_shape(y), samples[i]));
        for (int k = 0; k < 6 * C; k++) {
            assert_true(tutti_tensor_at(y, k) == tutti_tensor_at(batch, k));
        }
        assert_true(tutti_tensor_at(tutti_module_find(m, "running_mean"), 1) ==
                    tutti_tensor_at(tutti_module_find(same, "running_mean"), 1));
        tutti_module_release(same);
        tutti_module_release(m);
    }
}

static void a_batch_without_values_moves_nothing(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, &(tutti_instance_norm_options_t){.width = C, .running = true});
    tutti_tensor_t *y = tutti_forward(f->s, m, tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(0, C, L)));
    assert_int_equal(tutti_tensor_numel(y), 0);
    assert_true(tutti_tensor_at(tutti_module_find(m, "running_mean"), 0) == 0);
    assert_true(tutti_tensor_at(tutti_module_find(m, "running_var"), 0) == 1);
    tutti_module_release(m);
}

typedef struct {
    tutti_instance_norm_options_t options;
    tutti_shape_t shape;
    const char *text;
} refused_t;

static void what_is_wrong_is_said(void **state)
{
    fixture_t *f = *state;
    const refused_t cases[] = {
        {{.width = 2}, TUTTI_SHAPE(4, 3, 5), "instance_norm: x must have 2 channels, [N, C, ...]"},
        {{.width = 2, .spatial_dims = 1}, TUTTI_SHAPE(3, 5), "2 channels, [N, C, L] or [C, L]"},
        {{.width = 2, .spatial_dims = 2}, TUTTI_SHAPE(2, 5), "[N, C, H, W] or [C, H, W]"},
        {{.width = 2, .running = true}, TUTTI_SHAPE(4, 2, 1), "one value has no variance"},
        {{.width = 2, .running = true, .momentum = 2}, TUTTI_SHAPE(4, 2, 3), "momentum must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_scope_t *s = open_scope_to_fail(f);
        tutti_module_t *m = make(f, &cases[i].options);
        (void)tutti_forward(s, m, tutti_ones(s, TUTTI_F32, cases[i].shape));
        close_failed_scope(s, cases[i].text);
        tutti_module_release(m);
    }
    tutti_module_t *m;
    const tutti_instance_norm_options_t four = {.width = 2, .spatial_dims = 4};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_instance_norm_layer, &four, &m),
                     TUTTI_ERR_ARG);
}

static void half_of_the_statistics_is_refused(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = open_scope_to_fail(f);
    const tutti_batch_norm_options_t options = {.running_mean =
                                                    tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2))};
    (void)tutti_instance_norm(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 2, 3)), NULL, NULL,
                              &options);
    assert_int_equal(tutti_scope_status(s), TUTTI_ERR_ARG);
    close_failed_scope(s, "give both running_mean and running_var");
}

/* In a scope of its own, with running statistics or without; those do not move. */
static void expect_refused(fixture_t *f, const tutti_spec_t *residual, bool running,
                           const char *text)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    const tutti_shape_t channels = TUTTI_SHAPE(C);
    const tutti_batch_norm_options_t options = {
        .running_mean = running ? tutti_zeros(s, TUTTI_F32, channels) : NULL,
        .running_var = running ? tutti_ones(s, TUTTI_F32, channels) : NULL,
        .residual = tutti_ones(s, residual->dtype, residual->shape)};
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(N, C, L));
    (void)tutti_instance_norm(s, x, NULL, NULL, &options);
    if (strstr(tutti_scope_error(s), text) == NULL) {
        fail_msg("%s: %s", text, tutti_scope_error(s));
    }
    assert_true(!running || tutti_tensor_at(options.running_mean, 0) == 0);
    assert_true(tutti_scope_close(s) < 0);
}

/* Also one that could be broadcast, or x to it. */
static void a_residual_that_is_not_as_x_is_refused(void **state)
{
    static const char dtype[] = "instance_norm: the residual must be of the dtype of x",
                      shape[] = "instance_norm: the residual must be of the shape of x";
    const tutti_spec_t specs[] = {{.dtype = TUTTI_F64, .shape = TUTTI_SHAPE(N, C, L)},
                                  {.dtype = TUTTI_BF16, .shape = TUTTI_SHAPE(N, C, L)},
                                  {.dtype = TUTTI_F32, .shape = TUTTI_SHAPE(C, 1)},
                                  {.dtype = TUTTI_F32, .shape = TUTTI_SHAPE(2, N, C, L)}};
    fixture_t *f = *state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const char *text = specs[i].dtype == TUTTI_F32 ? shape : dtype;
        expect_refused(f, &specs[i], true, text);
        expect_refused(f, &specs[i], false, text);
        tutti_context_set_training(f->ctx, false);
        expect_refused(f, &specs[i], true, text);
        tutti_context_set_training(f->ctx, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(running_statistics_move_towards_means_over_samples, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(they_move_once_where_forward_is_run_again, setup, teardown),
        cmocka_unit_test_setup_teardown(evaluation_takes_the_running_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(norm_statistics_leave_them_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sample_needs_no_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_without_values_moves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(half_of_the_statistics_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_residual_that_is_not_as_x_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
