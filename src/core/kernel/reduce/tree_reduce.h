/* Reducing many buffers to one by the canonical tree, without ever holding a whole partial sum. */
#ifndef TT_TREE_REDUCE_H
#define TT_TREE_REDUCE_H

#include "core/kernel/elementwise/combine.h"
#include "core/kernel/reduce/tree.h"

enum { TT_REDUCE_BLOCK = 1024 }; /* elements that are reduced at a time */

typedef struct {
    const tt_combine_kernels_t *kernels;
    tutti_dtype_t src_dtype, dst_dtype; /* equal, or f32 in and a 16-bit float out */
    tutti_reduction_t reduction;
    const tutti_custom_reduction_t *custom; /* of TUTTI_CUSTOM */
    int leaves;                             /* what AVG divides by */

    int source_count;
    const void *const *sources;  /* [source_count], in the order of their leaves */
    const unsigned char *merges; /* [source_count], how often to merge after each push */

    int dst_count;
    void *const *dst; /* [dst_count]; may be sources, element for element */

    void *scratch; /* tt_tree_reduce_scratch_bytes(depth) */
} tt_tree_reduce_t;

/* merges for the pieces that tile [0, leaves), and the deepest the stack gets. False: they do not
 * tile it, or are not nodes. */
bool tt_tree_compile(int leaves, const tt_leaves_t *pieces, int piece_count, unsigned char *merges,
                     int *depth);

size_t tt_tree_reduce_scratch_bytes(int depth);

/* For elements [begin, end) of every source and destination. */
void tt_tree_reduce(const tt_tree_reduce_t *job, size_t begin, size_t end);

#endif
