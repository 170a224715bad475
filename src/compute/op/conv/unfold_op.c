/* unfold, fold: windows of planes as columns, and back. Each is the other's gradient. Source:
 * patches.h. Columns that overlap are added up in f32, or f64. */
#include <tutti/op_pad.h>
#include <tutti/op_shape.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/index/patches.h"

typedef struct {
    tutti_unfold_options_t move;
    int64_t size[2]; /* fold: of the planes */
} params_t;

static tutti_status_t check_move(const tutti_op_call_t *call, int64_t *windows)
{
    const params_t *params = call->params;
    const tutti_unfold_options_t *move = &params->move;
    for (int d = 0; d < 2; d++) {
        int64_t reach, room;
        if (move->kernel[d] < 1 || move->stride[d] < 1 || move->dilation[d] < 1 ||
            move->padding[d] < 0 || params->size[d] < 0 ||
            __builtin_mul_overflow(move->kernel[d] - 1, move->dilation[d], &reach) ||
            __builtin_mul_overflow(move->padding[d], 2, &room) ||
            __builtin_add_overflow(room, params->size[d], &room) || room - 1 < reach) {
            return tutti_op_fail(
                call, TUTTI_ERR_ARG,
                "no window of %lld (stride %lld, padding %lld, dilation %lld) fits into %lld",
                (long long)move->kernel[d], (long long)move->stride[d], (long long)move->padding[d],
                (long long)move->dilation[d], (long long)params->size[d]);
        }
        windows[d] = (room - 1 - reach) / move->stride[d] + 1;
    }
    return TUTTI_OK;
}

/* Channels and kernel places, and all windows, as two dimensions; overflow is an ARG error. */
static tutti_status_t count_columns(const tutti_op_call_t *call, const int64_t *windows,
                                    int64_t *places, int64_t *count)
{
    const params_t *params = call->params;
    if (__builtin_mul_overflow(params->move.kernel[0], params->move.kernel[1], places) ||
        __builtin_mul_overflow(windows[0], windows[1], count)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "there are too many windows");
    }
    return TUTTI_OK;
}

/* ---- unfold ---------------------------------------------------------------------------------- */

static tutti_status_t unfold_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int rank = x->shape.rank;
    int64_t windows[2], places = 0, count = 0, rows;
    if (rank != 3 && rank != 4) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want planes [N, C, H, W] or [C, H, W]");
    }
    TT_TRY(check_move(call, windows));
    TT_TRY(count_columns(call, windows, &places, &count));
    if (__builtin_mul_overflow(x->shape.dims[rank - 3], places, &rows)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "there are too many windows");
    }
    outputs->dtype = x->dtype;
    outputs->shape =
        rank == 3 ? TUTTI_SHAPE(rows, count) : TUTTI_SHAPE(x->shape.dims[0], rows, count);
    return tt_shape_check(outputs->dtype, outputs->shape);
}

static tt_patches_t patches_of(const params_t *params, tutti_dtype_t dtype, int64_t numel)
{
    const tutti_unfold_options_t *move = &params->move;
    tt_patches_t patches = {.dtype = dtype};
    const int64_t own = params->size[0] * params->size[1];
    for (int d = 0; d < 2; d++) {
        patches.size[d] = params->size[d];
        patches.kernel[d] = move->kernel[d];
        patches.stride[d] = move->stride[d];
        patches.padding[d] = move->padding[d];
        patches.dilation[d] = move->dilation[d];
        patches.windows[d] = (params->size[d] + 2 * move->padding[d] - 1 -
                              (move->kernel[d] - 1) * move->dilation[d]) /
                                 move->stride[d] +
                             1;
    }
    patches.count = own == 0 ? 0 : numel / own;
    return patches;
}

static tutti_status_t take(tutti_scope_t *s, const params_t *params, const tutti_tensor_t *columns,
                           tutti_tensor_t *planes)
{
    planes = tutti_contiguous(s, planes);
    TT_TRY(planes->status);
    tt_patches_t patches = patches_of(params, planes->dtype, planes->numel);
    patches.columns = tt_tensor_data(columns);
    patches.planes = tt_tensor_data(planes);
    if (patches.count == 0 && columns->numel > 0) { /* padding alone */
        const tt_strided_t out = tt_tensor_strided(columns);
        return tt_fill(tt_scope_exec(s), &out, 0);
    }
    return tt_patches_take(tt_scope_exec(s), &patches);
}

