/* Gradients of gradients: products with Hessians, penalties on gradients, steps through steps; what
 * is refused; and that nothing is left of them. That of each operation is op_conform_test's. */
#include "core/tensor/device_testing.h"

#include <math.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op.h>
#include <tutti/op_conv.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "core/tensor/tensor_impl.h"

static const tutti_backward_options_t recorded = {.create_graph = true};

static tutti_context_t *ctx;
static tutti_scope_t *s;

static int setup(void **state)
{
    (void)state;
    const tutti_context_options_t options = {.threads = 1, .seed = 5};
    assert_int_equal(tt_test_context(&options, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)tutti_scope_close(s);
    tutti_context_release(ctx);
    return 0;
}

static tutti_tensor_t *leaf(tutti_shape_t shape)
{
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F64, shape, 0, 1);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static void check(tutti_status_t status)
{
    if (status < 0) {
        fail_msg("%s", tutti_last_error());
    }
}

static tutti_tensor_t *grad_of(tutti_tensor_t *y, tutti_tensor_t *x)
{
    tutti_tensor_t *grad;
    check(tutti_grad(s, y, &recorded, &x, 1, &grad));
    return grad;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void the_third_derivative_of_a_power_and_a_sine_is_known(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(5));
    tutti_tensor_t *y = tutti_add(s, tutti_pow_scalar(s, x, 4), tutti_sin(s, x));
    for (int order = 0; order < 3; order++) {
        y = grad_of(tutti_sum(s, y), x);
        assert_true(tutti_tensor_requires_grad(y));
    }
    for (int64_t i = 0; i < 5; i++) {
        const double at = tutti_tensor_at(x, i);
        assert_true(fabs(tutti_tensor_at(y, i) - (24 * at - cos(at))) < 1e-12);
    }
}

/* Of Σ (A x)² the Hessian is 2 Aᵀ A. */
static void a_product_with_a_hessian_is_a_gradient_of_a_gradient(void **state)
{
    (void)state;
    tutti_tensor_t *a = tutti_normal(s, TUTTI_F64, TUTTI_SHAPE(4, 3), 0, 1),
                   *x = leaf(TUTTI_SHAPE(3)), *v = tutti_normal(s, TUTTI_F64, TUTTI_SHAPE(3), 0, 1),
                   *product;
    tutti_tensor_t *y = tutti_sum(s, tutti_square(s, tutti_matmul(s, a, x)));
    tutti_tensor_t *g = grad_of(y, x);
    check(tutti_grad(s, g, &(tutti_backward_options_t){.grad_output = v}, &x, 1, &product));
    tutti_tensor_t *want =
        tutti_mul_scalar(s, tutti_matmul(s, tutti_transpose(s, a, 0, 1), tutti_matmul(s, a, v)), 2);
    for (int64_t i = 0; i < 3; i++) {
        assert_true(fabs(tutti_tensor_at(product, i) - tutti_tensor_at(want, i)) < 1e-12);
    }
    assert_false(tutti_tensor_requires_grad(product));
}

/* in: x, W1, b1, W2. A critic's penalty: mean (|d critic / d x| - 1)², and the critic itself. */
static void critic_and_penalty(tutti_scope_t *in_scope, tutti_tensor_t *const *in,
                               tutti_tensor_t **out, void *user)
{
    (void)user;
    tutti_context_t *c = tutti_scope_context(in_scope);
    const bool was_enabled = tutti_context_set_grad_enabled(c, true);
    tutti_tensor_t *x = in[0], *slope;
    if (!tutti_tensor_requires_grad(x)) {
        x = tutti_detach(in_scope, x);
        (void)tutti_tensor_set_requires_grad(x, true);
    }
    tutti_tensor_t *h = tutti_tanh(in_scope, tutti_linear(in_scope, x, in[1], in[2]));
    tutti_tensor_t *y = tutti_sum(in_scope, tutti_linear(in_scope, h, in[3], NULL));
    if (tutti_grad(in_scope, y, &recorded, &x, 1, &slope) < 0) {
        slope = tutti_scope_fail(in_scope, tutti_scope_status(in_scope));
    }
    tutti_tensor_t *norm = tutti_sqrt(
        in_scope, tutti_sum_over(in_scope, tutti_square(in_scope, slope), TUTTI_DIMS(1), false));
    out[0] = tutti_add(
        in_scope, y,
        tutti_mean(in_scope, tutti_square(in_scope, tutti_sub_scalar(in_scope, norm, 1))));
    (void)tutti_context_set_grad_enabled(c, was_enabled);
}

static void a_penalty_on_a_gradient_has_the_gradients_of_differences(void **state)
{
    (void)state;
    tutti_tensor_t *in[] = {leaf(TUTTI_SHAPE(3, 4)), leaf(TUTTI_SHAPE(5, 4)), leaf(TUTTI_SHAPE(5)),
                            leaf(TUTTI_SHAPE(1, 5))};
    check(tutti_gradient_check(ctx, critic_and_penalty, NULL, in, 4, 1, NULL));
    check(tutti_gradient_check(ctx, critic_and_penalty, NULL, in, 4, 1,
                               &(tutti_gradient_check_options_t){.order = 2}));
}

/* in: w, x, t. A step of gradient descent on one task, then the loss of the stepped weights. */
static void step_and_loss(tutti_scope_t *in_scope, tutti_tensor_t *const *in, tutti_tensor_t **out,
                          void *user)
{
    (void)user;
    tutti_context_t *c = tutti_scope_context(in_scope);
    const bool was_enabled = tutti_context_set_grad_enabled(c, true);
    tutti_tensor_t *w = in[0];
    if (!tutti_tensor_requires_grad(w)) {
        w = tutti_detach(in_scope, w);
        (void)tutti_tensor_set_requires_grad(w, true);
    }
    for (int step = 0; step < 2; step++) {
        tutti_tensor_t *miss =
            tutti_sub(in_scope, tutti_sigmoid(in_scope, tutti_matmul(in_scope, in[1], w)), in[2]);
        tutti_tensor_t *loss = tutti_mean(in_scope, tutti_square(in_scope, miss)), *grad;
        if (tutti_grad(in_scope, loss, &recorded, &w, 1, &grad) < 0) {
            grad = tutti_scope_fail(in_scope, tutti_scope_status(in_scope));
        }
        w = tutti_sub(in_scope, w, tutti_mul_scalar(in_scope, grad, 0.5));
    }
    out[0] = tutti_sum(in_scope, tutti_square(in_scope, tutti_matmul(in_scope, in[1], w)));
    (void)tutti_context_set_grad_enabled(c, was_enabled);
}

static void steps_are_differentiated_through(void **state)
{
    (void)state;
    tutti_tensor_t *in[] = {leaf(TUTTI_SHAPE(3)), leaf(TUTTI_SHAPE(6, 3)), leaf(TUTTI_SHAPE(6))};
    check(tutti_gradient_check(ctx, step_and_loss, NULL, in, 3, 1, NULL));
}

/* ---- modules --------------------------------------------------------------------------------- */

typedef enum { KEPT, RECOMPUTED, PACKED } how_t;

static tutti_status_t pack(tutti_scope_t *in_scope, tutti_tensor_t *x, void *user, void **packed)
{
    (void)user;
    tutti_tensor_t *copy = tutti_clone(in_scope, x);
    TUTTI_CHECK(tutti_tensor_status(copy));
    *packed = tutti_tensor_retain(copy);
    return TUTTI_OK;
}

static tutti_tensor_t *unpack(tutti_scope_t *in_scope, void *packed, void *user)
{
    (void)in_scope, (void)user;
    return packed;
}

static void release_packed(void *packed, void *user)
{
    (void)user;
    tutti_tensor_release(packed);
}

static tutti_tensor_t *expect_f32(tutti_scope_t *in_scope, tutti_tensor_t *grad, void *user)
{
    (void)in_scope, (void)user;
    assert_int_equal(tutti_tensor_dtype(grad), TUTTI_F32);
    return NULL;
}

/* The gradients of a penalty on the slope of a transformer's block, with dropout, to its input and
 * its parameters: a digest of them. */
static double penalty_of_block(how_t how, tutti_dtype_t autocast)
{
    const tutti_transformer_block_options_t options = {
        .width = 8, .heads = 2, .causal = true, .dropout = 0.2F};
    const tutti_saved_hooks_t hooks = {pack, unpack, release_packed, NULL};
    tutti_module_t *block;
    ctx->random_calls = ctx->parameter_count = 0;
    check(tutti_module_create(ctx, &tutti_transformer_block_layer, &options, &block));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, 5, 8), -1, 1);
    tutti_tensor_t *weight = tutti_module_find(block, "qkv.weight"), *slope;
    check(tutti_tensor_set_requires_grad(x, true));
    check(tutti_tensor_on_grad(weight, expect_f32, NULL));
    (void)tutti_context_set_autocast(ctx, autocast);
    if (how == PACKED) {
        check(tutti_saved_hooks_push(ctx, &hooks));
    }
    tutti_tensor_t *y =
        how == RECOMPUTED ? tutti_recompute(s, block, x) : tutti_forward(s, block, x);
    slope = grad_of(tutti_sum(s, tutti_square(s, y)), x);
    tutti_tensor_t *penalty = tutti_mean(s, tutti_square(s, slope));
    if (how == PACKED) {
        check(tutti_saved_hooks_pop(ctx));
    }
    (void)tutti_context_set_autocast(ctx, TUTTI_F32);
    check(tutti_backward(s, penalty));
    const double sum =
        tutti_tensor_at(penalty, 0) +
        tutti_tensor_at(tutti_sum(s, tutti_square(s, tutti_tensor_grad(weight))), 0) +
        tutti_tensor_at(tutti_sum(s, tutti_square(s, tutti_tensor_grad(x))), 0);
    assert_true(sum > 0);
    tutti_module_release(block);
    return sum;
}

