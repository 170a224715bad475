/* Attention layers and transformers against PyTorch's values and gradients
 * (make_transformer_golden.py): parameters by their names, outputs, gradients of inputs and
 * parameters. In f64 and f32; outputs in bf16, too. */
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
#include <tutti/nn_transformer.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"
#include "core/tensor/safetensors_impl.h"

enum { TENSORS_MAX = 8 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_safetensors_t *file;
    const char *name;
    const json_t *config;
    tutti_module_t *m;
    tutti_dtype_t dtype;
    double tolerance;
    tutti_tensor_t *in[TENSORS_MAX], *out[TENSORS_MAX];
    int inputs, outputs;
} run_t;

static tutti_tensor_t *stored(const run_t *r, const char *kind, const char *what)
{
    char name[160];
    snprintf(name, sizeof name, "%s/%s%s", r->name, kind, what);
    return tutti_safetensors_find(r->file, name) == NULL
               ? NULL
               : tutti_safetensors_load(r->s, r->file, name);
}

static tutti_tensor_t *numbered(const run_t *r, const char *kind, int i)
{
    char index[16];
    snprintf(index, sizeof index, "%d", i);
    return stored(r, kind, index);
}

static int64_t integer(const run_t *r, const char *key)
{
    return json_integer_value(json_object_get(r->config, key));
}

static bool truth(const run_t *r, const char *key)
{
    return json_is_true(json_object_get(r->config, key));
}

static bool is_text(const run_t *r, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(r->config, key));
    return value != NULL && strcmp(value, text) == 0;
}

static tutti_module_t *make_module(const run_t *r)
{
    static const tutti_module_ops_t *const kinds[] = {
        &tutti_encoder_block_layer, &tutti_decoder_block_layer, &tutti_encoder_layer,
        &tutti_decoder_layer, &tutti_transformer_layer};
    tutti_module_t *m = NULL;
    const tutti_multihead_attention_options_t attention = {.width = integer(r, "width"),
                                                           .heads = integer(r, "heads"),
                                                           .key_width = integer(r, "key_width"),
                                                           .value_width = integer(r, "value_width"),
                                                           .no_bias = truth(r, "no_bias"),
                                                           .batch_first = truth(r, "batch_first"),
                                                           .causal = truth(r, "causal")};
    const tutti_transformer_options_t transformer = {.width = integer(r, "width"),
                                                     .heads = integer(r, "heads"),
                                                     .hidden = integer(r, "hidden"),
                                                     .layers = integer(r, "layers"),
                                                     .decoder_layers = integer(r, "decoder_layers"),
                                                     .activation = is_text(r, "activation", "gelu")
                                                                       ? TUTTI_ACTIVATION_GELU
                                                                       : TUTTI_ACTIVATION_DEFAULT,
                                                     .norm_first = truth(r, "norm_first"),
                                                     .batch_first = truth(r, "batch_first"),
                                                     .no_bias = truth(r, "no_bias"),
                                                     .causal = truth(r, "causal"),
                                                     .final_norm = truth(r, "final_norm")};
    if (is_text(r, "kind", "multihead_attention")) {
        assert_int_equal(
            tutti_module_create(r->ctx, &tutti_multihead_attention_layer, &attention, &m), 0);
        return m;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && m == NULL; i++) {
        if (is_text(r, "kind", kinds[i]->name)) {
            assert_int_equal(tutti_module_create(r->ctx, kinds[i], &transformer, &m), 0);
        }
    }
    assert_non_null(m);
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
        if (!(fabs(x - y) <= r->tolerance * fmax(most, 1))) {
            fail_msg("%s %s in %s: element %lld is %.9g, not %.9g", r->name, what,
                     tutti_dtype_name(r->dtype), (long long)i, x, y);
        }
    }
}

/* Parameters have PyTorch's names: every one of them is in the file. */
static tutti_status_t load_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    const run_t *r = user;
    tutti_tensor_t *value = stored(r, name, "");
    assert_non_null(value);
    return tutti_tensor_copy(x, value);
}

static tutti_status_t compare_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    const run_t *r = user;
    compare(r, name, tutti_tensor_grad(x), stored(r, "grad.", name));
    return TUTTI_OK;
}

static void take_inputs(run_t *r)
{
    for (int i = 0; i < r->inputs; i++) {
        r->in[i] = numbered(r, "in", i);
        if (r->in[i] != NULL && tutti_dtype_is_float(tutti_tensor_dtype(r->in[i]))) {
            r->in[i] = tutti_clone(r->s, tutti_cast(r->s, r->in[i], r->dtype));
            assert_int_equal(tutti_tensor_set_requires_grad(r->in[i], true), TUTTI_OK);
        }
    }
    if (truth(r, "pads_memory")) {
        r->in[7] = r->in[5];
        r->inputs = 8;
    }
}

static void compute(run_t *r)
{
    tutti_tensor_t *loss = NULL;
    take_inputs(r);
    tutti_forward_many(r->s, r->m, r->in, r->inputs, r->out, r->outputs);
    for (int i = 0; i < r->outputs; i++) {
        tutti_tensor_t *part = tutti_sum(r->s, tutti_mul(r->s, r->out[i], numbered(r, "seed", i)));
        loss = loss == NULL ? part : tutti_add(r->s, loss, part);
    }
    if (tutti_backward(r->s, loss) < 0) {
        fail_msg("%s: %s", r->name, tutti_last_error());
    }
}

static void run_case(run_t *r)
{
    const bool is_wide = r->dtype != TUTTI_BF16; /* else a ReLU may be on the other side of 0 */
    memset(r->in, 0, sizeof r->in);
    assert_int_equal(tutti_scope_open(r->ctx, &r->s), TUTTI_OK);
    r->inputs = (int)integer(r, "inputs");
    r->outputs = (int)integer(r, "outputs");
    r->m = make_module(r);
    assert_int_equal(tutti_module_each_parameter(r->m, load_parameter, r), TUTTI_OK);
    assert_int_equal(tutti_module_cast(r->m, r->dtype), TUTTI_OK);
    compute(r);
    for (int i = 0; i < r->outputs; i++) {
        compare(r, "output", r->out[i], numbered(r, "out", i));
    }
    for (int i = 0; i < r->inputs && is_wide; i++) {
        const tutti_tensor_t *want = numbered(r, "grad", i);
        if (want != NULL) {
            compare(r, "input's gradient", tutti_tensor_grad(r->in[i]), want);
        }
    }
    if (is_wide) {
        assert_int_equal(tutti_module_each_parameter(r->m, compare_gradient, r), TUTTI_OK);
    }
    tutti_module_release(r->m);
    assert_int_equal(tutti_scope_close(r->s), TUTTI_OK);
}

static int run_file(tutti_dtype_t dtype, double tolerance)
{
    run_t r = {.dtype = dtype, .tolerance = tolerance};
    int count = 0;
    const char *const path = TUTTI_SOURCE_DIR "/tests/golden/transformer.safetensors";
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &r.ctx), 0);
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

static void attention_and_transformers_agree_with_pytorch(void **state)
{
    (void)state;
    assert_int_equal(run_file(TUTTI_F64, 1e-6), 15);
    assert_int_equal(run_file(TUTTI_F32, 2e-5), 15);
}

static void in_bf16_they_are_near(void **state)
{
    (void)state;
    assert_int_equal(run_file(TUTTI_BF16, 0.15), 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(attention_and_transformers_agree_with_pytorch,
                                  tt_nothing_is_left),
        cmocka_unit_test_teardown(in_bf16_they_are_near, tt_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
