/* What autocast makes of every operation in ops.def, against PyTorch's lists: each stands in one of
 * the tables below, and its cases (op_cases.h) run with f32 and with 16-bit inputs. What counts is
 * the dtype that comes out: operations that compute in f32 inside need no cast to be on the f32
 * list.
 *
 * torch's lists: docs of torch.amp, "Op-specific behavior"; CUDA's, for both 16-bit types. It has
 * no opinion on most of what is elementwise or moves data: there the promoted dtype of the inputs
 * comes out. Where Tutti differs, the table says why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/modes.h>
#include <tutti/op_reduce.h>
#include <tutti/tensor.h>

#include "compute/op/ops.h"
#include "core/base/alloc.h"
#include "op_cases.h"
#include "core/tensor/device_testing.h"

typedef enum { LOW, WIDE, SAME, OWN } rule_t;

static const struct {
    const char *op;
    rule_t rule;
} rules[] = {
    /* to 16 bit */
    {"matmul", LOW},
    {"linear", LOW},
    {"linear_gelu", LOW},
    {"attention", LOW},
    {"attention_qkv", LOW},
    {"rnn_scan", LOW},
    {"lstm_scan", LOW},
    {"gru_scan", LOW},
    {"conv1d", LOW},
    {"conv2d", LOW},
    {"conv_transpose1d", LOW},
    {"conv_transpose2d", LOW},
    {"conv3d", LOW},
    {"conv_transpose3d", LOW},
    /* to f32 */
    {"pow", WIDE},
    {"pow_scalar", WIDE},
    {"scalar_div", WIDE},
    {"square", WIDE},
    {"rsqrt", WIDE},
    {"exp", WIDE},
    {"log", WIDE},
    {"log1p", WIDE},
    {"expm1", WIDE},
    {"sum", WIDE},
    {"cumsum", WIDE},
    {"softplus", WIDE},
    {"cumprod", WIDE},
    {"prod", WIDE},
    {"softmax", WIDE},
    {"log_softmax", WIDE},
    {"cross_entropy", WIDE},
    {"linear_cross_entropy", WIDE}, /* its product is made in 16 bits */
    {"mse_loss", WIDE},
    {"smooth_l1_loss", WIDE},
    {"huber_loss", WIDE},
    {"bce_with_logits", WIDE},
    {"bce_loss", WIDE}, /* torch: an error */
    {"l1_loss", WIDE},
    {"kl_div", WIDE},
    {"ctc_loss", WIDE},
    {"multilabel_margin_loss", WIDE},
    {"cdist", WIDE},
    {"pdist", WIDE},
    /* where Tutti differs */
    {"mean", WIDE},        /* a sum; torch has no opinion */
    {"var", WIDE},         /* as mean */
    {"layer_norm", LOW},   /* f32 inside, rounded for the product behind it; torch: f32 comes out */
    {"rms_norm", LOW},     /* as layer_norm; torch has none in the list */
    {"weight_norm", SAME}, /* f32 inside; torch has none in the list */
    {"group_norm", SAME},  /* f32 inside, as batch_norm; torch: f32 comes out */
    /* the call says */
    {"cast", OWN},
    /* as the inputs are, promoted */
    {"add", SAME},
    {"sub", SAME},
    {"mul", SAME},
    {"div", SAME},
    {"maximum", SAME},
    {"minimum", SAME},
    {"neg", SAME},
    {"add_scalar", SAME},
    {"sub_scalar", SAME},
    {"scalar_sub", SAME},
    {"mul_scalar", SAME},
    {"div_scalar", SAME},
    {"clamp", SAME},
    {"abs", SAME},
    {"sqrt", SAME},
    {"sign", SAME},
    {"floor", SAME},
    {"ceil", SAME},
    {"round", SAME},
    {"trunc", SAME},
    {"sin", SAME},
    {"cos", SAME},
    {"erf", SAME},
    {"tanh", SAME},
    {"sigmoid", SAME},
    {"relu", SAME},
    {"silu", SAME},
    {"gelu", SAME},
    {"gelu_tanh", SAME},
    {"leaky_relu", SAME},
    {"elu", SAME},
    {"celu", SAME},
    {"selu", SAME},
    {"logsigmoid", SAME},
    {"mish", SAME},
    {"hardswish", SAME},
    {"hardsigmoid", SAME},
    {"hardtanh", SAME},
    {"softsign", SAME},
    {"tanhshrink", SAME},
    {"threshold", SAME},
    {"hardshrink", SAME},
    {"softshrink", SAME},
    {"prelu", SAME}, /* elementwise: no product; torch: to 16 bit */
    {"glu", SAME},
    {"eq", SAME},
    {"ne", SAME},
    {"lt", SAME},
    {"le", SAME},
    {"gt", SAME},
    {"ge", SAME},
    {"eq_scalar", SAME},
    {"ne_scalar", SAME},
    {"lt_scalar", SAME},
    {"le_scalar", SAME},
    {"gt_scalar", SAME},
    {"ge_scalar", SAME},
    {"logical_not", SAME},
    {"isnan", SAME},
    {"isinf", SAME},
    {"isfinite", SAME},
    {"logical_and", SAME},
    {"logical_or", SAME},
    {"where", SAME},
    {"masked_fill", SAME},
    {"view", SAME},
    {"reshape", SAME},
    {"flatten", SAME},
    {"squeeze", SAME},
    {"unsqueeze", SAME},
    {"transpose", SAME},
    {"permute", SAME},
    {"slice", SAME},
    {"narrow", SAME},
    {"select", SAME},
    {"split", SAME},
    {"expand", SAME},
    {"cat", SAME},
    {"stack", SAME},
    {"gather", SAME},
    {"index_select", SAME},
    {"sort", SAME},
    {"argsort", SAME},
    {"topk", SAME},
    {"one_hot", SAME},
    {"multinomial", SAME},
    {"index_add", SAME},
    {"scatter_along", SAME},
    {"scatter_along_add", SAME},
    {"pad", SAME},
    {"roll", SAME},
    {"flip", SAME},
    {"tril", SAME},
    {"triu", SAME},
    {"unfold", SAME},
    {"fold", SAME},
    {"clone", SAME},
    {"to", SAME},
    {"max", SAME},
    {"min", SAME},
    {"any", SAME},
    {"all", SAME},
    {"max_along", SAME},
    {"min_along", SAME},
    {"argmax", SAME},
    {"argmin", SAME},
    {"uniform", SAME},
    {"normal", SAME},
    {"randint", SAME},
    {"bernoulli", SAME},
    {"batch_norm", SAME},
    {"embedding", SAME},
    {"dropout", SAME},
    {"rotary", SAME},
    {"max_pool1d", SAME},
    {"max_pool2d", SAME},
    {"avg_pool1d", SAME},
    {"avg_pool2d", SAME},
    {"adaptive_max_pool1d", SAME},
    {"adaptive_max_pool2d", SAME},
    {"adaptive_avg_pool1d", SAME},
    {"adaptive_avg_pool2d", SAME},
    {"interpolate", SAME},
    {"grid_sample", SAME},
};

