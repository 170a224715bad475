/* Parts of a tensor as views: slice, narrow, select, split.
 *
 * A part is a first index, a step and a count along one dimension. Its gradient is a tensor of
 * zeros into which the incoming one is copied; split's parts fill one such tensor together.
 */
#include <tutti/op_shape.h>

#include <string.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/view.h"

/* Indices start, start + step, … of dimension dim, `length` of them. */
typedef struct {
    int dim;
    int64_t start, step, length;
} part_t;

static tutti_status_t view_part(tutti_op_call_t *call, int i, part_t part)
{
    const tutti_tensor_t *x = call->inputs[0];
    tutti_shape_t shape = x->shape;
    int64_t strides[TUTTI_RANK_MAX];
    memcpy(strides, x->strides, sizeof strides);
    const int64_t offset = part.length == 0 ? 0 : part.start * strides[part.dim];
    shape.dims[part.dim] = part.length;
    strides[part.dim] *= part.step;
    return tt_op_view(call, i, shape, strides, x->offset + offset);
}

/* Copies from (x's shape but at part.dim) into this part of x. */
static tutti_status_t write_part(tutti_scope_t *s, tutti_tensor_t *x, part_t part,
                                 const tutti_tensor_t *from)
{
    const tt_strided_t in = tt_tensor_strided_as(from, from->shape);
    tt_strided_t out = tt_tensor_strided(x);
    const int64_t bytes = (int64_t)tutti_dtype_bytes(x->dtype);
    if (part.length == 0) {
        return TUTTI_OK;
    }
    out.data = (char *)out.data + part.start * out.strides[part.dim] * bytes;
    out.shape[part.dim] = part.length;
    out.strides[part.dim] *= part.step;
    return tt_map_unary(tt_scope_exec(s), TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in);
}

/* ---- slice, narrow, select: params are a rule's arguments ---------------------------------- */

typedef struct {
    int dim;
    tutti_range_t range;
} slice_t;

typedef struct {
    tutti_status_t (*part)(const tutti_op_call_t *call, part_t *part);
    bool drops_dim;
} rule_t;

static int64_t clip(int64_t index, int64_t size)
{
    index = index < 0 ? index + size : index;
    return index < 0 ? 0 : index > size ? size : index;
}

static tutti_status_t slice_part(const tutti_op_call_t *call, part_t *part)
{
    const slice_t *slice = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    TT_TRY(tt_op_dim(call, slice->dim, x->shape.rank, &part->dim));
    if (slice->range.step < 0) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "step %lld is negative",
                             (long long)slice->range.step);
    }
    const int64_t size = x->shape.dims[part->dim];
    const int64_t start = clip(slice->range.start, size), stop = clip(slice->range.stop, size);
    part->start = start;
    part->step = slice->range.step == 0 ? 1 : slice->range.step;
    part->length = stop > start ? (stop - start - 1) / part->step + 1 : 0;
    if (part->length <= 1) {
        part->step = 1; /* a huge one must not overflow */
    }
    return TUTTI_OK;
}

static tutti_status_t narrow_part(const tutti_op_call_t *call, part_t *part)
{
    const part_t *asked = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    *part = *asked;
    TT_TRY(tt_op_dim(call, asked->dim, x->shape.rank, &part->dim));
    const int64_t size = x->shape.dims[part->dim];
    part->start += asked->start < 0 ? size : 0;
    if (part->length < 0 || part->start < 0 || part->start > size ||
        part->length > size - part->start) {
        return tutti_op_fail(
            call, TUTTI_ERR_ARG,
            "%lld indices from %lld on are not all within dimension %d of size %lld",
            (long long)asked->length, (long long)asked->start, part->dim, (long long)size);
    }
    return TUTTI_OK;
}

static tutti_status_t select_part(const tutti_op_call_t *call, part_t *part)
{
    const part_t *asked = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    *part = *asked;
    TT_TRY(tt_op_dim(call, asked->dim, x->shape.rank, &part->dim));
    const int64_t size = x->shape.dims[part->dim];
    part->start += asked->start < 0 ? size : 0;
    if (part->start < 0 || part->start >= size) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "index %lld is outside dimension %d of size %lld",
                             (long long)asked->start, part->dim, (long long)size);
    }
    return TUTTI_OK;
}

