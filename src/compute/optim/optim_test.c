/* Optimizers: groups, skipped parameters, saved state, what is refused. Formulas are tested against
 * PyTorch in tests/golden. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/optim.h>

#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/device_testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_tensor_t *a, *b; /* [40000] and [3], with gradients */
    tutti_optim_t *opt;
    char folder[64], path[128];
} fixture_t;

static tutti_tensor_t *make(int64_t n, double value, double grad)
{
    tutti_tensor_t *x, *g;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(n), &x), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(n), &g), 0);
    assert_int_equal(tutti_tensor_fill(x, value), 0);
    assert_int_equal(tutti_tensor_fill(g, grad), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_tensor_set_grad(x, g), 0);
    tutti_tensor_release(g);
    return x;
}

static int setup(void **state)
{
    static fixture_t f;
    snprintf(f.folder, sizeof f.folder, "/tmp/tutti-optim-XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof f.path, "%s/o.safetensors", f.folder);
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &f.ctx), 0);
    f.a = make(40000, 1, 0.5);
    f.b = make(3, 2, -0.5);
    f.opt = NULL;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_optim_release(f->opt);
    tutti_tensor_release(f->a);
    tutti_tensor_release(f->b);
    tutti_context_release(f->ctx);
    (void)unlink(f->path);
    return rmdir(f->folder) == 0 && tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static void expect_error(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
    }
}

static void create(fixture_t *f, const tutti_optim_ops_t *kind, const void *options)
{
    tutti_optim_release(f->opt);
    f->opt = NULL;
    assert_int_equal(tutti_optim_create(f->ctx, kind, options, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "a", f->a), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "b", f->b), 0);
}

static float first_of(const tutti_tensor_t *x)
{
    return *(const float *)tt_test_host(x);
}

static void groups_have_their_own_rate_and_keep_its_ratio(void **state)
{
    fixture_t *f = *state;
    int group;
    assert_int_equal(
        tutti_optim_create(f->ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.5}, &f->opt), 0);
    assert_int_equal(tutti_optim_add_group(f->opt, &(tutti_sgd_options_t){.lr = 0.25}, &group), 0);
    assert_int_equal(group, 1);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "a", f->a), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 1, "b", f->b), 0);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(first_of(f->a) == 1 - 0.25f);
    assert_true(first_of(f->b) == 2 + 0.125f);
    tutti_optim_set_lr(f->opt, 1);
    assert_true(tutti_optim_lr(f->opt, 0) == 1 && tutti_optim_lr(f->opt, 1) == 0.5);
    assert_true(isnan(tutti_optim_lr(f->opt, 2)));
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(first_of(f->b) == 2.125f + 0.25f);
}

static int only_biases(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)user;
    (void)x;
    return strstr(name, "bias") != NULL ? 0 : -1;
}

static void a_choice_leaves_parameters_out(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    const tutti_linear_options_t options = {.in = 2, .out = 3};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_linear_layer, &options, &m), 0);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adam, NULL, &f->opt), 0);
    assert_int_equal(tutti_optim_add_module(f->opt, m, only_biases, NULL), 0);
    assert_int_equal(f->opt->slot_count, 1);
    assert_string_equal(f->opt->slots[0].name, "bias");
    assert_int_equal(tutti_optim_add_module(f->opt, m, NULL, NULL), TUTTI_ERR_ARG);
    expect_error("parameter \"bias\" is there already");
    tutti_module_release(m);
}

static void a_forgotten_gradient_moves_nothing(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_adamw, NULL);
    tutti_optim_zero_grad(f->opt);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(first_of(f->a) == 1);
    assert_int_equal(f->opt->slots[0].step, 0);
    assert_int_equal(tutti_tensor_set_grad(f->b, NULL), 0);
    assert_null(tutti_tensor_grad(f->a)); /* looking changes nothing: no decay either */
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(first_of(f->a) == 1);
    assert_true(first_of(f->b) == 2);
}

static void clipping_writes_gradients_and_measuring_does_not(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_sgd, NULL);
    const uint32_t *version = &tutti_tensor_grad(f->a)->storage->version;
    const uint32_t before = *version;
    assert_int_equal(tutti_clip_grad_norm(f->opt, INFINITY, 2, NULL), 0);
    assert_int_equal(*version, before);
    assert_int_equal(tutti_clip_grad_norm(f->opt, 1e-3, 2, NULL), 0);
    assert_int_equal(*version, before + 1);
    assert_int_equal(tutti_clip_grad_value(f->opt, 1e-6), 0);
    assert_int_equal(*version, before + 2);
    assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(f->b), (double)INFINITY), 0);
    assert_int_equal(tutti_clip_grad_norm(f->opt, INFINITY, 2, NULL), 0);
    assert_int_equal(*version, before + 2);
    assert_true(first_of(tutti_tensor_grad(f->a)) == 1e-6f);
    assert_int_equal(tutti_clip_grad_value(f->opt, 0), 0);
    assert_true(first_of(tutti_tensor_grad(f->a)) == 0);
    assert_int_equal(tutti_clip_grad_value(f->opt, -1), TUTTI_ERR_ARG);
}