static int wrong;

static bool find_rule(const char *op, rule_t *rule)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(rules[i].op, op) == 0) {
            *rule = rules[i].rule;
            return true;
        }
    }
    return false;
}

/* One value that suits the case, everywhere. */
static tutti_tensor_t *make_input(tutti_scope_t *s, const op_input_t *in, tutti_dtype_t dtype)
{
    const double between = in->low == 0 && in->high == 0 ? 0.5 : (in->low + in->high) / 2;
    const double value = in->values != NULL       ? in->values[0]
                         : in->dtype == TUTTI_F32 ? between
                                                  : in->low;
    return in->is_missing
               ? NULL
               : tutti_full(s, in->dtype == TUTTI_F32 ? dtype : in->dtype, in->shape, value);
}

static bool has_float(const op_case_t *c, int inputs)
{
    bool is_found = false;
    for (int k = 0; k < inputs; k++) {
        is_found = is_found || (c->inputs[k].dtype == TUTTI_F32 && !c->inputs[k].is_missing);
    }
    return is_found;
}

/* Of output 0, if it is a floating one: statistics and masks behind it are the operation's matter.
 */
static void check(const op_case_t *c, rule_t rule, tutti_dtype_t low, tutti_dtype_t dtype)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *in[OP_INPUTS_MAX], *out[OP_OUTPUTS_MAX];
    const int inputs = c->input_count < 0 ? 0 : c->input_count == 0 ? 1 : c->input_count;
    if (!has_float(c, inputs)) {
        return;
    }
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    tutti_context_set_autocast(ctx, low);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    for (int k = 0; k < inputs; k++) {
        in[k] = make_input(s, &c->inputs[k], dtype);
    }
    c->call(s, in, out);
    if (tutti_scope_status(s) >= 0 && tutti_dtype_is_float(tutti_tensor_dtype(out[0]))) {
        const tutti_dtype_t want = rule == LOW ? low : rule == WIDE ? TUTTI_F32 : dtype;
        if (tutti_tensor_dtype(out[0]) != want) {
            wrong++;
            print_error("%s (%s) under autocast to %s: %s in, %s out, not %s\n", c->op, c->what,
                        tutti_dtype_name(low), tutti_dtype_name(dtype),
                        tutti_dtype_name(tutti_tensor_dtype(out[0])), tutti_dtype_name(want));
        }
    }
    const tutti_status_t status = tutti_scope_close(s);
    if (status < 0) {
        fail_msg("%s (%s) under autocast to %s: %s", c->op, c->what, tutti_dtype_name(low),
                 tutti_last_error());
    }
    tutti_context_release(ctx);
}

static void check_case(const op_case_t *c)
{
    rule_t rule;
    if (c->is_exact || !find_rule(c->op, &rule) || rule == OWN) {
        return;
    }
    static const tutti_dtype_t lows[] = {TUTTI_BF16, TUTTI_F16};
    for (int i = 0; i < 2; i++) {
        check(c, rule, lows[i], TUTTI_F32);
        check(c, rule, lows[i], lows[i]);
    }
}

static void every_operation_follows_its_list(void **state)
{
    (void)state;
#define X(family)                                                                                  \
    for (size_t i = 0; i < op_cases_##family##_count; i++) {                                       \
        check_case(&op_cases_##family[i]);                                                         \
    }
    OP_CASE_FAMILIES(X)
#undef X
    assert_int_equal(wrong, 0);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void every_operation_is_in_one_list(void **state)
{
    (void)state;
    for (int i = 0; i < TT_OP_COUNT; i++) {
        rule_t rule;
        if (!find_rule(tt_ops[i]->name, &rule)) {
            fail_msg("%s is in ops.def but not in this file: what does autocast make of it?",
                     tt_ops[i]->name);
        }
    }
    assert_int_equal(sizeof rules / sizeof *rules, TT_OP_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_in_one_list),
        cmocka_unit_test(every_operation_follows_its_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
