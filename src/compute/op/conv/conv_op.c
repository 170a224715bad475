/* conv1d, conv2d, conv3d and the transposed ones, which are each other's gradients.
 *
 *     conv            y = forward(x, w)   dx = to_x(dy, w)      dw = to_weight(x, dy)
 *     conv_transpose  y = to_x(x, w)      dx = forward(dy, w)   dw = to_weight(dy, x)
 *
 * A line is a plane of height 1, a plane a volume of depth 1. Under autocast x, weight and bias are
 * rounded once per call, and those copies are what backward keeps; gradients of f32 inputs come
 * straight from f32 sums. Cost and source: op_conv.h, conv.h. */
#include <tutti/op_conv.h>
#include <tutti/op_volume.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "core/kernel/conv/conv.h"
#include "core/kernel/reduce/reduce.h"

enum { X, WEIGHT, BIAS, INPUTS };

enum { DIMS = 3 };

/* Depth first, then height; of a plane the depth is 1, of a line the height, too, and nothing moves
 * along them. */
typedef struct {
    int dims;
    bool is_transposed, is_same;
    int64_t stride[DIMS], padding[DIMS], output_padding[DIMS], dilation[DIMS], groups;
} conv_params_t;

static int64_t size_of(const conv_params_t *p, tutti_shape_t shape, int dim)
{
    return dim < DIMS - p->dims ? 1 : shape.dims[shape.rank - DIMS + dim];
}

static bool is_batched(const conv_params_t *p, tutti_shape_t x)
{
    return x.rank == p->dims + 2;
}

static tutti_status_t check_options(const tutti_op_call_t *call)
{
    const conv_params_t *p = call->params;
    for (int i = 0; i < DIMS; i++) {
        const int64_t below = p->stride[i] > p->dilation[i] ? p->stride[i] : p->dilation[i];
        if (p->stride[i] < 1 || p->dilation[i] < 1 || p->padding[i] < 0 || p->groups < 1) {
            return tutti_op_fail(
                call, TUTTI_ERR_ARG,
                "stride %lld, dilation %lld and groups %lld must be positive, padding "
                "%lld not negative",
                (long long)p->stride[i], (long long)p->dilation[i], (long long)p->groups,
                (long long)p->padding[i]);
        }
        if (p->is_transposed && (p->output_padding[i] < 0 || p->output_padding[i] >= below)) {
            return tutti_op_fail(
                call, TUTTI_ERR_ARG,
                "output_padding %lld must be below the stride %lld or the dilation "
                "%lld",
                (long long)p->output_padding[i], (long long)p->stride[i],
                (long long)p->dilation[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_same(const tutti_op_call_t *call)
{
    const conv_params_t *p = call->params;
    if (!p->is_same) {
        return TUTTI_OK;
    }
    if (p->is_transposed) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "there is no same padding of transposed ones");
    }
    for (int i = 0; i < DIMS; i++) {
        if (p->stride[i] != 1 || p->padding[i] != 0) {
            return tutti_op_fail(
                call, TUTTI_ERR_ARG,
                "same padding is for a stride of 1 and no other padding, not for %lld "
                "and %lld",
                (long long)p->stride[i], (long long)p->padding[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_ranks(const tutti_op_call_t *call)
{
    const conv_params_t *p = call->params;
    const tutti_shape_t x = call->inputs[X]->shape, w = call->inputs[WEIGHT]->shape;
    const char *size = p->dims == 1 ? "L" : p->dims == 2 ? "H, W" : "D, H, W";
    if (x.rank != p->dims + 1 && x.rank != p->dims + 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x must be [N, C, %s] or [C, %s]", size, size);
    }
    if (w.rank != p->dims + 2 || tutti_shape_numel(w) == 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "weight must have %d sizes of at least 1",
                             p->dims + 2);
    }
    return TUTTI_OK;
}

static tutti_status_t check_channels(const tutti_op_call_t *call)
{
    const conv_params_t *p = call->params;
    const tutti_shape_t x = call->inputs[X]->shape, w = call->inputs[WEIGHT]->shape;
    const tutti_tensor_t *bias = call->inputs[BIAS];
    if (w.dims[0] % p->groups != 0) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%lld groups do not divide the %lld of weight",
                             (long long)p->groups, (long long)w.dims[0]);
    }
    const int64_t channels = x.dims[x.rank - p->dims - 1];
    const int64_t wanted = p->is_transposed ? w.dims[0] : w.dims[1] * p->groups;
    const int64_t out = p->is_transposed ? w.dims[1] * p->groups : w.dims[0];
    if (channels != wanted) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x has %lld channels, weight is for %lld",
                             (long long)channels, (long long)wanted);
    }
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dims[0] != out)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "bias must be [%lld], one number for each channel", (long long)out);
    }
    return TUTTI_OK;
}

