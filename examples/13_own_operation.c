/* Lesson 13: an operation of your own.
 *
 *     build/bin/13_own_operation
 *
 * Points of a plane in polar coordinates: two inputs, two outputs, written in C with both ways of
 * the chain rule. Checked against differences, then used in a module that finds the centre of a
 * circle.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/nn.h>
#include <tutti/op.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

/* ---- the operation: r = √(x² + y²), φ = atan2(y, x) in units of `unit` ---- */

enum { X, Y, R };
enum { RADIUS, ANGLE };

typedef struct {
    double unit; /* 1: radians; π / 180: degrees */
} polar_params_t;

/* Both outputs have the inputs' shape and dtype. */
static tutti_status_t polar_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TUTTI_CHECK(tutti_op_infer_same_float(call, &outputs[RADIUS]));
    outputs[ANGLE] = outputs[RADIUS];
    const tutti_shape_t other = tutti_tensor_shape(call->inputs[Y]);
    const tutti_dtype_t dtype = tutti_tensor_dtype(call->inputs[Y]);
    if (dtype != outputs->dtype || (dtype != TUTTI_F32 && dtype != TUTTI_F64)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "x and y must both be f32, or f64");
    }
    return tutti_shape_equal(outputs->shape, other)
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_SHAPE, "x and y must have one shape");
}

static double get(const tutti_tensor_t *x, int64_t i)
{
    const void *data = tutti_tensor_data(x);
    return tutti_tensor_dtype(x) == TUTTI_F64 ? ((const double *)data)[i]
                                              : (double)((const float *)data)[i];
}

static void put(tutti_tensor_t *x, int64_t i, double value)
{
    void *data = tutti_tensor_data(x);
    if (tutti_tensor_dtype(x) == TUTTI_F64) {
        ((double *)data)[i] = value;
    } else {
        ((float *)data)[i] = (float)value;
    }
}

/* A piece of the loop, for the context's threads: so many elements, whatever the threads are. */
enum { PIECE = 1024 };

typedef struct {
    const tutti_tensor_t *x, *y;
    tutti_tensor_t *radius, *angle;
    double unit;
} polar_t;

static void polar_piece(void *arg, size_t index)
{
    const polar_t *p = arg;
    const int64_t start = (int64_t)index * PIECE, numel = tutti_tensor_numel(p->x);
    for (int64_t i = start; i < start + PIECE && i < numel; i++) {
        put(p->radius, i, hypot(get(p->x, i), get(p->y, i)));
        put(p->angle, i, atan2(get(p->y, i), get(p->x, i)) / p->unit);
    }
}

static tutti_status_t polar_forward(tutti_op_call_t *call)
{
    const polar_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tutti_contiguous(s, call->inputs[X]);
    tutti_tensor_t *y = tutti_contiguous(s, call->inputs[Y]);
    TUTTI_CHECK(tutti_scope_status(s));
    polar_t polar = {x, y, call->outputs[RADIUS], call->outputs[ANGLE], params->unit};
    const size_t pieces = ((size_t)tutti_tensor_numel(x) + PIECE - 1) / PIECE;
    TUTTI_CHECK(tutti_parallel_for(tutti_scope_context(s), pieces, polar_piece, &polar));
    TUTTI_CHECK(tutti_op_save(call, call->inputs[X]));
    TUTTI_CHECK(tutti_op_save(call, call->inputs[Y]));
    return tutti_op_save(call, call->outputs[RADIUS]);
}

/* A backward may call operations. Thanks to zero_grad_outputs both gradients are there.
 *
 *     dx = (x / r) dr - (y / r²) dφ / unit
 *     dy = (y / r) dr + (x / r²) dφ / unit
 */
static tutti_status_t polar_backward(tutti_op_backward_t *call)
{
    const polar_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *cos = tutti_div(s, call->saved[X], call->saved[R]);
    tutti_tensor_t *sin = tutti_div(s, call->saved[Y], call->saved[R]);
    tutti_tensor_t *dr = call->grad_outputs[RADIUS];
    tutti_tensor_t *turn = tutti_div(s, call->grad_outputs[ANGLE], call->saved[R]);
    turn = tutti_div_scalar(s, turn, params->unit);
    if (call->wanted[X]) {
        call->grads[X] = tutti_sub(s, tutti_mul(s, cos, dr), tutti_mul(s, sin, turn));
    }
    if (call->wanted[Y]) {
        call->grads[Y] = tutti_add(s, tutti_mul(s, sin, dr), tutti_mul(s, cos, turn));
    }
    return TUTTI_OK;
}

static const tutti_op_t polar_op = {
    .name = "polar",
    .about = "radius and angle of points; their gradients turned back",
    .input_count = 2,
    .output_count = 2,
    .params_bytes = sizeof(polar_params_t),
    .zero_grad_outputs = true,
    .infer = polar_infer,
    .forward = polar_forward,
    .backward = polar_backward,
    .grad = polar_backward, /* made of operations alone: it has a gradient, too */
};

