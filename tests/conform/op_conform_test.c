/* Every operation of ops.def against its cases (op_cases.h).
 *
 * A case runs on contiguous inputs in f64: forward against the plain reference, backward against
 * central differences. Then the same inputs lie transposed and sliced in memory, and bits must be
 * the same. In f32 and bf16 the results stay near those of f64 on the same values. The strict
 * device gives the host's bits. At last every launch, and every allocation, fails in turn: a
 * status, and nothing left. All of it runs where TUTTI_TEST_DEVICE says (device_testing.h).
 */
#include <math.h>

#include <tutti/modes.h>
#include <tutti/op_shape.h>

#include "op_case_run.h"

/* ---- forward --------------------------------------------------------------------------------- */

static bool is_near(double a, double b, double tolerance)
{
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= tolerance * (1 + fabs(b));
}

static void check_value(const run_t *run, int64_t i, double want, double tolerance)
{
    const double got = tutti_tensor_at(run->outputs[0], i);
    if (!is_near(got, want, tolerance)) {
        fail_msg("%s (%s): element %lld is %.17g, not %.17g", run->c->op, run->c->what,
                 (long long)i, got, want);
    }
}

static void check_shape(const run_t *run, tutti_shape_t want)
{
    char a[160], b[160];
    const tutti_shape_t got = tutti_tensor_shape(run->outputs[0]);
    if (!tutti_shape_equal(got, want)) {
        fail_msg("%s (%s): shape is %s, not %s", run->c->op, run->c->what,
                 tutti_shape_format(got, a, sizeof a), tutti_shape_format(want, b, sizeof b));
    }
}

/* The element of input k that is broadcast to element i of a shape. */
static double broadcast_at(const run_t *run, int k, tutti_shape_t shape, int64_t i)
{
    const tutti_shape_t own = tutti_tensor_shape(run->inputs[k]);
    int64_t flat = 0, step = 1;
    for (int d = shape.rank, o = own.rank; d-- > 0; i /= shape.dims[d]) {
        if (--o >= 0) {
            flat += own.dims[o] == 1 ? 0 : i % shape.dims[d] * step;
            step *= own.dims[o];
        }
    }
    return tutti_tensor_at(run->inputs[k], flat);
}

static void check_reference(const run_t *run)
{
    const op_case_t *c = run->c;
    const tutti_tensor_t *y = run->outputs[0];
    const double exact = tutti_tensor_dtype(y) == TUTTI_F64 ? 1e-14 : 1e-6;
    if (c->expected != NULL) {
        check_shape(run, c->expected_shape);
    } else if (c->unary != NULL) {
        check_shape(run, tutti_tensor_shape(run->inputs[0]));
    }
    for (int64_t i = 0; i < tutti_tensor_numel(y); i++) {
        if (c->expected != NULL) {
            check_value(run, i, c->expected[i], exact);
        } else if (c->unary != NULL) {
            check_value(run, i, c->unary(tutti_tensor_at(run->inputs[0], i)), exact);
        } else if (c->binary != NULL) {
            const tutti_shape_t shape = tutti_tensor_shape(y);
            check_value(run, i,
                        c->binary(broadcast_at(run, 0, shape, i), broadcast_at(run, 1, shape, i)),
                        exact);
        }
    }
}

static void check_views(const run_t *run)
{
    const tutti_op_t *op = find_op(run->c->op);
    if (op->makes_outputs && !run->c->copies) {
        assert_ptr_equal(run->outputs[0]->storage, run->inputs[0]->storage);
    }
}

static void check_forward(const op_case_t *c)
{
    run_t run;
    begin(&run, c, TUTTI_F64, CONTIGUOUS);
    check_reference(&run);
    check_views(&run);
    end(&run);
}

