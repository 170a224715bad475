/* Every operation in ops.def has what op_cases.h asks for: a case, one with an empty input, a
 * gradient if it has one, and a reference or golden values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compute/op/ops.h"
#include "core/base/alloc.h"
#include "op_cases.h"

typedef void (*case_fn_t)(const op_case_t *c);

static void for_each_case(case_fn_t fn)
{
#define X(family)                                                                                  \
    for (size_t i = 0; i < op_cases_##family##_count; i++) {                                       \
        fn(&op_cases_##family[i]);                                                                 \
    }
    OP_CASE_FAMILIES(X)
#undef X
}

static int input_count(const op_case_t *c)
{
    return c->input_count < 0 ? 0 : c->input_count == 0 ? 1 : c->input_count;
}

/* What the cases of an operation have. */
typedef struct {
    const char *op;
    int cases, empty, gradients, references;
} coverage_t;

static coverage_t coverage;

static void cover(const op_case_t *c)
{
    if (strcmp(c->op, coverage.op) != 0) {
        return;
    }
    bool is_empty = c->expected != NULL && tutti_shape_numel(c->expected_shape) == 0;
    for (int k = 0; k < input_count(c); k++) {
        is_empty = is_empty || tutti_shape_numel(c->inputs[k].shape) == 0;
    }
    coverage.cases++;
    coverage.empty += is_empty;
    coverage.gradients += !c->has_no_gradient && !is_empty;
    coverage.references += c->expected != NULL || c->unary != NULL || c->binary != NULL;
}

/* Whether PyTorch's values of the operation are in tests/golden, which golden_op_test.c compares.
 */
static bool has_golden(const char *op)
{
    static const char *const files[] = {"activation",  "channel", "conv",   "feature",   "index",
                                        "interpolate", "linear",  "loss",   "losses",    "math",
                                        "nn",          "norm",    "pad",    "pool",      "reduce",
                                        "rnn",         "shape",   "volume", "vocabulary"};
    char path[512], wanted[96], header[65536];
    snprintf(wanted, sizeof wanted, "\\\"op\\\":\\\"%s\\\"", op);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/tests/golden/ops_%s.safetensors", TUTTI_SOURCE_DIR,
                 files[i]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        const size_t bytes = fread(header, 1, sizeof header, file);
        (void)fclose(file);
        if (memmem(header, bytes, wanted, strlen(wanted)) != NULL) {
            return true;
        }
    }
    return false;
}

static void every_operation_has_its_cases(void **state)
{
    (void)state;
    char missing[4096] = "";
    size_t used = 0;
    for (int i = 0; i < TT_OP_COUNT; i++) {
        coverage = (coverage_t){.op = tt_ops[i]->name};
        for_each_case(cover);
        const char *lack = coverage.cases == 0   ? "a case"
                           : coverage.empty == 0 ? "an empty input"
                           : tt_ops[i]->backward != NULL && coverage.gradients == 0 ? "a gradient"
                           : coverage.references == 0 && !has_golden(coverage.op)   ? "a reference"
                                                                                    : NULL;
        if (lack != NULL && used < sizeof missing) {
            used += (size_t)snprintf(missing + used, sizeof missing - used, " %s lacks %s;",
                                     coverage.op, lack);
        }
    }
    if (used > 0) {
        fail_msg("%s", missing);
    }
}

static void names_in_the_list_are_the_tables_names(void **state)
{
    (void)state;
    static const char *const names[] = {
#define X(name, table) #name,
#include "compute/op/ops.def"
#undef X
    };
    for (int i = 0; i < TT_OP_COUNT; i++) {
        assert_string_equal(names[i], tt_ops[i]->name);
        assert_non_null(tt_ops[i]->about);
    }
}

/* autograd.h lists them. */
static void operations_whose_gradients_have_none_are_listed(void **state)
{
    (void)state;
    char header[65536], want[4096] = "which names them:\n * ";
    size_t used = strlen(want);
    for (int i = 0; i < TT_OP_COUNT; i++) {
        if (tt_ops[i]->backward != NULL && tt_ops[i]->grad == NULL) {
            used += (size_t)snprintf(want + used, sizeof want - used, "%s, ", tt_ops[i]->name);
        }
    }
    memcpy(want + used - 2, ";", sizeof ";");
    FILE *file = fopen(TUTTI_SOURCE_DIR "/include/tutti/autograd.h", "rb");
    assert_non_null(file);
    header[fread(header, 1, sizeof header - 1, file)] = 0;
    (void)fclose(file);
    if (strstr(header, want) == NULL) {
        fail_msg("not in autograd.h: %s", want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_in_the_list_are_the_tables_names),
        cmocka_unit_test(every_operation_has_its_cases),
        cmocka_unit_test(operations_whose_gradients_have_none_are_listed),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || tt_alloc_stats().blocks != 0;
}