static tutti_status_t part_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const rule_t *rule = call->op->family;
    part_t part = {0};
    TT_TRY(rule->part(call, &part));
    TT_TRY(tutti_op_infer_same(call, outputs));
    outputs->shape.dims[part.dim] = part.length;
    if (rule->drops_dim) {
        outputs->shape = tt_shape_without(outputs->shape, part.dim);
    }
    return TUTTI_OK;
}

static tutti_status_t part_forward(tutti_op_call_t *call)
{
    const rule_t *rule = call->op->family;
    part_t part = {0};
    TT_TRY(rule->part(call, &part));
    TT_TRY(view_part(call, 0, part));
    tutti_tensor_t *y = call->outputs[0];
    if (rule->drops_dim) {
        y->shape = tt_shape_without(y->shape, part.dim);
        memmove(&y->strides[part.dim], &y->strides[part.dim + 1],
                (size_t)(y->shape.rank - part.dim) * sizeof *y->strides);
    }
    return TUTTI_OK;
}

/* The rule reads the input's shape and nothing else of it. */
static tutti_status_t part_backward(tutti_op_backward_t *call)
{
    const rule_t *rule = call->op->family;
    tutti_tensor_t *g = call->grad_outputs[0];
    tutti_tensor_t *dx = tutti_zeros(call->scope, g->dtype, call->inputs[0].shape);
    TT_TRY(dx->status);
    const tutti_op_call_t forward = {.op = call->op, .inputs = &dx, .params = call->params};
    part_t part = {0};
    TT_TRY(rule->part(&forward, &part));
    if (rule->drops_dim) {
        g = tutti_unsqueeze(call->scope, g, part.dim);
        TT_TRY(g->status);
    }
    TT_TRY(write_part(call->scope, dx, part, g));
    call->grads[0] = dx;
    return TUTTI_OK;
}

const tutti_op_t tt_op_slice = {
    .name = "slice",
    .about = "x[start:stop:step], a view; dx = dy there, else 0",
    .params_bytes = sizeof(slice_t),
    .infer = part_infer,
    .forward = part_forward,
    .backward = part_backward,
    .grad = tt_grad_linear,
    .makes_outputs = true,
    .family = &(const rule_t){slice_part, false},
};

const tutti_op_t tt_op_narrow = {
    .name = "narrow",
    .about = "some indices of a dimension, a view; dx = dy there, else 0",
    .params_bytes = sizeof(part_t),
    .infer = part_infer,
    .forward = part_forward,
    .backward = part_backward,
    .grad = tt_grad_linear,
    .makes_outputs = true,
    .family = &(const rule_t){narrow_part, false},
};

const tutti_op_t tt_op_select = {
    .name = "select",
    .about = "one index of a dimension, a view; dx = dy there, else 0",
    .params_bytes = sizeof(part_t),
    .infer = part_infer,
    .forward = part_forward,
    .backward = part_backward,
    .grad = tt_grad_linear,
    .makes_outputs = true,
    .family = &(const rule_t){select_part, true},
};

tutti_tensor_t *tutti_slice(tutti_scope_t *s, tutti_tensor_t *x, int dim, tutti_range_t range)
{
    return tutti_op_run(s, &tt_op_slice, &x, 1, &(slice_t){dim, range});
}

tutti_tensor_t *tutti_narrow(tutti_scope_t *s, tutti_tensor_t *x, int dim, int64_t start,
                             int64_t length)
{
    return tutti_op_run(s, &tt_op_narrow, &x, 1, &(part_t){dim, start, 1, length});
}

tutti_tensor_t *tutti_select(tutti_scope_t *s, tutti_tensor_t *x, int dim, int64_t index)
{
    return tutti_op_run(s, &tt_op_select, &x, 1, &(part_t){dim, index, 1, 1});
}

/* ---- split --------------------------------------------------------------------------------- */

/* Sizes of the parts: all equal, or listed. */
typedef struct {
    int dim;
    int64_t equal; /* < 0: listed */
    tutti_shape_t listed;
} split_t;

/* Part i of the parts that stand one behind the other. */
static part_t split_part(const split_t *split, int dim, int i)
{
    if (split->equal >= 0) {
        return (part_t){dim, i * split->equal, 1, split->equal};
    }
    part_t part = {.dim = dim, .step = 1, .length = split->listed.dims[i]};
    for (int k = 0; k < i; k++) {
        part.start += split->listed.dims[k];
    }
    return part;
}