/* A gradient that somebody keeps in a buffer of his own: what he writes there is the next one. */
static void measuring_leaves_a_strided_gradient_where_it_is(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *buffer, *grad;
    const int64_t strides[] = {2};
    double norm;
    const tutti_shape_t shape = TUTTI_SHAPE(3);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(6), &buffer), 0);
    assert_int_equal(tt_tensor_over(buffer->storage, TUTTI_F32, shape, strides, 0, &grad), 0);
    assert_int_equal(tutti_tensor_set_grad(f->b, grad), 0);
    tutti_tensor_zero_grad(f->a);
    create(f, &tutti_sgd, &(tutti_sgd_options_t){.lr = 1});
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(tutti_tensor_fill(buffer, i), 0);
        assert_int_equal(tutti_clip_grad_norm(f->opt, INFINITY, INFINITY, &norm), 0);
        assert_true(norm == i);
        assert_ptr_equal(tutti_tensor_grad(f->b), grad);
        assert_int_equal(tutti_optim_step(f->opt), 0);
    }
    assert_true(first_of(f->b) == 2 - 1 - 2);
    assert_int_equal(tutti_clip_grad_value(f->opt, 0.5), 0);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(first_of(f->b) == -1.5f);
    assert_true(first_of(buffer) == 2);
    tutti_tensor_release(buffer);
    tutti_tensor_release(grad);
}

static void the_steady_state_allocates_nothing(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only(); /* the norm is measured in memory of the device */
    create(f, &tutti_adamw, NULL);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    const size_t before = tt_alloc_stats().allocations;
    double norm;
    assert_int_equal(tutti_clip_grad_norm(f->opt, 1, 2, &norm), 0);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_int_equal(tt_alloc_stats().allocations, before);
    assert_true(fabs(norm - 0.5 * sqrt(40003)) < 1e-9 * norm);
}

/* Steps, then saves after two, loads into another optimizer, and goes on. */
static void a_loaded_state_goes_on_to_the_bit(void **state)
{
    fixture_t *f = *state;
    for (size_t kind = 0; kind < tt_optimizer_count; kind++) {
        const tutti_sgd_options_t sgd = {.momentum = 0.9};
        const void *options = tt_optimizers[kind] == &tutti_sgd ? &sgd : NULL;
        create(f, tt_optimizers[kind], options);
        assert_int_equal(tutti_tensor_fill(f->a, 1), 0);
        assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(f->a), 0.5), 0);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
        const float middle = first_of(f->a);
        assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(f->a), -0.02), 0);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        const float end = first_of(f->a);
        create(f, tt_optimizers[kind], options);
        assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
        assert_int_equal(tutti_tensor_fill(f->a, (double)middle), 0);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_true(first_of(f->a) == end);
        create(f, tt_optimizers[kind], options);
        assert_int_equal(tutti_tensor_fill(f->a, (double)middle), 0);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_true(first_of(f->a) != end); /* the state matters */
    }
}

static void a_state_that_does_not_fit_is_refused(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_adam, NULL);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
    create(f, &tutti_adamw, NULL);
    assert_int_equal(tutti_optim_load(f->opt, f->path), TUTTI_ERR_MISMATCH);
    expect_error("the state of optimizer adam, not of adamw");
    create(f, &tutti_adam, &(tutti_adam_options_t){.amsgrad = true});
    assert_int_equal(tutti_optim_load(f->opt, f->path), TUTTI_ERR_MISMATCH);
    expect_error("has no \"a.max_exp_avg_sq\"");
    tutti_optim_release(f->opt);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adam, NULL, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "a", f->a), 0);
    assert_int_equal(tutti_optim_load(f->opt, f->path), TUTTI_ERR_MISMATCH);
    expect_error("that no parameter here wants, such as b.");
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "c", f->b), 0);
    assert_int_equal(tutti_optim_load(f->opt, f->path), TUTTI_ERR_MISMATCH);
    assert_int_equal(f->opt->slots[0].step, 0);
}

