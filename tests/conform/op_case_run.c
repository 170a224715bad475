/* Inputs of a case are made on the host and copied to where the run is. */
#include "op_case_run.h"

#include <math.h>

#include <tutti/modes.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "core/base/rng.h"

const char *const layout_names[LAYOUT_COUNT] = {"contiguous", "transposed", "sliced"};

/* ---- cases ----------------------------------------------------------------------------------- */

void for_each_case(case_fn_t fn)
{
    uint64_t number = 0;
#define X(family)                                                                                  \
    for (size_t i = 0; i < op_cases_##family##_count; i++) {                                       \
        if (tt_test_takes(number++)) {                                                             \
            fn(&op_cases_##family[i]);                                                             \
        }                                                                                          \
    }
    OP_CASE_FAMILIES(X)
#undef X
}

const tutti_op_t *find_op(const char *name)
{
    for (int i = 0; i < TT_OP_COUNT; i++) {
        if (strcmp(tt_ops[i]->name, name) == 0) {
            return tt_ops[i];
        }
    }
    fail_msg("a case names %s, which is not in ops.def", name);
    return NULL;
}

static int input_count(const op_case_t *c)
{
    return c->input_count < 0 ? 0 : c->input_count == 0 ? 1 : c->input_count;
}

static int output_count(const op_case_t *c)
{
    return c->output_count == 0 ? 1 : c->output_count;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Number i of input k, a function of the case. */
static double value_of(const op_case_t *c, int k, int64_t i)
{
    const op_input_t *in = &c->inputs[k];
    const double low = in->low == 0 && in->high == 0 ? -2 : in->low,
                 high = in->low == 0 && in->high == 0 ? 2 : in->high;
    uint64_t name = 0;
    for (const char *p = c->op; *p != 0; p++) {
        name = name * 31 + (uint64_t)*p;
    }
    if (in->values != NULL) {
        return in->values[i];
    }
    const tt_rng_t rng = tt_rng_stream(name, (uint64_t)k, 0, 0, 0);
    if (in->dtype != TUTTI_F32) {
        return low + (double)tt_rng_below(rng, (uint64_t)i, (uint64_t)(high - low) + 1);
    }
    return low + (high - low) * (double)tt_rng_uniform(rng, (uint64_t)i);
}

/* The values of a function of case, number of the tensor and element, made on the host. */
static tutti_status_t set_values(tutti_tensor_t *x,
                                 double (*value)(const op_case_t *c, int k, int64_t i),
                                 const op_case_t *c, int k)
{
    tutti_tensor_t *plain;
    TT_TRY(tutti_tensor_create(TUTTI_F64, tutti_tensor_shape(x), &plain));
    double *values = tutti_tensor_data(plain);
    for (int64_t i = 0; i < tutti_tensor_numel(plain); i++) {
        values[i] = value(c, k, i);
    }
    const tutti_status_t status = tutti_tensor_copy(x, plain);
    tutti_tensor_release(plain);
    return status;
}

/* An uninitialised view of a shape whose memory is laid out so. */
static tutti_tensor_t *laid_out(tutti_scope_t *s, layout_t layout, tutti_dtype_t dtype,
                                tutti_shape_t shape)
{
    tutti_shape_t memory = shape;
    tutti_dims_t reversed = {.count = shape.rank};
    for (int i = 0; i < shape.rank; i++) {
        const int64_t size = shape.dims[i];
        memory.dims[i] = layout == SLICED       ? 2 * size + 1
                         : layout == TRANSPOSED ? shape.dims[shape.rank - 1 - i]
                                                : size;
        reversed.dims[i] = shape.rank - 1 - i;
    }
    tutti_tensor_t *x = tutti_full(s, dtype, memory, tutti_dtype_is_float(dtype) ? (double)NAN : 1);
    if (layout == TRANSPOSED) {
        return tutti_permute(s, x, reversed);
    }
    for (int i = 0; i < shape.rank && layout == SLICED; i++) {
        x = tutti_slice(s, x, i, ((tutti_range_t){.start = 1, .stop = INT64_MAX, .step = 2}));
    }
    return x;
}

static tutti_tensor_t *make_input(run_t *run, int k)
{
    const op_input_t *in = &run->c->inputs[k];
    const bool is_float = in->dtype == TUTTI_F32;
    const tutti_dtype_t dtype = is_float ? run->dtype : in->dtype;
    tutti_tensor_t *x = laid_out(run->s, run->layout, dtype, in->shape);
    tutti_status_t status = set_values(x, value_of, run->c, k);
    if (status >= 0 && is_float && !in->is_constant && !run->c->has_no_gradient) {
        status = tutti_tensor_set_requires_grad(x, true);
    }
    return status < 0 ? tutti_scope_fail(run->s, status) : x;
}

static void make_inputs(run_t *run)
{
    run->input_count = input_count(run->c);
    (void)tutti_context_set_grad_enabled(run->ctx, false);
    for (int k = 0; k < run->input_count; k++) {
        run->inputs[k] = run->c->inputs[k].is_missing ? NULL : make_input(run, k);
    }
    (void)tutti_context_set_grad_enabled(run->ctx, true);
}

/* ---- running --------------------------------------------------------------------------------- */

/* The weight of element i of output k in the loss. */
static double weight_of(const op_case_t *c, int k, int64_t i)
{
    (void)c;
    return 0.5 + (double)tt_rng_uniform(tt_rng_stream(77, (uint64_t)k, 0, 0, 0), (uint64_t)i);
}

static tutti_tensor_t *weights_of(run_t *run, int k)
{
    tutti_tensor_t *y = run->outputs[k];
    tutti_tensor_t *w = tutti_empty(run->s, TUTTI_F64, tutti_tensor_shape(y));
    const tutti_status_t status = set_values(w, weight_of, run->c, k);
    return status < 0 ? tutti_scope_fail(run->s, status)
                      : tutti_tensor_to(run->s, w, tutti_tensor_device(y));
}

tutti_tensor_t *loss_of(run_t *run)
{
    tutti_tensor_t *loss = NULL;
    for (int k = 0; k < run->output_count; k++) {
        if (tutti_tensor_requires_grad(run->outputs[k])) {
            tutti_tensor_t *part =
                tutti_sum(run->s, tutti_mul(run->s, run->outputs[k], weights_of(run, k)));
            loss = loss == NULL ? part : tutti_add(run->s, loss, part);
        }
    }
    return loss;
}

void perform(run_t *run)
{
    make_inputs(run);
    run->output_count = output_count(run->c);
    run->c->call(run->s, run->inputs, run->outputs);
    if (tutti_scope_status(run->s) < 0) {
        return;
    }
    tutti_tensor_t *loss = loss_of(run);
    if (loss != NULL) {
        (void)tutti_backward(run->s, loss);
    }
    for (int k = 0; k < run->input_count; k++) {
        run->grads[k] = run->inputs[k] == NULL ? NULL : tutti_tensor_grad(run->inputs[k]);
    }
}

void begin_on(const char *device, run_t *run, const op_case_t *c, tutti_dtype_t dtype,
              layout_t layout)
{
    *run = (run_t){.c = c, .dtype = dtype, .layout = layout};
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    assert_int_equal(tt_test_context_on(device, &options, &run->ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(run->ctx, &run->s), TUTTI_OK);
    perform(run);
    (void)tutti_scope_fail(run->s, tt_test_wait(run->ctx));
    if (tutti_scope_status(run->s) < 0) {
        fail_msg("%s (%s), %s %s: %s", c->op, c->what, layout_names[layout],
                 tutti_dtype_name(dtype), tutti_scope_error(run->s));
    }
}

void begin(run_t *run, const op_case_t *c, tutti_dtype_t dtype, layout_t layout)
{
    begin_on(tt_test_device(), run, c, dtype, layout);
}

void check_nothing_lives(const char *op, const char *what)
{
    char report[2048];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("%s (%s) leaves behind: %s", op, what, report);
    }
}

void end(run_t *run)
{
    assert_int_equal(tutti_scope_close(run->s), TUTTI_OK);
    tutti_context_release(run->ctx);
    check_nothing_lives(run->c->op, run->c->what);
}
