/* How a dimension is cut: into leaves, as torch.chunk does, which are dealt to the ranks in order.
 *
 *     size 10, 4 leaves:   [0, 3) [3, 6) [6, 9) [9, 10)
 *     on 3 ranks:          leaf 0 | leaf 1 | leaves 2 and 3
 */
#ifndef TT_CUT_H
#define TT_CUT_H

#include <stdint.h>

typedef struct {
    int64_t size; /* of the whole dimension */
    int leaves;   /* at least 1 */
    int ranks;
} tt_cut_t;

typedef struct {
    int64_t begin, count;
} tt_span_t;

tt_span_t tt_cut_leaf(const tt_cut_t *cut, int leaf);

/* Those of a rank. */
tt_span_t tt_cut_rank(const tt_cut_t *cut, int rank);

#endif
