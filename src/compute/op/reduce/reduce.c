/* Sums, means, extremes and their like over dimensions, each a line of reduce.def.
 *
 * Kernels see the result with size 1 in the reduced dimensions; whether these stay is a matter of
 * the result's shape alone, for it is contiguous. Gradients of sums and means are views that repeat
 * the incoming one: they cost nothing until somebody adds them to something.
 */
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/compose.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/reduce/reduce_op.h"
#include "compute/op/shape/view.h"
#include "core/kernel/reduce/reduce.h"

typedef enum { SUMMED, FLOATS, SAME, LOGICAL } result_t;
typedef enum { DEFINED, REFUSED } of_nothing_t;

typedef struct {
    tt_reduce_t kind;
    result_t result;
    of_nothing_t of_nothing;
} reduction_t;

typedef struct {
    tutti_dims_t dims;
    bool keepdim;
    double correction;
} params_t;

tutti_shape_t tt_shape_reduced(tutti_shape_t shape, unsigned dims)
{
    for (int i = 0; i < shape.rank; i++) {
        shape.dims[i] = dims >> i & 1 ? 1 : shape.dims[i];
    }
    return shape;
}

tutti_shape_t tt_shape_dropped(tutti_shape_t shape, unsigned dims)
{
    for (int i = shape.rank; i-- > 0;) {
        shape = dims >> i & 1 ? tt_shape_without(shape, i) : shape;
    }
    return shape;
}

tt_strided_t tt_strided_reduced(const tutti_tensor_t *x, tutti_shape_t shape)
{
    tt_strided_t view = {.data = tt_tensor_data(x), .dtype = x->dtype, .rank = shape.rank};
    for (int i = 0; i < shape.rank; i++) {
        view.shape[i] = shape.dims[i];
    }
    tt_shape_strides(shape, view.strides);
    return view;
}

/* ---- shape rule ------------------------------------------------------------------------------ */

/* The dimensions as a mask; a list that was checked, or none: all. */
static unsigned mask_of(const params_t *params, int rank)
{
    unsigned mask = 0;
    for (int i = 0; i < params->dims.count; i++) {
        mask |= 1u << tt_dim_index(params->dims.dims[i], rank);
    }
    return params->dims.count == 0 ? (1u << rank) - 1 : mask;
}

static tutti_status_t check_dims(const tutti_op_call_t *call, unsigned *mask)
{
    const params_t *params = call->params;
    const int rank = call->inputs[0]->shape.rank;
    if (params->dims.count < 0 || params->dims.count > TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%d dimensions given; want 0 to %d",
                             params->dims.count, TUTTI_RANK_MAX);
    }
    *mask = 0;
    for (int i = 0; i < params->dims.count; i++) {
        int dim;
        TT_TRY(tt_op_dim(call, params->dims.dims[i], rank, &dim));
        if (*mask >> dim & 1) {
            return tutti_op_fail(call, TUTTI_ERR_ARG, "dimension %d is given twice", dim);
        }
        *mask |= 1u << dim;
    }
    *mask = mask_of(params, rank);
    return TUTTI_OK;
}

static tutti_dtype_t result_dtype(result_t result, tutti_dtype_t dtype)
{
    switch (result) {
    case SUMMED:
        return tutti_dtype_is_float(dtype) ? dtype : TUTTI_I64;
    case FLOATS:
        return tt_float_of(dtype);
    case LOGICAL:
        return TUTTI_BOOL;
    default:
        return dtype;
    }
}

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const reduction_t *op = call->op->family;
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    unsigned mask = 0;
    TT_TRY(check_dims(call, &mask));
    outputs->shape =
        params->keepdim ? tt_shape_reduced(x->shape, mask) : tt_shape_dropped(x->shape, mask);
    outputs->dtype = result_dtype(op->result, x->dtype);
    if (op->of_nothing == REFUSED && x->numel == 0 && tutti_shape_numel(outputs->shape) > 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "there is no element to choose");
    }
    return TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tutti_status_t reduce_into(tutti_scope_t *s, tt_reduce_t kind, double correction,
                                  tutti_tensor_t *y, const tutti_tensor_t *x, unsigned mask)
{
    const tt_strided_t in = tt_tensor_strided(x),
                       out = tt_strided_reduced(y, tt_shape_reduced(x->shape, mask));
    return tt_reduce(tt_scope_exec(s), kind, (tt_reduce_params_t){correction}, &out, &in, mask);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const reduction_t *op = call->op->family;
    const params_t *params = call->params;
    tutti_tensor_t *x = call->inputs[0], *y = call->outputs[0];
    TT_TRY(reduce_into(call->scope, op->kind, params->correction, y, x,
                       mask_of(params, x->shape.rank)));
    if (op->kind == TT_REDUCE_SUM || op->kind == TT_REDUCE_MEAN) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_op_save(call, x));
    return tutti_op_save(call, y);
}

/* ---- backward, recorded or not --------------------------------------------------------------- */

/* A result-shaped tensor with size 1 in the reduced dimensions, which operations then repeat. */
static tutti_tensor_t *kept(const tutti_op_backward_t *call, tutti_tensor_t *x)
{
    const tutti_shape_t wide = call->inputs[0].shape;
    return tutti_reshape(call->scope, x, tt_shape_reduced(wide, mask_of(call->params, wide.rank)));
}

