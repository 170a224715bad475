/* Dimensions of 1 that are put in and taken out. Inputs of one place that are one tensor stay one.
 */
#include "compute/nn/layers/unbatched.h"

#include <tutti/op_shape.h>

void tt_add_batch(tutti_scope_t *s, tutti_tensor_t *const *inputs, int count,
                  const tt_batch_place_t *places, tutti_tensor_t **batched)
{
    for (int i = 0; i < count; i++) {
        tutti_tensor_t *x = inputs[i];
        const bool is_first = i > 0 && x == inputs[0] && places[i].rank == places[0].rank &&
                              places[i].dim == places[0].dim;
        const bool lacks =
            x != NULL && places[i].rank > 0 && tutti_tensor_rank(x) == places[i].rank;
        batched[i] = is_first ? batched[0] : lacks ? tutti_unsqueeze(s, x, places[i].dim) : x;
    }
}

void tt_drop_batch(tutti_scope_t *s, tutti_tensor_t **outputs, int count,
                   const tt_batch_place_t *places)
{
    if (tutti_scope_status(s) < 0) {
        return; /* they may not be there */
    }
    for (int i = 0; i < count; i++) {
        outputs[i] = tutti_squeeze(s, outputs[i], places[i].dim);
    }
}
