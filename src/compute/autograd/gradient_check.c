/* Gradients beside central differences, and gradients of gradients beside differences of gradients.
 * Cost: two forwards for each element of the inputs. */
#include <tutti/autograd.h>

#include <math.h>
#include <tutti/modes.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/base/rng.h"
#include "core/kernel/elementwise/map.h"

enum { STREAM = 77 };

typedef struct {
    tutti_context_t *ctx;
    tutti_gradient_check_fn_t fn;
    void *user;
    tutti_tensor_t *const *inputs;
    int input_count, output_count;
    double step, tolerance;
    uint64_t random_calls; /* at the beginning: each forward draws the same numbers */
    tutti_tensor_t *
        *leaves;            /* [input_count] in the inputs' place, so that these stay as they are */
    tutti_tensor_t **moved; /* [input_count] the same, one of them another one */
    int *checked;           /* [checked_count] inputs */
    int checked_count;
    tutti_tensor_t **wanted;  /* [checked_count] these leaves */
    tutti_tensor_t **grads;   /* [checked_count] */
    tutti_tensor_t **outputs; /* [output_count] */
    bool *counts;             /* [output_count] whether an output has a gradient */
} check_t;

/* The weight of element i of output k in the sum whose gradients are checked. */
static double weight_of(int k, int64_t i)
{
    return 0.5 + (double)tt_rng_uniform(tt_rng_stream(STREAM, (uint64_t)k, 0, 0, 0), (uint64_t)i);
}

static void run_forward(const check_t *c, tutti_scope_t *s, tutti_tensor_t *const *inputs)
{
    c->ctx->random_calls = c->random_calls;
    c->fn(s, inputs, c->outputs, c->user);
}

/* ---- by backward ----------------------------------------------------------------------------- */

static tutti_tensor_t *weights_of(tutti_scope_t *s, int k, const tutti_tensor_t *y)
{
    double *values = tt_alloc_array((size_t)y->numel, sizeof *values, "gradient check");
    if (values == NULL) {
        return tutti_scope_fail(s, TUTTI_ERR_NOMEM);
    }
    for (int64_t i = 0; i < y->numel; i++) {
        values[i] = weight_of(k, i);
    }
    tutti_tensor_t *weights = NULL;
    tutti_status_t status =
        tt_tensor_new(tt_memory_of(s->ctx, y), TUTTI_F64, y->shape, false, &weights);
    weights = tt_scope_adopt(s, status, weights);
    status = tutti_tensor_copy_from(weights, values);
    tt_free(values);
    return status < 0 ? tutti_scope_fail(s, status) : weights;
}

static tutti_status_t find_gradients(const check_t *c, tutti_scope_t *s)
{
    int roots = 0;
    tutti_root_t *all = tt_alloc_array((size_t)c->output_count, sizeof *all, "gradient check");
    TT_TRY_ALLOC(all);
    run_forward(c, s, c->leaves);
    tutti_status_t status = tutti_scope_status(s);
    for (int k = 0; k < c->output_count && status >= 0; k++) {
        c->counts[k] = tutti_tensor_requires_grad(c->outputs[k]);
        if (c->counts[k]) {
            all[roots++] = (tutti_root_t){.tensor = c->outputs[k],
                                          .grad_output = weights_of(s, k, c->outputs[k])};
        }
    }
    if (status >= 0) {
        status = roots == 0
                     ? TT_FAIL(TUTTI_ERR_STATE, "gradient_check: no output has a gradient")
                     : tutti_grad_many(s, all, roots, NULL, c->wanted, c->checked_count, c->grads);
    }
    tt_free(all);
    return status;
}

/* ---- by differences -------------------------------------------------------------------------- */

