/* pad, roll, flip: the same elements at other indices. Source: remap.h. The gradient of flips and
 * rolls is the way back, that of constant padding is a crop; of other paddings what was repeated is
 * added up in f32, or f64. */
#include <tutti/op_pad.h>
#include <tutti/op_shape.h>

#include <string.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/view.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/index/remap.h"

static tt_strided_t at_least_line(const tutti_tensor_t *x)
{
    return x->shape.rank == 0 ? tt_strided_row(tt_tensor_data(x), x->dtype, 1)
                              : tt_tensor_strided(x);
}

static tt_remap_t remap_between(const tutti_tensor_t *y, const tutti_tensor_t *x)
{
    return (tt_remap_t){.out = at_least_line(y), .x = at_least_line(x)};
}

/* ---- pad ------------------------------------------------------------------------------------- */

typedef struct {
    tutti_padding_t padding;
    tutti_pad_mode_t mode;
    double value;
} pad_t;

/* Before and after dimension d of rank. */
static void padding_of(const pad_t *pad, int rank, int d, int64_t *before, int64_t *after)
{
    const int pair = 2 * (rank - 1 - d);
    *before = pair < pad->padding.count ? pad->padding.sizes[pair] : 0;
    *after = pair < pad->padding.count ? pad->padding.sizes[pair + 1] : 0;
}

static tutti_status_t check_pad(const tutti_op_call_t *call)
{
    const pad_t *pad = call->params;
    const int count = pad->padding.count;
    if ((unsigned)pad->mode > TUTTI_PAD_CIRCULAR) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "there is no mode %d", (int)pad->mode);
    }
    if (count < 0 || count % 2 != 0 || count / 2 > call->inputs[0]->shape.rank) {
        return tutti_op_fail(call, TUTTI_ERR_ARG,
                             "%d sizes: want two for each of the last dimensions, of %d", count,
                             call->inputs[0]->shape.rank);
    }
    return pad->mode == TUTTI_PAD_CONSTANT
               ? tt_check_number(call, call->inputs[0]->dtype, pad->value)
               : TUTTI_OK;
}

static tutti_status_t check_mode(const tutti_op_call_t *call, int d, int64_t before, int64_t after)
{
    const pad_t *pad = call->params;
    const int64_t n = call->inputs[0]->shape.dims[d];
    const int64_t kept = n + (before < 0 ? before : 0) + (after < 0 ? after : 0);
    const int64_t most = before > after ? before : after;
    switch (pad->mode) {
    case TUTTI_PAD_REFLECT:
        if (most >= n) {
            return tutti_op_fail(call, TUTTI_ERR_ARG,
                                 "%lld elements beside dimension %d of %lld: a reflection has "
                                 "fewer",
                                 (long long)most, d, (long long)n);
        }
        return TUTTI_OK;
    case TUTTI_PAD_CIRCULAR:
        if (most > kept) {
            return tutti_op_fail(call, TUTTI_ERR_ARG,
                                 "%lld elements beside dimension %d of %lld: it repeats once at "
                                 "most",
                                 (long long)most, d, (long long)kept);
        }
        return TUTTI_OK;
    case TUTTI_PAD_REPLICATE:
        return n > 0 ? TUTTI_OK
                     : tutti_op_fail(call, TUTTI_ERR_SHAPE, "dimension %d has no element to repeat",
                                     d);
    default:
        return TUTTI_OK;
    }
}

static tutti_status_t pad_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const pad_t *pad = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    TT_TRY(check_pad(call));
    TT_TRY(tutti_op_infer_same(call, outputs));
    for (int d = x->shape.rank - pad->padding.count / 2; d < x->shape.rank; d++) {
        int64_t before, after, size;
        padding_of(pad, x->shape.rank, d, &before, &after);
        if (__builtin_add_overflow(x->shape.dims[d], before, &size) ||
            __builtin_add_overflow(size, after, &size) || size < 0 || x->shape.dims[d] < -before ||
            x->shape.dims[d] < -after) {
            return tutti_op_fail(call, TUTTI_ERR_ARG,
                                 "%lld before and %lld after dimension %d leave no size",
                                 (long long)before, (long long)after, d);
        }
        TT_TRY(check_mode(call, d, before, after));
        outputs->shape.dims[d] = size;
    }
    return tt_shape_check(outputs->dtype, outputs->shape);
}