/* Whether sizes can be computed with these numbers. */
static bool is_countable(const conv_params_t *p, int64_t size, int64_t kernel, int dim)
{
    const double most = 0x1p60, steps = p->is_transposed && size > 1 ? (double)size : 1;
    return (double)p->stride[dim] * steps < most &&
           (double)p->dilation[dim] * (double)kernel < most && (double)p->padding[dim] < most &&
           (double)p->output_padding[dim] < most;
}

/* Size of y along a dimension; 0 or less where the kernel does not fit. */
static int64_t out_size(const conv_params_t *p, int64_t size, int64_t kernel, int dim)
{
    const int64_t reach = p->dilation[dim] * (kernel - 1) + 1;
    if (p->is_transposed) {
        return size < 1 ? 0
                        : (size - 1) * p->stride[dim] - 2 * p->padding[dim] + reach +
                              p->output_padding[dim];
    }
    if (p->is_same) {
        return size;
    }
    const int64_t room = size < 1 ? -1 : size + 2 * p->padding[dim] - reach;
    return room < 0 ? 0 : room / p->stride[dim] + 1;
}

static tutti_status_t conv_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const conv_params_t *p = call->params;
    TT_TRY(check_options(call));
    TT_TRY(check_same(call));
    TT_TRY(check_ranks(call));
    TT_TRY(check_channels(call));
    TT_TRY(tt_product_dtype(call, &outputs->dtype));
    const tutti_shape_t x = call->inputs[X]->shape, w = call->inputs[WEIGHT]->shape;
    outputs->shape = x;
    outputs->shape.dims[x.rank - p->dims - 1] =
        p->is_transposed ? w.dims[1] * p->groups : w.dims[0];
    for (int dim = DIMS - p->dims; dim < DIMS; dim++) {
        if (!is_countable(p, size_of(p, x, dim), size_of(p, w, dim), dim)) {
            return tutti_op_fail(
                call, TUTTI_ERR_ARG, "stride %lld, dilation %lld or padding %lld is too large",
                (long long)p->stride[dim], (long long)p->dilation[dim], (long long)p->padding[dim]);
        }
        const int64_t size = out_size(p, size_of(p, x, dim), size_of(p, w, dim), dim);
        if (size < 1) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                 "the kernel does not fit: size %lld, kernel %lld, padding %lld",
                                 (long long)size_of(p, x, dim), (long long)size_of(p, w, dim),
                                 (long long)p->padding[dim]);
        }
        outputs->shape.dims[x.rank - DIMS + dim] = size;
    }
    return TUTTI_OK;
}

/* Before x; what is behind it follows from the sizes. */
static int64_t padding_of(const conv_params_t *p, tutti_shape_t w, int dim)
{
    return p->is_same ? p->dilation[dim] * (size_of(p, w, dim) - 1) / 2 : p->padding[dim];
}

