/* The inside of redistributions: what was checked, and the moves that they are made of. */
#ifndef TT_PLACEMENT_IMPL_H
#define TT_PLACEMENT_IMPL_H

#include <tutti/placement.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/placement/cut.h"

/* A redistribution whose placements know the sizes and leaves of what they cut. */
typedef struct {
    tutti_placement_t from, to, grad;
} tt_placed_t;

/* Whether there is such a redistribution. */
tutti_status_t tt_placed_check(const tutti_redistribution_t *how, int ranks);

/* The same of one that has dimensions, sizes and leaves. */
tutti_status_t tt_placed_resolved(const tutti_redistribution_t *how, tt_placed_t *out);

/* That of the gradient. */
tt_placed_t tt_placed_adjoint(const tt_placed_t *p);

/* A tensor that is cut along a dimension. `x` is contiguous, and of this rank. The results are
 * contiguous, and owned by the caller. */
typedef struct {
    tutti_group_t *group;
    tutti_scope_t *s;
    int dim;
    tt_cut_t cut;
} tt_sharding_t;

/* Parts to the whole; the part of a whole; sums of wholes to the part of the sum. */
tutti_status_t tt_shard_gather(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t **out);
tutti_status_t tt_shard_slice(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t **out);
tutti_status_t tt_shard_reduce(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_reduction_t op,
                               tutti_tensor_t **out);

/* A part in a whole of zeros. */
tutti_status_t tt_shard_widen(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t **out);

/* A part of `from` becomes the part of `to`, another dimension. */
tutti_status_t tt_shard_turn(const tt_sharding_t *from, const tt_sharding_t *to, tutti_tensor_t *x,
                             tutti_tensor_t **out);

#endif
