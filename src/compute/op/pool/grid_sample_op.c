/* grid_sample: planes and volumes at the places of a grid. Two operations that are each other's
 * gradient, so that there are gradients of any order. With S the taps' weights, which depend on the
 * grid, and S' the same derived by a place:
 *
 *     sample      y = S x        dx = Sᵀ g    dgrid = Σ_c g (S' x)
 *     spread      x = Sᵀ y       dy = S g     dgrid = Σ_c y (S' g)
 *
 * Both compute in f32 or f64; 16-bit tensors are cast before. Cost and source: op_sample.h,
 * grid_sample.h. */
#include <tutti/op_reduce.h>
#include <tutti/op_sample.h>
#include <tutti/op_shape.h>

#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/pool/grid_sample.h"

/* Both operations take a tensor and the grid. */
typedef struct {
    tutti_grid_sample_options_t options;
    int order[3];    /* of derivatives by the place in D, H, W */
    tutti_shape_t x; /* of spread: what it makes */
} params_t;

/* ---- shapes ---------------------------------------------------------------------------------- */

static tutti_status_t check_shapes(const tutti_op_call_t *call, tutti_shape_t x, tutti_shape_t grid)
{
    const int dims = x.rank - 2;
    bool is_right = (dims == 2 || dims == 3) && grid.rank == x.rank && grid.dims[0] == x.dims[0] &&
                    grid.dims[dims + 1] == dims;
    int64_t volume = 1;
    for (int i = 2; i < x.rank && is_right; i++) {
        is_right = x.dims[i] > 0;
        volume = volume > INT32_MAX ? volume : volume * x.dims[i];
    }
    if (!is_right) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "x must be [N, C, H, W] and grid [N, H', W', 2], or [N, C, D, H, W] "
                             "and [N, D', H', W', 3]");
    }
    if (volume > INT32_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_UNSUPPORTED,
                             "more than 2^31 - 1 elements in a channel");
    }
    return TUTTI_OK;
}

static tutti_status_t check_options(const tutti_op_call_t *call,
                                    const tutti_grid_sample_options_t *o)
{
    if ((unsigned)o->mode > TUTTI_GRID_BICUBIC || (unsigned)o->padding > TUTTI_GRID_REFLECTION) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "there is no such mode or padding");
    }
    return TUTTI_OK;
}

static tutti_status_t sample_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const params_t *p = call->params;
    const tutti_tensor_t *x = call->inputs[0], *grid = call->inputs[1];
    if (!tutti_dtype_is_float(x->dtype) || !tutti_dtype_is_float(grid->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "x and grid must be of floating dtypes");
    }
    TT_TRY(check_shapes(call, x->shape, grid->shape));
    TT_TRY(check_options(call, &p->options));
    *outputs = (tutti_spec_t){tutti_op_promote(x->dtype, grid->dtype), grid->shape};
    outputs->shape.dims[1] = x->shape.dims[1];
    for (int i = 2; i < x->shape.rank; i++) {
        outputs->shape.dims[i] = grid->shape.dims[i - 1];
    }
    return TUTTI_OK;
}

static tutti_status_t spread_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const params_t *p = call->params;
    *outputs = (tutti_spec_t){call->inputs[0]->dtype, p->x};
    return TUTTI_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static tt_grid_sample_t describe(const params_t *p, tutti_shape_t x, tutti_shape_t grid,
                                 tutti_dtype_t dtype)
{
    static const tt_grid_mode_t modes[] = {
        [TUTTI_GRID_BILINEAR] = TT_GRID_BILINEAR,
        [TUTTI_GRID_NEAREST] = TT_GRID_NEAREST,
        [TUTTI_GRID_BICUBIC] = TT_GRID_BICUBIC,
    };
    static const tt_grid_padding_t paddings[] = {
        [TUTTI_GRID_ZEROS] = TT_GRID_ZEROS,
        [TUTTI_GRID_BORDER] = TT_GRID_BORDER,
        [TUTTI_GRID_REFLECTION] = TT_GRID_REFLECTION,
    };
    tt_grid_sample_t t = {.batch = x.dims[0],
                          .channels = x.dims[1],
                          .dims = x.rank - 2,
                          .size = {1, 1, 1},
                          .points = 1,
                          .mode = modes[p->options.mode],
                          .padding = paddings[p->options.padding],
                          .align_corners = p->options.align_corners,
                          .dtype = dtype};
    for (int i = 2; i < x.rank; i++) {
        t.size[i + 3 - x.rank] = x.dims[i];
        t.points *= grid.dims[i - 1];
    }
    for (int i = 0; i < 3; i++) {
        t.order[i] = p->order[i];
    }
    return t;
}