static tutti_status_t move_element(const tutti_scope_t *s, const tutti_tensor_t *x, int64_t i,
                                   double by)
{
    TT_TRY(x->status);
    const tt_strided_t number = {.dtype = TUTTI_F64, .number.f64 = by};
    const tt_strided_t at = {.data = (double *)tt_tensor_data(x) + i, .dtype = TUTTI_F64};
    return tt_map_binary(tt_tensor_exec(s->ctx, x), TT_BINARY_ADD, (tt_map_params_t){0}, &at, &at,
                         &number);
}

/* Σ weights × outputs with element i of input k moved by `by`. */
static tutti_status_t sum_beside(const check_t *c, int k, int64_t i, double by, double *sum)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(c->ctx, &s));
    tutti_tensor_t *own = c->moved[k];
    c->moved[k] = tutti_clone(s, own);
    (void)tutti_scope_fail(s, move_element(s, c->moved[k], i, by));
    run_forward(c, s, c->moved);
    c->moved[k] = own;
    *sum = 0;
    for (int n = 0; n < c->output_count && tutti_scope_status(s) >= 0; n++) {
        for (int64_t e = 0; e < tutti_tensor_numel(c->outputs[n]) && c->counts[n]; e++) {
            *sum += weight_of(n, e) * tutti_tensor_at(c->outputs[n], e);
        }
    }
    return tutti_scope_close(s);
}

static bool is_near(double a, double b, double tolerance)
{
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= tolerance * (1 + fabs(b));
}

