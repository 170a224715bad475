/* The canonical tree over `leaves` contributions, and streaming through it.
 *
 * A node covers leaves [lo, hi). Its children meet at mid = lo + (largest power of two below
 * hi - lo), so that eight leaves give ((0+1)+(2+3))+((4+5)+(6+7)), and five ((0+1)+(2+3))+4.
 *
 * A holder of leaves [begin, end) pushes them in order and merges whenever it can; what is left
 * are the pieces: the largest nodes inside the interval. The pieces of all ranks, pushed in order
 * and merged by the same rule, give the same tree, however the leaves were spread.
 *
 *     tt_tree_stack_t stack = {.leaves = 12};
 *     for (int leaf = 4; leaf < 7; leaf++) {
 *         tt_tree_push(&stack, leaf, leaf + 1);    // a buffer per entry: push one beside it
 *         while (tt_tree_can_merge(&stack)) {
 *             tt_tree_merge(&stack);               // and add the two top buffers
 *         }
 *     }
 *     // stack.depth pieces: [4, 6) and [6, 7)
 */
#ifndef TT_TREE_H
#define TT_TREE_H

#include <stdbool.h>

/* An interval of 2^30 leaves has at most this many pieces. */
enum { TT_TREE_DEPTH_MAX = 62, TT_TREE_LEAVES_MAX = 1 << 20 };

typedef struct {
    int begin, end;
} tt_leaves_t;

typedef struct {
    int leaves; /* of the whole tree */
    int depth;
    tt_leaves_t spans[TT_TREE_DEPTH_MAX];
} tt_tree_stack_t;

/* Where the children of the node [lo, hi) meet; hi - lo is at least 2. */
int tt_tree_mid(int lo, int hi);

/* Whether [lo, hi) is a node of the tree over [0, leaves). */
bool tt_tree_is_node(int leaves, int lo, int hi);

void tt_tree_push(tt_tree_stack_t *stack, int begin, int end);
bool tt_tree_can_merge(const tt_tree_stack_t *stack);
void tt_tree_merge(tt_tree_stack_t *stack);

/* The pieces of [begin, end), in order; returns how many (0 for an empty interval). `pieces` has
 * room for TT_TREE_DEPTH_MAX, or is NULL. */
int tt_tree_pieces(int leaves, int begin, int end, tt_leaves_t *pieces);

/* The first leaf of a rank when `leaves` are spread as evenly as they can be; rank may be size. */
int tt_tree_first_leaf(int leaves, int size, int rank);

/* The leaves that a rank hosts then; the rank that hosts a leaf. */
tt_leaves_t tt_tree_share(int leaves, int size, int rank);
int tt_tree_owner(int leaves, int size, int leaf);

/* Leaves that a rank hosts: `count` of them from `first` on, every stride-th. */
typedef struct {
    int first, count, stride;
} tt_hosted_t;

/* In turn, rank r hosts leaves r, r + size, …, where there are more leaves than ranks. Otherwise
 * those of tt_tree_share(). */
tt_hosted_t tt_tree_hosted(int leaves, int size, int rank, bool in_turn);
int tt_tree_host(int leaves, int size, int leaf, bool in_turn);

#endif