/* Two or three operands, of one dtype. */
typedef struct {
    tutti_tensor_t *of[3];
} operands_t;

static void release_operands(operands_t o)
{
    for (int i = 0; i < 3; i++) {
        tutti_tensor_release(o.of[i]);
    }
}

static tutti_status_t open_operands(tutti_scope_t *s, tutti_dtype_t dtype, operands_t from,
                                    operands_t *out)
{
    operands_t o = {{NULL}};
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < 3 && status >= 0; i++) {
        status = tt_dense(s, from.of[i], dtype, &o.of[i]);
    }
    if (status < 0) {
        release_operands(o);
        return status;
    }
    *out = o;
    return TUTTI_OK;
}

typedef tutti_status_t (*kernel_t)(tt_exec_t *exec, const tt_grid_sample_t *t, const void *from,
                                   const void *grid, void *to);

/* x is the shape of what is sampled, or spread to. */
static tutti_status_t run(tutti_scope_t *s, const params_t *p, kernel_t kernel, tutti_shape_t x,
                          operands_t from, tutti_tensor_t *to)
{
    operands_t o;
    TT_TRY(open_operands(s, to->dtype, from, &o));
    const tt_grid_sample_t t = describe(p, x, o.of[1]->shape, to->dtype);
    const tutti_status_t status = kernel(tt_scope_exec(s), &t, tt_tensor_data(o.of[0]),
                                         tt_tensor_data(o.of[1]), tt_tensor_data(to));
    release_operands(o);
    return status;
}

/* The gradient of the grid: y is of the points, x of what is sampled. */
static tutti_status_t run_slopes(tutti_op_backward_t *call, tutti_tensor_t *y, tutti_tensor_t *x,
                                 tutti_tensor_t *grid)
{
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    tutti_tensor_t *dgrid = tt_scratch(call->scope, dtype, grid->shape);
    operands_t o;
    TT_TRY(dgrid == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    TT_TRY(open_operands(call->scope, dtype, (operands_t){{y, x, grid}}, &o));
    const tt_grid_sample_t t = describe(call->params, x->shape, grid->shape, dtype);
    const tutti_status_t status =
        tt_grid_slopes(tt_scope_exec(call->scope), &t, tt_tensor_data(o.of[0]),
                       tt_tensor_data(o.of[1]), tt_tensor_data(o.of[2]), tt_tensor_data(dgrid));
    release_operands(o);
    call->grads[1] = dgrid;
    return status;
}

/* The gradient of the first input, by the other kernel. */
static tutti_status_t run_transposed(tutti_op_backward_t *call, kernel_t kernel, tutti_shape_t x)
{
    tutti_tensor_t *to = tt_scratch(call->scope, call->outputs[0].dtype, call->inputs[0].shape);
    TT_TRY(to == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    call->grads[0] = to;
    return run(call->scope, call->params, kernel, x,
               (operands_t){{call->grad_outputs[0], call->saved[1]}}, to);
}

/* ---- gradients as operations ----------------------------------------------------------------- */

static const tutti_op_t op_spread;

/* Σ_c y × what x is at the grid, derived by each place: coordinates are W, H, D. */
static tutti_tensor_t *slopes(const tutti_op_backward_t *call, tutti_tensor_t *y, tutti_tensor_t *x,
                              tutti_tensor_t *grid)
{
    const int dims = tutti_tensor_rank(x) - 2;
    tutti_tensor_t *parts[3] = {NULL}, *operands[] = {x, grid};
    for (int i = 0; i < dims; i++) {
        params_t p = *(const params_t *)call->params;
        p.order[2 - i]++;
        tutti_tensor_t *slope = tutti_op_run(call->scope, &tt_op_grid_sample, operands, 2, &p);
        parts[i] =
            tutti_sum_over(call->scope, tutti_mul(call->scope, y, slope), TUTTI_DIMS(1), false);
    }
    return tutti_stack(call->scope, parts, dims, -1);
}

static tutti_status_t sample_grad(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0], *operands[] = {g, call->saved[1]};
    params_t p = *(const params_t *)call->params;
    p.x = call->inputs[0].shape;
    if (call->wanted[0]) {
        call->grads[0] = tutti_op_run(call->scope, &op_spread, operands, 2, &p);
    }
    if (call->wanted[1]) {
        call->grads[1] = slopes(call, g, call->saved[0], call->saved[1]);
    }
    return TUTTI_OK;
}

static tutti_status_t spread_grad(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0], *operands[] = {g, call->saved[1]};
    if (call->wanted[0]) {
        call->grads[0] = tutti_op_run(call->scope, &tt_op_grid_sample, operands, 2, call->params);
    }
    if (call->wanted[1]) {
        call->grads[1] = slopes(call, call->saved[0], g, call->saved[1]);
    }
    return TUTTI_OK;
}