static tutti_tensor_t *make_narrow(tutti_dtype_t dtype, double value)
{
    tutti_tensor_t *x;
    assert_int_equal(tt_test_tensor(dtype, TUTTI_SHAPE(3), &x), 0);
    assert_int_equal(tutti_tensor_fill(x, value), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static void set_narrow_grad(tutti_tensor_t *x, double value)
{
    tutti_tensor_t *g;
    assert_int_equal(tt_test_tensor(tutti_tensor_dtype(x), TUTTI_SHAPE(3), &g), 0);
    assert_int_equal(tutti_tensor_fill(g, value), 0);
    assert_int_equal(tutti_tensor_set_grad(x, g), 0);
    tutti_tensor_release(g);
}

static const tutti_sgd_options_t narrow_sgd = {.lr = 0x1p-12};

static void create_narrow(fixture_t *f, tutti_tensor_t *x)
{
    tutti_optim_release(f->opt);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, &narrow_sgd, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "x", x), 0);
}

/* Steps of 2^-12, where numbers of bf16 at 1 lie 2^-7 or 2^-8 apart, add up in the master. */
static void masters_keep_what_16_bits_cannot_hold(void **state)
{
    fixture_t *f = *state;
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *x = make_narrow(i == 0 ? TUTTI_BF16 : TUTTI_F16, 1);
        create_narrow(f, x);
        set_narrow_grad(x, -1);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_true(tutti_tensor_at(x, 0) == 1);
        for (int step = 2; step <= 32; step++) {
            assert_int_equal(tutti_optim_step(f->opt), 0);
        }
        assert_true(tutti_tensor_at(x, 2) == 1 + 0x1p-7);
        assert_true(first_of(f->opt->slots[0].master) == 1 + 0x1p-7f);
        assert_int_equal(tutti_tensor_fill(x, 4), 0); /* who writes it is right */
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_true(first_of(f->opt->slots[0].master) == 4 + 0x1p-12f);
        tutti_tensor_release(x);
    }
}

static void a_saved_master_goes_on_to_the_bit(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = make_narrow(TUTTI_BF16, 1);
    create_narrow(f, x);
    set_narrow_grad(x, -1);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
    for (int is_late = 0; is_late < 2; is_late++) {
        create_narrow(f, x);
        assert_int_equal(tutti_tensor_fill(x, is_late ? 2 : 1), 0);
        assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
        assert_int_equal(tutti_tensor_fill(x, 1), 0); /* the weights after the state */
        assert_int_equal(tutti_optim_step(f->opt), 0);
        assert_true(first_of(f->opt->slots[0].master) == 1 + 2 * 0x1p-12f);
    }
    tutti_tensor_release(x);
}

/* f16 ends at 2^-24: unscaled in f32 a gradient below that is not lost; a new one is widened anew.
 */
static void narrow_gradients_are_unscaled_and_clipped_in_f32(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = make_narrow(TUTTI_F16, 0);
    tt_unscaled_t unscaled;
    double norm;
    create_narrow(f, x);
    set_narrow_grad(x, 0x1p-20);
    assert_int_equal(tt_optim_unscale(f->opt, 0x1p-16, &unscaled), 0);
    assert_true(unscaled.is_finite);
    assert_int_equal(tutti_clip_grad_norm(f->opt, 1, 2, &norm), 0);
    assert_true(fabs(norm - sqrt(3) * 0x1p-36) < 1e-15 * 0x1p-20);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(first_of(f->opt->slots[0].master) == -0x1p-48f);
    assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(x), 3), 0);
    assert_int_equal(tutti_clip_grad_norm(f->opt, INFINITY, 2, &norm), 0);
    assert_true(fabs(norm - 3 * sqrt(3)) < 1e-9);
    set_narrow_grad(x, (double)INFINITY);
    assert_int_equal(tt_optim_unscale(f->opt, 1, &unscaled), 0);
    assert_false(unscaled.is_finite);
    tutti_tensor_release(x);
}

