/* tutti_redistribute(): an operation that communicates, and whose gradient is another call of it.
 *
 *     value      from -> to
 *     gradient   grad -> from (replicate for partial), itself a redistribution, so that gradients
 *                of gradients follow; an average's is divided by the ranks
 *
 * Cost: placement.h. Source: Shoeybi et al., "Megatron-LM" (2019); Lepikhin et al., "GShard"
 * (2020). */
#include <tutti/op.h>
#include <tutti/op_math.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "compute/op/shape/view.h"
#include "parallel/placement/placement_impl.h"

typedef struct {
    tutti_group_t *group;
    tt_placed_t placed;
} redistribute_t;

static tt_sharding_t sharding_of(const redistribute_t *r, tutti_scope_t *s,
                                 const tutti_placement_t *p)
{
    return (tt_sharding_t){r->group, s, p->dim, {p->size, p->leaves, tutti_group_size(r->group)}};
}

static bool is_shard(const tutti_placement_t *p)
{
    return p->kind == TUTTI_PLACEMENT_SHARD;
}

static bool is_partial(const tutti_placement_t *p)
{
    return p->kind == TUTTI_PLACEMENT_PARTIAL;
}

/* The operation's placements know their sizes and leaves. */
static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const redistribute_t *r = call->params;
    const tt_placed_t *p = &r->placed;
    outputs->dtype = call->inputs[0]->dtype;
    outputs->shape = call->inputs[0]->shape;
    if (is_shard(&p->from)) {
        outputs->shape.dims[p->from.dim] = p->from.size;
    }
    if (is_shard(&p->to)) {
        const tt_sharding_t sh = sharding_of(r, call->scope, &p->to);
        outputs->shape.dims[p->to.dim] = tt_cut_rank(&sh.cut, tutti_group_rank(r->group)).count;
    }
    return TUTTI_OK;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static tutti_status_t reduce_all(const redistribute_t *r, tutti_scope_t *s, tutti_tensor_t *x,
                                 tutti_tensor_t **out)
{
    const tt_strided_t from = tt_tensor_strided(x);
    TT_TRY(tt_dense_copy(s, &from, x->shape, x->dtype, out));
    tutti_status_t status = TUTTI_OK;
    if (tt_device_has_values(x->storage->device)) {
        status = tutti_all_reduce(r->group, *out, r->placed.from.op, NULL);
    }
    if (status < 0) {
        tutti_tensor_release(*out);
        *out = NULL;
    }
    return status;
}

/* Zeros but on rank 0. */
static tutti_status_t split_sum(const redistribute_t *r, tutti_tensor_t *x, tutti_tensor_t **out)
{
    return tutti_group_rank(r->group) == 0
               ? tt_tensor_alias(x, out)
               : tt_tensor_new(x->storage->device, x->dtype, x->shape, true, out);
}

static tutti_status_t move_shard(const redistribute_t *r, tutti_scope_t *s, tutti_tensor_t *x,
                                 tutti_tensor_t **out)
{
    const tt_placed_t *p = &r->placed;
    const tt_sharding_t from = sharding_of(r, s, &p->from), to = sharding_of(r, s, &p->to);
    if (is_shard(&p->from) && is_shard(&p->to)) {
        return p->from.dim == p->to.dim ? tt_tensor_alias(x, out)
                                        : tt_shard_turn(&from, &to, x, out);
    }
    if (is_shard(&p->from)) {
        return is_partial(&p->to) ? tt_shard_widen(&from, x, out) : tt_shard_gather(&from, x, out);
    }
    return is_partial(&p->from) ? tt_shard_reduce(&to, x, p->from.op, out)
                                : tt_shard_slice(&to, x, out);
}

/* x is contiguous. */
static tutti_status_t move(const redistribute_t *r, tutti_scope_t *s, tutti_tensor_t *x,
                           tutti_tensor_t **out)
{
    const tt_placed_t *p = &r->placed;
    if (is_shard(&p->from) || is_shard(&p->to)) {
        return move_shard(r, s, x, out);
    }
    if (is_partial(&p->from)) {
        return reduce_all(r, s, x, out);
    }
    return is_partial(&p->to) ? split_sum(r, x, out) : tt_tensor_alias(x, out);
}

static bool has_gradient(const tt_placed_t *p)
{
    return !is_partial(&p->from) || p->from.op == TUTTI_SUM || p->from.op == TUTTI_AVG;
}

static tutti_status_t run_moves(tutti_op_call_t *call)
{
    const redistribute_t *r = call->params;
    tutti_tensor_t *x, *y = NULL;
    if (call->needs_grad && !has_gradient(&r->placed)) {
        return tutti_op_fail(call, TUTTI_ERR_UNSUPPORTED,
                             "partial(%s) has no gradient: sums and averages have",
                             tutti_reduction_name(r->placed.from.op));
    }
    TT_TRY(tt_dense(call->scope, call->inputs[0], call->inputs[0]->dtype, &x));
    tutti_status_t status = move(r, call->scope, x, &y);
    if (status >= 0) {
        status = tutti_op_set_output(call, 0, y);
    }
    tutti_tensor_release(y);
    tutti_tensor_release(x);
    return status;
}