static void what_is_computed_again_or_packed_changes_no_bit(void **state)
{
    (void)state;
    const double kept = penalty_of_block(KEPT, TUTTI_F32);
    assert_true(penalty_of_block(RECOMPUTED, TUTTI_F32) == kept);
    assert_true(penalty_of_block(PACKED, TUTTI_F32) == kept);
}

/* Copies in 16 bits have the history of what they are copies of. */
static void autocast_is_differentiated_through(void **state)
{
    (void)state;
    const double exact = penalty_of_block(KEPT, TUTTI_F32),
                 low = penalty_of_block(KEPT, TUTTI_BF16);
    assert_true(low != exact && fabs(low - exact) < 0.02 * exact);
    assert_true(penalty_of_block(RECOMPUTED, TUTTI_BF16) == low);
}

static tutti_status_t square_slope(tutti_scope_t *in_scope, tutti_module_call_t *call, void *user)
{
    (void)user;
    call->inputs[0] = tutti_square(in_scope, call->inputs[0]);
    return TUTTI_OK;
}

/* y = x W, whose slope in x a hook squares: Σ_j W_ji, squared; to W that has twice the sum. */
static void hooks_of_modules_are_differentiated_too(void **state)
{
    (void)state;
    const tutti_linear_options_t options = {.in = 2, .out = 3, .no_bias = true};
    tutti_module_t *linear;
    check(tutti_module_create(ctx, &tutti_linear_layer, &options, &linear));
    check(tutti_module_add_hooks(linear, &(tutti_module_hooks_t){.after_backward = square_slope},
                                 NULL));
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 2)),
                   *w = tutti_module_find(linear, "weight");
    check(tutti_tensor_set_requires_grad(x, true));
    tutti_tensor_t *slope = grad_of(tutti_sum(s, tutti_forward(s, linear, x)), x);
    tutti_tensor_t *second = grad_of(tutti_sum(s, slope), w);
    const double sum = tutti_tensor_at(w, 0) + tutti_tensor_at(w, 2) + tutti_tensor_at(w, 4);
    assert_true(fabs(tutti_tensor_at(slope, 0) - sum * sum) < 1e-6);
    assert_true(fabs(tutti_tensor_at(second, 2) - 2 * sum) < 1e-6);
    tutti_module_release(linear);
}

