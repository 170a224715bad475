/* max_pool1d, max_pool2d: the shape rule, what is kept, and the i64 indices. A line is a plane of
 * height 1. Cost and source: op_pool.h, pooling.h. */
#include <tutti/op_pool.h>

#include "compute/op/dense.h"
#include "compute/op/ops.h"
#include "core/kernel/pooling.h"

/* Height first; of a line the height is 1 and nothing moves along it. */
typedef struct {
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode;
} pool_params_t;

/* What tells the operations apart. */
typedef struct {
    int dims;
} pool_kind_t;

static int dims_of(const tt_op_ops_t *op)
{
    return ((const pool_kind_t *)op->family)->dims;
}

static int64_t size_of(const tt_op_ops_t *op, tutti_shape_t shape, int dim)
{
    return dim == 0 && dims_of(op) == 1 ? 1 : shape.dims[shape.rank - 2 + dim];
}

/* ---- the shape rule ---------------------------------------------------------------------------
 */

static tutti_status_t check_x(const tt_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int dims = dims_of(call->op), rank = x->shape.rank;
    const char *size = dims == 1 ? "L" : "H, W";
    int64_t room = INT32_MAX;
    if (!tutti_dtype_is_float(x->dtype)) {
        return tt_op_fail(call, TUTTI_ERR_DTYPE, "x must be of a floating dtype");
    }
    if (rank != dims + 1 && rank != dims + 2) {
        return tt_op_fail(call, TUTTI_ERR_SHAPE, "x must be [N, C, %s] or [C, %s]", size, size);
    }
    for (int i = rank == dims + 1 ? 0 : 1; i < rank; i++) {
        if (x->shape.dims[i] < 1) {
            return tt_op_fail(call, TUTTI_ERR_SHAPE, "only N may be 0");
        }
    }
    for (int i = rank - dims; i < rank; i++) {
        room /= x->shape.dims[i];
    }
    if (room < 1) {
        return tt_op_fail(call, TUTTI_ERR_UNSUPPORTED, "[%s] has more than %d elements", size,
                          INT32_MAX);
    }
    return TUTTI_OK;
}

static bool is_number(int64_t value, int64_t least)
{
    return value >= least && value <= INT32_MAX;
}

static tutti_status_t check_options(const tt_op_call_t *call)
{
    const pool_params_t *p = call->params;
    for (int i = 0; i < 2; i++) {
        if (!is_number(p->kernel[i], 1) || !is_number(p->stride[i], 1) ||
            !is_number(p->dilation[i], 1)) {
            return tt_op_fail(call, TUTTI_ERR_ARG,
                              "kernel %lld, stride %lld and dilation %lld must be from 1 to 2^31 - "
                              "1",
                              (long long)p->kernel[i], (long long)p->stride[i],
                              (long long)p->dilation[i]);
        }
        if (p->padding[i] < 0 || p->padding[i] > p->kernel[i] / 2) {
            return tt_op_fail(call, TUTTI_ERR_ARG,
                              "padding %lld must be from 0 to half of the kernel %lld",
                              (long long)p->padding[i], (long long)p->kernel[i]);
        }
    }
    return TUTTI_OK;
}

/* Windows along a dimension; 0 or less where none fits. A window may begin in x or before it, not
 * behind. */
static int64_t out_size(const pool_params_t *p, int64_t size, int dim)
{
    const int64_t stride = p->stride[dim], padding = p->padding[dim];
    const int64_t room = size + 2 * padding - p->dilation[dim] * (p->kernel[dim] - 1) - 1;
    const int64_t steps = room + (p->ceil_mode ? stride - 1 : 0);
    const int64_t count = steps < 0 ? 0 : steps / stride + 1;
    return p->ceil_mode && (count - 1) * stride >= size + padding ? count - 1 : count;
}

static tutti_status_t pool_infer(const tt_op_call_t *call, tt_spec_t *outputs)
{
    const pool_params_t *p = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    TT_TRY(check_x(call));
    TT_TRY(check_options(call));
    outputs[0] = (tt_spec_t){x->dtype, x->shape};
    for (int dim = 2 - dims_of(call->op); dim < 2; dim++) {
        const int64_t size = out_size(p, size_of(call->op, x->shape, dim), dim);
        if (size < 1) {
            return tt_op_fail(call, TUTTI_ERR_SHAPE,
                              "the kernel does not fit: size %lld, kernel %lld, dilation %lld, "
                              "padding %lld",
                              (long long)size_of(call->op, x->shape, dim),
                              (long long)p->kernel[dim], (long long)p->dilation[dim],
                              (long long)p->padding[dim]);
        }
        outputs[0].shape.dims[x->shape.rank - 2 + dim] = size;
    }
    if (call->output_count > 1) {
        outputs[1] = (tt_spec_t){TUTTI_I64, outputs[0].shape};
    }
    return TUTTI_OK;
}

/* ---- maxima -----------------------------------------------------------------------------------
 */

