/* Shards of tensor parallelism: pure functions of small numbers. */
#include "parallel/tensor/tp_shards.h"

tutti_status_t tt_tp_check(const char *call, const tt_tp_t *tp)
{
    const int ranks = tutti_group_size(tp->group);
    if (tp->shards < ranks || tp->shards > TT_TREE_LEAVES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: %d shards on %d ranks of group %s: want one for each rank, at least",
                       call, tp->shards, ranks, tutti_group_name(tp->group));
    }
    return TUTTI_OK;
}

tt_leaves_t tt_tp_leaves(const tt_tp_t *tp)
{
    return tt_tree_share(tp->shards, tutti_group_size(tp->group), tutti_group_rank(tp->group));
}

static tt_cut_t cut_of(const tt_tp_t *tp, const tt_tp_dim_t *dim, int part)
{
    return (tt_cut_t){dim->sizes[part], tp->shards, tutti_group_size(tp->group)};
}

tt_span_t tt_tp_part(const tt_tp_t *tp, const tt_tp_dim_t *dim, int part)
{
    const tt_cut_t cut = cut_of(tp, dim, part);
    return tt_cut_rank(&cut, tutti_group_rank(tp->group));
}

int64_t tt_tp_own_size(const tt_tp_t *tp, const tt_tp_dim_t *dim)
{
    int64_t size = 0;
    for (int i = 0; i < dim->parts; i++) {
        size += tt_tp_part(tp, dim, i).count;
    }
    return size;
}

int64_t tt_tp_whole_size(const tt_tp_dim_t *dim)
{
    int64_t size = 0;
    for (int i = 0; i < dim->parts; i++) {
        size += dim->sizes[i];
    }
    return size;
}

int tt_tp_runs(const tt_tp_t *tp, const tt_tp_dim_t *dim, int leaf, tt_span_t *runs)
{
    int count = 0;
    int64_t first = 0; /* of this rank's part */
    for (int i = 0; i < dim->parts; i++) {
        const tt_cut_t cut = cut_of(tp, dim, i);
        const tt_span_t own = tt_tp_part(tp, dim, i), whole = tt_cut_leaf(&cut, leaf);
        const tt_span_t run = {first + whole.begin - own.begin, whole.count};
        if (count > 0 && tp->shards == 1) {
            runs[0].count += run.count;
        } else {
            runs[count++] = run;
        }
        first += own.count;
    }
    return count;
}
