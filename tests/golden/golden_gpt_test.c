/* A two-layer GPT beside PyTorch's (make_golden.py): from the same initial weights and tokens, the
 * first gradients and ten training losses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

enum { STEPS = 10 };

/* As in make_golden.py. */
static const tutti_gpt_options_t shape = {
    .layers = 2, .width = 24, .heads = 2, .context = 16, .vocab = 32};
static const tutti_adamw_options_t adamw = {.lr = 1e-2, .weight_decay = 0.01};

typedef struct {
    tutti_context_t *ctx;
    tutti_safetensors_t *file;
    tutti_module_t *gpt;
    tutti_optim_t *optim;
} fixture_t;

static void open_fixture(fixture_t *f, int threads, tutti_dtype_t autocast)
{
    const tutti_context_options_t options = {.threads = threads};
    assert_int_equal(tt_test_context(&options, &f->ctx), TUTTI_OK);
    (void)tutti_context_set_autocast(f->ctx, autocast);
    assert_int_equal(
        tutti_safetensors_open(TUTTI_SOURCE_DIR "/tests/golden/gpt.safetensors", &f->file),
        TUTTI_OK);
    assert_int_equal(tutti_module_create(f->ctx, &tutti_gpt_layer, &shape, &f->gpt), TUTTI_OK);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adamw, &adamw, &f->optim), TUTTI_OK);
    assert_int_equal(tutti_optim_add_module(f->optim, f->gpt, NULL, NULL), TUTTI_OK);
}

static void close_fixture(fixture_t *f)
{
    tutti_optim_release(f->optim);
    tutti_module_release(f->gpt);
    tutti_safetensors_close(f->file);
    tutti_context_release(f->ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_status_t load_weight(void *user, const char *name, tutti_tensor_t *x)
{
    const fixture_t *f = user;
    return tutti_safetensors_read(f->file, name, x);
}

/* The loss of a step's batch, after backward. */
static double run_step(fixture_t *f, int step)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), TUTTI_OK);
    tutti_tensor_t *idx = tutti_select(s, tutti_safetensors_load(s, f->file, "idx"), 0, step);
    tutti_tensor_t *target = tutti_select(s, tutti_safetensors_load(s, f->file, "target"), 0, step);
    tutti_tensor_t *logits = tutti_forward(s, f->gpt, idx);
    tutti_tensor_t *loss = tutti_cross_entropy(s, logits, target);
    assert_int_equal(tutti_backward(s, loss), TUTTI_OK);
    const double value = tutti_tensor_item(loss);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    return value;
}

static void check_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want))) {
        fail_msg("%s is %.8g, PyTorch's is %.8g", what, got, want);
    }
}

/* ---- the first gradients --------------------------------------------------------------------- */

static double norm_of(const tutti_tensor_t *x)
{
    double sum = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        sum += tutti_tensor_at(x, i) * tutti_tensor_at(x, i);
    }
    return sqrt(sum);
}

static tutti_status_t check_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    const fixture_t *f = user;
    char key[128];
    tutti_tensor_t *want;
    snprintf(key, sizeof key, "grad_norm.%s", name);
    assert_int_equal(tutti_tensor_create(TUTTI_F64, TUTTI_SCALAR, &want), TUTTI_OK);
    const tutti_status_t status = tutti_safetensors_read(f->file, key, want);
    assert_non_null(tutti_tensor_grad(x));
    check_near(name, norm_of(tutti_tensor_grad(x)), tutti_tensor_item(want), 1e-4);
    tutti_tensor_release(want);
    return status;
}

static void first_gradients_have_pytorchs_norms(void **state)
{
    (void)state;
    fixture_t f;
    open_fixture(&f, 1, TUTTI_F32);
    assert_int_equal(tutti_module_each_parameter(f.gpt, load_weight, &f), TUTTI_OK);
    (void)run_step(&f, 0);
    assert_int_equal(tutti_module_each_parameter(f.gpt, check_gradient, &f), TUTTI_OK);
    close_fixture(&f);
}

/* ---- ten losses ------------------------------------------------------------------------------ */

static void train(int threads, tutti_dtype_t autocast, double losses[STEPS])
{
    fixture_t f;
    open_fixture(&f, threads, autocast);
    assert_int_equal(tutti_module_each_parameter(f.gpt, load_weight, &f), TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        losses[step] = run_step(&f, step);
        assert_int_equal(tutti_optim_step(f.optim), TUTTI_OK);
        tutti_optim_zero_grad(f.optim);
    }
    close_fixture(&f);
}

static void check_losses(const double losses[STEPS], double tolerance)
{
    tutti_safetensors_t *file;
    tutti_tensor_t *want;
    char what[32];
    assert_int_equal(
        tutti_safetensors_open(TUTTI_SOURCE_DIR "/tests/golden/gpt.safetensors", &file), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(STEPS), &want), TUTTI_OK);
    assert_int_equal(tutti_safetensors_read(file, "losses", want), TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        snprintf(what, sizeof what, "loss %d", step);
        check_near(what, losses[step], tutti_tensor_at(want, step), tolerance);
    }
    tutti_tensor_release(want);
    tutti_safetensors_close(file);
}

static void ten_losses_in_f32_are_pytorchs(void **state)
{
    (void)state;
    double losses[STEPS];
    train(1, TUTTI_F32, losses);
    check_losses(losses, 1e-5);
}

static void ten_losses_in_bf16_are_near_pytorchs(void **state)
{
    (void)state;
    double losses[STEPS];
    train(1, TUTTI_BF16, losses);
    check_losses(losses, 1e-2);
}

static void threads_change_no_bit_of_a_loss(void **state)
{
    (void)state;
    double one[STEPS], more[STEPS];
    for (int low = 0; low < 2; low++) {
        train(1, low ? TUTTI_BF16 : TUTTI_F32, one);
        for (int threads = 2; threads <= 4; threads++) {
            train(threads, low ? TUTTI_BF16 : TUTTI_F32, more);
            assert_memory_equal(one, more, sizeof one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_gradients_have_pytorchs_norms),
        cmocka_unit_test(ten_losses_in_f32_are_pytorchs),
        cmocka_unit_test(ten_losses_in_bf16_are_near_pytorchs),
        cmocka_unit_test(threads_change_no_bit_of_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
