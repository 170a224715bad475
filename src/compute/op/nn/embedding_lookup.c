/* embedding_with: rows that are bounded in the table before they are taken, and gradients that
 * count more or less.
 *
 *     max_norm    rows taken ─► shortened ─► written back, by indices; equal ones are equal
 *     padding, scale_by_frequency
 *                 y = embedding; on the way back dy w, w being 0 for padding and 1 / count else
 *
 * Source: op_nn.h. */
#include <tutti/modes.h>
#include <tutti/op_index.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include "compute/autograd/op_call.h"
#include "compute/op/feature/lengths.h"
#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "core/base/default.h"
#include "core/kernel/index/indexing.h"

typedef tutti_embedding_lookup_options_t lookup_t;

static tutti_status_t check(const tutti_tensor_t *indices, const tutti_tensor_t *weight,
                            const lookup_t *o)
{
    TT_TRY(tt_tensor_status(indices));
    TT_TRY(tt_tensor_status(weight));
    const int64_t rows = weight->shape.rank == 2 ? weight->shape.dims[0] : 0;
    if (o->has_padding && (o->padding < -rows || o->padding >= rows)) {
        return TT_FAIL(TUTTI_ERR_ARG, "embedding: padding %lld is no row of a table of %lld",
                       (long long)o->padding, (long long)rows);
    }
    if (!(o->max_norm >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "embedding: max_norm must be at least 0, not %g",
                       o->max_norm);
    }
    return tt_or_default(o->norm_p, 2) > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "embedding: norm_p must be above 0, not %g", o->norm_p);
}

/* ---- the bound ------------------------------------------------------------------------------- */

/* Rows [n, C] as they are to be. */
static tutti_tensor_t *shorten(tutti_scope_t *s, tutti_tensor_t *rows, const lookup_t *o)
{
    const double most = tt_or_default(o->max_norm, 0);
    tutti_tensor_t *wide = tt_wide(s, rows);
    tutti_tensor_t *norm = tt_length_of(s, wide, tt_or_default(o->norm_p, 2), 1, 0);
    tutti_tensor_t *factor = tutti_scalar_div(s, most, tutti_add_scalar(s, norm, 1e-7));
    tutti_tensor_t *is_long = tutti_gt_scalar(s, norm, most);
    factor = tutti_masked_fill(s, factor, tutti_logical_not(s, is_long), 1);
    return tutti_cast(s, tutti_mul(s, wide, factor), rows->dtype);
}

/* weight[indices[i]] = rows[i] */
static tutti_status_t put_rows(tutti_scope_t *s, tutti_tensor_t *weight, tutti_tensor_t *indices,
                               tutti_tensor_t *rows)
{
    TT_TRY(tutti_scope_status(s));
    const tt_strided_t to = tt_tensor_strided(weight), from = tt_tensor_strided(rows);
    tutti_tensor_t *each = tutti_expand(s, tutti_unsqueeze(s, indices, 1), rows->shape);
    TT_TRY(tt_tensor_status(each));
    const tt_strided_t index = tt_tensor_strided(each);
    TT_TRY(tt_scatter(tt_scope_exec(s), &to, &from, 0, &index));
    tt_tensor_touch(weight);
    weight->storage->bounded++;
    return TUTTI_OK;
}

/* Without a graph; nothing on meta, where there is nothing to be bounded. */
static tutti_status_t bound_rows(tutti_scope_t *s, tutti_tensor_t *indices, tutti_tensor_t *weight,
                                 const lookup_t *o)
{
    tutti_context_t *ctx = tutti_scope_context(s);
    if (tutti_context_is_recomputing(ctx) || !tt_device_has_values(weight->storage->device)) {
        return TUTTI_OK;
    }
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, false);
    tutti_tensor_t *list = tutti_reshape(s, tutti_cast(s, indices, TUTTI_I64), TUTTI_SHAPE(-1));
    tutti_tensor_t *rows = tutti_embedding(s, list, weight);
    tutti_status_t status = tt_tensor_status(rows);
    if (status >= 0 && rows->numel > 0) {
        status = put_rows(s, weight, list, shorten(s, rows, o));
    }
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
    return status;
}

/* ---- the gradient ---------------------------------------------------------------------------- */

static tutti_status_t weigh_forward(tutti_op_call_t *call)
{
    TT_TRY(tutti_op_save(call, call->inputs[1]));
    return tutti_op_set_output(call, 0, call->inputs[0]);
}

static tutti_status_t weigh_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *w = call->saved[0];
    tutti_tensor_t *dx = tutti_mul(s, tt_wide(s, call->grad_outputs[0]), w);
    /* also where dy is no number */
    call->grads[0] = tutti_masked_fill(s, dx, tutti_eq_scalar(s, w, 0), 0);
    return tutti_scope_status(s);
}

/* Not in ops.def: it is a part of embedding_with. */
static const tutti_op_t weigh_gradient = {
    .name = "weigh_gradient",
    .about = "y = x; dx = dy w, and 0 where w is 0",
    .infer = tutti_op_infer_same_float,
    .forward = weigh_forward,
    .backward = weigh_backward,
    .grad = weigh_backward,
    .makes_outputs = true,
};

/* [..., 1]: how much the gradient of each row that is taken counts. */
static tutti_tensor_t *weights_of(tutti_scope_t *s, tutti_tensor_t *indices,
                                  const tutti_tensor_t *weight, const lookup_t *o)
{
    const tutti_dtype_t dtype = tt_sum_dtype(weight->dtype);
    const int64_t rows = weight->shape.dims[0];
    tutti_tensor_t *list = tutti_reshape(s, tutti_cast(s, indices, TUTTI_I64), TUTTI_SHAPE(-1));
    tutti_tensor_t *one = tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(indices->numel)), *w = one;
    if (o->scale_by_frequency) {
        tutti_tensor_t *counts = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(rows));
        w = tutti_index_select(s, tutti_index_add(s, counts, 0, list, one), 0, list);
    }
    w = tutti_scalar_div(s, 1, tutti_cast(s, w, dtype));
    if (o->has_padding) {
        const int64_t padding = o->padding < 0 ? o->padding + rows : o->padding;
        w = tutti_masked_fill(s, w, tutti_eq_scalar(s, list, (double)padding), 0);
    }
    return tutti_unsqueeze(s, tutti_reshape(s, w, indices->shape), -1);
}

/* ---- the call -------------------------------------------------------------------------------- */

static tutti_tensor_t *look_up(tutti_scope_t *s, tutti_tensor_t *indices, tutti_tensor_t *weight,
                               const lookup_t *o)
{
    tutti_status_t status = check(indices, weight, o);
    if (status >= 0 && tt_is_given(o->max_norm)) {
        status = bound_rows(s, indices, weight, o);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *y = tutti_embedding(s, indices, weight);
    if (!tutti_tensor_requires_grad(y) || !(o->has_padding || o->scale_by_frequency)) {
        return y;
    }
    tutti_tensor_t *const inputs[] = {y, weights_of(s, indices, weight, o)};
    return tutti_op_run(s, &weigh_gradient, inputs, 2, NULL);
}

tutti_tensor_t *tutti_embedding_with(tutti_scope_t *s, tutti_tensor_t *indices,
                                     tutti_tensor_t *weight, const lookup_t *options)
{
    const lookup_t o = options == NULL ? (lookup_t){.padding = 0} : *options;
    const tt_place_t before = tt_context_enter_beside(s->ctx, weight);
    tutti_tensor_t *y = look_up(s, indices, weight, &o);
    s->ctx->place = before;
    return y;
}
