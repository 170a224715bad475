/* Where weights need not have the same bits on any number of ranks (options.exact, TUTTI_EXACT=0),
 * a rank whose shards are several nodes of the canonical tree adds those up first, so that one
 * piece travels instead of several; and collectives may take any algorithm (coll/choice.c). A rank
 * whose shards are one node has nothing to gain, and goes the exact way.
 *
 * Cost: one pass over the gradients for the division, which the exact way does on the way.
 */
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/kernel/elementwise/combine.h"
#include "parallel/ddp/ddp_impl.h"

/* On every rank alike. */
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

tutti_status_t tt_ddp_settle_exact(tutti_ddp_t *ddp)
{
    int64_t is_exact;
    if ((unsigned)ddp->options.exact > TUTTI_DDP_EXACT_OFF) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no option exact %d", (int)ddp->options.exact);
    }
    TT_TRY(tt_config_int(TT_CONFIG_EXACT, 0, 1, &is_exact));
    ddp->is_exact = ddp->options.exact == TUTTI_DDP_EXACT_DEFAULT
                        ? is_exact != 0
                        : ddp->options.exact == TUTTI_DDP_EXACT_ON;
    ddp->adds_locally = !ddp->is_exact && has_several_pieces(ddp);
    if (!ddp->is_exact && tutti_group_rank(ddp->group) == 0) {
        tt_log(TT_LOG_INFO, "ddp: not exact (%s): weights depend on the number of ranks",
               ddp->options.exact == TUTTI_DDP_EXACT_OFF ? "options.exact" : "TUTTI_EXACT=0");
    }
    return TUTTI_OK;
}

tutti_status_t tt_bucket_gather(tt_bucket_t *bucket, tutti_tensor_t *sum)
{
    const int depth = bucket->stack.depth;
    if (depth == 0) {
        return tutti_tensor_fill(sum, 0);
    }
    if (depth == 1 && bucket->pieces[0] == sum) {
        return TUTTI_OK;
    }
    tutti_tensor_t *total = bucket->pieces[0]; /* a sum of its own, if there are more pieces */
    const tutti_dtype_t dtype = tutti_tensor_dtype(total);
    const tt_combine_fn_t add = tt_combine_kernels()->combine[dtype][TUTTI_SUM];
    for (int i = 1; i < depth; i++) {
        const bool is_last = i + 1 == depth && tutti_tensor_dtype(sum) == dtype;
        tutti_tensor_t *out = is_last ? sum : total;
        add(tutti_tensor_data(out), tutti_tensor_data(total), tutti_tensor_data(bucket->pieces[i]),
            (size_t)tutti_tensor_numel(total));
        total = out;
    }
    return total == sum ? TUTTI_OK : tutti_tensor_copy(sum, total);
}