/* The planes, of the dtype that columns are added up in. */
static tutti_tensor_t *add_up(tutti_scope_t *s, const params_t *params, tutti_tensor_t *columns,
                              tutti_shape_t shape)
{
    const tutti_dtype_t dtype = tt_sum_dtype(columns->dtype);
    columns = tutti_contiguous(s, tutti_cast(s, columns, dtype));
    tutti_tensor_t *planes = tutti_empty(s, dtype, shape);
    if (tutti_scope_status(s) < 0) {
        return planes;
    }
    tt_patches_t patches = patches_of(params, dtype, planes->numel);
    patches.columns = tt_tensor_data(columns);
    patches.planes = tt_tensor_data(planes);
    const tutti_status_t status = tt_patches_add(tt_scope_exec(s), &patches);
    return status < 0 ? tutti_scope_fail(s, status) : planes;
}

static tutti_status_t unfold_forward(tutti_op_call_t *call)
{
    return take(call->scope, call->params, call->outputs[0], call->inputs[0]);
}

static tutti_status_t unfold_backward(tutti_op_backward_t *call)
{
    call->grads[0] =
        add_up(call->scope, call->params, call->grad_outputs[0], call->inputs[0].shape);
    return call->grads[0]->status;
}

const tutti_op_t tt_op_unfold = {
    .name = "unfold",
    .about = "windows of planes as columns; dx = dy added where each came from",
    .params_bytes = sizeof(params_t),
    .infer = unfold_infer,
    .forward = unfold_forward,
    .backward = unfold_backward,
    .grad = tt_grad_linear,
};

/* Zeros stand for PyTorch's defaults. */
static tutti_unfold_options_t with_defaults(const tutti_unfold_options_t *options)
{
    tutti_unfold_options_t o = options == NULL ? (tutti_unfold_options_t){.kernel = {0}} : *options;
    for (int d = 0; d < 2; d++) {
        o.stride[d] = o.stride[d] == 0 ? 1 : o.stride[d];
        o.dilation[d] = o.dilation[d] == 0 ? 1 : o.dilation[d];
    }
    return o;
}

tutti_tensor_t *tutti_unfold(tutti_scope_t *s, tutti_tensor_t *x,
                             const tutti_unfold_options_t *options)
{
    const params_t params = {with_defaults(options),
                             {tutti_tensor_dim(x, -2), tutti_tensor_dim(x, -1)}};
    return tutti_op_run(s, &tt_op_unfold, &x, 1, &params);
}

/* ---- fold ------------------------------------------------------------------------------------ */

static tutti_status_t fold_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    const int rank = x->shape.rank;
    int64_t windows[2], places = 0, count = 0;
    TT_TRY(tutti_op_infer_same_float(call, outputs));
    if (rank != 2 && rank != 3) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want columns [N, C k, L] or [C k, L]");
    }
    TT_TRY(check_move(call, windows));
    TT_TRY(count_columns(call, windows, &places, &count));
    if (x->shape.dims[rank - 2] % places != 0 || x->shape.dims[rank - 1] != count) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "want a multiple of %lld rows, and %lld columns: the windows of "
                             "[%lld, %lld]",
                             (long long)places, (long long)count, (long long)params->size[0],
                             (long long)params->size[1]);
    }
    const int64_t channels = x->shape.dims[rank - 2] / places;
    outputs->shape =
        rank == 2 ? TUTTI_SHAPE(channels, params->size[0], params->size[1])
                  : TUTTI_SHAPE(x->shape.dims[0], channels, params->size[0], params->size[1]);
    return tt_shape_check(outputs->dtype, outputs->shape);
}

static tutti_status_t fold_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *y = call->outputs[0];
    tutti_tensor_t *sum = add_up(call->scope, call->params, call->inputs[0], y->shape);
    TT_TRY(sum->status);
    const tt_strided_t out = tt_tensor_strided(y), in = tt_tensor_strided(sum);
    return tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in);
}

static tutti_status_t fold_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *g = call->grad_outputs[0];
    call->grads[0] = tutti_empty(call->scope, g->dtype, call->inputs[0].shape);
    TT_TRY(call->grads[0]->status);
    return take(call->scope, call->params, call->grads[0], g);
}

const tutti_op_t tt_op_fold = {
    .name = "fold",
    .about = "columns added up as windows of planes; dx = the windows of dy",
    .params_bytes = sizeof(params_t),
    .infer = fold_infer,
    .forward = fold_forward,
    .backward = fold_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tutti_fold(tutti_scope_t *s, tutti_tensor_t *x, int64_t height, int64_t width,
                           const tutti_unfold_options_t *options)
{
    const params_t params = {with_defaults(options), {height, width}};
    return tutti_op_run(s, &tt_op_fold, &x, 1, &params);
}