static void forward_is_what_plain_references_give(void **state)
{
    (void)state;
    for_each_case(check_forward);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void call_case(tutti_scope_t *s, tutti_tensor_t *const *inputs, tutti_tensor_t **outputs,
                      void *user)
{
    const op_case_t *c = user;
    c->call(s, inputs, outputs);
}

static bool wants_gradients(const run_t *run)
{
    for (int k = 0; k < run->input_count; k++) {
        if (run->inputs[k] != NULL && tutti_tensor_requires_grad(run->inputs[k])) {
            return true;
        }
    }
    return false;
}

static void check_gradient(const op_case_t *c)
{
    if (find_op(c->op)->backward == NULL || c->has_no_gradient) {
        return;
    }
    run_t run;
    op_case_t own = *c;
    const tutti_gradient_check_options_t options = {
        .step = c->step, .tolerance = c->tolerance, .order = find_op(c->op)->grad != NULL ? 2 : 1};
    begin(&run, c, TUTTI_F64, CONTIGUOUS);
    run.ctx->random_calls = 0;
    if (wants_gradients(&run) &&
        tutti_gradient_check(run.ctx, call_case, &own, run.inputs, run.input_count,
                             run.output_count, &options) < 0) {
        fail_msg("%s (%s): %s", c->op, c->what, tutti_last_error());
    }
    end(&run);
}

static void gradients_are_what_differences_say(void **state)
{
    (void)state;
    for_each_case(check_gradient);
}

/* ---- layouts and types ----------------------------------------------------------------------- */

static void compare(const run_t *a, tutti_tensor_t *x, tutti_tensor_t *y, const char *what,
                    double tolerance)
{
    if (x == NULL || y == NULL) {
        assert_ptr_equal(x, y);
        return;
    }
    assert_int_equal(tutti_tensor_numel(x), tutti_tensor_numel(y));
    x = tt_test_read(a->s, x);
    y = tt_test_read(a->s, y);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double got = tutti_tensor_at(x, i), want = tutti_tensor_at(y, i);
        if (!is_near(got, want, tolerance)) {
            fail_msg("%s (%s), %s %s: element %lld of %s is %.12g, not %.12g", a->c->op, a->c->what,
                     layout_names[a->layout], tutti_dtype_name(a->dtype), (long long)i, what, got,
                     want);
        }
    }
}

static void compare_runs(run_t *a, run_t *b, double tolerance, double grad_tolerance)
{
    for (int k = 0; k < a->output_count; k++) {
        compare(a, a->outputs[k], b->outputs[k], "the result", tolerance);
    }
    for (int k = 0; k < a->input_count; k++) {
        compare(a, a->grads[k], b->grads[k], "the gradient", grad_tolerance);
    }
}

static void check_layouts(const op_case_t *c)
{
    for (layout_t layout = TRANSPOSED; layout < LAYOUT_COUNT && !c->is_contiguous; layout++) {
        run_t plain, other;
        begin(&plain, c, TUTTI_F64, CONTIGUOUS);
        begin(&other, c, TUTTI_F64, layout);
        compare_runs(&other, &plain, 0, 0);
        assert_int_equal(tutti_scope_close(other.s), TUTTI_OK);
        tutti_context_release(other.ctx);
        end(&plain);
    }
}

static void layouts_change_no_bit(void **state)
{
    (void)state;
    for_each_case(check_layouts);
}

/* A case whose inputs are the values that another run's inputs were rounded to. */
static void check_against_f64(const op_case_t *c, tutti_dtype_t dtype, double tolerance)
{
    run_t low, exact;
    op_case_t same = *c;
    double values[OP_INPUTS_MAX][256];
    begin(&low, c, dtype, CONTIGUOUS);
    for (int k = 0; k < low.input_count; k++) {
        const int64_t n = low.inputs[k] == NULL ? 0 : tutti_tensor_numel(low.inputs[k]);
        if (n > 256) {
            fail_msg("%s (%s): an input of a case has at most 256 elements", c->op, c->what);
        }
        for (int64_t i = 0; i < n; i++) {
            values[k][i] = tutti_tensor_at(low.inputs[k], i);
        }
        same.inputs[k].values = values[k];
    }
    begin(&exact, &same, TUTTI_F64, CONTIGUOUS);
    compare_runs(&low, &exact, tolerance, 4 * tolerance);
    assert_int_equal(tutti_scope_close(exact.s), TUTTI_OK);
    tutti_context_release(exact.ctx);
    end(&low);
}

static void check_types(const op_case_t *c)
{
    if (!c->is_exact) {
        check_against_f64(c, TUTTI_F32, 4e-6);
        check_against_f64(c, TUTTI_BF16, 2e-2);
        check_against_f64(c, TUTTI_F16, 3e-3);
    }
}

