/* Spreads: tensors that are parts of a whole which several ranks have, cut along a dimension.
 *
 *     whole             [6, 4]   rows 0 1 2 | 3 4 5: two parts, each cut in three
 *     this rank's       [2, 4]   rows 1 and 4: two runs, one behind the other
 *
 * Who cuts a tensor hangs a spread on it. Checkpoints, clipping and digests find it there.
 */
#ifndef TT_SPREAD_H
#define TT_SPREAD_H

#include <tutti/tensor.h>

#include "core/base/ref.h"

enum { TT_SPREAD_RUNS_MAX = 8 };

typedef struct tt_spread tt_spread_t;
struct tt_spread {
    tt_ref_t ref;
    void (*free)(tt_spread_t *spread); /* when nobody has it any more */
    tutti_shape_t whole;
    int dim, run_count;
    struct {
        int64_t first, count; /* indices of the whole's dimension */
    } runs[TT_SPREAD_RUNS_MAX];
};

/* A tensor is spread so (NULL: no more); the spread is shared. */
void tt_tensor_set_spread(tutti_tensor_t *x, tt_spread_t *spread);

void tt_spread_release(tt_spread_t *spread);

#endif
