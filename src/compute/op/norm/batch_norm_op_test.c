/* Batch norm with residual and relu: the bits of three operations, forward and backward. */
#include "core/tensor/scope_testing.h"

#include <math.h>
#include <string.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

enum { X, WEIGHT, BIAS, RESIDUAL, INPUTS };

static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_F64};
/* Segments in order, with and without an end that fills no vector; channels that are put first. */
static const tutti_shape_t shapes[] = {{3, {3, 4, 32}}, {4, {2, 3, 7, 7}}, {2, {9, 5}}};

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 2, .seed = 7});
}

typedef struct {
    bool relu, has_residual, is_fused;
} way_t;

static tutti_tensor_t *run(tutti_scope_t *s, tutti_tensor_t *const *in, way_t way)
{
    const tutti_shape_t channels = tutti_tensor_shape(in[WEIGHT]);
    tutti_batch_norm_options_t options = {.running_mean = tutti_full(s, TUTTI_F32, channels, 0.25),
                                          .running_var = tutti_full(s, TUTTI_F32, channels, 2)};
    if (way.is_fused) {
        options.residual = way.has_residual ? in[RESIDUAL] : NULL;
        options.relu = way.relu;
        return tutti_batch_norm(s, in[X], in[WEIGHT], in[BIAS], &options);
    }
    tutti_tensor_t *y = tutti_batch_norm(s, in[X], in[WEIGHT], in[BIAS], &options);
    y = way.has_residual ? tutti_add(s, y, in[RESIDUAL]) : y;
    return way.relu ? tutti_relu(s, y) : y;
}

static void expect_same(const char *what, tutti_tensor_t *got, tutti_tensor_t *want)
{
    assert_int_equal(tutti_tensor_dtype(got), tutti_tensor_dtype(want));
    assert_true(tutti_shape_equal(tutti_tensor_shape(got), tutti_tensor_shape(want)));
    if (memcmp(tt_test_host(got), tt_test_host(want), tutti_tensor_bytes(want)) != 0) {
        fail_msg("%s differs", what);
    }
}

/* wanted: a bit for each input. */
static void compare(tutti_scope_t *s, tutti_tensor_t *const *in, way_t way, unsigned wanted)
{
    static const char *const names[] = {"dx", "dweight", "dbias", "dresidual"};
    tutti_tensor_t *y[2], *grads[2][INPUTS], *xs[INPUTS];
    const char *name[INPUTS];
    int count = 0;
    for (int i = 0; i < INPUTS; i++) {
        if ((wanted >> i & 1) != 0 && (i != RESIDUAL || way.has_residual)) {
            name[count] = names[i];
            xs[count++] = in[i];
        }
    }
    for (int fused = 0; fused < 2; fused++) {
        way.is_fused = fused != 0;
        y[fused] = run(s, in, way);
        assert_int_equal(tutti_tensor_status(y[fused]), TUTTI_OK);
        const tutti_backward_options_t options = {.grad_output = in[INPUTS]};
        if (count > 0) {
            assert_int_equal(tutti_grad(s, y[fused], &options, xs, count, grads[fused]), TUTTI_OK);
        }
    }
    expect_same("y", y[1], y[0]);
    for (int i = 0; i < count; i++) {
        expect_same(name[i], tutti_contiguous(s, grads[1][i]), tutti_contiguous(s, grads[0][i]));
    }
}

static void compare_shape(tt_fixture_t *f, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *in[INPUTS + 1];
    for (int i = 0; i <= INPUTS; i++) {
        const bool is_vector = i == WEIGHT || i == BIAS;
        in[i] = tutti_normal(f->s, is_vector ? TUTTI_F32 : dtype,
                             is_vector ? TUTTI_SHAPE(shape.dims[1]) : shape, 0.5, 1);
        assert_int_equal(tutti_tensor_set_requires_grad(in[i], i < INPUTS), TUTTI_OK);
    }
    for (unsigned which = 0; which < 4 << INPUTS; which++) {
        tutti_scope_t *inner;
        assert_int_equal(tutti_scope_open_inside(f->s, &inner), TUTTI_OK);
        compare(inner, in, (way_t){.relu = which & 1, .has_residual = (which & 2) != 0},
                which >> 2);
        assert_int_equal(tutti_scope_close(inner), TUTTI_OK);
    }
}

static void residual_and_relu_have_the_bits_of_three_operations(void **state)
{
    tt_fixture_t *f = *state;
    for (int training = 0; training < 2; training++) {
        tutti_context_set_training(f->ctx, training != 0);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                compare_shape(f, dtypes[d], shapes[i]);
            }
        }
    }
}

/* As relu's own slope: NaN is not below 0. */
static void a_gradient_passes_where_the_result_is_nan(void **state)
{
    tt_fixture_t *f = *state;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const tutti_shape_t shape = shapes[i / 2];
        tutti_tensor_t *x = tutti_normal(f->s, TUTTI_BF16, shape, 0, 1), *dresidual;
        tutti_tensor_t *residual = tutti_full(f->s, TUTTI_BF16, shape, (double)NAN);
        assert_int_equal(tutti_tensor_set_requires_grad(residual, true), TUTTI_OK);
        const tutti_batch_norm_options_t norm = {.residual = residual, .relu = true};
        tutti_tensor_t *y = tutti_batch_norm(f->s, x, NULL, NULL, &norm);
        const tutti_backward_options_t options = {.grad_output = x, .create_graph = i % 2 != 0};
        assert_int_equal(tutti_grad(f->s, y, &options, &residual, 1, &dresidual), TUTTI_OK);
        expect_same("dresidual", tutti_contiguous(f->s, dresidual), x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(residual_and_relu_have_the_bits_of_three_operations, setup,
                                        tt_fixture_close),
        cmocka_unit_test_setup_teardown(a_gradient_passes_where_the_result_is_nan, setup,
                                        tt_fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