/* ---- an operation of one's own --------------------------------------------------------------- */

/* y = x³ / 3, and x² kept, whose history nobody knows. */
static tutti_status_t cube_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *square = tutti_square(call->scope, call->inputs[0]);
    tutti_tensor_t *cube = tutti_mul(call->scope, square, call->inputs[0]);
    TUTTI_CHECK(tutti_tensor_copy(call->outputs[0], tutti_mul_scalar(call->scope, cube, 1. / 3)));
    TUTTI_CHECK(tutti_op_save(call, call->inputs[0]));
    return tutti_op_save(call, square);
}

static tutti_status_t cube_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_mul(call->scope, call->grad_outputs[0], call->saved[1]);
    return TUTTI_OK;
}

static tutti_status_t cube_grad(tutti_op_backward_t *call)
{
    tutti_tensor_t *square = tutti_square(call->scope, call->saved[0]);
    call->grads[0] = tutti_mul(call->scope, call->grad_outputs[0], square);
    return TUTTI_OK;
}

static void call_cube(tutti_scope_t *in_scope, tutti_tensor_t *const *in, tutti_tensor_t **out,
                      void *user)
{
    out[0] = tutti_op_run(in_scope, user, in, 1, NULL);
}

static void a_constant_of_ones_own_is_found_by_the_check(void **state)
{
    (void)state;
    const tutti_gradient_check_options_t twice = {.order = 2};
    tutti_op_t cube = {.name = "cube",
                       .infer = tutti_op_infer_same_float,
                       .forward = cube_forward,
                       .backward = cube_backward};
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(4));
    assert_int_equal(tutti_gradient_check(ctx, call_cube, &cube, &x, 1, 1, &twice),
                     TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("cube: its gradient has no gradient");
    cube.grad = cube_backward;
    assert_int_equal(tutti_gradient_check(ctx, call_cube, &cube, &x, 1, 1, &twice),
                     TUTTI_ERR_MISMATCH);
    cube.grad = cube_grad;
    check(tutti_gradient_check(ctx, call_cube, &cube, &x, 1, 1, &twice));
    assert_int_equal(tutti_gradient_check(ctx, call_cube, &cube, &x, 1, 1,
                                          &(tutti_gradient_check_options_t){.order = 3}),
                     TUTTI_ERR_ARG);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static void where_nothing_is_recorded_a_graph_is_created_all_the_same(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3));
    tutti_tensor_t *y = tutti_sum(s, tutti_exp(s, x));
    (void)tutti_context_set_grad_enabled(ctx, false);
    tutti_tensor_t *g = grad_of(y, x);
    assert_false(tutti_context_is_grad_enabled(ctx));
    assert_true(tutti_tensor_requires_grad(g));
    tutti_tensor_t *weights = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3)), *again;
    check(tutti_grad(s, g, &(tutti_backward_options_t){.grad_output = weights}, &x, 1, &again));
    assert_true(fabs(tutti_tensor_at(again, 1) - exp(tutti_tensor_at(x, 1))) < 1e-12);
}

