/* The canonical tree. Pure functions of small numbers; finding whether an interval is a node walks
 * down from the root, at most log2(leaves) steps. */
#include "core/kernel/tree.h"

#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

int tt_tree_mid(int lo, int hi)
{
    int half = 1;
    while (half * 2 < hi - lo) {
        half *= 2;
    }
    return lo + half;
}

bool tt_tree_is_node(int leaves, int lo, int hi)
{
    int node_lo = 0, node_hi = leaves;
    while (node_lo != lo || node_hi != hi) {
        if (node_hi - node_lo < 2) {
            return false;
        }
        const int mid = tt_tree_mid(node_lo, node_hi);
        if (hi <= mid) {
            node_hi = mid;
        } else if (lo >= mid) {
            node_lo = mid;
        } else {
            return false;
        }
    }
    return lo < hi;
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
