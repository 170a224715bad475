/* Recurrent layers and cells against PyTorch's values and gradients (make_golden.py, rnn_cases):
 * parameters by their names, outputs, last states, gradients of inputs and parameters. In f32, and
 * roughly under bf16 autocast. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "core/base/alloc.h"
#include "core/tensor/safetensors_impl.h"
#include "core/tensor/device_testing.h"

enum { TENSORS_MAX = 3 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_safetensors_t *file;
    const char *name;
    const json_t *config;
    tutti_module_t *m;
    double tolerance;
    tutti_tensor_t *in[TENSORS_MAX], *out[TENSORS_MAX];
    int inputs, outputs;
} run_t;

static tutti_tensor_t *stored(const run_t *r, const char *kind, const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "%s/%s%s", r->name, kind, what);
    return tutti_safetensors_load(r->s, r->file, name);
}

static int64_t integer(const run_t *r, const char *key)
{
    return json_integer_value(json_object_get(r->config, key));
}

static bool truth(const run_t *r, const char *key)
{
    return json_is_true(json_object_get(r->config, key));
}

static const tutti_module_ops_t *kind_of(const run_t *r, bool is_cell)
{
    const char *kind = json_string_value(json_object_get(r->config, "kind"));
    if (strcmp(kind, "lstm") == 0) {
        return is_cell ? &tutti_lstm_cell_layer : &tutti_lstm_layer;
    }
    if (strcmp(kind, "gru") == 0) {
        return is_cell ? &tutti_gru_cell_layer : &tutti_gru_layer;
    }
    return is_cell ? &tutti_rnn_cell_layer : &tutti_rnn_layer;
}

static tutti_module_t *make_module(const run_t *r)
{
    tutti_module_t *m;
    const bool is_relu = strcmp(json_string_value(json_object_get(r->config, "kind")), "relu") == 0;
    const tutti_rnn_nonlinearity_t nonlinearity = is_relu ? TUTTI_RNN_RELU : TUTTI_RNN_TANH;
    const tutti_rnn_cell_options_t cell = {
        .in = integer(r, "in"), .hidden = integer(r, "hidden"), .nonlinearity = nonlinearity};
    const tutti_rnn_options_t layer = {.in = integer(r, "in"),
                                       .hidden = integer(r, "hidden"),
                                       .layers = integer(r, "layers"),
                                       .bidirectional = truth(r, "bidirectional"),
                                       .batch_first = truth(r, "batch_first"),
                                       .no_bias = !truth(r, "bias"),
                                       .nonlinearity = nonlinearity};
    const bool is_cell = truth(r, "is_cell");
    assert_int_equal(tutti_module_create(r->ctx, kind_of(r, is_cell),
                                         is_cell ? (const void *)&cell : &layer, &m),
                     TUTTI_OK);
    return m;
}

static void compare(const run_t *r, const char *what, const tutti_tensor_t *got,
                    const tutti_tensor_t *want)
{
    double most = 0;
    if (got == NULL || !tutti_shape_equal(tutti_tensor_shape(got), tutti_tensor_shape(want))) {
        fail_msg("%s %s: of another shape", r->name, what);
    }
    for (int64_t i = 0; i < tutti_tensor_numel(want); i++) {
        most = fmax(most, fabs(tutti_tensor_at(want, i)));
    }
    for (int64_t i = 0; i < tutti_tensor_numel(want); i++) {
        const double x = tutti_tensor_at(got, i), y = tutti_tensor_at(want, i);
        if (!(fabs(x - y) <= r->tolerance * most)) {
            fail_msg("%s %s: element %lld is %.9g, not %.9g", r->name, what, (long long)i, x, y);
        }
    }
}

/* Parameters have PyTorch's names: every one of them is in the file. */
static tutti_status_t load_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    const run_t *r = user;
    return tutti_tensor_copy(x, stored(r, name, ""));
}

static tutti_status_t compare_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    const run_t *r = user;
    compare(r, name, tutti_tensor_grad(x), stored(r, "grad.", name));
    return TUTTI_OK;
}

static void compute(run_t *r)
{
    tutti_tensor_t *loss = NULL;
    char index[8];
    for (int i = 0; i < r->inputs; i++) {
        snprintf(index, sizeof index, "%d", i);
        r->in[i] = stored(r, "in", index);
        assert_int_equal(tutti_tensor_set_requires_grad(r->in[i], true), TUTTI_OK);
    }
    tutti_forward_many(r->s, r->m, r->in, r->inputs, r->out, r->outputs);
    for (int i = 0; i < r->outputs; i++) {
        snprintf(index, sizeof index, "%d", i);
        tutti_tensor_t *part =
            tutti_sum(r->s, tutti_mul(r->s, r->out[i], stored(r, "seed", index)));
        loss = loss == NULL ? part : tutti_add(r->s, loss, part);
    }
    if (tutti_backward(r->s, loss) < 0) {
        fail_msg("%s: %s", r->name, tutti_last_error());
    }
}

static void run_case(run_t *r)
{
    char index[8];
    assert_int_equal(tutti_scope_open(r->ctx, &r->s), TUTTI_OK);
    r->inputs = (int)integer(r, "inputs");
    r->outputs = (int)integer(r, "outputs");
    r->m = make_module(r);
    assert_int_equal(tutti_module_each_parameter(r->m, load_parameter, r), TUTTI_OK);
    compute(r);
    for (int i = 0; i < r->outputs; i++) {
        snprintf(index, sizeof index, "%d", i);
        compare(r, "output", r->out[i], stored(r, "out", index));
    }
    for (int i = 0; i < r->inputs; i++) {
        snprintf(index, sizeof index, "%d", i);
        compare(r, "input's gradient", tutti_tensor_grad(r->in[i]), stored(r, "grad", index));
    }
    assert_int_equal(tutti_module_each_parameter(r->m, compare_gradient, r), TUTTI_OK);
    tutti_module_release(r->m);
    assert_int_equal(tutti_scope_close(r->s), TUTTI_OK);
}

static int run_file(tutti_dtype_t autocast, double tolerance)
{
    run_t r = {.tolerance = tolerance};
    int count = 0;
    const char *const path = TUTTI_SOURCE_DIR "/tests/golden/rnn.safetensors";
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &r.ctx), 0);
    (void)tutti_context_set_autocast(r.ctx, autocast);
    assert_int_equal(tutti_safetensors_open(path, &r.file), TUTTI_OK);
    for (size_t i = 0; i < r.file->metadata_count; i++) {
        json_t *config = json_loads(r.file->metadata[i].text, 0, NULL);
        assert_non_null(config);
        r.name = r.file->metadata[i].name;
        r.config = config;
        run_case(&r);
        json_decref(config);
        count++;
    }
    tutti_safetensors_close(r.file);
    tutti_context_release(r.ctx);
    return count;
}

static void layers_and_cells_agree_with_pytorch(void **state)
{
    (void)state;
    assert_int_equal(run_file(TUTTI_F32, 2e-6), 24);
}

static void under_autocast_they_are_near(void **state)
{
    (void)state;
    assert_int_equal(run_file(TUTTI_BF16, 0.15), 24);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(layers_and_cells_agree_with_pytorch, nothing_is_left),
        cmocka_unit_test_teardown(under_autocast_they_are_near, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