/* What was saved is the second output of another operation. */
static void a_later_output_is_differentiated_through(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(4)), *halves[2];
    tutti_split(s, x, 0, 2, halves);
    tutti_tensor_t *g = grad_of(tutti_sum(s, tutti_pow_scalar(s, halves[1], 3)), x);
    tutti_tensor_t *second = grad_of(tutti_sum(s, g), x);
    assert_true(tutti_tensor_at(second, 1) == 0);
    assert_true(fabs(tutti_tensor_at(second, 3) - 6 * tutti_tensor_at(x, 3)) < 1e-12);
}

static void attend_to_itself(tutti_scope_t *in_scope, tutti_tensor_t *const *in,
                             tutti_tensor_t **out, void *user)
{
    (void)user;
    out[0] = tutti_attention(in_scope, in[0], in[0], in[0], NULL);
}

/* Each of the three gets its own gradient, not that of all. */
static void one_tensor_may_be_several_inputs(void **state)
{
    (void)state;
    const tutti_backward_options_t retained = {.retain_graph = true};
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(1, 1, 3, 2)), *y, *plain;
    check(tutti_gradient_check(ctx, attend_to_itself, NULL, &x, 1, 1,
                               &(tutti_gradient_check_options_t){.order = 2, .tolerance = 1e-5}));
    attend_to_itself(s, &x, &y, NULL);
    y = tutti_sum(s, y);
    check(tutti_grad(s, y, &retained, &x, 1, &plain));
    tutti_tensor_t *grad = grad_of(y, x);
    assert_true(fabs(tutti_tensor_at(grad, 3) - tutti_tensor_at(plain, 3)) < 1e-9);
}

/* in: a plane of one sample, weights, biases */
static void convolve_and_normalize(tutti_scope_t *in_scope, tutti_tensor_t *const *in,
                                   tutti_tensor_t **out, void *user)
{
    (void)user;
    tutti_tensor_t *y = tutti_conv1d(in_scope, in[0], in[1], in[2], NULL);
    out[0] = tutti_group_norm(in_scope, tutti_unsqueeze(in_scope, y, 0), 1, NULL, NULL, TUTTI_ZERO);
}