static tt_remap_t remap_of_pad(const pad_t *pad, const tutti_tensor_t *y, const tutti_tensor_t *x)
{
    static const tt_remap_mode_t modes[] = {TT_REMAP_PLAIN, TT_REMAP_REFLECT, TT_REMAP_REPLICATE,
                                            TT_REMAP_CIRCULAR};
    tt_remap_t remap = remap_between(y, x);
    for (int d = 0; d < x->shape.rank; d++) {
        int64_t before, after;
        padding_of(pad, x->shape.rank, d, &before, &after);
        const int64_t cut = before < 0 ? -before : 0;
        if (before != 0 || after != 0) {
            remap.dims[d] =
                (tt_remap_dim_t){.mode = modes[pad->mode],
                                 .before = before,
                                 .first = cut,
                                 .length = x->shape.dims[d] - cut + (after < 0 ? after : 0)};
        }
    }
    tt_convert_from(TT_CLASS_F64, x->dtype)(remap.value.bytes, &pad->value, 1);
    return remap;
}

static tutti_status_t pad_forward(tutti_op_call_t *call)
{
    const tt_remap_t remap = remap_of_pad(call->params, call->outputs[0], call->inputs[0]);
    return tt_remap(tt_scope_exec(call->scope), &remap);
}

/* What was added is cut away again. */
static tutti_tensor_t *crop(const tutti_op_backward_t *call)
{
    const pad_t *pad = call->params;
    tutti_padding_t back = pad->padding;
    for (int i = 0; i < back.count; i++) {
        back.sizes[i] = -back.sizes[i];
    }
    return tutti_pad(call->scope, call->grad_outputs[0], back, TUTTI_PAD_CONSTANT, 0);
}

static tutti_status_t pad_backward(tutti_op_backward_t *call)
{
    const pad_t *pad = call->params;
    tutti_tensor_t *g = call->grad_outputs[0];
    if (pad->mode == TUTTI_PAD_CONSTANT) {
        call->grads[0] = crop(call);
        return TUTTI_OK;
    }
    g = tutti_cast(call->scope, g, tt_sum_dtype(g->dtype));
    tutti_tensor_t *dx = tutti_zeros(call->scope, g->dtype, call->inputs[0].shape);
    TT_TRY(dx->status);
    const tt_remap_t remap = remap_of_pad(pad, g, dx);
    call->grads[0] = dx;
    return tt_remap_add(tt_scope_exec(call->scope), &remap);
}

static tutti_status_t pad_grad(tutti_op_backward_t *call)
{
    const pad_t *pad = call->params;
    if (pad->mode != TUTTI_PAD_CONSTANT) {
        return tt_grad_linear(call);
    }
    call->grads[0] = crop(call);
    return TUTTI_OK;
}

const tutti_op_t tt_op_pad = {
    .name = "pad",
    .fills = true,
    .about = "x with elements beside it: a value, reflected, the last ones, or around; dx = dy of "
             "all that came from x",
    .params_bytes = sizeof(pad_t),
    .infer = pad_infer,
    .forward = pad_forward,
    .backward = pad_backward,
    .grad = pad_grad,
};

tutti_tensor_t *tutti_pad(tutti_scope_t *s, tutti_tensor_t *x, tutti_padding_t padding,
                          tutti_pad_mode_t mode, double value)
{
    return tutti_op_run(s, &tt_op_pad, &x, 1, &(pad_t){padding, mode, value});
}

/* ---- roll ------------------------------------------------------------------------------------ */

typedef struct {
    tutti_dims_t dims;
    int64_t shifts[TUTTI_RANK_MAX];
} roll_t;

static tutti_status_t roll_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const roll_t *roll = call->params;
    for (int i = 0; i < roll->dims.count; i++) {
        int dim;
        TT_TRY(tt_op_dim(call, roll->dims.dims[i], call->inputs[0]->shape.rank, &dim));
    }
    return tutti_op_infer_same(call, outputs);
}

/* A dimension that is given twice is shifted twice. */
static tutti_status_t roll_by(tutti_scope_t *s, const roll_t *roll, int sign,
                              const tutti_tensor_t *y, const tutti_tensor_t *x)
{
    tt_remap_t remap = remap_between(y, x);
    for (int i = 0; i < roll->dims.count && x->numel > 0; i++) {
        const int d = tt_dim_index(roll->dims.dims[i], x->shape.rank);
        const int64_t n = x->shape.dims[d];
        tt_remap_dim_t *dim = &remap.dims[d];
        dim->mode = TT_REMAP_CIRCULAR;
        dim->length = n;
        dim->before = (dim->before + sign * (roll->shifts[i] % n)) % n;
    }
    return tt_remap(tt_scope_exec(s), &remap);
}

