/* What an optimizer keeps, under changes around it: casts, foreign files, parameters without
 * elements, rates that are no numbers, accumulation of gradients. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/optim.h>

#include "compute/optim/optimizer.h"
#include "core/tensor/device_testing.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net; /* parameters weight [2, 3] and bias [2] */
    tutti_tensor_t *weight, *bias;
    tutti_optim_t *opt;
    char path[64];
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    const tutti_linear_options_t options = {.in = 3, .out = 2};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_module_create(f.ctx, &tutti_linear_layer, &options, &f.net), 0);
    f.weight = tutti_module_find(f.net, "weight");
    f.bias = tutti_module_find(f.net, "bias");
    f.opt = NULL;
    snprintf(f.path, sizeof f.path, "/tmp/tutti-optim-state-%d", (int)getpid());
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_optim_release(f->opt);
    tutti_module_release(f->net);
    tutti_context_release(f->ctx);
    (void)unlink(f->path);
    return 0;
}

static void create(fixture_t *f, const tutti_optim_ops_t *kind, const void *options)
{
    tutti_optim_release(f->opt);
    f->opt = NULL;
    assert_int_equal(tutti_optim_create(f->ctx, kind, options, &f->opt), 0);
    assert_int_equal(tutti_optim_add_module(f->opt, f->net, NULL, NULL), 0);
}

static void set_grad(tutti_tensor_t *x, double value)
{
    tutti_tensor_t *g;
    assert_int_equal(tt_test_tensor(tutti_tensor_dtype(x), tutti_tensor_shape(x), &g), 0);
    assert_int_equal(tutti_tensor_fill(g, value), 0);
    assert_int_equal(tutti_tensor_set_grad(x, g), 0);
    tutti_tensor_release(g);
}

static void step(fixture_t *f, double grad)
{
    set_grad(f->weight, grad);
    set_grad(f->bias, grad);
    assert_int_equal(tutti_optim_step(f->opt), 0);
}

static const tutti_sgd_options_t small = {.lr = 0x1p-12};

/* bf16, a step below its resolution, f32: the parameter is what its master was, and what writes it
 * then is right. */
static void a_module_may_be_cast_between_steps(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_sgd, &small);
    assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
    assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    step(f, 1);
    assert_int_equal(tutti_module_cast(f->net, TUTTI_F32), 0);
    assert_int_equal(tutti_tensor_fill(f->weight, 4), 0);
    step(f, 1);
    assert_true(tutti_tensor_at(f->weight, 0) == 4 - 0x1p-12);
    step(f, 1);
    assert_true(tutti_tensor_at(f->weight, 0) == 4 - 2 * 0x1p-12);
    assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    step(f, -8);
    assert_true(tutti_tensor_at(f->weight, 0) == 4);
}

static void a_cast_to_f64_is_refused_by_the_step(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *before;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(1), &before), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(before, true), 0);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, &small, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "before", before), 0);
    assert_int_equal(tutti_optim_add_module(f->opt, f->net, NULL, NULL), 0);
    set_grad(before, 1);
    assert_int_equal(tutti_module_cast(f->net, TUTTI_F64), 0);
    assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
    set_grad(f->weight, 1);
    assert_int_equal(tutti_optim_step(f->opt), TUTTI_ERR_DTYPE);
    tt_expect_error("sgd: parameter \"weight\" is f64[2, 3]: it must be f32, bf16 or f16");
    assert_true(tutti_tensor_at(f->weight, 0) == 1 && tutti_tensor_at(before, 0) == 0);
    assert_int_equal(tutti_clip_grad_norm(f->opt, 1, 2, NULL), TUTTI_ERR_DTYPE);
    tutti_tensor_release(before);
}

static void a_rate_that_is_no_number_is_refused(void **state)
{
    fixture_t *f = *state;
    const tutti_schedule_t bad = {.kind = TUTTI_SCHEDULE_COSINE, .lr = 1};
    create(f, &tutti_sgd, &small);
    assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
    tutti_optim_set_lr(f->opt, tutti_schedule_lr(&bad, 0));
    set_grad(f->weight, 1);
    set_grad(f->bias, 1);
    assert_int_equal(tutti_optim_step(f->opt), TUTTI_ERR_ARG);
    tt_expect_error("sgd: the learning rate of group 0 is nan");
    assert_true(tutti_tensor_at(f->weight, 0) == 1);
    tutti_optim_set_lr(f->opt, (double)INFINITY);
    assert_int_equal(tutti_optim_step(f->opt), TUTTI_ERR_ARG);
    tutti_optim_set_lr(f->opt, 0.5);
    assert_int_equal(tutti_optim_step(f->opt), TUTTI_OK);
    assert_true(tutti_tensor_at(f->weight, 0) == 0.5);
}

