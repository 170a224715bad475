/* Every operation against PyTorch's values and gradients (make_golden.py), each case in f64, f32,
 * bf16 and f16, on contiguous and on strided inputs, with 1 and with 2 threads.
 *
 * An element may differ by `tolerance` times the larger of itself and its tensor's mean absolute
 * value (16-bit types: largest). A type is left out where it does not hold the inputs exactly.
 * An operation of ops.def without a case fails, unless EXEMPT says why. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>

#include "compute/op/ops.h"
#include "core/base/alloc.h"
#include "core/tensor/safetensors_impl.h"
#include "golden_calls.h"
#include "core/tensor/device_testing.h"

#define GOLDEN(name) TUTTI_SOURCE_DIR "/tests/golden/" name ".safetensors"

static const char *const files[] = {
    GOLDEN("ops_math"),       GOLDEN("ops_shape"),   GOLDEN("ops_reduce"),
    GOLDEN("ops_linear"),     GOLDEN("ops_loss"),    GOLDEN("ops_norm"),
    GOLDEN("ops_channel"),    GOLDEN("ops_nn"),      GOLDEN("ops_rnn"),
    GOLDEN("ops_conv"),       GOLDEN("ops_pool"),    GOLDEN("ops_interpolate"),
    GOLDEN("ops_index"),      GOLDEN("ops_pad"),     GOLDEN("ops_activation"),
    GOLDEN("ops_losses"),     GOLDEN("ops_volume"),  GOLDEN("ops_feature"),
    GOLDEN("ops_vocabulary"), GOLDEN("ops_sampling")};

static const struct {
    const char *name, *why;
} exempt[] = {
    {"uniform", "random: PyTorch draws other numbers"},
    {"normal", "random: PyTorch draws other numbers"},
    {"randint", "random: PyTorch draws other numbers"},
    {"bernoulli", "random: PyTorch draws other numbers"},
    {"multinomial", "random: PyTorch draws other numbers"},
    {"to", "a copy: PyTorch has no strict device"},
};

/* One way to run all cases. */
typedef struct {
    tutti_dtype_t dtype;
    bool strided;
    int threads;
    double tolerance;
} variant_t;

static const variant_t variants[] = {
    {TUTTI_F64, false, 1, 1e-6}, {TUTTI_F64, true, 2, 1e-6},   {TUTTI_F32, false, 1, 1e-5},
    {TUTTI_F32, true, 2, 1e-5},  {TUTTI_BF16, false, 1, 2e-2}, {TUTTI_BF16, true, 2, 2e-2},
    {TUTTI_F16, false, 2, 3e-3},
};

/* A file, a case in it, and how it is run. */
typedef struct {
    tutti_safetensors_t *file;
    const char *name;
    const json_t *description;
    const variant_t *variant;
    tutti_scope_t *s;
    golden_call_t call;
    bool failed;
} run_t;

static bool was_run[TT_OP_COUNT];

/* The tensor `case/kindI` of the file, NULL if there is none. */
static tutti_tensor_t *stored(const run_t *r, const char *kind, int index)
{
    char name[128];
    snprintf(name, sizeof name, "%s/%s%d", r->name, kind, index);
    return tutti_safetensors_find(r->file, name) == NULL
               ? NULL
               : tutti_safetensors_load(r->s, r->file, name);
}

/* x in another dtype and, if wanted, with gaps between the elements of a row. */
static tutti_tensor_t *convert(const run_t *r, const tutti_tensor_t *x)
{
    const bool is_float = tutti_dtype_is_float(x->dtype);
    const int rank = x->shape.rank;
    tutti_shape_t wide = x->shape;
    int64_t strides[TUTTI_RANK_MAX];
    tutti_tensor_t *out;
    if (r->variant->strided && rank > 0) {
        wide.dims[rank - 1] *= 2;
    }
    tt_shape_strides(wide, strides);
    if (r->variant->strided && rank > 0) {
        strides[rank - 1] = 2;
    }
    tutti_tensor_t *memory =
        tutti_full(r->s, is_float ? r->variant->dtype : x->dtype, wide, is_float ? NAN : 1);
    assert_int_equal(tutti_scope_status(r->s), TUTTI_OK);
    assert_int_equal(tt_tensor_over(memory->storage, memory->dtype, x->shape, strides, 0, &out), 0);
    assert_int_equal(tutti_tensor_copy(out, x), TUTTI_OK);
    return tt_scope_adopt(r->s, TUTTI_OK, out);
}