/* The convolution that is computed, or transposed: from the larger planes to the smaller. */
static tt_conv_t describe(const conv_params_t *p, tutti_shape_t x, tutti_shape_t w, tutti_shape_t y,
                          tutti_dtype_t dtype)
{
    const tutti_shape_t from = p->is_transposed ? y : x, to = p->is_transposed ? x : y;
    tt_conv_t conv = {
        .batch = is_batched(p, x) ? x.dims[0] : 1,
        .groups = p->groups,
        .in = w.dims[1],
        .out = w.dims[0] / p->groups,
        .dtype = tt_conv_dtype(dtype),
        .out_dtype = dtype,
    };
    for (int i = 0; i < 2; i++) {
        conv.size[i] = size_of(p, from, i + 1);
        conv.out_size[i] = size_of(p, to, i + 1);
        conv.kernel[i] = size_of(p, w, i + 1);
        conv.stride[i] = p->stride[i + 1];
        conv.dilation[i] = p->dilation[i + 1];
        conv.padding[i] = padding_of(p, w, i + 1);
    }
    if (p->dims == DIMS) {
        conv.depth = (tt_conv_depth_t){size_of(p, from, 0), size_of(p, to, 0),   size_of(p, w, 0),
                                       p->stride[0],        padding_of(p, w, 0), p->dilation[0]};
    }
    return conv;
}

static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **in)
{
    const conv_params_t *p = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    const tt_conv_t conv =
        describe(p, call->inputs[X]->shape, call->inputs[WEIGHT]->shape, y->shape, y->dtype);
    for (int i = 0; i < INPUTS; i++) {
        TT_TRY(tt_dense(call->scope, call->inputs[i], conv.dtype, &in[i]));
    }
    TT_TRY((p->is_transposed ? tt_conv_to_x : tt_conv_forward)(
        tt_scope_exec(call->scope), &conv, tt_tensor_data(in[X]), tt_tensor_data(in[WEIGHT]),
        tt_data_of(in[BIAS]), tt_tensor_data(y)));
    TT_TRY(tutti_op_save_copy(call, tutti_op_needs_grad(call, WEIGHT) ? in[X] : NULL, X));
    return tutti_op_save_copy(call, tutti_op_needs_grad(call, X) ? in[WEIGHT] : NULL, WEIGHT);
}

static tutti_status_t conv_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *in[INPUTS] = {NULL};
    const tutti_status_t status = compute(call, in);
    tt_tensors_release(in, INPUTS);
    return status;
}

/* ---- backward: dy is contiguous and of the dtype that is computed in ------------------------- */

static tutti_status_t push_to_x(tutti_op_backward_t *call, tt_conv_t conv, const tutti_tensor_t *dy)
{
    const conv_params_t *p = call->params;
    tutti_tensor_t *dx;
    TT_TRY(tt_new_grad(call, X, &dx));
    conv.out_dtype = dx->dtype;
    return (p->is_transposed ? tt_conv_forward : tt_conv_to_x)(
        tt_scope_exec(call->scope), &conv, tt_tensor_data(dy), tt_tensor_data(call->saved[WEIGHT]),
        NULL, tt_tensor_data(dx));
}

static tutti_status_t push_to_weight(tutti_op_backward_t *call, tt_conv_t conv,
                                     const tutti_tensor_t *dy)
{
    const conv_params_t *p = call->params;
    const tutti_tensor_t *x = call->saved[X];
    tutti_tensor_t *dw;
    TT_TRY(tt_new_grad(call, WEIGHT, &dw));
    conv.out_dtype = dw->dtype;
    return tt_conv_to_weight(tt_scope_exec(call->scope), &conv,
                             tt_tensor_data(p->is_transposed ? dy : x),
                             tt_tensor_data(p->is_transposed ? x : dy), tt_tensor_data(dw));
}