/* The incoming gradient times a factor, which may be a division by nothing where there is none. */
static tutti_tensor_t *scaled(const tutti_op_backward_t *call, double factor)
{
    tutti_tensor_t *g = kept(call, call->grad_outputs[0]);
    factor = tutti_shape_numel(call->inputs[0].shape) == 0 ? 0 : factor;
    return tutti_mul_scalar(call->scope, tt_wide(call->scope, g), factor);
}

/* How many elements are reduced to one. */
static double reduced_count(const tutti_op_backward_t *call)
{
    const tutti_shape_t wide = call->inputs[0].shape;
    const unsigned mask = mask_of(call->params, wide.rank);
    double n = 1;
    for (int i = 0; i < wide.rank; i++) {
        n *= mask >> i & 1 ? (double)wide.dims[i] : 1;
    }
    return n;
}

static tutti_status_t sum_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = kept(call, call->grad_outputs[0]);
    call->grads[0] = tutti_expand(call->scope, g, call->inputs[0].shape);
    return TUTTI_OK;
}

static tutti_status_t mean_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = scaled(call, 1 / reduced_count(call));
    call->grads[0] = tutti_expand(call->scope, g, call->inputs[0].shape);
    return TUTTI_OK;
}

static tutti_status_t var_backward(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tt_wide(s, call->saved[0]);
    tutti_tensor_t *deviation = tutti_sub(s, x, tutti_mean_over(s, x, params->dims, true));
    call->grads[0] =
        tutti_mul(s, deviation, scaled(call, 2 / (reduced_count(call) - params->correction)));
    return TUTTI_OK;
}

/* With p the product of what is not zero: an element gets g p / x if there is no zero, the only
 * zero gets g p, and all others get 0; that is g p / (x or 1) where the number of zeros equals
 * that of zeros here. */
static tutti_status_t prod_backward(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tt_wide(s, call->saved[0]);
    tutti_tensor_t *is_zero = tutti_logical_not(s, x);
    tutti_tensor_t *others = tutti_masked_fill(s, x, is_zero, 1);
    tutti_tensor_t *product = tutti_prod_over(s, others, params->dims, true);
    tutti_tensor_t *zeros = tutti_sum_over(s, is_zero, params->dims, true);
    tutti_tensor_t *g = tutti_mul(s, kept(call, call->grad_outputs[0]), product);
    tutti_tensor_t *grad = tutti_div(s, g, others);
    call->grads[0] = tutti_masked_fill(s, grad, tutti_ne(s, zeros, is_zero), 0);
    return TUTTI_OK;
}

/* y by halves: of factors that are multiplied one with another, zero or not, every gradient is
 * that of a product. */
static tutti_tensor_t *compose_prod(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    const unsigned mask = mask_of(call->params, call->inputs[0].shape.rank);
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tt_wide(s, inputs[0]);
    for (int dim = 0; dim < x->shape.rank; dim++) {
        while ((mask >> dim & 1) && tutti_tensor_dim(x, dim) > 1) {
            const int64_t half = tutti_tensor_dim(x, dim) / 2, rest = tutti_tensor_dim(x, dim) % 2;
            tutti_tensor_t *first = tutti_narrow(s, x, dim, 0, half),
                           *last = tutti_narrow(s, x, dim, 2 * half, rest);
            first = tutti_mul(s, first, tutti_narrow(s, x, dim, half, half));
            x = tutti_cat(s, (tutti_tensor_t *[]){first, last}, 2, dim);
        }
    }
    return tutti_reshape(s, x, call->outputs[0].shape);
}

static tutti_status_t prod_grad(tutti_op_backward_t *call)
{
    return tutti_shape_numel(call->inputs[0].shape) == 0 ? sum_backward(call)
                                                         : tt_grad_composed(call, compose_prod);
}

static tutti_status_t extreme_backward(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = call->saved[0], *g = tt_wide(s, call->grad_outputs[0]);
    tutti_tensor_t *is_chosen = tutti_eq(s, x, kept(call, call->saved[1]));
    tutti_tensor_t *count = tutti_sum_over(s, is_chosen, params->dims, true);
    tutti_tensor_t *share = tutti_div(s, kept(call, g), count);
    call->grads[0] = tutti_where(s, is_chosen, share, tutti_zeros(s, g->dtype, TUTTI_SCALAR));
    return TUTTI_OK;
}

/* ---- tables and calls ------------------------------------------------------------------------ */

#define X(id, kernel, dtype, nothing, cast, gradient, recorded, formula)                           \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .params_bytes = sizeof(params_t),                                                          \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = gradient,                                                                      \
        .grad = recorded,                                                                          \
        .family = &(const reduction_t){TT_REDUCE_##kernel, dtype, nothing},                        \
    };
#include "compute/op/reduce/reduce.def"
#undef X

tutti_tensor_t *tutti_var_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims, bool keepdim,
                               double correction)
{
    return tutti_op_run(s, &tt_op_var, &x, 1, &(params_t){dims, keepdim, correction});
}

tutti_tensor_t *tutti_var(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_var_over(s, x, TUTTI_ALL_DIMS, false, 1);
}

#define CALLS(X) X(sum) X(mean) X(prod) X(max) X(min) X(any) X(all)
#define X(id)                                                                                      \
    tutti_tensor_t *tutti_##id##_over(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims,      \
                                      bool keepdim)                                                \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, &x, 1, &(params_t){dims, keepdim, 0});                 \
    }                                                                                              \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *x)                                \
    {                                                                                              \
        return tutti_##id##_over(s, x, TUTTI_ALL_DIMS, false);                                     \
    }
CALLS(X)
#undef X
