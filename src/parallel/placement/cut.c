/* How a dimension is cut: pure functions of small numbers. */
#include "parallel/placement/cut.h"

#include "core/kernel/reduce/tree.h"

static int64_t cut_at(const tt_cut_t *cut, int leaf)
{
    const int64_t each = cut->size / cut->leaves + (cut->size % cut->leaves > 0);
    const int64_t at = each * leaf;
    return at < cut->size ? at : cut->size;
}

tt_span_t tt_cut_leaf(const tt_cut_t *cut, int leaf)
{
    const int64_t begin = cut_at(cut, leaf);
    return (tt_span_t){begin, cut_at(cut, leaf + 1) - begin};
}

tt_span_t tt_cut_rank(const tt_cut_t *cut, int rank)
{
    const tt_leaves_t own = tt_tree_share(cut->leaves, cut->ranks, rank);
    const int64_t begin = cut_at(cut, own.begin);
    return (tt_span_t){begin, cut_at(cut, own.end) - begin};
}
