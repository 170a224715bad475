/* Sums over shards: the canonical tree, streamed, and one call for what is left of it.
 *
 * The first piece is made in the result's own memory where the dtypes agree, so that a rank with
 * one leaf needs none besides. While the call travels, the context's idle functions move it
 * forward. On meta nothing is sent. Cost: a buffer for each piece, and one more where there are
 * several leaves. */
#include "parallel/tensor/leaf_sum.h"

#include "comm/group/agree.h"
#include "core/kernel/elementwise/map.h"

static tutti_status_t new_piece(tt_leaf_sum_t *sum, tutti_tensor_t **out)
{
    if (sum->spare != NULL) {
        *out = sum->spare;
        sum->spare = NULL;
        return TUTTI_OK;
    }
    return tt_tensor_new(sum->s->ctx->place.device, sum->dtype, TUTTI_SHAPE(sum->numel), false,
                         out);
}

/* The first piece in `out`, seen as a row. */
static tutti_status_t first_piece(tt_leaf_sum_t *sum, const tutti_tensor_t *out,
                                  tutti_tensor_t **piece)
{
    if (out->dtype != sum->dtype || out->numel != sum->numel) {
        return new_piece(sum, piece);
    }
    return tt_tensor_over(out->storage, out->dtype, TUTTI_SHAPE(out->numel), NULL, out->offset,
                          piece);
}

static tutti_status_t merge_top(tt_leaf_sum_t *sum)
{
    tutti_tensor_t *low = sum->pieces[sum->piece_count - 2],
                   *high = sum->pieces[sum->piece_count - 1];
    const tt_strided_t a = tt_tensor_strided(low), b = tt_tensor_strided(high);
    tt_tensors_release(&sum->spare, 1);
    sum->spare = high;
    sum->pieces[--sum->piece_count] = NULL;
    return tt_map_binary(tt_scope_exec(sum->s), TT_BINARY_ADD, (tt_map_params_t){0}, &a, &a, &b);
}

static tutti_status_t add_leaf(tt_leaf_sum_t *sum, tt_tree_stack_t *stack, int leaf,
                               const tutti_tensor_t *out)
{
    tutti_tensor_t **piece = &sum->pieces[sum->piece_count];
    TT_TRY(sum->piece_count == 0 ? first_piece(sum, out, piece) : new_piece(sum, piece));
    sum->piece_count++;
    TT_TRY(sum->make(sum->user, leaf, *piece));
    tt_tree_push(stack, leaf, leaf + 1);
    while (tt_tree_can_merge(stack)) {
        tt_tree_merge(stack);
        TT_TRY(merge_top(sum));
    }
    return TUTTI_OK;
}

static tutti_status_t make_pieces(tt_leaf_sum_t *sum, tt_leaves_t leaves, const tutti_tensor_t *out)
{
    tt_tree_stack_t stack = {.leaves = sum->tp->shards};
    for (int leaf = leaves.begin; leaf < leaves.end; leaf++) {
        TT_TRY(add_leaf(sum, &stack, leaf, out));
    }
    tt_tensors_release(&sum->spare, 1);
    return TUTTI_OK;
}

/* There is one piece, the sum itself. */
static tutti_status_t take_sum(const tt_leaf_sum_t *sum, const tutti_tensor_t *out)
{
    const tutti_tensor_t *piece = sum->pieces[0];
    if (out->dtype == sum->dtype) {
        return TUTTI_OK; /* it was made there */
    }
    const tt_strided_t to = {.data = tt_tensor_data(out),
                             .dtype = out->dtype,
                             .rank = 1,
                             .shape = {out->numel},
                             .strides = {1}},
                       from = tt_tensor_strided(piece);
    return tt_map_unary(tt_scope_exec(sum->s), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from);
}

static void progress(void *user)
{
    tutti_group_progress(user);
}

static tutti_status_t call_group(tt_leaf_sum_t *sum, tutti_tensor_t *out, const int64_t *parts)
{
    tutti_group_t *group = sum->tp->group;
    const tutti_contributions_t leaves = {.count = sum->tp->shards,
                                          .pieces = sum->pieces,
                                          .piece_count = sum->piece_count,
                                          .dtype = sum->dtype};
    tutti_tensor_t *row;
    TT_TRY(
        tt_tensor_over(out->storage, out->dtype, TUTTI_SHAPE(out->numel), NULL, out->offset, &row));
    const tutti_status_t status =
        parts == NULL ? tutti_all_reduce_contributions(group, &leaves, row, TUTTI_SUM, &sum->work)
                      : tutti_reduce_scatter_contributions_uneven(group, &leaves, row, parts,
                                                                  TUTTI_SUM, &sum->work);
    tutti_tensor_release(row);
    TT_TRY(status);
    if (sum->s->ctx->place.accelerator == NULL) {
        sum->idle = (tutti_idle_t){.call = progress, .move = progress, .user = group};
        tutti_context_add_idle(sum->s->ctx, &sum->idle);
        sum->is_idle_added = true;
    }
    return TUTTI_OK;
}

static tutti_status_t start(tt_leaf_sum_t *sum, tutti_tensor_t *out, const int64_t *parts)
{
    TT_TRY(make_pieces(sum, tt_tp_leaves(sum->tp), out));
    if (tutti_group_size(sum->tp->group) == 1) {
        return take_sum(sum, out);
    }
    return tt_device_has_values(sum->s->ctx->place.device) ? call_group(sum, out, parts) : TUTTI_OK;
}

tutti_status_t tt_leaf_sum_start(tt_leaf_sum_t *sum, tutti_tensor_t *out, const int64_t *parts)
{
    const tutti_status_t status = start(sum, out, parts);
    return status < 0 ? tt_group_give_up(sum->tp->group, status) : TUTTI_OK;
}

tutti_status_t tt_leaf_sum_wait(tt_leaf_sum_t *sum)
{
    tutti_status_t status = TUTTI_OK;
    if (sum->is_idle_added) {
        tutti_context_remove_idle(sum->s->ctx, &sum->idle);
        sum->is_idle_added = false;
    }
    if (sum->work != NULL) {
        status = tutti_work_wait(sum->work, 0);
        tutti_work_release(sum->work);
        sum->work = NULL;
    }
    tt_tensors_release(&sum->spare, 1);
    tt_tensors_release(sum->pieces, (size_t)sum->piece_count);
    sum->piece_count = 0;
    return status;
}

tutti_status_t tt_leaf_sum(tt_leaf_sum_t *sum, tutti_tensor_t *out, const int64_t *parts)
{
    const tutti_status_t status = tt_leaf_sum_start(sum, out, parts);
    const tutti_status_t waited = tt_leaf_sum_wait(sum);
    return status < 0 ? status : waited;
}

tutti_status_t tt_leaf_sum_here(tt_leaf_sum_t *sum, tutti_tensor_t *out)
{
    tutti_status_t status = make_pieces(sum, (tt_leaves_t){0, sum->tp->shards}, out);
    if (status >= 0) {
        status = take_sum(sum, out);
    }
    (void)tt_leaf_sum_wait(sum);
    return status;
}