static bool is_exact(const tutti_tensor_t *x, const tutti_tensor_t *y)
{
    for (int64_t i = 0; i < x->numel; i++) {
        const double a = tutti_tensor_at(x, i), b = tutti_tensor_at(y, i);
        if (a != b && !(isnan(a) && isnan(b))) {
            return false;
        }
    }
    return true;
}

/* Whether the dtype holds all inputs. */
static bool load_inputs(run_t *r)
{
    const int count = (int)json_integer_value(json_object_get(r->description, "inputs"));
    assert_in_range(count, 1, GOLDEN_INPUTS_MAX);
    r->call.input_count = count;
    for (int i = 0; i < count; i++) {
        tutti_tensor_t *x = stored(r, "in", i);
        r->call.in[i] = x == NULL ? NULL : convert(r, x);
        if (x != NULL && !is_exact(x, r->call.in[i])) {
            return false;
        }
        if (stored(r, "grad", i) != NULL) {
            assert_int_equal(tutti_tensor_set_requires_grad(r->call.in[i], true), TUTTI_OK);
        }
    }
    return true;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void complain(run_t *r, const char *kind, int index, const char *reason)
{
    print_error("%s %s%d in %s, %s: %s\n", r->name, kind, index,
                tutti_dtype_name(r->variant->dtype), r->variant->strided ? "strided" : "contiguous",
                reason);
    r->failed = true;
}

/* The mean absolute value; for 16-bit types, whose sums have rounded terms, the largest. */
static double size_of(const tutti_tensor_t *x, bool is_16_bit)
{
    double sum = 0, most = 0;
    for (int64_t i = 0; i < x->numel; i++) {
        sum += fabs(tutti_tensor_at(x, i));
        most = fmax(most, fabs(tutti_tensor_at(x, i)));
    }
    return is_16_bit || x->numel == 0 ? most : sum / (double)x->numel;
}

static bool is_close(double got, double want, double margin)
{
    return got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= margin;
}

static void compare(run_t *r, const char *kind, int index, tutti_tensor_t *got)
{
    char reason[256], first[96], second[96];
    tutti_tensor_t *want = stored(r, kind, index);
    if (want == NULL || tutti_tensor_status(got) < 0) {
        complain(r, kind, index, want == NULL ? "is not in the file" : tutti_last_error());
        return;
    }
    const bool is_float = tutti_dtype_is_float(want->dtype);
    if (!tutti_shape_equal(got->shape, want->shape) ||
        (is_float ? !tutti_dtype_is_float(got->dtype) : got->dtype != want->dtype)) {
        snprintf(reason, sizeof reason, "is %s, not %s",
                 tutti_tensor_describe(got, first, sizeof first),
                 tutti_tensor_describe(want, second, sizeof second));
        complain(r, kind, index, reason);
        return;
    }
    got = tutti_tensor_to(r->s, got, NULL); /* not one element at a time */
    want = tutti_tensor_to(r->s, want, NULL);
    if (tutti_tensor_status(got) < 0 || tutti_tensor_status(want) < 0) {
        complain(r, kind, index, tutti_last_error());
        return;
    }
    const double floor = size_of(want, tutti_dtype_bytes(r->variant->dtype) == 2);
    const double tolerance = is_float ? r->variant->tolerance : 0;
    for (int64_t i = 0; i < want->numel; i++) {
        const double x = tutti_tensor_at(got, i), y = tutti_tensor_at(want, i);
        if (!is_close(x, y, tolerance * fmax(fabs(y), floor))) {
            snprintf(reason, sizeof reason, "element %lld is %.9g, not %.9g", (long long)i, x, y);
            complain(r, kind, index, reason);
            return;
        }
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* What backward starts from: the only output with its seed, or the sum of all, weighted. */
static tutti_tensor_t *make_root(run_t *r, tutti_backward_options_t *options)
{
    tutti_tensor_t *root = NULL, *seed = stored(r, "seed", 0);
    if (r->call.output_count == 1) {
        options->grad_output = seed;
        return seed == NULL ? NULL : r->call.out[0];
    }
    for (int i = 0; i < r->call.output_count; i++) {
        seed = stored(r, "seed", i);
        if (seed != NULL) {
            tutti_tensor_t *part = tutti_sum(r->s, tutti_mul(r->s, r->call.out[i], seed));
            root = root == NULL ? part : tutti_add(r->s, root, part);
        }
    }
    return root;
}

static void compare_grads(run_t *r)
{
    tutti_backward_options_t options = {0};
    tutti_tensor_t *root = make_root(r, &options), *leaves[GOLDEN_INPUTS_MAX];
    tutti_tensor_t *grads[GOLDEN_INPUTS_MAX];
    int places[GOLDEN_INPUTS_MAX], count = 0;
    for (int i = 0; i < r->call.input_count; i++) {
        if (stored(r, "grad", i) != NULL) {
            places[count] = i;
            leaves[count++] = r->call.in[i];
        }
    }
    if (root == NULL || count == 0) {
        return;
    }
    if (tutti_grad(r->s, root, &options, leaves, count, grads) < 0) {
        complain(r, "grad", 0, tutti_last_error());
        return;
    }
    for (int i = 0; i < count; i++) {
        if (grads[i] == NULL) {
            grads[i] = tutti_zeros(r->s, leaves[i]->dtype, leaves[i]->shape);
        }
        if (grads[i]->dtype != leaves[i]->dtype) {
            complain(r, "grad", places[i], "is not of its input's dtype");
        }
        compare(r, "grad", places[i], grads[i]);
    }
}

/* ---- cases, files ---------------------------------------------------------------------------- */

static void mark_as_run(const char *name)
{
    for (int i = 0; i < TT_OP_COUNT; i++) {
        was_run[i] = was_run[i] || strcmp(tt_ops[i]->name, name) == 0;
    }
}

static void run_case(run_t *r)
{
    const char *op = json_string_value(json_object_get(r->description, "op"));
    const golden_entry_t *entry = golden_find(op);
    if (entry == NULL) {
        complain(r, op, 0, "is not in golden_calls.h");
        return;
    }
    r->call = (golden_call_t){.s = r->s, .args = json_object_get(r->description, "args")};
    r->call.output_count = (int)json_integer_value(json_object_get(r->description, "outputs"));
    if (!load_inputs(r)) {
        return;
    }
    golden_run(entry, &r->call);
    for (int i = 0; i < r->call.output_count; i++) {
        compare(r, "out", i, r->call.out[i]);
    }
    compare_grads(r);
    mark_as_run(op);
}

static bool run_file(tutti_context_t *ctx, const char *path, const variant_t *variant)
{
    run_t r = {.variant = variant};
    assert_int_equal(tutti_safetensors_open(path, &r.file), TUTTI_OK);
    for (size_t i = 0; i < r.file->metadata_count; i++) {
        json_t *description = json_loads(r.file->metadata[i].text, 0, NULL);
        assert_non_null(description);
        r.name = r.file->metadata[i].name;
        r.description = description;
        assert_int_equal(tutti_scope_open(ctx, &r.s), TUTTI_OK);
        run_case(&r);
        if (tutti_scope_close(r.s) < 0) {
            complain(&r, "scope", 0, tutti_last_error());
        }
        json_decref(description);
    }
    tutti_safetensors_close(r.file);
    return !r.failed;
}

static void operations_agree_with_pytorch(void **state)
{
    (void)state;
    bool is_good = true;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        tutti_context_t *ctx;
        assert_int_equal(
            tt_test_context(&(tutti_context_options_t){.threads = variants[v].threads}, &ctx),
            TUTTI_OK);
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            is_good = run_file(ctx, files[i], &variants[v]) && is_good;
        }
        tutti_context_release(ctx);
    }
    assert_true(is_good);
}

static bool is_exempt(const char *name)
{
    for (size_t i = 0; i < sizeof exempt / sizeof exempt[0]; i++) {
        if (strcmp(exempt[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void every_operation_has_golden_values(void **state)
{
    (void)state;
    bool is_good = true;
    for (int i = 0; i < TT_OP_COUNT; i++) {
        if (was_run[i] == is_exempt(tt_ops[i]->name)) {
            print_error("%s: %s\n", tt_ops[i]->name,
                        was_run[i] ? "has golden values and is exempt from them"
                                   : "has no golden values: add a case to make_golden.py");
            is_good = false;
        }
    }
    assert_true(is_good);
}

static void nothing_is_leaked(void **state)
{
    (void)state;
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_agree_with_pytorch),
        cmocka_unit_test(every_operation_has_golden_values),
        cmocka_unit_test(nothing_is_leaked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