static tutti_status_t check_input(const check_t *c, int k, const tutti_tensor_t *grad)
{
    for (int64_t i = 0; i < tutti_tensor_numel(c->inputs[k]); i++) {
        double above, below;
        TT_TRY(sum_beside(c, k, i, c->step, &above));
        TT_TRY(sum_beside(c, k, i, -c->step, &below));
        const double slope = (above - below) / (2 * c->step);
        const double got = grad == NULL ? 0 : tutti_tensor_at(grad, i);
        if (!is_near(got, slope, c->tolerance)) {
            return TT_FAIL(TUTTI_ERR_MISMATCH,
                           "gradient_check: the gradient of element %lld of input %d is %.12g; "
                           "differences say %.12g",
                           (long long)i, k, got, slope);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_differences(const check_t *c)
{
    tutti_status_t status = TUTTI_OK;
    const bool was_enabled = tutti_context_set_grad_enabled(c->ctx, false);
    for (int n = 0; n < c->checked_count && status >= 0; n++) {
        status = check_input(c, c->checked[n], c->grads[n]);
    }
    (void)tutti_context_set_grad_enabled(c->ctx, was_enabled);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static tutti_status_t add_checked(check_t *c, tutti_scope_t *s, int k)
{
    char text[192];
    tutti_tensor_t *x = c->inputs[k];
    if (x->dtype != TUTTI_F64 || !tutti_tensor_is_contiguous(x)) {
        return TT_FAIL(TUTTI_ERR_DTYPE,
                       "gradient_check: input %d is %s: want contiguous f64, for differences say "
                       "nothing in less",
                       k, tutti_tensor_describe(x, text, sizeof text));
    }
    c->leaves[k] = tutti_detach(s, x);
    TT_TRY(c->leaves[k]->status);
    TT_TRY(tutti_tensor_set_requires_grad(c->leaves[k], true));
    c->wanted[c->checked_count] = c->leaves[k];
    c->checked[c->checked_count++] = k;
    return TUTTI_OK;
}

static tutti_status_t make_leaves(check_t *c, tutti_scope_t *s)
{
    for (int k = 0; k < c->input_count; k++) {
        c->leaves[k] = c->inputs[k];
        if (c->inputs[k] != NULL && tutti_tensor_requires_grad(c->inputs[k])) {
            TT_TRY(add_checked(c, s, k));
        }
        c->moved[k] = c->leaves[k];
    }
    return c->checked_count > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "gradient_check: no input needs a gradient: mark one with "
                         "tutti_tensor_set_requires_grad");
}

static tutti_status_t check_in(check_t *c, tutti_scope_t *s)
{
    TT_TRY(make_leaves(c, s));
    TT_TRY(find_gradients(c, s));
    return check_differences(c);
}

static tutti_status_t check_all(check_t *c)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(c->ctx, &s));
    const tutti_status_t status = check_in(c, s);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
    return tutti_scope_close(s);
}

/* All arrays in one block. */
static tutti_status_t check_with_room(check_t *c)
{
    const size_t inputs = (size_t)c->input_count, outputs = (size_t)c->output_count;
    tutti_tensor_t **room = tt_alloc(
        (4 * inputs + outputs) * sizeof *room + inputs * sizeof(int) + outputs, "gradient check");
    TT_TRY_ALLOC(room);
    c->leaves = room;
    c->moved = c->leaves + inputs;
    c->wanted = c->moved + inputs;
    c->grads = c->wanted + inputs;
    c->outputs = c->grads + inputs;
    c->checked = (int *)(c->outputs + outputs);
    c->counts = (bool *)(c->checked + inputs);
    c->checked_count = 0;
    const tutti_status_t status = check_all(c);
    tt_free(room);
    return status;
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

/* The gradients of a function as a function themselves, of its inputs and, behind these, of the
 * gradients of its outputs: NULL for an output that has none. */
typedef struct {
    const check_t *of;
    tutti_tensor_t **inputs;  /* [input_count + output_count] */
    tutti_tensor_t **marked;  /* [input_count] those of a call, wanting gradients where these do */
    tutti_tensor_t **outputs; /* [output_count] of a call */
    tutti_root_t *roots;      /* [output_count] */
    int wanted_count;         /* inputs that want a gradient */
} gradients_t;

/* Differences are taken where nothing is recorded, so that inputs may have lost their marks. */
static tutti_status_t mark_inputs(const gradients_t *f, tutti_scope_t *s,
                                  tutti_tensor_t *const *inputs)
{
    for (int i = 0; i < f->of->input_count; i++) {
        const tutti_tensor_t *own = f->inputs[i];
        f->marked[i] = inputs[i];
        if (own != NULL && tutti_tensor_requires_grad(own) &&
            !tutti_tensor_requires_grad(inputs[i])) {
            f->marked[i] = tutti_detach(s, inputs[i]);
            TT_TRY(tutti_tensor_set_requires_grad(f->marked[i], true));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t take_gradients(const gradients_t *f, tutti_scope_t *s,
                                     tutti_tensor_t *const *inputs, tutti_tensor_t **grads)
{
    const tutti_backward_options_t options = {.create_graph = true};
    const check_t *c = f->of;
    int roots = 0, wanted = 0;
    TT_TRY(mark_inputs(f, s, inputs));
    c->fn(s, f->marked, f->outputs, c->user);
    TT_TRY(tutti_scope_status(s));
    for (int k = 0; k < c->output_count; k++) {
        if (tutti_tensor_requires_grad(f->outputs[k])) {
            f->roots[roots++] =
                (tutti_root_t){.tensor = f->outputs[k], .grad_output = inputs[c->input_count + k]};
        }
    }
    for (int i = 0; i < c->input_count; i++) {
        if (f->marked[i] != NULL && tutti_tensor_requires_grad(f->marked[i])) {
            f->marked[wanted++] = f->marked[i];
        }
    }
    TT_TRY(tutti_grad_many(s, f->roots, roots, &options, f->marked, wanted, grads));
    for (int i = 0; i < wanted; i++) {
        grads[i] = grads[i] == NULL ? tutti_zeros(s, TUTTI_F64, f->marked[i]->shape) : grads[i];
    }
    return TUTTI_OK;
}

static void call_gradients(tutti_scope_t *s, tutti_tensor_t *const *inputs, tutti_tensor_t **grads,
                           void *user)
{
    const gradients_t *f = user;
    for (int i = 0; i < f->wanted_count; i++) {
        grads[i] = NULL;
    }
    const bool was_enabled = tutti_context_set_grad_enabled(s->ctx, true);
    const tutti_status_t status = take_gradients(f, s, inputs, grads);
    (void)tutti_context_set_grad_enabled(s->ctx, was_enabled);
    for (int i = 0; i < f->wanted_count && status < 0; i++) {
        grads[i] = tutti_scope_fail(s, status);
    }
}

/* The function's inputs, and a gradient for each output that has one. */
static tutti_status_t make_inputs(gradients_t *f, tutti_scope_t *s)
{
    const check_t *c = f->of;
    for (int i = 0; i < c->input_count; i++) {
        f->inputs[i] = c->inputs[i];
        f->wanted_count += c->inputs[i] != NULL && tutti_tensor_requires_grad(c->inputs[i]);
    }
    c->ctx->random_calls = c->random_calls;
    c->fn(s, f->inputs, f->outputs, c->user);
    TT_TRY(tutti_scope_status(s));
    for (int k = 0; k < c->output_count; k++) {
        if (tutti_tensor_requires_grad(f->outputs[k])) {
            tutti_tensor_t *weights = weights_of(s, k, f->outputs[k]);
            TT_TRY(weights->status);
            TT_TRY(tutti_tensor_set_requires_grad(weights, true));
            f->inputs[c->input_count + k] = weights;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_twice_in(gradients_t *f, tutti_scope_t *s)
{
    check_t c = *f->of;
    TT_TRY(make_inputs(f, s));
    c.fn = call_gradients;
    c.user = f;
    c.inputs = f->inputs;
    c.input_count = f->of->input_count + f->of->output_count;
    c.output_count = f->wanted_count;
    return check_with_room(&c);
}

static tutti_status_t check_twice(const check_t *c)
{
    const size_t inputs = (size_t)c->input_count, outputs = (size_t)c->output_count;
    gradients_t f = {.of = c};
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(c->ctx, &s));
    f.inputs = tt_alloc_array(2 * (inputs + outputs), sizeof *f.inputs, "gradient check");
    f.roots = tt_alloc_array(outputs, sizeof *f.roots, "gradient check");
    tutti_status_t status = f.inputs == NULL || f.roots == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0) {
        f.marked = f.inputs + inputs + outputs;
        f.outputs = f.marked + inputs;
        status = check_twice_in(&f, s);
    }
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
    tt_free(f.roots);
    tt_free(f.inputs);
    return tutti_scope_close(s);
}

tutti_status_t tutti_gradient_check(tutti_context_t *ctx, tutti_gradient_check_fn_t fn, void *user,
                                    tutti_tensor_t *const *inputs, int input_count,
                                    int output_count, const tutti_gradient_check_options_t *options)
{
    const tutti_gradient_check_options_t none = {0}, *o = options == NULL ? &none : options;
    if (input_count < 1 || output_count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "gradient_check: %d inputs, %d outputs: want one of each",
                       input_count, output_count);
    }
    check_t c = {.ctx = ctx,
                 .fn = fn,
                 .user = user,
                 .inputs = inputs,
                 .input_count = input_count,
                 .output_count = output_count,
                 .step = tt_or_default(o->step, 1e-5),
                 .tolerance = tt_or_default(o->tolerance, 2e-6),
                 .random_calls = ctx->random_calls};
    if (!(c.step > 0 && c.tolerance > 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "gradient_check: step is %g, tolerance is %g: want more than 0", c.step,
                       c.tolerance);
    }
    if (o->order < 0 || o->order > 2) {
        return TT_FAIL(TUTTI_ERR_ARG, "gradient_check: order %d: want 1 or 2", o->order);
    }
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, true);
    const tutti_dtype_t autocast = tutti_context_set_autocast(ctx, TUTTI_F32);
    tutti_status_t status = check_with_room(&c);
    if (status >= 0 && o->order == 2) {
        status = check_twice(&c);
    }
    (void)tutti_context_set_autocast(ctx, autocast);
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
    return status;
}
