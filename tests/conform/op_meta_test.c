/* Every case of an operation on meta: forward and backward give the shapes and dtypes that they
 * give on the host. Its memory cannot be touched, so a kernel that ran there would crash. */
#include <tutti/devices.h>
#include <tutti/op_reduce.h>
#include <tutti/tutti.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/tensor/device_testing.h"
#include "op_cases.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    int input_count;
    tutti_tensor_t *inputs[OP_INPUTS_MAX], *outputs[OP_OUTPUTS_MAX];
} run_t;

/* Values that fit any operation: indices of the first element, small numbers. */
static tutti_tensor_t *make_input(const run_t *run, const op_case_t *c, int k)
{
    const op_input_t *in = &c->inputs[k];
    const bool is_float = in->dtype == TUTTI_F32;
    const double value = in->low == 0 && in->high == 0 ? 1 : in->low;
    if (in->is_missing) {
        return NULL;
    }
    tutti_tensor_t *x = tutti_full(run->s, in->dtype, in->shape, value);
    for (int64_t i = 0; in->values != NULL && i < tutti_tensor_numel(x); i++) {
        if (tutti_tensor_device(x) == NULL && in->dtype == TUTTI_I64) {
            ((int64_t *)tutti_tensor_data(x))[i] = (int64_t)in->values[i];
        }
    }
    if (is_float && !in->is_constant && !c->has_no_gradient) {
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    }
    return x;
}

static void perform(run_t *run, const op_case_t *c, tutti_device_t *device)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 3, .device = device};
    *run = (run_t){.input_count = c->input_count < 0    ? 0
                                  : c->input_count == 0 ? 1
                                                        : c->input_count};
    assert_int_equal(tutti_context_create(&options, &run->ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(run->ctx, &run->s), TUTTI_OK);
    for (int k = 0; k < run->input_count; k++) {
        run->inputs[k] = make_input(run, c, k);
    }
    c->call(run->s, run->inputs, run->outputs);
    for (int k = 0; k < (c->output_count == 0 ? 1 : c->output_count); k++) {
        if (tutti_tensor_requires_grad(run->outputs[k])) {
            (void)tutti_backward(run->s, tutti_sum(run->s, run->outputs[k]));
            break;
        }
    }
    if (tutti_scope_status(run->s) < 0) {
        fail_msg("%s (%s) on %s: %s", c->op, c->what, device == NULL ? "the host" : "meta",
                 tutti_scope_error(run->s));
    }
}

static void expect_same(const op_case_t *c, const char *what, tutti_tensor_t *got,
                        tutti_tensor_t *want, const tutti_device_t *device)
{
    char a[192], b[192];
    if (got == NULL || want == NULL) {
        assert_ptr_equal(got, want);
        return;
    }
    assert_ptr_equal(tutti_tensor_device(got), device);
    if (strcmp(tutti_tensor_describe(got, a, sizeof a), tutti_tensor_describe(want, b, sizeof b)) !=
        0) {
        fail_msg("%s (%s): %s is %s on meta, %s on the host", c->op, c->what, what, a, b);
    }
}

static void check_case(const op_case_t *c, tutti_device_t *meta)
{
    run_t run, host;
    perform(&run, c, meta);
    perform(&host, c, NULL);
    for (int k = 0; k < (c->output_count == 0 ? 1 : c->output_count); k++) {
        expect_same(c, "an output", run.outputs[k], host.outputs[k], meta);
    }
    for (int k = 0; k < run.input_count; k++) {
        if (run.inputs[k] != NULL) {
            expect_same(c, "a gradient", tutti_tensor_grad(run.inputs[k]),
                        tutti_tensor_grad(host.inputs[k]), meta);
        }
    }
    assert_int_equal(tutti_scope_close(host.s), TUTTI_OK);
    assert_int_equal(tutti_scope_close(run.s), TUTTI_OK);
    tutti_context_release(host.ctx);
    tutti_context_release(run.ctx);
}