static void narrow_types_stay_near_f64(void **state)
{
    (void)state;
    for_each_case(check_types);
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

/* The gradients of a case's loss in place of those of perform(), but with a history. */
static tutti_status_t take_recorded(run_t *run)
{
    tutti_tensor_t *wanted[OP_INPUTS_MAX], *grads[OP_INPUTS_MAX];
    int count = 0;
    const tutti_backward_options_t options = {.create_graph = true};
    run->ctx->random_calls = 0;
    run->c->call(run->s, run->inputs, run->outputs);
    tutti_tensor_t *loss = loss_of(run);
    for (int k = 0; k < run->input_count; k++) {
        if (run->inputs[k] != NULL && tutti_tensor_requires_grad(run->inputs[k])) {
            wanted[count++] = run->inputs[k];
        }
        run->grads[k] = NULL;
    }
    const tutti_status_t status = tutti_grad(run->s, loss, &options, wanted, count, grads);
    for (int k = run->input_count; k-- > 0 && status >= 0;) {
        if (run->inputs[k] != NULL && tutti_tensor_requires_grad(run->inputs[k])) {
            run->grads[k] = grads[--count];
        }
    }
    return status;
}

/* In every type the recorded gradient is that of backward, but for rounding; or there is none. */
static void check_recorded(const op_case_t *c, tutti_dtype_t dtype, double tolerance)
{
    run_t run, recorded;
    char refused[192];
    const tutti_op_t *op = find_op(c->op);
    snprintf(refused, sizeof refused, "%s: its gradient has no gradient: ", op->name);
    begin(&run, c, dtype, CONTIGUOUS);
    begin(&recorded, c, dtype, CONTIGUOUS);
    if (wants_gradients(&run) && loss_of(&run) != NULL) {
        const tutti_status_t status = take_recorded(&recorded);
        if (status != (op->grad == NULL ? TUTTI_ERR_UNSUPPORTED : TUTTI_OK) ||
            (status < 0 && strstr(tutti_last_error(), refused) != tutti_last_error())) {
            fail_msg("%s (%s): create_graph: %s", c->op, c->what, tutti_last_error());
        }
        if (status >= 0) {
            compare_runs(&recorded, &run, tolerance, tolerance);
        }
    }
    (void)tutti_scope_close(recorded.s);
    tutti_context_release(recorded.ctx);
    end(&run);
}

static void check_recorded_types(const op_case_t *c)
{
    if (find_op(c->op)->backward == NULL || c->has_no_gradient) {
        return;
    }
    check_recorded(c, TUTTI_F64, 1e-12);
    if (!c->is_exact) {
        check_recorded(c, TUTTI_F32, 4e-6);
        check_recorded(c, TUTTI_BF16, 1e-2);
        check_recorded(c, TUTTI_F16, 2e-3);
    }
}

static void recorded_gradients_are_those_of_backward(void **state)
{
    (void)state;
    for_each_case(check_recorded_types);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void compare_bits(const run_t *a, tutti_tensor_t *x, tutti_tensor_t *y, const char *what,
                         int k)
{
    if (x == NULL || y == NULL) {
        assert_ptr_equal(x, y);
        return;
    }
    x = tutti_contiguous(a->s, x);
    const void *host = tt_test_host(x), *device = tt_test_host(tutti_contiguous(a->s, y));
    assert_non_null(host);
    assert_non_null(device);
    if (!tutti_shape_equal(tutti_tensor_shape(x), tutti_tensor_shape(y)) ||
        tutti_tensor_dtype(x) != tutti_tensor_dtype(y) ||
        memcmp(host, device, tutti_tensor_bytes(x)) != 0) {
        fail_msg("%s (%s), %s %s: %s %d has other bits on the strict device", a->c->op, a->c->what,
                 layout_names[a->layout], tutti_dtype_name(a->dtype), what, k);
    }
}

static void check_device(const op_case_t *c, tutti_dtype_t dtype, layout_t layout)
{
    run_t host, device;
    begin_on(NULL, &host, c, dtype, layout);
    begin_on("strict:0", &device, c, dtype, layout);
    for (int k = 0; k < host.output_count; k++) {
        compare_bits(&host, host.outputs[k], device.outputs[k], "result", k);
    }
    for (int k = 0; k < host.input_count; k++) {
        compare_bits(&host, host.grads[k], device.grads[k], "gradient", k);
    }
    assert_int_equal(tutti_scope_close(device.s), TUTTI_OK);
    tutti_context_release(device.ctx);
    end(&host);
}

static void check_devices(const op_case_t *c)
{
    for (layout_t layout = CONTIGUOUS; layout < LAYOUT_COUNT; layout++) {
        if (layout == CONTIGUOUS || !c->is_contiguous) {
            check_device(c, TUTTI_F64, layout);
            check_device(c, TUTTI_F32, layout);
        }
    }
    check_device(c, TUTTI_BF16, CONTIGUOUS);
    check_device(c, TUTTI_F16, CONTIGUOUS);
}

static void devices_change_no_bit(void **state)
{
    (void)state;
    for_each_case(check_devices);
}

/* ---- torture --------------------------------------------------------------------------------- */

/* One run in which allocation n fails; whether it was reached. */
static bool fails_at(const op_case_t *c, layout_t layout, size_t n)
{
    run_t run = {.c = c, .dtype = TUTTI_F32, .layout = layout};
    tt_alloc_fail_at(n);
    tutti_status_t status = tt_test_context(&(tutti_context_options_t){.threads = 1}, &run.ctx);
    if (status >= 0) {
        status = tutti_scope_open(run.ctx, &run.s);
        if (status >= 0) {
            perform(&run);
            (void)tutti_scope_fail(run.s, tt_test_wait(run.ctx));
            status = tutti_scope_close(run.s);
        }
        tutti_context_release(run.ctx);
    }
    const bool was_reached = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    /* Where data fails to be allocated the device gives back what it kept, and tries once more. */
    const bool may_recover = strstr(tutti_last_error(), "for tensor data") != NULL;
    if (was_reached && status != TUTTI_ERR_NOMEM && !(may_recover && status == TUTTI_OK)) {
        fail_msg("%s (%s): allocation %zu failed (%s), but the status is %s", c->op, c->what, n,
                 tutti_last_error(), tutti_status_name(status));
    }
    check_nothing_lives(c->op, c->what);
    return was_reached;
}

static void torture(const op_case_t *c)
{
    for (size_t n = 1, failed = 1; failed > 0; n++) {
        failed = fails_at(c, CONTIGUOUS, n);
        failed += !c->is_contiguous && fails_at(c, SLICED, n); /* where operands are copied */
        if (n > 5000) {
            fail_msg("%s (%s): no end of allocations", c->op, c->what);
        }
    }
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    if (tt_test_device() != NULL && tt_test_number("TUTTI_TEST_SHARE", 1) > 1) {
        skip(); /* half a minute, if the case is of many operations */
    }
    for_each_case(torture);
}

/* The n-th launch fails; the others are handed on. */
static struct {
    tutti_status_t (*launch)(tt_exec_t *exec, const tt_kernel_t *kernel, const void *arguments);
    size_t left;
    bool has_failed;
} launches;

static tutti_status_t launch_or_fail(tt_exec_t *exec, const tt_kernel_t *kernel,
                                     const void *arguments)
{
    if (launches.left > 0 && --launches.left == 0) {
        launches.has_failed = true;
        return TT_FAIL(TUTTI_ERR_IO, "%s: it cannot be launched", kernel->name);
    }
    return launches.launch != NULL ? launches.launch(exec, kernel, arguments)
                                   : kernel->run(exec->threads, arguments);
}

/* One run in which launch n fails; whether it was reached. */
static bool is_not_launched(const op_case_t *c, tutti_dtype_t dtype, layout_t layout, size_t n)
{
    run_t run = {.c = c, .dtype = dtype, .layout = layout};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &run.ctx), 0);
    assert_int_equal(tutti_scope_open(run.ctx, &run.s), TUTTI_OK);
    tt_exec_t *exec = tt_scope_exec(run.s);
    launches.launch = exec->launch;
    launches.left = n;
    launches.has_failed = false;
    exec->launch = launch_or_fail;
    perform(&run);
    exec->launch = launches.launch;
    const tutti_status_t status = tutti_scope_close(run.s);
    tutti_context_release(run.ctx);
    if (launches.has_failed && status != TUTTI_ERR_IO) {
        fail_msg("%s (%s): launch %zu failed, but the status is %s", c->op, c->what, n,
                 tutti_status_name(status));
    }
    check_nothing_lives(c->op, c->what);
    return launches.has_failed;
}