/* Whoever fails gives the group up: the others may be in the call. */
static tutti_status_t forward(tutti_op_call_t *call)
{
    const redistribute_t *r = call->params;
    const tutti_status_t status = run_moves(call);
    return status < 0 ? tt_group_give_up(r->group, status) : TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_tensor_t *run(tutti_scope_t *s, tutti_tensor_t *x, const redistribute_t *r);

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const redistribute_t *r = call->params;
    const redistribute_t back = {r->group, tt_placed_adjoint(&r->placed)};
    tutti_tensor_t *dx = run(call->scope, call->grad_outputs[0], &back);
    if (is_partial(&r->placed.from) && r->placed.from.op == TUTTI_AVG) {
        dx = tutti_mul_scalar(call->scope, dx, 1.0 / tutti_group_size(r->group));
    }
    call->grads[0] = dx;
    return tutti_scope_status(call->scope);
}

static void retain_group(const void *params)
{
    (void)tutti_group_retain(((const redistribute_t *)params)->group);
}

static void release_group(const void *params)
{
    tutti_group_release(((const redistribute_t *)params)->group);
}

static const tutti_op_t redistribute_op = {
    .name = "redistribute",
    .about = "a tensor placed differently on the ranks of a group; so is its gradient, back",
    .params_bytes = sizeof(redistribute_t),
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .grad = backward,
    .retain_params = retain_group,
    .release_params = release_group,
    .makes_outputs = true,
};

static tutti_tensor_t *run(tutti_scope_t *s, tutti_tensor_t *x, const redistribute_t *r)
{
    return tutti_op_run(s, &redistribute_op, &x, 1, r);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The dimension counted from the front; leaves, if none are given, one for each rank. */
static tutti_status_t resolve_dim(tutti_placement_t *p, const tutti_tensor_t *x, int ranks)
{
    if (!is_shard(p)) {
        return TUTTI_OK;
    }
    const int dim = tt_dim_index(p->dim, x->shape.rank);
    if (dim < 0 || p->size < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "redistribute: shard(%d) of size %lld, of a tensor of %d dimensions", p->dim,
                       (long long)p->size, x->shape.rank);
    }
    p->dim = dim;
    p->leaves = p->leaves == 0 ? ranks : p->leaves;
    return TUTTI_OK;
}

/* The whole size of the dimension in which x is cut: without one, each leaf is as large. */
static tutti_status_t resolve_source(tutti_placement_t *p, const tutti_tensor_t *x,
                                     const tutti_group_t *group)
{
    const int ranks = tutti_group_size(group), rank = tutti_group_rank(group);
    const int64_t own = x->shape.dims[p->dim];
    const tt_cut_t leaves = {p->leaves, p->leaves, ranks};
    if (p->size == 0) {
        p->size = own / tt_cut_rank(&leaves, rank).count * p->leaves;
    }
    const tt_cut_t cut = {p->size, p->leaves, ranks};
    const int64_t want = tt_cut_rank(&cut, rank).count;
    return own == want ? TUTTI_OK
                       : TT_FAIL(TUTTI_ERR_SHAPE,
                                 "redistribute: rank %d has %lld of dimension %d, whose whole size "
                                 "is %lld: want %lld",
                                 rank, (long long)own, p->dim, (long long)p->size, (long long)want);
}

static tutti_status_t resolve_target(tutti_placement_t *p, int64_t size)
{
    if (p->size != 0 && p->size != size) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "redistribute: dimension %d is to be cut from %lld, but has %lld", p->dim,
                       (long long)p->size, (long long)size);
    }
    if (p->size == 0 && size % p->leaves != 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "redistribute: dimension %d is %lld, which is not %d equal parts: give its "
                       "size (tutti_shard_of) for unequal ones",
                       p->dim, (long long)size, p->leaves);
    }
    p->size = size;
    return TUTTI_OK;
}

static tutti_status_t resolve(tutti_redistribution_t *how, const tutti_tensor_t *x,
                              const tutti_group_t *group)
{
    const int ranks = tutti_group_size(group);
    TT_TRY(resolve_dim(&how->from, x, ranks));
    TT_TRY(resolve_dim(&how->to, x, ranks));
    TT_TRY(resolve_dim(&how->grad, x, ranks));
    if (is_shard(&how->from)) {
        TT_TRY(resolve_source(&how->from, x, group));
    }
    if (is_shard(&how->to)) {
        const bool is_same = is_shard(&how->from) && how->from.dim == how->to.dim;
        TT_TRY(resolve_target(&how->to, is_same ? how->from.size : x->shape.dims[how->to.dim]));
    }
    return TUTTI_OK;
}

static tutti_status_t prepare(const tutti_tensor_t *x, tutti_group_t *group,
                              const tutti_redistribution_t *how, redistribute_t *r)
{
    TT_WANT("redistribute", x);
    TT_WANT("redistribute", how);
    tutti_redistribution_t resolved = *how;
    TT_TRY(tt_tensor_status(x));
    TT_TRY(tt_placed_check(how, tutti_group_size(group)));
    TT_TRY(resolve(&resolved, x, group));
    r->group = group;
    return tt_placed_resolved(&resolved, &r->placed);
}

tutti_tensor_t *tutti_redistribute(tutti_scope_t *s, tutti_tensor_t *x, tutti_group_t *group,
                                   const tutti_redistribution_t *how)
{
    redistribute_t r = {0};
    if (group == NULL) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "redistribute: group is NULL"));
    }
    const tutti_status_t status = prepare(x, group, how, &r);
    if (status < 0) {
        return tutti_scope_fail(s, tt_group_give_up(group, status));
    }
    tutti_tensor_t *y = run(s, x, &r);
    if (tt_tensor_status(y) < 0) { /* its shape, or no memory for the call */
        (void)tt_group_give_up(group, tt_tensor_status(y));
    }
    return y;
}
