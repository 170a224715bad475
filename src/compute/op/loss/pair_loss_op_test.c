/* Losses of pairs, where their numbers are few. */
#include "core/base/testing.h"

#include <tutti/autograd.h>
#include <tutti/op_loss.h>
#include <tutti/tensor.h>

/* t (log t - x) of t = 1 is -x. */
static void expect_divergence(tutti_context_t *ctx, tutti_shape_t shape, double want)
{
    static const float logs[] = {-1, -2, -3, -6};
    const tutti_kl_div_options_t options = {.batch_mean = true};
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_F32, shape, logs);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *loss = tutti_kl_div(s, x, tutti_ones(s, TUTTI_F32, shape), &options);
    assert_float_equal(tutti_tensor_item(loss), want, 0);
    assert_int_equal(tutti_backward(s, loss), 0);
    assert_float_equal(tutti_tensor_at(tutti_tensor_grad(x), 0),
                       shape.rank == 0 ? -1 : -1 / (double)shape.dims[0], 0);
    assert_int_equal(tutti_scope_close(s), 0);
}

/* As torch.nn.functional.kl_div(..., reduction='batchmean') counts; a scalar is one. */
static void a_mean_over_the_batch_divides_by_the_first_size(void **state)
{
    tutti_context_t *ctx;
    (void)state;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    expect_divergence(ctx, TUTTI_SCALAR, 1);
    expect_divergence(ctx, TUTTI_SHAPE(4), 3);
    expect_divergence(ctx, TUTTI_SHAPE(2, 2), 6);
    expect_divergence(ctx, TUTTI_SHAPE(1, 4), 12);
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_over_the_batch_divides_by_the_first_size),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
