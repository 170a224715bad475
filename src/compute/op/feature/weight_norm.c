/* weight_norm: lengths of rows that lie side by side, with a g for each, are one kernel; those of
 * another dimension, or with a g of another shape, are composed. Cost: v is read once from memory,
 * backward v and dw; keeps v, g and the lengths. Source: op_feature.h. */
#include <tutti/op_feature.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "compute/autograd/compose.h"
#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/norm/weight_rows.h"

enum { V, G, INPUTS };
/* What forward makes on its way, and saves. */
enum { SAVED_V, SAVED_G, SAVED_LENGTH, SAVED };

static tutti_tensor_t *compose(tutti_scope_t *s, tutti_tensor_t *v, tutti_tensor_t *g, int kept)
{
    tutti_dims_t others = {.count = 0};
    for (int i = 0; i < v->shape.rank; i++) {
        if (i != kept) {
            others.dims[others.count++] = i;
        }
    }
    tutti_tensor_t *wide = tt_wide(s, v), *squares = tutti_square(s, wide);
    squares = others.count > 0 ? tutti_sum_over(s, squares, others, true) : squares;
    return tutti_mul(s, wide, tutti_div(s, tt_wide(s, g), tutti_sqrt(s, squares)));
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What forward and backward say alike. */
static tt_weight_norm_t norm_of(const tutti_tensor_t *v)
{
    const size_t rows = (size_t)v->shape.dims[0];
    return (tt_weight_norm_t){.is_wide = v->dtype == TUTTI_F64,
                              .rows = rows,
                              .n = rows == 0 ? 0 : (size_t)v->numel / rows,
                              .v = tt_data_of(v)};
}

static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **parts)
{
    const tutti_shape_t lengths = call->inputs[G]->shape;
    const tutti_dtype_t dtype = call->outputs[0]->dtype;
    TT_TRY(tt_dense(call->scope, call->inputs[V], dtype, &parts[SAVED_V]));
    TT_TRY(tt_dense(call->scope, call->inputs[G], dtype, &parts[SAVED_G]));
    if (call->needs_grad) {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, dtype, lengths, false,
                             &parts[SAVED_LENGTH]));
    }
    tt_weight_norm_t norm = norm_of(parts[SAVED_V]);
    norm.g = tt_data_of(parts[SAVED_G]);
    norm.w = tt_data_of(call->outputs[0]);
    norm.length = tt_data_of(parts[SAVED_LENGTH]);
    TT_TRY(tt_weight_norm(tt_scope_exec(call->scope), &norm));
    TT_TRY(tutti_op_save_copy(call, parts[SAVED_V], V));
    TT_TRY(tutti_op_save_copy(call, parts[SAVED_G], G));
    return tutti_op_save(call, parts[SAVED_LENGTH]);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    return tt_forward_in_parts(call, compute, SAVED);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *v = call->saved[SAVED_V];
    tutti_tensor_t *dw;
    for (int i = 0; i < INPUTS; i++) {
        if (call->wanted[i]) {
            call->grads[i] = tt_scratch(call->scope, call->saved[i]->dtype, call->inputs[i].shape);
        }
    }
    TT_TRY(tutti_scope_status(call->scope));
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], v->dtype, &dw));
    tt_weight_norm_t norm = norm_of(v);
    norm.g = tt_data_of(call->saved[SAVED_G]);
    norm.length = tt_data_of(call->saved[SAVED_LENGTH]);
    norm.dw = tt_data_of(dw);
    norm.dv = tt_data_of(call->grads[V]);
    norm.dg = tt_data_of(call->grads[G]);
    const tutti_status_t status = tt_weight_norm_backward(tt_scope_exec(call->scope), &norm);
    tutti_tensor_release(dw);
    return status;
}

static tutti_tensor_t *compose_rows(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    return compose(call->scope, inputs[V], inputs[G], 0);
}

static tutti_status_t grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose_rows);
}

const tutti_op_t tt_op_weight_norm = {
    .name = "weight_norm",
    .about = "w = v g / ‖v‖, of each row; dg = Σ dw v / ‖v‖, dv = g / ‖v‖ (dw - v dg / ‖v‖)",
    .infer = tutti_op_infer_same_float,
    .forward = forward,
    .backward = backward,
    .grad = grad,
};

static bool is_of_rows(const tutti_tensor_t *v, const tutti_tensor_t *g, int kept)
{
    return kept == 0 && v->shape.rank > 1 && g->shape.rank == v->shape.rank &&
           g->numel == v->shape.dims[0] && g->shape.dims[0] == g->numel &&
           tutti_dtype_is_float(g->dtype) && tt_sum_dtype(g->dtype) == tt_sum_dtype(v->dtype);
}

/* ---- the function ---------------------------------------------------------------------------- */

/* SHAPE: g is not broadcast to v, or makes it larger. */
static tutti_status_t check_lengths(const tutti_tensor_t *v, const tutti_tensor_t *g)
{
    char a[160], b[160];
    TT_TRY(tt_tensor_status(g));
    bool is_good = g->shape.rank <= v->shape.rank;
    for (int i = 1; is_good && i <= g->shape.rank; i++) {
        const int64_t size = g->shape.dims[g->shape.rank - i];
        is_good = size == 1 || size == v->shape.dims[v->shape.rank - i];
    }
    return is_good ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_SHAPE, "weight_norm: g must be broadcast to v: %s and %s",
                             tutti_tensor_describe(g, a, sizeof a),
                             tutti_tensor_describe(v, b, sizeof b));
}

tutti_tensor_t *tutti_weight_norm(tutti_scope_t *s, tutti_tensor_t *v, tutti_tensor_t *g, int dim)
{
    tutti_status_t status = tt_tensor_status(v);
    const int rank = status < 0 ? 0 : v->shape.rank, kept = dim < 0 ? dim + rank : dim;
    if (status >= 0 && (kept < 0 || kept >= rank || !tutti_dtype_is_float(v->dtype))) {
        status =
            TT_FAIL(TUTTI_ERR_ARG, "weight_norm: there is no dimension %d, or no floating v", dim);
    }
    if (status >= 0) {
        status = check_lengths(v, g);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *w;
    if (is_of_rows(v, g, kept)) {
        tutti_tensor_t *const inputs[INPUTS] = {[V] = tt_wide(s, v), [G] = tt_wide(s, g)};
        w = tutti_op_run(s, &tt_op_weight_norm, inputs, INPUTS, NULL);
    } else {
        w = compose(s, v, g, kept);
    }
    return tutti_cast(s, w, v->dtype);
}