static void one_sample_and_an_eps_of_zero_are_differentiated(void **state)
{
    (void)state;
    const tutti_backward_options_t retained = {.retain_graph = true};
    tutti_tensor_t *in[] = {leaf(TUTTI_SHAPE(2, 5)), leaf(TUTTI_SHAPE(3, 2, 2)),
                            leaf(TUTTI_SHAPE(3))};
    tutti_tensor_t *y, *plain[3], *grads[3];
    convolve_and_normalize(s, in, &y, NULL);
    y = tutti_sum(s, tutti_pow_scalar(s, y, 3));
    check(tutti_grad(s, y, &retained, in, 3, plain));
    check(tutti_grad(s, y, &recorded, in, 3, grads));
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(tutti_tensor_at(grads[i], 1) - tutti_tensor_at(plain[i], 1)) < 1e-10);
    }
}

/* Where operands are equal or zero the recorded slopes are those of backward. */
static void recorded_slopes_at_edges_are_those_of_backward(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        tutti_tensor_t *in[2], *plain[2], *grads[2];
        for (int k = 0; k < 2; k++) {
            in[k] = tutti_zeros(s, TUTTI_F64, TUTTI_SHAPE(2));
            check(tutti_tensor_set_requires_grad(in[k], true));
        }
        tutti_tensor_t *y = i == 0   ? tutti_maximum(s, in[0], in[1])
                            : i == 1 ? tutti_minimum(s, in[0], in[1])
                            : i == 2 ? tutti_pow(s, in[0], in[1])
                            : i == 3 ? tutti_pow_scalar(s, in[0], 0)
                                     : tutti_clamp(s, in[0], 0, 1);
        y = tutti_sum(s, y);
        check(tutti_grad(s, y, &(tutti_backward_options_t){.retain_graph = true}, in, 2, plain));
        check(tutti_grad(s, y, &recorded, in, 2, grads));
        for (int k = 0; k < 2; k++) {
            const double got = grads[k] == NULL ? 0 : tutti_tensor_at(grads[k], 1);
            assert_true(got == (plain[k] == NULL ? 0 : tutti_tensor_at(plain[k], 1)));
        }
    }
}

/* Both inputs of an addition get one tensor; the caller's are apart, and have histories. */
static void gradients_with_histories_are_nobody_elses(void **state)
{
    (void)state;
    tutti_tensor_t *in[] = {leaf(TUTTI_SHAPE(3)), leaf(TUTTI_SHAPE(3))}, *grads[2];
    tutti_tensor_t *y = tutti_sum(s, tutti_square(s, tutti_add(s, in[0], in[1])));
    check(tutti_grad(s, y, &recorded, in, 2, grads));
    assert_ptr_not_equal(grads[0]->storage, grads[1]->storage);
    assert_true(tutti_tensor_requires_grad(grads[0]) && tutti_tensor_requires_grad(grads[1]));
    tutti_tensor_t *second = grad_of(tutti_sum(s, grads[1]), in[0]);
    assert_true(tutti_tensor_at(second, 0) == 2);
}

static void an_incoming_gradient_may_have_a_history(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3)), *v = leaf(TUTTI_SHAPE(3)), *g, *dv;
    const tutti_backward_options_t options = {.create_graph = true, .grad_output = v};
    check(tutti_grad(s, tutti_square(s, x), &options, &x, 1, &g));
    check(tutti_grad(s, tutti_sum(s, g), NULL, &v, 1, &dv));
    assert_true(tutti_tensor_at(dv, 2) == 2 * tutti_tensor_at(x, 2));
}

/* Gradients lead back through the graph that they are gradients of. */
static void a_graph_that_is_gone_is_an_error_in_every_order(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3)), *none;
    tutti_tensor_t *y = tutti_sum(s, tutti_mul(s, tutti_square(s, x), x));
    tutti_tensor_t *g = grad_of(y, x);
    check(tutti_backward(s, y));
    assert_int_equal(tutti_grad(s, tutti_sum(s, g), NULL, &x, 1, &none), TUTTI_ERR_STATE);
    tt_expect_error("a second time");
}

static tutti_tensor_t *square_hook(tutti_scope_t *in_scope, tutti_tensor_t *grad, void *user)
{
    *(bool *)user = tutti_tensor_requires_grad(grad);
    return tutti_square(in_scope, grad);
}

