/* Optimizers over ten steps, clipping and schedules against PyTorch (f64 there, f32 here). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <tutti/optim.h>

#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

enum { PARAMETERS = 2, STEPS = 10, RATES = 30 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_safetensors_t *file;
    tutti_tensor_t *parameters[PARAMETERS], *grads[PARAMETERS]; /* grads: [STEPS, …] */
} fixture_t;

static void open_golden(fixture_t *f, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", TUTTI_SOURCE_DIR, name);
    if (tutti_safetensors_open(path, &f->file) < 0) {
        fail_msg("%s", tutti_last_error());
    }
}

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    open_golden(&f, "optim");
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    const tutti_status_t status = tutti_scope_close(f->s);
    tutti_safetensors_close(f->file);
    tutti_context_release(f->ctx);
    return status == TUTTI_OK && tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static tutti_tensor_t *load(fixture_t *f, const char *name, const char *what, int i)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s.%d", name, what, i);
    return tutti_safetensors_load(f->s, f->file, text);
}

/* Parameters at their start, each with a gradient to be filled. */
static void start(fixture_t *f)
{
    for (int i = 0; i < PARAMETERS; i++) {
        f->parameters[i] = load(f, "start", "", i);
        f->grads[i] = load(f, "grads", "", i);
        tutti_tensor_t *grad = tutti_zeros(f->s, TUTTI_F32, tutti_tensor_shape(f->parameters[i]));
        assert_int_equal(tutti_tensor_set_requires_grad(f->parameters[i], true), 0);
        assert_int_equal(tutti_tensor_set_grad(f->parameters[i], grad), 0);
    }
}

static void set_grads(fixture_t *f, int step)
{
    for (int i = 0; i < PARAMETERS; i++) {
        const int64_t n = tutti_tensor_numel(f->parameters[i]);
        const float *all = tt_test_host(f->grads[i]);
        assert_int_equal(
            tutti_tensor_copy_from(tutti_tensor_grad(f->parameters[i]), all + step * n), 0);
    }
}

static void expect_close(const char *name, double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance * (1 + fabs(wanted)))) {
        fail_msg("%s: got %.9g, want %.9g", name, got, wanted);
    }
}

static double number(const json_t *options, const char *name)
{
    return json_number_value(json_object_get(options, name));
}

static double beta(const json_t *options, size_t i)
{
    return json_number_value(json_array_get(json_object_get(options, "betas"), i));
}

static tutti_optim_t *create(fixture_t *f, const json_t *options)
{
    const tutti_sgd_options_t sgd = {.lr = number(options, "lr"),
                                     .momentum = number(options, "momentum"),
                                     .dampening = number(options, "dampening"),
                                     .weight_decay = number(options, "weight_decay"),
                                     .nesterov =
                                         json_is_true(json_object_get(options, "nesterov"))};
    const tutti_adam_options_t adam = {.lr = number(options, "lr"),
                                       .beta1 = beta(options, 0),
                                       .beta2 = beta(options, 1),
                                       .eps = number(options, "eps"),
                                       .weight_decay = number(options, "weight_decay")};
    const tutti_adamw_options_t adamw = {.lr = adam.lr,
                                         .beta1 = adam.beta1,
                                         .beta2 = adam.beta2,
                                         .eps = adam.eps,
                                         .weight_decay = adam.weight_decay};
    const char *kind = json_string_value(json_object_get(options, "kind"));
    const bool is_sgd = strcmp(kind, "sgd") == 0, is_adam = strcmp(kind, "adam") == 0;
    tutti_optim_t *opt;
    assert_int_equal(tutti_optim_create(f->ctx,
                                        is_sgd    ? &tutti_sgd
                                        : is_adam ? &tutti_adam
                                                  : &tutti_adamw,
                                        is_sgd    ? (const void *)&sgd
                                        : is_adam ? (const void *)&adam
                                                  : (const void *)&adamw,
                                        &opt),
                     0);
    for (int i = 0; i < PARAMETERS; i++) {
        assert_int_equal(tutti_optim_add_parameter(opt, 0, i == 0 ? "a" : "b", f->parameters[i]),
                         0);
    }
    return opt;
}

static json_t *options_of(fixture_t *f, const char *name)
{
    const char *text = tutti_safetensors_metadata(f->file, name);
    assert_non_null(text);
    json_t *options = json_loads(text, 0, NULL);
    assert_non_null(options);
    return options;
}