/* What has saved a parameter for a backward finds out. */
static void a_step_writes_its_parameters(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_sgd, &small);
    for (int i = 0; i < 2; i++) {
        const uint32_t version = f->weight->storage->version;
        step(f, 1);
        assert_true(f->weight->storage->version != version);
        assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    }
}

static void zeros_stay_finite(void **state)
{
    fixture_t *f = *state;
    for (size_t k = 0; k < tt_optimizer_count; k++) {
        for (int i = 0; i < 4; i++) {
            create(f, tt_optimizers[k], NULL);
            assert_int_equal(tutti_tensor_fill(f->weight, i & 1), 0);
            step(f, i & 2);
            step(f, 0);
            assert_true(isfinite(tutti_tensor_at(f->weight, 5)));
        }
    }
}

static void a_gradient_that_is_no_number_shows(void **state)
{
    fixture_t *f = *state;
    for (size_t k = 0; k < tt_optimizer_count; k++) {
        create(f, tt_optimizers[k], NULL);
        assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
        step(f, (double)NAN);
        assert_true(isnan(tutti_tensor_at(f->weight, 5)));
    }
}

/* The square of the mean comes to lie above the mean of squares by rounding: no root of that. */
static void gradients_that_stay_have_no_deviation_below_zero(void **state)
{
    fixture_t *f = *state;
    create(f, &tutti_rmsprop, &(tutti_rmsprop_options_t){.alpha = 0.7, .centered = true});
    for (int k = 1; k < 40; k++) {
        step(f, 0.1 * k);
        for (int i = 0; i < 40; i++) {
            assert_int_equal(tutti_optim_step(f->opt), 0);
        }
        assert_true(isfinite(tutti_tensor_at(f->weight, 0)));
    }
}

static void options_are_finite(void **state)
{
    fixture_t *f = *state;
    tutti_sgd_options_t options = {.dampening = -(double)INFINITY};
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, &options, &f->opt), TUTTI_ERR_ARG);
    tt_expect_error("sgd: dampening is -inf: it must be finite");
    options = (tutti_sgd_options_t){.lr = (double)INFINITY};
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, &options, &f->opt), TUTTI_ERR_ARG);
    tt_expect_error("sgd: lr is inf: it must be finite and at least 0");
}

static void parameters_without_elements_do_no_harm(void **state)
{
    fixture_t *f = *state;
    const tutti_shape_t shapes[] = {TUTTI_SHAPE(0), TUTTI_SHAPE(0, 3), TUTTI_SHAPE(3, 0)};
    for (size_t k = 0; k < tt_optimizer_count; k++) {
        for (int i = 0; i < 6; i++) {
            tutti_tensor_t *x;
            tt_unscaled_t unscaled;
            double norm;
            const tutti_dtype_t dtype = i < 3 ? TUTTI_F32 : TUTTI_BF16;
            assert_int_equal(tt_test_tensor(dtype, shapes[i % 3], &x), 0);
            assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
            set_grad(x, 1);
            create(f, tt_optimizers[k], NULL);
            assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "none", x), 0);
            step(f, 1);
            assert_int_equal(tutti_clip_grad_norm(f->opt, 1e9, 2, &norm), 0);
            assert_true(isfinite(norm));
            assert_int_equal(tt_optim_unscale(f->opt, 1, &unscaled), 0);
            assert_true(unscaled.is_finite);
            assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
            if (tutti_optim_load(f->opt, f->path) < 0) {
                fail_msg("%s %d: %s", tt_optimizers[k]->name, i, tutti_last_error());
            }
            step(f, 1);
            tutti_tensor_release(x);
        }
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static tutti_status_t keep(void *user, const char *name, tutti_tensor_t *x)
{
    return tt_tensor_list_add(user, name, x);
}