static void hooks_are_differentiated_too(void **state)
{
    (void)state;
    bool had_history = false;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3));
    tutti_tensor_t *y = tutti_square(s, x);
    check(tutti_tensor_on_grad(x, square_hook, &had_history));
    tutti_tensor_t *g = grad_of(tutti_sum(s, y), x); /* (2x)² */
    assert_true(had_history);
    tutti_tensor_remove_hooks(x, &had_history);
    tutti_tensor_t *second = grad_of(tutti_sum(s, g), x);
    assert_true(tutti_tensor_at(second, 0) == 8 * tutti_tensor_at(x, 0));
}

static tutti_status_t keep_grad(tutti_scope_t *in_scope, tutti_tensor_t *x, tutti_tensor_t *grad,
                                void *user)
{
    (void)in_scope, (void)x;
    *(tutti_tensor_t **)user = tutti_tensor_retain(grad);
    return TUTTI_OK;
}

static void a_sink_gets_histories(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3)), *kept = NULL;
    check(tutti_backward_with(
        s, tutti_sum(s, tutti_pow_scalar(s, x, 3)),
        &(tutti_backward_options_t){.create_graph = true, .sink = keep_grad, .sink_user = &kept}));
    tutti_tensor_t *second = grad_of(tutti_sum(s, kept), x);
    tutti_tensor_release(kept);
    assert_true(fabs(tutti_tensor_at(second, 0) - 6 * tutti_tensor_at(x, 0)) < 1e-12);
    assert_null(tutti_tensor_grad(x));
}

static void what_was_written_since_is_an_error_in_every_order(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3)), *none;
    tutti_tensor_t *g = grad_of(tutti_sum(s, tutti_exp(s, x)), x);
    tutti_tensor_t *y = tutti_sum(s, tutti_square(s, g));
    check(tutti_tensor_fill(g, 1));
    assert_int_equal(tutti_grad(s, y, NULL, &x, 1, &none), TUTTI_ERR_STATE);
    tt_expect_error("was written since");
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void leaves_do_not_keep_histories(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3));
    tutti_tensor_t *y = tutti_sum(s, tutti_square(s, x));
    tutti_tensor_t *g = grad_of(y, x);
    assert_int_equal(tutti_tensor_set_grad(x, g), TUTTI_ERR_STATE);
    tt_expect_error("has a history, which would keep the leaf alive: tutti_detach() it");
    check(tutti_tensor_set_grad(x, tutti_detach(s, g)));
    assert_int_equal(tutti_backward_with(s, y, &recorded), TUTTI_ERR_ARG);
    tt_expect_error(
        "backward: create_graph: a leaf that keeps a gradient with a history would keep "
        "itself alive; call tutti_grad(), or give a sink");
}

static void two_turns_are_not_recorded(void **state)
{
    (void)state;
    tutti_tensor_t *x = leaf(TUTTI_SHAPE(3)), *grad;
    const tutti_root_t root = {.tensor = tutti_sum(s, tutti_square(s, x))};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_backward_inputs(s, &root, 1, &recorded, &x, 1, &grad, &run),
                     TUTTI_ERR_ARG);
    tt_expect_error("create_graph: a backward in two turns is not recorded");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_third_derivative_of_a_power_and_a_sine_is_known),
        TEST(a_product_with_a_hessian_is_a_gradient_of_a_gradient),
        TEST(a_penalty_on_a_gradient_has_the_gradients_of_differences),
        TEST(steps_are_differentiated_through),
        TEST(what_is_computed_again_or_packed_changes_no_bit),
        TEST(autocast_is_differentiated_through),
        TEST(hooks_of_modules_are_differentiated_too),
        TEST(a_constant_of_ones_own_is_found_by_the_check),
        TEST(where_nothing_is_recorded_a_graph_is_created_all_the_same),
        TEST(a_later_output_is_differentiated_through),
        TEST(one_tensor_may_be_several_inputs),
        TEST(one_sample_and_an_eps_of_zero_are_differentiated),
        TEST(recorded_slopes_at_edges_are_those_of_backward),
        TEST(gradients_with_histories_are_nobody_elses),
        TEST(an_incoming_gradient_may_have_a_history),
        TEST(a_graph_that_is_gone_is_an_error_in_every_order),
        TEST(hooks_are_differentiated_too),
        TEST(a_sink_gets_histories),
        TEST(what_was_written_since_is_an_error_in_every_order),
        TEST(leaves_do_not_keep_histories),
        TEST(two_turns_are_not_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
