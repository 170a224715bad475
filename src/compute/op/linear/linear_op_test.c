/* What autocast does: dtypes of results and gradients, where rounding happens and where not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/device_testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    (void)tutti_context_set_autocast(f.ctx, TUTTI_BF16);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_scope_close(f->s), TUTTI_OK);
    tutti_context_release(f->ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return 0;
}

static tutti_tensor_t *leaf(fixture_t *f, tutti_shape_t shape)
{
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, shape, 0, 1);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    return x;
}

static void inputs_of_two_dtypes_have_gradients(void **state)
{
    fixture_t *f = *state;
    (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
    for (int gelu = 0; gelu < 2; gelu++) {
        tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(2, 3));
        tutti_tensor_t *w = leaf(f, TUTTI_SHAPE(4, 3)), *b = leaf(f, TUTTI_SHAPE(4));
        tutti_tensor_t *y =
            gelu ? tutti_linear_gelu(f->s, x, w, b, TUTTI_GELU_ERF) : tutti_linear(f->s, x, w, b);
        assert_int_equal(tutti_tensor_dtype(y), TUTTI_F64);
        assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), TUTTI_OK);
        assert_int_equal(tutti_tensor_dtype(tutti_tensor_grad(w)), TUTTI_F32);
        assert_true(gelu || tutti_tensor_at(tutti_tensor_grad(w), 11) == 2);
        assert_true(gelu || tutti_tensor_at(tutti_tensor_grad(b), 3) == 2);
    }
}

static bool is_bf16(double x)
{
    int exponent;
    const double mantissa = frexp(x, &exponent) * 256;
    return mantissa == floor(mantissa);
}

static int64_t count_of_bf16(const tutti_tensor_t *x)
{
    int64_t count = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        count += is_bf16(tutti_tensor_at(x, i));
    }
    return count;
}

static void autocast_makes_products_and_norms_bf16_and_losses_f32(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = leaf(f, TUTTI_SHAPE(2, 3, 12)), *w = leaf(f, TUTTI_SHAPE(12, 12));
    tutti_tensor_t *targets = tutti_zeros(f->s, TUTTI_I64, TUTTI_SHAPE(2, 3));
    tutti_tensor_t *y = tutti_linear(f->s, x, w, NULL);
    assert_int_equal(tutti_tensor_dtype(y), TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(tutti_linear_gelu(f->s, x, w, NULL, TUTTI_GELU_ERF)),
                     TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(tutti_matmul(f->s, x, w)), TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(tutti_attention_qkv(f->s, x, 2, NULL)), TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(tutti_layer_norm(f->s, x, NULL, NULL, 0)), TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(tutti_rms_norm(f->s, x, NULL, 0)), TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(tutti_softmax(f->s, y, -1)), TUTTI_F32);
    assert_int_equal(tutti_tensor_dtype(tutti_cross_entropy(f->s, y, targets)), TUTTI_F32);
    assert_int_equal(tutti_tensor_dtype(tutti_embedding(f->s, targets, w)), TUTTI_F32);
}

/* 64 products of bf16 values: their sum is in f32 for the weight, and no bf16 number then. */
static void gradients_of_f32_weights_are_not_rounded_to_bf16(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = leaf(f, TUTTI_SHAPE(64, 16)), *w = leaf(f, TUTTI_SHAPE(8, 16)),
                   *b = leaf(f, TUTTI_SHAPE(8));
    tutti_tensor_t *y = tutti_linear(f->s, x, w, b);
    const tutti_backward_options_t options = {
        .grad_output = tutti_normal(f->s, TUTTI_BF16, TUTTI_SHAPE(64, 8), 0, 1)};
    assert_int_equal(tutti_backward_with(f->s, y, &options), TUTTI_OK);
    tutti_tensor_t *const grads[] = {tutti_tensor_grad(w), tutti_tensor_grad(b),
                                     tutti_tensor_grad(x)};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tutti_tensor_dtype(grads[i]), TUTTI_F32);
        assert_true(count_of_bf16(grads[i]) * 4 < tutti_tensor_numel(grads[i]));
    }
}

static void autocast_leaves_f64_alone(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(2, 3));
    assert_int_equal(tutti_tensor_dtype(tutti_linear(f->s, x, x, NULL)), TUTTI_F64);
    assert_int_equal(tutti_tensor_dtype(tutti_layer_norm(f->s, x, NULL, NULL, 0)), TUTTI_F64);
}

/* Rows that are evenly spaced are multiplied in place: y is the only memory taken. */
static void sliced_rows_are_not_copied(void **state)
{
    fixture_t *f = *state;
    (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
    (void)tutti_context_set_grad_enabled(f->ctx, false);
    tutti_tensor_t *wide = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(128, 512));
    tutti_tensor_t *x = tutti_slice(f->s, wide, 1, TUTTI_RANGE(3, 259));
    tutti_tensor_t *w = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(16, 256));
    const size_t before = tt_device_stats(f->ctx->place.device).requests;
    assert_int_equal(tutti_tensor_status(tutti_linear(f->s, x, w, NULL)), TUTTI_OK);
    assert_int_equal(tt_device_stats(f->ctx->place.device).requests - before, 1);
}

static void bytes_are_to_be_cast(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_U8, TUTTI_SHAPE(2, 3));
    (void)tutti_linear(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 3)), NULL);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_DTYPE);
    tt_expect_error("linear: input 0 must be of a floating dtype, which tutti_cast() gives it: "
                    "u8[2, 3]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inputs_of_two_dtypes_have_gradients, setup, teardown),
        cmocka_unit_test_setup_teardown(autocast_makes_products_and_norms_bf16_and_losses_f32,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_of_f32_weights_are_not_rounded_to_bf16, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(autocast_leaves_f64_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(sliced_rows_are_not_copied, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_are_to_be_cast, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
