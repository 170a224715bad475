/* Ten training losses of a two-layer GPT against PyTorch's, from the same weights and tokens. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

#include "core/base/alloc.h"

enum { STEPS = 10, BATCH = 4, CONTEXT = 16 };

static const tutti_gpt_options_t shape = {
    .layers = 2, .width = 24, .heads = 2, .context = CONTEXT, .vocab = 32};

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_optim_t *opt;
    tutti_safetensors_t *golden;
} fixture_t;

static tutti_status_t load_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    return tutti_safetensors_read(user, name, x);
}

static int setup(void **state)
{
    static fixture_t f;
    const tutti_adamw_options_t adamw = {.lr = 1e-2, .weight_decay = 0.01};
    const char *path = TUTTI_SOURCE_DIR "/tests/golden/gpt.safetensors";
    assert_int_equal(tutti_context_create(NULL, &f.ctx), 0);
    assert_int_equal(tutti_module_create(f.ctx, &tutti_gpt_layer, &shape, &f.model), 0);
    assert_int_equal(tutti_safetensors_open(path, &f.golden), 0);
    assert_int_equal(tutti_module_each_parameter(f.model, load_parameter, f.golden), 0);
    assert_int_equal(tutti_optim_create(f.ctx, &tutti_adamw, &adamw, &f.opt), 0);
    assert_int_equal(tutti_optim_add_module(f.opt, f.model, NULL, NULL), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_optim_release(f->opt);
    tutti_safetensors_close(f->golden);
    tutti_module_release(f->model);
    tutti_context_release(f->ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return 0;
}

/* One step; the loss before it. */
static double train_step(fixture_t *f, int step)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *idx = tutti_safetensors_load(s, f->golden, "idx"),
                   *target = tutti_safetensors_load(s, f->golden, "target");
    tutti_tensor_t *logits = tutti_forward(s, f->model, tutti_select(s, idx, 0, step));
    tutti_tensor_t *loss = tutti_cross_entropy(s, logits, tutti_select(s, target, 0, step));
    (void)tutti_backward(s, loss);
    const double value = tutti_tensor_item(loss);
    if (tutti_scope_close(s) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return value;
}

static tutti_status_t compare_grad_norm(void *user, const char *name, tutti_tensor_t *x)
{
    char key[600];
    double squares = 0, expected;
    tutti_scope_t *s;
    fixture_t *f = user;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    snprintf(key, sizeof key, "grad_norm.%s", name);
    expected = tutti_tensor_item(tutti_safetensors_load(s, f->golden, key));
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double g = tutti_tensor_at(tutti_tensor_grad(x), i);
        squares += g * g;
    }
    if (!(fabs(sqrt(squares) - expected) <= 1e-4 * expected)) {
        fail_msg("%s: norm of the gradient %.9g, want %.9g", name, sqrt(squares), expected);
    }
    return tutti_scope_close(s);
}

static void ten_losses_are_those_of_pytorch(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *losses;
    assert_int_equal(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(STEPS), &losses), 0);
    assert_int_equal(tutti_safetensors_read(f->golden, "losses", losses), 0);
    for (int step = 0; step < STEPS; step++) {
        const double expected = tutti_tensor_at(losses, step), loss = train_step(f, step);
        if (!(fabs(loss - expected) <= 1e-4 * expected)) {
            fail_msg("step %d: loss %.9g, want %.9g", step, loss, expected);
        }
        if (step == 0) {
            assert_int_equal(tutti_module_each_parameter(f->model, compare_grad_norm, f), 0);
        }
        assert_int_equal(tutti_optim_step(f->opt), 0);
        tutti_optim_zero_grad(f->opt);
    }
    tutti_tensor_release(losses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ten_losses_are_those_of_pytorch, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
