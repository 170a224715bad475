/* Where gradients lie. Buckets are filled in the order in which gradients really come: the first
 * step goes by the order of registration; before the second one, the rank that hosts shard 0 tells
 * all others the order it has seen, and the buckets are rebuilt. Values do not depend on
 * buckets, so no bit changes.
 *
 * Source: Li et al., "PyTorch Distributed", PVLDB 13(12), 2020, section 3.2.3 (order), 6.2.1.
 */
#include "parallel/ddp/ddp_impl.h"

static bool has_several_pieces(const tutti_ddp_t *ddp)
{
    const int shards = ddp->options.shards, size = tutti_group_size(ddp->group);
    for (int rank = 0; rank < size; rank++) {
        const tt_leaves_t share = tt_tree_share(shards, size, rank);
        if (tt_tree_pieces(shards, share.begin, share.end, NULL) != 1) {
            return true;
        }
    }
    return false;
}

static tt_reducer_options_t reducer_options(const tutti_ddp_t *ddp)
{
    const tutti_ddp_options_t *o = &ddp->options;
    return (tt_reducer_options_t){
        .group = ddp->group,
        .threads = ddp->ctx->exec.threads,
        .shards = o->shards,
        .first_bucket_bytes = o->first_bucket_bytes,
        .bucket_bytes = o->bucket_bytes,
        .grad_dtype = o->param_dtype,
        .reduce_dtype = o->reduce_dtype,
        .is_weighted = o->uneven != TUTTI_DDP_EVEN,
        .divides_late = o->uneven == TUTTI_DDP_WEIGHTED || o->uneven == TUTTI_DDP_ACTIVE,
        .adds_locally = !ddp->is_exact && has_several_pieces(ddp),
        .keeps_sums_sharded = tt_ddp_is_sharded_sum(ddp),
        .is_transient = o->stage >= 2,
        .gives_results = tt_ddp_has_store(ddp),
        .units = ddp->units.unit_of,
        .grain = o->stage > 0 ? tt_ddp_grain : NULL,
        .is_wide = tt_ddp_stays_f32,
        .user = ddp,
    };
}

static void detach_grads(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        (void)tutti_tensor_set_grad(ddp->params[i].tensor, NULL);
    }
}

/* Gradients become views of the buckets; nobody keeps memory of the old ones. */
static tutti_status_t fill_buckets(tutti_ddp_t *ddp, const int *order, bool *is_new)
{
    detach_grads(ddp);
    TT_TRY(tt_reducer_fill(ddp->reducer, &ddp->list, order, is_new));
    for (int i = 0; i < ddp->param_count; i++) {
        const tt_reducer_slot_t *slot = &ddp->reducer->slots[i];
        TT_TRY(tutti_tensor_set_grad(ddp->params[i].tensor, slot->result));
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_open_layout(tutti_ddp_t *ddp)
{
    const tt_reducer_options_t options = reducer_options(ddp);
    bool is_new;
    TT_TRY(tt_reducer_open(&options, &ddp->reducer));
    return fill_buckets(ddp, NULL, &is_new);
}

void tt_ddp_close_layout(tutti_ddp_t *ddp)
{
    if (ddp->reducer != NULL) {
        detach_grads(ddp);
    }
    tt_reducer_close(ddp->reducer);
}

/* ---- the order in which gradients come ------------------------------------------------------- */

/* What this rank has seen in its last shard. Those that got no gradient come last. */
static void list_order(const tt_reducer_t *reducer, int32_t *order)
{
    int next = reducer->turn;
    for (int i = reducer->plan.param_count; i-- > 0;) {
        const tt_reducer_slot_t *slot = &reducer->slots[i];
        order[slot->state == TT_SLOT_WHOLE ? slot->turn : next++] = i;
    }
}

tutti_status_t tt_ddp_rebuild(tutti_ddp_t *ddp)
{
    _Static_assert(sizeof(int) == sizeof(int32_t), "it travels as i32");
    const int root = tt_tree_owner(ddp->options.shards, tutti_group_size(ddp->group), 0);
    tutti_tensor_t *order;
    if (ddp->param_count == 0) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_tensor_create(TUTTI_I32, TUTTI_SHAPE(ddp->param_count), &order));
    list_order(ddp->reducer, tutti_tensor_data(order));
    tutti_status_t status = tutti_broadcast(ddp->group, order, root, NULL);
    if (status >= 0) {
        status = fill_buckets(ddp, tutti_tensor_data(order), &ddp->is_rebuilt);
    }
    tutti_tensor_release(order);
    return status;
}