/* Save the state with one tensor in another dtype, or with steps of another value. */
static void save_changed(fixture_t *f, const char *name, tutti_dtype_t dtype, double value)
{
    tt_tensor_list_t list = {0};
    const tutti_named_text_t kind = {"optimizer", f->opt->ops->name};
    tutti_tensor_t *changed = NULL;
    assert_int_equal(tutti_optim_each_state(f->opt, keep, &list), 0);
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.items[i].name, name) == 0) {
            const tutti_shape_t shape = tutti_tensor_shape(list.items[i].tensor);
            assert_int_equal(tt_test_tensor(dtype, shape, &changed), 0);
            assert_int_equal(tutti_tensor_fill(changed, value), 0);
            tutti_tensor_release((tutti_tensor_t *)(uintptr_t)list.items[i].tensor);
            list.items[i].tensor = changed;
        }
    }
    assert_non_null(changed);
    assert_int_equal(tutti_safetensors_save(f->path, list.items, list.count, &kind, 1), 0);
    tt_tensor_list_release(&list);
}

static void what_does_not_fit_changes_nothing(void **state)
{
    fixture_t *f = *state;
    const struct {
        const char *name;
        tutti_dtype_t dtype;
        double value;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {"bias.exp_avg_sq", TUTTI_F64, 0, TUTTI_ERR_MISMATCH,
         "\"bias.exp_avg_sq\" is f64, here it is f32"},
        {"bias.step", TUTTI_I32, 2, TUTTI_ERR_MISMATCH, "\"bias.step\" is i32, here it is i64"},
        {"bias.step", TUTTI_I64, 0, TUTTI_ERR_FORMAT, "\"bias.step\" is 0: it must be at least 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        create(f, &tutti_adam, NULL);
        step(f, 1);
        save_changed(f, cases[i].name, cases[i].dtype, cases[i].value);
        step(f, 1);
        step(f, 0.5);
        const float *moment = tt_test_host(f->opt->slots[0].moments[0]);
        const float before = *moment;
        assert_int_equal(tutti_optim_load(f->opt, f->path), cases[i].status);
        tt_expect_error(cases[i].text);
        assert_true(*moment == before && f->opt->slots[0].step == 3);
        assert_int_equal(f->opt->slots[1].step, 3);
    }
}

/* Whether there is a master is a matter of the parameter's dtype now, not of the last step's. */
static void a_state_may_be_saved_behind_a_cast(void **state)
{
    fixture_t *f = *state;
    const tutti_dtype_t dtypes[] = {TUTTI_BF16, TUTTI_F32, TUTTI_F16};
    create(f, &tutti_adam, NULL);
    for (int i = 0; i < 3; i++) {
        step(f, 1);
        assert_int_equal(tutti_module_cast(f->net, dtypes[i]), 0);
        assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
        if (tutti_optim_load(f->opt, f->path) < 0) {
            fail_msg("cast %d: %s", i, tutti_last_error());
        }
        assert_int_equal(f->opt->slots[1].step, i + 1);
    }
}

/* The steps that follow are the same, whether the state was saved meanwhile or not. */
static void saving_behind_a_cast_changes_nothing(void **state)
{
    fixture_t *f = *state;
    for (int is_saved = 0; is_saved < 2; is_saved++) {
        create(f, &tutti_sgd, &small);
        assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
        step(f, -1);
        assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
        assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
        assert_null(f->opt->slots[0].master); /* the first step in bf16 makes it */
        assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
        step(f, -1);
        assert_int_equal(tutti_module_cast(f->net, TUTTI_F32), 0);
        if (is_saved) {
            assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
        }
        assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
        step(f, -1);
        const float *master = tt_test_host(f->opt->slots[0].master);
        assert_true(*master == 1 + 2 * 0x1p-12f);
        assert_int_equal(tutti_module_cast(f->net, TUTTI_F32), 0);
    }
}

/* A file that becomes shorter while it is read. */
static struct {
    const char *path; /* NULL: leave it */
    int left;         /* calls until then */
} cut;

static bool cut_file(const void *options, int i, tutti_shape_t *shape)
{
    (void)options;
    (void)shape;
    if (cut.path != NULL && --cut.left == 0) {
        FILE *file = fopen(cut.path, "r+");
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        assert_int_equal(ftruncate(fileno(file), ftell(file) - 4), 0); /* in the last tensor */
        (void)fclose(file);
    }
    return i < 2;
}

static void a_file_that_cannot_be_read_to_its_end_changes_nothing(void **state)
{
    fixture_t *f = *state;
    static tutti_optim_ops_t own; /* Adam, which asks about its moments between two reads */
    own = tutti_adam;
    own.has_moment = cut_file;
    tutti_status_t status = TUTTI_ERR_FORMAT;
    for (int calls = 1; status < 0; calls++) {
        create(f, &own, NULL);
        step(f, 1);
        assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
        step(f, 0.5);
        const double before = tutti_tensor_at(f->opt->slots[0].moments[0], 0);
        cut.path = f->path;
        cut.left = calls;
        status = tutti_optim_load(f->opt, f->path);
        const bool is_cut = cut.left <= 0;
        cut.path = NULL;
        assert_int_equal(status, is_cut && status < 0 ? TUTTI_ERR_FORMAT : TUTTI_OK);
        assert_true(calls > 1 || is_cut);
        for (int i = 0; i < 2; i++) {
            const tt_optim_slot_t *slot = &f->opt->slots[i];
            assert_int_equal(slot->step, status < 0 ? 2 : 1);
            assert_true((tutti_tensor_at(slot->moments[0], 0) == before) == (status < 0));
        }
    }
}

/* A master of before the parameter was written, and a state that is loaded then. */
static void a_state_is_loaded_over_a_stale_master(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    create(f, &tutti_sgd, &small);
    assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
    step(f, -1);
    assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
    for (int i = 0; i < 8; i++) {
        step(f, -1);
    }
    assert_int_equal(tutti_tensor_fill(f->weight, 7), 0); /* the master is stale */
    assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
    step(f, -1);
    const float *master = tt_test_host(f->opt->slots[0].master);
    assert_true(*master == 7 + 0x1p-12f); /* the file's does not round to 7 */
    assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
    assert_int_equal(tutti_tensor_fill(f->weight, 1), 0);
    step(f, -1);
    assert_true(*(const float *)tt_test_host(f->opt->slots[0].master) == 1 + 2 * 0x1p-12f);
}

/* Between two backwards of one step: nothing that is saved depends on it, nothing is changed. */
static void saving_while_gradients_accumulate_changes_nothing(void **state)
{
    fixture_t *f = *state;
    double norm[2];
    assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    create(f, &tutti_adam, NULL);
    step(f, 1);
    tutti_optim_zero_grad(f->opt);
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *grad;
        set_grad(f->weight, 2);
        set_grad(f->bias, 2);
        assert_int_equal(tutti_clip_grad_norm(f->opt, 1, 2, NULL), 0);
        if (i == 1) {
            assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
            assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
        }
        assert_int_equal(tutti_clip_grad_norm(f->opt, INFINITY, 2, &norm[i]), 0);
        grad = tutti_tensor_grad(f->weight);
        assert_true(tutti_tensor_at(grad, 0) == 2);
    }
    assert_true(norm[0] == norm[1] && norm[0] < 1.01);
}

