/* The optimizers of optim.h over ten steps: RMSprop and Adagrad against PyTorch, the others
 * against their papers written out in numpy (f64 there, f32 here). The bits do not depend on the
 * number of threads. */
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

enum { PARAMETERS = 4, STEPS = 10 };

typedef union {
    tutti_rmsprop_options_t rmsprop;
    tutti_adagrad_options_t adagrad;
    tutti_lion_options_t lion;
    tutti_lamb_options_t lamb;
    tutti_adafactor_options_t adafactor;
} options_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_safetensors_t *file;
    tutti_tensor_t *parameters[PARAMETERS], *grads[PARAMETERS]; /* grads: [STEPS, …] */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    const char *path = TUTTI_SOURCE_DIR "/tests/golden/optim_kinds.safetensors";
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    if (tutti_safetensors_open(path, &f.file) < 0) {
        fail_msg("%s", tutti_last_error());
    }
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

static double number(const json_t *options, const char *name)
{
    return json_number_value(json_object_get(options, name));
}

static bool flag(const json_t *options, const char *name)
{
    return json_is_true(json_object_get(options, name));
}

static void read_first(const char *kind, const json_t *o, options_t *to)
{
    if (strcmp(kind, "rmsprop") == 0) {
        to->rmsprop = (tutti_rmsprop_options_t){.lr = number(o, "lr"),
                                                .alpha = number(o, "alpha"),
                                                .eps = number(o, "eps"),
                                                .weight_decay = number(o, "weight_decay"),
                                                .momentum = number(o, "momentum"),
                                                .centered = flag(o, "centered"),
                                                .maximize = flag(o, "maximize")};
    } else if (strcmp(kind, "adagrad") == 0) {
        to->adagrad =
            (tutti_adagrad_options_t){.lr = number(o, "lr"),
                                      .lr_decay = number(o, "lr_decay"),
                                      .weight_decay = number(o, "weight_decay"),
                                      .initial_accumulator = number(o, "initial_accumulator_value"),
                                      .maximize = flag(o, "maximize")};
    } else if (strcmp(kind, "lion") == 0) {
        to->lion = (tutti_lion_options_t){.lr = number(o, "lr"),
                                          .beta1 = number(o, "beta1"),
                                          .beta2 = number(o, "beta2"),
                                          .weight_decay = number(o, "weight_decay"),
                                          .maximize = flag(o, "maximize")};
    }
}

static void read_options(const char *kind, const json_t *o, options_t *to)
{
    memset(to, 0, sizeof *to);
    read_first(kind, o, to);
    if (strcmp(kind, "lamb") == 0) {
        to->lamb = (tutti_lamb_options_t){.lr = number(o, "lr"),
                                          .beta1 = number(o, "beta1"),
                                          .beta2 = number(o, "beta2"),
                                          .eps = number(o, "eps"),
                                          .weight_decay = number(o, "weight_decay"),
                                          .maximize = flag(o, "maximize")};
    } else if (strcmp(kind, "adafactor") == 0) {
        to->adafactor = (tutti_adafactor_options_t){
            .lr = number(o, "lr"),
            .eps1 = number(o, "eps1"),
            .eps2 = number(o, "eps2"),
            .clip = number(o, "clip"),
            .decay_rate = number(o, "decay_rate"),
            .beta1 = number(o, "beta1"),
            .weight_decay = number(o, "weight_decay"),
            .no_scale_parameter = json_is_false(json_object_get(o, "scale")),
            .no_relative_step = json_object_get(o, "lr") != NULL,
            .warmup_init = flag(o, "warmup_init"),
            .maximize = flag(o, "maximize")};
    }
}

static const tutti_optim_ops_t *kind_of(const char *name)
{
    for (size_t i = 0; i < tt_optimizer_count; i++) {
        if (strcmp(tt_optimizers[i]->name, name) == 0) {
            return tt_optimizers[i];
        }
    }
    fail_msg("there is no optimizer %s", name);
    return NULL;
}

static tutti_optim_t *start(fixture_t *f, const char *name)
{
    const char *text = tutti_safetensors_metadata(f->file, name);
    assert_non_null(text);
    json_t *options = json_loads(text, 0, NULL);
    assert_non_null(options);
    const char *kind = json_string_value(json_object_get(options, "kind"));
    options_t read;
    read_options(kind, options, &read);
    tutti_optim_t *opt;
    assert_int_equal(tutti_optim_create(f->ctx, kind_of(kind), &read, &opt), 0);
    json_decref(options);
    for (int i = 0; i < PARAMETERS; i++) {
        char parameter[8];
        snprintf(parameter, sizeof parameter, "p%d", i);
        f->parameters[i] = load(f, "start", "", i);
        f->grads[i] = load(f, "grads", "", i);
        tutti_tensor_t *grad = tutti_zeros(f->s, TUTTI_F32, tutti_tensor_shape(f->parameters[i]));
        assert_int_equal(tutti_tensor_set_requires_grad(f->parameters[i], true), 0);
        assert_int_equal(tutti_tensor_set_grad(f->parameters[i], grad), 0);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, parameter, f->parameters[i]), 0);
    }
    return opt;
}

static void step_with(fixture_t *f, tutti_optim_t *opt, int step)
{
    for (int i = 0; i < PARAMETERS; i++) {
        const int64_t n = tutti_tensor_numel(f->parameters[i]);
        const float *all = tt_test_host(f->grads[i]);
        assert_int_equal(
            tutti_tensor_copy_from(tutti_tensor_grad(f->parameters[i]), all + step * n), 0);
    }
    assert_int_equal(tutti_optim_step(opt), 0);
}

static void compare(fixture_t *f, const char *name, int step)
{
    for (int i = 0; i < PARAMETERS; i++) {
        const tutti_tensor_t *after = load(f, name, "/after", i);
        const int64_t n = tutti_tensor_numel(f->parameters[i]);
        for (int64_t k = 0; k < n; k++) {
            const double got = tutti_tensor_at(f->parameters[i], k);
            const double want = tutti_tensor_at(after, step * n + k);
            if (!(fabs(got - want) <= 3e-6 * (1 + fabs(want)))) {
                fail_msg("%s, step %d, parameter %d at %d: got %.9g, want %.9g", name, step, i,
                         (int)k, got, want);
            }
        }
    }
}

static void every_kind_agrees_over_ten_steps(void **state)
{
    fixture_t *f = *state;
    static const char *const names[] = {"rmsprop",          "rmsprop_momentum", "rmsprop_centered",
                                        "rmsprop_all",      "rmsprop_maximize", "adagrad",
                                        "adagrad_all",      "adagrad_maximize", "lion",
                                        "lion_all",         "lion_maximize",    "lamb",
                                        "lamb_all",         "lamb_maximize",    "adafactor",
                                        "adafactor_warmup", "adafactor_fixed",  "adafactor_all"};
    for (size_t c = 0; c < sizeof names / sizeof names[0]; c++) {
        tutti_optim_t *opt = start(f, names[c]);
        for (int step = 0; step < STEPS; step++) {
            step_with(f, opt, step);
            compare(f, names[c], step);
        }
        tutti_optim_release(opt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_kind_agrees_over_ten_steps, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
