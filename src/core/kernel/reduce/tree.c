/* The canonical tree. Pure functions of small numbers, of constant cost but for tt_tree_pieces.
 *
 * Left children are complete: 2^k leaves that begin at a multiple of 2^k. So the nodes are all such
 * blocks inside the tree, and what is right of the largest of them: [lo, leaves) where lo has the
 * upper bits of `leaves`.
 */
#include "core/kernel/reduce/tree.h"

#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

int tt_tree_mid(int lo, int hi)
{
    const unsigned below = (unsigned)(hi - lo - 1);
    return lo + (below > 1 ? 1 << (31 - __builtin_clz(below)) : 1);
}

bool tt_tree_is_node(int leaves, int lo, int hi)
{
    const int count = hi - lo;
    if (lo < 0 || count < 1 || hi > leaves) {
        return false;
    }
    if ((count & (count - 1)) == 0 && (lo & (count - 1)) == 0) {
        return true;
    }
    return hi == leaves && (leaves & -(lo & -lo)) == lo;
}

void tt_tree_push(tt_tree_stack_t *stack, int begin, int end)
{
    TT_ASSERT(stack->depth < TT_TREE_DEPTH_MAX);
    stack->spans[stack->depth++] = (tt_leaves_t){begin, end};
}

bool tt_tree_can_merge(const tt_tree_stack_t *stack)
{
    if (stack->depth < 2) {
        return false;
    }
    const tt_leaves_t left = stack->spans[stack->depth - 2];
    const tt_leaves_t right = stack->spans[stack->depth - 1];
    return left.end == right.begin && tt_tree_is_node(stack->leaves, left.begin, right.end) &&
           tt_tree_mid(left.begin, right.end) == left.end;
}

void tt_tree_merge(tt_tree_stack_t *stack)
{
    stack->depth--;
    stack->spans[stack->depth - 1].end = stack->spans[stack->depth].end;
}

int tt_tree_pieces(int leaves, int begin, int end, tt_leaves_t *pieces)
{
    if (end - begin == 1) { /* as most ranks have it */
        if (pieces != NULL) {
            pieces[0] = (tt_leaves_t){begin, end};
        }
        return 1;
    }
    tt_tree_stack_t stack = {.leaves = leaves};
    for (int leaf = begin; leaf < end; leaf++) {
        tt_tree_push(&stack, leaf, leaf + 1);
        while (tt_tree_can_merge(&stack)) {
            tt_tree_merge(&stack);
        }
    }
    for (int i = 0; pieces != NULL && i < stack.depth; i++) {
        pieces[i] = stack.spans[i];
    }
    return stack.depth;
}

int tt_tree_first_leaf(int leaves, int size, int rank)
{
    return (int)((int64_t)leaves * rank / size);
}

tt_leaves_t tt_tree_share(int leaves, int size, int rank)
{
    return (tt_leaves_t){tt_tree_first_leaf(leaves, size, rank),
                         tt_tree_first_leaf(leaves, size, rank + 1)};
}

/* The last rank whose first leaf is not behind this one: leaves * rank < (leaf + 1) * size. */
int tt_tree_owner(int leaves, int size, int leaf)
{
    return (int)(((int64_t)(leaf + 1) * size - 1) / leaves);
}

tt_hosted_t tt_tree_hosted(int leaves, int size, int rank, bool in_turn)
{
    if (in_turn && leaves > size) {
        return (tt_hosted_t){rank, (leaves - rank + size - 1) / size, size};
    }
    const tt_leaves_t share = tt_tree_share(leaves, size, rank);
    return (tt_hosted_t){share.begin, share.end - share.begin, 1};
}

int tt_tree_host(int leaves, int size, int leaf, bool in_turn)
{
    return in_turn && leaves > size ? leaf % size : tt_tree_owner(leaves, size, leaf);
}
