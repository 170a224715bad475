/* A sample without a batch, for layers that want one: it becomes a batch of one, and the results
 * lose it again. */
#ifndef TT_UNBATCHED_H
#define TT_UNBATCHED_H

#include <tutti/nn.h>

/* A tensor of a call: how many dimensions it has without a batch, and where the batch belongs. */
typedef struct {
    int rank; /* 0: it has no batch */
    int dim;
} tt_batch_place_t;

/* Inputs of their places' ranks with a batch of one; NULL, and others, as they are. */
void tt_add_batch(tutti_scope_t *s, tutti_tensor_t *const *inputs, int count,
                  const tt_batch_place_t *places, tutti_tensor_t **batched);

/* Results without their batch of one. */
void tt_drop_batch(tutti_scope_t *s, tutti_tensor_t **outputs, int count,
                   const tt_batch_place_t *places);

#endif
