/* What the pooling operations share. A line is a plane of height 1; adaptive windows of equal sizes
 * are those of a kernel. */
#include "compute/op/pool/pooling_op.h"

static int dims_of(const tutti_op_t *op)
{
    return ((const tt_pool_kind_t *)op->family)->dims;
}

static bool is_adaptive(const tutti_op_t *op)
{
    return ((const tt_pool_kind_t *)op->family)->is_adaptive;
}

static int64_t size_of(const tutti_op_t *op, tutti_shape_t shape, int dim)
{
    return dim == 0 && dims_of(op) == 1 ? 1 : shape.dims[shape.rank - 2 + dim];
}

/* ---- the shape rule -------------------------------------------------------------------------- */

static tutti_status_t check_x(const tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int dims = dims_of(call->op), rank = x->shape.rank;
    const char *size = dims == 1 ? "L" : "H, W";
    int64_t room = INT32_MAX;
    if (!tutti_dtype_is_float(x->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "x must be of a floating dtype");
    }
    if (rank != dims + 1 && rank != dims + 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x must be [N, C, %s] or [C, %s]", size, size);
    }
    for (int i = rank == dims + 1 ? 0 : 1; i < rank; i++) {
        if (x->shape.dims[i] < 1) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE, "only N may be 0");
        }
    }
    for (int i = rank - dims; i < rank; i++) {
        room /= x->shape.dims[i];
    }
    if (room < 1) {
        return tutti_op_fail(call, TUTTI_ERR_UNSUPPORTED, "[%s] has more than %d elements", size,
                             INT32_MAX);
    }
    return TUTTI_OK;
}

static bool is_number(int64_t value, int64_t least)
{
    return value >= least && value <= INT32_MAX;
}

static tutti_status_t check_options(const tutti_op_call_t *call)
{
    const tt_pool_params_t *p = call->params;
    for (int i = 0; i < 2; i++) {
        if (!is_number(p->kernel[i], 1) || !is_number(p->stride[i], 1) ||
            !is_number(p->dilation[i], 1)) {
            return tutti_op_fail(
                call, TUTTI_ERR_ARG,
                "kernel %lld, stride %lld and dilation %lld must be from 1 to 2^31 - "
                "1",
                (long long)p->kernel[i], (long long)p->stride[i], (long long)p->dilation[i]);
        }
        if (p->padding[i] < 0 || p->padding[i] > p->kernel[i] / 2) {
            return tutti_op_fail(call, TUTTI_ERR_ARG,
                                 "padding %lld must be from 0 to half of the kernel %lld",
                                 (long long)p->padding[i], (long long)p->kernel[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_size(const tutti_op_call_t *call)
{
    const tt_pool_params_t *p = call->params;
    for (int i = 0; i < 2; i++) {
        if (!is_number(p->size[i], 0)) {
            return tutti_op_fail(call, TUTTI_ERR_ARG, "size %lld must be from 0 to 2^31 - 1",
                                 (long long)p->size[i]);
        }
    }
    return TUTTI_OK;
}

/* Windows along a dimension; 0 or less where none fits. A window may begin in x or before it, not
 * behind. */
static int64_t out_size(const tt_pool_params_t *p, int64_t size, int dim)
{
    const int64_t stride = p->stride[dim], padding = p->padding[dim];
    const int64_t room = size + 2 * padding - p->dilation[dim] * (p->kernel[dim] - 1) - 1;
    const int64_t steps = room + (p->ceil_mode ? stride - 1 : 0);
    const int64_t count = steps < 0 ? 0 : steps / stride + 1;
    return p->ceil_mode && (count - 1) * stride >= size + padding ? count - 1 : count;
}

tutti_status_t tt_pool_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_pool_params_t *p = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    TT_TRY(check_x(call));
    TT_TRY(is_adaptive(call->op) ? check_size(call) : check_options(call));
    outputs[0] = (tutti_spec_t){x->dtype, x->shape};
    for (int dim = 2 - dims_of(call->op); dim < 2; dim++) {
        const int64_t in = size_of(call->op, x->shape, dim);
        const int64_t size =
            is_adaptive(call->op) ? (p->size[dim] == 0 ? in : p->size[dim]) : out_size(p, in, dim);
        if (size < 1) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                 "the kernel does not fit: size %lld, kernel %lld, dilation %lld, "
                                 "padding %lld",
                                 (long long)in, (long long)p->kernel[dim],
                                 (long long)p->dilation[dim], (long long)p->padding[dim]);
        }
        outputs[0].shape.dims[x->shape.rank - 2 + dim] = size;
    }
    if (call->output_count > 1) {
        outputs[1] = (tutti_spec_t){TUTTI_I64, outputs[0].shape};
    }
    return TUTTI_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void adapt(tt_pooling_t *p)
{
    for (int i = 0; i < 2; i++) {
        p->is_adaptive = p->is_adaptive || p->size[i] % p->out_size[i] != 0;
        p->kernel[i] = p->stride[i] = p->size[i] / p->out_size[i];
        p->padding[i] = 0;
        p->dilation[i] = 1;
    }
}

tt_pooling_t tt_pool_describe(const tutti_op_t *op, const tt_pool_params_t *params, tutti_shape_t x,
                              tutti_shape_t y, tutti_dtype_t dtype)
{
    tt_pooling_t p = {.planes = 1,
                      .excludes_padding = params->excludes_padding,
                      .divisor = params->divisor,
                      .dtype = dtype};
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
    if (is_adaptive(op)) {
        adapt(&p);
    }
    return p;
}

tt_pool_params_t tt_pool_params(int dims, const int64_t kernel[2], const int64_t stride[2],
                                const int64_t padding[2], const int64_t dilation[2])
{
    tt_pool_params_t p = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    for (int i = 0; i < dims; i++) {
        const int dim = 2 - dims + i;
        p.kernel[dim] = kernel[i];
        p.stride[dim] = stride[i] == 0 ? kernel[i] : stride[i];
        p.padding[dim] = padding[i];
        p.dilation[dim] = dilation[i] == 0 ? 1 : dilation[i];
    }
    return p;
}
