/* interpolate: lines, planes and volumes of another size. A line is a plane of height 1; of volumes
 * planes come first, then depth, where a plane is the width. Cost and source: op_conv.h,
 * interpolate.h. */
#include "compute/op/pool/interpolate_op.h"

#include <tutti/op_shape.h>

#include <math.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/pool/interpolate.h"

static tutti_status_t check_x(const tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    if (!tutti_dtype_is_float(x->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "x must be of a floating dtype");
    }
    if (x->shape.rank != 3 && x->shape.rank != 4) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "x must be [N, C, L], [N, C, H, W] or [N, C, D, H, W]");
    }
    for (int i = 1; i < x->shape.rank; i++) {
        if (x->shape.dims[i] < 1 || x->shape.dims[i] > INT32_MAX) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE, "only N may be 0, or above 2^31 - 1");
        }
    }
    return TUTTI_OK;
}

/* Modes, and what goes with them. */
static const struct {
    tt_filter_t filter;
    bool aligns, stretches, must_stretch;
} modes[] = {
    [TUTTI_INTERPOLATE_NEAREST] = {.filter = TT_FILTER_NEAREST},
    [TUTTI_INTERPOLATE_LINEAR] = {TT_FILTER_LINEAR, .aligns = true, .stretches = true},
    [TUTTI_INTERPOLATE_CUBIC] = {TT_FILTER_CUBIC, .aligns = true, .stretches = true},
    [TUTTI_INTERPOLATE_AREA] = {.filter = TT_FILTER_AREA},
    [TUTTI_INTERPOLATE_NEAREST_EXACT] = {.filter = TT_FILTER_NEAREST_EXACT},
    [TUTTI_INTERPOLATE_LANCZOS] = {TT_FILTER_LANCZOS, .stretches = true, .must_stretch = true},
};

const char *tt_interpolate_fault(const tutti_interpolate_options_t *o)
{
    if ((unsigned)o->mode >= sizeof modes / sizeof *modes) {
        return "there is no such mode";
    }
    if (o->align_corners && !modes[o->mode].aligns) {
        return "align_corners goes with the modes linear and cubic only";
    }
    if (o->antialias && !modes[o->mode].stretches) {
        return "antialias goes with the modes linear, cubic and lanczos only";
    }
    return modes[o->mode].must_stretch && !o->antialias ? "the mode lanczos wants antialias" : NULL;
}

/* The size of y along a dimension, counted from the first that is interpolated. */
static tutti_status_t find_size(const tutti_op_call_t *call, int dim, int64_t in, int64_t *out)
{
    const tutti_interpolate_options_t *o = call->params;
    const double wanted = floor((double)in * o->scale[dim]);
    if (o->size[dim] < 0 || o->size[dim] > INT32_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "size %lld must be from 1 to 2^31 - 1",
                             (long long)o->size[dim]);
    }
    if ((o->size[dim] == 0) == (o->scale[dim] == 0)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG,
                             "give size or scale of each dimension, one of them");
    }
    if (o->size[dim] == 0 && !(wanted >= 1 && wanted <= INT32_MAX)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "scale %g leaves %g of %lld elements",
                             o->scale[dim], wanted, (long long)in);
    }
    *out = o->size[dim] != 0 ? o->size[dim] : (int64_t)wanted;
    return TUTTI_OK;
}

static tutti_status_t interpolate_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_interpolate_options_t *o = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    TT_TRY(check_x(call));
    const char *fault = tt_interpolate_fault(o);
    if (fault != NULL) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%s", fault);
    }
    *outputs = (tutti_spec_t){x->dtype, x->shape};
    for (int i = 2; i < x->shape.rank; i++) {
        TT_TRY(find_size(call, i - 2, x->shape.dims[i], &outputs->shape.dims[i]));
    }
    return TUTTI_OK;
}

/* The scale that counts, of a dimension of x and y. PyTorch copies a size that stays, but for cubic
 * without antialias and for nearest. */
static double scale_of(const tutti_interpolate_options_t *o, int dim, int64_t in, int64_t out)
{
    const bool is_copied = in == out && (o->antialias || o->mode == TUTTI_INTERPOLATE_LINEAR);
    return is_copied || o->size[dim] != 0 ? 0 : o->scale[dim];
}