static void compare_step(fixture_t *f, const char *name, int step)
{
    for (int i = 0; i < PARAMETERS; i++) {
        const tutti_tensor_t *after = load(f, name, "/after", i);
        const int64_t n = tutti_tensor_numel(f->parameters[i]);
        for (int64_t k = 0; k < n; k++) {
            expect_close(name, tutti_tensor_at(f->parameters[i], k),
                         tutti_tensor_at(after, step * n + k), 2e-6);
        }
    }
}

static void every_optimizer_agrees_over_ten_steps(void **state)
{
    fixture_t *f = *state;
    static const char *const names[] = {"sgd",          "sgd_momentum", "sgd_dampening",
                                        "sgd_nesterov", "sgd_decay",    "adam",
                                        "adam_decay",   "adamw",        "adamw_decay"};
    for (size_t c = 0; c < sizeof names / sizeof names[0]; c++) {
        json_t *options = options_of(f, names[c]);
        start(f);
        tutti_optim_t *opt = create(f, options);
        for (int step = 0; step < STEPS; step++) {
            set_grads(f, step);
            assert_int_equal(tutti_optim_step(opt), 0);
            compare_step(f, names[c], step);
        }
        tutti_optim_release(opt);
        json_decref(options);
    }
}

static void clip(fixture_t *f, tutti_optim_t *opt, const char *name, const json_t *options)
{
    if (strcmp(name, "clip_value") == 0) {
        assert_int_equal(tutti_clip_grad_value(opt, number(options, "max")), 0);
        return;
    }
    const bool is_inf = json_is_true(json_object_get(options, "inf"));
    double norm;
    char text[64];
    snprintf(text, sizeof text, "%s/norm", name);
    assert_int_equal(
        tutti_clip_grad_norm(opt, number(options, "max"), is_inf ? INFINITY : 2, &norm), 0);
    expect_close(name, norm, tutti_tensor_item(tutti_safetensors_load(f->s, f->file, text)), 1e-6);
}

static void clipping_agrees(void **state)
{
    fixture_t *f = *state;
    static const char *const names[] = {"clip_norm", "clip_norm_inf", "clip_norm_small",
                                        "clip_value"};
    json_t *sgd = options_of(f, "sgd");
    for (size_t c = 0; c < sizeof names / sizeof names[0]; c++) {
        json_t *options = options_of(f, names[c]);
        start(f);
        set_grads(f, 0);
        tutti_optim_t *opt = create(f, sgd);
        clip(f, opt, names[c], options);
        for (int i = 0; i < PARAMETERS; i++) {
            const tutti_tensor_t *after = load(f, names[c], "/after", i);
            for (int64_t k = 0; k < tutti_tensor_numel(after); k++) {
                expect_close(names[c], tutti_tensor_at(tutti_tensor_grad(f->parameters[i]), k),
                             tutti_tensor_at(after, k), 1e-6);
            }
        }
        tutti_optim_release(opt);
        json_decref(options);
    }
    json_decref(sgd);
}

static void every_schedule_agrees(void **state)
{
    fixture_t *f = *state;
    tutti_safetensors_close(f->file);
    open_golden(f, "sched");
    for (size_t kind = 0; kind < tt_schedule_count; kind++) {
        const char *name = tt_schedules[kind]->name;
        json_t *options = options_of(f, name);
        const double lr = number(options, "lr"), min_lr = number(options, "min_lr");
        const tutti_schedule_t schedule = {
            .kind = (tutti_schedule_kind_t)kind,
            .lr = lr,
            .warmup_steps = json_integer_value(json_object_get(options, "warmup_steps")),
            .total_steps = json_integer_value(json_object_get(options, "total_steps")),
            .min_ratio = min_lr > 0 ? min_lr / lr : number(options, "min_ratio"),
            .step_size = json_integer_value(json_object_get(options, "step_size")),
            .gamma = number(options, "gamma"),
            .up_share = number(options, "pct_start"),
            .div_factor = number(options, "div_factor"),
            .final_div_factor = number(options, "final_div_factor")};
        assert_int_equal(tutti_schedule_check(&schedule), 0);
        const tutti_tensor_t *rates = tutti_safetensors_load(f->s, f->file, name);
        assert_int_equal(tutti_tensor_numel(rates), RATES);
        for (int step = 0; step < RATES; step++) {
            expect_close(name, tutti_schedule_lr(&schedule, step), tutti_tensor_at(rates, step),
                         1e-12);
        }
        json_decref(options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_optimizer_agrees_over_ten_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(clipping_agrees, setup, teardown),
        cmocka_unit_test_setup_teardown(every_schedule_agrees, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