static void shapes_and_dtypes_are_those_of_the_host(void **state)
{
    (void)state;
    tutti_device_t *meta;
    assert_int_equal(tutti_device_open("meta", NULL, &meta), TUTTI_OK);
    int count = 0;
#define X(family)                                                                                  \
    for (size_t i = 0; i < op_cases_##family##_count; i++) {                                       \
        if (strcmp(op_cases_##family[i].op, "to") != 0) {                                          \
            check_case(&op_cases_##family[i], meta);                                               \
            count++;                                                                               \
        }                                                                                          \
    }
    OP_CASE_FAMILIES(X)
#undef X
    assert_true(count > 200);
    assert_int_equal(tutti_device_stats(meta).live_bytes, 0);
    assert_int_equal(tutti_device_stats(meta).copied_bytes, 0);
    tutti_device_release(meta);
}

/* What values decide is not known where there are none. */
static bool is_of_data(const op_error_t *error)
{
    static const char *const starts[] = {"gather: index 3 at",
                                         "index_select: index 1 is -1",
                                         "cross_entropy: target 2 is 5",
                                         "cross_entropy: target 1 is 5",
                                         "embedding: index 7 at",
                                         "one_hot: class 3 at",
                                         "multinomial: weight 1 of",
                                         "multinomial: row 0 has",
                                         "index_add: index 1 is 2",
                                         "scatter_along: index -1 at",
                                         "scatter_along_add: index 3 at",
                                         "ctc_loss: target 0 of",
                                         "ctc_loss: input length 4",
                                         "ctc_loss: target length 3",
                                         "multilabel_margin_loss: target"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (strncmp(error->text, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void check_error(const op_error_t *error, int *of_data)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    if (strcmp(error->op, "to") == 0) {
        return; /* names the device */
    }
    assert_int_equal(tt_test_context_on("meta", NULL, &ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    error->call(s);
    const char *want = is_of_data(error) ? "" : error->text;
    if (strcmp(tutti_scope_error(s), want) != 0) {
        fail_msg("%s: want \"%s\", got \"%s\"", error->op, want, tutti_scope_error(s));
    }
    *of_data += is_of_data(error);
    (void)tutti_scope_close(s);
    tutti_context_release(ctx);
}

static void errors_are_those_of_the_host(void **state)
{
    (void)state;
    int of_data = 0;
#define X(family)                                                                                  \
    for (size_t i = 0; i < op_errors_##family##_count; i++) {                                      \
        check_error(&op_errors_##family[i], &of_data);                                             \
    }
    OP_CASE_FAMILIES(X)
#undef X
    assert_int_equal(of_data, 17);
}

/* Scaled, unscaled, clipped; the norm is no number. */
static void step(tutti_scope_t *s, tutti_optim_t *opt, tutti_tensor_t *loss)
{
    tutti_scaler_t *scaler;
    bool is_skipped = true;
    double norm;
    assert_int_equal(tutti_scaler_create(NULL, &scaler), TUTTI_OK);
    if (tutti_backward(s, tutti_scaler_scale(scaler, s, loss)) < 0) {
        fail_msg("backward: %s", tutti_scope_error(s));
    }
    assert_int_equal(tutti_scaler_unscale(scaler, opt), TUTTI_OK);
    assert_int_equal(tutti_clip_grad_value(opt, 1), TUTTI_OK);
    assert_int_equal(tutti_clip_grad_norm(opt, 1, 2, NULL), TUTTI_OK);
    assert_int_equal(tutti_clip_grad_norm(opt, 1, INFINITY, NULL), TUTTI_OK);
    assert_int_equal(tutti_clip_grad_norm(opt, 1, 2, &norm), TUTTI_OK);
    assert_true(isnan(norm));
    assert_int_equal(tutti_scaler_step(scaler, opt, &is_skipped), TUTTI_OK);
    assert_false(is_skipped);
    assert_int_equal(tutti_scaler_update(scaler), TUTTI_OK);
    tutti_scaler_release(scaler);
}

/* Of a GPT, by every optimizer: moments and masters have no memory either. */
static void a_training_step_runs_no_kernel(void **state)
{
    (void)state;
    tutti_device_t *meta;
    tutti_context_t *ctx;
    assert_int_equal(tutti_device_open("meta", NULL, &meta), TUTTI_OK);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = meta}, &ctx),
                     TUTTI_OK);
    const tutti_gpt_options_t options = {.layers = 2, .width = 1 << 16, .heads = 128};
    for (size_t i = 0; i < tt_optimizer_count; i++) {
        tutti_module_t *gpt;
        tutti_optim_t *opt;
        tutti_scope_t *s;
        assert_int_equal(tutti_module_create(ctx, &tutti_gpt_layer, &options, &gpt), TUTTI_OK);
        assert_int_equal(tutti_module_cast(gpt, TUTTI_BF16), TUTTI_OK);
        assert_int_equal(tutti_optim_create(ctx, tt_optimizers[i], NULL, &opt), TUTTI_OK);
        assert_int_equal(tutti_optim_add_module(opt, gpt, NULL, NULL), TUTTI_OK);
        assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
        tutti_tensor_t *ids = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(4, 128));
        tutti_tensor_t *loss = tutti_cross_entropy(s, tutti_forward(s, gpt, ids), ids);
        step(s, opt, loss);
        assert_int_equal(tutti_scope_close(s), TUTTI_OK);
        assert_true(tutti_device_stats(meta).live_bytes >= (size_t)tutti_module_numel(gpt) * 8);
        tutti_optim_release(opt);
        tutti_module_release(gpt);
    }
    tutti_context_release(ctx);
    tutti_device_release(meta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_and_dtypes_are_those_of_the_host),
        cmocka_unit_test(errors_are_those_of_the_host),
        cmocka_unit_test(a_training_step_runs_no_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