static void torture_launches(const op_case_t *c)
{
    for (size_t n = 1, failed = 1; failed > 0; n++) {
        failed = is_not_launched(c, TUTTI_BF16, CONTIGUOUS, n);
        failed += !c->is_contiguous && is_not_launched(c, TUTTI_F32, SLICED, n);
    }
}

static void any_launch_may_fail(void **state)
{
    (void)state;
    for_each_case(torture_launches);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The text, as on the host: a device's work that failed says first where that was, "strict:0: ". */
static const char *text_of(const tutti_scope_t *s)
{
    const char *text = tutti_scope_error(s), *device = tt_test_device();
    const size_t length = device == NULL ? 0 : strlen(device);
    return length > 0 && strncmp(text, device, length) == 0 ? text + length + 2 : text;
}

static void check_error(const op_error_t *error)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    (void)find_op(error->op);
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    error->call(s);
    (void)tutti_scope_fail(s, tt_test_wait(ctx));
    assert_string_equal(text_of(s), error->text);
    assert_true(tutti_scope_close(s) < 0);
    tutti_context_release(ctx);
    check_nothing_lives(error->op, "error");
}

static void errors_name_operation_rule_and_inputs(void **state)
{
    (void)state;
#define X(family)                                                                                  \
    for (size_t i = 0; i < op_errors_##family##_count; i++) {                                      \
        check_error(&op_errors_##family[i]);                                                       \
    }
    OP_CASE_FAMILIES(X)
#undef X
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_what_plain_references_give),
        cmocka_unit_test(gradients_are_what_differences_say),
        cmocka_unit_test(recorded_gradients_are_those_of_backward),
        cmocka_unit_test(layouts_change_no_bit),
        cmocka_unit_test(narrow_types_stay_near_f64),
        cmocka_unit_test(devices_change_no_bit),
        cmocka_unit_test(errors_name_operation_rule_and_inputs),
        cmocka_unit_test(any_launch_may_fail),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