static tt_pooling_t describe(const tt_op_ops_t *op, const pool_params_t *params, tutti_shape_t x,
                             tutti_shape_t y, tutti_dtype_t dtype)
{
    tt_pooling_t p = {.planes = 1, .dtype = dtype};
    for (int i = 0; i < x.rank - dims_of(op); i++) {
        p.planes *= x.dims[i];
    }
    for (int i = 0; i < 2; i++) {
        p.size[i] = size_of(op, x, i);
        p.out_size[i] = size_of(op, y, i);
        p.kernel[i] = params->kernel[i];
        p.stride[i] = params->stride[i];
        p.padding[i] = params->padding[i];
        p.dilation[i] = params->dilation[i];
    }
    return p;
}

/* at: i32, where the maxima are; NULL if nobody asks. */
static tutti_status_t find_max(tt_op_call_t *call, tutti_tensor_t *at)
{
    const tutti_tensor_t *y = call->outputs[0];
    const tt_pooling_t p =
        describe(call->op, call->params, call->inputs[0]->shape, y->shape, y->dtype);
    tutti_tensor_t *x;
    TT_TRY(tt_dense(call->scope, call->inputs[0], y->dtype, &x));
    const tutti_status_t status =
        tt_pooling_max(tt_scope_pool(call->scope), &p, tutti_tensor_data(x), tutti_tensor_data(y),
                       at == NULL ? NULL : tutti_tensor_data(at));
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t max_forward(tt_op_call_t *call)
{
    tutti_tensor_t *at = NULL;
    if (call->needs_grad || call->output_count > 1) {
        at = tt_scratch(call->scope, TUTTI_I32, call->outputs[0]->shape);
        TT_TRY(at == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    }
    TT_TRY(find_max(call, at));
    if (call->output_count > 1) {
        TT_TRY(tutti_tensor_copy(call->outputs[1], at));
    }
    return tt_op_save(call, at);
}

static tutti_status_t max_backward(tt_backward_call_t *call)
{
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    const tt_pooling_t p =
        describe(call->op, call->params, call->inputs[0].shape, call->outputs[0].shape, dtype);
    if (call->grad_outputs[0] == NULL) {
        return TUTTI_OK;
    }
    const bool is_wide = dtype != TUTTI_F64 && !tt_pooling_is_disjoint(&p);
    tutti_tensor_t *dy,
        *dx = tt_scratch(call->scope, is_wide ? TUTTI_F32 : dtype, call->inputs[0].shape);
    TT_TRY(dx == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], dtype, &dy));
    tt_pooling_max_backward(tt_scope_pool(call->scope), &p, tutti_tensor_data(dy),
                            tutti_tensor_data(call->saved[0]), tutti_tensor_data(dx));
    tutti_tensor_release(dy);
    call->grads[0] = dx;
    return TUTTI_OK;
}

const tt_op_ops_t tt_op_max_pool1d = {
    .name = "max_pool1d",
    .about = "y = the largest of each window of a line and its index; dx = dy at the index",
    .params_bytes = sizeof(pool_params_t),
    .infer = pool_infer,
    .forward = max_forward,
    .backward = max_backward,
    .family = &(const pool_kind_t){1},
};

const tt_op_ops_t tt_op_max_pool2d = {
    .name = "max_pool2d",
    .about = "y = the largest of each window of a plane and its index; dx = dy at the index",
    .params_bytes = sizeof(pool_params_t),
    .infer = pool_infer,
    .forward = max_forward,
    .backward = max_backward,
    .family = &(const pool_kind_t){2},
};

/* ---- calls ------------------------------------------------------------------------------------
 */

static pool_params_t params_of(const tutti_pool_options_t *given, int dims)
{
    const tutti_pool_options_t o = given == NULL ? (tutti_pool_options_t){.kernel = {0}} : *given;
    pool_params_t p = {
        .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .ceil_mode = o.ceil_mode};
    for (int i = 0; i < dims; i++) {
        const int dim = 2 - dims + i;
        p.kernel[dim] = o.kernel[i];
        p.stride[dim] = o.stride[i] == 0 ? o.kernel[i] : o.stride[i];
        p.padding[dim] = o.padding[i];
        p.dilation[dim] = o.dilation[i] == 0 ? 1 : o.dilation[i];
    }
    return p;
}

static tutti_tensor_t *run_max(tutti_scope_t *s, const tt_op_ops_t *op, tutti_tensor_t *x,
                               const tutti_pool_options_t *options, tutti_tensor_t **indices)
{
    const pool_params_t params = params_of(options, dims_of(op));
    tutti_tensor_t *outputs[2] = {NULL};
    tt_op_run_many(s, op, &x, 1, &params, outputs, indices == NULL ? 1 : 2);
    if (indices != NULL) {
        *indices = outputs[1];
    }
    return outputs[0];
}

tutti_tensor_t *tutti_max_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_pool_options_t *options, tutti_tensor_t **indices)
{
    return run_max(s, &tt_op_max_pool1d, x, options, indices);
}

tutti_tensor_t *tutti_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                 const tutti_pool_options_t *options, tutti_tensor_t **indices)
{
    return run_max(s, &tt_op_max_pool2d, x, options, indices);
}
