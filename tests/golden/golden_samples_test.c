/* PyTorch's own samples of operations and modules (make_samples.py): forward and backward, each in
 * the dtype it was made for, against PyTorch's values in f64 for the same inputs.
 *
 *     golden_samples_test                     the samples that are committed
 *     TUTTI_SAMPLES=FILE golden_samples_test  those of a file; a line for each: its name, and
 *                                             "passed" or why not
 *
 * An element may differ by `tolerance` times the larger of itself and its tensor's largest value;
 * of gradients also of a part of what comes in, for they may be small differences of it. A case may
 * ask for more.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>

#include "core/base/alloc.h"
#include "core/tensor/safetensors_impl.h"
#include "golden_calls.h"
#include "golden_modules.h"
#include "core/tensor/device_testing.h"

enum { REASON_BYTES = 512 };

#define SEED 1.5 /* no seed is larger */

typedef struct {
    tutti_safetensors_t *file;
    const char *name;
    const json_t *description;
    double tolerance;
    tutti_scope_t *s;
    golden_call_t call;
    char reason[REASON_BYTES]; /* "": it passed */
} run_t;

static tutti_tensor_t *stored(const run_t *r, const char *kind, int index)
{
    char name[160];
    snprintf(name, sizeof name, "%s/%s%d", r->name, kind, index);
    return tutti_safetensors_find(r->file, name) == NULL
               ? NULL
               : tutti_safetensors_load(r->s, r->file, name);
}

static double tolerance_of(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? 1e-9 : dtype == TUTTI_F32 ? 5e-5 : 4e-2;
}

