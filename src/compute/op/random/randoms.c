/* Random tensors: operations without inputs. Each call takes the context's next stream. */
#include <tutti/tensor.h>

#include <math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/random_stream.h"
#include "core/kernel/random/random.h"

/* a and b: low and high, mean and std, or a probability and nothing. */
typedef struct {
    tutti_spec_t spec;
    double a, b;
    int64_t low, high;
} random_t;

static tt_random_t next(tutti_op_call_t *call)
{
    return (tt_random_t){tt_random_stream(call->scope->ctx, (tutti_random_name_t){0}), 0};
}

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const random_t *params = call->params;
    outputs[0] = params->spec;
    return (unsigned)outputs->dtype < TUTTI_DTYPE_COUNT
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_DTYPE, "%s: %d is no dtype", call->op->name,
                         (int)outputs->dtype);
}

static tutti_status_t infer_float(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(infer(call, outputs));
    if (!tutti_dtype_is_float(outputs->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: want a floating dtype, not %s", call->op->name,
                       tutti_dtype_name(outputs->dtype));
    }
    return TUTTI_OK;
}

/* ---- uniform, normal ------------------------------------------------------------------------- */

static tutti_status_t uniform_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const random_t *params = call->params;
    if (!(params->a <= params->b)) {
        return TT_FAIL(TUTTI_ERR_ARG, "uniform: nothing lies between %g and %g", params->a,
                       params->b);
    }
    if (!isfinite(params->b - params->a)) {
        return TT_FAIL(TUTTI_ERR_ARG, "uniform: [%g, %g) is too wide", params->a, params->b);
    }
    TT_TRY(infer_float(call, outputs));
    const tutti_dtype_t dtype = outputs->dtype;
    return params->a == params->b ||
                   tt_float_from(dtype, params->a) <= tt_float_below(dtype, params->b)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "uniform: no %s lies in [%g, %g)", tutti_dtype_name(dtype),
                         params->a, params->b);
}

static tutti_status_t normal_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const random_t *params = call->params;
    if (!(params->b >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "normal: the standard deviation %g is negative", params->b);
    }
    return infer_float(call, outputs);
}

static tutti_status_t uniform_forward(tutti_op_call_t *call)
{
    const random_t *params = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    return tt_fill_uniform(tt_scope_exec(call->scope), next(call), y->dtype, tt_tensor_data(y),
                           (size_t)y->numel, params->a, params->b);
}

static tutti_status_t normal_forward(tutti_op_call_t *call)
{
    const random_t *params = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    return tt_fill_normal(tt_scope_exec(call->scope), next(call), y->dtype, tt_tensor_data(y),
                          (size_t)y->numel, params->a, params->b);
}

const tutti_op_t tt_op_uniform = {
    .name = "uniform",
    .about = "uniform in [low, high)",
    .params_bytes = sizeof(random_t),
    .infer = uniform_infer,
    .forward = uniform_forward,
};

const tutti_op_t tt_op_normal = {
    .name = "normal",
    .about = "normal, of a mean and a standard deviation",
    .params_bytes = sizeof(random_t),
    .infer = normal_infer,
    .forward = normal_forward,
};

tutti_tensor_t *tutti_uniform(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                              double low, double high)
{
    return tutti_op_run(s, &tt_op_uniform, NULL, 0, &(random_t){{dtype, shape}, low, high, 0, 0});
}

tutti_tensor_t *tutti_normal(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                             double mean, double std)
{
    return tutti_op_run(s, &tt_op_normal, NULL, 0, &(random_t){{dtype, shape}, mean, std, 0, 0});
}

/* ---- randint, bernoulli ---------------------------------------------------------------------- */

static tutti_status_t randint_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const random_t *params = call->params;
    int64_t lowest, highest;
    TT_TRY(infer(call, outputs));
    if (params->low >= params->high) {
        return TT_FAIL(TUTTI_ERR_ARG, "randint: nothing lies in [%lld, %lld)",
                       (long long)params->low, (long long)params->high);
    }
    tt_whole_range(params->spec.dtype, &lowest, &highest);
    if (params->low < lowest || params->high - 1 > highest) {
        return TT_FAIL(TUTTI_ERR_ARG, "randint: %s does not hold all of [%lld, %lld)",
                       tutti_dtype_name(params->spec.dtype), (long long)params->low,
                       (long long)params->high);
    }
    return TUTTI_OK;
}

/* Made as integers of 64 bits, then converted. */
static tutti_status_t randint_forward(tutti_op_call_t *call)
{
    const random_t *params = call->params;
    tutti_tensor_t *y = call->outputs[0], *whole = y;
    tt_exec_t *exec = tt_scope_exec(call->scope);
    if (y->dtype != TUTTI_I64) {
        whole = tutti_empty(call->scope, TUTTI_I64, y->shape);
        TT_TRY(whole->status);
    }
    TT_TRY(tt_fill_whole(exec, next(call), tt_tensor_data(whole), (size_t)y->numel, params->low,
                         (uint64_t)params->high - (uint64_t)params->low));
    if (whole != y) {
        const tt_strided_t out = tt_tensor_strided(y), in = tt_tensor_strided(whole);
        TT_TRY(tt_map_unary(exec, TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in));
    }
    return TUTTI_OK;
}

static tutti_status_t bernoulli_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const random_t *params = call->params;
    if (!(params->a >= 0 && params->a <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "bernoulli: %g is no probability: want 0 to 1", params->a);
    }
    return infer(call, outputs);
}

/* Uniform numbers in [0, 1) that lie below the probability. */
static tutti_status_t bernoulli_forward(tutti_op_call_t *call)
{
    const random_t *params = call->params;
    tutti_tensor_t *y = call->outputs[0];
    tt_exec_t *exec = tt_scope_exec(call->scope);
    tutti_tensor_t *u = tutti_empty(call->scope, TUTTI_F64, y->shape);
    TT_TRY(u->status);
    TT_TRY(tt_fill_uniform(exec, next(call), TUTTI_F64, tt_tensor_data(u), (size_t)u->numel, 0, 1));
    const tt_strided_t out = tt_tensor_strided(y), in = tt_tensor_strided(u),
                       limit = tt_number(params->a, TUTTI_F64, y->shape);
    TT_TRY(tt_map_binary(exec, TT_BINARY_LT, (tt_map_params_t){0}, &out, &in, &limit));
    return TUTTI_OK;
}

const tutti_op_t tt_op_randint = {
    .name = "randint",
    .about = "integers in [low, high)",
    .params_bytes = sizeof(random_t),
    .infer = randint_infer,
    .forward = randint_forward,
};

const tutti_op_t tt_op_bernoulli = {
    .name = "bernoulli",
    .about = "1 with a probability, else 0",
    .params_bytes = sizeof(random_t),
    .infer = bernoulli_infer,
    .forward = bernoulli_forward,
};

tutti_tensor_t *tutti_randint(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                              int64_t low, int64_t high)
{
    return tutti_op_run(s, &tt_op_randint, NULL, 0, &(random_t){{dtype, shape}, 0, 0, low, high});
}

tutti_tensor_t *tutti_bernoulli(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                double probability)
{
    return tutti_op_run(s, &tt_op_bernoulli, NULL, 0,
                        &(random_t){{dtype, shape}, probability, 0, 0, 0});
}