static tutti_status_t roll_forward(tutti_op_call_t *call)
{
    return roll_by(call->scope, call->params, 1, call->outputs[0], call->inputs[0]);
}

static tutti_status_t roll_backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *g = call->grad_outputs[0];
    call->grads[0] = tutti_empty(call->scope, g->dtype, g->shape);
    TT_TRY(call->grads[0]->status);
    return roll_by(call->scope, call->params, -1, call->grads[0], g);
}

const tutti_op_t tt_op_roll = {
    .name = "roll",
    .about = "y[i] = x[(i - shift) mod n]; dx is dy rolled back",
    .params_bytes = sizeof(roll_t),
    .infer = roll_infer,
    .forward = roll_forward,
    .backward = roll_backward,
    .grad = tt_grad_linear,
};

/* All elements in a row: into one dimension, and back. */
static tutti_tensor_t *roll_flat(tutti_scope_t *s, tutti_tensor_t *x, int64_t shift)
{
    const roll_t roll = {TUTTI_DIMS(0), {shift}};
    tutti_tensor_t *flat = tutti_flatten(s, x, 0, -1);
    return tutti_reshape(s, tutti_op_run(s, &tt_op_roll, &flat, 1, &roll), tutti_tensor_shape(x));
}

tutti_tensor_t *tutti_roll(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t shifts,
                           tutti_dims_t dims)
{
    roll_t roll = {.dims = dims};
    const bool is_flat = dims.count == 0 && shifts.rank == 1;
    if (!is_flat && (shifts.rank != dims.count || dims.count < 0 || dims.count > TUTTI_RANK_MAX)) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                           "roll: %d shifts and %d dimensions: want one for each",
                                           shifts.rank, dims.count));
    }
    memcpy(roll.shifts, shifts.dims, sizeof roll.shifts);
    return is_flat ? roll_flat(s, x, shifts.dims[0]) : tutti_op_run(s, &tt_op_roll, &x, 1, &roll);
}

/* ---- flip ------------------------------------------------------------------------------------ */

static tutti_status_t flip_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_dims_t *dims = call->params;
    unsigned seen = 0;
    if (dims->count < 0 || dims->count > TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%d dimensions given; want 0 to %d", dims->count,
                             TUTTI_RANK_MAX);
    }
    for (int i = 0; i < dims->count; i++) {
        int dim;
        TT_TRY(tt_op_dim(call, dims->dims[i], call->inputs[0]->shape.rank, &dim));
        if (seen >> dim & 1) {
            return tutti_op_fail(call, TUTTI_ERR_ARG, "dimension %d is given twice", dim);
        }
        seen |= 1u << dim;
    }
    return tutti_op_infer_same(call, outputs);
}

static tutti_status_t flip_by(tutti_scope_t *s, const tutti_dims_t *dims, const tutti_tensor_t *y,
                              const tutti_tensor_t *x)
{
    tt_remap_t remap = remap_between(y, x);
    for (int i = 0; i < dims->count; i++) {
        remap.dims[tt_dim_index(dims->dims[i], x->shape.rank)].mode = TT_REMAP_FLIP;
    }
    return tt_remap(tt_scope_exec(s), &remap);
}

static tutti_status_t flip_forward(tutti_op_call_t *call)
{
    return flip_by(call->scope, call->params, call->outputs[0], call->inputs[0]);
}

static tutti_status_t flip_backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *g = call->grad_outputs[0];
    call->grads[0] = tutti_empty(call->scope, g->dtype, g->shape);
    TT_TRY(call->grads[0]->status);
    return flip_by(call->scope, call->params, call->grads[0], g);
}

const tutti_op_t tt_op_flip = {
    .name = "flip",
    .about = "the order of some dimensions reversed; dx is dy flipped",
    .params_bytes = sizeof(tutti_dims_t),
    .infer = flip_infer,
    .forward = flip_forward,
    .backward = flip_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tutti_flip(tutti_scope_t *s, tutti_tensor_t *x, tutti_dims_t dims)
{
    return tutti_op_run(s, &tt_op_flip, &x, 1, &dims);
}