static void load_inputs(run_t *r)
{
    const int count = (int)json_integer_value(json_object_get(r->description, "inputs"));
    assert_in_range(count, 1, GOLDEN_INPUTS_MAX);
    r->call.input_count = count;
    r->tolerance = tolerance_of(TUTTI_F64);
    r->call.dtype = TUTTI_F64;
    if (is_given(&r->call, "tolerance")) {
        r->tolerance = number(&r->call, "tolerance");
    }
    for (int i = 0; i < count; i++) {
        tutti_tensor_t *x = r->call.in[i] = stored(r, "in", i);
        if (x != NULL && tutti_dtype_is_float(tutti_tensor_dtype(x))) {
            r->call.dtype = tutti_tensor_dtype(x);
            r->tolerance = fmax(r->tolerance, tolerance_of(tutti_tensor_dtype(x)));
        }
        if (stored(r, "grad", i) != NULL) {
            assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
        }
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double largest_of(const tutti_tensor_t *x)
{
    double most = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double value = fabs(tutti_tensor_at(x, i));
        most = isfinite(value) ? fmax(most, value) : most;
    }
    return most;
}

/* least: what counts as large beside the tensor's own values. */
static void compare(run_t *r, const char *kind, int index, const tutti_tensor_t *got, double least)
{
    char a[96], b[96];
    const tutti_tensor_t *want = stored(r, kind, index);
    if (r->reason[0] != 0) {
        return;
    }
    if (want == NULL || got == NULL || tutti_tensor_status(got) < 0) {
        snprintf(r->reason, REASON_BYTES, "%s%d: %s", kind, index, tutti_scope_error(r->s));
        return;
    }
    if (!tutti_shape_equal(tutti_tensor_shape(got), tutti_tensor_shape(want))) {
        snprintf(r->reason, REASON_BYTES, "%s%d is %s, not %s", kind, index,
                 tutti_tensor_describe(got, a, sizeof a), tutti_tensor_describe(want, b, sizeof b));
        return;
    }
    const double floor = fmax(largest_of(want), least);
    for (int64_t i = 0; i < tutti_tensor_numel(want); i++) {
        const double x = tutti_tensor_at(got, i), y = tutti_tensor_at(want, i);
        const bool is_close =
            x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= r->tolerance * fmax(fabs(y), floor);
        if (!is_close) {
            snprintf(r->reason, REASON_BYTES, "%s%d: element %lld is %.9g, not %.9g", kind, index,
                     (long long)i, x, y);
            return;
        }
    }
}

/* The sum of all outputs that have a seed, weighted with it. */
static tutti_tensor_t *make_loss(run_t *r)
{
    tutti_tensor_t *loss = NULL;
    for (int i = 0; i < r->call.output_count; i++) {
        tutti_tensor_t *seed = stored(r, "seed", i);
        if (seed != NULL) {
            tutti_tensor_t *part = tutti_sum(r->s, tutti_mul(r->s, r->call.out[i], seed));
            loss = loss == NULL ? part : tutti_add(r->s, loss, part);
        }
    }
    return loss;
}

static void compare_gradients(run_t *r)
{
    tutti_tensor_t *leaves[GOLDEN_INPUTS_MAX], *grads[GOLDEN_INPUTS_MAX];
    int places[GOLDEN_INPUTS_MAX], count = 0;
    for (int i = 0; i < r->call.input_count; i++) {
        if (stored(r, "grad", i) != NULL) {
            places[count] = i;
            leaves[count++] = r->call.in[i];
        }
    }
    tutti_tensor_t *loss = make_loss(r);
    if (loss == NULL || count == 0 || r->reason[0] != 0) {
        return;
    }
    if (tutti_grad(r->s, loss, NULL, leaves, count, grads) < 0) {
        snprintf(r->reason, REASON_BYTES, "backward: %s", tutti_last_error());
        return;
    }
    for (int i = 0; i < count; i++) {
        compare(r, "grad", places[i],
                grads[i] != NULL ? grads[i]
                                 : tutti_zeros(r->s, TUTTI_F32, tutti_tensor_shape(leaves[i])),
                r->tolerance > 1e-2 ? 2 * SEED : SEED / 10);
    }
}

/* ---- samples, files -------------------------------------------------------------------------- */

static void run_sample(run_t *r)
{
    const char *op = json_string_value(json_object_get(r->description, "op"));
    const bool is_module = strcmp(op, golden_module.name) == 0;
    const golden_entry_t *entry = is_module ? &golden_module : golden_find(op);
    r->reason[0] = 0;
    r->call = (golden_call_t){.s = r->s, .args = json_object_get(r->description, "args")};
    r->call.output_count = (int)json_integer_value(json_object_get(r->description, "outputs"));
    if (entry == NULL) {
        snprintf(r->reason, REASON_BYTES, "%s is not in golden_calls.h", op);
        return;
    }
    load_inputs(r);
    golden_run(entry, &r->call);
    for (int i = 0; i < r->call.output_count; i++) {
        compare(r, "out", i, r->call.out[i], 1e-6);
    }
    compare_gradients(r);
    if (r->reason[0] == 0 && tutti_scope_status(r->s) < 0) {
        snprintf(r->reason, REASON_BYTES, "%s", tutti_scope_error(r->s));
    }
}

/* How many failed. */
static int run_file(const char *path, bool is_told)
{
    run_t r = {.name = NULL};
    tutti_context_t *ctx;
    int failed = 0;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), TUTTI_OK);
    assert_int_equal(tutti_safetensors_open(path, &r.file), TUTTI_OK);
    for (size_t i = 0; i < r.file->metadata_count; i++) {
        json_t *description = json_loads(r.file->metadata[i].text, 0, NULL);
        assert_non_null(description);
        r.name = r.file->metadata[i].name;
        r.description = description;
        tutti_context_set_training(ctx, true);
        assert_int_equal(tutti_scope_open(ctx, &r.s), TUTTI_OK);
        run_sample(&r);
        (void)tutti_scope_close(r.s);
        tutti_module_release(r.call.module);
        json_decref(description);
        failed += r.reason[0] != 0;
        if (is_told || r.reason[0] != 0) {
            printf("%s: %s\n", r.name, r.reason[0] != 0 ? r.reason : "passed");
        }
    }
    tutti_safetensors_close(r.file);
    tutti_context_release(ctx);
    return failed;
}

static void samples_agree_with_pytorch(void **state)
{
    const char *path = getenv("TUTTI_SAMPLES");
    (void)state;
    assert_int_equal(
        run_file(path != NULL ? path : TUTTI_SOURCE_DIR "/tests/golden/samples.safetensors",
                 path != NULL),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples_agree_with_pytorch)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