/* ---- the operations -------------------------------------------------------------------------- */

static tutti_status_t save_inputs(tutti_op_call_t *call)
{
    TT_TRY(tutti_op_save(call, tutti_op_needs_grad(call, 1) ? call->inputs[0] : NULL));
    return tutti_op_save(call, call->inputs[1]);
}

static tutti_status_t sample_forward(tutti_op_call_t *call)
{
    TT_TRY(run(call->scope, call->params, tt_grid_sample, call->inputs[0]->shape,
               (operands_t){{call->inputs[0], call->inputs[1]}}, call->outputs[0]));
    return save_inputs(call);
}

static tutti_status_t sample_backward(tutti_op_backward_t *call)
{
    if (call->wanted[0]) {
        TT_TRY(run_transposed(call, tt_grid_spread, call->inputs[0].shape));
    }
    return call->wanted[1] ? run_slopes(call, call->grad_outputs[0], call->saved[0], call->saved[1])
                           : TUTTI_OK;
}

static tutti_status_t spread_forward(tutti_op_call_t *call)
{
    TT_TRY(run(call->scope, call->params, tt_grid_spread, call->outputs[0]->shape,
               (operands_t){{call->inputs[0], call->inputs[1]}}, call->outputs[0]));
    return save_inputs(call);
}

static tutti_status_t spread_backward(tutti_op_backward_t *call)
{
    if (call->wanted[0]) {
        TT_TRY(run_transposed(call, tt_grid_sample, call->outputs[0].shape));
    }
    return call->wanted[1] ? run_slopes(call, call->saved[0], call->grad_outputs[0], call->saved[1])
                           : TUTTI_OK;
}

static const tutti_op_t op_spread = {
    .name = "grid_spread",
    .about = "the gradient of grid_sample's x; its own is grid_sample",
    .input_count = 2,
    .params_bytes = sizeof(params_t),
    .infer = spread_infer,
    .forward = spread_forward,
    .backward = spread_backward,
    .grad = spread_grad,
};

const tutti_op_t tt_op_grid_sample = {
    .name = "grid_sample",
    .about = "y = x at the places of a grid; dx = Σ w dy, dgrid = Σ_c dy × slopes of x there",
    .input_count = 2,
    .params_bytes = sizeof(params_t),
    .infer = sample_infer,
    .forward = sample_forward,
    .backward = sample_backward,
    .grad = sample_grad,
};

tutti_tensor_t *tutti_grid_sample(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *grid,
                                  const tutti_grid_sample_options_t *options)
{
    params_t p = {.order = {0}};
    tutti_tensor_t *inputs[] = {x, grid};
    if (options != NULL) {
        p.options = *options;
    }
    if (tt_tensor_status(x) < 0 || tt_tensor_status(grid) < 0 || !tutti_dtype_is_float(x->dtype) ||
        !tutti_dtype_is_float(grid->dtype)) {
        return tutti_op_run(s, &tt_op_grid_sample, inputs, 2, &p);
    }
    inputs[0] = tt_wide(s, x);
    inputs[1] = tt_wide(s, grid);
    return tutti_cast(s, tutti_op_run(s, &tt_op_grid_sample, inputs, 2, &p),
                      tutti_op_promote(x->dtype, grid->dtype));
}
