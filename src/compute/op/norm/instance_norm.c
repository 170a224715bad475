/* instance_norm: a group norm whose groups are channels, and running statistics of its own: the
 * means over samples of what each sample's channel has. In evaluation with them it is a batch norm.
 * Source: op_nn.h. */
#include <tutti/modes.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/norm/batch_norm_op.h"
#include "core/base/default.h"

typedef tutti_batch_norm_options_t options_t;

static tutti_status_t check_running(const tutti_tensor_t *x, const tutti_tensor_t *running)
{
    char text[160];
    TT_TRY(tt_tensor_status(running));
    return tutti_dtype_is_float(running->dtype) &&
                   tutti_shape_equal(running->shape, TUTTI_SHAPE(x->shape.dims[1]))
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "instance_norm: running statistics must be floating, one of each channel: "
                         "%s",
                         tutti_tensor_describe(running, text, sizeof text));
}

/* As of a batch norm, which evaluation is. */
static tutti_status_t check_residual(const tutti_tensor_t *x, const tutti_tensor_t *residual)
{
    TT_TRY(tt_tensor_status(residual));
    if (residual->dtype != x->dtype) {
        return TT_FAIL(TUTTI_ERR_DTYPE,
                       "instance_norm: the residual must be of the dtype of x: %s and %s",
                       tutti_dtype_name(residual->dtype), tutti_dtype_name(x->dtype));
    }
    char a[160], b[160];
    return tutti_shape_equal(residual->shape, x->shape)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "instance_norm: the residual must be of the shape of x: %s and %s",
                         tutti_tensor_describe(residual, a, sizeof a),
                         tutti_tensor_describe(x, b, sizeof b));
}

static tutti_status_t check(const tutti_tensor_t *x, const options_t *o, bool moves)
{
    char text[160];
    TT_TRY(tt_tensor_status(x));
    if (x->shape.rank < 2 || !tutti_dtype_is_float(x->dtype)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "instance_norm: x must be floating, [N, C, ...]: %s",
                       tutti_tensor_describe(x, text, sizeof text));
    }
    TT_TRY(o->residual == NULL ? TUTTI_OK : check_residual(x, o->residual));
    if ((o->running_mean == NULL) != (o->running_var == NULL)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "instance_norm: give both running_mean and running_var or neither");
    }
    if (o->running_mean == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(check_running(x, o->running_mean));
    TT_TRY(check_running(x, o->running_var));
    const double momentum = tt_or_default(o->momentum, 0.1);
    if (!(momentum >= 0 && momentum <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "instance_norm: momentum must be from 0 to 1, not %g",
                       momentum);
    }
    return moves && x->numel > 0 && x->numel == x->shape.dims[0] * x->shape.dims[1]
               ? TT_FAIL(TUTTI_ERR_SHAPE,
                         "instance_norm: one value has no variance: a channel of a sample needs "
                         "more than one while training")
               : TUTTI_OK;
}

/* Of each channel the mean of the samples' values [N, C, 1 …], [C] f64. */
static tutti_tensor_t *over_samples(tutti_scope_t *s, tutti_tensor_t *values)
{
    tutti_dims_t dims = {.count = tutti_tensor_rank(values) - 1};
    for (int i = 1; i < dims.count; i++) {
        dims.dims[i] = i + 1;
    }
    return tutti_mean_over(s, tutti_cast(s, values, TUTTI_F64), dims, false);
}

static tutti_status_t move_running(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    tutti_tensor_t *wide = tt_wide(s, x);
    tutti_dims_t dims = {.count = x->shape.rank - 2};
    for (int i = 0; i < dims.count; i++) {
        dims.dims[i] = i + 2;
    }
    const tt_batch_statistics_t now = {
        .mean = over_samples(s, tutti_mean_over(s, wide, dims, true)),
        .variance = over_samples(s, tutti_var_over(s, wide, dims, true, 0)),
        .count = (double)(x->numel / (x->shape.dims[0] * x->shape.dims[1]))};
    TT_TRY(tutti_scope_status(s));
    return tt_batch_norm_move(s, o->running_mean, o->running_var, tt_or_default(o->momentum, 0.1),
                              &now);
}

/* Without a graph. A batch without values moves nothing. */
static tutti_status_t update_running(tutti_scope_t *s, tutti_tensor_t *x, const options_t *o)
{
    tutti_context_t *ctx = tutti_scope_context(s);
    if (x->numel == 0 || tutti_context_is_recomputing(ctx)) {
        return TUTTI_OK;
    }
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, false);
    const tutti_status_t status = move_running(s, x, o);
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
    return status;
}

tutti_tensor_t *tutti_instance_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                    tutti_tensor_t *bias, const options_t *options)
{
    const options_t o = options == NULL ? (options_t){.eps = 0} : *options;
    const bool is_training = tutti_context_is_training(tutti_scope_context(s));
    const bool moves = is_training && o.running_mean != NULL;
    tutti_status_t status = check(x, &o, moves);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (o.running_mean != NULL && !is_training) {
        return tutti_batch_norm(s, x, weight, bias, &o);
    }
    tutti_tensor_t *y = tutti_group_norm(s, x, x->shape.dims[1], weight, bias, o.eps);
    y = o.residual == NULL ? y : tutti_add(s, y, o.residual);
    y = o.relu ? tutti_relu(s, y) : y;
    status = tt_tensor_status(y);
    if (status >= 0 && moves) {
        status = update_running(s, x, &o);
    }
    return status < 0 ? tutti_scope_fail(s, status) : y;
}