/* Equal ones do. */
static tutti_status_t check_listed(const tutti_op_call_t *call, int dim)
{
    const tutti_shape_t sizes = ((const split_t *)call->params)->listed;
    int64_t sum = 0;
    bool is_wrong = false; /* negative or beyond all numbers */
    for (int i = 0; i < sizes.rank; i++) {
        is_wrong =
            is_wrong || sizes.dims[i] < 0 || __builtin_add_overflow(sum, sizes.dims[i], &sum);
    }
    if (is_wrong || sum != call->inputs[0]->shape.dims[dim]) {
        char text[160];
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "sizes %s do not add up to dimension %d",
                             tutti_shape_format(sizes, text, sizeof text), dim);
    }
    return TUTTI_OK;
}

static tutti_status_t split_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const split_t *split = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    int dim;
    TT_TRY(tt_op_dim(call, split->dim, x->shape.rank, &dim));
    if (split->equal < 0) {
        TT_TRY(check_listed(call, dim));
    }
    for (int i = 0; i < call->output_count; i++) {
        outputs[i] = (tutti_spec_t){x->dtype, x->shape};
        outputs[i].shape.dims[dim] = split_part(split, dim, i).length;
    }
    return TUTTI_OK;
}

static tutti_status_t split_forward(tutti_op_call_t *call)
{
    const split_t *split = call->params;
    const int dim = tt_dim_index(split->dim, call->inputs[0]->shape.rank);
    for (int i = 0; i < call->output_count; i++) {
        TT_TRY(view_part(call, i, split_part(split, dim, i)));
    }
    return TUTTI_OK;
}

static tutti_status_t split_backward(tutti_op_backward_t *call)
{
    const split_t *split = call->params;
    const int dim = tt_dim_index(split->dim, call->inputs[0].shape.rank);
    bool is_partial = false;
    for (int i = 0; i < call->output_count; i++) {
        is_partial = is_partial || call->grad_outputs[i] == NULL;
    }
    tutti_tensor_t *dx =
        is_partial ? tutti_zeros(call->scope, call->inputs[0].dtype, call->inputs[0].shape)
                   : tutti_empty(call->scope, call->inputs[0].dtype, call->inputs[0].shape);
    TT_TRY(dx->status);
    for (int i = 0; i < call->output_count; i++) {
        if (call->grad_outputs[i] != NULL) {
            TT_TRY(write_part(call->scope, dx, split_part(split, dim, i), call->grad_outputs[i]));
        }
    }
    call->grads[0] = dx;
    return TUTTI_OK;
}

const tutti_op_t tt_op_split = {
    .name = "split",
    .output_count = TUTTI_OP_ANY,
    .about = "views one behind the other; dx = their gradients put together",
    .params_bytes = sizeof(split_t),
    .infer = split_infer,
    .forward = split_forward,
    .backward = split_backward,
    .grad = tt_grad_linear,
    .makes_outputs = true,
};

void tutti_split_sizes(tutti_scope_t *s, tutti_tensor_t *x, int dim, tutti_shape_t sizes,
                       tutti_tensor_t **outputs)
{
    if (sizes.rank < 1 || sizes.rank > TUTTI_RANK_MAX) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "split: %d sizes given; want 1 to %d",
                                          sizes.rank, TUTTI_RANK_MAX));
        return;
    }
    tutti_op_run_many(s, &tt_op_split, &x, 1, &(split_t){dim, -1, sizes}, outputs, sizes.rank);
}

void tutti_split(tutti_scope_t *s, tutti_tensor_t *x, int dim, int count, tutti_tensor_t **outputs)
{
    const int64_t size = tutti_tensor_dim(x, dim);
    if (count < 1) {
        (void)tutti_scope_fail(s,
                               TT_FAIL(TUTTI_ERR_ARG, "split: %d parts; want at least 1", count));
        return;
    }
    if (x->status >= 0 && size % count != 0) {
        char text[192];
        (void)tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_SHAPE, "split: %d parts of equal size do not fit dimension %d: %s",
                       count, dim, tutti_tensor_describe(x, text, sizeof text)));
    }
    tutti_op_run_many(s, &tt_op_split, &x, 1, &(split_t){.dim = dim, .equal = size / count},
                      outputs, count);
}