static void a_cast_module_learns(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    tutti_scope_t *s;
    const tutti_linear_options_t options = {.in = 4, .out = 3};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_linear_layer, &options, &m), 0);
    assert_int_equal(tutti_module_cast(m, TUTTI_I32), TUTTI_ERR_DTYPE);
    assert_int_equal(tutti_module_cast(m, TUTTI_BF16), 0);
    assert_int_equal(tutti_tensor_dtype(tutti_module_find(m, "weight")), TUTTI_BF16);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adamw, NULL, &f->opt), 0);
    assert_int_equal(tutti_optim_add_module(f->opt, m, NULL, NULL), 0);
    double losses[20];
    for (int step = 0; step < 20; step++) {
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tutti_tensor_t *y = tutti_forward(s, m, tutti_full(s, TUTTI_BF16, TUTTI_SHAPE(2, 4), 1));
        tutti_tensor_t *loss =
            tutti_mse_loss(s, y, tutti_full(s, TUTTI_BF16, TUTTI_SHAPE(2, 3), 5), TUTTI_LOSS_MEAN);
        assert_int_equal(tutti_backward(s, loss), 0);
        losses[step] = tutti_tensor_item(loss);
        assert_int_equal(tutti_scope_close(s), 0);
        assert_int_equal(tutti_optim_step(f->opt), 0);
        tutti_optim_zero_grad(f->opt);
    }
    assert_true(losses[19] < losses[0] - 0.1);
    tutti_module_release(m);
}

/* A matrix's state, which is not of the matrix's shape, and a vector's. */
static void adafactor_keeps_rows_and_columns(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x, *g;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2, 3, 4), &x), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2, 3, 4), &g), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_tensor_fill(g, 1), 0);
    assert_int_equal(tutti_tensor_set_grad(x, g), 0);
    create(f, &tutti_adafactor, NULL);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "x", x), 0);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    tutti_tensor_t *const *moments = f->opt->slots[2].moments;
    assert_true(moments[0] == NULL && moments[1] == NULL);
    assert_true(tutti_shape_equal(tutti_tensor_shape(moments[2]), TUTTI_SHAPE(2, 3)));
    assert_true(tutti_shape_equal(tutti_tensor_shape(moments[3]), TUTTI_SHAPE(2, 4)));
    assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
    create(f, &tutti_adafactor, NULL);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "x", x), 0);
    assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
    assert_true(first_of(f->opt->slots[2].moments[3]) == 1);
    tutti_tensor_release(x);
    tutti_tensor_release(g);
}

static void parameters_that_share_memory_are_refused(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_sgd, NULL);
    for (int i = 0; i < 3; i++) {
        tutti_tensor_t *part;
        const tutti_shape_t shape = TUTTI_SHAPE(3 - i);
        assert_int_equal(tt_tensor_over(f->b->storage, TUTTI_F32, shape, NULL, i, &part), 0);
        assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "part", part), TUTTI_ERR_ARG);
        expect_error("sgd: parameter \"part\" shares memory with \"b\"");
        tutti_tensor_release(part);
    }
    tutti_tensor_t *halves[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_tensor_over(f->a->storage, TUTTI_F32, TUTTI_SHAPE(20000), NULL,
                                        20000 * i, &halves[i]),
                         0);
    }
    tutti_optim_release(f->opt);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, NULL, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "left", halves[0]), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "right", halves[1]), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "whole", f->a), TUTTI_ERR_ARG);
    tutti_tensor_t *narrow; /* in the bytes of the left half, behind whose end the right one is */
    assert_int_equal(
        tt_tensor_over(f->a->storage, TUTTI_BF16, TUTTI_SHAPE(40000), NULL, 0, &narrow), 0);
    tutti_optim_release(f->opt);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, NULL, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "right", halves[1]), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "narrow", narrow), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "left", halves[0]), TUTTI_ERR_ARG);
    tutti_tensor_release(narrow);
    tutti_tensor_release(halves[0]);
    tutti_tensor_release(halves[1]);
}

static void bad_options_are_named(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(
        tutti_optim_create(f->ctx, &tutti_adamw, &(tutti_adamw_options_t){.beta2 = 1}, &f->opt),
        TUTTI_ERR_ARG);
    expect_error("adamw: beta2 is 1: it must be at least 0 and below 1");
    assert_int_equal(
        tutti_optim_create(f->ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = -1}, &f->opt),
        TUTTI_ERR_ARG);
    expect_error("sgd: lr is -1");
    assert_int_equal(
        tutti_optim_create(f->ctx, &tutti_sgd, &(tutti_sgd_options_t){.nesterov = true}, &f->opt),
        TUTTI_ERR_ARG);
    expect_error("nesterov with momentum 0");
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adafactor,
                                        &(tutti_adafactor_options_t){.no_relative_step = true},
                                        &f->opt),
                     TUTTI_ERR_ARG);
    expect_error("adafactor: lr is 0: without the relative step it must be given");
    create(f, &tutti_sgd, NULL);
    assert_int_equal(tutti_clip_grad_norm(f->opt, -1, 2, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_clip_grad_norm(f->opt, 1, 3, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_clip_grad_value(f->opt, NAN), TUTTI_ERR_ARG);
    tutti_tensor_t *x;
    assert_int_equal(tt_test_tensor(TUTTI_F64, TUTTI_SHAPE(3), &x), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "x", x), TUTTI_ERR_DTYPE);
    expect_error("\"x\" is f64[3]: it must be f32, bf16 or f16");
    assert_int_equal(tutti_optim_add_parameter(f->opt, 1, "x", x), TUTTI_ERR_ARG);
    tutti_tensor_release(x);
}