static tutti_status_t push_to_bias(tutti_op_backward_t *call, const tutti_tensor_t *dy)
{
    const conv_params_t *p = call->params;
    const tutti_shape_t y = dy->shape;
    tutti_tensor_t *db;
    TT_TRY(tt_new_grad(call, BIAS, &db));
    const int64_t batch = is_batched(p, y) ? y.dims[0] : 1, n = db->shape.dims[0];
    const int64_t plane = size_of(p, y, 0) * size_of(p, y, 1) * size_of(p, y, 2);
    const tt_strided_t in = {.data = tt_tensor_data(dy),
                             .dtype = dy->dtype,
                             .rank = 3,
                             .shape = {batch, n, plane},
                             .strides = {n * plane, plane, 1}};
    const tt_strided_t out = {.data = tt_tensor_data(db),
                              .dtype = db->dtype,
                              .rank = 3,
                              .shape = {1, n, 1},
                              .strides = {n, 1, 1}};
    return tt_reduce(tt_scope_exec(call->scope), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in,
                     1u << 0 | 1u << 2);
}

static tutti_status_t conv_backward(tutti_op_backward_t *call)
{
    const tt_conv_t conv = describe(call->params, call->inputs[X].shape, call->inputs[WEIGHT].shape,
                                    call->outputs[0].shape, call->outputs[0].dtype);
    tutti_tensor_t *dy;
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], conv.dtype, &dy));
    tutti_status_t status = call->wanted[BIAS] ? push_to_bias(call, dy) : TUTTI_OK;
    if (status >= 0 && call->wanted[WEIGHT]) {
        status = push_to_weight(call, conv, dy);
    }
    if (status >= 0 && call->wanted[X]) {
        status = push_to_x(call, conv, dy);
    }
    tutti_tensor_release(dy);
    return status;
}

/* The same, recorded. */
static tutti_status_t conv_grad(tutti_op_backward_t *call)
{
    const conv_params_t *p = call->params;
    const tutti_dims_t all_but_channels[] = {TUTTI_DIMS(-1),         TUTTI_DIMS(-2, -1),
                                             TUTTI_DIMS(-3, -2, -1), TUTTI_DIMS(0, -1),
                                             TUTTI_DIMS(0, -2, -1),  TUTTI_DIMS(0, -3, -2, -1)};
    for (int i = X; i <= WEIGHT; i++) {
        call->grads[i] = call->wanted[i] ? tt_adjoint(call, i) : NULL;
    }
    if (call->wanted[BIAS]) {
        const int dims = DIMS * is_batched(p, call->outputs[0].shape) + p->dims - 1;
        call->grads[BIAS] = tutti_sum_over(call->scope, tt_wide(call->scope, call->grad_outputs[0]),
                                           all_but_channels[dims], false);
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_conv1d = {
    .name = "conv1d",
    .optional_inputs = 1 << BIAS,
    .about = "y = b + Σ w x over a line's neighbours; dx = conv_transpose1d(dy), dw = Σ dy x",
    .params_bytes = sizeof(conv_params_t),
    .infer = conv_infer,
    .forward = conv_forward,
    .backward = conv_backward,
    .grad = conv_grad,
};

const tutti_op_t tt_op_conv2d = {
    .name = "conv2d",
    .optional_inputs = 1 << BIAS,
    .about = "y = b + Σ w x over a plane's neighbours; dx = conv_transpose2d(dy), dw = Σ dy x",
    .params_bytes = sizeof(conv_params_t),
    .infer = conv_infer,
    .forward = conv_forward,
    .backward = conv_backward,
    .grad = conv_grad,
};

const tutti_op_t tt_op_conv3d = {
    .name = "conv3d",
    .optional_inputs = 1 << BIAS,
    .about = "y = b + Σ w x over a volume's neighbours; dx = conv_transpose3d(dy), dw = Σ dy x",
    .params_bytes = sizeof(conv_params_t),
    .infer = conv_infer,
    .forward = conv_forward,
    .backward = conv_backward,
    .grad = conv_grad,
};

const tutti_op_t tt_op_conv_transpose1d = {
    .name = "conv_transpose1d",
    .optional_inputs = 1 << BIAS,
    .about = "the gradient of conv1d as an operation; dx = conv1d(dy), dw = Σ x dy",
    .params_bytes = sizeof(conv_params_t),
    .infer = conv_infer,
    .forward = conv_forward,
    .backward = conv_backward,
    .grad = conv_grad,
};

const tutti_op_t tt_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .optional_inputs = 1 << BIAS,
    .about = "the gradient of conv2d as an operation; dx = conv2d(dy), dw = Σ x dy",
    .params_bytes = sizeof(conv_params_t),
    .infer = conv_infer,
    .forward = conv_forward,
    .backward = conv_backward,
    .grad = conv_grad,
};

const tutti_op_t tt_op_conv_transpose3d = {
    .name = "conv_transpose3d",
    .optional_inputs = 1 << BIAS,
    .about = "the gradient of conv3d as an operation; dx = conv3d(dy), dw = Σ x dy",
    .params_bytes = sizeof(conv_params_t),
    .infer = conv_infer,
    .forward = conv_forward,
    .backward = conv_backward,
    .grad = conv_grad,
};

static int64_t or_one(int64_t value)
{
    return value == 0 ? 1 : value;
}

static conv_params_t params_of(const tutti_conv_options_t *given, int dims, bool is_transposed)
{
    const tutti_conv_options_t o = given == NULL ? (tutti_conv_options_t){.groups = 1} : *given;
    conv_params_t p = {.dims = dims,
                       .is_transposed = is_transposed,
                       .stride = {1, 1, 1},
                       .dilation = {1, 1, 1},
                       .is_same = o.same,
                       .groups = or_one(o.groups)};
    for (int i = 0; i < dims; i++) {
        const int dim = DIMS - dims + i;
        p.stride[dim] = or_one(o.stride[i]);
        p.padding[dim] = o.padding[i];
        p.output_padding[dim] = o.output_padding[i];
        p.dilation[dim] = or_one(o.dilation[i]);
    }
    return p;
}

tutti_tensor_t *tutti_conv1d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                             tutti_tensor_t *bias, const tutti_conv_options_t *options)
{
    const conv_params_t params = params_of(options, 1, false);
    return tutti_op_run(s, &tt_op_conv1d, (tutti_tensor_t *[]){x, weight, bias}, INPUTS, &params);
}