static void polar(tutti_scope_t *s, tutti_tensor_t *const *xy, tutti_tensor_t **outputs, void *unit)
{
    tutti_op_run_many(s, &polar_op, xy, 2, &(polar_params_t){*(double *)unit}, outputs, 2);
}

/* ---- are the gradients right? ---- */

static tutti_status_t check(tutti_context_t *ctx)
{
    double degrees = acos(-1) / 180;
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *xy[] = {tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(3), (double[]){3, -1, 0.5}),
                            tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(3), (double[]){4, 2, -0.25})};
    for (int i = 0; i < 2; i++) {
        (void)tutti_tensor_set_requires_grad(xy[i], true);
    }
    tutti_tensor_t *y[2];
    polar(s, xy, y, &degrees);
    printf("(3, 4) lies at %g, %.2f degrees\n", tutti_tensor_at(y[0], 0), tutti_tensor_at(y[1], 0));
    tutti_status_t status = tutti_gradient_check(ctx, polar, &degrees, xy, 2, 2, NULL);
    printf("gradients and differences %s\n", status >= 0 ? "agree" : "differ");
    polar(s, (tutti_tensor_t *[]){xy[0], tutti_zeros(s, TUTTI_F64, TUTTI_SHAPE(2))}, y, &degrees);
    printf("a mistake: %s\n", tutti_scope_error(s));
    (void)tutti_scope_close(s);
    return status;
}

/* ---- a module that uses it: how far from its centre is each point? ---- */

typedef struct {
    tutti_tensor_t *x, *y;
} circle_t;

static tutti_status_t circle_init(tutti_module_t *m, const void *options)
{
    (void)options;
    circle_t *circle = tutti_module_state(m);
    const tutti_init_t zero = {0};
    TUTTI_CHECK(tutti_module_new_parameter(m, "x", TUTTI_SHAPE(1), zero, &circle->x));
    return tutti_module_new_parameter(m, "y", TUTTI_SHAPE(1), zero, &circle->y);
}

/* [n, 2] -> [n] */
static tutti_tensor_t *circle_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *points)
{
    const circle_t *circle = tutti_module_state(m);
    double radians = 1;
    tutti_tensor_t *outputs[2];
    tutti_tensor_t *xy[] = {tutti_sub(s, tutti_select(s, points, 1, 0), circle->x),
                            tutti_sub(s, tutti_select(s, points, 1, 1), circle->y)};
    polar(s, xy, outputs, &radians);
    return outputs[RADIUS];
}

static const tutti_module_ops_t circle_layer = {.name = "circle",
                                                .state_bytes = sizeof(circle_t),
                                                .init = circle_init,
                                                .forward = circle_forward};

/* Points at distance 1 from (0.5, -0.25): the centre is where all radii are 1. */
static tutti_status_t step(tutti_context_t *ctx, tutti_module_t *circle, double *loss)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *angle = tutti_arange(s, TUTTI_F32, 0, 0.1, 60);
    tutti_tensor_t *xy[] = {tutti_add_scalar(s, tutti_cos(s, angle), 0.5),
                            tutti_add_scalar(s, tutti_sin(s, angle), -0.25)};
    tutti_tensor_t *radii = tutti_forward(s, circle, tutti_stack(s, xy, 2, 1));
    tutti_tensor_t *one = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(60));
    tutti_tensor_t *error = tutti_mse_loss(s, radii, one, TUTTI_LOSS_MEAN);
    *loss = tutti_tensor_item(error);
    (void)tutti_backward(s, error); /* the scope knows if it failed */
    return tutti_scope_close(s);
}

static tutti_status_t learn(tutti_context_t *ctx, tutti_module_t *m, tutti_optim_t *opt)
{
    const circle_t *circle = tutti_module_state(m);
    TUTTI_CHECK(tutti_optim_add_module(opt, m, NULL, NULL));
    for (int i = 0; i <= 60; i++) {
        double loss;
        TUTTI_CHECK(step(ctx, m, &loss));
        if (i % 20 == 0) {
            printf("step %2d  loss %.6f  centre (%.3f, %.3f)\n", i, loss,
                   tutti_tensor_item(circle->x), tutti_tensor_item(circle->y));
        }
        TUTTI_CHECK(tutti_optim_step(opt));
        tutti_optim_zero_grad(opt);
    }
    return TUTTI_OK;
}

int main(void)
{
    tutti_context_t *ctx = NULL;
    tutti_module_t *circle = NULL;
    tutti_optim_t *opt = NULL;
    const bool done =
        tutti_context_create(NULL, &ctx) >= 0 && check(ctx) >= 0 &&
        tutti_module_create(ctx, &circle_layer, NULL, &circle) >= 0 &&
        tutti_optim_create(ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.5}, &opt) >= 0 &&
        learn(ctx, circle, opt) >= 0;
    if (!done) {
        fprintf(stderr, "13_own_operation: %s\n", tutti_last_error());
    }
    tutti_optim_release(opt);
    tutti_module_release(circle);
    tutti_context_release(ctx);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