static tt_interpolate_t describe(const tutti_interpolate_options_t *o, tutti_shape_t x,
                                 tutti_shape_t y, tutti_dtype_t dtype)
{
    tt_interpolate_t t = {.planes = x.dims[0] * x.dims[1], .dtype = dtype};
    for (int dim = 0; dim < 2; dim++) {
        const int i = dim + x.rank - 2; /* 1, and so no height, for the first of a line */
        t.lines[dim] = (tt_line_t){.filter = modes[o->mode].filter,
                                   .size = i > 1 ? x.dims[i] : 1,
                                   .out_size = i > 1 ? y.dims[i] : 1,
                                   .scale = i > 1 ? scale_of(o, i - 2, x.dims[i], y.dims[i]) : 0,
                                   .align_corners = o->align_corners,
                                   .antialias = o->antialias};
    }
    return t;
}

static tutti_status_t interpolate_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *y = call->outputs[0];
    const tt_interpolate_t t = describe(call->params, call->inputs[0]->shape, y->shape, y->dtype);
    tutti_tensor_t *x;
    TT_TRY(tt_dense(call->scope, call->inputs[0], y->dtype, &x));
    const tutti_status_t status =
        tt_interpolate(tt_scope_exec(call->scope), &t, tt_tensor_data(x), tt_tensor_data(y));
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t interpolate_backward(tutti_op_backward_t *call)
{
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    const tt_interpolate_t t =
        describe(call->params, call->inputs[0].shape, call->outputs[0].shape, dtype);
    tutti_tensor_t *dy, *dx = tt_scratch(call->scope, dtype, call->inputs[0].shape);
    TT_TRY(dx == NULL ? tutti_scope_status(call->scope) : TUTTI_OK);
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], dtype, &dy));
    const tutti_status_t status = tt_interpolate_backward(tt_scope_exec(call->scope), &t,
                                                          tt_tensor_data(dy), tt_tensor_data(dx));
    tutti_tensor_release(dy);
    call->grads[0] = dx;
    return status;
}

const tutti_op_t tt_op_interpolate = {
    .name = "interpolate",
    .about = "y = x at other places: the nearest, or means of those around; dx = Σ w dy",
    .params_bytes = sizeof(tutti_interpolate_options_t),
    .infer = interpolate_infer,
    .forward = interpolate_forward,
    .backward = interpolate_backward,
    .grad = tt_grad_linear,
};

/* 16-bit volumes are blended in f32 and rounded once. */
static tutti_tensor_t *interpolate_volume(tutti_scope_t *s, tutti_tensor_t *x,
                                          const tutti_interpolate_options_t *o)
{
    tutti_shape_t shape = x->shape;
    const int64_t count = shape.dims[0] * shape.dims[1], depth = shape.dims[2];
    tutti_interpolate_options_t planes = *o, along = *o;
    for (int i = 0; i < 2; i++) {
        planes.size[i] = o->size[i + 1];
        planes.scale[i] = o->scale[i + 1];
    }
    tutti_tensor_t *y =
        tutti_reshape(s, tt_wide(s, x), TUTTI_SHAPE(count, depth, shape.dims[3], shape.dims[4]));
    y = tutti_op_run(s, &tt_op_interpolate, &y, 1, &planes);
    shape.dims[3] = tutti_tensor_dim(y, 2);
    shape.dims[4] = tutti_tensor_dim(y, 3);
    along.size[1] = shape.dims[3] * shape.dims[4];
    along.scale[1] = 0;
    y = tutti_reshape(s, y, TUTTI_SHAPE(count, 1, depth, along.size[1]));
    y = tutti_op_run(s, &tt_op_interpolate, &y, 1, &along);
    shape.dims[2] = tutti_tensor_dim(y, 2);
    return tutti_cast(s, tutti_reshape(s, y, shape), x->dtype);
}

tutti_tensor_t *tutti_interpolate(tutti_scope_t *s, tutti_tensor_t *x,
                                  const tutti_interpolate_options_t *options)
{
    static const tutti_interpolate_options_t none = {.mode = TUTTI_INTERPOLATE_NEAREST};
    const tutti_interpolate_options_t *o = options == NULL ? &none : options;
    const bool is_volume = tt_tensor_status(x) >= 0 && x->shape.rank == 5 &&
                           tutti_dtype_is_float(x->dtype) && x->shape.dims[1] > 0 &&
                           x->shape.dims[2] > 0;
    return is_volume ? interpolate_volume(s, x, o) : tutti_op_run(s, &tt_op_interpolate, &x, 1, o);
}