tutti_tensor_t *tutti_conv2d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                             tutti_tensor_t *bias, const tutti_conv_options_t *options)
{
    const conv_params_t params = params_of(options, 2, false);
    return tutti_op_run(s, &tt_op_conv2d, (tutti_tensor_t *[]){x, weight, bias}, INPUTS, &params);
}

tutti_tensor_t *tutti_conv_transpose1d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias, const tutti_conv_options_t *options)
{
    const conv_params_t params = params_of(options, 1, true);
    return tutti_op_run(s, &tt_op_conv_transpose1d, (tutti_tensor_t *[]){x, weight, bias}, INPUTS,
                        &params);
}

tutti_tensor_t *tutti_conv_transpose2d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias, const tutti_conv_options_t *options)
{
    const conv_params_t params = params_of(options, 2, true);
    return tutti_op_run(s, &tt_op_conv_transpose2d, (tutti_tensor_t *[]){x, weight, bias}, INPUTS,
                        &params);
}

tutti_tensor_t *tutti_conv3d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                             tutti_tensor_t *bias, const tutti_conv_options_t *options)
{
    const conv_params_t params = params_of(options, 3, false);
    return tutti_op_run(s, &tt_op_conv3d, (tutti_tensor_t *[]){x, weight, bias}, INPUTS, &params);
}

tutti_tensor_t *tutti_conv_transpose3d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias, const tutti_conv_options_t *options)
{
    const conv_params_t params = params_of(options, 3, true);
    return tutti_op_run(s, &tt_op_conv_transpose3d, (tutti_tensor_t *[]){x, weight, bias}, INPUTS,
                        &params);
}