static void a_step_of_nothing_is_refused(void **state)
{
    fixture_t *f = *state;
    tutti_optim_t *empty;
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adamw, NULL, &empty), TUTTI_OK);
    assert_int_equal(tutti_optim_step(empty), TUTTI_ERR_STATE);
    tutti_optim_release(empty);
    expect_error("optim_step: this adamw has no parameters: tutti_optim_add_module() adds those of "
                 "a module");
}

static void bad_schedules_are_named(void **state)
{
    (void)state;
    static const struct {
        tutti_schedule_t schedule;
        const char *error;
    } cases[] = {
        {{.kind = TUTTI_SCHEDULE_COSINE, .lr = 1}, "total_steps is 0: it must be at least 1"},
        {{.kind = TUTTI_SCHEDULE_STEP, .lr = 1}, "step_size is 0"},
        {{.kind = TUTTI_SCHEDULE_STEP, .lr = 1, .step_size = 1, .gamma = NAN}, "gamma is nan"},
        {{.kind = TUTTI_SCHEDULE_WARMUP_COSINE, .lr = 1, .warmup_steps = 5, .total_steps = 5},
         "total_steps is 5: it must be at least 6"},
        {{.kind = TUTTI_SCHEDULE_ONE_CYCLE, .lr = 1, .total_steps = 9, .up_share = 1}, "up_share"},
        {{.lr = -1}, "lr is -1"},
        {{.kind = (tutti_schedule_kind_t)77, .lr = 1}, "no schedule 77"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tutti_schedule_check(&cases[i].schedule), TUTTI_ERR_ARG);
        expect_error(cases[i].error);
        assert_true(isnan(tutti_schedule_lr(&cases[i].schedule, 0)));
    }
}

static void a_norm_that_is_not_finite_is_told(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_sgd, NULL);
    double norm;
    assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(f->b), NAN), 0);
    assert_int_equal(tutti_clip_grad_norm(f->opt, 1, 2, &norm), 0);
    assert_true(isnan(norm));
    assert_int_equal(tutti_clip_grad_norm(f->opt, INFINITY, INFINITY, &norm), 0);
    assert_true(isnan(norm));
}

static void no_allocation_that_fails_is_lost(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    create(f, &tutti_adamw, NULL);
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        create(f, &tutti_adamw, NULL);
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_optim_step(f->opt);
        if (status >= 0) {
            status = tutti_optim_save(f->opt, f->path);
        }
        if (status >= 0) {
            status = tutti_optim_load(f->opt, f->path);
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

static void a_load_for_want_of_memory_changes_nothing(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    create(f, &tutti_adamw, NULL);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    const float before = first_of(f->opt->slots[0].moments[0]);
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tt_alloc_fail_at(n);
        const tutti_status_t status = tutti_optim_load(f->opt, f->path);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        const bool is_before = first_of(f->opt->slots[0].moments[0]) == before;
        assert_true(is_before == has_failed);
        assert_int_equal(f->opt->slots[0].step, has_failed ? 2 : 1);
        assert_int_equal(f->opt->slots[1].step, has_failed ? 2 : 1);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(groups_have_their_own_rate_and_keep_its_ratio),
        TEST(a_choice_leaves_parameters_out),
        TEST(a_forgotten_gradient_moves_nothing),
        TEST(clipping_writes_gradients_and_measuring_does_not),
        TEST(measuring_leaves_a_strided_gradient_where_it_is),
        TEST(the_steady_state_allocates_nothing),
        TEST(a_loaded_state_goes_on_to_the_bit),
        TEST(a_state_that_does_not_fit_is_refused),
        TEST(masters_keep_what_16_bits_cannot_hold),
        TEST(a_saved_master_goes_on_to_the_bit),
        TEST(narrow_gradients_are_unscaled_and_clipped_in_f32),
        TEST(a_cast_module_learns),
        TEST(adafactor_keeps_rows_and_columns),
        TEST(parameters_that_share_memory_are_refused),
        TEST(bad_options_are_named),
        TEST(a_step_of_nothing_is_refused),
        TEST(bad_schedules_are_named),
        TEST(a_norm_that_is_not_finite_is_told),
        TEST(no_allocation_that_fails_is_lost),
        TEST(a_load_for_want_of_memory_changes_nothing),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