/* Options as they are; the rate of the schedule comes with its next call. */
static void a_group_may_come_after_steps(void **state)
{
    fixture_t *f = *state;
    int group;
    tutti_tensor_t *x;
    create(f, &tutti_sgd, &(tutti_sgd_options_t){.lr = 1, .momentum = 0.5});
    step(f, 1);
    tutti_optim_set_lr(f->opt, 0.5);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(1), &x), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_optim_add_group(f->opt, &(tutti_sgd_options_t){.lr = 0.25}, &group), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, group, "late", x), 0);
    set_grad(x, 1);
    assert_true(tutti_optim_lr(f->opt, group) == 0.125);
    step(f, 1);
    assert_true(tutti_tensor_at(x, 0) == -0.125);
    assert_int_equal(tutti_optim_save(f->opt, f->path), 0);
    assert_int_equal(tutti_optim_load(f->opt, f->path), 0);
    assert_int_equal(f->opt->slots[2].step, 1);
    tutti_tensor_release(x);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_module_may_be_cast_between_steps),
        TEST(a_cast_to_f64_is_refused_by_the_step),
        TEST(a_rate_that_is_no_number_is_refused),
        TEST(a_step_writes_its_parameters),
        TEST(zeros_stay_finite),
        TEST(a_gradient_that_is_no_number_shows),
        TEST(gradients_that_stay_have_no_deviation_below_zero),
        TEST(options_are_finite),
        TEST(parameters_without_elements_do_no_harm),
        TEST(what_does_not_fit_changes_nothing),
        TEST(a_state_may_be_saved_behind_a_cast),
        TEST(saving_behind_a_cast_changes_nothing),
        TEST(a_file_that_cannot_be_read_to_its_end_changes_nothing),
        TEST(a_state_is_loaded_over_a_stale_master),
        TEST(saving_while_gradients_accumulate_changes_nothing),
        TEST(a_group_may_come_after_steps),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
